"""`mustcall coordinate`: one question, several models. The answer alone goes to standard output."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from mustcall.cli.asking.panel_screen import PanelScreen
from mustcall.cli.asking.session import Flags, connector, first_model, quiet, settings_of, with_key
from mustcall.cli.printing import print_json
from mustcall.cli.setup.naming import UPSTREAM
from mustcall.core.errors import ConfigError
from mustcall.engine.agent.options import Options
from mustcall.engine.agent.upstream import Upstream
from mustcall.engine.coordinating.coordinate import coordinate
from mustcall.engine.coordinating.events import OnEvent
from mustcall.engine.coordinating.results import CoordinateResult
from mustcall.engine.spending.budget_account import Budget
from mustcall.engine.tooling.definition import FunctionTool
from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.config.settings import Settings, load_settings
from mustcall.toolkit.builtin.fetch import Fetcher, fetch_tool
from mustcall.toolkit.builtin.files import plain
from mustcall.toolkit.builtin.offer import builtin_tools
from mustcall.toolkit.builtin.roots import Roots
from mustcall.toolkit.builtin.verify import Verifier, verify_tool
from mustcall.toolkit.coordination import coordination_as_json, coordination_lines
from mustcall.upstream.address import is_address
from mustcall.upstream.schemes import SchemeTransport
from mustcall.upstream.seam import Transport

__all__ = ["command"]

#: How many critics there are if none is named.
_CRITICS = 2
#: The built-in tools that see nothing of the machine.
_HARMLESS = ("calculator", "current_time")
_FILE = click.Path(path_type=Path, dir_okay=False)


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The options that say who is asked and how."""

    proposer: str | None
    critics: tuple[str, ...]
    synthesizer: str | None
    verifier: str | None
    worker_tools: tuple[str, ...]
    allow: tuple[str, ...]
    hops: int | None
    rounds: int
    quorum: int
    session: str | None
    max_tokens: int | None
    max_cost: float

    def budget(self, operator: OperatorSettings) -> Budget:
        """Return what may be spent: the configured budget, lowered by what was asked for."""
        budget = operator.budget or Budget()
        if not self.max_cost:
            return budget
        most = min(self.max_cost, budget.caps.cost_usd or self.max_cost)
        return msgspec.structs.replace(budget, caps=msgspec.structs.replace(budget.caps, cost_usd=most))


@click.command(name="coordinate")
@click.argument("question")
@click.option("--proposer", metavar="MODEL", help="Who proposes an answer.  [default: the first model listed]")
@click.option(
    "--critic", "critics", multiple=True, metavar="MODEL", help="Who checks it. May be repeated.  [default: 2]"
)
@click.option("--synthesizer", metavar="MODEL", help="Who concludes.  [default: as the proposer]")
@click.option("--verifier", metavar="MODEL", help="Who checks claims for `verify`.  [default: as the synthesizer]")
@click.option(
    "--worker-tool",
    "worker_tools",
    multiple=True,
    metavar="NAME",
    help="A tool for proposer and critics: fetch, verify, calculator or current_time. May be repeated.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="PREFIX",
    help="What `fetch` may read: [https://]host[:port][/path], *.host. May be repeated.  [default: nothing]",
)
@click.option(
    "--hops", type=click.IntRange(0, 20), help="Tool runs before each answer.  [default: `[contract] hops`, else 2]"
)
@click.option("--rounds", type=click.IntRange(1, 10), default=1, show_default=True, help="Rounds of debate, at most.")
@click.option("--quorum", type=click.IntRange(0), default=1, show_default=True, help="Critics that must answer.")
@click.option("--session", metavar="ID", help="What to call this session.  [default: a new one]")
@click.option("--max-tokens", type=click.IntRange(1), help="Tokens per turn.  [default: the upstream's own limit]")
@click.option("--max-cost", type=click.FloatRange(0), default=0.0, help="US dollars in all, where prices are known.")
@click.option("--upstream", "upstreams", multiple=True, type=UPSTREAM, help="Where models are, as for `run`.")
@click.option("--config", "file", type=_FILE, help="The file to read.  [default: mustcall.toml if it is there]")
@click.option("--gguf", type=_FILE, help="Run this model file in the process.")
@click.option("--key-env", metavar="NAME", help="The environment variable that holds the upstream's key.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: answer, roles, tools, usage.")
@click.option("--quiet", "-q", "silent", is_flag=True, help="Show nothing on standard error but errors.")
def command(question: str, *, as_json: bool, silent: bool, **given: Any) -> None:
    """Let several models answer QUESTION (`-` reads it from standard input) together.

    One proposes, the critics check it side by side, one concludes. A MODEL is a name that the configuration serves, or
    an address with its model: openai:gpt-5, ollama:qwen3, chat=http://127.0.0.1:9000/v1#big. With nothing named, the
    embedded model plays every role.

    Exit codes: 0 answered; 1 a model or an upstream failed; 2 the command cannot be carried out as given; 130 Ctrl-C.
    """
    text = sys.stdin.read() if question == "-" else question
    if not text.strip():
        raise ConfigError("the question is empty")
    flags = Flags(**{name: given.pop(name) for name in ("upstreams", "file", "gguf", "key_env")})
    screen = PanelScreen(Console(stderr=True, highlight=False))
    try:
        with quiet():
            result = _hold(text, _Wanted(**given), flags, screen, silent=silent)
    except KeyboardInterrupt:
        click.echo("mustcall: stopped", err=True)
        sys.exit(130)
    if not silent:
        for line in coordination_lines(result):
            screen.note(line)
    if result.error is not None:
        screen.note(f"mustcall: {result.error.message}", style="red")
    if as_json:
        print_json(coordination_as_json(result))
    elif result.answer is not None:
        click.echo(plain(result.answer, keep="\n\t") if sys.stdout.isatty() else result.answer)
    sys.exit(0 if result.error is None else 1)


def _hold(text: str, wanted: _Wanted, flags: Flags, screen: PanelScreen, *, silent: bool) -> CoordinateResult:
    if silent:
        return asyncio.run(_ask(text, wanted, flags, None))
    with screen:
        return asyncio.run(_ask(text, wanted, flags, screen.show))


async def _ask(question: str, wanted: _Wanted, flags: Flags, on_event: OnEvent | None) -> CoordinateResult:
    transport = SchemeTransport()
    try:
        found = await _found(wanted, flags, transport)
        find = found.find
        proposer = find(wanted.proposer)
        critics = [find(each) for each in wanted.critics] or [proposer] * _CRITICS
        synthesizer = find(wanted.synthesizer) if wanted.synthesizer else proposer
        verifier = find(wanted.verifier) if wanted.verifier else synthesizer
        session = wanted.session or f"ses_{os.urandom(8).hex()}"
        budget = wanted.budget(found.operator)
        return await coordinate(
            question.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
            proposer=proposer,
            critics=critics,
            synthesizer=synthesizer,
            worker_tools=wanted.worker_tools or None,
            allowed=_allowed(wanted.allow, Verifier(verifier, budget=budget, session=session)),
            hop_budget=wanted.hops,
            rounds=wanted.rounds,
            quorum=wanted.quorum,
            session=session,
            budget=budget,
            options=Options(max_tokens=wanted.max_tokens),
            controls=found.operator.controls,
            wording=found.operator.wording,
            on_event=on_event,
            check=False,
        )
    finally:
        await transport.close()


def _allowed(prefixes: tuple[str, ...], verifier: Verifier) -> list[FunctionTool]:
    """Return every tool that can be asked for."""
    harmless = builtin_tools(Roots(base=Path()))
    return [
        fetch_tool(Fetcher(prefixes)),
        verify_tool(verifier),
        *(tool for tool in harmless if tool.name in _HARMLESS),
    ]


class _Found(msgspec.Struct, frozen=True):
    """The function that finds the upstream of a named model, and the operator's settings."""

    find: Callable[[str | None], Upstream]
    operator: OperatorSettings = OperatorSettings()


async def _found(wanted: _Wanted, flags: Flags, transport: Transport) -> _Found:
    """Return what finds upstreams; those of the configuration are looked at only if a name needs them."""
    optional = [each for each in (wanted.synthesizer, wanted.verifier) if each is not None]
    names = [wanted.proposer, *wanted.critics, *optional]
    known: dict[str | None, Upstream] = {}  # one for each name, so that its roles share what refusals teach
    operator = OperatorSettings()
    for name in names:
        if name is not None and name not in known and is_address(name):
            at = load_settings(flags.file, upstream_flags=[name], key_env=flags.key_env)
            known[name], operator = await _at_address(at, flags, transport), at.operator
    if all(name in known for name in names):
        return _Found(lambda name: known[name], operator)
    settings = settings_of(flags)
    connect = connector(settings, transport)
    for name in names:
        if name not in known:
            known[name] = connect(name or await first_model(settings, transport))
    return _Found(lambda name: known[name], settings.operator)


async def _at_address(settings: Settings, flags: Flags, transport: Transport) -> Upstream:
    """Return the upstream of an address; without a model it is the first one listed there."""
    endpoint = with_key(settings.endpoints[0], flags.key_env)
    settings = msgspec.structs.replace(settings, endpoints=(endpoint,))
    return Upstream(endpoint, model=await first_model(settings, transport), transport=transport)
