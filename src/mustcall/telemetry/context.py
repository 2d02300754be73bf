"""W3C Trace Context: the trace a request belongs to, read from its headers and written onto upstream calls.

A turn has one span id, and each attempt one that is worked out from it: whoever writes the headers and whoever exports
the spans later come to the same ids, and nothing has to be carried between them.
"""

import os
import re
from collections.abc import Mapping
from hashlib import blake2b

import msgspec

__all__ = ["TraceContext", "child_id", "continued", "inside"]

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE = re.compile(r"[\x20-\x7e]{1,512}")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16


class TraceContext(msgspec.Struct, frozen=True, gc=False):
    """The span of one turn: its trace, its own id, the caller's span it belongs to, and whether it is sampled."""

    trace_id: str
    span_id: str
    #: The caller's `traceparent`, empty if the trace begins here.
    parent: str = ""
    state: str = ""
    sampled: bool = True

    @property
    def header(self) -> str:
        """The turn's own span as a `traceparent`."""
        return self._written(self.span_id)

    def outgoing(self, attempt: int) -> dict[str, str]:
        """Return the headers of an upstream call: they name the attempt's span as the parent of what follows."""
        headers = {"traceparent": self._written(child_id(self.span_id, attempt))}
        if self.state:
            headers["tracestate"] = self.state
        return headers

    def _written(self, span_id: str) -> str:
        return f"00-{self.trace_id}-{span_id}-{'01' if self.sampled else '00'}"


def child_id(span_id: str, number: int) -> str:
    """Return the id of the span of an attempt, counted from 1."""
    made = blake2b(f"{span_id}/{number}".encode(), digest_size=8).hexdigest()
    return made if made != _NO_SPAN else "0" * 15 + "1"


def continued(headers: Mapping[str, str]) -> TraceContext:
    """Return a span in the trace that a request's headers name; in a new one if they name none that can be read."""
    given = headers.get("traceparent", "").strip()
    found = _PARENT.fullmatch(given)
    # Version ff is none; version 00 has exactly four fields, and later ones begin with the same four.
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]) or _is_empty(found):
        return TraceContext(os.urandom(16).hex(), os.urandom(8).hex())
    state = headers.get("tracestate", "").strip()
    return TraceContext(
        found[2],
        os.urandom(8).hex(),
        f"00-{found[2]}-{found[3]}-{found[4]}",
        state if _STATE.fullmatch(state) else "",
        sampled=bool(int(found[4], 16) & 1),
    )


def inside(outer: TraceContext) -> TraceContext:
    """Return a new span inside another one of ours."""
    return TraceContext(outer.trace_id, os.urandom(8).hex(), outer.header, outer.state, sampled=outer.sampled)


def _is_empty(found: "re.Match[str]") -> bool:
    return found[2] == _NO_TRACE or found[3] == _NO_SPAN
