"""One transport for every upstream: the address's scheme says whether a call goes over HTTP or stays in the process."""

from mustcall.core.limits import DEFAULTS, GatewayLimits
from mustcall.upstream.embedded.store import is_embedded
from mustcall.upstream.embedded.transport import EmbeddedTransport
from mustcall.upstream.http import HttpTransport
from mustcall.upstream.seam import Transport, UpstreamCall, UpstreamReply

__all__ = ["SchemeTransport"]


class SchemeTransport:
    """HTTP(S) endpoints and `embedded:` models behind one seam. Made inside the event loop that uses it."""

    def __init__(
        self, *, web: Transport | None = None, embedded: Transport | None = None, limits: GatewayLimits = DEFAULTS
    ) -> None:
        self._web = web or HttpTransport(limits=limits)
        self._embedded = embedded or EmbeddedTransport()

    async def send(self, call: UpstreamCall) -> UpstreamReply:
        """Send a call where its address says."""
        return await (self._embedded if is_embedded(call.url) else self._web).send(call)

    async def close(self) -> None:
        """Close both."""
        try:
            await self._embedded.close()
        finally:
            await self._web.close()
