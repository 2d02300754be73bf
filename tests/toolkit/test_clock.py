"""The time, here and elsewhere."""

from datetime import UTC, datetime

import pytest

from mustcall.toolkit.builtin.clock import current_time

NOON = datetime(2026, 3, 29, 12, 0, 5, tzinfo=UTC)


def test_zones() -> None:
    """Weekday, date, time and distance from UTC in the zone that was asked for, summer time included."""
    assert current_time(NOON, "UTC") == "Sunday 2026-03-29 12:00:05 (UTC, UTC+00:00)"
    assert current_time(NOON, "Europe/Oslo") == "Sunday 2026-03-29 14:00:05 (Europe/Oslo, UTC+02:00)"
    assert current_time(NOON, "America/New_York") == "Sunday 2026-03-29 08:00:05 (America/New_York, UTC-04:00)"
    assert "local time" in current_time(NOON)
    assert current_time(NOON, "") == current_time(NOON)


@pytest.mark.parametrize(
    ("zone", "name"),
    [
        ("oslo", "Europe/Oslo"),
        ("New York", "America/New_York"),
        ("europe/oslo", "Europe/Oslo"),
        ("Kolkata", "Asia/Kolkata"),
        ("Buenos Aires", None),
    ],
)
def test_cities(zone: str, name: str | None) -> None:
    """A city that one zone is named after stands for it, whatever its case; one that several are does not."""
    assert f"({name or 'local time'}, " in current_time(NOON, zone)


@pytest.mark.parametrize("zone", ["Oslo!", "../../etc/passwd", "/etc/passwd", "Europe", "\0", "x" * 5000])
def test_unknown_zones(zone: str) -> None:
    """For a zone nobody knows, or one that is a path, the local time is told as such, with what is wrong."""
    told = current_time(NOON, zone)
    assert told.startswith(f"{current_time(NOON)}; ")
    assert "not a time zone" in told
    assert len(told) < 200
