"""The gate and what went through it: any reply, released up to any point, is completed to the same reply."""

import json
from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.errors import ErrorInfo, UpstreamGarbage
from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.parts import OpaqueState, Part, Reasoning, Refusal, Text, ToolCall, Unknown
from mustcall.core.reply import FinishReason, Reply, Usage, derive_finish
from mustcall.core.request import Request
from mustcall.core.streams.assembler import Assembler
from mustcall.core.streams.events import (
    ArgumentsDelta,
    Ended,
    Event,
    Failed,
    Finished,
    PartEnded,
    PartReasoningDelta,
    PartStarted,
    PartTextDelta,
    Started,
    UsageUpdated,
)
from mustcall.core.streams.unroll import unroll
from mustcall.policy.reply.gate import EVERY, Gate, Released
from support.values import replied

CALL = ToolCall(id="c1", name="search", arguments_json='{"q":"x"}')
STARTED = Started("r", "m")


def assemble(events: Iterable[Event]) -> Reply:
    """Fold events into the reply a caller would understand."""
    assembler = Assembler()
    for event in events:
        assembler.feed(event)
    return assembler.reply()


def released(gate: Gate, events: Iterable[Event]) -> list[Event]:
    """Return what a gate lets out of these events."""
    return [out for event in events for out in gate.feed(event)]


def finely(events: Iterable[Event]) -> list[Event]:
    """Cut every delta into characters."""
    out: list[Event] = []
    for event in events:
        match event:
            case PartTextDelta(index=index, text=text):
                out += [PartTextDelta(index, character) for character in text]
            case ArgumentsDelta(index=index, text=text):
                out += [ArgumentsDelta(index, character) for character in text]
            case PartReasoningDelta(index=index, text=text, summary=summary):
                out += [PartReasoningDelta(index, character, summary) for character in text]
            case _:
                out.append(event)
    return out


def shown_of(events: Iterable[Event]) -> Released:
    """Return the record of events that went out."""
    shown = Released()
    shown.record(events)
    return shown


words = st.text(st.sampled_from("ab \n<{é"), max_size=6)
some_words = words.filter(bool)
parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, text=some_words),
    st.builds(Refusal, text=some_words),
    st.builds(
        Reasoning,
        text=words,
        summary=st.lists(some_words, max_size=2).map(tuple),
        state=st.sampled_from([None, OpaqueState(Wire.MESSAGES, "c2ln", "up")]),
    ),
    st.builds(ToolCall, id=st.sampled_from(["c1", "c2"]), name=st.just("search"), arguments_json=some_words),
    st.just(Unknown(wire=Wire.CHAT, type="new", value={"a": 1})),
)


def make_reply(made: list[Part], finish: FinishReason, usage: Usage | None) -> Reply:
    """Make a reply as an assembler would."""
    return Reply(id="r", model="m", parts=tuple(made), finish=derive_finish(finish, made), usage=usage)


replies = st.builds(
    make_reply,
    st.lists(parts, max_size=4),
    st.sampled_from(FinishReason),
    st.sampled_from([None, Usage(input_tokens=3, output_tokens=4)]),
)
gates = st.builds(Gate, closed=st.booleans(), trusted=st.sampled_from((None, EVERY, {CALL.name: None})))


@given(replies, gates, st.integers(0, 80), st.booleans())
@settings(deadline=None)
def test_any_release_is_completed_to_the_same_reply(reply: Reply, gate: Gate, cut: int, fine: bool) -> None:
    """Rules 53, 135: whatever went out, wherever it stopped, the rest makes it the accepted reply, nothing twice."""
    events = list(unroll(reply))
    out = released(gate, (finely(events) if fine else events)[:cut])
    assert assemble([*out, *shown_of(out).rest(reply)]) == reply


@given(replies, st.integers(0, 80))
@settings(deadline=None)
def test_any_prefix_is_completed_to_the_same_reply(reply: Reply, cut: int) -> None:
    """Rule 135: also without a gate, from any prefix of the events."""
    out = [event for event in finely(unroll(reply)) if not isinstance(event, Finished | Ended)][:cut]
    assert assemble([*out, *shown_of(out).rest(reply)]) == reply


@given(replies, st.integers(0, 80), st.integers(1, 5), st.integers(0, 80), st.sampled_from([1, 2, 4_096]))
@settings(deadline=None)
def test_joined_deltas_say_the_same(reply: Reply, cut: int, loose: int, read: int, long: int) -> None:
    """Rule 68: of a long stream the deltas are joined as they go out; what completes it stays the same."""
    out = [event for event in finely(unroll(reply)) if not isinstance(event, Finished | Ended)][:cut]
    with patch("mustcall.policy.reply.gate._LOOSE", loose), patch("mustcall.policy.reply.gate._LONG", long):
        shown = Released()
        for number, event in enumerate(out):
            shown.record([event])
            if number == read:
                assert shown.called == shown_of(out[: number + 1]).called
        assert assemble([*out, *shown.rest(reply)]) == reply
        assert shown.rest(reply) == shown_of(out).rest(reply)


def test_a_long_stream_is_kept_as_a_few_events() -> None:
    """Rule 68: a hundred thousand deltas are a few dozen events when they are read in one step."""
    shown = Released()
    shown.record([STARTED, PartStarted(0, Text(""))])
    for _ in range(100_000):
        shown.record([PartTextDelta(0, "a")])
    assert len(shown.events) < 5_000
    assert "".join(event.text for event in shown.events if isinstance(event, PartTextDelta)) == "a" * 100_000


@given(replies, gates, st.booleans())
@settings(deadline=None)
def test_the_gate_keeps_order_and_loses_nothing(reply: Reply, gate: Gate, fine: bool) -> None:
    """Rule 113: what is let out is a prefix of what came, as the very same events."""
    events = finely(unroll(reply)) if fine else list(unroll(reply))
    out = released(gate, events)
    assert all(one is other for one, other in zip(out, events, strict=False))
    assert len(out) <= len(events)


@given(replies, st.booleans())
@settings(deadline=None)
def test_no_call_passes_before_the_verdict(reply: Reply, closed: bool) -> None:
    """Rules 53, 113: nothing of a call, of what follows it, or of the end goes out of an untrusted stream."""
    out = released(Gate(closed=closed), finely(unroll(reply)))
    assert not any(isinstance(event, ArgumentsDelta | Finished | Ended) for event in out)
    assert not any(isinstance(event, PartStarted) and isinstance(event.part, ToolCall) for event in out)
    if closed:
        assert out == []


@given(replies, st.lists(parts, max_size=3), gates, st.integers(0, 40))
@settings(deadline=None)
def test_a_later_attempt_only_adds(reply: Reply, made: list[Part], gate: Gate, cut: int) -> None:
    """Rules 29, 135: after text only calls are added, after reasoning text and calls; nothing is replaced."""
    out = released(gate, finely(unroll(reply))[:cut])
    shown = shown_of(out)
    if not shown:
        return
    later = make_reply(made, FinishReason.STOP, None)
    spoke = any(isinstance(event, PartStarted) and not isinstance(event.part, Reasoning) for event in out)
    assert shown.spoke is spoke
    final = assemble([*out, *shown.more(later)])
    before = Assembler()
    for event in out:
        before.feed(event)
    kinds = ToolCall if spoke else Text | Refusal | ToolCall
    assert final.parts == (*before.parts(), *(part for part in made if isinstance(part, kinds)))


def test_nothing_goes_out_before_something_can_be_seen() -> None:
    """Rule 113: a start and blank text wait, so that an attempt that says nothing can still be made again."""
    gate = Gate(closed=False)
    start: list[Event] = [STARTED, PartStarted(0, Text(text="")), PartTextDelta(0, ""), PartTextDelta(0, " \n")]
    assert released(gate, start) == []
    assert not gate.begun
    word = PartTextDelta(0, "Hi")
    assert gate.feed(word) == [*start, word]
    assert gate.begun
    assert gate.feed(PartTextDelta(0, " ")) == [PartTextDelta(0, " ")]


def test_text_that_stands_in_the_start_is_seen() -> None:
    """Rule 113: a part that begins with its text is let out at once; so is one no version knows."""
    assert len(released(Gate(closed=False), [STARTED, PartStarted(0, Text(text="Hi"))])) == 2
    unknown = Unknown(wire=Wire.CHAT, type="new", value={})
    assert len(released(Gate(closed=False), [STARTED, PartStarted(0, unknown)])) == 2


def test_text_between_calls_waits() -> None:
    """Rule 53: from the first call on everything waits, text too."""
    gate = Gate(closed=False)
    released(gate, [STARTED, PartStarted(0, Text(text="Hi")), PartEnded(0), PartStarted(1, CALL)])
    assert gate.stopped
    assert released(gate, [PartEnded(1), PartStarted(2, Text(text="more")), PartTextDelta(2, "!")]) == []


def test_trusted_arguments_stream() -> None:
    """Design, streaming: where the profile trusts the upstream, a call's arguments go out as they come."""
    events = list(unroll(replied(Text(text="Hi"), CALL, reported="tool_calls")))
    out = released(Gate(closed=False, trusted={CALL.name: {"type": "object"}}), events)
    assert [event for event in out if isinstance(event, ArgumentsDelta)] == [ArgumentsDelta(1, CALL.arguments_json)]
    assert not any(isinstance(event, Finished) for event in out)


WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "units": {"enum": ["metric", "imperial"]}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("pieces", "released_pieces"),
    [
        (['{"city": "Be', 'rn"', ', "days": 3', "}"], 4),
        (['{"city": "Be', 'rn", "to', 'wn"', ": 1}"], 2),
        (['{"city": ', "7", "}"], 2),
        (['{"units": "me', "tro", 'nome"'], 1),
        (['{"units": "me', 'tric"', "}"], 2),
        (["{'city'", ": 1}"], 0),
    ],
    ids=["valid", "wrong key", "wrong type", "wrong enum", "missing key", "no JSON"],
)
def test_the_first_wrong_byte_stops_the_release(pieces: list[str], released_pieces: int) -> None:
    """Rule 139: arguments flow while they may become valid; the piece that ends that stays, and all behind it."""
    gate = Gate(closed=False, trusted={"weather": WEATHER})
    call = ToolCall(id="c", name="weather", arguments_json="")
    deltas = [ArgumentsDelta(0, piece) for piece in pieces]
    out = released(gate, [STARTED, PartStarted(0, call), *deltas, PartEnded(0)])
    assert [event for event in out if isinstance(event, ArgumentsDelta)] == deltas[:released_pieces]
    assert gate.stopped == (released_pieces != len(pieces))
    assert (PartEnded(0) in out) == (not gate.stopped)


def test_every_piece_flows_at_once() -> None:
    """Rule 139: with trust, the first argument byte goes out with the upstream's first, one event for one event."""
    gate = Gate(closed=False, trusted={"weather": WEATHER})
    gate.feed(STARTED)
    call = ToolCall(id="c", name="weather", arguments_json="")
    assert len(gate.feed(PartStarted(0, call))) == 2
    text = json.dumps({"city": "B" * 5000})
    for start in range(0, len(text), 4):
        piece = ArgumentsDelta(0, text[start : start + 4])
        assert gate.feed(piece) == [piece]


def test_a_tool_that_is_not_offered_waits() -> None:
    """Rule 139: trust is in the arguments of tools that are there."""
    gate = Gate(closed=False, trusted={"weather": WEATHER})
    released(gate, [STARTED, PartStarted(0, ToolCall(id="c", name="other", arguments_json=""))])
    assert gate.stopped


@pytest.mark.parametrize("identifier", ["", "c1", "earlier"])
def test_an_id_that_another_call_has_waits(identifier: str) -> None:
    """Rules 67, 143: a call without an id of its own gets one, so nothing of it goes out before that."""
    asked = Request(
        model="m",
        messages=(Message(role=Role.ASSISTANT, parts=(ToolCall(id="earlier", name="x", arguments_json=""),)),),
    )
    gate = Gate(closed=False, trusted={CALL.name: None}, request=asked)
    out = released(gate, [STARTED, PartStarted(0, CALL), PartEnded(0)])
    assert len(out) == 3
    again = CALL.evolve(id=identifier)
    assert released(gate, [PartStarted(1, again), PartEnded(1)]) == []
    assert gate.stopped


@pytest.mark.parametrize(
    "end", [Finished(FinishReason.STOP), Ended(), Failed(ErrorInfo(message="m", status=502, code="c"))]
)
def test_the_end_waits_for_the_verdict(end: Event) -> None:
    """Rule 53: neither the finish nor a failure is let out by the gate."""
    gate = Gate(closed=False)
    released(gate, [STARTED, PartStarted(0, Text(text="Hi"))])
    assert gate.feed(end) == []
    assert gate.stopped


def test_a_block_that_began_is_completed_with_its_content() -> None:
    """Rule 53: a provider's block whose start went out ends as the reply has it, with what its deltas brought."""
    began = Unknown(wire=Wire.MESSAGES, type="compaction", value={"type": "compaction", "content": None})
    whole = Unknown(wire=Wire.MESSAGES, type="compaction", value={"type": "compaction", "content": "x"})
    shown = Released()
    shown.record([STARTED, PartStarted(0, began)])
    assert PartEnded(0, whole) in shown.rest(replied(whole))


def test_stopping_voids_what_waits() -> None:
    """Rule 53: markup seen before the first word: nothing that waited goes out later."""
    gate = Gate(closed=False)
    released(gate, [STARTED, PartStarted(0, Text(text=""))])
    gate.stop()
    assert released(gate, [PartTextDelta(0, "Hi")]) == []


@pytest.mark.parametrize(
    "reply",
    [
        replied(Text(text="Good bye")),
        replied(Text(text="He")),
        replied(),
        replied(CALL),
        replied(Reasoning(text="Hello")),
    ],
    ids=["other words", "fewer words", "no part", "a call", "reasoning"],
)
def test_contradictions_are_typed_errors(reply: Reply) -> None:
    """Rule 135, contract 8: a reply that takes back what went out is the upstream's garbage."""
    shown = shown_of([STARTED, PartStarted(0, Text(text="")), PartTextDelta(0, "Hello")])
    with pytest.raises(UpstreamGarbage, match="contradicted"):
        shown.rest(reply)


def test_usage_comes_before_the_end() -> None:
    """Rule 114: the usage of what is delivered is told after release, too."""
    usage = Usage(input_tokens=9, output_tokens=9)
    shown = shown_of([STARTED, PartStarted(0, Text(text="Hi"))])
    rest = shown.rest(replied(Text(text="Hi there"), usage=usage))
    assert rest == [
        PartTextDelta(0, " there"),
        PartEnded(0),
        UsageUpdated(usage),
        Finished(FinishReason.STOP, "stop"),
        Ended(),
    ]
    assert bool(shown)
    assert not bool(Released())
