"""The gateway's configuration: a TOML file, the environment over it, flags over both. No file is needed."""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.limits import DEFAULTS, REASONS, GatewayLimits
from mustcall.core.origin import Wire
from mustcall.dialects import register
from mustcall.dialects.own import DialectSettings, make_dialect
from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.config.advice import advice
from mustcall.gateway.config.budget_settings import BudgetSettings, PriceSettings, SessionBy, read_budget
from mustcall.gateway.config.environment import over
from mustcall.gateway.config.probe_settings import ProbeSettings, Sourced, overrides_of, read_probe
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.routing import Route, WireEndpoint
from mustcall.policy.facts.wording import Wording, check_wording
from mustcall.policy.failures.backoff import Backoff
from mustcall.policy.failures.breaker import BreakerRule
from mustcall.policy.words.grounding import GroundingRule, check_rules
from mustcall.profiles import ProfileOverride, read_overrides
from mustcall.telemetry.console import LogLevel
from mustcall.telemetry.requests import LogFormat
from mustcall.upstream.address import read_address
from mustcall.upstream.embedded.engine import engine_problem
from mustcall.upstream.embedded.store import SCHEME, locate, named_address, stand_in_note, weights_without_name
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.providers import find_key
from mustcall.upstream.seam import Timeouts
from mustcall.wire.registry import CODECS

__all__ = [
    "DEFAULT_FILE",
    "ServerSettings",
    "Settings",
    "config_file",
    "load_ledger",
    "load_measured",
    "load_settings",
    "parse_upstream_flag",
    "settings_from_flags",
]

DEFAULT_FILE = "mustcall.toml"

#: What is said where no upstream is named.
NO_UPSTREAM = (
    "no upstream is configured: write one in mustcall.toml (`mustcall init` does), set "
    "MUSTCALL_UPSTREAM=chat=http://127.0.0.1:9000/v1, or pass that to `mustcall serve` as --upstream"
)

#: What is said where the embedded model, the upstream nobody has to name, cannot be used.
ANOTHER_UPSTREAM = (
    "Or name an upstream of your own: --upstream chat=http://127.0.0.1:9000/v1, the same in MUSTCALL_UPSTREAM, or a "
    "mustcall.toml"
)

#: What an upstream cannot be without.
_NEEDED = ("name", "wire", "base_url")

#: What an upstream is, of which the environment has no variable for all of them; limits have one.
_OWN = (*_NEEDED, "use", "model", "api_key_env", "forward_key", "headers", "stateful")

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


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


class UpstreamSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[upstream]]`: one endpoint. `use` names a provider, and what it says need not be said again."""

    #: A provider, and a model if one is to be asked for whatever callers name: "openai:gpt-5".
    use: str = ""
    #: What the upstream is called in routes, logs and `NAME/model`; the provider's or the wire's name by default.
    name: str = ""
    #: `chat`, `responses` or `messages`.
    wire: Wire | None = None
    #: Its address up to and including the version, as in `https://api.openai.com/v1`.
    base_url: str = ""
    #: The model every request is for; empty: the one the caller names.
    model: str = ""
    #: The environment variable with its key. Without it the caller's own key is forwarded.
    api_key_env: str | None = None
    #: Whether the caller's key is forwarded where `api_key_env` is not set.
    forward_key: bool = True
    #: Headers sent with every request.
    headers: dict[str, str] = {}
    #: Seconds until a connection is made.
    connect_timeout: float = Timeouts().connect
    #: Seconds until the first byte of a reply.
    read_timeout: float = Timeouts().read
    #: Seconds between two pieces of a reply.
    idle_timeout: float = Timeouts().idle
    #: Retries after 429, 5xx, timeouts and resets, before anything has reached the caller.
    retries: int = Backoff().retries
    #: Seconds before the first retry, doubled for each that follows, at most `backoff_cap`.
    backoff_base: float = Backoff().base
    backoff_cap: float = Backoff().cap
    #: Seconds of a Retry-After that are waited here; a longer one is left to the caller.
    longest_wait: float = Backoff().longest_wait
    #: The limit where the wire demands one and the caller gave none.
    default_max_tokens: int = 8192
    #: The most that a caller of another wire may ask for.
    max_output_tokens: int | None = None
    #: For the wire responses: whether it keeps responses itself. If not, the gateway keeps them.
    stateful: bool = True


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
    path = config_file(file, env)
    read = _read_file(path) if path is not None else _File()
    flags = list(upstream_flags) or env.get("MUSTCALL_UPSTREAM", "").split()
    upstreams, routes = read.upstream, read.route
    if flags:
        upstreams, routes = _from_flags(flags), ()
    else:
        upstreams = _spelt_out(upstreams, str(path or DEFAULT_FILE))
    notes: tuple[str, ...] = ()
    if not upstreams:
        upstreams, notes = _embedded_upstream(embedded)
    server = over(read.server, "MUSTCALL_SERVER_", env, but=("host", "port"))
    changes: dict[str, object] = {}
    if host is not None or "MUSTCALL_HOST" in env:
        changes["host"] = host if host is not None else env["MUSTCALL_HOST"]
    if port is not None:
        changes["port"] = port
    elif "MUSTCALL_PORT" in env:
        changes["port"] = _port(env["MUSTCALL_PORT"])
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
            _endpoint(over(upstream, "MUSTCALL_UPSTREAM_", env, but=_OWN), env, key_env if flags else None)
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
        endpoints=tuple(_endpoint(upstream, env, key_env) for upstream in _from_flags(flags)),
    )
    _check(settings)
    return settings


def parse_upstream_flag(flag: str, taken: Sequence[str] = ()) -> UpstreamSettings:
    """Read an address; without a name the provider or the wire is the name, numbered if it is taken."""
    address = read_address(flag)
    word = address.provider.name if address.provider is not None else str(address.wire)
    return UpstreamSettings(
        use=flag if address.provider is not None else "",
        name=address.name or _free_name(word, taken),
        wire=address.wire,
        base_url=address.base_url,
        model=address.model,
    )


def _free_name(word: str, taken: Sequence[str]) -> str:
    name, number = word, 2
    while name in taken:
        name, number = f"{word}{number}", number + 1
    return name


def _from_flags(flags: Sequence[str]) -> tuple[UpstreamSettings, ...]:
    upstreams: list[UpstreamSettings] = []
    for flag in flags:
        upstreams.append(parse_upstream_flag(flag, [upstream.name for upstream in upstreams]))
    return tuple(upstreams)


def _spelt_out(upstreams: Sequence[UpstreamSettings], file: str) -> tuple[UpstreamSettings, ...]:
    """Return the upstreams of a file with what `use` says of each; raise for what neither says."""
    named = [upstream.name for upstream in upstreams if upstream.name]
    spelt: list[UpstreamSettings] = []
    for number, upstream in enumerate(upstreams, 1):
        where = f"{file}: upstream {repr(upstream.name) if upstream.name else number}"
        usual = UpstreamSettings()
        if upstream.use:
            try:
                usual = parse_upstream_flag(upstream.use, named)
            except ConfigError as error:
                raise ConfigError(f"{where}: use: {error.message}") from None
        changes = {field: getattr(upstream, field) or getattr(usual, field) for field in _NEEDED}
        for field, value in changes.items():
            if not value:
                raise ConfigError(f'{where} has no {field}; write one, or name a provider with use = "openai:gpt-5"')
        model = upstream.model or usual.model
        spelt.append(msgspec.structs.replace(upstream, use=usual.use, model=model, **changes))
        named.append(spelt[-1].name)
    return tuple(spelt)


def _embedded_upstream(name: str) -> tuple[tuple[UpstreamSettings, ...], tuple[str, ...]]:
    """Return the upstream of those who named none, the model in this process, and what they should know of it."""
    weights = weights_without_name()
    upstream = UpstreamSettings(name="local", wire=Wire.CHAT, base_url=f"{SCHEME}:{name or weights.name}")
    try:
        _check_embedded(upstream, "the embedded model")
    except ConfigError as error:
        raise ConfigError(f"{error.message}. {ANOTHER_UPSTREAM}") from None
    note = None if name else stand_in_note(weights)
    return (upstream,), () if note is None else (note,)


def load_ledger(
    file: Path | None = None, *, place: str | None = None, environment: Mapping[str, str] | None = None
) -> LedgerSettings:
    """Read what is said about the ledger alone, its place included (`off` too): no upstream and no key is needed."""
    env = os.environ if environment is None else environment
    path = config_file(file, env)
    read = _read_file(path).ledger if path is not None else LedgerSettings()
    said = over(read, "MUSTCALL_LEDGER_", env, but=("place",))
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
    named = _spelt_out(_read_file(path).upstream, str(path))
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


def _endpoint(upstream: UpstreamSettings, env: Mapping[str, str], key_env: str | None = None) -> Endpoint:
    assert upstream.wire is not None  # spelt out before
    where = f"upstream {upstream.name!r}"
    if upstream.base_url.startswith(f"{SCHEME}:"):
        _check_embedded(upstream, where)
    else:
        _check_address(upstream, where)
    for name, value in upstream.headers.items():
        if not _HEADER_NAME.fullmatch(name) or not value.isprintable():
            raise ConfigError(f"{where}: the header {name!r} is not one HTTP can carry")
    key = _key(upstream, where, env, key_env)
    for field in ("connect_timeout", "read_timeout", "idle_timeout"):
        if getattr(upstream, field) <= 0:
            raise ConfigError(f"{where}: {field} must be above 0 seconds")
    for field in ("default_max_tokens", "max_output_tokens"):
        limit = getattr(upstream, field)
        if limit is not None and limit < 1:
            raise ConfigError(f"{where}: {field} must be 1 or more, got {limit}")
    for field in ("retries", "backoff_base", "backoff_cap", "longest_wait"):
        if not 0 <= getattr(upstream, field) < inf:
            raise ConfigError(f"{where}: {field} must be 0 or more, got {getattr(upstream, field)}")
    return Endpoint(
        name=upstream.name,
        wire=upstream.wire,
        base_url=named_address(upstream.base_url.rstrip("/")),
        api_key=key,
        forward_key=upstream.forward_key,
        headers=upstream.headers,
        timeouts=Timeouts(connect=upstream.connect_timeout, read=upstream.read_timeout, idle=upstream.idle_timeout),
        backoff=Backoff(
            retries=upstream.retries,
            base=upstream.backoff_base,
            cap=upstream.backoff_cap,
            longest_wait=upstream.longest_wait,
        ),
        default_max_tokens=upstream.default_max_tokens,
        max_output_tokens=upstream.max_output_tokens,
        stateful=upstream.stateful,
        model=upstream.model,
    )


def _key(upstream: UpstreamSettings, where: str, env: Mapping[str, str], key_env: str | None) -> str | None:
    """Return the key in the variable that is named, else, at the provider's own address, in the provider's."""
    provider = read_address(upstream.use).provider if upstream.use else None
    if upstream.api_key_env is not None:
        name, setting = upstream.api_key_env, "api_key_env"
    elif key_env is not None and provider is not None:
        name, setting = key_env, "--key-env"
    else:
        if provider is None or upstream.base_url != provider.base_url:
            return None
        return find_key(provider, where, env)
    key = env.get(name, "").strip()
    if not key:
        raise ConfigError(f"{where}: the environment variable {name} ({setting}) is not set")
    return key


def _check_embedded(upstream: UpstreamSettings, where: str) -> None:
    """Raise unless the model is there and is asked on the wire it speaks."""
    if upstream.wire is not Wire.CHAT:
        raise ConfigError(f"{where}: the embedded model speaks the wire chat, not {upstream.wire}")
    problem = engine_problem()
    if problem is not None:
        raise ConfigError(f"{where}: {problem}")
    try:
        locate(upstream.base_url.removeprefix(f"{SCHEME}:"))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}") from None


def _check_address(upstream: UpstreamSettings, where: str) -> None:
    """Raise unless the address is one that HTTP calls can be made of."""
    try:
        parts = urlsplit(upstream.base_url)
        _ = parts.port  # read here because a wrong one is only noticed when it is asked for
    except ValueError as error:
        raise ConfigError(f"{where}: base_url cannot be read: {error}") from None
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{where}: base_url must be an http(s) URL like http://127.0.0.1:9000/v1, got {shown!r}")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(
            f"{where}: base_url {shown!r} must have no user, query or fragment; keys go into api_key_env, "
            "other things an endpoint needs into headers"
        )
    for codec in CODECS.values():
        if parts.path.rstrip("/").endswith(codec.path):
            raise ConfigError(f"{where}: base_url {shown!r} must end before {codec.path}, which the gateway adds")


def _client_keys(server: ServerSettings, env: Mapping[str, str]) -> tuple[str, ...]:
    name = server.client_keys_env
    if name is None:
        return _split(env.get("MUSTCALL_CLIENT_KEYS", ""))
    keys = _split(env.get(name, ""))
    if not keys:
        raise ConfigError(
            f"server: the environment variable {name} (client_keys_env) holds no key; separate several by commas"
        )
    return keys


def _split(text: str) -> tuple[str, ...]:
    return tuple(key.strip() for key in text.split(",") if key.strip())


def _check(settings: Settings) -> None:
    server = settings.server
    if not 0 <= server.port <= 65535:
        raise ConfigError(f"server: port must be between 0 and 65535, got {server.port}")
    for field in ("max_body_bytes", "max_concurrency", "request_timeout"):
        if getattr(server, field) <= 0:
            raise ConfigError(f"server: {field} must be above 0")
    for field, value in msgspec.structs.asdict(settings.limits).items():
        if not isinstance(value, tuple) and (value < 0 or (value == 0 and "; 0: " not in REASONS[field].bounds)):
            raise ConfigError(f"limits: {field} must be above 0")
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
