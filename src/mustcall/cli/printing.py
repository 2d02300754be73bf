"""Standard output: lines that fit the terminal, and JSON, on one line or indented, that does nothing to a terminal."""

import re
from typing import Any

import click
import msgspec

__all__ = ["as_json", "json_option", "print_json", "print_line"]

#: What JSON may hold as it is, but a terminal acts upon: DEL, the second set of control characters, line separators
#: and overrides of the direction of text. The first set is always escaped in JSON.
_ACTS = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def as_json(value: Any, *, indent: int = -1) -> str:
    """Return a value as JSON; characters that a terminal acts upon are escaped, so that the value stays the same."""
    encoded = msgspec.json.encode(value)
    if indent >= 0:
        encoded = msgspec.json.format(encoded, indent=indent)
    return _ACTS.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded.decode())


def print_json(value: Any, *, indent: int = -1) -> None:
    """Print a value as JSON."""
    click.echo(as_json(value, indent=indent))


def print_line(line: str, *, hang: int = 0) -> None:
    """Print a line, in a terminal broken between words where it does not fit; what follows is indented by `hang`."""
    from rich.console import Console  # noqa: PLC0415  `--help` and JSON need no rich

    from mustcall.cli.wrapping import fold  # noqa: PLC0415  as above

    screen = Console(highlight=False)
    click.echo(fold(line, screen.width if screen.is_terminal else 0, hang))
