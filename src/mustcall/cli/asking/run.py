"""`mustcall run`: one question, one answer. The answer goes to standard output, everything else to standard error."""

import contextlib
import sys
from typing import Any

import click
from rich.console import Console

from mustcall.cli.asking.screen import Screen
from mustcall.cli.asking.session import Session, flags_from, opened, session_options
from mustcall.cli.printing import print_json
from mustcall.core.errors import ConfigError
from mustcall.engine.agent.events import TextDelta
from mustcall.engine.run_records.results import RunResult, Stopped
from mustcall.toolkit.builtin.files import plain
from mustcall.toolkit.summary import run_as_json

__all__ = ["command"]

#: How a run's end is told to the shell. 2 is for what the caller must mend, as with every command.
_CODES = {Stopped.FAILED: 1, Stopped.CANCELLED: 130, Stopped.LENGTH: 4, Stopped.REFUSED: 4, Stopped.FILTERED: 4}
_UNMET = 3
_ANY = "any"


@click.command(name="run")
@click.argument("question")
@session_options
@click.option("--force", metavar="NAME", help="The tool that must be called; `any` for any of them.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: answer, calls, attempts, usage.")
@click.option("--quiet", "-q", is_flag=True, help="Show nothing on standard error but errors.")
def command(question: str, *, force: str | None, as_json: bool, quiet: bool, **given: Any) -> None:
    """Ask QUESTION (`-` reads it from standard input), let the model use its tools, and print the answer.

    Exit codes: 0 answered; 1 the upstream or the model failed; 2 the command cannot be carried out as given;
    3 answered, but the tool of --force was not called; 4 the answer was cut off, declined or filtered; 130 Ctrl-C.
    """
    text = sys.stdin.read() if question == "-" else question
    if not text.strip():
        raise ConfigError("the question is empty")
    try:
        with opened(flags_from(given)) as session:
            streams = sys.stdout.isatty() and not as_json
            result, said = _ask(session, text, force, quiet=quiet, streams=streams)
            shown = run_as_json(
                result,
                session.kit.reports,
                model=session.conversation.model,
                upstream=session.conversation.upstream.endpoint.name,
            )
    except KeyboardInterrupt:
        click.echo("mustcall: stopped", err=True)
        sys.exit(_CODES[Stopped.CANCELLED])
    if as_json:
        print_json(shown)
    elif result.error is None and not (said and said.endswith(result.text)):
        click.echo(plain(result.text, keep="\n\t") if sys.stdout.isatty() else result.text)
    sys.exit(_code(result, demanded=force is not None))


def _ask(
    session: Session, question: str, force: str | None, *, quiet: bool, streams: bool
) -> tuple[RunResult[Any], str]:
    """Ask, and show how it goes on standard error; where it `streams`, the answer on standard output as it comes.

    Return the result and what of the answer was shown.
    """
    answers = Console(highlight=False) if streams else None
    screen = Screen(Console(stderr=True, highlight=False), session.kit.reports, words=streams, answers=answers)
    demand: bool | str | None = True if force == _ANY else force
    names = [tool.name for tool in session.kit.tools]
    if force is not None and force not in (_ANY, *names):
        raise ConfigError(f"--force {force!r} is not one of the tools: {', '.join(names)}, or {_ANY}")
    if not quiet:
        for line in session.notes:
            screen.note(f"note: {line}")
        screen.wait(session.conversation.upstream.endpoint.base_url)
    events = session.background.iterate(session.conversation.ask(question, force=demand))
    try:
        with contextlib.closing(events):
            for event in events:
                if not quiet or (streams and isinstance(event, TextDelta)):
                    screen.show(event)
    finally:
        screen.settle()
    result = session.conversation.last
    assert result is not None  # a question was asked
    if quiet and result.error is not None:
        screen.fail(result.error)
    return result, screen.said


def _code(result: RunResult[Any], *, demanded: bool) -> int:
    code = _CODES.get(result.stopped, 0)
    return _UNMET if code == 0 and demanded and result.force_satisfied is False else code
