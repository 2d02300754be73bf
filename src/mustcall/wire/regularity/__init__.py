"""Whether an upstream's bytes are strictly its wire's, so that every client reads in them what we read.

Codecs understand far more than a wire allows. What is only understood must not be forwarded as it came, even where all
it means is right: official SDKs crash on it, or read something else than was judged. Strict here means what a client
needs; unknown fields, and events and contents of versions to come, are always regular.
"""

from collections.abc import Callable

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.origin import Wire
from mustcall.core.reply import Reply
from mustcall.wire.chat.shape import is_regular
from mustcall.wire.chat.stream_decode import ChatStreamDecoder
from mustcall.wire.codec import Provenance, StreamDecoder, StreamRegularity
from mustcall.wire.regularity import messages
from mustcall.wire.responses import shape as responses
from mustcall.wire.responses.stream_decode import ResponsesStreamDecoder

__all__ = ["StreamRegularity", "is_regular_body", "regularity_for", "respelled"]

_STREAMS: dict[Wire, Callable[[], StreamRegularity]] = {
    Wire.CHAT: lambda: ChatStreamDecoder(Provenance()),
    Wire.RESPONSES: lambda: ResponsesStreamDecoder(Provenance()),
    Wire.MESSAGES: messages.MessagesRegularity,
}
_BODIES: dict[Wire, Callable[[bytes], bool]] = {
    Wire.CHAT: is_regular,
    Wire.RESPONSES: responses.is_regular,
    Wire.MESSAGES: messages.is_regular_body,
}


def regularity_for(wire: Wire, decoder: StreamDecoder | None = None) -> StreamRegularity:
    """Return a fresh judge of one stream; `decoder` is what reads it, and judges it where it parses for both."""
    return decoder if isinstance(decoder, ChatStreamDecoder | ResponsesStreamDecoder) else _STREAMS[wire]()


def is_regular_body(wire: Wire, body: bytes) -> bool:
    """Tell whether a whole reply is written as its wire says; never raises."""
    return _BODIES[wire](body)


def respelled(reply: Reply, log: AdaptationLog) -> Reply:
    """Return a reply without the form it came in, to be written anew."""
    log.add(AdaptationKind.FIELD_MAPPED, "reply", "written as the wire says")
    return reply.evolve(parts=tuple(part.evolve() for part in reply.parts))
