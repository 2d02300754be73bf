"""Finds model servers on this machine: the usual ports are asked for their models, all at once, for a moment.

Only 127.0.0.1 is asked, without any key. What does not answer like a model server is not one.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from mustcall.core.errors import MustcallError
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.http import proxy_for
from mustcall.upstream.listing import Listing, ask_models
from mustcall.upstream.providers import PROVIDERS, Provider, local_providers
from mustcall.upstream.seam import Timeouts, Transport

__all__ = ["WAIT", "FoundServer", "discover", "proxied", "servers_at"]

#: Seconds a port is given: a server on this machine answers in milliseconds, a busy one in a second.
WAIT = 1.5

#: What servers call themselves in their lists of models, where the port says too little.
_OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp", "library": "ollama"}
#: A header of our own gateway, which is no upstream of itself.
_OWN = "x-mustcall-request-id"


class FoundServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server that answered. `models` is empty where it wants a key before it lists them."""

    provider: Provider
    models: tuple[str, ...] = ()
    wants_key: bool = False


async def discover(
    transport: Transport, providers: Iterable[Provider], *, seconds: float = WAIT
) -> tuple[FoundServer, ...]:
    """Return the servers that answer at these providers' addresses, in the same order."""
    found = await asyncio.gather(*(_ask(provider, transport, seconds) for provider in providers))
    return tuple(server for server in found if server is not None)


def servers_at(ports: Iterable[int]) -> tuple[Provider, ...]:
    """Return whom to look for at these ports: who is usual there, else a server of any kind."""
    usual = {provider.port: provider for provider in local_providers()}
    return tuple(usual.get(port) or _any_server(port) for port in ports)


def _any_server(port: int) -> Provider:
    return Provider(name="server", title="a model server", base_url=f"http://127.0.0.1:{port}/v1")


def proxied() -> bool:
    """Tell whether the environment sends even calls to this machine through a proxy, so that no server can be found."""
    return proxy_for("http://127.0.0.1:8000/v1") is not None


async def _ask(provider: Provider, transport: Transport, seconds: float) -> FoundServer | None:
    if proxy_for(provider.base_url) is not None:
        return None
    endpoint = Endpoint(
        name=provider.name,
        wire=provider.wire,
        base_url=provider.base_url,
        forward_key=False,
        timeouts=Timeouts(connect=seconds, read=seconds, idle=seconds),
    )
    try:
        listing = await ask_models(endpoint, transport, seconds=seconds)
    except MustcallError:
        return None
    if _OWN in listing.headers:
        return None
    if listing.status in (401, 403):
        return FoundServer(provider=provider, wants_key=True)
    return None if listing.models is None else FoundServer(provider=_named(provider, listing), models=listing.models)


def _named(provider: Provider, listing: Listing) -> Provider:
    """Return who answered: what the server calls itself, at the address where it was found."""
    known = next((PROVIDERS[_OWNERS[owner]] for owner in sorted(listing.owners) if owner in _OWNERS), provider)
    return msgspec.structs.replace(known, base_url=provider.base_url)
