"""`data:` URLs, the form in which the OpenAI wires carry images and files inline."""

import re

__all__ = ["from_data_url", "to_data_url"]

_DATA_URL = re.compile(r"data:(?P<media>[^;,]*)(?:;[^;,=]+=[^;,]*)*;base64,", re.IGNORECASE)


def from_data_url(url: str) -> tuple[str, str] | None:
    """Return (media type, base64 data), None for any other URL."""
    match = _DATA_URL.match(url)
    if match is None:
        return None
    return match["media"] or "application/octet-stream", url[match.end() :]


def to_data_url(media_type: str | None, data: str) -> str:
    """Write base64 data as a URL."""
    return f"data:{media_type or 'application/octet-stream'};base64,{data}"
