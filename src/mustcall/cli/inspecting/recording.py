"""What `replay` and `minimise` have in common: which request is sent again, to whom, and under which name."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import click
import msgspec

from mustcall.cli.inspecting.tables import gateway_place_option, where_kept
from mustcall.cli.measuring.options import FILE, measured_settings, read_key
from mustcall.cli.setup.naming import UPSTREAM
from mustcall.core.errors import ConfigError, UnknownTurn
from mustcall.core.origin import Wire
from mustcall.gateway.config.settings import Settings
from mustcall.gateway.request_controls import take_controls
from mustcall.ledger import TurnTrace, open_ledger
from mustcall.policy.facts.routing import choose
from mustcall.replay import RecordedRequest, ReplaySubject, from_file, from_turn
from mustcall.replay.changes import SETTINGS, apply_changes
from mustcall.upstream.embedded.store import address_for
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.retry import SystemClock
from mustcall.upstream.schemes import SchemeTransport

__all__ = ["UNREACHABLE", "Given", "find_recorded", "find_turn", "open_given", "source_options"]

#: The exit code where the upstream could not be reached at all.
UNREACHABLE = 3


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about the request and its upstream."""

    source: str
    place: str | None
    wire: str | None
    settings: tuple[str, ...]
    file: Path | None
    to: str | None
    model: str | None
    key_env: str | None


def source_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add the argument and the options that say what is sent again, and to whom."""
    for option in (
        click.option("--key-env", metavar="NAME", help="The environment variable that holds the upstream's key."),
        click.option("--model", help="The model's name at the upstream.  [default: as it was routed]"),
        click.option("--to", type=UPSTREAM, help="Another upstream: ollama:qwen3, chat=http://127.0.0.1:9000/v1."),
        click.option(
            "--config", "file", type=FILE, help="The file to read.  [default: $MUSTCALL_CONFIG, else mustcall.toml]"
        ),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="NAME=VALUE[,…]",
            help=f"Change a setting of the request: {', '.join(SETTINGS)}.",
        ),
        click.option(
            "--wire",
            type=click.Choice([str(wire) for wire in Wire]),
            help="The wire a request file is written for.  [default: as its fields tell]",
        ),
        gateway_place_option,
        click.argument("source", metavar="ID|FILE"),
    ):
        command = option(command)
    return command


async def find_turn(place: str | None, name: str) -> TurnTrace:
    """Return a turn of the ledger; raise `UnknownTurn`."""
    async with open_ledger(place, make=False) as ledger:
        found = await ledger.get_turn(name)
        if found is None:
            where = ledger.store.place
            raise UnknownTurn(f"there is no turn {name!r} in the ledger at {where}; see `mustcall turns list`")
        return found


def find_recorded(given: Given) -> RecordedRequest:
    """Return the request that is meant, with its settings changed: a file of that name, else a turn of the ledger."""
    path = Path(given.source)
    if path.is_file() or path.suffix == ".json" or os.sep in given.source:
        try:
            contents = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        found = from_file(contents, given.source, Wire(given.wire) if given.wire else None)
    else:
        found = from_turn(asyncio.run(find_turn(where_kept(given.place, given.file), given.source)))
    changes = [one for text in given.settings for one in text.split(",") if one.strip()]
    return apply_changes(found, changes)


@asynccontextmanager
async def open_given(recorded: RecordedRequest, given: Given) -> AsyncGenerator[tuple[RecordedRequest, ReplaySubject]]:
    """Yield the request without mustcall's own extension, and whom to ask; close everything at the end."""
    settings = measured_settings(given.file, given.to, None, None, given.key_env)
    controls, body = take_controls(recorded.body, {}, settings.operator.controls)
    endpoint, model = _destination(recorded, given, settings)
    key = read_key(given.key_env)
    if key is not None:
        endpoint = msgspec.structs.replace(endpoint, api_key=key)
    transport = SchemeTransport()
    try:
        yield (
            msgspec.structs.replace(recorded, body=body),
            ReplaySubject(
                endpoint=endpoint,
                model=model,
                transport=transport,
                clock=SystemClock(),
                operator=settings.operator,
                controls=controls,
                patience=settings.server.request_timeout,
                limits=settings.limits,
            ),
        )
    finally:
        await transport.close()


def _destination(recorded: RecordedRequest, given: Given, settings: Settings) -> tuple[Endpoint, str]:
    """Return where the request goes, and the model's name there: as it went before, unless another one is named."""
    by_name = {endpoint.name: endpoint for endpoint in settings.endpoints}
    before = None if given.to else by_name.get(recorded.upstream)
    if before is not None:
        doors = [door for door in settings.doors if door.name == before.name]
        routes = [route for route in settings.routes if route.upstream == before.name]
        endpoint, model = before, choose(recorded.model, recorded.wire, routes, doors).model
    else:
        found = choose(recorded.model, recorded.wire, settings.routes, settings.doors)
        endpoint, model = by_name[found.upstream], found.model
    model = given.model or model
    return msgspec.structs.replace(endpoint, base_url=address_for(endpoint.base_url, model)), model
