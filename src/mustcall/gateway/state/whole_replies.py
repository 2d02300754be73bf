"""What a caller got, read back from its bytes: whole or streamed, on any wire."""

import msgspec

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import MustcallError
from mustcall.core.origin import Wire
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.core.streams.assembler import Assembler
from mustcall.wire.codec import Provenance, ReplyStamp
from mustcall.wire.registry import codec_for
from mustcall.wire.sse import SseDecoder

__all__ = ["in_one_piece", "read_back"]

_PROVENANCE = Provenance(token="shown")  # noqa: S106  names the reply, opens nothing


def read_back(body: bytes, wire: Wire) -> Reply | None:
    """Return the reply that these bytes are; None for an error, and for what cannot be read."""
    codec = codec_for(wire)
    try:
        if _is_whole(body):
            return codec.decode_reply(body, _PROVENANCE)
        decoder, assembler = codec.stream_decoder(_PROVENANCE), Assembler()
        for event in (*decoder.feed_all(SseDecoder().feed(body)), *decoder.close()):
            assembler.feed(event)
        return assembler.reply()
    except (MustcallError, ValueError, RecursionError):
        return None


def in_one_piece(body: bytes, wire: Wire, created: int) -> bytes:
    """Return a streamed reply as a whole one, and nothing for a stream that is none; others are as they are.

    A secret can be spread over several events, where no pattern finds it.
    """
    if not body or _is_whole(body):
        return body
    reply = read_back(body, wire)
    if reply is None:
        return b""
    stamp = ReplyStamp(token="shown", created=created, id=reply.id)  # noqa: S106  as above
    request = Request(model=reply.model, messages=())
    return msgspec.json.encode(codec_for(wire).encode_reply(reply, request, stamp, AdaptationLog()))


def _is_whole(body: bytes) -> bool:
    return body.lstrip()[:1] == b"{"
