"""The one seam through which bytes reach an upstream. Everything above it can run on a fake.

A transport makes one HTTP exchange: it knows no wire, no retry and no key. It raises `UpstreamUnavailable`,
`UpstreamTimeout` or `UpstreamGarbage`, and nothing else.
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Protocol

import msgspec

__all__ = ["Timeouts", "Transport", "UpstreamCall", "UpstreamReply"]


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds: to connect, until the first byte of the answer, and between two pieces of it."""

    connect: float = 10.0
    read: float = 600.0
    idle: float = 120.0


class UpstreamCall(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request."""

    url: str
    headers: Mapping[str, str]
    body: bytes | None
    method: str = "POST"
    timeouts: Timeouts = Timeouts()


class UpstreamReply(Protocol):
    """An HTTP answer whose body has not been read yet. `close` gives up what is left of it."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, names in lower case."""
        ...

    @property
    def arrived(self) -> bool:
        """Whether the whole body is here, so that `read` waits for nothing."""
        ...

    async def read(self) -> bytes:
        """Return the whole body; raise `UpstreamGarbage` for one over the limits."""
        ...

    def chunks(self) -> AsyncGenerator[bytes]:
        """Return the body piece by piece, as it arrives; close what is not read to its end. No piece is large."""
        ...

    async def close(self) -> None:
        """Free the connection; an unfinished exchange is cut off, so that the upstream stops working on it."""
        ...


class Transport(Protocol):
    """Makes exchanges."""

    async def send(self, call: UpstreamCall) -> UpstreamReply:
        """Send a request and return once the status and headers of the answer are there."""
        ...

    async def close(self) -> None:
        """Free everything."""
        ...
