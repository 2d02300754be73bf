"""`mustcall serve`: the gateway, from a file, from flags, or on a scripted demo upstream."""

import contextlib
import logging
from collections.abc import Generator
from pathlib import Path

import click
from click.core import ParameterSource

from mustcall.gateway.server import bind, serve
from mustcall.gateway.settings import Settings, load_settings

__all__ = ["command"]

_CURL = """\
  curl -s {url}/v1/chat/completions -H 'content-type: application/json' -d '{body}'
"""
_DEMO_BODY = (
    '{"model":"demo","messages":[{"role":"user","content":"What is the weather in Oslo?"}],'
    '"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object",'
    '"properties":{"city":{"type":"string"}},"required":["city"]}}}],"tool_choice":"required"}'
)


@click.command(name="serve")
@click.option("--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="The file to read.")
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="[NAME:]WIRE=URL",
    help="An upstream, without a file: chat=http://127.0.0.1:9000/v1. May be repeated.",
)
@click.option("--host", help="The address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 takes a free one.  [default: 8484]")
@click.option("--demo", is_flag=True, help="Serve a scripted upstream that needs no model and no key.")
@click.pass_context
def command(
    ctx: click.Context, file: Path | None, upstreams: tuple[str, ...], host: str | None, port: int | None, *, demo: bool
) -> None:
    """Run the gateway: Chat Completions, Responses and Messages in, any of them out.

    Point an agent's base URL at it (OpenAI clients: http://HOST:PORT/v1, Anthropic clients: http://HOST:PORT).
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    with _demo_upstream() if demo else contextlib.nullcontext(upstreams) as flags:
        settings = load_settings(file, upstream_flags=flags, host=host, port=port)
        chosen = ctx.get_parameter_source("port") is not ParameterSource.DEFAULT
        listener = bind(settings.server, or_any_port=not chosen)
        address, bound = listener.getsockname()[:2]
        url = f"http://[{address}]:{bound}" if ":" in address else f"http://{address}:{bound}"
        with listener:
            serve(settings, listener, lambda: _announce(url, settings, demo=demo))


@contextlib.contextmanager
def _demo_upstream() -> Generator[tuple[str, ...]]:
    from mustcall.testing import ScriptedUpstream, demo_turn  # noqa: PLC0415  only the demo needs it

    with ScriptedUpstream(demo_turn) as upstream:
        yield (f"demo:chat={upstream.base_url}",)


def _announce(url: str, settings: Settings, *, demo: bool) -> None:
    click.echo(f"mustcall listens on {url}")
    for endpoint in settings.endpoints:
        click.echo(f"  upstream {endpoint.name}: {endpoint.wire} at {endpoint.base_url}")
    click.echo("Try it:")
    body = _DEMO_BODY if demo else '{"model":"MODEL","messages":[{"role":"user","content":"Hello"}]}'
    click.echo(_CURL.format(url=url, body=body), nl=False)
    click.echo("Ctrl-C stops it.")
