"""A whole reply as one value."""

from dialects.scanning import TOOLS
from mustcall.dialects import parse

CALL = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'


def test_parse() -> None:
    """Calls, text, reasoning and reports of one reply, in order."""
    parsed = parse([f"<think>a{CALL}</think>Hi {CALL} <tool_call>?"], tools=TOOLS)
    assert [(call.name, call.arguments) for call in parsed.calls] == [("now", "{}")]
    assert [call.in_reasoning for call in parsed.reasoned] == [True]
    assert (parsed.reasoning, parsed.text) == (f"a{CALL}", "Hi  <tool_call>?")
    assert [(report.reason, report.raw) for report in parsed.malformed] == [("stray_marker", "<tool_call>")]


def test_a_late_end_of_reasoning() -> None:
    """Rule 65: text before an end without a start was reasoning, and so were the reports on it."""
    parsed = parse(["hm <tool_call>?\n</think>\n\nHi."], tools=TOOLS)
    assert (parsed.text, parsed.reasoning) == ("Hi.", "hm <tool_call>?\n")
    assert [report.in_reasoning for report in parsed.malformed] == [True]


def test_a_call_before_a_late_end_stays_a_call() -> None:
    """A whole reply says what a stream has said: a call that was complete is not taken back."""
    parsed = parse([f"hm {CALL}\n</think>\n\nHi."], tools=TOOLS)
    assert [call.name for call in parsed.calls] == ["now"]
    assert (parsed.text, parsed.reasoning, parsed.reasoned) == ("hm Hi.", "", ())
