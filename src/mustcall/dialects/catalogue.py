"""Every dialect mustcall reads, in the order that decides who is asked first where openers are shared."""

from collections.abc import Iterable
from typing import Literal

from mustcall.core.errors import ConfigError
from mustcall.dialects.dialect import Dialect, Standing
from mustcall.dialects.families import (
    braces,
    channels,
    elements,
    json_array,
    json_object,
    key_value,
    loose,
    name_json,
    python_calls,
    typed_tags,
    xml_params,
)

__all__ = ["DIALECTS", "select"]

DIALECTS: tuple[Dialect, ...] = (
    *json_object.DIALECTS,
    *json_array.DIALECTS,
    *xml_params.DIALECTS,
    *name_json.DIALECTS,
    *channels.DIALECTS,
    *key_value.DIALECTS,
    *typed_tags.DIALECTS,
    *elements.DIALECTS,
    *python_calls.DIALECTS,
    *braces.DIALECTS,
    *loose.DIALECTS,
)
BY_NAME = {dialect.name: dialect for dialect in DIALECTS}


def select(dialects: Literal["auto"] | Iterable[str | Dialect], *, loose: bool) -> tuple[Dialect, ...]:
    """Return the active dialects; names must be known, values of one's own are taken as they are (rule 57)."""
    if dialects == "auto":
        wanted = (Standing.AUTO, Standing.LOOSE) if loose else (Standing.AUTO,)
        return tuple(dialect for dialect in DIALECTS if dialect.standing in wanted)
    chosen: list[Dialect] = []
    for dialect in (dialects,) if isinstance(dialects, str) else dialects:
        if isinstance(dialect, str):
            if dialect not in BY_NAME:
                raise ConfigError(f"unknown dialect {dialect!r}; `mustcall dialects` lists the known ones")
            dialect = BY_NAME[dialect]  # noqa: PLW2901 - a name stands for its value
        chosen.append(dialect)
    return tuple(chosen)
