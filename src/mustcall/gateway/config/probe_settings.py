"""`[probe]` and `[[measured]]`: where measured profiles come from, and how often the gateway measures again.

Without `every` the gateway measures nothing by itself.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.gateway.config.environment import over
from mustcall.gateway.state.trace_keeper import read_age
from mustcall.profiles import MeasuredProfile, read_measured, read_profile
from mustcall.profiles.overrides import ProfileOverride

__all__ = ["ProbeSettings", "Sourced", "overrides_of", "read_probe"]

#: The shortest time between two measurements: a quick one takes a minute of a slow model.
_LEAST = 60.0


class ProbeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[probe]`: profile files, and measurements in the background."""

    #: How often a quick set is measured again: `1d`, `12h`; `0` never.
    every: str = "0"
    #: The most upstream requests of one measurement of one model.
    max_requests: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 60
    #: The most that one measurement of one model may cost, in dollars.
    max_usd: Annotated[float, msgspec.Meta(ge=0)] = 0.05
    #: The upstreams that are measured again, by name; empty: all.
    upstreams: tuple[str, ...] = ()
    #: Profile files that `mustcall probe --profile` wrote, relative to the configuration file.
    profiles: tuple[str, ...] = ()

    @property
    def seconds(self) -> float | None:
        """Seconds between two measurements, None for never."""
        return read_age(self.every, "probe: every", "never")


class Sourced(msgspec.Struct, frozen=True):
    """A measured profile and where it was read."""

    profile: MeasuredProfile
    source: str


def read_probe(
    given: ProbeSettings, tables: Sequence[Mapping[str, Any]], env: Mapping[str, str], path: Path | None
) -> tuple[ProbeSettings, tuple[Sourced, ...]]:
    """Check `[probe]` and read what was measured: `[[measured]]` tables and the files that are named."""
    settings = over(given, "MUSTCALL_PROBE_", env)
    every = settings.seconds
    if every is not None and every < _LEAST:
        raise ConfigError(f"probe: every must be {_LEAST:g}s or more, got {settings.every!r}; 0 never measures")
    where = str(path or "mustcall.toml")
    said = [Sourced(profile, where) for profile in read_measured(tables, where)]
    folder = path.parent if path is not None else Path()
    for name in settings.profiles:
        file = folder / Path(name).expanduser()
        said.append(Sourced(read_profile(file), str(file)))
    return settings, tuple(said)


def overrides_of(measured: Sequence[Sourced]) -> tuple[ProfileOverride, ...]:
    """Return measured profiles as turns take them."""
    return tuple(one.profile.override(one.source) for one in measured)
