"""The facts that come with mustcall, read from the TOML files beside this module.

Each `[[profile]]` names models, endpoints and wires by pattern, and gives facts for whatever all three match. Decides
how specific an entry is; how entries are merged is decided in `resolving`.
"""

import tomllib
from functools import cache
from importlib import resources
from typing import Any, cast

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.profiles.facts import Fact, Observed, checked
from mustcall.profiles.patterns import Pattern, endpoint_pattern, model_pattern

__all__ = ["ProfileEntry", "Specificity", "load", "read_entries"]

#: The order in which entries are merged, the weakest first: a door's facts stand over a model's, because capability
#: differs by door; a model at a door over the door; then the longer pattern; then the entry that names wires.
Specificity = tuple[bool, bool, int, int, bool]


class _FactForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    value: Any
    observed: Observed
    note: str = ""
    when: str = ""


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    models: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    wires: tuple[Wire, ...] = ()


class ProfileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[profile]]`: what it is about, and its facts by field."""

    name: str
    file: str
    models: tuple[Pattern, ...]
    endpoints: tuple[Pattern, ...]
    wires: tuple[Wire, ...]
    facts: dict[str, Fact]

    def specificity(self, names: tuple[str, ...], places: tuple[str, ...], wire: Wire) -> Specificity | None:
        """Return how specifically this entry speaks of a model at one of `places` on a wire, None if it does not."""
        if self.wires and wire not in self.wires:
            return None
        model = heaviest(self.models, *names)
        endpoint = heaviest(self.endpoints, *places)
        if model is None or endpoint is None:
            return None
        return bool(self.endpoints), bool(self.models), model, endpoint, bool(self.wires)


def heaviest(patterns: tuple[Pattern, ...], *names: str) -> int | None:
    """Return the weight of the most specific pattern that matches, 0 if there are none at all, None if none does."""
    if not patterns:
        return 0
    heaviest_yet: int | None = None
    for pattern in patterns:
        if (heaviest_yet is None or pattern.weight > heaviest_yet) and pattern.matches(*names):
            heaviest_yet = pattern.weight
    return heaviest_yet


@cache
def load() -> tuple[ProfileEntry, ...]:
    """Return all entries, files in the order of their names. Reads the files once in a process."""
    entries: list[ProfileEntry] = []
    folder = resources.files("mustcall.profiles") / "data"
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            entries.extend(read_entries(file.read_text(encoding="utf-8"), file.name))
    return tuple(entries)


def read_entries(text: str, file: str) -> tuple[ProfileEntry, ...]:
    """Read one file of entries; raise `ConfigError` naming the entry and the field."""
    try:
        tables: Any = tomllib.loads(text).get("profile", [])
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from None
    return tuple(_entry(cast("dict[str, Any]", table), file) for table in tables)  # TOML keys are strings


def _entry(table: dict[str, Any], file: str) -> ProfileEntry:
    try:
        header = msgspec.convert(table, _Header)
        forms = {
            field: msgspec.convert(form, _FactForm)
            for field, form in table.items()
            if field not in _Header.__struct_fields__
        }
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: profile {table.get('name')!r}: {error}") from None
    source = f"{file}: {header.name}"
    if not header.models and not header.endpoints:
        raise ConfigError(f"{source}: names neither models nor endpoints")
    return ProfileEntry(
        name=header.name,
        file=file,
        models=tuple(model_pattern(text) for text in header.models),
        endpoints=tuple(endpoint_pattern(text) for text in header.endpoints),
        wires=header.wires,
        facts={
            field: Fact(
                value=checked(field, form.value, source),
                observed=form.observed,
                note=form.note,
                when=form.when,
                source=source,
            )
            for field, form in forms.items()
        },
    )
