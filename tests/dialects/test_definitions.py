"""Prose and a tool's definition are neither calls nor damage; a call that went wrong in the prompt protocol is."""

import json
from typing import Any

import pytest

from dialects.scanning import TOOLS, calls_of, reasons_of, scan, text_of
from mustcall.core.tools import Tool
from mustcall.dialects import Malformed, ScanEvent
from support.splits import text_splits

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
DEFINITION = json.dumps({"name": "get_weather", "parameters": SCHEMA})
NESTED = json.dumps(
    {"type": "function", "function": {"name": "get_weather", "description": "Tells it.", "parameters": SCHEMA}}
)


def read(text: str, *, tools: Any = TOOLS, loose: bool = True) -> list[ScanEvent]:
    """Return the events of a text, the same however it is cut."""
    whole = scan([text], tools=tools, loose=loose)
    for pieces in text_splits(text):
        assert scan(pieces, tools=tools, loose=loose) == whole, pieces
    return whole


@pytest.mark.parametrize(
    "text",
    [
        "[now()](http://x)",
        "[now()]: http://x",
        "[now()][1]",
        "See [now()](http://x), or\n[now( )](http://y).",
        "Tool: now() is nice",
        DEFINITION,
        f"[{DEFINITION}]",
        f"The tools:\n{DEFINITION}\n{NESTED}\n",
        f"[{NESTED}, {NESTED}]",
        '[{"name":"search","parameters":{"type":"object"}}]',
        '{"name":"now","parameters":{"type":"object"}}',
        '{"parameters":{"type":"object"},"name":"now"}',
        '{"name":"now","parameters":{"$schema":"x","type":"object","additionalProperties":false}}',
        '{"name":"get_weather","description":"d","input_schema":{"type":"object","properties":{"city":{}}}}',
        '<tools>{"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {}}}}</tools>',
    ],
)
def test_neither_calls_nor_damage(text: str) -> None:
    """Rule 122: a link and a tool's definition are text; nothing is called, and nothing is reported."""
    for loose in (True, False):
        for tools in (TOOLS, None):
            events = read(text, tools=tools, loose=loose)
            assert (calls_of(events), text_of(events), reasons_of(events)) == ([], text, [])


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"name":"get_weather","parameters":{"type":"town","city":"P"}}', {"type": "town", "city": "P"}),
        ('{"name":"get_weather","parameters":{"type":"object","city":"P"}}', {"type": "object", "city": "P"}),
        ('{"name":"get_weather","parameters":{"description":"d"}}', {"description": "d"}),
        ('{"name":"get_weather","parameters": {\n "city":"P"}}', {"city": "P"}),
        ('{"name":"get_weather","parameters":"{}"}', {}),
    ],
)
def test_arguments_that_resemble_a_schema(text: str, arguments: dict[str, Any]) -> None:
    """Arguments that hold a word of JSON schemas are arguments as long as they are no schema."""
    assert calls_of(read(text)) == [{"name": "get_weather", "arguments": arguments}]


def test_a_tool_that_asks_for_a_schema() -> None:
    """Where the tool declares such parameters the schema is its arguments, whatever comes first."""
    tools = (Tool(name="check", parameters={"type": "object", "properties": {"type": {}, "properties": {}}}),)
    for text in (
        '{"name":"check","parameters":{"type":"object","properties":{}}}',
        '{"parameters":{"type":"object","properties":{}},"name":"check"}',
        '{"name":"check","parameters":{"type":"object"}}',
    ):
        assert [call["name"] for call in calls_of(read(text, tools=tools))] == ["check"]


@pytest.mark.parametrize(
    ("text", "reason", "raw"),
    [
        ('Tool: get_weather("P")', "positional_arguments", 'Tool: get_weather("P")'),
        ("Tool: get_weather(P)\nSo.", "positional_arguments", "Tool: get_weather(P)"),
        ("So.\nTool: get_weather('P', 3) ", "positional_arguments", "Tool: get_weather('P', 3) "),
        ("Tool: get_weather(ci", "truncated", "Tool: get_weather(ci"),
        (
            "Action: get_weather\nAction Input: Paris",
            "arguments_not_object",
            "Action: get_weather\nAction Input: Paris",
        ),
        (
            'Action: get_weather\nAction Input: "Paris"\nObservation:',
            "arguments_not_object",
            'Action: get_weather\nAction Input: "Paris"',
        ),
        ("Action: now\nAction Input:", "truncated", "Action: now\nAction Input:"),
    ],
)
def test_a_loose_call_that_went_wrong(text: str, reason: str, raw: str) -> None:
    """Rule 69: an offered tool on its own line with arguments that cannot be read is reported, and is no call."""
    events = read(text)
    assert (calls_of(events), text_of(events), reasons_of(events)) == ([], text, [reason])
    assert [event.raw for event in events if isinstance(event, Malformed)] == [raw]


@pytest.mark.parametrize(
    "text",
    [
        'Tool: hammer("P")',
        "Action: hammer\nAction Input: Paris",
        "Tool: get_weather(the old one) was better",
        'Tool: get_weather("P' + "x" * 1100 + '")',
        "The Tool: get_weather(P)",
    ],
)
def test_loose_prose_is_not_reported(text: str) -> None:
    """Rule 64: without an offered name, or with more on the line, such a line is text."""
    events = read(text) if len(text) < 200 else scan([text], loose=True)
    assert (calls_of(events), text_of(events), reasons_of(events)) == ([], text, [])


def test_a_call_behind_a_loose_one_that_went_wrong() -> None:
    """The damage ends with its line."""
    events = read('Tool: get_weather("P")\nTool: get_weather(city="P")')
    assert calls_of(events) == [{"name": "get_weather", "arguments": {"city": "P"}}]
    assert reasons_of(events) == ["positional_arguments"]
