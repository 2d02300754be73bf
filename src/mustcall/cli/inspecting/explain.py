"""`mustcall explain`: the plan for a request, offline: what would be sent on each rung, what would change and why.

It reads files and prints; what is done with a request is decided by the engine. No key is needed, as nothing is sent.
"""

import os
import sys
import tomllib
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from mustcall.cli.inspecting.tables import on_ledger
from mustcall.cli.printing import as_json as written
from mustcall.cli.printing import print_json, print_line
from mustcall.core.adaptation import Adaptation
from mustcall.core.errors import ConfigError, InvalidRequest
from mustcall.core.origin import JsonObject, Wire
from mustcall.engine.explaining import Explanation, RungBody, explain, guess_wire
from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.config.environment import Keyless
from mustcall.gateway.config.settings import DEFAULT_FILE, Settings, load_settings
from mustcall.gateway.connections.receiving import refuse_empty
from mustcall.gateway.request_controls import take_controls
from mustcall.gateway.state.measured_profiles import profiles_in
from mustcall.policy.facts.controls import Controls, OnUnmet, ToolControls
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.facts.routing import choose
from mustcall.policy.request.demand import DemandSource
from mustcall.policy.request.plan import RungKind
from mustcall.profiles import Fact, Observed, ProfileOverride, read_profile
from mustcall.upstream.endpoint import Endpoint
from mustcall.wire.registry import codec_for

__all__ = ["command"]

_WIRES = click.Choice([str(wire) for wire in Wire])

#: Longer strings, and what is nested deeper, are cut in what is printed for people.
_LONGEST = 240
_DEEPEST = 40

_ASKERS: dict[DemandSource, str] = {
    DemandSource.STEP_CAP: "the step cap",
    DemandSource.FORCE_TOOLS: "force_tools",
    DemandSource.CALLER: "the request's own choice",
    DemandSource.ANSWER_PHASE: "the answer phase",
    DemandSource.GROUNDING: "a grounding rule",
    DemandSource.DEFAULT: "nobody chose",
}

_MEANINGS: dict[RungKind, str] = {
    RungKind.PLAIN: "nothing is forced",
    RungKind.NATIVE: "the provider's own forced choice",
    RungKind.SOFT: "`auto` and a directive at the tail",
    RungKind.HARD: "the forced choice, with reasoning off for this one request",
    RungKind.SCHEMA: "the call as a JSON-schema answer",
    RungKind.GRAMMAR: "the call by the server's constrained decoding",
    RungKind.TEXT: "the tools as text, the call read from the text",
    RungKind.ANSWER: "an answer in text, nothing is offered",
}


@click.command(name="explain")
@click.argument("request", type=click.Path(dir_okay=False, allow_dash=True, path_type=str), default="-")
@click.option("--model", help="The model to plan for.  [default: the request's own]")
@click.option("--wire", type=_WIRES, help="The wire the request is written for.  [default: as its fields tell]")
@click.option("--to", "upstream_wire", type=_WIRES, help="The upstream's wire.  [default: the request's]")
@click.option("--base-url", default="", help="The upstream's address: facts depend on the endpoint.")
@click.option("-H", "--header", "headers", multiple=True, help="A header of the request, as NAME: VALUE.")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A configuration whose upstreams, profiles and rules apply.  [default: mustcall.toml if it is there]",
)
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A profile file of `mustcall probe` to plan with. May be repeated.",
)
@click.option("--ledger", metavar="PATH|URL", help="Plan with what was measured for all replicas, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON, with every body in full.")
def command(
    request: str,
    *,
    model: str | None,
    wire: str | None,
    upstream_wire: str | None,
    base_url: str,
    headers: tuple[str, ...],
    file: Path | None,
    profiles: tuple[Path, ...],
    ledger: str | None,
    as_json: bool,
) -> None:
    """Print what would be sent for REQUEST (a JSON file; standard input by default), without sending anything."""
    body = _read(request)
    refuse_empty(body)
    caller = Wire(wire) if wire else guess_wire(body)
    endpoint = None
    if upstream_wire or base_url:
        endpoint = Endpoint(name="upstream", wire=Wire(upstream_wire) if upstream_wire else caller, base_url=base_url)
    settings, routed = _settings(file)
    operator = settings.operator if settings is not None else OperatorSettings()
    controls, body = take_controls(body, dict(_header(text) for text in headers), operator.controls)
    operator = msgspec.structs.replace(
        operator, controls=controls, overrides=(*operator.overrides, *_measured(profiles, ledger))
    )
    asked = model or codec_for(caller).peek(body).model
    if endpoint is None and settings is not None and routed:
        destination = choose(asked, caller, settings.routes, settings.doors)
        endpoint = next(one for one in settings.endpoints if one.name == destination.upstream)
        asked = destination.model
    endpoint = endpoint or Endpoint(name="upstream", wire=caller, base_url="")
    try:
        explained = explain(body, caller, endpoint, asked, operator)
        if as_json:
            told = _as_json(explained) | {"settings": _set(explained.controls, endpoint)}
            print_json(told, indent=2)
            return
        lines = _lines(explained, _set(explained.controls, endpoint))
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    for line in lines:
        if isinstance(line, _Json):
            click.echo(line)
        else:
            print_line(line, hang=len(line) - len(line.lstrip()) + 4)


# --- reading ------------------------------------------------------------------------------------------------------


def _read(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror}") from None


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ConfigError(f"the header {text!r} must be NAME: VALUE")
    return name.strip().lower(), value.strip()


def _measured(files: tuple[Path, ...], ledger: str | None) -> list[ProfileOverride]:
    """Return what was measured, as these files and the ledger have it."""
    found = [read_profile(file).override(str(file)) for file in files]
    if ledger is not None:
        rows = on_ledger(ledger, lambda opened: opened.measured())
        found += [profile.override("ledger") for profile, _ in profiles_in(rows)]
    return found


def _settings(file: Path | None) -> tuple[Settings | None, bool]:
    """Return the configuration if there is one, and whether it has upstreams; explaining needs neither."""
    named = os.environ.get("MUSTCALL_CONFIG")
    path = file or Path(named or DEFAULT_FILE)
    flags = "MUSTCALL_UPSTREAM" in os.environ
    if file is None and not named and not path.is_file():
        return (load_settings(environment=Keyless(os.environ)), True) if flags else (None, False)
    if flags or _names_upstreams(path):
        return load_settings(path, environment=Keyless(os.environ)), True
    return load_settings(
        path, upstream_flags=["chat=http://upstream.invalid/v1"], environment=Keyless(os.environ)
    ), False


def _names_upstreams(path: Path) -> bool:
    try:
        return "upstream" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True  # whoever loads it says what is wrong with it


# --- for programs -------------------------------------------------------------------------------------------------


def _as_json(explained: Explanation) -> JsonObject:
    return {
        "wire": explained.wire,
        "upstream_wire": explained.upstream_wire,
        "upstream": explained.upstream,
        "model": explained.model,
        "profile": explained.profile.name,
        "facts": {
            name: {"value": fact.value, "observed": fact.observed, "note": fact.note, "source": fact.source}
            for name, fact in explained.facts.items()
        },
        "protocol": explained.plan.protocol,
        "demand": explained.demanded,
        "source": explained.plan.demand.source,
        "reasoning": explained.plan.reasoning,
        "notes": explained.plan.demand.notes,
        "mended": explained.mended,
        "rungs": [
            {
                "rung": rung.rung.kind,
                "firmness": rung.rung.firmness,
                "untouched": rung.untouched,
                "adaptations": rung.adaptations,
                "body": rung.body,
            }
            for rung in explained.rungs
        ],
        "unreached": [rung.kind for rung in explained.unreached],
    }


def _set(controls: Controls, endpoint: Endpoint) -> dict[str, JsonObject]:
    """Return the limits in force that no rung shows, by their place in the configuration (rule 120)."""
    wait = endpoint.backoff
    tools = {f"contract.tools.{name}": msgspec.structs.asdict(each) for name, each in controls.tools.items()}
    return {
        "upstream": {
            "retries": wait.retries,
            "backoff_base": wait.base,
            "backoff_cap": wait.cap,
            "longest_wait": wait.longest_wait,
        },
        "contract": {"hops": controls.hops, "result_cap": controls.result_cap},
        "contract.limits": msgspec.structs.asdict(controls.limits),
        **tools,
    }


# --- for people ---------------------------------------------------------------------------------------------------


class _Json(str):
    """A line that holds JSON: it is printed whole, because a line break inside a string would make it invalid."""

    __slots__ = ()


def _lines(explained: Explanation, settings: dict[str, JsonObject]) -> list[str]:
    plan, reasoning = explained.plan, "on" if explained.plan.reasoning else "off"
    wires = f"{explained.wire} in, {explained.upstream_wire} out"
    demand = f"{explained.demanded} ({_ASKERS[plan.demand.source]}); reasoning counts as {reasoning}"
    if plan.protocol is Protocol.OFF:
        demand = "none is kept: everything passes through"
    lines = [
        f"model     {explained.model} (profile {explained.profile.name}); {wires}",
        f"protocol  {plan.protocol}",
        f"demand    {demand}",
        *(f"          {_adaptation(note)}" for note in plan.demand.notes),
    ]
    lines += _section("mended before anything is sent", map(_adaptation, explained.mended))
    same_wire = explained.wire is explained.upstream_wire
    before, than = (explained.given, "the request") if same_wire else (None, "")
    for number, rung in enumerate(explained.rungs, 1):
        lines += _rung_lines(number, rung, before, than)
        before, than = rung.body, f"attempt {number}"
    lines += ["", *_ending(explained)]
    lines += _section("set, other than by default", _changed(settings))
    if not explained.facts:
        return [*lines, "", "nothing is known of this model: it is asked on the safe side"]
    return lines + _section("known of this model", (_fact(name, fact) for name, fact in explained.facts.items()))


def _section(title: str, entries: Iterable[str]) -> list[str]:
    shown = [f"  {entry}" for entry in entries]
    return ["", f"{title}:", *shown] if shown else []


def _changed(settings: dict[str, JsonObject]) -> Iterator[str]:
    """Yield the settings that are not what they are without any configuration."""
    usual = _set(Controls(), Endpoint(name="", wire=Wire.CHAT, base_url=""))
    tool = msgspec.structs.asdict(ToolControls())
    for place, said in settings.items():
        for name, value in said.items():
            if value != usual.get(place, tool)[name]:
                yield f"{place}.{name} = {_compact(value)}"


def _fact(name: str, fact: Fact) -> str:
    source = f", {fact.source}" if fact.observed is Observed.PROBED else ""
    return f"{name} = {_compact(fact.value)}  ({fact.observed}{': ' + fact.note if fact.note else ''}{source})"


def _adaptation(entry: Adaptation) -> str:
    return f"{entry.kind} {entry.subject}{': ' + entry.detail if entry.detail else ''}"


def _rung_lines(number: int, rung: RungBody, before: JsonObject | None, than: str) -> list[str]:
    when = "" if number == 1 else ", if the call is still missing"
    lines = ["", f"attempt {number}{when}: {rung.rung.kind} ({_MEANINGS[rung.rung.kind]})"]
    lines += [f"  {_adaptation(entry)}" for entry in rung.adaptations]
    if rung.untouched:
        return [*lines, "  the request as it is, byte for byte"]
    if before is None:
        body = written(_cut(rung.body), indent=2)
        return [*lines, "  sent:", *(_Json(f"    {line}") for line in body.split("\n"))]
    changes = [_Json(f"    {line}") for line in _changes(before, rung.body)]
    return [*lines, f"  sent: as in {than}, but" if changes else f"  sent: as in {than}", *changes]


def _ending(explained: Explanation) -> list[str]:
    limits = explained.controls.limits
    if explained.plan.protocol is Protocol.OFF:
        return ["replies pass through as they come"]
    lines: list[str] = []
    if explained.unreached:
        kinds = ", ".join(str(rung.kind) for rung in explained.unreached)
        lines.append(f"not reached with extra_calls = {limits.extra_calls}: {kinds}")
    if explained.plan.demand.forced:
        answers = explained.controls.on_unmet is OnUnmet.ANSWER
        spent = "the reply as it is" if answers else "a force_unmet error"
        lines.append(f"then {spent} (on_unmet = {explained.controls.on_unmet})")
    return [
        *lines,
        f"every reply is judged (docs/remedies.md); at most {limits.extra_calls} extra upstream calls are made in all",
    ]


def _changes(before: JsonObject, after: JsonObject) -> Iterator[str]:
    """Tell one body from another, field by field: `+` is new, `~` another value, `-` gone."""
    for name, value in after.items():
        old = before.get(name)
        if name not in before:
            yield f"+ {name}: {_compact(value)}"
        elif old == value:
            continue
        elif isinstance(old, list) and isinstance(value, list):
            yield f"~ {name}:"
            yield from _list_changes(cast("list[Any]", old), cast("list[Any]", value))  # JSON knows no item type
        else:
            yield f"~ {name}: {_compact(value)}"
    yield from (f"- {name}" for name in before if name not in after)


def _list_changes(old: list[Any], new: list[Any]) -> Iterator[str]:
    """Tell one list from another, item by item."""
    was, now = ([msgspec.json.encode(item) for item in items] for items in (old, new))
    for tag, first, last, start, end in SequenceMatcher(None, was, now, autojunk=False).get_opcodes():
        if tag == "equal":
            yield f"    ({last - first} as before)"
            continue
        yield from (f"  - {_compact(item)}" for item in old[first:last])
        yield from (f"  + {_compact(item)}" for item in new[start:end])


def _compact(value: object) -> str:
    return written(_cut(value))


def _cut(value: object, depth: int = 0) -> object:
    """Return a value with its long strings and deepest parts cut: a plan is read, and images are not."""
    match value:
        case str() if len(value) > _LONGEST:
            return f"{value[:_LONGEST]}… ({len(value):,} characters)"
        case list() | dict() if depth > _DEEPEST:
            return "…"
        case list():
            return [_cut(item, depth + 1) for item in cast("list[object]", value)]  # JSON knows no item type
        case dict():
            return {name: _cut(item, depth + 1) for name, item in cast("JsonObject", value).items()}
        case _:
            return value
