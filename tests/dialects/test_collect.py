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
    """Rule 65: text and calls before an end without a start were reasoning; such calls are no calls."""
    parsed = parse([f"hm {CALL} <tool_call>?\n</think>\n\nHi."], tools=TOOLS)
    assert (parsed.text, parsed.reasoning) == ("Hi.", "hm  <tool_call>?\n")
    assert parsed.calls == ()
    assert [call.name for call in parsed.reasoned] == ["now"]
    assert [report.in_reasoning for report in parsed.malformed] == [True]
