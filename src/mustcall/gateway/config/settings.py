"""The gateway's configuration: a TOML file, the environment over it, flags over both. No file is needed."""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.limits import DEFAULTS, REASONS, GatewayLimits
from mustcall.dialects import register
from mustcall.dialects.own import DialectSettings, make_dialect
from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.config.advice import advice
from mustcall.gateway.config.budget_settings import BudgetSettings, PriceSettings, SessionBy, read_budget
from mustcall.gateway.config.environment import over, refuse_unknown, stated
from mustcall.gateway.config.probe_settings import ProbeSettings, Sourced, overrides_of, read_probe
from mustcall.gateway.config.upstream_settings import (
    NEEDED,
    UpstreamSettings,
    embedded_upstream,
    make_endpoint,
    spell_out,
    upstreams_from_flags,
)
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.policy.facts.checking import check_number
from mustcall.policy.facts.controls import Controls, Limits, check_limits
from mustcall.policy.facts.routing import Route, WireEndpoint
from mustcall.policy.facts.wording import Wording, check_wording
from mustcall.policy.failures.breaker import BreakerRule
from mustcall.policy.words.grounding import GroundingRule, check_rules
from mustcall.profiles import ProfileOverride, read_overrides
from mustcall.telemetry.console import LogLevel
from mustcall.telemetry.requests import LogFormat
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.variables import read_variable

__all__ = [
    "DEFAULT_FILE",
    "ServerSettings",
    "Settings",
    "config_file",
    "load_ledger",
    "load_measured",
    "load_settings",
    "settings_from_flags",
]

DEFAULT_FILE = "mustcall.toml"

#: The variable that holds the keys of callers itself, where `client_keys_env` names one that does.
CLIENT_KEYS = "MUSTCALL_CLIENT_KEYS"

#: What is said where no upstream is named.
NO_UPSTREAM = (
    "no upstream is configured: write one in mustcall.toml (`mustcall init` does), set "
    "MUSTCALL_UPSTREAM=chat=http://127.0.0.1:9000/v1, or pass that to `mustcall serve` as --upstream"
)


#: What an upstream is, of which the environment has no variable for all of them; limits have one.
_OWN = (*NEEDED, "use", "model", "api_key_env", "forward_key", "headers", "stateful")


#: The variables of the address, either of which may be set.
HOST_NAMES = ("MUSTCALL_HOST", "MUSTCALL_SERVER_HOST")
PORT_NAMES = ("MUSTCALL_PORT", "MUSTCALL_SERVER_PORT")

#: Who may read `/metrics`: whoever may call (`key`), everybody (`open`), nobody (`off`).
MetricsAccess = Literal["key", "open", "off"]


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server]`: where the gateway listens and what it lets in."""

    #: The address to listen on.
    host: str = "127.0.0.1"
    #: The port to listen on.
    port: int = 8484
    #: The largest request body, in bytes.
    max_body_bytes: int = 64 * 1024 * 1024
    #: Requests worked on at once; one more gets 503.
    max_concurrency: int = 1000
    #: Seconds one request may take in all, retries included, until its answer begins.
    request_timeout: float = 900.0
    #: Seconds that running requests get when the gateway is told to stop.
    shutdown_grace: float = 10.0
    #: Seconds of silence after which a held stream gets a sign of life; 0 for none.
    keepalive: float = 2.0
    #: Seconds without a first byte from the upstream after which a stream is begun with a sign of life; 0: never.
    first_sign: float = 10.0
    #: The environment variable that holds the keys callers must present, separated by commas.
    client_keys_env: str | None = None
    #: Origins of web pages that may call the gateway; none by default.
    cors_origins: tuple[str, ...] = ()
    #: A model that nobody serves, where every upstream has a model of its own: that one answers, or the request is
    #: refused.
    unknown_model: Literal["answer", "refuse"] = "answer"
    #: Who may read `/metrics`: whoever may call, everybody, or nobody.
    metrics: MetricsAccess = "key"
    #: Whether the page at `/ui` is served.
    ui: bool = True
    #: What the log says: `info` has a line for each request, `warning` only what went wrong.
    log_level: LogLevel = "info"
    #: `text` for people, `json` for programs; `auto` is text on a terminal.
    log_format: LogFormat = "auto"


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    server: ServerSettings = ServerSettings()
    upstream: tuple[UpstreamSettings, ...] = ()
    route: tuple[Route, ...] = ()
    contract: Controls = Controls()
    wording: Wording = Wording()
    ledger: LedgerSettings = LedgerSettings()
    grounding: tuple[GroundingRule, ...] = ()
    dialect: tuple[DialectSettings, ...] = ()
    profile: tuple[dict[str, Any], ...] = ()
    measured: tuple[dict[str, Any], ...] = ()
    probe: ProbeSettings = ProbeSettings()
    budget: BudgetSettings | None = None
    breaker: BreakerRule | None = None
    limits: GatewayLimits = DEFAULTS
    price: tuple[PriceSettings, ...] = ()


_LEDGER = "MUSTCALL_LEDGER_"

#: The settings that have a variable, by its prefix; `MUSTCALL_LEDGER_KEY` is the ledger's own.
_VARIABLES: Mapping[str, frozenset[str]] = {
    "MUSTCALL_SERVER_": frozenset(ServerSettings.__struct_fields__),
    "MUSTCALL_UPSTREAM_": frozenset(UpstreamSettings.__struct_fields__) - frozenset(_OWN),
    "MUSTCALL_CONTRACT_": frozenset(Controls.__struct_fields__) - {"limits", "session"},
    "MUSTCALL_LIMITS_": frozenset((*Limits.__struct_fields__, *GatewayLimits.__struct_fields__)),
    "MUSTCALL_WORDING_": frozenset(Wording.__struct_fields__),
    _LEDGER: frozenset((*LedgerSettings.__struct_fields__, "key")),
    "MUSTCALL_PROBE_": frozenset(ProbeSettings.__struct_fields__),
    "MUSTCALL_BUDGET_": frozenset(BudgetSettings.__struct_fields__),
    "MUSTCALL_BREAKER_": frozenset(BreakerRule.__struct_fields__),
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the gateway needs to know, checked."""

    server: ServerSettings
    endpoints: tuple[Endpoint, ...]
    routes: tuple[Route, ...] = ()
    client_keys: tuple[str, ...] = ()
    operator: OperatorSettings = OperatorSettings()
    #: Where state is kept; None for nowhere.
    ledger: LedgerSettings | None = None
    session_by: SessionBy = SessionBy.SESSION
    limits: GatewayLimits = DEFAULTS
    probe: ProbeSettings = ProbeSettings()
    #: What was measured, as the file and the files it names have it; the ledger may have more.
    measured: tuple[Sourced, ...] = ()
    #: What the person who starts it should know, a line each.
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Settings(server={self.server!r}, endpoints={self.endpoints!r}, routes={self.routes!r})"

    @property
    def doors(self) -> tuple[WireEndpoint, ...]:
        """The upstreams as routing sees them."""
        return tuple([WireEndpoint(endpoint.name, endpoint.wire, endpoint.model) for endpoint in self.endpoints])


def load_settings(
    file: Path | None = None,
    *,
    without_file: bool = False,
    upstream_flags: Sequence[str] = (),
    embedded: str = "",
    host: str | None = None,
    port: int | None = None,
    log_level: LogLevel | None = None,
    log_format: LogFormat | None = None,
    ledger: str | None = None,
    keep: str | None = None,
    key_env: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Read and check the configuration; raise `ConfigError` naming the place and the fix.

    Upstreams given as flags (or in `MUSTCALL_UPSTREAM`) replace those of the file, and its routes with them. Where none
    is named, the embedded model is the upstream: the one called `embedded`, else the default one. `key_env` names the
    variable with the key of upstreams given as shorthands, in place of their provider's own.
    """
    env = os.environ if environment is None else environment
    path = None if without_file else config_file(file, env)
    read = _read_file(path) if path is not None else _File()
    flags = list(upstream_flags) or env.get("MUSTCALL_UPSTREAM", "").split()
    upstreams, routes = read.upstream, read.route
    if flags:
        upstreams, routes = upstreams_from_flags(flags), ()
    else:
        upstreams = spell_out(upstreams, str(path or DEFAULT_FILE))
    notes: tuple[str, ...] = ()
    if not upstreams:
        upstreams, notes = embedded_upstream(embedded)
    server = over(read.server, "MUSTCALL_SERVER_", env, but=("host", "port"))
    named_keys = {key_env, server.client_keys_env, *(upstream.api_key_env for upstream in upstreams)}
    refuse_unknown(_VARIABLES, env, named_keys)
    changes: dict[str, object] = {}
    named_host, named_port = stated(HOST_NAMES, env), stated(PORT_NAMES, env)
    if host is not None or named_host is not None:
        changes["host"] = host if host is not None else named_host
    if port is not None:
        changes["port"] = port
    elif named_port is not None:
        changes["port"] = _port(named_port)
    changes |= {
        name: value for name, value in (("log_level", log_level), ("log_format", log_format)) if value is not None
    }
    if changes:
        server = msgspec.structs.replace(server, **changes)
    budget, session_by = read_budget(read.budget, read.breaker, read.price, env, str(path or DEFAULT_FILE))
    probe, measured = read_probe(read.probe, read.measured, env, path)
    settings = Settings(
        server=server,
        endpoints=tuple(
            make_endpoint(over(upstream, "MUSTCALL_UPSTREAM_", env, but=_OWN), env, key_env if flags else None)
            for upstream in upstreams
        ),
        routes=routes,
        client_keys=_client_keys(server, env),
        ledger=read.ledger.resolved(env, place=ledger, keep=keep),
        operator=msgspec.structs.replace(_operator(read, path, env, overrides_of(measured)), budget=budget),
        session_by=session_by,
        limits=over(read.limits, "MUSTCALL_LIMITS_", env),
        probe=probe,
        measured=measured,
        notes=notes,
    )
    _check(settings)
    return settings


def _operator(
    read: _File, path: Path | None, env: Mapping[str, str], measured: tuple[ProfileOverride, ...] = ()
) -> OperatorSettings:
    """Check what the file and the environment say about turns."""
    check_rules(read.grounding)
    wording = over(read.wording, "MUSTCALL_WORDING_", env)
    check_wording(wording)
    controls = over(read.contract, "MUSTCALL_CONTRACT_", env, but=("limits", "session"))
    controls = msgspec.structs.replace(controls, limits=over(controls.limits, "MUSTCALL_LIMITS_", env))
    for dialect in read.dialect:
        register(make_dialect(dialect))  # before the profiles, which may name it
    overrides = read_overrides(read.profile, str(path or DEFAULT_FILE))
    return OperatorSettings(rules=read.grounding, overrides=(*measured, *overrides), wording=wording, controls=controls)


def settings_from_flags(
    *flags: str,
    server: ServerSettings | None = None,
    operator: OperatorSettings | None = None,
    ledger: LedgerSettings | None = None,
    key_env: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Return settings made of upstream flags alone: no file, and no ledger unless one is given.

    Keys of shorthands are looked up in `environment`, which is empty unless one is given.
    """
    env: Mapping[str, str] = {} if environment is None else environment
    settings = Settings(
        ledger=ledger,
        server=server or ServerSettings(),
        operator=operator or OperatorSettings(),
        endpoints=tuple(make_endpoint(upstream, env, key_env) for upstream in upstreams_from_flags(flags)),
    )
    _check(settings)
    return settings


def load_ledger(
    file: Path | None = None, *, place: str | None = None, environment: Mapping[str, str] | None = None
) -> LedgerSettings:
    """Read what is said about the ledger alone, its place included (`off` too): no upstream and no key is needed."""
    env = os.environ if environment is None else environment
    path = config_file(file, env)
    read = _read_file(path).ledger if path is not None else LedgerSettings()
    refuse_unknown({_LEDGER: _VARIABLES[_LEDGER]}, env)
    said = over(read, _LEDGER, env, but=("place",))
    return msgspec.structs.replace(said, place=read.place_in(env, place))


def load_measured(file: Path | None = None, environment: Mapping[str, str] | None = None) -> tuple[Sourced, ...]:
    """Read the measured profiles of the file and of those it names: no upstream and no key is needed."""
    env = os.environ if environment is None else environment
    path = config_file(file, env)
    read = _read_file(path) if path is not None else _File()
    return read_probe(read.probe, read.measured, env, path)[1]


def configured_upstreams(
    file: Path | None = None, environment: Mapping[str, str] | None = None
) -> tuple[Path, tuple[str, ...]] | None:
    """Return the file that would be read and the upstreams it names; None where there is none, or none are named."""
    path = config_file(file, os.environ if environment is None else environment)
    if path is None:
        return None
    named = spell_out(_read_file(path).upstream, str(path))
    return (path, tuple(upstream.name for upstream in named)) if named else None


def config_file(file: Path | None, env: Mapping[str, str]) -> Path | None:
    """Return the file to read: the one that is named, else the default one if it is there."""
    name = env.get("MUSTCALL_CONFIG")
    if file is not None or name:
        return file or Path(name or "")
    return Path(DEFAULT_FILE) if Path(DEFAULT_FILE).is_file() else None


def _read_file(path: Path) -> _File:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
    try:
        return msgspec.convert(tomllib.loads(text), _File)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}{advice(str(error), _File)}") from None


def _port(text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"MUSTCALL_PORT must be a number, got {text!r}")
    return int(text)


def _client_keys(server: ServerSettings, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys callers must present, the environment's before the file's; a variable without one is refused."""
    if CLIENT_KEYS in env:
        keys = _split(env[CLIENT_KEYS])
        if not keys:
            raise ConfigError(
                f"server: the environment variable {CLIENT_KEYS} holds no key; separate several by commas, or unset it "
                "to let every caller in"
            )
        return keys
    name = server.client_keys_env
    if name is None:
        return ()
    none = "holds no key; separate several by commas"
    keys = _split(read_variable(name, "client_keys_env", env, "server", none))
    if not keys:
        raise ConfigError(f"server: the environment variable {name} (client_keys_env) {none}")
    return keys


def _split(text: str) -> tuple[str, ...]:
    return tuple(key.strip() for key in text.split(",") if key.strip())


#: An origin as browsers send it: scheme, host, a port that is not the scheme's own, and nothing behind them.
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/?#\s]+")


def _check(settings: Settings) -> None:
    server = settings.server
    for origin in server.cors_origins:
        if _ORIGIN.fullmatch(origin) is None:
            raise ConfigError(
                f"server: cors_origins has {origin!r}, which no browser sends; write scheme and host, like "
                "https://app.example, without a path or a slash at the end"
            )
    if not server.host.strip():
        raise ConfigError("server: host is empty; write 127.0.0.1, or 0.0.0.0 for every interface")
    if not 0 <= server.port <= 65535:
        raise ConfigError(f"server: port must be between 0 and 65535, got {server.port}")
    for field in ("max_body_bytes", "max_concurrency", "request_timeout"):
        check_number(f"server: {field}", getattr(server, field), above=0)
    for field in ("shutdown_grace", "keepalive", "first_sign"):
        check_number(f"server: {field}", getattr(server, field), least=0)
    check_limits(settings.operator.controls.limits, "contract.limits")
    for field, value in msgspec.structs.asdict(settings.limits).items():
        if isinstance(value, tuple):
            continue
        if "; 0: " in REASONS[field].bounds:  # 0 has a meaning of its own
            check_number(f"limits: {field}", value, least=0)
        else:
            check_number(f"limits: {field}", value, above=0)
    names = [endpoint.name for endpoint in settings.endpoints]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two upstreams are called {name!r}; give each a name of its own")
    if not names:
        raise ConfigError(NO_UPSTREAM)
    if settings.probe.seconds is not None and settings.ledger is None:
        raise ConfigError("probe: every needs a ledger, where measurements are kept; name one, or set every to 0")
    for name in settings.probe.upstreams:
        if name not in names:
            raise ConfigError(f"probe: upstreams names {name!r}, which is no upstream; there are: {', '.join(names)}")
    for route in settings.routes:
        if route.upstream not in names:
            known = ", ".join(names)
            raise ConfigError(
                f"route {route.model!r} goes to {route.upstream!r}, which is no upstream; there are: {known}"
            )
