"""An upstream as a library user has it: where the model is, and connections that live no longer than their users.

It decides nothing about turns; it hands out what turns run on. Connections belong to the event loop that uses them and
are closed with the last user there, so a run that stands alone leaves nothing open.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.profiles import Learnt, ProfileOverride
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.retry import Clock, SystemClock
from mustcall.upstream.seam import Transport

__all__ = ["Upstream"]


class _Shared(msgspec.Struct):
    """The connections of one event loop, and how many use them."""

    loop: asyncio.AbstractEventLoop
    transport: Transport
    users: int = 0


class Upstream:
    """An endpoint and a model.

    `where` is `[name:]wire=URL` (`chat=http://127.0.0.1:9000/v1`), or an `Endpoint`. A `transport` that is handed in is
    used as it is and never closed. `overrides` are facts about the model that stand over the known ones
    (`profiles.read_overrides`). `stateful` lets a Responses upstream keep the conversation: steps then send
    `previous_response_id` and what is new (rule 78).
    """

    def __init__(
        self,
        where: str | Endpoint,
        *,
        model: str = "",
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        transport: Transport | None = None,
        overrides: Sequence[ProfileOverride] = (),
        stateful: bool = False,
        clock: Clock | None = None,
    ) -> None:
        endpoint = where if isinstance(where, Endpoint) else _read(where)
        changes = {
            **({} if api_key is None else {"api_key": api_key}),
            **({} if headers is None else {"headers": {**endpoint.headers, **headers}}),
        }
        self.endpoint = msgspec.structs.replace(endpoint, **changes) if changes else endpoint
        self.model = model
        self.overrides = tuple(overrides)
        self.clock: Clock = clock or SystemClock()
        #: What refusals teach, for every agent on this upstream.
        self.learnt = Learnt()
        self.stateful = stateful
        self._given = transport
        self._shared: _Shared | None = None
        if stateful and self.endpoint.wire is not Wire.RESPONSES:
            raise ConfigError(
                f"upstream {self.endpoint.name!r}: stateful=True needs the responses wire, not {self.endpoint.wire}; "
                "other wires keep no conversation"
            )

    def __repr__(self) -> str:
        return f"Upstream({self.endpoint.name!r}, {self.endpoint.wire!s}, model={self.model!r})"

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[Transport]:
        """Yield a transport for this event loop; what was opened here is closed when its last user leaves."""
        if self._given is not None:
            yield self._given
            return
        loop = asyncio.get_running_loop()
        shared = self._shared
        if shared is None or shared.loop is not loop:
            shared = self._shared = _Shared(loop, _open_transport())
        shared.users += 1
        try:
            yield shared.transport
        finally:
            shared.users -= 1
            if shared.users == 0:
                if self._shared is shared:
                    self._shared = None
                await shared.transport.close()


def _open_transport() -> Transport:
    from mustcall.upstream.http import HttpTransport  # noqa: PLC0415  aiohttp is loaded when something is sent

    return HttpTransport()


def _read(where: str) -> Endpoint:
    left, equals, url = where.partition("=")
    name, _, wire = left.rpartition(":")
    if not equals or wire not in list(Wire):
        words = ", ".join(Wire)
        raise ConfigError(f"the upstream {where!r} must be [name:]wire=URL with one of the wires {words}")
    return Endpoint(name=name or _name_of(url, where), wire=Wire(wire), base_url=url.rstrip("/"))


def _name_of(url: str, where: str) -> str:
    """Return the host, which reasoning state is tagged with; raise for what is no address."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"the upstream {where!r} has a URL that cannot be read: {error}") from None
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError("an upstream's URL must have no user, query or fragment; pass api_key or headers")
    if not parts.scheme or not (parts.netloc or parts.path):
        raise ConfigError(f"the upstream {where!r} needs a URL like chat=http://127.0.0.1:9000/v1")
    return parts.netloc or url
