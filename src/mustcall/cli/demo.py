"""`mustcall demo`: the same prompts with and without mustcall, on any upstream, and what came of it."""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from mustcall import __version__
from mustcall.core.errors import ConfigError, MustcallError
from mustcall.engine.turns import Turns
from mustcall.evals.figures import add_up
from mustcall.evals.page import write_page
from mustcall.evals.picture import check_drawable, draw_picture
from mustcall.evals.prompts import Prompt, choose_prompts
from mustcall.evals.results import Circumstances, Pair, Run, Sampling, Arm, Trial
from mustcall.evals.runner import Subject, compare, warm_up
from mustcall.gateway.settings import Settings, load_settings
from mustcall.policy.routing import choose
from mustcall.upstream.embedded.store import SCHEME
from mustcall.upstream.endpoint import Endpoint, request_headers
from mustcall.upstream.retry import SystemClock
from mustcall.upstream.schemes import SchemeTransport
from mustcall.upstream.seam import Transport, UpstreamCall

__all__ = ["command"]

_INTERRUPTED = 130
#: The longest reply, in tokens. A call takes a tenth of the smaller one; a small model's prose would take minutes.
_LONGEST = 1024
_LONGEST_EMBEDDED = 256
_LISTING_SECONDS = 10.0
_MOST_NAMES = 10
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(name="demo", short_help="Measure a model with and without mustcall.")
@click.option("--config", "file", type=_FILE, help="The file to read.  [default: $MUSTCALL_CONFIG, else mustcall.toml]")
@click.option("--upstream", metavar="[NAME:]WIRE=URL", help="The upstream to measure: chat=http://127.0.0.1:9000/v1.")
@click.option(
    "--gguf", type=click.Path(path_type=Path, dir_okay=False), help="The file of an embedded model to measure."
)
@click.option("--model", help="The model's name; needed where the upstream lists several.")
@click.option("--key-env", metavar="NAME", help="The environment variable that holds the upstream's key.")
@click.option("--prompts", "count", type=int, metavar="N", help="Ask only so many of the 40 prompts.")
@click.option("--seed", type=int, help="Shuffle the prompts; the same number gives the same order.")
@click.option("--temperature", default="0", show_default=True, help="A number, or `server` to leave it to the server.")
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    help=f"The longest reply.  [default: {_LONGEST}; {_LONGEST_EMBEDDED} from an embedded model]",
)
@click.option("--html", "page", type=_FILE, help="Write the report as a page that needs no other file.")
@click.option("--png", "picture", type=_FILE, help="Write the chart as a picture.")
@click.option("--json", "data", type=_FILE, help="Write everything that was measured.")
def command(
    *,
    file: Path | None,
    upstream: str | None,
    gguf: Path | None,
    model: str | None,
    key_env: str | None,
    count: int | None,
    seed: int | None,
    temperature: str,
    max_tokens: int | None,
    page: Path | None,
    picture: Path | None,
    data: Path | None,
) -> None:
    """Ask a model the same questions with and without mustcall, and compare.

    Each prompt wants one tool call. It is sent twice: to the upstream as it is, and through mustcall. The report says
    how many replies were a valid call, of the right tool, with the right arguments, and what it cost. Without an
    upstream the embedded model is measured. Ctrl-C stops and reports what was measured so far.
    """
    logging.getLogger("mustcall").addHandler(logging.NullHandler())  # what fails is in the report
    prompts = choose_prompts(count, seed)
    _check_files(page, picture, data)
    settings = _settings(file, upstream, gguf)
    sampling = Sampling(
        max_tokens=max_tokens or (_LONGEST_EMBEDDED if _is_embedded(settings) else _LONGEST),
        temperature=_temperature(temperature),
    )
    run = _measure(settings, model, _key(key_env), prompts=prompts, sampling=sampling, seed=seed)
    if run is None:
        click.echo("mustcall: stopped before anything was measured", err=True)
        sys.exit(_INTERRUPTED)
    _report(run, page, picture, data)
    if run.partial:
        sys.exit(_INTERRUPTED)


def _check_files(page: Path | None, picture: Path | None, data: Path | None) -> None:
    """Raise now what would be raised after minutes of measuring."""
    if picture is not None:
        check_drawable()
    for path in (page, picture, data):
        if path is not None and not path.absolute().parent.is_dir():
            raise ConfigError(f"cannot write {path}: there is no directory {path.absolute().parent}")


def _settings(file: Path | None, upstream: str | None, gguf: Path | None) -> Settings:
    """Return the configuration; where none names an upstream, the embedded model is it."""
    if upstream is not None and gguf is not None:
        raise click.UsageError("--gguf is an upstream of its own; leave out --upstream")
    flag = f"local:chat={SCHEME}:{gguf.absolute()}" if gguf is not None else upstream
    return load_settings(file, upstream_flags=[flag] if flag else ())


def _is_embedded(settings: Settings) -> bool:
    return all(endpoint.base_url.startswith(f"{SCHEME}:") for endpoint in settings.endpoints)


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


def _key(name: str | None) -> str | None:
    if name is None:
        return None
    key = os.environ.get(name, "").strip()
    if not key:
        raise ConfigError(f"the environment variable {name} (--key-env) is not set")
    return key


def _measure(
    settings: Settings,
    model: str | None,
    key: str | None,
    *,
    prompts: tuple[Prompt, ...],
    sampling: Sampling,
    seed: int | None,
) -> Run | None:
    """Run to the end or until Ctrl-C; None if nothing was measured."""
    from mustcall.cli.demo_screen import progress_bar  # noqa: PLC0415  `--help` needs no rich

    circumstances: Circumstances | None = None
    pairs: list[Pair] = []

    async def measure(note: Callable[[Arm, Trial], None]) -> None:
        nonlocal circumstances
        transport, clock = SchemeTransport(), SystemClock()
        try:
            endpoint, name = await _subject(settings, model, key, transport)
            circumstances = Circumstances(
                model=name,
                upstream=endpoint.name,
                wire=endpoint.wire,
                address=endpoint.base_url,
                version=__version__,
                started=datetime.now(UTC).isoformat(timespec="seconds"),
                planned=len(prompts),
                sampling=sampling,
                seed=seed,
            )
            subject = Subject(
                endpoint=endpoint,
                model=name,
                turns=Turns(transport, clock, settings.house),
                transport=transport,
                clock=clock,
                sampling=sampling,
                patience=settings.server.request_timeout,
            )
            await warm_up(subject)
            async with contextlib.aclosing(compare(subject, prompts, note)) as compared:
                async for pair in compared:
                    pairs.append(pair)  # noqa: PERF401  Ctrl-C must find what is there
        finally:
            await transport.close()

    with contextlib.suppress(KeyboardInterrupt), progress_bar(len(prompts)) as note:
        asyncio.run(measure(note))
    if circumstances is None or not pairs:
        return None
    return Run(circumstances=circumstances, pairs=tuple(pairs))


async def _subject(
    settings: Settings, model: str | None, key: str | None, transport: Transport
) -> tuple[Endpoint, str]:
    """Return whom to ask and under which name."""
    if model is not None:
        wire = next(endpoint.wire for endpoint in settings.endpoints)
        found = choose(model, wire, settings.routes, settings.doors)
        endpoint = next(one for one in settings.endpoints if one.name == found.upstream)
        return _with_key(endpoint, key), found.model
    if len(settings.endpoints) > 1:
        names = ", ".join(endpoint.name for endpoint in settings.endpoints)
        raise ConfigError(f"several upstreams are configured ({names}); say which model to measure with --model")
    endpoint = _with_key(next(iter(settings.endpoints)), key)
    names = await _listed(endpoint, transport)
    if len(names) == 1:
        return endpoint, names[0]
    if not names:
        raise ConfigError(f"the upstream {endpoint.name!r} does not list its models; name one with --model")
    shown = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
    raise ConfigError(f"the upstream {endpoint.name!r} has several models; name one with --model: {shown}")


def _with_key(endpoint: Endpoint, key: str | None) -> Endpoint:
    return endpoint if key is None else msgspec.structs.replace(endpoint, api_key=key)


class _Listed(msgspec.Struct):
    id: str


class _Listing(msgspec.Struct):
    data: list[_Listed]


async def _listed(endpoint: Endpoint, transport: Transport) -> list[str]:
    """Return the models an upstream lists; one that cannot be asked lists none."""
    call = UpstreamCall(
        url=f"{endpoint.base_url}/models",
        method="GET",
        headers=request_headers(endpoint, {}, same_wire=True, stream=False),
        body=None,
        timeouts=endpoint.timeouts,
    )
    try:
        async with asyncio.timeout(_LISTING_SECONDS):
            reply = await transport.send(call)
            try:
                body = await reply.read()
            finally:
                await reply.close()
        return [listed.id for listed in msgspec.json.decode(body, type=_Listing).data]
    except (MustcallError, TimeoutError, msgspec.DecodeError, ValueError, RecursionError):
        return []


def _report(run: Run, page: Path | None, picture: Path | None, data: Path | None) -> None:
    """Write the files that were asked for, then print the figures: a reader who stops reading loses no file."""
    from mustcall.cli.demo_screen import print_report  # noqa: PLC0415  `--help` needs no rich

    try:
        if data is not None:
            measured = msgspec.json.encode({"run": run, "figures": add_up(run)})
            data.write_bytes(msgspec.json.format(measured, indent=2) + b"\n")
        if page is not None:
            page.write_text(write_page(run), encoding="utf-8")
        if picture is not None:
            draw_picture(run, picture)
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename}: {error.strerror}") from None
    if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
        reconfigure(errors="replace")  # a terminal that lacks a character gets a question mark, not an error
    print_report(run)
    for path in (page, picture, data):
        if path is not None:
            click.echo(f"wrote {path}")
