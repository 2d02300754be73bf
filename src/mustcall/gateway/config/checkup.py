"""What `mustcall doctor` looks at: each thing the gateway needs, whether it is there, and what to do if it is not.

Every check is one value with its fix. `failed` means that the gateway could not start or could not answer; what it
serves well without is a warning or a note. Keys are never shown: their variables are.
"""

import asyncio
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import assert_never
from urllib.parse import urlsplit

import msgspec

from mustcall.core.errors import ConfigError, LedgerError, MustcallError, UpstreamRedirected
from mustcall.gateway.config.environment import stated
from mustcall.gateway.config.settings import DEFAULT_FILE, PORT_NAMES, ServerSettings, Settings, load_settings
from mustcall.gateway.process.server import bind
from mustcall.ledger import OFF, default_place, open_ledger, shown_place
from mustcall.upstream.embedded.engine import INSTALL, engine_problem
from mustcall.upstream.embedded.store import WeightStore, is_embedded, locate, megabytes
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.http import proxy_for
from mustcall.upstream.listing import ask_models
from mustcall.upstream.seam import Transport, UpstreamCall

__all__ = ["Check", "CheckState", "CheckupRequest", "examine"]

_OLDEST = (3, 11)
_ENGINE = "xllamacpp"
#: Seconds to find out who holds a port.
_GLANCE = 2.0


class CheckState(StrEnum):
    """How a check ended."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILED = "failed"


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at: what was found, and the fix where one is needed."""

    name: str
    state: CheckState
    found: str
    fix: str = ""


class CheckupRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be looked at: the same things that `mustcall serve` would be given."""

    file: Path | None = None
    upstreams: tuple[str, ...] = ()
    ledger: str | None = None
    port: int | None = None
    #: Seconds each upstream and the database are given.
    seconds: float = 5.0


async def examine(
    asked: CheckupRequest, transport: Transport, environment: Mapping[str, str] | None = None
) -> list[Check]:
    """Look at everything, the port, the database and the upstreams side by side; nothing is raised."""
    env = os.environ if environment is None else environment
    settings, config = _config(asked, env)
    inside = [one for one in settings.endpoints if _is_embedded(one)] if settings is not None else []
    called = [one for one in settings.endpoints if not _is_embedded(one)] if settings is not None else []
    slow = await asyncio.gather(
        _port(settings.server if settings is not None else None, asked, env, transport),
        _database(settings, asked, env),
        *(_upstream(endpoint, transport, asked.seconds, _key_of(endpoint, settings)) for endpoint in called),
    )
    return [
        _python(),
        _engine(needed=bool(inside)),
        _models(needed=bool(inside)),
        config,
        *slow[:2],
        *(_embedded(endpoint) for endpoint in inside),
        *slow[2:],
    ]


# --- this machine -------------------------------------------------------------------------------------------------


def _python() -> Check:
    found = (
        f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    if sys.version_info[:2] < _OLDEST:
        return Check("python", CheckState.FAILED, found, f"install Python {'.'.join(map(str, _OLDEST))} or newer")
    return Check("python", CheckState.OK, found)


def _engine(*, needed: bool) -> Check:
    if engine_problem() is None:
        try:
            return Check("engine", CheckState.OK, f"{_ENGINE} {version(_ENGINE)}, for models inside the process")
        except PackageNotFoundError:
            return Check("engine", CheckState.OK, f"{_ENGINE}, for models inside the process")
    state = CheckState.FAILED if needed else CheckState.NOTE
    return Check("engine", state, "not installed; only models inside the process need it", INSTALL)


def _models(*, needed: bool) -> Check:
    store = WeightStore()
    broken: list[str] = []
    for weights in store.held():
        try:
            locate(str(store.path(weights)), store)
        except ConfigError:
            broken.append(weights.name)
    if broken:
        fix = "; ".join(f"mustcall models rm {name} && mustcall models pull {name}" for name in broken)
        state = CheckState.FAILED if needed else CheckState.WARNING
        return Check("model files", state, f"damaged: {', '.join(broken)}", fix)
    held = ", ".join(f"{weights.name} ({megabytes(weights)})" for weights in store.held())
    if held:
        return Check("model files", CheckState.OK, held)
    return Check("model files", CheckState.NOTE, f"none in {store.directory}", "mustcall models pull")


# --- the configuration --------------------------------------------------------------------------------------------


def _config(asked: CheckupRequest, env: Mapping[str, str]) -> tuple[Settings | None, Check]:
    named = asked.file or Path(env.get("MUSTCALL_CONFIG") or DEFAULT_FILE)
    shown = str(named) if asked.file is not None or named.is_file() or "MUSTCALL_CONFIG" in env else "no file"
    try:
        settings = load_settings(
            asked.file, upstream_flags=asked.upstreams, port=asked.port, ledger=asked.ledger, environment=env
        )
    except ConfigError as error:
        return None, Check("configuration", CheckState.FAILED, error.message, _config_fix(error.message, shown))
    count = len(settings.endpoints)
    found = f"{shown}: {count} upstream{'s' if count > 1 else ''}, {len(settings.routes)} routes"
    return settings, Check("configuration", CheckState.OK, found)


def _config_fix(problem: str, shown: str) -> str:
    variable = re.search(r"the environment variable (\S+)", problem)
    if variable is not None:
        return f"export {variable[1]}=… where mustcall runs"
    unknown = re.match(r"(MUSTCALL_\w+) is no variable", problem)
    if unknown is not None:
        return f"unset {unknown[1]}, or correct its name where mustcall runs"
    if shown == "no file":
        return "mustcall init"
    return f"correct {shown}; `mustcall config check {shlex.quote(shown)}` reads it again"


# --- the port -----------------------------------------------------------------------------------------------------


async def _port(
    server: ServerSettings | None, asked: CheckupRequest, env: Mapping[str, str], transport: Transport
) -> Check:
    wanted = server or ServerSettings()
    place = f"{wanted.host}:{wanted.port}"
    if not wanted.port:
        return Check("port", CheckState.OK, "a free one is taken")
    try:
        bind(wanted).close()
    except ConfigError as error:
        if await _is_ours(wanted, transport):
            return Check("port", CheckState.OK, f"a mustcall gateway listens on {place}")
        chosen = asked.port is not None or stated(PORT_NAMES, env) is not None or wanted.port != ServerSettings().port
        state = CheckState.FAILED if chosen else CheckState.WARNING  # the usual one gives way to a free one
        found = error.message.partition(";")[0]
        return Check("port", state, found, "stop what uses it, or choose another with --port")
    except OSError as error:
        return Check("port", CheckState.FAILED, f"cannot listen on {place}: {error}", "correct host in [server]")
    return Check("port", CheckState.OK, f"{place} is free")


async def _is_ours(server: ServerSettings, transport: Transport) -> bool:
    """Tell whether a gateway of ours holds the port."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(server.host, server.host)  # noqa: S104  read, not bound
    url = f"http://{host}:{server.port}/healthz"
    if proxy_for(url) is not None:
        return False
    try:
        async with asyncio.timeout(_GLANCE):
            reply = await transport.send(UpstreamCall(url=url, method="GET", headers={}, body=None))
            try:
                return b'"service":"mustcall"' in await reply.read()
            finally:
                await reply.close()
    except (MustcallError, TimeoutError):
        return False


# --- the database -------------------------------------------------------------------------------------------------


async def _database(settings: Settings | None, asked: CheckupRequest, env: Mapping[str, str]) -> Check:
    place = settings.ledger.place if settings is not None and settings.ledger is not None else None
    if settings is None:
        place = asked.ledger or default_place(env)
    if place is None or place == OFF:
        return Check("database", CheckState.NOTE, "off: nothing is kept")
    try:
        shown = shown_place(place)
        file = None if "://" in place and not place.startswith("sqlite:///") else Path(shown)
        if file is not None and not file.exists():
            return _room_for(file)
        async with asyncio.timeout(asked.seconds), open_ledger(place, make=False):
            return Check("database", CheckState.OK, shown)
    except TimeoutError:
        return Check("database", CheckState.WARNING, f"no answer within {asked.seconds:g} s", _DATABASE_FIX)
    except (ConfigError, LedgerError) as error:
        return Check("database", CheckState.WARNING, error.message, _DATABASE_FIX)


_DATABASE_FIX = "the gateway serves without it, but keeps nothing: correct --ledger, $MUSTCALL_LEDGER or $DATABASE_URL"


def _room_for(file: Path) -> Check:
    """Say whether a file that is not there yet can be made."""
    folder = next(each for each in file.absolute().parents if each.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check("database", CheckState.WARNING, f"{file} cannot be made: {folder} is not writable", _DATABASE_FIX)
    return Check("database", CheckState.OK, f"{file}, made when it is first needed")


# --- upstreams ----------------------------------------------------------------------------------------------------


def _is_embedded(endpoint: Endpoint) -> bool:
    return is_embedded(endpoint.base_url)


def _embedded(endpoint: Endpoint) -> Check:
    """Loading the settings has found its engine and its file."""
    return Check(f"upstream {endpoint.name}", CheckState.OK, f"{endpoint.base_url}, inside the process")


class _Key(StrEnum):
    """Whose key an upstream gets."""

    OWN = "own"
    CALLERS = "callers"
    NONE = "none"


def _key_of(endpoint: Endpoint, settings: Settings | None) -> _Key:
    if endpoint.api_key is not None:
        return _Key.OWN
    opens_gateway = settings is not None and bool(settings.client_keys)  # such a key stays in the gateway
    return _Key.CALLERS if endpoint.forward_key and not opens_gateway else _Key.NONE


async def _upstream(endpoint: Endpoint, transport: Transport, seconds: float, key: _Key) -> Check:
    """Ask an upstream for its models: the one request that costs nothing and needs the key."""
    name, place = f"upstream {endpoint.name}", f"{endpoint.wire} at {endpoint.base_url}"
    try:
        listing = await ask_models(endpoint, transport, seconds=seconds)
    except UpstreamRedirected as error:
        fix = "correct base_url in the file, so that it names where the server answers"
        return Check(name, CheckState.FAILED, f"{place}: {error.message}", fix)
    except MustcallError as error:
        return Check(name, CheckState.FAILED, f"{place}: {error.message}", _reach_fix(endpoint))
    if listing.status in (401, 403):
        return _unauthorized(name, f"{place}: HTTP {listing.status}", key)
    if listing.status >= 500:
        return Check(name, CheckState.FAILED, f"{place}: HTTP {listing.status}", "look into the server's own log")
    if listing.models is None:
        found = f"{place}: answers, but lists no models (HTTP {listing.status})"
        return Check(
            name, CheckState.WARNING, found, "see that base_url ends where /chat/completions would begin: …/v1"
        )
    return _listed(name, place, endpoint.model, listing.models)


def _unauthorized(name: str, found: str, key: _Key) -> Check:
    match key:
        case _Key.CALLERS:
            return Check(name, CheckState.OK, f"{found} without a key; callers send their own")
        case _Key.OWN:
            return Check(name, CheckState.FAILED, f"{found}, the key is refused", "put a valid key into its variable")
        case _Key.NONE:
            return Check(
                name, CheckState.FAILED, f"{found}, it wants a key", "name the variable of its key in api_key_env"
            )
        case _:
            assert_never(key)


def _listed(name: str, place: str, model: str, models: Sequence[str]) -> Check:
    count = f"{len(models)} model{'' if len(models) == 1 else 's'}"
    if model and models and model not in models:
        some = ", ".join(models[:5]) + (", …" if len(models) > 5 else "")
        return Check(name, CheckState.WARNING, f"{place}: {count}, {model!r} is not among them", f"it lists {some}")
    return Check(name, CheckState.OK, f"{place}: {count}" + (f", {model} is there" if model and models else ""))


def _reach_fix(endpoint: Endpoint) -> str:
    host = urlsplit(endpoint.base_url).hostname or ""
    local = host in ("127.0.0.1", "localhost", "::1")
    if local and proxy_for(endpoint.base_url) is not None:
        return f"a proxy is set also for this machine: set NO_PROXY={host}"
    if local:
        return "start the server, or correct base_url"
    return "correct base_url, or see that this machine may reach it (HTTPS_PROXY, firewall)"
