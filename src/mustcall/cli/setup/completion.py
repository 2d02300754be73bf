"""`mustcall completion`: the script that lets a shell complete commands, options and providers."""

import click
from click.shell_completion import get_completion_class

__all__ = ["command"]

#: Each shell, and the line that loads its script whenever it starts.
_LINES = {
    "bash": 'eval "$(mustcall completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(mustcall completion zsh)"  # in ~/.zshrc, after compinit',
    "fish": "mustcall completion fish | source  # in ~/.config/fish/config.fish",
}
_VARIABLE = "_MUSTCALL_COMPLETE"


@click.command(name="completion", epilog="\b\n" + "\n".join(_LINES.values()))
@click.argument("shell", type=click.Choice(list(_LINES)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL; nothing is installed.

    The line for each shell's own start file:
    """
    root = ctx.find_root().command
    made = get_completion_class(shell)
    assert made is not None  # the choices are click's own shells
    click.echo(made(root, {}, "mustcall", _VARIABLE).source())
