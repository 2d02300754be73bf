"""A quick look at bytes that will be forwarded as they are: whether they are this wire's reply at all.

The check runs in C and builds nothing: a proxy's HTML page, an empty body or an error dressed as a success is told
apart from a reply at the cost of one pass over the bytes.
"""

from typing import Any

import msgspec

from mustcall.core.errors import InvalidRequest, UpstreamGarbage
from mustcall.core.origin import Wire
from mustcall.wire.chat.shape import chat_outline
from mustcall.wire.messages.shape import messages_outline
from mustcall.wire.reading import read
from mustcall.wire.responses.shape import responses_outline

__all__ = ["is_error_body", "is_error_of", "is_reply", "not_a_reply", "rename_model"]


class _ErrorBody(msgspec.Struct):
    error: dict[str, msgspec.Raw] | str


class _Told(msgspec.Struct):
    message: str


class _OpenAIError(msgspec.Struct):
    error: _Told


class _Classed(msgspec.Struct):
    type: str
    message: str


class _MessagesError(msgspec.Struct, tag="error"):
    error: _Classed


_ERRORS: dict[Wire, msgspec.json.Decoder[Any]] = {
    Wire.CHAT: msgspec.json.Decoder(_OpenAIError),
    Wire.RESPONSES: msgspec.json.Decoder(_OpenAIError),
    Wire.MESSAGES: msgspec.json.Decoder(_MessagesError),
}


_OUTLINES: dict[Wire, msgspec.json.Decoder[Any]] = {
    Wire.CHAT: chat_outline,
    Wire.RESPONSES: responses_outline,
    Wire.MESSAGES: messages_outline,
}
_error_body = msgspec.json.Decoder(_ErrorBody)
_top_level = msgspec.json.Decoder(dict[str, msgspec.Raw])


def is_reply(wire: Wire, body: bytes) -> bool:
    """Tell whether a body is a reply of this wire."""
    return read(_OUTLINES[wire], body) is not None


def not_a_reply(wire: Wire, body: bytes) -> UpstreamGarbage:
    """Return the error for a body that is not a reply of this wire."""
    shown = body[:200].decode("utf-8", "replace").strip() or "nothing"
    return UpstreamGarbage(f"the upstream's answer is not a reply on the {wire} wire; it began with: {shown}")


def is_error_of(wire: Wire, body: bytes) -> bool:
    """Tell whether a body is an error in this wire's own shape, so that its clients can read it."""
    return read(_ERRORS[wire], body) is not None


def is_error_body(body: bytes) -> bool:
    """Tell whether a body is an error in one of the wires' shapes."""
    return read(_error_body, body) is not None


def rename_model(body: bytes, model: str) -> bytes:
    """Return the same request for another model name; every other field keeps its bytes."""
    try:
        fields = _top_level.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise InvalidRequest("the body is not a JSON object") from None
    fields["model"] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(fields)
