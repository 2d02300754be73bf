"""Prints sentences that may be long: wrapped at the width of the terminal, 80 columns where there is none."""

import shutil
import textwrap

import click

__all__ = ["tell"]

_USUAL = (80, 24)


def tell(text: str, *, err: bool = False) -> None:
    """Print one line, on several where it does not fit; what follows stands further in. No word is broken."""
    indent = " " * (len(text) - len(text.lstrip()))
    lines = textwrap.wrap(
        text,
        shutil.get_terminal_size(_USUAL).columns,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in lines or [""]:
        click.echo(line, err=err)
