"""What a small model passes to the built-in tools, held to the question."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.parts import ToolCall
from mustcall.engine.tooling.definition import ToolContext
from mustcall.toolkit.builtin.clock import zone_in
from mustcall.toolkit.builtin.offer import builtin_tools
from mustcall.toolkit.builtin.roots import roots_at
from mustcall.toolkit.holding import hold_arguments
from mustcall.toolkit.reports import ChangeReports


@pytest.mark.parametrize(
    ("tool", "given_arguments", "question", "held"),
    [
        ("list_directory", {"path": "/path/to/folder"}, "List the files in this folder", {"path": "."}),
        ("list_directory", {"path": "/srv"}, "List files in /srv", {"path": "/srv"}),
        ("list_directory", {"path": "/path"}, "List files in /srv.", {"path": "/srv"}),
        ("list_directory", {"path": "/home"}, "What files are in $HOME/notes?", {"path": "$HOME/notes"}),
        ("list_directory", {"path": "docs"}, "What is in the docs folder?", {"path": "docs"}),
        ("list_directory", {"path": "~"}, "What is in my home folder?", {"path": "~"}),
        ("list_directory", {"path": "x"}, "Compare /a and /b", {"path": "x"}),
        ("list_directory", {}, "List the files", {}),
        ("read_file", {"path": "notes.txt", "first_line": 10}, "Read the file notes.txt", {"path": "notes.txt"}),
        ("read_file", {"path": "file.txt"}, "Read notes.txt", {"path": "notes.txt"}),
        ("read_file", {"path": "./notes.txt"}, "Read notes.txt", {"path": "./notes.txt"}),
        ("read_file", {"path": "a.txt", "first_line": 7}, "Read a.txt from line 7", {"path": "a.txt", "first_line": 7}),
        ("read_file", {"path": "x"}, "Read it again", {"path": "x"}),
        ("calculator", {"expression": "17.5 * 3421"}, "What is 17.5% of 3421?", {"expression": "17.5% of 3421"}),
        ("calculator", {"expression": "3421*0.175"}, "What is 17.5% of 3421?", {"expression": "3421*0.175"}),
        ("calculator", {"expression": "the square root"}, "square root of 144?", {"expression": "sqrt(144)"}),
        ("calculator", {"expression": "1+1"}, "Add up my shopping", {"expression": "1+1"}),
        ("current_time", {"zone": "UTC"}, "What time is it?", {}),
        ("current_time", {"zone": "Europe/Berlin"}, "What time is it in Oslo?", {"zone": "Europe/Oslo"}),
        ("current_time", {}, "What time is it in New York?", {"zone": "America/New_York"}),
        ("current_time", {"zone": "UTC"}, "What is the time in UTC?", {"zone": "UTC"}),
        ("search_docs", {"query": "holiday"}, "How many days of holiday are there?", {"query": "holiday"}),
        ("search_docs", {"query": "weather"}, "How many holidays?", {"query": "How many holidays?"}),
        ("other", {"path": "x"}, "List the files", {"path": "x"}),
        ("list_directory", {"path": "x"}, " ", {"path": "x"}),
    ],
)
def test_held_to_the_question(
    tool: str, given_arguments: dict[str, object], question: str, held: dict[str, object]
) -> None:
    """What the question says is kept, what it does not say is replaced or left out, and each is reported."""
    log = AdaptationLog()
    assert hold_arguments(tool, given_arguments, question, log) == held
    assert bool(log.entries) == (held != given_arguments)


TOOLS = st.sampled_from(["list_directory", "read_file", "calculator", "current_time", "search_docs"])
ARGUMENTS = st.dictionaries(
    st.sampled_from(["path", "first_line", "expression", "zone", "query"]), st.text(max_size=20) | st.integers()
)


@given(TOOLS, ARGUMENTS, st.text(max_size=60))
def test_holding_twice_is_holding_once(tool: str, arguments: dict[str, object], question: str) -> None:
    """Any arguments and any question: nothing is raised, and what was held stays."""
    once = hold_arguments(tool, arguments, question, AdaptationLog())
    assert hold_arguments(tool, once, question, AdaptationLog()) == once


def test_a_tool_is_held_only_if_it_has_a_question(tmp_path: Path) -> None:
    """Without a question the arguments are the model's own; with one each change is in the reports."""
    (tmp_path / "notes.txt").write_text("one\ntwo")
    reports = ChangeReports()
    asked: list[str | None] = [None]
    tools = builtin_tools(
        roots_at([tmp_path], tmp_path),
        reports=reports,
        question=lambda: asked[0],
        now=lambda: datetime(2026, 3, 29, 12, 0, 5, tzinfo=UTC),
    )
    read = next(tool for tool in tools if tool.name == "read_file")
    arguments = json.dumps({"path": "notes.txt", "first_line": 2})

    def run(call_id: str) -> object:
        call = ToolCall(id=call_id, name=read.name, arguments_json=arguments)
        return read.prepare(arguments, ToolContext(call=call))()

    assert run("c1") == "two"
    asked[0] = "Read notes.txt"
    assert run("c2") == "one\ntwo"
    assert reports.of("c1") == ()
    assert [change.subject for change in reports.of("c2")] == ["read_file.first_line"]


@pytest.mark.parametrize(
    ("question", "zone"),
    [
        ("What time is it in Oslo?", "Europe/Oslo"),
        ("What's the time in New York right now?", "America/New_York"),
        ("what is the time at Asia/Tokyo", "Asia/Tokyo"),
        ("time in UTC", "UTC"),
        ("What time is it?", None),
        ("What time is it in the morning?", None),
    ],
)
def test_the_place_of_a_question(question: str, zone: str | None) -> None:
    """Rule 12: the zone of a place that is named is found; where none is named there is none."""
    assert zone_in(question) == zone
