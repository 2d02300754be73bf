"""What commands offer where no upstream is named: servers that run here, providers with a key, the embedded model."""

import asyncio
import os
import re

import click
import msgspec

from mustcall.core.errors import MustcallError
from mustcall.gateway.config.first_config import plan_upstreams
from mustcall.upstream.discovering import FoundServer, discover, proxied, servers_at
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.http import HttpTransport
from mustcall.upstream.listing import ask_models
from mustcall.upstream.providers import EMBEDDED, PROVIDERS

__all__ = ["PLACEHOLDER", "REPLACE", "Offer", "choose_offer", "find_offers", "only_listed", "read_ports"]

_MOST_MODELS = 8
#: What stands in lines to copy where the model's name is not known, and what is said of it.
PLACEHOLDER = "MODEL"
REPLACE = f"replace {PLACEHOLDER} by the model's name"
#: Seconds that a server has to list its models where that only makes lines to copy better.
_LIST_SECONDS = 1.0
#: Names that mean nothing to a shell: they come from a server and stand in lines that people copy.
_HARMLESS = re.compile(r"[\w./:@+-]{1,200}", re.ASCII)


class Offer(msgspec.Struct, frozen=True):
    """Something to choose: its address, how it is shown, and the models it is known to have."""

    address: str
    shown: str
    models: tuple[str, ...] = ()
    #: Whether it is a server that answered just now.
    is_running: bool = False


def read_ports(_ctx: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
    """Read ports, separated by commas."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all(word.isascii() and word.isdecimal() and 0 < int(word) < 65536 for word in words):
        raise click.BadParameter(f"ports are numbers from 1 to 65535, separated by commas, got {text!r}")
    return tuple(dict.fromkeys(map(int, words)))


def find_offers(ports: tuple[int, ...]) -> list[Offer]:
    """Return what can be chosen, the best first: servers that run here, providers with a key, the embedded model."""
    click.echo(f"looking for model servers on 127.0.0.1, ports {', '.join(map(str, ports)) or 'none'}", err=True)
    if proxied():
        click.echo(
            "note: HTTP_PROXY is set, also for this machine, so none can be found; set NO_PROXY=127.0.0.1", err=True
        )
    offers = [_server(found) for found in asyncio.run(_find(ports))]
    offers += [
        Offer(f"{provider.name}:", f"{provider.title} ({provider.key_env} is set)")
        for provider in PROVIDERS.values()
        if provider.needs_key and os.environ.get(provider.key_env or "", "").strip()
    ]
    return [*offers, Offer(f"{EMBEDDED.name}:", f"{EMBEDDED.title} (no key, no network)")]


async def _find(ports: tuple[int, ...]) -> tuple[FoundServer, ...]:
    transport = HttpTransport()
    try:
        return await discover(transport, servers_at(ports))
    finally:
        await transport.close()


def _server(found: FoundServer) -> Offer:
    provider = found.provider
    usual = PROVIDERS.get(provider.name)
    at_home = usual is not None and usual.base_url == provider.base_url
    address = f"{provider.name}:" if at_home else f"{provider.name}:{provider.wire}={provider.base_url}"
    names = ", ".join(found.models[:_MOST_MODELS]) + (", …" if len(found.models) > _MOST_MODELS else "")
    about = "wants a key" if found.wants_key else names or "no models yet"
    return Offer(address, f"{provider.title} at {provider.base_url} ({about})", found.models, is_running=True)


def choose_offer(offers: list[Offer]) -> Offer:
    """Let somebody choose: a number, a provider or an address."""
    for number, offer in enumerate(offers, 1):
        click.echo(f"  {number}  {offer.shown}")
    while True:
        said = click.prompt("Which upstream? A number, a provider (openai:gpt-5), or a URL", default="1").strip()
        if said.isascii() and said.isdecimal() and 1 <= int(said) <= len(offers):
            return offers[int(said) - 1]
        address = f"chat={said}" if said.startswith(("http://", "https://")) else said
        try:
            plan_upstreams((address,), os.environ)
        except MustcallError as error:
            click.echo(f"  {error.message}")
        else:
            return Offer(address, address)


def only_listed(endpoint: Endpoint) -> str:
    """Return the one model that a server lists; empty where it lists several, or does not answer at once."""
    try:
        models = asyncio.run(_listed(endpoint))
    except MustcallError:
        return ""
    return models[0] if len(models) == 1 and _HARMLESS.fullmatch(models[0]) else ""


async def _listed(endpoint: Endpoint) -> tuple[str, ...]:
    transport = HttpTransport()
    try:
        return (await ask_models(endpoint, transport, seconds=_LIST_SECONDS)).models or ()
    finally:
        await transport.close()
