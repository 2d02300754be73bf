"""`mustcall serve`: the gateway, from a file, from flags, on the embedded model, or on a scripted demo upstream."""

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Generator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import get_args

import click
import msgspec
from click.core import ParameterSource

from mustcall.cli.setup.naming import UPSTREAM
from mustcall.cli.setup.offering import PLACEHOLDER, REPLACE, only_listed
from mustcall.core.errors import UnknownModel
from mustcall.core.origin import Wire
from mustcall.gateway.config.environment import stated
from mustcall.gateway.config.reloading import Reloader, may_reload
from mustcall.gateway.config.settings import PORT_NAMES, ServerSettings, Settings, load_settings
from mustcall.gateway.process.notify import notify_ready
from mustcall.gateway.process.server import bind, serve
from mustcall.ledger import shown_place
from mustcall.ledger.encrypting import KEY as LEDGER_KEY
from mustcall.policy.facts.routing import choose
from mustcall.profiles import read_overrides
from mustcall.telemetry.console import LogLevel, log_to_stderr, tell
from mustcall.telemetry.requests import LogFormat
from mustcall.upstream.embedded.store import SCHEME

__all__ = ["command"]

_CURL = """\
  curl -sS {url}/v1/chat/completions -H 'content-type: application/json'{key} -d '{body}'
"""
#: The model's name in the lines to try: the embedded model goes by any.
_LOCAL = "local"
#: Variables of a gateway that has upstreams to choose and to measure.
_NOT_THE_DEMO_S = ("MUSTCALL_UPSTREAM", "MUSTCALL_PROBE_")
_CALL_BODY = (
    '{"model":"local","messages":[{"role":"user","content":"What is the weather in Oslo?"}],'
    '"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object",'
    '"properties":{"city":{"type":"string"}},"required":["city"]}}}],"tool_choice":"required"}'
)
_PYTHON = """\
python3 - <<'PY'
import json, urllib.request
tool = {{"name": "get_weather", "parameters": {{"type": "object", "properties": {{"city": {{"type": "string"}}}}, "required": ["city"]}}}}
body = {{"model": "local", "messages": [{{"role": "user", "content": "What is the weather in Oslo?"}}],
        "tools": [{{"type": "function", "function": tool}}], "tool_choice": "required"}}
request = urllib.request.Request("{url}/v1/chat/completions", json.dumps(body).encode(), {{"content-type": "application/json"}})
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["tool_calls"][0]["function"])
PY
"""  # noqa: E501  printed as it is


@click.command(name="serve")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to read.  [default: $MUSTCALL_CONFIG, else mustcall.toml]",
)
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    type=UPSTREAM,
    help="An upstream, without a file: openai:gpt-5, ollama:, chat=http://127.0.0.1:9000/v1. May be repeated.",
)
@click.option("--host", help="The address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 takes a free one.  [default: 8484]")
@click.option(
    "--gguf",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Serve this model file, inside the process.  [without any upstream: the model of `mustcall models pull`]",
)
@click.option(
    "--ledger",
    metavar="PATH|URL|off",
    help="Where state is kept: a file or a postgresql:// URL.  [default: $MUSTCALL_LEDGER, $DATABASE_URL, a file]",
)
@click.option("--keep", metavar="AGE", help="How long turns and stored responses are kept.  [default: 30d]")
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of worker processes; one that exits is replaced. Limits apply to each.",
)
@click.option(
    "--log-level",
    type=click.Choice(get_args(LogLevel)),
    help="What the log says: `info` has a line for each request, `warning` only what went wrong.  [default: info]",
)
@click.option(
    "--log-format",
    type=click.Choice(get_args(LogFormat)),
    help="Lines for people or for programs; `auto` is text on a terminal.  [default: auto]",
)
@click.option("--demo", is_flag=True, help="Serve a scripted upstream that needs no model and no key.")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    file: Path | None,
    upstreams: tuple[str, ...],
    host: str | None,
    port: int | None,
    gguf: Path | None,
    ledger: str | None,
    keep: str | None,
    workers: int,
    log_level: LogLevel | None,
    log_format: LogFormat | None,
    demo: bool,
) -> None:
    """Run the gateway: Chat Completions, Responses and Messages in, any of them out.

    Without a file, --upstream or $MUSTCALL_UPSTREAM a small model inside the process answers: no key, no network.

    Point an agent's base URL at it (OpenAI clients: http://HOST:PORT/v1, Anthropic clients: http://HOST:PORT).
    """
    if demo and (upstreams or file or gguf):
        raise click.UsageError("--demo brings its own upstream; leave out --upstream, --config and --gguf")
    if gguf is not None:
        if upstreams:
            raise click.UsageError("--gguf is an upstream of its own; leave out --upstream")
        upstreams = (f"local:chat={SCHEME}:{gguf.absolute()}",)
    with contextlib.ExitStack() as stack:
        if demo and (ledger is not None or keep is not None):
            raise click.UsageError("--demo keeps nothing: leave --ledger and --keep out, or name an upstream instead")
        if demo:
            settings = stack.enter_context(_demo_settings(host, port, log_level, log_format))
            reloader = None
        else:
            read = partial(
                load_settings,
                file,
                upstream_flags=upstreams,
                host=host,
                port=port,
                log_level=log_level,
                log_format=log_format,
                ledger=ledger,
                keep=keep,
            )
            settings, reloader = read(), Reloader(read) if may_reload() else None
        log_to_stderr(settings.server.log_level, settings.server.log_format)
        run = partial(serve, reloader=reloader) if workers == 1 else _with_workers(settings, workers, reloader)
        chosen = (
            ctx.get_parameter_source("port") is not ParameterSource.DEFAULT
            or settings.server.port != ServerSettings().port
            or stated(PORT_NAMES, os.environ) is not None
        )
        listener = bind(settings.server, or_any_port=not chosen)
        address, bound = listener.getsockname()[:2]
        url = f"http://[{address}]:{bound}" if ":" in address else f"http://{address}:{bound}"
        model = _LOCAL if demo else _shown_model(settings)
        with listener:
            run(
                settings,
                listener,
                lambda keeps: _announce(url, settings, model, demo=demo, workers=workers, keeps=keeps),
            )


def _with_workers(
    settings: Settings, count: int, reloader: Reloader | None
) -> Callable[[Settings, socket.socket, Callable[[bool], None]], None]:
    """Return how several processes serve, if they can."""
    from mustcall.gateway.process.workers import check_workers, serve_workers  # noqa: PLC0415  one process needs none of it

    check_workers(settings, count)
    return partial(serve_workers, count=count, reloader=reloader)


@contextlib.contextmanager
def _demo_settings(
    host: str | None, port: int | None, log_level: LogLevel | None, log_format: LogFormat | None
) -> Generator[Settings]:
    """Settings of the demo: its own upstream, no file, no ledger; the environment holds as for every gateway."""
    from mustcall.testing import ScriptedUpstream, demo_turn  # noqa: PLC0415  only the demo needs it

    with ScriptedUpstream(demo_turn) as upstream:
        read = load_settings(
            without_file=True,
            upstream_flags=[f"demo:chat={upstream.base_url}"],
            host=host,
            port=port,
            log_level=log_level,
            log_format=log_format,
            ledger="off",
            environment={name: value for name, value in os.environ.items() if not name.startswith(_NOT_THE_DEMO_S)},
        )
        # The script obeys a forced choice; unknown models are asked softly first.
        obeys = read_overrides([{"upstreams": ["demo"], "forced": "always", "reasoning": "never"}])
        yield msgspec.structs.replace(read, operator=msgspec.structs.replace(read.operator, overrides=obeys))


def _shown_model(settings: Settings) -> str:
    """Return the model's name for the line to try; at a terminal, a server that nobody named one for is asked."""
    routed = (route.model for route in settings.routes if "*" not in route.model)
    own = (endpoint.model for endpoint in settings.endpoints if endpoint.model and not settings.routes)
    model = next(chain(routed, own), "")
    if model or settings.routes or len(settings.endpoints) != 1 or not sys.stdout.isatty():
        return model or PLACEHOLDER
    endpoint = settings.endpoints[0]
    # No key is spent on a line to try, and a model inside the process goes by any name.
    if endpoint.api_key is not None or not endpoint.base_url.startswith(("http://", "https://")):
        return PLACEHOLDER
    return only_listed(endpoint) or PLACEHOLDER


def _announce(url: str, settings: Settings, model: str, *, demo: bool, workers: int, keeps: bool) -> None:
    """Say where the gateway listens, what it serves and keeps, and what to try; `keeps` says the ledger is open."""
    tell(f"mustcall listens on {url}" + (f" with {workers} workers" if workers > 1 else ""))
    if settings.server.port and not url.endswith(f":{settings.server.port}"):
        tell(f"  note: port {settings.server.port} is taken, so a free one was chosen", err=True)
    for endpoint in settings.endpoints:
        pinned = f", model {endpoint.model}" if endpoint.model else ""
        tell(f"  upstream {endpoint.name}: {endpoint.wire} at {endpoint.base_url}{pinned}")
    for line in settings.notes:
        tell(f"  note: {line}", err=True)
    if settings.ledger is not None and not keeps:
        place = shown_place(settings.ledger.place or "")
        tell(
            f"  no ledger yet: {place} could not be opened (the log says why); nothing is kept until it can be",
            err=True,
        )
    elif settings.ledger is not None:
        tell(f"  ledger at {shown_place(settings.ledger.place or '')}, kept for {settings.ledger.keep}")
        if settings.ledger.responses:
            how = "encrypted" if os.environ.get(LEDGER_KEY) else "unencrypted, prompts and answers included"
            choice = "" if os.environ.get(LEDGER_KEY) else f", {LEDGER_KEY} encrypts them"
            tell(f"  stored responses are kept {how} ([ledger] responses = false stores none{choice})")
    if settings.server.ui:
        tell(f"  page at {url}/ui: every turn, in a browser")
    if not settings.client_keys and settings.server.host not in ("127.0.0.1", "localhost", "::1"):
        tell("  note: other machines may reach it, and no key is wanted (client_keys_env)", err=True)
    shows_call = demo or _is_embedded(_LOCAL, settings)
    tell("Try it:" if shows_call or model != PLACEHOLDER else f"Try it ({REPLACE}):")
    body = _CALL_BODY if shows_call else f'{{"model":"{model}","messages":[{{"role":"user","content":"Hello"}}]}}'
    key = ' -H "authorization: Bearer $KEY"' if settings.client_keys else ""
    tell(_CURL.format(url=url, body=body, key=key), end="")
    if shows_call and not settings.client_keys:
        tell("Or in Python:")
        tell(_PYTHON.format(url=url), end="")
    tell("Ctrl-C stops it.")
    notify_ready(f"listens on {url}")


def _is_embedded(model: str, settings: Settings) -> bool:
    """Tell whether a request for this model reaches a model inside the process."""
    try:
        upstream = choose(model, Wire.CHAT, settings.routes, settings.doors).upstream
    except UnknownModel:
        return False
    return any(one.name == upstream and one.base_url.startswith(f"{SCHEME}:") for one in settings.endpoints)
