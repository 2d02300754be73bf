"""A fact: one field of a profile, its value, and how that is known. Decides which values a field may have."""

import re
import typing
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.text.nearest import did_you_mean
from mustcall.dialects.catalogue import is_known
from mustcall.policy.facts.profile import Profile

__all__ = ["FIELDS", "PRECEDENCE", "Fact", "Observed", "checked", "is_settled", "legal_values"]


class Observed(StrEnum):
    """How a fact is known."""

    DOCS = "docs"  # the provider says so
    CODE = "code"  # public code does so
    ISSUE = "issue"  # people reported it
    MEASURED = "measured"  # seen here
    ASSUMED = "assumed"  # common knowledge that nobody looked up
    CONFIG = "config"  # the operator says so
    LEARNT = "learnt"  # the upstream refused the contrary in this process
    PROBED = "probed"  # `mustcall probe` measured it at this endpoint


#: Whose word stands, field by field: the higher rank. Of one rank the more specific one stands, then the later one.
PRECEDENCE: dict[Observed, int] = {
    Observed.ASSUMED: 0,
    Observed.ISSUE: 0,
    Observed.CODE: 0,
    Observed.DOCS: 0,
    Observed.MEASURED: 0,
    Observed.LEARNT: 1,
    Observed.PROBED: 2,
    Observed.CONFIG: 3,
}


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """The value of one profile field and where it comes from."""

    value: Any
    observed: Observed
    note: str = ""
    #: Month of the observation, where it was noted (`2026-09`).
    when: str = ""
    #: Who says so: `claude.toml: claude-opus-5.5`, `mustcall.toml: profile 1`.
    source: str = ""


def is_settled(fact: Fact) -> bool:
    """Tell whether what turns teach does not change a fact."""
    return PRECEDENCE[fact.observed] > PRECEDENCE[Observed.LEARNT]


#: The fields of a profile and their types.
FIELDS: dict[str, Any] = {name: typing.get_type_hints(Profile)[name] for name in Profile.__struct_fields__}

_LEGAL: dict[Any, str] = {
    bool: "true or false",
    bool | None: "true or false",
    int: "a whole number",
    str: "a string",
    str | None: "a string",
    tuple[str, ...]: "a list of strings",
    dict[str, Any]: "a table",
}
_PATTERNS = ("id_pattern", "name_pattern")
_LEAST = {"id_length": 1, "name_length": 1, "most_tools": 0, "context_length": 0, "prompt_limit": 0}


def legal_values(field: str) -> str:
    """Return in words what a field may be set to."""
    kind = FIELDS[field]
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return "one of " + ", ".join(kind)
    return _LEGAL[kind]


def checked(field: str, value: object, where: str, beside: Sequence[str] = ()) -> Any:
    """Return the value as the field's own type; raise `ConfigError` naming the field and its legal values.

    `beside`: what else may stand where it was written.
    """
    if field not in FIELDS:
        known = (*beside, *FIELDS)
        meant = did_you_mean(field, known) or f"; the fields are: {', '.join(known)}"
        raise ConfigError(f"{where}: {field!r} is no field of a profile{meant}")
    try:
        read = msgspec.convert(value, FIELDS[field])
    except msgspec.ValidationError:
        raise _wrong(field, value, where, legal_values(field)) from None
    if field in _PATTERNS:
        try:
            re.compile(read)
        except re.error as error:
            raise _wrong(field, value, where, f"a regular expression ({error})") from None
    if field in _LEAST and read < _LEAST[field]:
        raise _wrong(field, value, where, f"{_LEAST[field]} or more")
    for name in _dialects(field, read):
        if not is_known(name) and (name != "auto" or field != "dialects"):
            raise _wrong(field, value, where, "known dialects; `mustcall dialects` lists them")
    return read


def _dialects(field: str, value: Any) -> tuple[str, ...]:
    match field:
        case "dialects":
            return value
        case "prompt_dialect":
            return (value,)
        case _:
            return ()


def _wrong(field: str, value: object, where: str, legal: str) -> ConfigError:
    return ConfigError(f"{where}: {field} must be {legal}, got {value!r:.80}")
