"""What `demo` and `eval` have in common: which upstream and model are measured, with what, and where reports go."""

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from mustcall.cli.setup.naming import UPSTREAM
from mustcall.core.errors import ConfigError, MustcallError, UpstreamUnavailable
from mustcall.core.origin import Wire
from mustcall.engine.turns import Turns
from mustcall.evals.asking.arms import EvalSubject, settle_form, warm_up
from mustcall.evals.asking.client_requests import Sampling
from mustcall.evals.questions import Question
from mustcall.evals.report.chart import check_drawable
from mustcall.gateway.config.settings import Settings, load_settings
from mustcall.policy.facts.routing import choose
from mustcall.upstream.embedded.store import SCHEME, address_for, is_embedded, is_weights
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.listing import ask_models
from mustcall.upstream.retry import SystemClock
from mustcall.upstream.schemes import SchemeTransport
from mustcall.upstream.seam import Transport
from mustcall.upstream.variables import read_variable

__all__ = [
    "FILE",
    "INTERRUPTED",
    "check_files",
    "measured_settings",
    "only_model",
    "open_subject",
    "pick_endpoint",
    "read_key",
    "read_sampling",
    "report_options",
    "sampling_options",
    "upstream_options",
]

INTERRUPTED = 130
FILE = click.Path(path_type=Path, dir_okay=False)

#: The longest reply, in tokens. A call takes a tenth of the smaller one; a small model's prose would take minutes.
_LONGEST = 1024
_LONGEST_EMBEDDED = 256
_LISTING_SECONDS = 10.0
_MOST_NAMES = 10

_Command = Callable[..., Any]


def _options(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


upstream_options = _options(
    click.option(
        "--config", "file", type=FILE, help="The file to read.  [default: $MUSTCALL_CONFIG, else mustcall.toml]"
    ),
    click.option(
        "--upstream", type=UPSTREAM, help="The upstream to measure: ollama:qwen3, chat=http://127.0.0.1:9000/v1."
    ),
    click.option("--gguf", type=FILE, help="The file of an embedded model to measure."),
    click.option("--model", help="The model's name; needed where the upstream lists several."),
    click.option("--key-env", metavar="NAME", help="The environment variable that holds the upstream's key."),
)
sampling_options = _options(
    click.option(
        "--temperature", default="0", show_default=True, help="A number, or `server` to leave it to the server."
    ),
    click.option(
        "--max-tokens",
        type=click.IntRange(1),
        help=f"The longest reply.  [default: {_LONGEST}; {_LONGEST_EMBEDDED} from an embedded model]",
    ),
)
report_options = _options(
    click.option("--html", "page", type=FILE, help="Write the report as a page that needs no other file."),
    click.option("--png", "picture", type=FILE, help="Write the chart as a picture."),
    click.option("--json", "data", type=FILE, help="Write everything that was measured."),
)


def check_files(*files: Path | None, picture: Path | None = None) -> None:
    """Raise now what would be raised after minutes of measuring."""
    if picture is not None:
        check_drawable()
    for path in (*files, picture):
        if path is not None and not path.absolute().parent.is_dir():
            raise ConfigError(f"cannot write {path}: there is no directory {path.absolute().parent}")


def measured_settings(
    file: Path | None, upstream: str | None, gguf: Path | None, model: str | None, key_env: str | None = None
) -> Settings:
    """Return the configuration; where none names an upstream, the embedded model is it: the named one, if it is one.

    What is worth a note is printed.
    """
    if upstream is not None and gguf is not None:
        raise click.UsageError("--gguf is an upstream of its own; leave out --upstream")
    flag = f"local:chat={SCHEME}:{gguf.absolute()}" if gguf is not None else upstream
    embedded = model if model is not None and is_weights(model) else ""
    settings = load_settings(file, upstream_flags=[flag] if flag else (), embedded=embedded, key_env=key_env)
    for line in settings.notes:
        click.echo(f"note: {line}", err=True)
    return settings


def read_sampling(settings: Settings, temperature: str, max_tokens: int | None) -> Sampling:
    """Return what both arms are asked with."""
    embedded = all(_is_embedded(endpoint) for endpoint in settings.endpoints)
    return Sampling(
        max_tokens=max_tokens or (_LONGEST_EMBEDDED if embedded else _LONGEST), temperature=_temperature(temperature)
    )


def _is_embedded(endpoint: Endpoint) -> bool:
    return is_embedded(endpoint.base_url)


def _temperature(text: str) -> float | None:
    if text == "server":
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 2:
        raise ConfigError(f"--temperature must be a number from 0 to 2, or `server`, got {text!r}")
    return value


def read_key(name: str | None, option: str = "--key-env") -> str | None:
    """Return the key an environment variable holds, None where none is named."""
    if name is None:
        return None
    return read_variable(name, option, os.environ)


@asynccontextmanager
async def open_subject(
    settings: Settings,
    model: str | None,
    key: str | None,
    sampling: Sampling,
    first: Question,
    *,
    wire: Wire | None = None,
    stream: bool = False,
) -> AsyncGenerator[EvalSubject]:
    """Find whom to ask, load its model, settle how it gets its tools, and close everything at the end.

    `first` is a question of the run; what an embedded model makes of its tools is looked at.
    """
    transport, clock = SchemeTransport(), SystemClock()
    try:
        endpoint, name = await _find(settings, model, key, transport)
        subject = EvalSubject(
            endpoint=endpoint,
            model=name,
            turns=Turns(transport, clock, settings.operator),
            transport=transport,
            clock=clock,
            sampling=sampling,
            wire=wire,
            stream=stream,
            patience=settings.server.request_timeout,
        )
        await warm_up(subject)
        if _is_embedded(endpoint):
            subject = msgspec.structs.replace(subject, form=await settle_form(subject, first))
        yield subject
    finally:
        await transport.close()


def pick_endpoint(settings: Settings, model: str | None, key: str | None, *, chosen: str = "") -> tuple[Endpoint, str]:
    """Return whom to ask and under which name, which is empty where neither the user nor the settings say it.

    `chosen` is the name of the upstream where somebody chose among several.
    """
    for endpoint in settings.endpoints:
        if chosen == endpoint.name:
            return _with_key(_serving(endpoint, endpoint.model), key), endpoint.model
    only = settings.endpoints[0].model if len(settings.endpoints) == 1 else ""
    model = model or only or None
    if model is not None:
        wire = next(endpoint.wire for endpoint in settings.endpoints)
        found = choose(model, wire, settings.routes, settings.doors, verbatim=True)
        endpoint = next(one for one in settings.endpoints if one.name == found.upstream)
        return _with_key(_serving(endpoint, found.model), key), found.model
    if len(settings.endpoints) > 1:
        ways = ", ".join(f"--model {endpoint.name}/{endpoint.model or 'MODEL'}" for endpoint in settings.endpoints)
        raise ConfigError(f"several upstreams are configured; name the one to measure and its model: {ways}")
    return _with_key(next(iter(settings.endpoints)), key), ""


def only_model(endpoint: Endpoint, names: Sequence[str]) -> str:
    """Return the one model that an upstream lists; raise `ConfigError` for none and for several."""
    if len(names) == 1:
        return names[0]
    if not names:
        raise ConfigError(f"the upstream {endpoint.name!r} does not list its models; name one with --model")
    shown = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
    raise ConfigError(f"the upstream {endpoint.name!r} has several models; name one with --model: {shown}")


async def _find(settings: Settings, model: str | None, key: str | None, transport: Transport) -> tuple[Endpoint, str]:
    """Return whom to ask and under which name."""
    endpoint, name = pick_endpoint(settings, model, key)
    return endpoint, name or only_model(endpoint, await _listed(endpoint, transport))


def _serving(endpoint: Endpoint, model: str) -> Endpoint:
    """Return the endpoint at the address that serves a model."""
    return msgspec.structs.replace(endpoint, base_url=address_for(endpoint.base_url, model))


def _with_key(endpoint: Endpoint, key: str | None) -> Endpoint:
    return endpoint if key is None else msgspec.structs.replace(endpoint, api_key=key)


async def _listed(endpoint: Endpoint, transport: Transport) -> Sequence[str]:
    """Return the models an upstream lists, none where it does not; raise `ConfigError` for one that is down."""
    try:
        return (await ask_models(endpoint, transport, seconds=_LISTING_SECONDS)).models or ()
    except UpstreamUnavailable as error:
        raise ConfigError(
            f"the upstream {endpoint.name!r} cannot be asked for its models: {error.message}; start it, or correct its "
            "address (one that lists no models is measured with --model NAME)"
        ) from None
    except MustcallError:
        return ()
