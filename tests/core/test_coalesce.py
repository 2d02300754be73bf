"""Deltas that arrived together say the same as one."""

from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.parts import Reasoning, Text, ToolCall
from mustcall.core.reply import FinishReason, Reply
from mustcall.core.streams.assembler import Assembler
from mustcall.core.streams.coalesce import coalesce
from mustcall.core.streams.events import (
    ArgumentsDelta,
    Ended,
    Event,
    Finished,
    PartEnded,
    PartReasoningDelta,
    PartStarted,
    PartTextDelta,
    Started,
)

_PARTS = (Text(text=""), ToolCall(id="c", name="f", arguments_json=""), Reasoning())
_DELTAS = st.lists(
    st.one_of(
        st.builds(PartTextDelta, st.just(0), st.text(max_size=3)),
        st.builds(ArgumentsDelta, st.just(1), st.text(max_size=3)),
        st.builds(PartReasoningDelta, st.just(2), st.text(max_size=3), st.sampled_from([None, 0, 1])),
    ),
    max_size=12,
)


def test_neighbours_are_joined() -> None:
    """Text with text, arguments with arguments of the same call; borders between parts stay."""
    events: list[Event] = [
        PartTextDelta(0, "a"),
        PartTextDelta(0, "b"),
        ArgumentsDelta(1, "{"),
        ArgumentsDelta(2, "["),
        Ended(),
    ]
    assert coalesce(events) == [PartTextDelta(0, "ab"), ArgumentsDelta(1, "{"), ArgumentsDelta(2, "["), Ended()]


def test_summaries_stay_apart() -> None:
    """Thinking is joined only within one summary."""
    events: list[Event] = [PartReasoningDelta(0, "a", 0), PartReasoningDelta(0, "b", 0), PartReasoningDelta(0, "c", 1)]
    assert coalesce(events) == [PartReasoningDelta(0, "ab", 0), PartReasoningDelta(0, "c", 1)]


def test_other_events_keep_their_place() -> None:
    """An event between two deltas keeps them apart."""
    events: list[Event] = [PartTextDelta(0, "a"), PartEnded(1), PartTextDelta(0, "b")]
    assert coalesce(events) == events


def test_long_deltas_are_not_copied() -> None:
    """A delta that is long itself passes as it is, and short ones are joined before it and behind it."""
    long = PartTextDelta(0, "x" * 10)
    short: list[Event] = [PartTextDelta(0, "a"), PartTextDelta(0, "b")]
    joined = coalesce([*short, long, long, *short], 10)
    assert joined == [PartTextDelta(0, "ab"), long, long, PartTextDelta(0, "ab")]
    assert joined[1] is long
    assert coalesce([*short, long], 11) == [PartTextDelta(0, "ab" + long.text)]


@given(_DELTAS, st.sampled_from([None, 1, 2, 3]))
def test_joining_changes_no_reply(deltas: list[Event], long: int | None) -> None:
    """The assembled reply is the same, and no two neighbours could still be joined."""
    whole: list[Event] = [Started("r", "m"), *(PartStarted(i, part) for i, part in enumerate(_PARTS)), *deltas]
    whole += [PartEnded(0), PartEnded(1), PartEnded(2), Finished(FinishReason.STOP), Ended()]
    replies: list[Reply] = []
    for events in (whole, coalesce(whole, long)):
        assembler = Assembler()
        for event in events:
            assembler.feed(event)
        replies.append(assembler.reply())
    assert replies[0] == replies[1]
    assert coalesce(coalesce(whole)) == coalesce(whole)
