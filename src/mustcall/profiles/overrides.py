"""The operator's own facts: `[[profile]]` tables of mustcall.toml, with plain `field = value` lines.

Decides what such a table may say. They stand over everything that comes with mustcall, the later over the earlier.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.profiles.catalogue import heaviest
from mustcall.profiles.facts import Fact, Observed, checked
from mustcall.profiles.patterns import Pattern, endpoint_pattern, model_pattern

__all__ = ["ProfileOverride", "read_overrides"]


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    models: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    upstreams: tuple[str, ...] = ()
    wires: tuple[Wire, ...] = ()


class ProfileOverride(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Facts of the operator for the models, endpoints, upstreams and wires it names; what it does not name, it allows.

    Two overrides are equal only if they are the same one, so that a list of them can be the key of a cache.
    """

    models: tuple[Pattern, ...] = ()
    endpoints: tuple[Pattern, ...] = ()
    #: Names of upstreams in the configuration, as patterns.
    upstreams: tuple[Pattern, ...] = ()
    wires: tuple[Wire, ...] = ()
    facts: Mapping[str, Fact] = {}

    def applies(self, names: tuple[str, ...], place: str, wire: Wire, upstream: str) -> bool:
        """Tell whether it speaks of this model at this place."""
        return (
            (not self.wires or wire in self.wires)
            and heaviest(self.models, *names) is not None
            and heaviest(self.endpoints, place) is not None
            and heaviest(self.upstreams, upstream.lower()) is not None
        )


def read_overrides(tables: Sequence[Mapping[str, Any]], where: str = "mustcall.toml") -> tuple[ProfileOverride, ...]:
    """Read `[[profile]]` tables; raise `ConfigError` naming the table, the field and its legal values."""
    return tuple(_override(table, f"{where}: profile {number}") for number, table in enumerate(tables, 1))


def _override(table: Mapping[str, Any], where: str) -> ProfileOverride:
    given = {field: value for field, value in table.items() if field in _Header.__struct_fields__}
    try:
        header = msgspec.convert(given, _Header)
    except msgspec.ValidationError as error:
        wires = ", ".join(Wire)
        raise ConfigError(
            f"{where}: {error}; models, endpoints and upstreams are lists of patterns, wires a list of {wires}"
        ) from None
    try:
        models = tuple(model_pattern(text) for text in header.models)
        endpoints = tuple(endpoint_pattern(text) for text in header.endpoints)
        upstreams = tuple(endpoint_pattern(text) for text in header.upstreams)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}") from None
    return ProfileOverride(
        models=models,
        endpoints=endpoints,
        upstreams=upstreams,
        wires=header.wires,
        facts={
            field: Fact(
                value=checked(field, value, where, _Header.__struct_fields__), observed=Observed.CONFIG, source=where
            )
            for field, value in table.items()
            if field not in given
        },
    )
