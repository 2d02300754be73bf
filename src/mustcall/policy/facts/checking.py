"""Checks of settings that code passes: words and numbers. Nobody has decoded them, so they can be of any type."""

from collections.abc import Mapping
from enum import StrEnum
from math import inf
from types import UnionType

import msgspec

from mustcall.core.errors import ConfigError

__all__ = ["check_kind", "check_number", "read_choices"]


def read_choices(settings: msgspec.Struct, choices: Mapping[str, type[StrEnum]], optional: str = "") -> None:
    """Replace words of fields by their members; raise `ConfigError` for others. The `optional` field may be None."""
    for name, kind in choices.items():
        value = getattr(settings, name)
        if isinstance(value, kind) or (value is None and name == optional):
            continue
        if value not in list(kind):
            words = ", ".join(repr(str(one)) for one in kind)
            raise ConfigError(f"{name} is {value!r}; it can be {words}")
        msgspec.structs.force_setattr(settings, name, kind(value))


def check_kind(name: str, value: object, kind: type[object] | UnionType, wanted: str = "") -> None:
    """Raise `ConfigError` for what is not of a type; `wanted` says what that is in words."""
    if not isinstance(value, kind):
        raise ConfigError(f"{name} must be {wanted or getattr(kind, '__name__', kind)}, got {value!r}")


def check_number(
    name: str, value: object, *, least: float = -inf, above: float = -inf, whole: bool = False, unit: str = ""
) -> None:
    """Raise `ConfigError` for what is no number, or is below what is asked for. A limit of time may be infinite."""
    kind = int if whole else int | float
    if isinstance(value, kind) and not isinstance(value, bool) and value >= least and value > above:
        return
    bound = f"{least:g} or more" if least > -inf else f"above {above:g}"
    kind_said = "a whole number, " if whole and not isinstance(value, int) else ""
    raise ConfigError(f"{name} must be {kind_said}{bound}{unit}, got {value!r}")
