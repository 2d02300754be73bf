"""The time, here and elsewhere."""

from datetime import UTC, datetime

import pytest

from mustcall.core.errors import ToolError
from mustcall.toolkit.clock import current_time

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
    if name is None:
        with pytest.raises(ToolError):
            current_time(NOON, zone)
    else:
        assert f"({name}, " in current_time(NOON, zone)


@pytest.mark.parametrize("zone", ["Oslo!", "../../etc/passwd", "/etc/passwd", "Europe", "\0", "x" * 5000])
def test_unknown_zones(zone: str) -> None:
    """A zone nobody knows, or one that is a path, is refused in one line that says what time it is here."""
    with pytest.raises(ToolError, match=r"time zone .*local time"):
        current_time(NOON, zone)
