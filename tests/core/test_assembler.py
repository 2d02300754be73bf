"""The fold of events into a reply, and its inverse."""

from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ErrorInfo, UpstreamRejected, UpstreamUnavailable
from mustcall.core.origin import Wire
from mustcall.core.parts import CallKind, OpaqueState, Part, ProviderItem, Reasoning, Refusal, Text, ToolCall
from mustcall.core.reply import FinishReason, Reply, Usage, derive_finish
from mustcall.core.streams import assembler
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
    StateDelta,
    UsageUpdated,
)
from mustcall.core.streams.unroll import unroll


def _assembled(*events: Event) -> Assembler:
    folded = Assembler()
    for event in events:
        folded.feed(event)
    return folded


@given(
    texts=st.lists(st.tuples(st.integers(0, 2), st.text(max_size=5)), max_size=40),
    loose=st.integers(1, 4),
    long=st.integers(0, 12),
)
def test_many_fragments_are_joined_and_say_the_same(texts: list[tuple[int, str]], loose: int, long: int) -> None:
    """Fragments that are joined as they come, and those too long for that, make the parts that single ones make."""
    deltas = (PartTextDelta, ArgumentsDelta, PartReasoningDelta)
    parts = (Text(text="a"), ToolCall(id="c", name="f", arguments_json="{"), Reasoning(text="r"))
    events: list[Event] = [PartStarted(number, part) for number, part in enumerate(parts)]
    events += [deltas[number](number, text) for number, text in texts]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(assembler, "_LOOSE", loose)
        patched.setattr(assembler, "_LONG", long)
        grown = _assembled(*events).parts()
    said = ["".join(text for number, text in texts if number == place) for place in range(3)]
    assert grown == (
        Text(text="a" + said[0]),
        ToolCall(id="c", name="f", arguments_json="{" + said[1]),
        Reasoning(text="r" + said[2]),
    )


def test_a_hundred_thousand_fragments_are_a_few_texts() -> None:
    """Rule 68: what a long call leaves is a few hundred texts, so that freeing it takes no other turn's time."""
    started = PartStarted(0, ToolCall(id="c", name="f", arguments_json=""))
    whole = _assembled(started, *[ArgumentsDelta(0, "x" * 50)] * 100_000)
    (call,) = whole.parts()
    assert isinstance(call, ToolCall)
    assert len(call.arguments_json) == 5_000_000
    (slot,) = attrgetter("_slots")(whole).values()
    assert len(slot.fragments) < 1_200


def test_interleaved_parts() -> None:
    """Parts grow independently and stand in the order they started."""
    reply = _assembled(
        Started("r1", "m"),
        PartStarted(0, Reasoning()),
        PartReasoningDelta(0, "hm"),
        PartStarted(1, Text(text="a")),
        PartStarted(2, ToolCall(id="c", name="f", arguments_json="{")),
        PartTextDelta(1, "b"),
        ArgumentsDelta(2, "}"),
        StateDelta(0, OpaqueState(Wire.MESSAGES, "sig", "up")),
        PartTextDelta(1, "c"),
        PartEnded(0),
        PartEnded(2),
        PartEnded(1),
        UsageUpdated(Usage(input_tokens=1)),
        Finished(FinishReason.STOP, "stop"),
        UsageUpdated(Usage(input_tokens=3, output_tokens=4)),
        Ended(),
    ).reply()
    assert reply == Reply(
        id="r1",
        model="m",
        parts=(
            Reasoning(text="hm", state=OpaqueState(Wire.MESSAGES, "sig", "up")),
            Text(text="abc"),
            ToolCall(id="c", name="f", arguments_json="{}"),
        ),
        finish=FinishReason.TOOL_CALLS,
        reported_finish="stop",
        usage=Usage(input_tokens=3, output_tokens=4),
    )


def test_summaries_are_kept_apart() -> None:
    """Summary deltas are joined per number and sorted, beside the thinking itself."""
    part = _assembled(
        Started("", ""),
        PartStarted(0, Reasoning(id="rs")),
        PartReasoningDelta(0, "one", 0),
        PartReasoningDelta(0, "two", 1),
        PartReasoningDelta(0, "!", 0),
        PartReasoningDelta(0, "raw"),
    ).part(0)
    assert part == Reasoning(id="rs", text="raw", summary=("one!", "two"))


def test_final_word_wins() -> None:
    """`PartEnded.part` wins over the deltas."""
    parts = _assembled(
        Started("", ""), PartStarted(0, Text(text="")), PartTextDelta(0, "wrng"), PartEnded(0, Text(text="right"))
    ).parts()
    assert parts == (Text(text="right"),)


def test_error_of_the_stream_is_raised() -> None:
    """A failed stream raises its own error, whatever else was seen."""
    error = ErrorInfo(message="overloaded", status=529, code="overloaded")
    assembler = _assembled(Started("", ""), Finished(FinishReason.STOP), Failed(error))
    with pytest.raises(UpstreamRejected) as raised:
        assembler.reply()
    assert raised.value.info() is error
    assert not assembler.ended


@pytest.mark.parametrize(
    "events",
    [(), (Started("", ""),), (Started("", ""), PartStarted(0, Text(text="half")))],
    ids=["nothing", "started", "half a part"],
)
def test_unfinished_is_no_reply(events: tuple[Event, ...]) -> None:
    """Design 2.5: half a reply is never a reply."""
    assembler = _assembled(*events)
    with pytest.raises(UpstreamUnavailable, match="before the reply was complete"):
        assembler.reply()


_CALL = ToolCall(id="c", name="f", arguments_json="{}")
_REFUSAL = Refusal(text="no")
_TEXT = Text(text="t")


@pytest.mark.parametrize(
    ("reported", "parts", "finish"),
    [
        ("stop", (_TEXT,), "stop"),
        ("stop", (_TEXT, _CALL), "tool_calls"),
        ("unknown", (_CALL,), "tool_calls"),
        ("tool_calls", (_CALL,), "tool_calls"),
        ("tool_calls", (_TEXT,), "stop"),
        ("tool_calls", (), "stop"),
        ("stop", (_REFUSAL,), "refusal"),
        ("tool_calls", (_REFUSAL,), "refusal"),
        ("stop", (_REFUSAL, _CALL), "tool_calls"),
        ("length", (_CALL,), "length"),
        ("content_filter", (_CALL,), "content_filter"),
        ("length", (_REFUSAL,), "length"),
        ("refusal", (_TEXT,), "refusal"),
        ("pause", (_TEXT,), "pause"),
        ("unknown", (_TEXT,), "unknown"),
        ("unknown", (_REFUSAL,), "refusal"),
    ],
)
def test_finish_is_derived(reported: str, parts: tuple[Part, ...], finish: str) -> None:
    """Rule 127: the finish reason follows the content; an incomplete or withheld reply stays so."""
    assert derive_finish(FinishReason(reported), parts) == finish


_texts = st.text(max_size=20)
_states = st.none() | st.builds(OpaqueState, st.sampled_from(Wire), _texts, _texts)
_parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, text=_texts),
    st.builds(Refusal, text=_texts),
    st.builds(
        Reasoning, text=_texts, summary=st.lists(_texts.filter(bool), max_size=3).map(tuple), state=_states, id=_texts
    ),
    st.builds(
        ToolCall, id=_texts, name=_texts, arguments_json=_texts, kind=st.sampled_from(CallKind), namespace=_texts
    ),
    st.just(ProviderItem(wire=Wire.RESPONSES, type="web_search_call", value={"id": "ws"})),
)


@given(st.lists(_parts, max_size=5), st.sampled_from(FinishReason), st.none() | st.just(Usage(input_tokens=5)))
def test_unrolled_reply_assembles_to_itself(parts: list[Part], reason: FinishReason, usage: Usage | None) -> None:
    """`unroll` is the inverse of the assembler for every reply whose finish fits its content."""
    reply = Reply(id="r", model="m", parts=tuple(parts), finish=derive_finish(reason, parts), usage=usage)
    assert _assembled(*unroll(reply)).reply() == reply


@pytest.mark.parametrize(
    ("streamed", "final", "contradicted"),
    [
        (("a", "b"), "ab", False),
        (("a",), "ab", False),
        (("a b ",), "a b", False),
        (("\na",), "a", False),
        (("a", "a"), "a", True),
        (("b", "a"), "ab", True),
        ((), "ab", False),
        # What is new in it cannot be told by its length.
        (("\na",), "ab", True),
        (("a  ",), "ab", True),
    ],
)
def test_a_final_text_that_is_not_what_was_streamed(streamed: tuple[str, ...], final: str, contradicted: bool) -> None:
    """A part's last form may add to what was streamed of it; anything else takes something back."""
    deltas = [PartTextDelta(0, text) for text in streamed]
    assembler = _assembled(PartStarted(0, Text(text="")), *deltas, PartEnded(0, Text(text=final)))
    assert assembler.contradicted is contradicted
