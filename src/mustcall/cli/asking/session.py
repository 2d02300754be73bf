"""What `mustcall chat` and `mustcall run` have in common: their options, and the session these open.

It reads flags and joins what is below: settings say which upstreams there are, the kit which tools, and a conversation
is held over both. Keys come from the environment: the one that is named, else the one its provider's own tools use,
and that one goes to that provider's own host and nowhere else.
"""

import logging
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from mustcall.cli.setup.naming import UPSTREAM
from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.engine.agent.options import Options
from mustcall.engine.agent.upstream import Upstream
from mustcall.gateway.config.settings import Settings, load_settings
from mustcall.gateway.service import Service
from mustcall.policy.facts.routing import choose
from mustcall.policy.reply.faithfulness import AnswerCheck
from mustcall.telemetry.tracing import traced
from mustcall.toolkit.background import Background
from mustcall.toolkit.conversation import INSTRUCTIONS, Conversation, Manner
from mustcall.toolkit.kit import Kit, KitSettings
from mustcall.upstream.address import is_address
from mustcall.upstream.embedded.store import SCHEME, address_for, is_weights
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.providers import provider_at
from mustcall.upstream.retry import SystemClock
from mustcall.upstream.schemes import SchemeTransport
from mustcall.upstream.seam import Transport
from mustcall.upstream.variables import read_variable

__all__ = [
    "Flags",
    "Session",
    "connector",
    "first_model",
    "flags_from",
    "opened",
    "quiet",
    "session_options",
    "settings_of",
    "with_key",
]

_F = TypeVar("_F", bound=Callable[..., Any])


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a session as they were given."""

    upstreams: tuple[str, ...] = ()
    file: Path | None = None
    model: str | None = None
    gguf: Path | None = None
    key_env: str | None = None
    roots: tuple[Path, ...] = ()
    docs: Path | None = None
    mcp: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    system: str | None = None
    max_steps: int = 8
    max_tokens: int | None = None
    ground: bool = True
    check: str = AnswerCheck.SMALL


_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)
_OPTIONS = (
    click.option(
        "--upstream",
        "upstreams",
        multiple=True,
        type=UPSTREAM,
        help="Where the model is: openai:gpt-5, ollama:qwen3, chat=http://127.0.0.1:9000/v1.  "
        "[default: mustcall.toml, else the embedded model]",
    ),
    click.option("--config", "file", type=_FILE, help="The file to read.  [default: mustcall.toml if it is there]"),
    click.option(
        "--model",
        "-m",
        help="The model to ask, one of `mustcall models list`, or openai:gpt-5 and the like in place of --upstream.  "
        "[default: the upstream's own, else the first one it lists]",
    ),
    click.option("--gguf", type=_FILE, help="Run this model file in the process."),
    click.option("--key-env", metavar="NAME", help="The environment variable that holds the upstream's key."),
    click.option(
        "--root",
        "roots",
        type=_FOLDER,
        multiple=True,
        help="A folder whose files may be listed and read. May be repeated.  "
        "[default: read the current folder; list it, the temporary folder and the home]",
    ),
    click.option("--docs", type=_FOLDER, help="A folder of documents for search_docs."),
    click.option("--mcp", multiple=True, metavar="COMMAND", help="An MCP server to start. May be repeated."),
    click.option("--tool", "tools", multiple=True, metavar="NAME", help="Offer only this tool. May be repeated."),
    click.option("--system", metavar="TEXT", help="The system prompt."),
    click.option("--max-steps", type=click.IntRange(1, 100), default=8, show_default=True, help="Turns per question."),
    click.option("--max-tokens", type=click.IntRange(1), help="Tokens per turn.  [default: the upstream's own limit]"),
    click.option(
        "--ground/--no-ground",
        default=True,
        help="Whether what a built-in tool knows (files, time, sums) must be looked up with it.  [default: --ground]",
    ),
    click.option(
        "--check",
        type=click.Choice(list(AnswerCheck)),
        default=AnswerCheck.SMALL,
        show_default=True,
        help="Whose arguments are held to the question and whose answers to the results: of small models, of all, off.",
    ),
)


def session_options(command: _F) -> _F:
    """Give a command the options of a session."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def flags_from(given: Mapping[str, Any]) -> Flags:
    """Return the options of a session out of a command's parameters."""
    return Flags(**{name: given[name] for name in Flags.__struct_fields__})


class Session(msgspec.Struct, frozen=True):
    """An open session."""

    background: Background
    conversation: Conversation
    kit: Kit
    #: What the person should know before it begins, a line each.
    notes: tuple[str, ...] = ()


@contextmanager
def opened(flags: Flags) -> Generator[Session]:
    """Open a session; raise `ConfigError` in one line for what cannot be opened. Leaving closes everything."""
    flags = _spelt_out(flags)
    settings = settings_of(flags)
    chosen = KitSettings(roots=flags.roots, docs=flags.docs, mcp=flags.mcp, only=flags.tools, ground=flags.ground)
    kit = Kit(chosen)
    with quiet(), traced(), Background() as background:
        transport, model = background.run(_connected(settings, flags.model))
        try:
            background.run(kit.__aenter__())
            try:
                manner = Manner(
                    instructions=INSTRUCTIONS if flags.system is None else flags.system,
                    max_steps=flags.max_steps,
                    options=Options(max_tokens=flags.max_tokens),
                    operator=settings.operator,
                    check=AnswerCheck(flags.check),
                )
                connect = connector(settings, transport)
                yield Session(background, Conversation(kit, connect, manner, model), kit, settings.notes)
            finally:
                background.run(kit.__aexit__(None, None, None))
        finally:
            background.run(transport.close())


@contextmanager
def quiet() -> Generator[None]:
    """Keep logs off the terminal: what people must know of a run is shown as it happens."""
    loggers = [logging.getLogger(name) for name in ("mustcall", "mcp", "client", "asyncio")]
    before = [(logger, logger.propagate) for logger in loggers]
    silence = logging.NullHandler()
    for logger in loggers:
        logger.addHandler(silence)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagate in before:
            logger.removeHandler(silence)
            logger.propagate = propagate


def _spelt_out(flags: Flags) -> Flags:
    """Return flags whose model is one: an address in its place (`--model openai:gpt-5`) is where the model is."""
    if flags.model is None or flags.upstreams or flags.gguf is not None or not is_address(flags.model):
        return flags
    return msgspec.structs.replace(flags, upstreams=(flags.model,), model=None)


def settings_of(flags: Flags) -> Settings:
    """Return the settings that flags, the environment and the file make together, each upstream with its key."""
    upstreams = flags.upstreams
    if flags.gguf is not None:
        if upstreams:
            raise ConfigError("--gguf is an upstream of its own; leave out --upstream")
        upstreams = (f"local:chat={SCHEME}:{flags.gguf.expanduser().absolute()}",)
    embedded = flags.model if flags.model is not None and is_weights(flags.model) else ""
    settings = load_settings(flags.file, upstream_flags=upstreams, embedded=embedded, key_env=flags.key_env)
    endpoints = tuple(with_key(endpoint, flags.key_env) for endpoint in settings.endpoints)
    return msgspec.structs.replace(settings, endpoints=endpoints)


def with_key(endpoint: Endpoint, key_env: str | None) -> Endpoint:
    """Return an upstream with the key that the environment has for it."""
    if endpoint.api_key is not None:
        return endpoint
    provider = provider_at(endpoint.base_url)
    if key_env:
        return msgspec.structs.replace(endpoint, api_key=read_variable(key_env, "--key-env", os.environ))
    name = provider.key_env if provider is not None else None
    key = os.environ.get(name, "").strip() if name else ""
    return msgspec.structs.replace(endpoint, api_key=key) if key else endpoint


async def _connected(settings: Settings, model: str | None) -> tuple[Transport, str]:
    """Return a transport of the running loop, and the model to ask: the named one, else the first that is listed."""
    transport = SchemeTransport()
    try:
        return transport, model or await first_model(settings, transport)
    except BaseException:
        await transport.close()
        raise


async def first_model(settings: Settings, transport: Transport) -> str:
    """Return the first model that is listed; raise `ConfigError` where none is."""
    first = settings.endpoints[0]
    if first.model:
        return first.model
    headers = {"anthropic-version": ""} if first.wire is Wire.MESSAGES else {}
    listing = msgspec.json.decode(await Service(settings, transport, SystemClock()).models(headers))
    names = [str(each["id"]) for each in listing["data"]]
    if not names:
        raise ConfigError(
            f"the upstream at {first.base_url} lists no models, or cannot be reached; name a model with --model"
        )
    return names[0]


def connector(settings: Settings, transport: Transport) -> Callable[[str], Upstream]:
    """Return what finds the upstream that serves a model; of the embedded ones each is its own."""
    endpoints = {endpoint.name: endpoint for endpoint in settings.endpoints}

    def connect(model: str) -> Upstream:
        destination = choose(model, settings.endpoints[0].wire, settings.routes, settings.doors, verbatim=True)
        endpoint = endpoints[destination.upstream]
        endpoint = msgspec.structs.replace(endpoint, base_url=address_for(endpoint.base_url, destination.model))
        return Upstream(endpoint, model=destination.model, transport=transport, overrides=settings.operator.overrides)

    return connect
