"""`mustcall config check`: reads the configuration as `serve` would and says what it found."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import click
import msgspec

from mustcall.cli.groups import Group
from mustcall.cli.printing import json_option, print_json, print_line
from mustcall.core.limits import DEFAULTS
from mustcall.gateway.config.budget_settings import describe_budget
from mustcall.gateway.config.settings import ServerSettings, Settings, load_settings
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.ledger import shown_place
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.wording import Wording
from mustcall.policy.failures.backoff import Backoff
from mustcall.upstream.embedded.store import is_embedded
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.seam import Timeouts

__all__ = ["command"]


@click.group(name="config", cls=Group)
def command() -> None:
    """Check the configuration."""


@command.command(short_help="Say what the gateway would do.")
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@json_option
def check(file: Path | None, *, as_json: bool) -> None:
    """Read FILE (default: mustcall.toml) and the environment, and say what the gateway would do.

    Exits with 2 and one line naming the place and the fix if the configuration cannot be used.
    """
    lines = list(_lines(load_settings(file)))
    if as_json:
        print_json({"ok": True, "settings": [{"about": about, "says": says} for about, says in lines]})
        return
    for about, says in lines:
        print_line(f"{about:<13}{says}", hang=13)
    click.echo("ok")


def _lines(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield what the configuration says, by what it is about."""
    server = settings.server
    yield "listens on", f"{server.host}:{server.port}"
    yield "client keys", f"{f'{len(settings.client_keys)} accepted' if settings.client_keys else 'none wanted'}"
    for endpoint in settings.endpoints:
        forwarded = endpoint.forward_key and not settings.client_keys  # a key that opens the gateway stays in it
        embedded = is_embedded(endpoint.base_url)  # no request leaves the process, so no key does
        key = "no key" if embedded else "own key" if endpoint.api_key else "caller's key" if forwarded else "no key"
        model = f", model {endpoint.model}" if endpoint.model else ""
        yield "upstream", f"{endpoint.name}: {endpoint.wire} at {endpoint.base_url} ({key}{model})"
        for name, value in _waits(endpoint.backoff):
            yield "upstream", f"{endpoint.name}: {name} = {value:g}"
        for name, value in _changed(endpoint.timeouts, Timeouts()):
            yield "upstream", f"{endpoint.name}: {name}_timeout = {value}"
    for line in settings.notes:
        yield "note", line
    yield "ledger", f"{shown_place(settings.ledger.place or '') if settings.ledger is not None else 'off'}"
    if settings.ledger is not None:
        for name, value in _changed(settings.ledger, LedgerSettings(), but=("place",)):
            yield "ledger", f"{name} = {value}"
    for route in settings.routes:
        renamed = f" as {route.send_as}" if route.send_as else ""
        yield "route", f"{route.model} -> {route.upstream}{renamed}"
    if not settings.routes:
        for line in _unrouted(settings.endpoints):
            yield "route", line
    for about, given, usual in (
        ("server", server, ServerSettings()),
        ("limits", settings.limits, DEFAULTS),
        ("contract", settings.operator.controls, Controls()),
        ("wording", settings.operator.wording, Wording()),
    ):
        for name, value in _changed(given, usual, but=("host", "port")):
            yield about, f"{name} = {value}"
    yield from _rules(settings)
    for one in settings.measured:
        about = f"{one.profile.model} at {one.profile.endpoint} ({one.profile.wire})"
        for fact in one.profile.facts:
            value = msgspec.json.encode(fact.value).decode()
            yield ("measured", f"{about}: {fact.field} = {value} (measured {fact.measured}, {one.source})")
    if settings.probe.seconds is not None:
        most = f"at most {settings.probe.max_requests} requests and ${settings.probe.max_usd:g} for each model"
        yield "probe", f"every {settings.probe.every}, {most}"
    budget = settings.operator.budget
    if budget is not None:
        for line in describe_budget(budget, settings.session_by):
            yield "budget", line
        rule = budget.breaker
        if rule is not None and rule.failures:
            yield "breaker", f"{rule.failures} failures in a row, then {rule.cool_down:g} s without calls"


def _waits(backoff: Backoff) -> Iterator[tuple[str, float]]:
    """Yield what is not as usual about retries, by the names in the configuration."""
    names = {"retries": "retries", "base": "backoff_base", "cap": "backoff_cap", "longest_wait": "longest_wait"}
    for field, name in names.items():
        value: float = getattr(backoff, field)
        if value != getattr(Backoff(), field):
            yield name, value


def _unrouted(endpoints: Sequence[Endpoint]) -> Iterator[str]:
    """Yield where models go without routes."""
    own = [endpoint for endpoint in endpoints if endpoint.model]
    yield from (f"{endpoint.model} -> {endpoint.name}" for endpoint in own)
    if len(own) < len(endpoints):
        yield "any other model, under its own name" if own else "every model, under its own name"
    elif len(own) == 1:
        yield f"any other model -> {own[0].name} as {own[0].model}"
    else:
        yield "any other model, as the model of the first upstream on the caller's wire"


def _changed(
    given: msgspec.Struct, usual: msgspec.Struct, but: Collection[str] = (), prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield the settings that are not as they would be without any; those within another behind its name."""
    for name in given.__struct_fields__:
        value, default = getattr(given, name), getattr(usual, name)
        if value == default or name in but:
            continue
        if isinstance(value, msgspec.Struct) and isinstance(default, msgspec.Struct):
            yield from _changed(value, default, prefix=f"{prefix}{name}.")
        else:
            yield prefix + name, msgspec.json.encode(value).decode()


def _rules(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the grounding rules and the profiles that the operator wrote."""
    for rule in settings.operator.rules:
        signs = ", ".join(
            [*map(str, [rule.triggers] if isinstance(rule.triggers, str) else rule.triggers), *rule.signs]
        )
        yield "grounding", f"{rule.name}: {rule.tool} for {signs}"
    for one in settings.operator.overrides:
        patterns = [pattern.text for pattern in (*one.models, *one.endpoints, *one.upstreams)]
        whose = ", ".join([*patterns, *map(str, one.wires)]) or "every model"
        facts = ", ".join(f"{name} = {msgspec.json.encode(fact.value).decode()}" for name, fact in one.facts.items())
        yield "profile", f"{whose}: {facts}"
