"""The command line: commands and nothing else; the work is done below.

Commands are imported when they are called, so that `--help` answers at once.
"""

import sys
from collections.abc import Sequence
from typing import Any

import click

from mustcall import __version__
from mustcall.cli.groups import LazyGroup
from mustcall.cli.streams import guarded_output, open_streams
from mustcall.core.errors import MustcallError

__all__ = ["main"]

#: Every command, the module that has it (as `command`), and its line in `--help`.
COMMANDS = {
    "init": ("mustcall.cli.setup.init", "Find an upstream and write mustcall.toml."),
    "serve": ("mustcall.cli.setup.serve", "Run the gateway."),
    "chat": ("mustcall.cli.asking.chat", "Talk to a model that has tools."),
    "run": ("mustcall.cli.asking.run", "Ask one question and print the answer."),
    "coordinate": ("mustcall.cli.asking.coordinate", "Let several models answer a question together."),
    "models": ("mustcall.cli.setup.models", "Fetch and keep the embedded model's weights."),
    "turns": ("mustcall.cli.inspecting.turns", "List, show, follow and export the turns of the gateway."),
    "replay": ("mustcall.cli.inspecting.replay", "Send a recorded request again, bare and through mustcall."),
    "minimise": ("mustcall.cli.inspecting.minimise", "Find the smallest request that fails in the same way."),
    "runs": ("mustcall.cli.inspecting.runs", "List, show, resume and cancel durable runs."),
    "worker": ("mustcall.cli.asking.worker", "Carry out queued runs, with others."),
    "ledger": ("mustcall.cli.inspecting.ledger", "Check, prune, export and import what is kept."),
    "probe": ("mustcall.cli.measuring.probe", "Measure what an endpoint really does."),
    "profiles": ("mustcall.cli.inspecting.profiles", "Show or forget what was learnt about models."),
    "doctor": ("mustcall.cli.setup.doctor", "Check this machine, the configuration and the upstreams."),
    "config": ("mustcall.cli.setup.config", "Check the configuration."),
    "explain": ("mustcall.cli.inspecting.explain", "Print the plan for a request, without sending it."),
    "parse": ("mustcall.cli.inspecting.parse", "Find tool calls written as text."),
    "demo": ("mustcall.cli.measuring.demo", "Measure a model with and without mustcall."),
    "eval": ("mustcall.cli.measuring.eval", "Measure a model on a suite, with and without mustcall."),
    "bench": ("mustcall.cli.measuring.bench", "Measure what the gateway costs here."),
    "dialects": ("mustcall.cli.inspecting.dialects", "List the ways models write tool calls as text."),
    "completion": ("mustcall.cli.setup.completion", "Print the completion script for a shell."),
}


#: The exit code of a command that was stopped: 128 and the number of SIGINT, as shells have it.
_STOPPED = 130


class _Commands(LazyGroup):
    table = COMMANDS

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. One that Ctrl-C ends, also at a question, says so; click's own exit code means other things.

        The end of the input at a question counts as well. A command that reports what it has so far does so itself.
        """
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            click.echo(err=True)  # the line holds ^C or a question
            click.echo("mustcall: stopped", err=True)
            ctx.exit(_STOPPED)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mustcall")
@click.pass_context
def cli(context: click.Context) -> None:
    """Tool calls you can rely on, from any model."""
    from mustcall.core.memo import Caches, owned  # noqa: PLC0415  not for `--help`

    context.with_resource(owned(Caches()))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; our own errors and lost output are one line on stderr and exit code 2."""
    open_streams()
    try:
        with guarded_output():
            cli.main(args=list(arguments) if arguments is not None else None, prog_name="mustcall")
    except MustcallError as error:
        click.echo(f"mustcall: {error.message}", err=True)
        sys.exit(2)
