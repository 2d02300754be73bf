"""Error bodies of the Messages wire: `{"type": "error", "error": {type, message, details?}, "request_id"}`.

Decides the class word for a status and the status for a class word. Reads any bytes; never raises.
"""

from typing import Any

import msgspec

from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import JsonObject
from mustcall.wire.overflow import OVERFLOW_CODE, is_overflow
from mustcall.wire.reading import maybe_object
from mustcall.wire.sse import encode_event

__all__ = ["decode_error", "encode_error", "encode_stream_error", "error_from_value"]

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_LONGEST = 2_000


def encode_error(error: ErrorInfo, request_id: str) -> JsonObject:
    """Write an error body; `details` goes inside `error`, where the SDK looks for it."""
    message = error.message
    if error.code == OVERFLOW_CODE and "prompt is too long" not in message.lower():
        message = f"prompt is too long: {message}"  # the words on which clients of this wire compact their history
    inner: JsonObject = {"type": _type_word(error), "message": message}
    if error.details is not None:
        inner["details"] = error.details
    body: JsonObject = {"type": "error", "error": inner}
    if request_id:
        body["request_id"] = request_id
    return body


def encode_stream_error(error: ErrorInfo, request_id: str) -> bytes:
    """Write an error as the last event of a stream."""
    return encode_event(msgspec.json.encode(encode_error(error, request_id)), "error")


def _type_word(error: ErrorInfo) -> str:
    # The status decides, because OpenAI's words overlap with these and mean other things; the upstream's own word is
    # kept where it is one of this wire's and belongs to the status.
    if error.type in _STATUSES and _STATUSES[error.type] == error.status:
        return error.type
    known = _TYPES.get(error.status)
    if known is not None:
        return known
    return "api_error" if error.status >= 500 else "invalid_request_error"


def decode_error(status: int, body: bytes) -> ErrorInfo:
    """Read an upstream's error body: the wire's own shape, a bare message, HTML, or nothing."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        text = body[:500].decode("utf-8", "replace").strip()
        message = f"the upstream answered HTTP {status}: {text}" if text else f"the upstream answered HTTP {status}"
        return ErrorInfo(message=message, status=_as_error(status), code="upstream_rejected")
    return error_from_value(value, status)


def error_from_value(value: Any, status: int | None = None) -> ErrorInfo:
    """Read an error body or event. Without an HTTP status of its own the class word gives one."""
    outer = maybe_object(value)
    inner: Any = value
    if outer is not None:
        inner = next((outer[key] for key in ("error", "message", "detail") if outer.get(key)), value)
    fields = maybe_object(inner)
    if fields is None:
        return ErrorInfo(message=_text(inner, status), status=_as_error(status), code="upstream_rejected")
    kind = fields.get("type")
    word = kind if isinstance(kind, str) else None
    details = maybe_object(fields.get("details"))
    generation = fields.get("failed_generation")  # other providers' servers speak this wire, too
    if isinstance(generation, str):
        details = {**(details or {}), "failed_generation": generation}
    own_code = (details or {}).get("error_code")
    message = _text(fields.get("message") or fields, status)
    code = own_code if isinstance(own_code, str) and own_code else "upstream_rejected"
    return ErrorInfo(
        message=message,
        status=_as_error(status if status is not None else _STATUSES.get(word or "")),
        code=OVERFLOW_CODE if is_overflow(code, message) else code,
        type=word,
        details=details,
    )


def _as_error(status: int | None) -> int:
    return status if status is not None and status >= 400 else 502


def _text(value: Any, status: int | None) -> str:
    if isinstance(value, str) and value.strip():
        return value[:_LONGEST]
    if value is None or value in ("", [], {}) or isinstance(value, str):
        return "the upstream reported an error" if status is None else f"the upstream answered HTTP {status}"
    try:
        return msgspec.json.encode(value).decode()[:_LONGEST]
    except RecursionError:
        return "the upstream reported an error" if status is None else f"the upstream answered HTTP {status}"
