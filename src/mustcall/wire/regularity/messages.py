"""What a strict client of Messages reads: one message, its blocks one after the other, each opened and closed.

The SDKs find a block by its place in the list they built, skip events without a name, and take the counts of the last
event without asking. Unknown events, blocks and deltas are theirs to ignore, as long as they have a type.

Cost: one typed decode for each event.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from mustcall.wire.framing import Framing
from mustcall.wire.reading import Anything, Count, Given, is_utf8, read
from mustcall.wire.sse import SseEvent

__all__ = ["MessagesRegularity", "is_regular_body"]

_Nothing = Annotated[list[msgspec.Raw], msgspec.Meta(max_length=0)]


class _Typed(msgspec.Struct, gc=False):
    type: Given


class _Text(msgspec.Struct, gc=False):
    text: str
    citations: list[Anything] | None = None


class _Thinking(msgspec.Struct, gc=False):
    thinking: str
    signature: str | None = None


class _Redacted(msgspec.Struct, gc=False):
    data: str


class _ToolUse(msgspec.Struct, gc=False):
    id: Given
    name: Given
    input: dict[str, msgspec.Raw]


class _Counts(msgspec.Struct, gc=False):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None


_typed = msgspec.json.Decoder(_Typed)
_tool_use = msgspec.json.Decoder(_ToolUse)
_BLOCKS: dict[str, msgspec.json.Decoder[Any]] = {
    "text": msgspec.json.Decoder(_Text),
    "thinking": msgspec.json.Decoder(_Thinking),
    "redacted_thinking": msgspec.json.Decoder(_Redacted),
}


# --- whole replies --------------------------------------------------------------------------------------------------


class _Body(msgspec.Struct, gc=False):
    id: Given
    type: Literal["message"]
    role: Literal["assistant"]
    content: list[msgspec.Raw]
    usage: _Counts
    model: str = ""
    stop_reason: Given | None = None
    stop_sequence: str | None = None


_body = msgspec.json.Decoder(_Body)


def is_regular_body(body: bytes) -> bool:
    """Tell whether a whole reply is written as the wire says."""
    reply = read(_body, body)
    if reply is None or not is_utf8(body):
        return False
    ids: list[str] = []
    for block in reply.content:
        typed = read(_typed, block)
        if typed is None:
            return False
        if typed.type == "tool_use":
            call = read(_tool_use, block)
            if call is None:
                return False
            ids.append(call.id)
        elif typed.type in _BLOCKS and read(_BLOCKS[typed.type], block) is None:
            return False
    return len(set(ids)) == len(ids)


# --- streams --------------------------------------------------------------------------------------------------------


class _StartCounts(msgspec.Struct, gc=False):
    input_tokens: Count
    output_tokens: Count


class _Opening(msgspec.Struct, gc=False):
    id: Given
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: _Nothing
    usage: _StartCounts
    stop_reason: None = None
    stop_sequence: None = None


class _MessageStart(msgspec.Struct, gc=False):
    type: Literal["message_start"]
    message: _Opening


class _BlockStart(msgspec.Struct, gc=False):
    type: Literal["content_block_start"]
    index: Count
    content_block: msgspec.Raw


class _Delta(msgspec.Struct, gc=False):
    type: Given
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    citation: Anything | None = None


class _BlockDelta(msgspec.Struct, gc=False):
    type: Literal["content_block_delta"]
    index: Count
    delta: _Delta


class _OtherDelta(msgspec.Struct, gc=False):
    """A delta of a kind to come: what it brings may have any form."""

    type: Literal["content_block_delta"]
    index: Count
    delta: _Typed


class _BlockStop(msgspec.Struct, gc=False):
    type: Literal["content_block_stop"]
    index: Count


class _Ending(msgspec.Struct, gc=False):
    stop_reason: Given
    stop_sequence: str | None = None


class _LastCounts(msgspec.Struct, gc=False):
    output_tokens: Count
    input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None


class _MessageDelta(msgspec.Struct, gc=False):
    type: Literal["message_delta"]
    delta: _Ending
    usage: _LastCounts


class _TextStart(msgspec.Struct, gc=False):
    text: Literal[""]
    citations: list[Anything] | None = None


class _ThinkingStart(msgspec.Struct, gc=False):
    thinking: Literal[""]
    signature: str | None = None


class _MessageStop(msgspec.Struct, gc=False):
    type: Literal["message_stop"]


class _Problem(msgspec.Struct, gc=False):
    type: Given
    message: Given


class _Error(msgspec.Struct, gc=False):
    type: Literal["error"]
    error: _Problem


_start = msgspec.json.Decoder(_MessageStart)
_block_start = msgspec.json.Decoder(_BlockStart)
_block_delta = msgspec.json.Decoder(_BlockDelta)
_other_delta = msgspec.json.Decoder(_OtherDelta)
_block_stop = msgspec.json.Decoder(_BlockStop)
_message_delta = msgspec.json.Decoder(_MessageDelta)
_message_stop = msgspec.json.Decoder(_MessageStop)
_error = msgspec.json.Decoder(_Error)

#: Blocks whose text comes in deltas, as they begin.
_BEGUN: dict[str, msgspec.json.Decoder[Any]] = {
    "text": msgspec.json.Decoder(_TextStart),
    "thinking": msgspec.json.Decoder(_ThinkingStart),
}

#: The field a delta brings, and the kind of block it belongs to.
_DELTAS = {
    "text_delta": ("text", "text"),
    "citations_delta": ("citation", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "thinking"),
    "input_json_delta": ("partial_json", "tool_use"),
}


class MessagesRegularity:
    """One stream."""

    __slots__ = ("_begun", "_blocks", "_ended", "_framing", "_ids", "_open", "_stopping")

    def __init__(self) -> None:
        self._framing = Framing()
        self._begun = False
        self._blocks = 0
        self._open: str | None = None
        self._ids: set[str] = set()
        self._stopping = False
        self._ended = False

    @property
    def names(self) -> Sequence[str]:
        """Nothing: parts have their place alone."""
        return ()

    @property
    def settled(self) -> bool:
        """Whether the end was not announced yet."""
        return not self._stopping

    @property
    def complete(self) -> bool:
        """Whether a stop reason and `message_stop` came."""
        return self._ended and self._stopping

    def takes(self, block: bytes, events: list[SseEvent]) -> bool:
        """Tell whether these bytes can be forwarded after all before."""
        return self._framing.takes(block) and all(map(self._takes, events))

    def _takes(self, event: SseEvent) -> bool:
        if self._ended:
            return False
        match event.name:
            case "ping":
                return True  # skipped by its name alone
            case "error":
                self._ended = True
                return read(_error, event.data) is not None
            case "message_start":
                fresh = not self._begun
                self._begun = True
                return fresh and read(_start, event.data) is not None
            case _:
                return self._begun and self._takes_inner(event.name, event.data)

    def _takes_inner(self, name: str, data: bytes) -> bool:
        match name:
            case "content_block_delta":
                delta = read(_block_delta, data) or read(_other_delta, data)
                return delta is not None and delta.index == self._blocks - 1 and self._fits(delta.delta)
            case "content_block_start":
                start = read(_block_start, data)
                return start is not None and start.index == self._blocks and self._opens(start.content_block)
            case "content_block_stop":
                stop = read(_block_stop, data)
                was, self._open = self._open, None
                return stop is not None and was is not None and stop.index == self._blocks - 1
            case "message_delta":
                self._stopping = True
                return self._open is None and read(_message_delta, data) is not None
            case "message_stop":
                self._ended = True
                return self._stopping and read(_message_stop, data) is not None
            case _:
                typed = read(_typed, data)
                return typed is not None and typed.type == name

    def _opens(self, block: msgspec.Raw) -> bool:
        typed = read(_typed, block)
        if typed is None or self._open is not None or self._stopping:
            return False
        self._blocks += 1
        self._open = typed.type
        if typed.type == "tool_use":
            # Clients take the input from the deltas or from here, but not from both: here it is empty.
            call = read(_tool_use, block)
            if call is None or call.input or call.id in self._ids:
                return False
            self._ids.add(call.id)
            return True
        if typed.type in _BEGUN:
            # Some clients take what a block begins with for its beginning, others read deltas alone: here it is empty.
            return read(_BEGUN[typed.type], block) is not None
        return typed.type not in _BLOCKS or read(_BLOCKS[typed.type], block) is not None

    def _fits(self, delta: _Delta | _Typed) -> bool:
        if self._open is None:
            return False
        if delta.type not in _DELTAS:
            return True
        field, kind = _DELTAS[delta.type]
        owner = "tool_use" if self._open.endswith("tool_use") else self._open
        return getattr(delta, field, None) is not None and owner == kind
