"""Groups of commands that answer a word they do not know with the command that was meant; wrong input of a command."""

from collections.abc import Mapping
from importlib import import_module
from typing import IO, Any

import click
from click.shell_completion import CompletionItem

from mustcall.core.text.nearest import nearest

__all__ = ["Group", "LazyGroup", "WrongInput"]


class WrongInput(click.ClickException):
    """What a command was given to read cannot be read: one line, and the exit code of every mistake in the input."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line as those of our own errors are."""
        click.echo(f"mustcall: {self.format_message()}", file=file, err=True)


class Group(click.Group):
    """A group that suggests. Whatever version of click is installed, the sentence is the same."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named; for an unknown one, say which was meant."""
        word = args[0]
        if self.get_command(ctx, word) is None and not ctx.resilient_parsing and not word.startswith("-"):
            meant = nearest(word, self.list_commands(ctx))
            ctx.fail(f"No such command {word!r}." + (f" Did you mean {meant!r}?" if meant is not None else ""))
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """A group that knows its commands by name and imports one only to run it or to show its own help."""

    #: Every command, the module that has it (as `command`), and its line in `--help`.
    table: Mapping[str, tuple[str, str]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """Return every name."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  click's signature
        """Import the command of this name; None where there is none."""
        entry = self.table.get(cmd_name)
        return import_module(entry[0]).command if entry else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  click's
        """Write the commands' lines."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin so, without importing them: a shell asks at every key."""
        found = [
            CompletionItem(name, help=line) for name, (_, line) in self.table.items() if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]
