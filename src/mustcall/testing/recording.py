"""What a scripted upstream saw: one `Recorded` per request, kept in order of arrival."""

from enum import StrEnum
from typing import Any

import msgspec

from mustcall.core.origin import Wire
from mustcall.testing.offers import as_object
from mustcall.testing.script import Answer

__all__ = ["End", "Recorded"]


class End(StrEnum):
    """How a request ended, seen from the upstream."""

    COMPLETE = "complete"
    DISCONNECTED = "disconnected"
    CUT = "cut"
    RESET = "reset"
    CLOSED = "closed"


class Recorded(msgspec.Struct, eq=False):
    """One request, and how it ended.

    `number` counts from 0. `wire` is None off the three wires. `body` is the parsed JSON (None if it was none), `raw`
    its bytes. `answer` is what the script gave for it; `refused_by` names the strict rule that answered instead.
    `ended` is None while the reply is under way.
    """

    method: str
    path: str
    query: dict[str, str]
    wire: Wire | None
    headers: dict[str, str]
    body: Any
    raw: bytes
    number: int = -1
    answer: Answer | None = None
    refused_by: str | None = None
    status: int | None = None
    ended: End | None = None

    @property
    def disconnected(self) -> bool:
        """Whether the client went away before the reply was complete."""
        return self.ended is End.DISCONNECTED

    @property
    def streaming(self) -> bool:
        """Whether the request asked for a stream."""
        return as_object(self.body).get("stream") is True
