"""What time it is, here or in another zone."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from mustcall.core.errors import ToolError

__all__ = ["current_time"]


def current_time(now: datetime, zone: str | None = None) -> str:
    """Return the time in a zone (the machine's own by default): weekday, date, time and distance from UTC."""
    if not zone:
        return _show(now.astimezone(), "local time")
    if zone.upper() in ("UTC", "GMT", "Z"):
        return _show(now.astimezone(UTC), "UTC")
    try:
        there = ZoneInfo(zone)
    except (ValueError, OSError, LookupError):  # a name no zone has, or one that is no name at all
        raise ToolError(f"{zone!r} is not a time zone that is known here; write one like Europe/Oslo or UTC") from None
    return _show(now.astimezone(there), zone)


def _show(moment: datetime, name: str) -> str:
    offset = moment.strftime("%z")
    return f"{moment:%A %Y-%m-%d %H:%M:%S} ({name}, UTC{offset[:3]}:{offset[3:5]})"
