"""Offered names in unknown markup are seen and reported; the text stays as it is."""

import pytest

from dialects.scanning import TOOLS, cuts, reasons_of, scan, text_of
from mustcall.core.tools import Tool
from mustcall.dialects import Malformed, Reason


@pytest.mark.parametrize(
    "text",
    [
        "<get_weather><city>Paris</city></get_weather>",
        '<tool name="get_weather" city="Paris"/>',
        '{"tool_use": {"id": 1, "recipient": "get_weather", "payload": {"city": "Paris"}}}',
        "§call get_weather§ is prose, but @get_weather{city: Paris} is not",
        '```\n```\n<<get_weather|city="Paris">>',
        "<<now()>>",
        '{"cmd": "now", "with": {}}',
        "#get_weather" + " " * 300 + "(city=1)",
        '<my_code>\nget_weather(city="Paris")\n</my_code>',
        'So.\n[CODE] \r\n  get_weather(city="Paris")\n[/CODE]',
        "<my_code>\n\tnow()\n</my_code>",
        "[a" + " long" * 20 + " tag]\nnow()",
    ],
)
def test_seen(text: str) -> None:
    """Rule 121: a known call in an unknown wrapper is reported as such, whatever the cuts, and stays text."""
    for pieces in cuts(text):
        events = scan(pieces)
        reports = [event for event in events if isinstance(event, Malformed)]
        assert [(report.reason, report.dialect) for report in reports] == [(Reason.UNKNOWN_MARKUP, "unknown")]
        assert text_of(events) == text
        assert reports[0].raw in text
        assert (reports[0].name or "?") in reports[0].raw


@pytest.mark.parametrize(
    "text",
    [
        "I will call get_weather(city) now.",
        'The tool "get_weather" takes a city: any will do.',
        "`<get_weather city=1>` and ```\n<get_weather><city>\n```",
        "<get_weather_now><city>",
        "#get_weather" + " " * 500 + "(city=1)",
        "<b>now</b>",
        ">>> get_weather(city=1)",
        "> get_weather(city=1)",
        "See [1]\nget_weather takes a city.",
    ],
)
def test_not_seen(text: str) -> None:
    """Prose that names a tool, other names, code, and what is too far away are no calls."""
    for pieces in cuts(text):
        assert reasons_of(scan(pieces)) == []


def test_nothing_to_look_for() -> None:
    """Without offered tools there is nothing to anchor a search in."""
    assert reasons_of(scan(["<get_weather><city>Paris</city></get_weather>"], tools=None)) == []


def test_in_reasoning() -> None:
    """What is seen in reasoning says so."""
    events = scan(["<think><get_weather city=1></think>"])
    assert [(event.reason, event.in_reasoning) for event in events if isinstance(event, Malformed)] == [
        (Reason.UNKNOWN_MARKUP, True)
    ]


def test_many_names() -> None:
    """Each call in unknown markup is reported once, in order."""
    tools = [Tool(name=f"t{number}", parameters={"properties": {"x": {}}}) for number in range(3)]
    text = (" " * 500).join(f"<t{number} x=1>" for number in range(3))
    for pieces in cuts(text):
        events = scan(pieces, tools=tools)
        assert [event.name for event in events if isinstance(event, Malformed)] == ["t0", "t1", "t2"]


def test_known_calls_are_not_reported_again() -> None:
    """Rule 121: a call that was read, or already reported as malformed, is not reported as unknown as well."""
    good = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
    bad = '<tool_call>{"name": "get_weather", "arguments": {"city": Paris}}</tool_call>'
    assert reasons_of(scan([good])) == []
    assert reasons_of(scan([bad])) == ["bad_json"]
    assert TOOLS[0].name == "get_weather"
