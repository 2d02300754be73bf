"""Reads what came back, whole or streamed, as a client of the wire would. Takes chunks; opens nothing itself."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from mustcall.core.origin import Wire
from mustcall.core.parts import Refusal, Text
from mustcall.core.reply import Reply
from mustcall.core.streams.assembler import Assembler
from mustcall.core.streams.events import Ended, Failed
from mustcall.wire.codec import Provenance
from mustcall.wire.registry import codec_for
from mustcall.wire.sse import SseDecoder

__all__ = ["read_stream", "read_whole", "text_of"]


def read_whole(wire: Wire, body: bytes, token: str) -> Reply:
    """Return the reply of a body; raise `MustcallError` for one that is none."""
    return codec_for(wire).decode_reply(body, Provenance(issuer="eval", token=token))


async def read_stream(wire: Wire, chunks: AsyncGenerator[bytes], token: str) -> Reply:
    """Return the reply of a stream, read up to its end; raise `MustcallError` for one that failed or was cut."""
    sse, assembler = SseDecoder(), Assembler()
    decoder = codec_for(wire).stream_decoder(Provenance(issuer="eval", token=token))
    async with aclosing(chunks):
        async for chunk in chunks:
            for event in decoder.feed_all(sse.feed(chunk)):
                assembler.feed(event)
                if isinstance(event, Ended | Failed):
                    return assembler.reply()
    for event in decoder.feed_all(sse.close()) + decoder.close():
        assembler.feed(event)
    return assembler.reply()


def text_of(reply: Reply) -> str:
    """Return what a reply says to the user."""
    return "".join(part.text for part in reply.parts if isinstance(part, Text | Refusal))
