"""The built-in tools as an agent is given them."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mustcall.core.errors import ToolError
from mustcall.core.message import Message, Role
from mustcall.core.parts import Text, ToolCall
from mustcall.core.request import Request
from mustcall.engine.tooling.definition import FunctionTool, ToolContext
from mustcall.policy.schema.validation import problems_in
from mustcall.policy.words.grounding import check_rules, find_rule
from mustcall.toolkit.builtin.offer import RULES, builtin_tools
from mustcall.toolkit.builtin.roots import roots_at
from mustcall.toolkit.builtin.search import Documents
from mustcall.toolkit.reports import ChangeReports

NOON = datetime(2026, 3, 29, 12, 0, 5, tzinfo=UTC)


def call(tool: FunctionTool, arguments: dict[str, object], call_id: str = "c1") -> str:
    """Run a tool as the agent would, after checking the arguments against its schema."""
    assert list(problems_in(tool.schema, arguments)) == []
    text = json.dumps(arguments)
    context = ToolContext(call=ToolCall(id=call_id, name=tool.name, arguments_json=text))
    return str(tool.prepare(text, context)())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a document in it."""
    (tmp_path / "a.md").write_text("one\ntwo\nthree")
    return tmp_path


def tools_of(folder: Path, reports: ChangeReports | None = None, **values: str) -> dict[str, FunctionTool]:
    """The tools by their names."""
    roots = roots_at([folder], folder)
    made = builtin_tools(roots, documents=Documents(folder), values=values, reports=reports, now=lambda: NOON)
    return {tool.name: tool for tool in made}


def test_every_tool_does_what_it_says(folder: Path) -> None:
    """Each tool runs from arguments that fit its own schema, optional ones left out or given."""
    tools = tools_of(folder)
    assert list(tools) == ["list_directory", "read_file", "calculator", "current_time", "search_docs"]
    assert call(tools["list_directory"], {"path": "."}).endswith("a.md (13 bytes)")
    assert call(tools["read_file"], {"path": "a.md"}) == "one\ntwo\nthree"
    assert call(tools["read_file"], {"path": "a.md", "first_line": 3}) == "three"
    assert call(tools["list_directory"], {}).endswith("a.md (13 bytes)")
    assert call(tools["calculator"], {"expression": "6*7"}) == "6*7 = 42"
    assert call(tools["calculator"], {"expression": "square root of 144"}) == "sqrt(144) = 12"
    assert call(tools["calculator"], {"expression": "3,421 * 0.5"}) == "3421 * 0.5 = 1710.5"
    assert call(tools["current_time"], {"zone": "UTC"}).startswith("Sunday 2026-03-29 12:00:05")
    assert "local time" in call(tools["current_time"], {})
    assert "[a.md:1]" in call(tools["search_docs"], {"query": "two"})


def test_search_is_offered_with_documents_only(folder: Path) -> None:
    """Without a folder of documents there is nothing to search."""
    assert "search_docs" not in [tool.name for tool in builtin_tools(roots_at([folder]))]


def test_nothing_is_changed_by_them(folder: Path) -> None:
    """Every built-in tool only looks: it may be run again, and says so."""
    assert all(tool.settings.repeatable and not tool.settings.side_effect for tool in tools_of(folder).values())


def test_paths_are_expanded_and_reported(folder: Path) -> None:
    """Rule 80: variables on the list are expanded before the tool runs; the report names them under the call's id."""
    reports = ChangeReports()
    tools = tools_of(folder, reports, HOME=str(folder))
    assert call(tools["read_file"], {"path": "$HOME/a.md"}, "c7").startswith("one")
    assert call(tools["read_file"], {"path": "~/a.md"}, "c8").startswith("one")
    assert [(change.subject, change.detail) for change in reports.of("c7")] == [("read_file.path", "$HOME")]
    assert [change.detail for change in reports.of("c8")] == ["~"]
    assert reports.of("c9") == ()


def test_expansion_is_off_by_default(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 80: whoever builds the tools without an allowlist gets paths as they were written."""
    monkeypatch.setenv("HOME", str(folder))
    tools = {tool.name: tool for tool in builtin_tools(roots_at([folder], folder))}
    with pytest.raises(ToolError, match=r"\$HOME"):
        call(tools["list_directory"], {"path": "$HOME"})


def test_expansion_opens_no_door(folder: Path) -> None:
    """Rule 80: what a variable expands to is judged like any other path."""
    tools = tools_of(folder, HOME="/etc")
    with pytest.raises(ToolError, match="outside"):
        call(tools["read_file"], {"path": "~/passwd"})


def test_reports_are_bounded() -> None:
    """A long session does not fill the memory: the oldest reports go."""
    reports = ChangeReports()
    tools = builtin_tools(roots_at([Path.cwd()]), values={"HOME": str(Path.cwd())}, reports=reports)
    for number in range(1200):
        call(tools[0], {"path": "~"}, f"c{number}")
    assert reports.of("c0") == ()
    assert reports.of("c1199")


@pytest.mark.parametrize(
    ("question", "tool"),
    [
        ("List files in /tmp", "list_directory"),
        ("What files are in $HOME/notes?", "list_directory"),
        ("please show me the files here", "list_directory"),
        ("What time is it in Oslo?", "current_time"),
        ("What day is it today?", "current_time"),
        ("What's today's date?", "current_time"),
        ("Calculate 12 * 12", "calculator"),
        ("What is 17.5% of 3421?", "calculator"),
        ("What is the square root of 144?", "calculator"),
        ("add 17 and 25", "calculator"),
        ("Read the file notes.txt", "read_file"),
        ("What does notes.txt say?", "read_file"),
        ("What's in this folder?", "list_directory"),
        ("What is in the current directory?", "list_directory"),
        ("half an hour later", None),
        ("Are you open 24/7?", None),
        ("How do I profile a Python program?", None),
        ("What is a list in Python?", None),
        ("Tell me about time zones", None),
    ],
)
def test_questions_that_a_tool_answers(folder: Path, question: str, tool: str | None) -> None:
    """Rule 12: the rules that come with the tools match what the tools are for, and little else."""
    check_rules(RULES)
    offers = tuple(each.offer for each in tools_of(folder).values())
    messages = (Message(role=Role.USER, parts=(Text(text=question),)),)
    found = find_rule(RULES, Request(model="m", messages=messages, tools=offers))
    assert (found.rule.tool if found else None) == tool
