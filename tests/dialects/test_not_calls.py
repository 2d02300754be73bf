"""Text that looks like a call without a wrapper and is none: nothing is called, and no character is lost."""

import pytest

from dialects.scanning import calls_of, cuts, scan, text_of
from mustcall.core.tools import Tool
from mustcall.dialects import ArgumentDelta, CallEnd, CallStart, Malformed, ScanEvent, ScannedText

TOOLS = (
    Tool(name="ping", parameters={"type": "object", "properties": {}}),
    Tool(
        name="get_weather",
        parameters={"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    ),
)
PING = '{"name":"ping","arguments":{}}'
DEFINITION = '{"type":"function","function":{"name":"ping","parameters":{"type":"object","properties":{}}}}'


def read(text: str, *, tools: tuple[Tool, ...] | None = TOOLS, loose: bool = True) -> list[ScanEvent]:
    """Return the events of the text, the same however it is cut; a start without an end is taken back."""
    events: list[ScanEvent] | None = None
    for pieces in cuts(text):
        found = scan(pieces, tools=tools, loose=loose)
        assert events is None or found == events
        events = found
    assert events is not None
    started = [event.index for event in events if isinstance(event, CallStart)]
    settled = [event.index for event in events if isinstance(event, CallEnd | Malformed) and event.index is not None]
    assert sorted(settled) == started
    return events


def assert_text(text: str, *, tools: tuple[Tool, ...] | None = TOOLS) -> None:
    """Assert that the text comes out as it went in, with loose formats and without."""
    for loose in (True, False):
        events = read(text, tools=tools, loose=loose)
        assert calls_of(events) == []
        assert text_of(events) == text


@pytest.mark.parametrize(
    "text",
    [
        f'{{\n  "examples": [\n    {PING}\n  ]\n}}',
        f'{{\n"examples": [\n{PING}\n]\n}}',
        f'{{\n"examples": [\n\n{PING}\n]\n}}',
        f'{{"ts":1,"event":\n{PING}, "ok":true}}',
        f'{{"ts":1,"event" : \r\n{PING}\n}}',
        f'{{"role":"assistant","tool_calls":[\n{PING}\n]}}',
        f"[\n1,\n{PING}\n]",
        f'{{"a": [\n[{PING}]\n]}}',
        "x = [\n[ping()]\n]",
        "x = f(\n[ping()]\n)",
        "x = [\n[ping, {}]\n]",
        f"The log:\n  {PING}",
    ],
)
def test_inside_a_larger_value(text: str) -> None:
    """A line inside JSON or a list that began before it is no call."""
    assert_text(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"name":"get_weather","arguments":{"city":"x"},"result":"sunny","error":null}',
        '{"name":"get_weather","arguments":{"city":"x"},\n"result":"sunny"}',
        f'[{PING}, {{"name":"ping","arguments":{{}},"result":1}}]',
        f'[{PING}, {{"name":"ping"}}]',
        f"[{PING}, 1]",
        '{"type":"tool_result","name":"ping","input":{}}',
        '{"name":"ping","input":{},"type":"tool_result"}',
        '{"name":"ping","input":{},"type":["function"]}',
    ],
)
def test_foreign_keys(text: str) -> None:
    """Bare JSON that says more than a call says, before or behind the arguments, is no call."""
    assert_text(text)


@pytest.mark.parametrize(
    "text",
    [
        DEFINITION,
        f"[{DEFINITION}]",
        f"[{DEFINITION}, {DEFINITION}]",
        DEFINITION.replace('"parameters"', '"description":"d","parameters"'),
        DEFINITION.replace("}}}}", '}},"description":"d"}}'),
        '{"name":"ping","parameters":{"type":"object","properties":{}}}',
        '{"parameters":{"type":"object","properties":{}},"name":"ping"}',
    ],
)
def test_definitions(text: str) -> None:
    """A tool's definition is no call of it."""
    assert_text(text)
    assert_text(text, tools=None)


def test_a_tool_that_takes_schemas() -> None:
    """Where the tool declares such parameters, a schema is its arguments."""
    properties = {"type": {"type": "string"}, "properties": {"type": "object"}}
    tools = (Tool(name="ping", parameters={"type": "object", "properties": properties}),)
    assert [call["name"] for call in calls_of(read(DEFINITION, tools=tools))] == ["ping"]


@pytest.mark.parametrize(
    "text",
    [
        "Tool: ping() is nice",
        "Tool: get_weather(city='x').",
        "[ping, {}] text",
        "[ping, {}];",
        "Action: ping\nAction Input: {} and more",
        "[ping()](#ping) - pings",
        "[ping(), ping()](#ping) - pings",
        "[ping()]: http://x",
        "[ping()][1]",
        '[get_weather(city="x")] would fetch',
        f"{PING} is how you call",
        f"[{PING}] is how you call",
        f"[{PING}, {PING}] is how you call",
        f"{PING},",
        f"{PING} <b",
    ],
)
def test_more_on_the_line(text: str) -> None:
    """Rule 64: a call without a wrapper has its lines for itself."""
    assert_text(text)
    assert_text(f"So.\n{text}\nDone.")


@pytest.mark.parametrize("text", ["[1, {}]", "[1()]", "[-a(b=1)]", "Action: 1\nAction Input: {}", '["1", {}]'])
def test_numbers_are_no_names(text: str) -> None:
    """Where every name counts, a number is still none."""
    assert_text(text, tools=None)


@pytest.mark.parametrize(
    ("text", "count", "remains"),
    [
        (f"Sure.\n{PING}", 1, "Sure.\n"),
        (f"Sure, like so:\n{PING}\n", 1, "Sure, like so:\n\n"),
        (f"Sure\n\n{PING}  \nDone.", 1, "Sure\n\n  \nDone."),
        (f"  {PING}", 1, "  "),
        (f"{PING}; {PING}", 2, ""),
        (f"{PING}\n{PING}", 2, ""),
        (f"{PING}<|eot_id|>", 1, ""),
        (f"{PING}<|eot", 1, "<|eot"),
        (f"<think>a [</think>{PING}", 1, ""),
        ("[ping(),\nping()]<|im_end|>", 2, ""),
        (f"[\n  {PING},\n  {PING}\n]\r\n", 2, "\r\n"),
        (f"[{PING}, {PING}", 2, ""),
        ("[ping(), ping(", 1, ", ping("),
        ('{"type":"function","id":"1","function":{"name":"ping","parameters":{}}}', 1, ""),
        ("Tool: ping() \nDone.", 1, " \nDone."),
        ("[ping, {}]\n[ping, {}]", 2, ""),
        ("Action: ping\nAction Input: {}\nDone.", 1, "\nDone."),
    ],
)
def test_still_calls(text: str, count: int, remains: str) -> None:
    """What stands alone on its lines, after prose or a call, is a call as before."""
    events = read(text)
    assert len(calls_of(events)) == count
    assert text_of(events) == remains


def test_an_unknown_name_among_others() -> None:
    """Rules 59, 63: a list with a tool in it that is not offered is no list of calls; in a wrapper the rest is made."""
    unknown = '{"name":"rm","arguments":{"path":"all"}}'
    assert_text(f"[{PING}, {unknown}, {PING}]")
    assert_text(f"{PING}\n{unknown}\n{PING}")
    events = read(f"<tool_calls>[{PING}, {unknown}, {PING}]</tool_calls>")
    assert [call["name"] for call in calls_of(events)] == ["ping", "ping"]
    assert unknown in text_of(events)


def test_calls_taken_back_together() -> None:
    """Each call of a list that turns out to be none is taken back under its index; the text comes once, before."""
    text = "[ping(), ping()](#x)"
    events = read(text, loose=False)
    assert [type(event) for event in events] == [
        *(CallStart, ArgumentDelta) * 2,
        ScannedText,
        Malformed,
        Malformed,
        ScannedText,
    ]
    assert [(event.index, event.raw) for event in events if isinstance(event, Malformed)] == [
        (0, "[ping()"),
        (1, ", ping()]"),
    ]
