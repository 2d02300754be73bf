"""What time it is, here or in another zone. A zone goes by its own name or by its city: `Europe/Oslo`, `oslo`."""

import re
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

__all__ = ["current_time", "zone_in"]

_LONGEST = 64
#: The place a question is about: up to three words behind `in` or `at`.
_PLACE = re.compile(r"\b(?:in|at|for)\s+([\w/.-]+(?:\s+[\w/-]+){0,2})", re.IGNORECASE)
_UNIVERSAL = ("UTC", "GMT", "Z")


def current_time(now: datetime, zone: str | None = None) -> str:
    """Return weekday, date, time and distance from UTC in a zone; local, and said to be so, where none is known."""
    local = _show(now.astimezone(), "local time")
    if not zone:
        return local
    if zone.upper() in _UNIVERSAL:
        return _show(now.astimezone(UTC), "UTC")
    name = _zones().get(_plain(zone)) if len(zone) <= _LONGEST else None
    if name is None:  # what is known is told: models fill in a zone that nobody asked for
        return f"{local}; {zone[:_LONGEST]!r} is not a time zone known here (Europe/Oslo is one)"
    return _show(now.astimezone(ZoneInfo(name)), name)


def zone_in(question: str) -> str | None:
    """Return the zone of the place that a question names, None if it names none that is known."""
    for found in _PLACE.finditer(question[:1000]):
        words = found[1].rstrip(".").split()
        for count in range(len(words), 0, -1):
            name = " ".join(words[:count])
            if name.upper() in _UNIVERSAL:
                return "UTC"
            if (zone := _zones().get(_plain(name))) is not None:
                return zone
    return None


@lru_cache(maxsize=1)
def _zones() -> dict[str, str]:
    """Return the zones by their names and, where only one has it, by their cities, all in lower case."""
    names = sorted(name for name in available_timezones() if not name.startswith(("posix/", "right/")))
    cities: dict[str, set[str]] = {}
    for name in names:
        area, slash, _ = name.partition("/")
        if slash and area not in ("Etc", "SystemV", "US"):
            cities.setdefault(_plain(name.rpartition("/")[2]), set()).add(name)
    unique = {city: next(iter(found)) for city, found in cities.items() if len(found) == 1}
    return unique | {_plain(name): name for name in names}


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_")


def _show(moment: datetime, name: str) -> str:
    offset = moment.strftime("%z")
    return f"{moment:%A %Y-%m-%d %H:%M:%S} ({name}, UTC{offset[:3]}:{offset[3:5]})"
