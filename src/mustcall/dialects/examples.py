"""One example call, written in every dialect: for `mustcall dialects` and the docs, which are generated from it."""

from mustcall.dialects.catalogue import DIALECTS
from mustcall.dialects.dialect import Dialect, Standing, WrittenCall

__all__ = ["EXAMPLE", "describe_catalogue", "example_of"]

EXAMPLE = WrittenCall("get_weather", {"city": "Paris", "days": 3})
_TEXT_ONLY = WrittenCall("get_weather", {"city": "Paris"})

_STANDINGS = {
    Standing.AUTO: "always looked for",
    Standing.REPLY: "looked for where it is the whole reply, and everywhere where loose formats are allowed",
    Standing.LOOSE: "only where loose formats are allowed",
    Standing.NAMED: "only when named",
}


def example_of(dialect: Dialect) -> str:
    """Return the example call in this dialect (without its number where the format has only strings)."""
    return dialect.render([_TEXT_ONLY if dialect.name == "vcp" else EXAMPLE])


def describe_catalogue() -> str:
    """Return the reference page of all dialects as Markdown."""
    parts = [
        "# The dialects",
        "<!-- Generated from the catalogue by `mustcall dialects --markdown`; do not edit. -->",
        f"mustcall reads {len(DIALECTS)} text forms of tool calls; the example is the same call in each.",
        "Tool names match exactly, else apart from case, `-`, `_` and `.`; argument keys go out as they were written.",
    ]
    families = dict.fromkeys(dialect.family for dialect in DIALECTS)
    for family in families:
        parts.append(f"## {family[0].upper()}{family[1:]}")
        for dialect in DIALECTS:
            if dialect.family == family:
                parts.append(f"### `{dialect.name}`")
                parts.append(f"{dialect.models}. {_STANDINGS[dialect.standing].capitalize()}.")
                parts.append(f"~~~text\n{example_of(dialect)}\n~~~")
    return "\n\n".join(parts) + "\n"
