"""Messages replies and stream events as the wire writes them: the only grammar of both.

What fits, in the order that `repairs` knows, is regular: every client reads in it what we read, so its bytes may be
forwarded. What does not fit is read with `repairs`, and written anew. Strict means what a client needs. Unknown fields,
and events, blocks and deltas of kinds to come, always fit.

Cost: one typed decode, in C.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any, Literal, get_args

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.wire.reading import Anything, Count, Given, is_utf8, read
from mustcall.wire.sse import SseEvent

__all__ = [
    "DELTAS",
    "BlockDelta",
    "BlockPiece",
    "BlockStart",
    "BlockStop",
    "CallBlock",
    "EndCounts",
    "LaterKind",
    "MessageDelta",
    "MessageEnding",
    "MessageHead",
    "MessageStart",
    "MessageStop",
    "MessagesEvent",
    "Ping",
    "RedactedBlock",
    "StartCounts",
    "TextBlock",
    "ThinkingBlock",
    "WholeMessage",
    "begins_empty",
    "fits",
    "is_failure",
    "is_regular",
    "is_untyped",
    "messages_outline",
    "read_event",
    "read_events",
    "read_reply",
    "read_text",
]


class LaterKind(msgspec.Struct, gc=False):
    """An event, a block or a delta of a kind to come."""

    type: Given


# --- whole replies --------------------------------------------------------------------------------------------------


class TextBlock(msgspec.Struct, gc=False, tag="text"):
    """Text."""

    text: str
    citations: list[Anything] | None = None


class ThinkingBlock(msgspec.Struct, gc=False, tag="thinking"):
    """Thinking, and what proves it."""

    thinking: str
    signature: str | None = None


class RedactedBlock(msgspec.Struct, gc=False, tag="redacted_thinking"):
    """Thinking that is not shown."""

    data: str


class CallBlock(msgspec.Struct, gc=False, tag="tool_use"):
    """A call."""

    id: Given
    name: Given
    input: JsonObject


_Block = TextBlock | ThinkingBlock | RedactedBlock | CallBlock
#: What a block is by its type, and which of its fields comes in deltas.
_BLOCKS: dict[str, tuple[type[_Block], str]] = {
    "text": (TextBlock, "text"),
    "thinking": (ThinkingBlock, "thinking"),
    "redacted_thinking": (RedactedBlock, ""),
    "tool_use": (CallBlock, "input"),
}


class _Usage(msgspec.Struct, gc=False):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    # No client needs it, so it may be anything.
    output_tokens_details: Any = None


class _Message(msgspec.Struct, gc=False, kw_only=True):
    id: Given
    type: Literal["message"]
    role: Literal["assistant"]
    usage: _Usage
    model: str = ""
    stop_reason: Given | None = None
    stop_sequence: str | None = None


class WholeMessage(_Message, gc=False, kw_only=True):
    """A whole reply of nothing but known blocks."""

    content: list[_Block]


class _LaterReply(_Message, gc=False, kw_only=True):
    content: list[msgspec.Raw]


class _Outline(msgspec.Struct):
    content: list[msgspec.Raw]


#: Tells whether a body is a reply at all, regular or not.
messages_outline = msgspec.json.Decoder(_Outline)
_reply = msgspec.json.Decoder(WholeMessage)
_later_reply = msgspec.json.Decoder(_LaterReply)
_block = msgspec.json.Decoder(_Block)
_later = msgspec.json.Decoder(LaterKind)


def read_reply(body: bytes) -> WholeMessage | None:
    """Read a whole reply of known blocks that is written as the wire says; None for any other."""
    reply = read(_reply, body)
    if reply is None or not (body.isascii() or is_utf8(body)):
        return None
    return reply if len(reply.content) < 2 or _are_distinct(reply.content) else None


def is_regular(body: bytes) -> bool:
    """Tell whether a whole reply is written as the wire says, with blocks of kinds to come or without."""
    if read_reply(body) is not None:
        return True
    reply = read(_later_reply, body)
    if reply is None or not is_utf8(body):
        return False
    known: list[_Block] = []
    for written in reply.content:
        block = read(_block, written)
        if block is not None:
            known.append(block)
            continue
        later = read(_later, written)
        if later is None or later.type in _BLOCKS:
            return False
    return _are_distinct(known)


def _are_distinct(content: list[_Block]) -> bool:
    """Tell whether no id stands for two calls."""
    ids = [block.id for block in content if type(block) is CallBlock]
    return len(set(ids)) == len(ids)


# --- streams --------------------------------------------------------------------------------------------------------


class MessageHead(msgspec.Struct, gc=False):
    """The message before its content."""

    id: Given
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=0)]
    usage: JsonObject
    stop_reason: None = None
    stop_sequence: None = None


class MessageStart(msgspec.Struct, gc=False, tag="message_start"):
    """The first event."""

    message: MessageHead


class BlockStart(msgspec.Struct, gc=False, tag="content_block_start"):
    """A block begins. Its exact form is kept, so it is read as it is; `begins_empty` judges it."""

    index: Count | None
    content_block: Any


class BlockPiece(msgspec.Struct, gc=False):
    """What a delta brings; the field that its type says."""

    type: Given
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    citation: JsonObject | None = None


class BlockDelta(msgspec.Struct, gc=False, tag="content_block_delta"):
    """A block goes on; only a repaired one has no index."""

    index: Count | None
    delta: BlockPiece


class BlockStop(msgspec.Struct, gc=False, tag="content_block_stop"):
    """A block ends."""

    index: Count | None


class MessageEnding(msgspec.Struct, gc=False):
    """Why the message ends."""

    stop_reason: Given | None
    stop_sequence: str | None = None


class MessageDelta(msgspec.Struct, gc=False, tag="message_delta"):
    """The end is announced, with the last counts."""

    delta: MessageEnding
    usage: JsonObject


class MessageStop(msgspec.Struct, gc=False, tag="message_stop"):
    """The last event."""


class Ping(msgspec.Struct, gc=False, tag="ping"):
    """A sign of life."""


class _Untyped(msgspec.Struct, gc=False):
    type: None = None
    error: None = None


class _LaterDelta(msgspec.Struct, gc=False):
    index: Count
    delta: LaterKind


class _Problem(msgspec.Struct, gc=False):
    type: Given
    message: Given


class _Failure(msgspec.Struct, gc=False):
    type: Literal["error"]
    error: _Problem


class StartCounts(msgspec.Struct, gc=False):
    """What clients take from the first event."""

    input_tokens: Count
    output_tokens: Count


class EndCounts(msgspec.Struct, gc=False):
    """What clients take from the event that announces the end."""

    output_tokens: Count
    input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None


_Known = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | Ping
MessagesEvent = _Known | LaterKind

#: The field a delta brings, and the kind of block it belongs to.
DELTAS = {
    "text_delta": ("text", "text"),
    "citations_delta": ("citation", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "thinking"),
    "input_json_delta": ("partial_json", "tool_use"),
}
_EVENTS = {str(known.__struct_config__.tag) for known in get_args(_Known)} | {"error"}
_event = msgspec.json.Decoder(_Known)
_later_delta = msgspec.json.Decoder(_LaterDelta)
_untyped = msgspec.json.Decoder(_Untyped)
_failure = msgspec.json.Decoder(_Failure)
_data = attrgetter("data")


def read_event(data: bytes) -> MessagesEvent | None:
    """Read an event's data that is written as the wire says; None for any other, and for errors."""
    event = read(_event, data)
    if event is not None:
        return event
    typed = read(_later, data)
    if typed is None:
        return None
    if typed.type not in _EVENTS:
        return typed
    later = read(_later_delta, data) if typed.type == "content_block_delta" else None
    if later is None or later.delta.type in DELTAS:
        return None
    return BlockDelta(later.index, BlockPiece(later.delta.type))


def read_events(events: Sequence[SseEvent]) -> Sequence[MessagesEvent | None]:
    """Read the data of several events, each by itself."""
    try:
        return [*map(_event.decode, map(_data, events))]
    except (msgspec.DecodeError, ValueError, RecursionError):
        return [read_event(event.data) for event in events]


def read_text(data: bytes | memoryview) -> tuple[int, str] | None:
    """Return the place and the text of a delta of nothing but text; None for any other."""
    event = read(_event, data)
    if not isinstance(event, BlockDelta) or event.delta.type != "text_delta":
        return None
    index, text = event.index, event.delta.text
    return (index, text) if index is not None and text else None


def begins_empty(kind: str, block: JsonObject) -> bool:
    """Tell whether a block begins with all that names it, and with nothing that its deltas bring.

    Some clients take text and input from here, others from the deltas alone.
    """
    known = _BLOCKS.get(kind)
    return known is None or (fits(block, known[0]) and not block.get(known[1]))


def fits(value: JsonObject, shape: type[msgspec.Struct]) -> bool:
    """Tell whether an object that was read as it is has this shape."""
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError:
        return False
    return True


def is_untyped(data: bytes) -> bool:
    """Tell whether an event says nothing but its name."""
    return read(_untyped, data) is not None


def is_failure(data: bytes) -> bool:
    """Tell whether an event is an error that a client can read."""
    return read(_failure, data) is not None
