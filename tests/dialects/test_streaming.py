"""What goes out when: text and arguments are released as they come, and only what is ambiguous is held."""

import json

import pytest

from dialects.scanning import TOOLS, join, load, reasons_of, scan
from mustcall.core.errors import ConfigError
from mustcall.dialects import (
    DIALECTS,
    ArgumentDelta,
    CallEnd,
    CallStart,
    Dialect,
    LateReasoningEnd,
    Malformed,
    Opener,
    Reason,
    ScanEvent,
    ScannedReasoning,
    ScannedText,
    Scanner,
    Standing,
)
from mustcall.dialects.catalogue import BY_NAME
from mustcall.dialects.reading.reader import Parse
from mustcall.dialects.reading.span import Span


def feed_all(scanner: Scanner, text: str) -> list[ScanEvent]:
    """Feed a text by character and return what came out before the end."""
    return join(event for character in text for event in scanner.feed(character))


@pytest.mark.parametrize("text", ["Hello, world", "a b c ", "Tools are fine", "x = f(y)", '1. a {b} (c) "d"'])
def test_prose_is_not_held(text: str) -> None:
    """Text that can be no marker is out as soon as it is in, also where a letter begins a line marker elsewhere."""
    scanner = Scanner(tools=TOOLS, loose=True)
    scanner.feed("So. ")
    for character in text:
        assert scanner.feed(character) == [ScannedText(character)]


@pytest.mark.parametrize("marker", ["<tool_call>", "[TOOL_REQUEST]", "<|tool_call_begin|>", "<x:function_calls>"])
def test_only_the_ambiguous_suffix_is_held(marker: str) -> None:
    """The beginning of a marker is held, and goes out at once when it turns out to be none, or at the end."""
    for size in range(1, len(marker)):
        scanner = Scanner(tools=TOOLS)
        assert scanner.feed("So " + marker[:size]) == [ScannedText("So ")]
        assert join(scanner.feed("?")) == [ScannedText(marker[:size] + "?")]
        scanner = Scanner(tools=TOOLS)
        scanner.feed("So " + marker[:size])
        assert join(scanner.close()) == [ScannedText(marker[:size])]


# Of these a call is read whole before it is one: VCP's name may come last, Sarashina's call is a Python literal.
HELD = ("vcp", "sarashina")


@pytest.mark.parametrize("dialect", [dialect.name for dialect in DIALECTS if dialect.name not in HELD])
def test_string_arguments_are_released_as_they_come(dialect: str) -> None:
    """A long string argument comes out piece by piece in every dialect, not only at its end."""
    item = next(item for item in load(dialect) if item.kind == "unicode and escapes")
    # Everything up to the middle of the one string argument.
    cut = item.text.index("line two")
    scanner = Scanner(dialects=[dialect], tools=TOOLS, loose=True)
    events = feed_all(scanner, item.text[:cut])
    starts = [event for event in events if isinstance(event, CallStart)]
    assert [start.name for start in starts] == ["note"]
    sent = "".join(event.text for event in events if isinstance(event, ArgumentDelta))
    assert json.loads(sent.rstrip("\\") + '"}')["text"].startswith("Grüße, 東京 😀")


def test_a_scalar_waits_for_its_end() -> None:
    """An integer parameter of an XML form is held until its closing tag shows that it is one."""
    scanner = Scanner(tools=TOOLS)
    events = feed_all(scanner, '<invoke name="get_weather"><parameter name="days">12')
    assert [event.text for event in events if isinstance(event, ArgumentDelta)] == ['{"days": ']
    rest = join(scanner.feed("</parameter></invoke>"))
    assert [event.text for event in rest if isinstance(event, ArgumentDelta)] == ["12}"]


def test_arguments_before_the_name_are_held() -> None:
    """A fragment is sent only for a call whose name is known."""
    scanner = Scanner(tools=TOOLS)
    assert feed_all(scanner, '<tool_call>{"arguments": {"city": "Paris"}, ') == []
    events = feed_all(scanner, '"name": "get_weather"}')
    assert [type(event) for event in events] == [CallStart, ArgumentDelta, CallEnd]


def test_a_started_call_is_taken_back() -> None:
    """Rule 40: a call that is cut is malformed under its own index, its span is text, and no end comes."""
    events = scan(['ok <tool_call>{"name": "now", "arguments": {"a": 1'])
    assert events == [
        ScannedText("ok "),
        CallStart(0, "now", "hermes", "now"),
        ArgumentDelta(0, '{"a": 1'),
        ScannedText('<tool_call>{"name": "now", "arguments": {"a": 1'),
        Malformed(Reason.TRUNCATED, '<tool_call>{"name": "now", "arguments": {"a": 1', "hermes", index=0, name="now"),
    ]


def test_text_of_a_refused_call_waits_for_its_report() -> None:
    """Rule 53: markup of a tool that is not on offer comes out with the report on it: its reply may be discarded."""
    scanner = Scanner(tools=TOOLS)
    assert feed_all(scanner, '<tool_call>{"name": "rm", "arguments": {"path": "') == []
    assert scanner.feed("/tmp") == []  # noqa: S108 - a text, not a path
    text = '<tool_call>{"name": "rm", "arguments": {"path": "/tmp"}}'
    shown, reported, *_ = scanner.feed('"}}</tool_call>')
    assert shown == ScannedText(text)
    assert reported == Malformed(Reason.UNKNOWN_TOOL, text, "hermes", name="rm")


def test_indices_are_never_reused() -> None:
    """Indices grow in order of appearance, across reasoning and calls taken back."""
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    events = scan([f'<think>{call}</think>{call}<tool_call>{{"name": "now", "arguments": [</tool_call>{call}'])
    starts = [event.index for event in events if isinstance(event, CallStart)]
    ends = [(event.index, event.in_reasoning) for event in events if isinstance(event, CallEnd)]
    assert starts == [0, 1, 2, 3]
    assert ends == [(0, True), (1, False), (3, False)]


def test_the_written_name_is_told() -> None:
    """Rule 59: a name that was matched loosely is called as offered and reported as written."""
    start = next(event for event in scan(["<tool_call>GET-weather</tool_call>"]) if isinstance(event, CallStart))
    assert (start.name, start.written, start.dialect) == ("get_weather", "GET-weather", "glm")


def test_the_same_call_twice_is_two_calls() -> None:
    """A stuttering model's repeated call is visible as two."""
    call = '[TOOL_REQUEST]{"name": "now", "arguments": {}}[END_TOOL_REQUEST]'
    assert [event.index for event in scan([call + call]) if isinstance(event, CallEnd)] == [0, 1]


def test_a_missing_closer_is_told() -> None:
    """Rule 123: a complete call at the end whose closing marker never came is a call, and can be told apart."""
    for text, is_open in (("", True), ("</tool_c", True), ("</tool_call>", False), (" and", False)):
        scanner = Scanner(tools=TOOLS)
        scanner.feed('<tool_call>{"name": "now", "arguments": {}}' + text)
        scanner.close()
        assert scanner.ended_open is is_open


def test_hostile_text_is_bounded() -> None:
    """Rule 68: after 1,000 bare look-alikes only marked calls are looked for; after 1,000 broken ones none."""
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    bare = '\n{"name": "now", "arguments": {}}'
    declined = '\n{"name": 1}'
    for count, calls in ((999, 2), (1000, 1)):
        events = scan([declined * count + bare + "\n" + call], alone="anywhere")
        assert sum(isinstance(event, CallEnd) for event in events) == calls
    broken = "<tool_call>?"
    for count, calls in ((999, 1), (1000, 0)):
        text = broken * count + call
        events = scan([text])
        assert sum(isinstance(event, CallEnd) for event in events) == calls
        assert reasons_of(events) == ["stray_marker"] * count + ["unknown_markup"] * (1 - calls)
        assert events == scan([text[:5000], text[5000:5003], text[5003:]])


class TestReasoning:
    """Who separates reasoning, and what is told about it."""

    def test_opened_by_the_prompt(self) -> None:
        """A section that the prompt opened is reasoning from the first character."""
        events = scan(["hm</think>\n\nHi."], reasoning="opened")
        assert events == [ScannedReasoning("hm"), ScannedText("Hi.")]

    def test_separated_by_the_upstream(self) -> None:
        """Where the upstream separates reasoning, the tags are text."""
        text = "<think>hm</think>Hi."
        assert scan([text], reasoning="separated") == [ScannedText(text)]

    def test_an_end_without_a_start(self) -> None:
        """A late end says that all text so far was reasoning; the tag itself is no text."""
        assert scan(["hm\n</think>\nHi."]) == [ScannedText("hm\n"), LateReasoningEnd(), ScannedText("Hi.")]
        assert scan(["hm.</think>Hi."]) == [ScannedText("hm."), LateReasoningEnd(), ScannedText("Hi.")]
        assert scan(["the </think> tag"]) == [ScannedText("the </think> tag")]

    def test_an_unclosed_section_is_known(self) -> None:
        """Rule 65: after the end the scanner tells that a section never closed."""
        scanner = Scanner(tools=TOOLS)
        scanner.feed("<think>hm")
        scanner.close()
        assert scanner.in_reasoning
        closed = Scanner(tools=TOOLS)
        closed.feed("<think>hm</think>")
        closed.close()
        assert not closed.in_reasoning

    def test_reasoning_flows(self) -> None:
        """Reasoning text is released as it comes."""
        scanner = Scanner(tools=TOOLS)
        scanner.feed("<think>")
        assert scanner.feed("so ") == [ScannedReasoning("so ")]


class TestChoice:
    """Which dialects are active."""

    def test_unknown_names_are_refused(self) -> None:
        """A dialect nobody knows is a configuration error, not silence."""
        with pytest.raises(ConfigError, match="klingon"):
            Scanner(dialects=["klingon"])

    def test_a_dialect_can_be_switched_off(self) -> None:
        """Rule 57: a dialect that is not active is text."""
        text = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
        others = [dialect for dialect in DIALECTS if dialect.name == "lmstudio"]
        assert not any(isinstance(event, CallEnd) for event in scan([text], dialects=others))

    def test_a_dialect_of_ones_own(self) -> None:
        """Rule 57: a new dialect is a value; it needs no registration."""

        def read(span: Span) -> Parse[None]:
            call = span.begin("now")
            yield from call.read_arguments()
            call.end()

        mine = Dialect("mine", "mine", "mine", (Opener("@@now ", read, ("{",)),), (), str)
        events = scan(["Go @@now {} on"], dialects=[mine, BY_NAME["hermes"]])
        assert [type(event) for event in events] == [ScannedText, CallStart, ArgumentDelta, CallEnd, ScannedText]

    def test_loose_dialects_need_permission(self) -> None:
        """Rule 64: loose formats are off unless allowed."""
        text = "Tool: now()"
        assert scan([text]) == [ScannedText(text)]
        assert isinstance(scan([text], loose=True)[-1], CallEnd)

    def test_standings(self) -> None:
        """The default set holds every dialect but the loose and the ambiguous ones."""
        standings = {dialect.name: dialect.standing for dialect in DIALECTS}
        assert {name for name, standing in standings.items() if standing is Standing.NAMED} == {
            "xlam",
            "fenced_json",
            "python_line",
        }
        assert {name for name, standing in standings.items() if standing is Standing.LOOSE} == {
            "tool_line",
            "name_and_object",
        }
        assert {name for name, standing in standings.items() if standing is Standing.REPLY} == {"react"}
