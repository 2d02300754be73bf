"""A transport that counts what it sends, so that the upstream calls behind a gateway can be told."""

from collections.abc import Callable

from mustcall.upstream.seam import Transport, UpstreamCall, UpstreamReply

__all__ = ["CountedTransport"]


class CountedTransport:
    """Sends through a transport that is made on first use: its connections belong to the loop that runs then."""

    def __init__(self, make: Callable[[], Transport]) -> None:
        self.sent = 0
        self._make = make
        self._inner: Transport | None = None

    async def send(self, call: UpstreamCall) -> UpstreamReply:
        """Count a request and send it."""
        if self._inner is None:
            self._inner = self._make()
        self.sent += 1
        return await self._inner.send(call)

    async def close(self) -> None:
        """Free everything."""
        if self._inner is not None:
            await self._inner.close()
