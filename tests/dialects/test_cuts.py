"""Texts in which a decision hangs on a character that a cut may hold back: the whole sequence of events is the same."""

from collections.abc import Iterator

import pytest

from dialects.scanning import cuts, reasons_of, scan
from mustcall.core.tools import Tool
from mustcall.dialects import Malformed

NESTED = tuple(
    Tool(name=name, parameters={"type": "object", "properties": {"city": {"type": "string"}}})
    for name in ("now", "now.get", "at.now.get", "now+1")
)
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'


def every_cut(text: str) -> Iterator[list[str]]:
    """Yield the text as all tests cut it, and in two pieces at every place."""
    yield from cuts(text)
    for place in range(1, len(text)):
        yield [text[:place], text[place:]]


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        # A word behind a fault: the text just goes on, and what the lookout saw is told at the reply's end.
        (
            'Let me check.\n[TOOL_CALLS] [{}name": "get_weather", "arguments": {"city": "Paris", "days": 3}}]\nDone.\n',
            ["missing_name", "unknown_markup"],
        ),
        # No word: the damage ends with its line, and what the lookout saw in it is told there.
        (
            '[TOOL_CALLS] [{}"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}]\n\nDone.\n',
            ["missing_name", "unknown_markup"],
        ),
        (f"<tool_call>{{}}and then {CALL}", ["missing_name"]),
        (f"<tool_call>{{}}, and then {CALL}", ["missing_name"]),
        # A fault at the very end.
        ("<tool_call>{}", ["missing_name"]),
        # A carriage return before a marker that needs a line's start, and a blank that is none.
        ("\rTool: get_weather(", ["truncated"]),
        ("\n\rTool: get_weather(", ["truncated"]),
        ("\nNo.\rTool: get_weather(", []),
        ("\N{NO-BREAK SPACE}Tool: get_weather(", []),
        (f"{CALL}\N{IDEOGRAPHIC SPACE}Tool: get_weather(", []),
        # A bare form that becomes certain: what was seen before it is told before it.
        ('"get_weather, city:\n```tool_code\nget_weather(city=1)e(.', ["unknown_markup", "positional_arguments"]),
        # A fence that a cut makes look like a call's, behind what separates it from a call, is the code it is.
        (f"{CALL}\n```tool_code\n```{CALL}", []),
        (f"{CALL}\n```tool_code```\n{CALL}", []),
        # A bracket in indented code, which only counts with something behind it; the call behind the code is cut off.
        ("So:\n\n\t[\n<tool_call>", ["truncated"]),
        ("So:\n\n    [" + " " * 300 + "\n<tool_call>", ["truncated"]),
        # Ticks in runs as long as are counted, and longer.
        ("So " + "`" * 64 + '<get_weather city="Paris">' + "`" * 64, []),
        ("So " + "`" * 64 + '<get_weather city="Paris">' + "`" * 65 + "\n\nDone.", []),
        ("So " + "`" * 64 + '<get_weather city="Paris">' + "`" * 63 + "\n\nDone.", ["unknown_markup"]),
        ("So " + "`" * 64 + "a" + "`" * 128 + CALL, ["unknown_markup"]),
    ],
)
def test_reports_keep_their_place(text: str, reasons: list[str]) -> None:
    """What is reported, and where among the other events, is decided by the text and not by its cuts."""
    whole = scan([text], loose=True)
    assert reasons_of(whole) == reasons
    for pieces in every_cut(text):
        assert scan(pieces, loose=True) == whole, pieces


@pytest.mark.parametrize("name", ["now", "now.get", "at.now.get", "now+1"])
def test_a_name_within_a_name(name: str) -> None:
    """Rule 121: the longest offered name is reported, also where a cut leaves a shorter one standing."""
    text = f"So #{name}|city=1| it is."
    for pieces in every_cut(text):
        reports = [event for event in scan(pieces, tools=NESTED) if isinstance(event, Malformed)]
        assert [(report.raw, report.name) for report in reports] == [(f"#{name}|city=", name)], pieces
