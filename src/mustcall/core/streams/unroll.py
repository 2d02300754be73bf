"""A finished reply as the events it could have streamed as: the inverse of `core.streams.assembler`."""

from collections.abc import Iterator

from mustcall.core.parts import Part, Reasoning, Refusal, Text, ToolCall
from mustcall.core.reply import Reply
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
    StateDelta,
    UsageUpdated,
)

__all__ = ["unroll", "unroll_part"]


def unroll(reply: Reply) -> Iterator[Event]:
    """Yield the events; assembling them gives the reply back."""
    yield Started(reply.id, reply.model)
    if reply.usage is not None:  # it is known before the parts are told, and one wire tells it first
        yield UsageUpdated(reply.usage)
    for index, part in enumerate(reply.parts):
        yield from unroll_part(index, part)
    yield Finished(reply.finish, reply.reported_finish, reply.stop_sequence)
    yield Ended()


def unroll_part(index: int, part: Part) -> Iterator[Event]:
    """Yield the events of one part."""
    match part:
        case Text(text=text) | Refusal(text=text):
            yield PartStarted(index, part.evolve(text=""))
            yield PartTextDelta(index, text)
        case ToolCall(arguments_json=arguments):
            yield PartStarted(index, part.evolve(arguments_json=""))
            yield ArgumentsDelta(index, arguments)
        case Reasoning():
            yield PartStarted(index, part.evolve(text="", summary=(), state=None))
            for number, summary in enumerate(part.summary):
                yield PartReasoningDelta(index, summary, number)
            if part.text:
                yield PartReasoningDelta(index, part.text)
            if part.state is not None:
                yield StateDelta(index, part.state)
        case _:
            yield PartStarted(index, part)
    yield PartEnded(index)
