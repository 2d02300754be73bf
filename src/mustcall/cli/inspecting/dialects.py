"""`mustcall dialects`: every format that is read, with an example each, from the same data the scanner uses."""

import click

from mustcall.cli.printing import print_json, print_line
from mustcall.dialects import find_dialect, known
from mustcall.dialects.examples import describe_catalogue, example_of

__all__ = ["command"]


@click.command("dialects", short_help="List the text forms of tool calls.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--markdown", is_flag=True, help="Print the reference page (docs/dialects.md).")
@click.argument("name", required=False)
def command(name: str | None, as_json: bool, markdown: bool) -> None:
    """List the dialects with an example each, or show the one called NAME."""
    if markdown:
        click.echo(describe_catalogue(), nl=False)
        return
    chosen = known() if name is None else (find_dialect(name),)
    if as_json:
        rows = [
            {
                "name": dialect.name,
                "family": dialect.family,
                "standing": str(dialect.standing),
                "models": dialect.models,
                "example": example_of(dialect),
            }
            for dialect in chosen
        ]
        print_json(rows, indent=2)
        return
    for dialect in chosen:
        print_line(f"{dialect.name}  [{dialect.family}, {dialect.standing}]  {dialect.models}", hang=2)
        for line in example_of(dialect).splitlines():
            click.echo(f"    {line}")  # an example is shown as models write it
