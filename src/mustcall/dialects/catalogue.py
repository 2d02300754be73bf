"""Every dialect mustcall reads, in the order that decides who is asked first where openers are shared.

Dialects of one's own are registered here, once for the process (rule 57): then profiles, agents and the prompt
protocol know them by name. What is registered is asked before the rest.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.text.nearest import did_you_mean
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

__all__ = [
    "AUTO",
    "BY_NAME",
    "DIALECTS",
    "active",
    "find_dialect",
    "forget",
    "is_known",
    "known",
    "register",
    "select",
    "version",
]

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


def _place(dialect: Dialect, *, alone: bool) -> Dialect:
    """Return a dialect whose calls count only where they are the reply, or wherever they stand (rule 63)."""
    if all(opener.alone is alone for opener in dialect.openers):
        return dialect
    openers = tuple(msgspec.structs.replace(opener, alone=alone) for opener in dialect.openers)
    return msgspec.structs.replace(dialect, openers=openers)


@lru_cache(maxsize=256)
def _anywhere(dialect: Dialect) -> Dialect:
    return _place(dialect, alone=False)


@lru_cache(maxsize=256)
def _as_reply(dialect: Dialect) -> Dialect:
    return _place(dialect, alone=True)


def _stand(dialects: Iterable[Dialect], *, loose: bool) -> tuple[Dialect, ...]:
    """Return those that are looked for without being named, each with where its calls count."""
    standing = {Standing.AUTO, Standing.REPLY, Standing.LOOSE} if loose else {Standing.AUTO, Standing.REPLY}
    return tuple(
        _as_reply(dialect) if dialect.standing is Standing.REPLY and not loose else dialect
        for dialect in dialects
        if dialect.standing in standing
    )


AUTO = _stand(DIALECTS, loose=False)
AUTO_AND_LOOSE = _stand(DIALECTS, loose=True)

_own: dict[str, Dialect] = {}
#: How often that has changed: what was made of all dialects is made anew then.
_changes = 0


def register(dialect: Dialect) -> None:
    """Make a dialect of one's own known by its name; one of the same name that was registered before is replaced."""
    global _changes  # noqa: PLW0603 - the one list of the process
    if dialect.name in BY_NAME or dialect.name == "auto":
        raise ConfigError(f"dialect {dialect.name!r}: mustcall has one of this name; give yours another")
    _own[dialect.name] = dialect
    _changes += 1


def forget(name: str) -> None:
    """Take back what was registered under a name."""
    global _changes  # noqa: PLW0603 - the one list of the process
    if _own.pop(name, None) is not None:
        _changes += 1


def version() -> int:
    """Return a number that changes with what is registered."""
    return _changes


def known() -> tuple[Dialect, ...]:
    """Return all dialects, those of one's own first."""
    return (*_own.values(), *DIALECTS)


def is_known(name: str) -> bool:
    """Tell whether there is a dialect of this name."""
    return name in BY_NAME or name in _own


def active(*, loose: bool = False) -> tuple[Dialect, ...]:
    """Return the dialects that are looked for without being named."""
    builtin = AUTO_AND_LOOSE if loose else AUTO
    if not _own:
        return builtin
    return (*_stand(_own.values(), loose=loose), *builtin)


def select(dialects: Literal["auto"] | Iterable[str | Dialect], *, loose: bool) -> tuple[Dialect, ...]:
    """Return the active dialects; names must be known, values of one's own are taken as they are (rule 57).

    `"auto"` among others adds what is active by itself; who was named is asked first, and is not held to standing
    alone (rule 63).
    """
    auto = active(loose=loose)
    if dialects == "auto":
        return auto
    listed = (dialects,) if isinstance(dialects, str) else tuple(dialects)
    named = tuple(_anywhere(find_dialect(item) if isinstance(item, str) else item) for item in listed if item != "auto")
    if len(named) == len(listed):
        return named
    names = {dialect.name for dialect in named}
    return (*named, *(dialect for dialect in auto if dialect.name not in names)) if named else auto


def find_dialect(name: str) -> Dialect:
    """Return the dialect of this name."""
    dialect = BY_NAME.get(name) or _own.get(name)
    if dialect is None:
        fix = did_you_mean(name, (*BY_NAME, *_own)) or "; `mustcall dialects` lists the known ones"
        raise ConfigError(f"unknown dialect {name!r}{fix}")
    return dialect
