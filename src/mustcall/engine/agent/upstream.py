"""An upstream as a library user has it: where the model is, and connections that live no longer than their users.

It decides nothing about turns; it hands out what turns run on.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.memo import Caches
from mustcall.core.origin import Wire
from mustcall.engine.sharing import Shared
from mustcall.engine.spending.accounts import MemoryBreakers
from mustcall.engine.spending.metering import Breakers
from mustcall.profiles import Learnt, MeasuredProfile, ProfileOverride, read_profile
from mustcall.upstream.address import read_address
from mustcall.upstream.embedded.store import named_address
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.providers import EMBEDDED, find_key, server_name
from mustcall.upstream.retry import Clock, SystemClock
from mustcall.upstream.seam import Transport
from mustcall.wire.registry import CODECS

__all__ = ["Upstream"]

#: What the model in this process is asked for: it answers to any name.
EMBEDDED_MODEL = "local"


class Upstream:
    """An endpoint and a model.

    `where` is one of these:

    - the shorthand of a provider (`openai:gpt-5`, `ollama:qwen3`); the key is `api_key`, or is read from the provider's
      usual variable
    - `[name:]wire=URL[#model]` (`chat=http://127.0.0.1:9000/v1#qwen3`)
    - `embedded:` for the model in this process
    - an `Endpoint`

    `model` overrides the model in `where`. A `transport` that is passed in is never closed. `overrides` are facts about
    the model that override the known ones (`profiles.read_overrides`). `profile` is the result of `mustcall probe`: a
    profile file, or its value. With `stateful` a Responses upstream stores the conversation, and steps send
    `previous_response_id` and the new messages (rule 78).

    Raise `ConfigError` for an unknown provider or wire, or a missing key.
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
        profile: str | Path | MeasuredProfile | None = None,
        stateful: bool = False,
        clock: Clock | None = None,
    ) -> None:
        endpoint, named = (
            (where, where.model) if isinstance(where, Endpoint) else _read(where, api_key, own=transport is not None)
        )
        changes = {
            **({} if api_key is None else {"api_key": api_key}),
            **({} if headers is None else {"headers": {**endpoint.headers, **headers}}),
        }
        self.endpoint = msgspec.structs.replace(endpoint, **changes) if changes else endpoint
        self.model = model or named
        self.overrides = (*_measured(profile), *overrides)
        self.clock: Clock = clock or SystemClock()
        #: What refusals teach, for every agent on this upstream.
        self.learnt = Learnt()
        #: What is kept of the runs on it: an agent's tools are compiled once.
        self.caches = Caches()
        #: Whether it keeps failing, for every agent whose budget has a breaker.
        self.breakers: Breakers = MemoryBreakers(self.clock)
        self.stateful = stateful
        self._given = transport
        self._connections = Shared(self._connect)
        if stateful and self.endpoint.wire is not Wire.RESPONSES:
            raise ConfigError(
                f"upstream {self.endpoint.name!r}: stateful=True needs the responses wire, not {self.endpoint.wire}; "
                "other wires keep no conversation"
            )

    def __repr__(self) -> str:
        return f"Upstream({self.endpoint.name!r}, {self.endpoint.wire!s}, model={self.model!r})"

    def connected(self) -> AbstractAsyncContextManager[Transport]:
        """Return the connections of this event loop, for use with `async with`."""
        return self._connections.use()

    async def _connect(self, stack: AsyncExitStack) -> Transport:
        if self._given is not None:
            return self._given
        transport = _open_transport()
        stack.push_async_callback(transport.close)
        return transport


def _measured(profile: str | Path | MeasuredProfile | None) -> tuple[ProfileOverride, ...]:
    """Return the facts of a profile file, or of its value."""
    if profile is None:
        return ()
    if isinstance(profile, MeasuredProfile):
        return (profile.override(),)
    return (read_profile(Path(profile)).override(str(profile)),)


def _open_transport() -> Transport:
    from mustcall.upstream.schemes import SchemeTransport  # noqa: PLC0415  sockets and TLS are loaded when something is sent

    return SchemeTransport()


def _read(where: str, api_key: str | None, *, own: bool) -> tuple[Endpoint, str]:
    """Return the endpoint and the model an address names; the model is empty where it names none.

    With a transport of the caller's `own` any kind of URL will do.
    """
    address = read_address(where)
    provider, url = address.provider, named_address(address.base_url)
    host = _host_of(url, where, own=own)
    if provider is None:
        name = address.name or host
        server = server_name(None, name)
        return Endpoint(name=name, wire=address.wire, base_url=url.rstrip("/"), server=server), address.model
    key = find_key(provider, f"upstream {where!r}", os.environ) if api_key is None else api_key
    model = address.model or (EMBEDDED_MODEL if provider is EMBEDDED else "")
    return Endpoint(name=provider.name, wire=provider.wire, base_url=url, api_key=key, server=provider.name), model


def _host_of(url: str, where: str, *, own: bool) -> str:
    """Return the host, which reasoning state is tagged with; raise for what is no address."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"the upstream {where!r} has a URL that cannot be read: {error}") from None
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError("an upstream's URL must have no user, query or fragment; pass api_key or headers")
    known = parts.hostname if parts.scheme in ("http", "https") else url.startswith(EMBEDDED.base_url)
    if not known and not (own and parts.scheme and (parts.netloc or parts.path)):
        raise ConfigError(f"the upstream {where!r} needs a URL like chat=http://127.0.0.1:9000/v1")
    for codec in CODECS.values():
        if parts.path.rstrip("/").endswith(codec.path):
            raise ConfigError(f"the upstream {where!r} must end before {codec.path}, which is added")
    return parts.netloc or url
