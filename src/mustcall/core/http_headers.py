"""The headers of a request or an answer as they came, and by name."""

from collections.abc import Sequence
from itertools import chain

__all__ = ["read_headers", "write_headers"]


def read_headers(raw: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by name, which is in lower case; where a name stands several times its values are joined."""
    # One decoding for all of them. What holds a line end itself, which no parser lets through, is told by the number.
    words = b"\n".join(chain.from_iterable(raw)).decode("latin-1").split("\n")
    headers = dict(zip(words[::2], words[1::2], strict=False))
    if len(headers) == len(raw) and len(words) == 2 * len(raw):
        return headers
    headers.clear()
    again: dict[str, list[str]] = {}
    for raw_name, raw_value in raw:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if name in headers:
            again.setdefault(name, [headers[name]]).append(value)
        else:
            headers[name] = value
    for name, values in again.items():
        headers[name] = ", ".join(values)
    return headers


def write_headers(headers: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Return headers as they are sent; what Latin-1 does not have becomes a question mark."""
    words = "\n".join(chain.from_iterable(headers)).encode("latin-1", "replace").split(b"\n")
    if len(words) == 2 * len(headers):
        return [*zip(words[::2], words[1::2], strict=True)]
    return [(name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in headers]
