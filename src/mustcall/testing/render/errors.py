"""Errors as each provider writes them: a body with its status, or an event in the middle of a stream."""

from mustcall.core.origin import JsonObject, Wire
from mustcall.testing.render.stamp import Stamp, frame
from mustcall.testing.script import Fail, StreamError

__all__ = ["build_error", "stream_error"]

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OPENAI_TYPES = {429: "rate_limit_error"}


def build_error(fail: Fail, wire: Wire | None, stamp: Stamp) -> JsonObject:
    """Return the error body of the wire the request came on (OpenAI's off the wires)."""
    details = {} if fail.details is None else {"details": fail.details}
    if wire is Wire.MESSAGES:
        kind = fail.type or _ANTHROPIC_TYPES.get(fail.status) or _usual(fail.status, "api_error")
        error = {"type": kind, "message": fail.message} | details
        return {"type": "error", "error": error, "request_id": stamp.make_id("req_")}
    kind = fail.type or _OPENAI_TYPES.get(fail.status) or _usual(fail.status, "server_error")
    return {"error": {"message": fail.message, "type": kind, "param": fail.param, "code": fail.code} | details}


def stream_error(error: StreamError, wire: Wire, response: JsonObject, stamp: Stamp) -> bytes:
    """Return the event that breaks a stream; `response` is the whole reply it was a stream of."""
    match wire:
        case Wire.CHAT:
            kind = error.type or "server_error"
            return frame({"error": {"message": error.message, "type": kind, "param": None, "code": error.code}})
        case Wire.MESSAGES:
            data = {"type": "error", "error": {"type": error.type or "overloaded_error", "message": error.message}}
            return frame(data | {"request_id": stamp.make_id("req_")}, "error")
        case Wire.RESPONSES:
            code = error.code or error.type or "server_error"
            data = {"type": "error", "sequence_number": error.after, "code": code, "message": error.message}
            if error.form == "error":
                return frame(data | {"param": None}, "error")
            ended: JsonObject = {
                "status": "failed",
                "completed_at": None,
                "incomplete_details": None,
                "output": [],
                "usage": None,
            }
            failed = response | ended | {"error": {"code": code, "message": error.message}}
            data = {"type": "response.failed", "sequence_number": error.after, "response": failed}
            return frame(data, "response.failed")


def _usual(status: int, on_server: str) -> str:
    return on_server if status >= 500 else "invalid_request_error"
