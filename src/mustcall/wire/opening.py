"""The top level of a request body: its fields as they were written, found in one pass.

Everyone who needs a field before the request is read takes it from here: bodies are large, and looking through one
again for a single word costs as much as reading it.
"""

import msgspec

from mustcall.wire.codec import Peek

__all__ = ["Fields", "glimpse", "open_body"]

Fields = dict[str, msgspec.Raw]

_fields = msgspec.json.Decoder(Fields)
_text = msgspec.json.Decoder(str)
_STREAMS = {b"true": True, b"false": False, b"null": False}
_ABSENT = msgspec.Raw(b"false")


def open_body(body: bytes) -> Fields | None:
    """Return a body's fields; None if it is no JSON object: the codec will say what is wrong with it."""
    try:
        return _fields.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def glimpse(fields: Fields) -> Peek | None:
    """Return what routing needs of a request; None where that is not what it should be."""
    model, stream = fields.get("model"), _STREAMS.get(bytes(fields.get("stream", _ABSENT)))
    if model is None or stream is None:
        return None
    try:
        return Peek(_text.decode(model), stream)
    except (msgspec.DecodeError, ValueError):
        return None
