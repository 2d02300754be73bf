"""The error body that Chat Completions and Responses share: `{"error": {message, type, param, code}}`.

Two things beyond these fields are kept in `details`, because decisions are made from them: the model's generation
that Groq shows beside an error (`failed_generation`), and what a router was told by the provider behind it
(OpenRouter's `metadata.raw`, kept as `provider_error`).
"""

from typing import Any

import msgspec

from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import JsonObject
from mustcall.wire.overflow import OVERFLOW_CODE, is_overflow
from mustcall.wire.reading import maybe_object

__all__ = ["decode_error_body", "encode_error_body", "error_info", "error_type"]

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}
_LONGEST = 2_000
#: OpenAI's word for the caller's fault, also where the status alone would have another.
_CALLERS = "invalid_request_error"
_LONGEST_GENERATION = 1_000_000


def error_type(status: int) -> str:
    """Return OpenAI's word for a status."""
    return _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")


def encode_error_body(error: ErrorInfo, request_id: str) -> JsonObject:
    """Write an error in OpenAI's shape, with our request id beside its fields."""
    # What the model failed is told as the caller's fault: clients ask again after any other class (rule 144).
    callers = error.by_model or error.type == _CALLERS
    body: JsonObject = {
        "message": error.message,
        "type": _CALLERS if callers else error_type(error.status),
        "param": error.param,
        "code": error.code,
    }
    if error.details is not None:
        body["details"] = error.details
    if request_id:
        body["request_id"] = request_id
    return {"error": body}


def error_info(error: Any, status: int) -> ErrorInfo:
    """Read the value of an `error` key, which in the wild is an object, a string or anything."""
    fields = maybe_object(error)
    if fields is None:
        return ErrorInfo(message=_text(error) or f"HTTP {status}", status=_failure(status), code="upstream_rejected")
    message = _text(fields.get("message")) or _text(fields) or f"HTTP {status}"
    code, kind, param = fields.get("code"), fields.get("type"), fields.get("param")
    if isinstance(code, int) and 400 <= code <= 599 and status == 200:
        status = code  # routers put the HTTP status here when the stream has already begun with 200
    word = code if isinstance(code, str) and code else "upstream_rejected"
    said = kind if isinstance(kind, str) else None
    return ErrorInfo(
        message=message,
        status=_failure(status),
        code=OVERFLOW_CODE if is_overflow(word, said, message) else word,
        type=said,
        param=param if isinstance(param, str) else None,
        details=_details(fields),
    )


def _details(fields: JsonObject) -> JsonObject | None:
    details: JsonObject = {}
    generation = _text(fields.get("failed_generation"), _LONGEST_GENERATION)
    if generation:
        details["failed_generation"] = generation
    told = _text((maybe_object(fields.get("metadata")) or {}).get("raw"))[:_LONGEST]
    if told:
        details["provider_error"] = told
    return details or None


def decode_error_body(status: int, body: bytes) -> ErrorInfo:
    """Read any error body: OpenAI's shape, a bare message, HTML, nothing."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        text = body[:500].decode("utf-8", "replace").strip()
        return ErrorInfo(
            message=f"the upstream answered HTTP {status}: {text}" if text else f"the upstream answered HTTP {status}",
            status=status,
            code="upstream_rejected",
        )
    fields = maybe_object(value)
    if fields is not None:
        for key in ("error", "message", "detail"):
            if fields.get(key):
                return error_info(fields[key], status)
    return error_info(value, status)


def _failure(status: int) -> int:
    """Return a status that says failure, for errors that came with a success."""
    return status if status >= 400 else 502


def _text(value: Any, longest: int = _LONGEST) -> str:
    if value is None or value == {}:
        return ""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()[:longest]
    except RecursionError:
        return ""
