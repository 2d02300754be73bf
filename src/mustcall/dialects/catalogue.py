"""Every dialect mustcall reads, in the order that decides who is asked first where openers are shared."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import msgspec

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

__all__ = ["AUTO", "AUTO_AND_LOOSE", "BY_NAME", "DIALECTS", "find_dialect", "select"]

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
AUTO = tuple(dialect for dialect in DIALECTS if dialect.standing is Standing.AUTO)
AUTO_AND_LOOSE = tuple(dialect for dialect in DIALECTS if dialect.standing is not Standing.NAMED)
BY_NAME = {dialect.name: dialect for dialect in DIALECTS}


def select(dialects: Literal["auto"] | Iterable[str | Dialect], *, loose: bool) -> tuple[Dialect, ...]:
    """Return the active dialects; names must be known, values of one's own are taken as they are (rule 57).

    `"auto"` among others adds what is active by itself; who was named is asked first, and is not held to standing
    alone (rule 63).
    """
    auto = AUTO_AND_LOOSE if loose else AUTO
    if dialects == "auto":
        return auto
    listed = (dialects,) if isinstance(dialects, str) else tuple(dialects)
    named = tuple(_anywhere(find_dialect(item) if isinstance(item, str) else item) for item in listed if item != "auto")
    if len(named) == len(listed):
        return named
    names = {dialect.name for dialect in named}
    return (*named, *(dialect for dialect in auto if dialect.name not in names)) if named else auto


@lru_cache(maxsize=256)
def _anywhere(dialect: Dialect) -> Dialect:
    """Return a dialect whose calls count wherever they stand; the same object if that changes nothing."""
    if not any(opener.alone for opener in dialect.openers):
        return dialect
    openers = tuple(msgspec.structs.replace(opener, alone=False) for opener in dialect.openers)
    return msgspec.structs.replace(dialect, openers=openers)


def find_dialect(name: str) -> Dialect:
    """Return the dialect of this name."""
    dialect = BY_NAME.get(name)
    if dialect is None:
        raise ConfigError(f"unknown dialect {name!r}; `mustcall dialects` lists the known ones")
    return dialect
