"""Calls in reasoning: what streams through the lens, what is found, and what the reply is (rules 65, 148)."""

from collections.abc import Iterable

import pytest

from mustcall.core.origin import Wire
from mustcall.core.parts import OpaqueState, Part, Reasoning, Text, ToolCall
from mustcall.core.streams.events import Event, PartEnded, PartReasoningDelta, PartStarted, PartTextDelta, Started
from mustcall.core.tools import Tool
from mustcall.policy.scanning.reply_scanner import ReplyScanner, ScanFindings, ScanTargets
from support.splits import text_splits
from support.values import replied

TOOLS = (
    Tool(name="now", parameters={"type": "object", "properties": {}}),
    Tool(name="note", parameters={"type": "object", "properties": {"text": {"type": "string"}}}),
)
CALL = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
NOTE = '<invoke name="note"><parameter name="text">x</parameter></invoke>'
MADE = ToolCall(id="call_t_0", name="now", arguments_json="{}")


def lens_for(*, separated: bool = False) -> ReplyScanner:
    """Return a lens that looks for the tools."""
    return ReplyScanner(ScanTargets(tools=TOOLS, separated=separated), "t")


def reasoned(pieces: Iterable[str], *then: Event) -> list[Event]:
    """Return the events of a native reasoning part, and what follows it."""
    deltas = [PartReasoningDelta(0, piece) for piece in pieces]
    return [Started("r", "m"), PartStarted(0, Reasoning()), *deltas, PartEnded(0), *then]


def look(lens: ReplyScanner, events: Iterable[Event]) -> list[Event]:
    """Return what a lens shows of these."""
    return [shown for event in events for shown in lens.feed(event)]


def shown_text(events: Iterable[Event], kind: type[PartReasoningDelta] | type[PartTextDelta]) -> str:
    """Return the text of all deltas of a kind."""
    return "".join(event.text for event in events if isinstance(event, kind))


@pytest.mark.parametrize("separated", [False, True])
def test_a_call_in_native_reasoning_and_nothing_else(separated: bool) -> None:
    """Rule 148: the reasoning goes out up to the call, and the reply is the call and the rest of the reasoning."""
    text = f"I need the time. {CALL} So."
    reply = replied(Reasoning(text=text))
    for pieces in text_splits(text):
        lens = lens_for(separated=separated)
        out = look(lens, reasoned(pieces))
        assert shown_text(out, PartReasoningDelta) == "I need the time. "
        assert lens.pending
        assert not lens.touched
        found = lens.found(reply)
        assert found.reasoned == (MADE,)
        assert (found.bare, found.dialect) == ((Reasoning(text="I need the time.  So."),), "hermes")
        assert (found.calls, found.cleaned) == ((), None)
    whole = lens_for(separated=separated).read(reply)
    assert (whole.reasoned, whole.bare) == ((MADE,), (Reasoning(text="I need the time.  So."),))


def test_a_call_in_a_summary() -> None:
    """Rule 148: a summary is reasoning, too; each is read by itself, and state that never covered it is kept."""
    before, text = "First < this.", f"I need the time. {CALL} So."
    state = OpaqueState(Wire.RESPONSES, "sealed")
    reply = replied(Reasoning(summary=(before, text), state=state))
    bare = Reasoning(summary=(before, "I need the time.  So."), state=state)
    for pieces in text_splits(before + text):
        lens = lens_for()
        at = 0
        deltas: list[Event] = []
        for piece in pieces:
            here = piece[: max(0, len(before) - at)]
            deltas += [PartReasoningDelta(0, part, n) for n, part in enumerate((here, piece[len(here) :])) if part]
            at += len(piece)
        out = look(lens, [PartStarted(0, Reasoning()), *deltas, PartEnded(0)])
        shown = [event for event in out if isinstance(event, PartReasoningDelta)]
        assert "".join(event.text for event in shown if event.summary == 0) == before
        assert "".join(event.text for event in shown if event.summary == 1) == "I need the time. "
        assert [event.summary for event in shown] == sorted(event.summary or 0 for event in shown)
        found = lens.found(reply)
        assert (found.reasoned, found.bare, found.dialect) == ((MADE,), (bare,), "hermes")
    whole = lens_for().read(reply)
    assert (whole.reasoned, whole.bare) == ((MADE,), (bare,))


@pytest.mark.parametrize(
    "then",
    [
        (PartStarted(1, Text(text="")), PartTextDelta(1, "\n"), PartTextDelta(1, "Hi."), PartEnded(1)),
        (PartStarted(1, ToolCall(id="c", name="now", arguments_json="{}")), PartEnded(1)),
    ],
)
def test_reasoning_that_ends_in_something_else(then: tuple[Event, ...]) -> None:
    """Rule 65: what waited goes out as it came when an answer or a call follows, and nothing is found in it."""
    text = f"Maybe {CALL} no."
    parts: tuple[Part, ...] = (Reasoning(text=text), Text(text="\nHi."))
    for pieces in text_splits(text):
        lens = lens_for()
        events = reasoned(pieces, *then)
        out = look(lens, events)
        assert shown_text(out, PartReasoningDelta) == text
        assert [event for event in out if event.__class__ is not PartReasoningDelta] == [
            event for event in events if event.__class__ is not PartReasoningDelta
        ]
        assert not (lens.pending)
        assert not lens.touched
        assert not lens.marked
        if isinstance(then[1], PartTextDelta):
            assert lens.found(replied(*parts)).reasoned == ()
    assert lens_for().read(replied(*parts)) == ScanFindings()


@pytest.mark.parametrize("text", ["Plain thoughts, a < b, and `<tool_call>`.", "A <tool_call> tag, [1] and {x}."])
def test_reasoning_without_a_call(text: str) -> None:
    """Rule 105: reasoning that only speaks of markup goes out whole, and nothing is found."""
    for pieces in text_splits(text):
        lens = lens_for()
        out = look(lens, reasoned(pieces))
        assert shown_text(out, PartReasoningDelta) == text
        assert not lens.touched
        assert not lens.marked
        assert lens.found(replied(Reasoning(text=text))).reasoned == ()


def test_plain_deltas_pass_as_the_same_events() -> None:
    """Rule 112: reasoning without a sign of markup is not made anew."""
    events = reasoned(["So ", "it is. ", "Well."])
    out = look(lens_for(), events)
    assert all(one is other for one, other in zip(out, events, strict=True))


@pytest.mark.parametrize("closed", ["</think>", "</think>\n\n", ""])
def test_a_call_in_a_section_of_the_text(closed: str) -> None:
    """Rule 148: the same where the text marks its reasoning, closed or not."""
    text = f"<think>Well. {CALL}{closed}"
    for pieces in text_splits(text):
        lens = lens_for()
        deltas = [PartTextDelta(0, piece) for piece in pieces]
        out = look(lens, [Started("r", "m"), PartStarted(0, Text(text="")), *deltas, PartEnded(0)])
        assert "<" not in shown_text(out, PartReasoningDelta) + shown_text(out, PartTextDelta)
        found = lens.found(replied(Text(text=text)))
        assert found.reasoned == (MADE,)
        assert found.bare is not None
        assert [part.text for part in found.bare if isinstance(part, Reasoning)] == ["Well. "]


def test_a_call_before_a_late_end() -> None:
    """Rules 65, 148: where the prompt opened the section a call in it is none, unless it is all there is."""
    answered, alone = f"Maybe {CALL} no.\n</think>\n\nIt is sunny.", f"{CALL}\n</think>\n\n"
    for text in (answered, alone):
        for pieces in text_splits(text):
            lens = lens_for()
            deltas = [PartTextDelta(0, piece) for piece in pieces]
            look(lens, [Started("r", "m"), PartStarted(0, Text(text="")), *deltas, PartEnded(0)])
            found = lens.found(replied(Text(text=text)))
            assert found.calls == ()
            assert found.reasoned == (() if text is answered else (MADE,))
    found = lens_for().read(replied(Text(text=answered)))
    assert found.cleaned == (Reasoning(text="Maybe "), Reasoning(text=" no.\n"), Text(text="It is sunny."))


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_blank_text_behind_reasoning_is_no_answer(text: str) -> None:
    """Rule 148: a call in reasoning is all there is, though the server adds an empty or blank text."""
    started = [PartStarted(1, Text(text=text)), PartTextDelta(1, text), PartEnded(1)]
    lens = lens_for()
    look(lens, reasoned([CALL], *started))
    assert lens.pending
    assert lens.found(replied(Reasoning(text=CALL), Text(text=text))).reasoned == (MADE,)


def test_drafts_are_no_calls() -> None:
    """Rule 148: of calls with words between them only the last ones are meant; those that stand together all are."""
    found = lens_for().read(replied(Reasoning(text=f"Maybe {NOTE}, or rather {CALL}\n{CALL}")))
    assert [call.name for call in found.reasoned] == ["now", "now"]


def test_signed_reasoning() -> None:
    """Rule 124: a signature does not vouch for a text without the calls in it; the name of a field does no harm."""
    field = OpaqueState(Wire.CHAT, {"field": "reasoning"}, "up")
    for state, kept in ((OpaqueState(Wire.MESSAGES, "c2ln", "up"), None), (field, field)):
        found = lens_for().read(replied(Reasoning(text=f"a {CALL}", state=state)))
        assert (found.reasoned, found.bare) == ((MADE,), (Reasoning(text="a ", state=kept),))


@pytest.mark.parametrize(
    "text", [f"<think>Maybe {CALL} no.</think>\n\nIt is sunny.", f"Maybe {CALL} no.\n</think>\n\nIt is sunny."]
)
def test_sections_where_the_upstream_separates(text: str) -> None:
    """Rule 65: there a section is text, and a call in it is none all the same."""
    for pieces in text_splits(text):
        lens = lens_for(separated=True)
        deltas = [PartTextDelta(0, piece) for piece in pieces]
        look(lens, [Started("r", "m"), PartStarted(0, Text(text="")), *deltas, PartEnded(0)])
        found = lens.found(replied(Text(text=text)))
        assert (found.calls, found.reasoned, found.thought) == ((), (), False)
