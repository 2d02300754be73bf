"""The end of a Responses stream that failed: the error inside `response.failed`, and the number of the next event."""

import re

from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import JsonObject

__all__ = ["failed_error", "next_number"]


#: The number of an event; inside a string of JSON the quotes would be escaped.
_NUMBER = re.compile(rb'"sequence_number"\s*:\s*(\d{1,15})\b')

#: Codes that clients of this wire act on; any other is told by its status.
_KNOWN_CODES = frozenset(
    {
        "server_error",
        "rate_limit_exceeded",
        "invalid_prompt",
        "context_length_exceeded",
        "insufficient_quota",
        "usage_not_included",
        "cyber_policy",
        "bio_policy",
        "server_is_overloaded",
        "slow_down",
    }
)


def failed_error(error: ErrorInfo) -> JsonObject:
    """Write the `error` of a failed response: a code its clients know, our own word beside it.

    A model's failure is an invalid prompt to them: after any other code Codex sends the request five times more.
    """
    code = "invalid_prompt" if error.by_model else error.code
    if code not in _KNOWN_CODES:
        code = "rate_limit_exceeded" if error.status == 429 else "server_error"
        if 400 <= error.status < 500 and error.status not in (408, 409, 429):
            code = "invalid_prompt"
    return {"code": code, "message": error.message, "type": error.type or error.code, "param": error.param}


def next_number(last: bytes) -> int | None:
    """Return the number that follows the last event of these bytes; None if that has none."""
    found = _NUMBER.findall(last, last.rfind(b"data:"))
    return int(found[0]) + 1 if found else None
