"""Whether the calls in an upstream's bytes are spelled as its wire says, so that every client reads them as we do.

Codecs read what servers really send: one index for several calls, no index, an id or a name in every delta, arguments
as an object, no id at all (rule 127). Such bytes must not be forwarded as they are, even where all they mean is right:
clients that join deltas by index would make one call of two. Only Chat Completions leaves that room. This looks at
spelling alone; what the calls mean was judged before.

Cost: one typed decode of the bytes that hold calls.
"""

from typing import Annotated, Literal

import msgspec

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.origin import Wire
from mustcall.core.parts import ToolCall
from mustcall.core.reply import Reply
from mustcall.wire.sse import SseDecoder

__all__ = ["respelled", "spells_calls"]

_Given = Annotated[str, msgspec.Meta(min_length=1)]


class _Function(msgspec.Struct, gc=False):
    name: _Given
    arguments: str


class _Custom(msgspec.Struct, gc=False):
    name: _Given
    input: str


class _Call(msgspec.Struct, gc=False):
    id: _Given
    type: Literal["function", "custom"]
    function: _Function | None = None
    custom: _Custom | None = None


class _Message(msgspec.Struct, gc=False):
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct, gc=False):
    message: _Message


class _Body(msgspec.Struct, gc=False):
    choices: list[_Choice]


class _FunctionDelta(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None
    input: str | None = None


class _CallDelta(msgspec.Struct, gc=False):
    index: int
    id: str | None = None
    type: str | None = None
    function: _FunctionDelta | None = None
    custom: _FunctionDelta | None = None


class _Delta(msgspec.Struct, gc=False):
    tool_calls: list[_CallDelta] | None = None


class _ChunkChoice(msgspec.Struct, gc=False):
    delta: _Delta | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_ChunkChoice] = []


_body = msgspec.json.Decoder(_Body)
_chunk = msgspec.json.Decoder(_Chunk)


def respelled(reply: Reply, wire: Wire, data: bytes | None, log: AdaptationLog) -> Reply:
    """Return a reply whose calls are written anew if its bytes do not spell them as the wire says, else the same."""
    if data is None or not reply.calls or spells_calls(wire, data):
        return reply
    log.add(AdaptationKind.FIELD_MAPPED, "tool_calls", "spelled as the wire says")
    return reply.evolve(parts=tuple(part.evolve() if isinstance(part, ToolCall) else part for part in reply.parts))


def spells_calls(wire: Wire, data: bytes) -> bool:
    """Tell whether a whole reply, or the bytes of a stream from its first call on, spell calls as the wire says."""
    if wire is not Wire.CHAT:
        return True
    try:
        return _spells_whole(data) if data.lstrip()[:1] == b"{" else _spells_streamed(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False


def _spells_whole(body: bytes) -> bool:
    calls = [call for choice in _body.decode(body).choices for call in choice.message.tool_calls or ()]
    return all((call.function if call.type == "function" else call.custom) is not None for call in calls)


def _spells_streamed(stream: bytes) -> bool:
    decoder = SseDecoder()
    begun = 0
    for event in (*decoder.feed(stream), *decoder.close()):
        if b'"tool_calls"' not in event.data:
            continue
        for choice in _chunk.decode(event.data).choices:
            for call in (choice.delta.tool_calls if choice.delta is not None else None) or ():
                if not _follows(call, begun):
                    return False
                begun = max(begun, call.index + 1)
    return True


def _follows(call: _CallDelta, begun: int) -> bool:
    """Tell whether a delta begins the next call with all that belongs there, or goes on with one that has begun."""
    part = call.function or call.custom
    if call.index == begun:
        return bool(call.id) and call.type in ("function", "custom") and part is not None and bool(part.name)
    return 0 <= call.index < begun and not call.id and (part is None or not part.name)
