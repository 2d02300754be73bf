"""Measured facts: what `mustcall probe` saw a model at an endpoint do, and the profile file that holds them.

A measured fact is a field of `Profile`, its value, and `measured DATE n/m`: n of m requests showed the guarantee that
the value is about. The same document stands in a profile file (JSON), in `[[measured]]` tables of mustcall.toml and
in the ledger. Where measured facts rank among others is one table, `facts.PRECEDENCE`; how they were measured is
decided in `mustcall.probe`. Nothing here reads a clock.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.profiles.facts import FIELDS, Fact, Observed, checked
from mustcall.profiles.overrides import ProfileOverride
from mustcall.profiles.patterns import endpoint_pattern, model_pattern, place_of

__all__ = ["MeasuredFact", "MeasuredProfile", "Measurements", "parse_profile", "read_measured", "read_profile"]

#: The version of the document. Another one is refused: what it means is not known here.
_VERSION = 1
#: A profile has a name to be recognised by; nothing measures it.
_NOT_MEASURED = frozenset({"name"})
_MEASURED = re.compile(r"(\d{4}-\d{2}-\d{2}) (\d{1,9})/(\d{1,9})")


class MeasuredFact(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a profile as it was measured: `held` of `of` requests on `day` (`2026-11-17`) showed it.

    The counts are those of the guarantee, not of the value: `forced = ignored` is seen in 0 of 24 forced calls.
    """

    field: str
    value: Any
    day: str
    held: int
    of: int

    @property
    def measured(self) -> str:
        """When and how often, as it is written: `2026-11-17 0/24`."""
        return f"{self.day} {self.held}/{self.of}"

    def checked(self, where: str) -> "MeasuredFact":
        """Return the fact with its value as the field's own type; raise `ConfigError` naming the value and the fix."""
        if self.field in _NOT_MEASURED:
            raise ConfigError(
                f"{where}: {self.field!r} cannot be measured; remove it, or set it in a [[profile]] table"
            )
        if self.value is None:
            raise ConfigError(f"{where}: {self.field} is null, which says that it is not known; leave the fact out")
        value = checked(self.field, self.value, where)
        _check_day(self.day, f"{where}: {self.field}")
        if not 0 <= self.held <= self.of or self.of < 1:
            raise ConfigError(
                f"{where}: {self.field}: measured {self.held}/{self.of} is no count; write n/m with 0 <= n <= m and "
                "m of 1 or more"
            )
        return msgspec.structs.replace(self, value=value)

    def as_fact(self, source: str) -> Fact:
        """Return it as a fact of a profile."""
        return Fact(
            value=self.value, observed=Observed.PROBED, note=f"measured {self.measured}", when=self.day, source=source
        )


class MeasuredProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The measured facts of one model at one endpoint on one wire.

    `endpoint` is the host, port and path of its base URL. `upstream` is what it was called where it was measured, for
    people: another configuration may give the endpoint another name.
    """

    endpoint: str
    wire: Wire
    model: str
    upstream: str = ""
    facts: tuple[MeasuredFact, ...] = ()

    @classmethod
    def of(
        cls, base_url: str, wire: Wire, model: str, facts: Sequence[MeasuredFact], *, upstream: str = ""
    ) -> "MeasuredProfile":
        """Return the checked profile of a model at a base URL; raise `ConfigError`."""
        place = place_of(base_url)
        where = f"measured profile of {model!r} at {place}"
        made = cls(
            endpoint=place,
            wire=wire,
            model=model,
            upstream=upstream,
            facts=tuple(fact.checked(where) for fact in facts),
        )
        return _distinct(made, where)

    @property
    def key(self) -> tuple[str, Wire, str]:
        """What it is about: endpoint, wire and model."""
        return self.endpoint, self.wire, self.model

    @property
    def day(self) -> str:
        """The day of the newest fact, empty if there is none."""
        return max((fact.day for fact in self.facts), default="")

    def values(self) -> dict[str, Any]:
        """Return the measured values by field."""
        return {fact.field: fact.value for fact in self.facts}

    def override(self, source: str = "") -> ProfileOverride:
        """Return the facts as `resolve` takes them; they rank below those of the operator."""
        said = source or f"measured profile of {self.model}"
        return ProfileOverride(
            models=(model_pattern(self.model, exact=True),),
            endpoints=(endpoint_pattern(self.endpoint, exact=True),),
            wires=(self.wire,),
            facts={fact.field: fact.as_fact(said) for fact in self.facts},
        )

    def document(self) -> dict[str, Any]:
        """Return it as plain values, as files and the ledger hold it."""
        return {
            "version": _VERSION,
            **({"upstream": self.upstream} if self.upstream else {}),
            "endpoint": self.endpoint,
            "wire": str(self.wire),
            "model": self.model,
            "facts": {
                fact.field: {"value": msgspec.to_builtins(fact.value), "measured": fact.measured} for fact in self.facts
            },
        }

    def encode(self) -> bytes:
        """Return the text of a profile file."""
        return msgspec.json.format(msgspec.json.encode(self.document()), indent=2) + b"\n"


class Measurements:
    """The measured profiles that all replicas share, as turns take them.

    They change as a whole, so that `overrides` is the same object as long as nothing was measured anew.
    """

    __slots__ = ("overrides", "profiles")

    def __init__(self, profiles: Sequence[MeasuredProfile] = ()) -> None:
        self.profiles: tuple[MeasuredProfile, ...] = ()
        self.overrides: tuple[ProfileOverride, ...] = ()
        self.take_over(profiles)

    def take_over(self, profiles: Sequence[MeasuredProfile]) -> bool:
        """Take these profiles for what was measured; tell whether that changes anything."""
        if self.profiles == tuple(profiles):
            return False
        self.profiles = tuple(profiles)
        self.overrides = tuple(one.override("ledger") for one in self.profiles)
        return True


# --- reading ----------------------------------------------------------------------------------------------------------


class _FactForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    value: Any
    measured: str


class _Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    endpoint: str
    wire: Wire
    model: str
    version: int = _VERSION
    upstream: str = ""
    facts: dict[str, _FactForm] = {}


def read_profile(path: Path) -> MeasuredProfile:
    """Read a profile file; raise `ConfigError` naming the file, the value and the fix."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read the profile file {path}: {error.strerror}; `mustcall probe` writes one"
        ) from None
    return parse_profile(text, str(path))


def parse_profile(text: bytes | str, where: str) -> MeasuredProfile:
    """Read the document of a profile; raise `ConfigError`."""
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not valid JSON: {error}; write it again with `mustcall probe`") from None
    return _profile(document, where)


def read_measured(tables: Sequence[Mapping[str, Any]], where: str = "mustcall.toml") -> tuple[MeasuredProfile, ...]:
    """Read `[[measured]]` tables; raise `ConfigError` naming the table, the value and the fix."""
    return tuple(_profile(table, f"{where}: measured {number}") for number, table in enumerate(tables, 1))


def _profile(document: object, where: str) -> MeasuredProfile:
    try:
        form = msgspec.convert(document, _Form)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{where}: {error}; a measured profile has endpoint, wire ({', '.join(Wire)}), model and facts"
        ) from None
    if form.version != _VERSION:
        raise ConfigError(
            f"{where}: version {form.version} is not known here, only {_VERSION}; measure again with this mustcall, or "
            "update it"
        )
    for field in ("endpoint", "model"):
        if not getattr(form, field).strip():
            raise ConfigError(f"{where}: {field} is empty; write the one that was measured")
    made = MeasuredProfile(
        endpoint=place_of(form.endpoint),
        wire=form.wire,
        model=form.model,
        upstream=form.upstream,
        facts=tuple(_fact(field, fact, where) for field, fact in form.facts.items()),
    )
    return _distinct(made, where)


def _fact(field: str, form: _FactForm, where: str) -> MeasuredFact:
    said = _MEASURED.fullmatch(form.measured)
    if said is None:
        raise ConfigError(
            f'{where}: {field}: measured must be a day and a count like "2026-11-17 24/24", got {form.measured!r:.80}'
        )
    fact = MeasuredFact(field=field, value=form.value, day=said[1], held=int(said[2]), of=int(said[3]))
    return fact.checked(where)


def _distinct(profile: MeasuredProfile, where: str) -> MeasuredProfile:
    if len(profile.values()) < len(profile.facts):
        fields = [fact.field for fact in profile.facts]
        twice = next(field for field in FIELDS if fields.count(field) > 1)
        raise ConfigError(f"{where}: {twice!r} is measured twice; keep the newer one")
    return profile


def _check_day(day: str, where: str) -> None:
    try:
        date.fromisoformat(day)
    except ValueError:
        raise ConfigError(f"{where}: {day!r} is no day; write it like 2026-11-17") from None
