"""A whole reply as one value."""

import pytest

from dialects.scanning import TOOLS
from mustcall.dialects import parse
from mustcall.dialects.reasoning import CONTROLS, LATE_ENDS, SECTIONS
from support.splits import text_splits

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


@pytest.mark.parametrize("end", ["\n</think>\n\n", " no.</think>\n\n", "\n[/THINK]\n", "<|END_THINKING|>\n"])
def test_a_call_before_a_late_end_is_none(end: str) -> None:
    """Rule 65: the prompt opened the section, so a call before its end is reasoning, at every split."""
    text = f"Maybe {CALL}{end}It is sunny."
    for pieces in text_splits(text):
        parsed = parse(pieces, tools=TOOLS)
        assert (parsed.calls, parsed.text) == ((), "It is sunny.")
        assert [(call.name, call.in_reasoning) for call in parsed.reasoned] == [("now", True)]


ENDS = [closer for section in SECTIONS for closer in section.closers]


@pytest.mark.parametrize("end", [*ENDS, "<|eom|>", "<|return|>"])
def test_a_section_the_prompt_opened(end: str) -> None:
    """Rule 65: whose section it is nobody says, so that the end of any family's ends it, at every split."""
    text = f"hm {CALL} no.\n{end}\nHello."
    for pieces in text_splits(text):
        parsed = parse(pieces, tools=TOOLS, reasoning="opened")
        assert (parsed.calls, parsed.text, parsed.reasoning.rstrip()) == ((), "Hello.", f"hm {CALL} no.")
        assert [call.name for call in parsed.reasoned] == ["now"]


@pytest.mark.parametrize("start", ["<|start|>assistant<|channel|>final<|message|>", "<|begin|>assistant<|content|>"])
def test_an_opened_section_ends_with_the_next_message(start: str) -> None:
    """Rule 65: the header of the message behind it ends a section, and is no text."""
    parsed = parse([f"hm{start}Hello."], tools=TOOLS, reasoning="opened")
    assert (parsed.text, parsed.reasoning) == ("Hello.", "hm")


@pytest.mark.parametrize("end", LATE_ENDS)
def test_ends_without_a_start(end: str) -> None:
    """Rule 65: what only ends reasoning tells that all before it was reasoning."""
    parsed = parse([f"Hm.\n{end}\nHello."], tools=TOOLS)
    assert (parsed.text, parsed.reasoning) == ("Hello.", "Hm.\n")


def test_sections_that_stay_text() -> None:
    """Rule 65: where sections are only noted the text stays as it is, and calls in them are none."""
    for text in (f"<think>a {CALL}</think>\n\nIt is sunny.", f"Maybe {CALL} no.\n</think>\n\nIt is sunny."):
        for pieces in ([text], list(text)):
            parsed = parse(pieces, tools=TOOLS, reasoning="noted")
            assert (parsed.calls, [call.name for call in parsed.reasoned]) == ((), ["now"])
    text = f"Write <think>\n<think>a {CALL}</think>\n\nIt is sunny."
    assert parse([text], tools=TOOLS, reasoning="noted").text == text


def test_all_control_tokens() -> None:
    """Rule 65: tokens of any family's template never reach an answer; quoted as code they are shown."""
    for control in CONTROLS:
        if control.after_reasoning or control.marker in LATE_ENDS:
            continue
        for text in (f"So {control.marker}it is.", f"{control.marker}So it is.", f"So it is.{control.marker}"):
            for pieces in ([text], list(text)):
                assert parse(pieces, tools=TOOLS).text == "So it is.", control.marker
        quoted = f"The token `{control.marker.strip()}` ends it."
        assert parse([quoted], tools=TOOLS).text == quoted
