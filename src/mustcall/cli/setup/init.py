"""`mustcall init`: finds an upstream or asks for one, writes mustcall.toml, and prints the lines for each client.

It asks only people: without a terminal, or with --yes, the first thing that was found is taken, and a line says which.
"""

import os
import sys
from pathlib import Path

import click

from mustcall.cli.setup.naming import UPSTREAM
from mustcall.cli.setup.offering import (
    PLACEHOLDER,
    REPLACE,
    Offer,
    choose_offer,
    find_offers,
    only_listed,
    read_ports,
)
from mustcall.cli.writing import written
from mustcall.core.errors import ConfigError
from mustcall.gateway.config.client_setup import client_lines
from mustcall.gateway.config.first_config import FirstUpstream, compose, plan_upstreams
from mustcall.gateway.config.settings import DEFAULT_FILE, ServerSettings
from mustcall.upstream.address import read_address
from mustcall.upstream.embedded.engine import engine_problem
from mustcall.upstream.embedded.store import locate
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.providers import EMBEDDED, local_providers

__all__ = ["command"]

#: How somebody says that callers name the model.
_CALLERS = "-"


@click.command(name="init", short_help="Find an upstream and write mustcall.toml.")
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    type=UPSTREAM,
    help="What to write down: openai:gpt-5, ollama:qwen3, chat=http://127.0.0.1:9000/v1. May be repeated.  "
    "[default: look for one, and ask]",
)
@click.option("--model", "-m", help="The model every request is for, whatever name callers use.")
@click.option("--key-env", metavar="NAME", help="The environment variable that holds the upstream's key.")
@click.option("--host", default=ServerSettings().host, show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=ServerSettings().port, show_default=True, help="The port."
)
@click.option(
    "--out",
    "-o",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_FILE,
    show_default=True,
    help="The file to write.",
)
@click.option(
    "--ports",
    callback=read_ports,
    default=",".join(str(provider.port) for provider in local_providers()),
    show_default=True,
    help="Where to look for model servers on this machine.",
)
@click.option("--yes", "-y", is_flag=True, help="Ask nothing: take what is found first.")
@click.option("--force", "-f", is_flag=True, help="Replace the file if it is there.")
@click.option("--dry-run", is_flag=True, help="Print the file instead of writing it.")
def command(
    *,
    upstreams: tuple[str, ...],
    model: str | None,
    key_env: str | None,
    host: str,
    port: int,
    file: Path,
    ports: tuple[int, ...],
    yes: bool,
    force: bool,
    dry_run: bool,
) -> None:
    """Write a commented mustcall.toml, and print how clients are pointed at the gateway.

    Without --upstream, model servers are looked for on the usual ports of this machine (vLLM, llama.cpp, SGLang,
    LiteLLM, LM Studio, Ollama), then keys of providers in the environment; with a terminal you are asked which.
    """
    asks = not yes and sys.stdin.isatty()
    if not dry_run:
        _check_place(file, force=force, asks=asks)
    if not upstreams:
        offers = find_offers(ports)
        chosen = choose_offer(offers) if asks else offers[0]
        if not asks:
            click.echo(f"using {chosen.shown}")
        upstreams = (_with_model(chosen, model, asks=asks),)
    elif model is not None:
        if len(upstreams) > 1:
            raise click.UsageError("--model is for one upstream; write the others' as PROVIDER:MODEL or …#MODEL")
        upstreams = tuple(_named(upstream, model) for upstream in upstreams)
    planned = plan_upstreams(upstreams, os.environ, key_env=key_env)
    text = compose(planned, ServerSettings(host=host, port=port))
    if dry_run:
        click.echo(text, nl=False)
        return
    with written(file) as part:
        part.write_text(text, encoding="utf-8")
    _report(file, planned, host, port)


def _check_place(file: Path, *, force: bool, asks: bool) -> None:
    """Raise unless the file may be written."""
    if not file.absolute().parent.is_dir():
        raise ConfigError(f"cannot write {file}: there is no directory {file.absolute().parent}")
    if not file.exists() or force:
        return
    if asks and click.confirm(f"{file} is there already. Replace it?", default=False):
        return
    raise ConfigError(f"{file} is there already and was left as it is; --force replaces it, --out writes another file")


# --- choosing -----------------------------------------------------------------------------------------------------


def _with_model(chosen: Offer, model: str | None, *, asks: bool) -> str:
    """Return the address with the model every request is for, if there is to be one."""
    address = read_address(chosen.address)
    if model is None and (address.model or address.provider is EMBEDDED):
        return chosen.address
    if model is None:
        model = chosen.models[0] if len(chosen.models) == 1 else _CALLERS
        if asks:
            said = click.prompt(f"Model for every request ({_CALLERS}: callers name it)", default=model)
            model = str(said).strip()
    return chosen.address if model == _CALLERS else _named(chosen.address, model)


def _named(address: str, model: str) -> str:
    """Return an address with this model in place of any it has."""
    read = read_address(address)
    if read.provider is not None:
        return f"{read.provider.name}:{model}"
    return f"{address.partition('#')[0]}#{model}"


# --- what to do next ----------------------------------------------------------------------------------------------


def _report(file: Path, planned: tuple[FirstUpstream, ...], host: str, port: int) -> None:
    click.echo(f"wrote {file}")
    for upstream in planned:
        model = f", model {upstream.model}" if upstream.model else ""
        click.echo(f"  upstream {upstream.name}: {upstream.wire} at {upstream.base_url}{model}")
        if upstream.key_env is not None and not os.environ.get(upstream.key_env, "").strip():
            click.echo(f"  note: {upstream.key_env} is not set; set it before you serve", err=True)
        problem = _missing(upstream)
        if problem is not None:
            click.echo(f"  note: {problem}", err=True)
    named = "" if file == Path(DEFAULT_FILE) else f" --config {file}"
    click.echo(f"serve it:  mustcall serve{named}")
    click.echo(f"check it:  mustcall doctor{named}")
    model = _shown_model(planned)
    if model == PLACEHOLDER:
        click.echo(f"\n{REPLACE}:")
    reached = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host  # noqa: S104  read, not bound
    for client in client_lines(f"http://{reached}:{port}", model):
        click.echo(f"\n{client.name}" + (f", in {client.where}" if client.where else ""))
        click.echo("\n".join(f"  {line}".rstrip() for line in client.text.splitlines()))


def _shown_model(planned: tuple[FirstUpstream, ...]) -> str:
    """Return the model's name for the lines of clients: a written one, or that of a server that has only one."""
    known = next((upstream.model for upstream in planned if upstream.model), "")
    first = planned[0]
    if known or first.is_embedded:
        return known or "local"
    if len(planned) > 1 or first.key_env is not None:
        return PLACEHOLDER
    return only_listed(Endpoint(name=first.name, wire=first.wire, base_url=first.base_url)) or PLACEHOLDER


def _missing(upstream: FirstUpstream) -> str | None:
    """Return what a model in the process still needs."""
    if not upstream.is_embedded:
        return None
    problem = engine_problem()
    if problem is not None:
        return problem
    try:
        locate(upstream.base_url.removeprefix(EMBEDDED.base_url))
    except ConfigError as error:
        return error.message
    return None
