"""All wires by name."""

from mustcall.core.origin import Wire
from mustcall.wire.chat import ChatCodec
from mustcall.wire.codec import Codec
from mustcall.wire.messages import MessagesCodec
from mustcall.wire.responses import ResponsesCodec

__all__ = ["CODECS", "codec_for"]

CODECS: dict[Wire, Codec] = {
    Wire.CHAT: ChatCodec(),
    Wire.RESPONSES: ResponsesCodec(),
    Wire.MESSAGES: MessagesCodec(),
}


def codec_for(wire: Wire) -> Codec:
    """Return the codec of a wire."""
    return CODECS[wire]
