"""`mustcall doctor`: everything the gateway needs, each with a tick or the fix."""

import asyncio
import sys
from pathlib import Path

import click

from mustcall.cli.printing import print_json, print_line
from mustcall.cli.setup.naming import UPSTREAM
from mustcall.gateway.config.checkup import Check, CheckState, CheckupRequest, examine
from mustcall.upstream.http import HttpTransport

__all__ = ["command"]

_SIGNS = {CheckState.OK: "✓", CheckState.NOTE: "-", CheckState.WARNING: "!", CheckState.FAILED: "✗"}
_PLAIN_SIGNS = {CheckState.OK: "ok", CheckState.NOTE: "--", CheckState.WARNING: "!!", CheckState.FAILED: "XX"}
_COLOURS = {CheckState.OK: "green", CheckState.NOTE: None, CheckState.WARNING: "yellow", CheckState.FAILED: "red"}


@click.command(name="doctor", short_help="Check this machine, the configuration and the upstreams.")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to read.  [default: $MUSTCALL_CONFIG, else mustcall.toml]",
)
@click.option("--upstream", "upstreams", multiple=True, type=UPSTREAM, help="An upstream, as for `serve`.")
@click.option("--ledger", metavar="PATH|URL|off", help="The database, as for `serve`.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port, as for `serve`.")
@click.option(
    "--timeout",
    "seconds",
    type=click.FloatRange(0.1),
    default=5.0,
    show_default=True,
    help="Seconds for each answer.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    *,
    file: Path | None,
    upstreams: tuple[str, ...],
    ledger: str | None,
    port: int | None,
    seconds: float,
    as_json: bool,
) -> None:
    """Check Python, the engine, model files, the configuration, the port, the database and every upstream.

    Each upstream is asked for its list of models, once. No key is shown. Nothing is written, but the tables of a
    database that is there are brought up to date, as `serve` does.

    Exit codes: 0 the gateway can serve; 1 something stops it; 2 the command cannot be carried out as given.
    """
    asked = CheckupRequest(file=file, upstreams=upstreams, ledger=ledger, port=port, seconds=seconds)
    checks = asyncio.run(_examine(asked))
    failed = any(check.state is CheckState.FAILED for check in checks)
    if as_json:
        print_json({"ok": not failed, "checks": checks})
    else:
        _show(checks)
        click.echo("something stops mustcall from serving" if failed else "mustcall can serve")
    sys.exit(1 if failed else 0)


async def _examine(asked: CheckupRequest) -> list[Check]:
    transport = HttpTransport()
    try:
        return await examine(asked, transport)
    finally:
        await transport.close()


def _show(checks: list[Check]) -> None:
    signs = _SIGNS if _can_show("✓✗") else _PLAIN_SIGNS
    width = max(len(check.name) for check in checks)
    for check in checks:
        hang = len(signs[check.state]) + width + 3
        sign = click.style(signs[check.state], fg=_COLOURS[check.state])
        print_line(f"{sign} {check.name:<{width}}  {check.found}", hang=hang)
        if check.fix:
            print_line(f"{' ' * hang}fix: {check.fix}", hang=hang + 5)


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
