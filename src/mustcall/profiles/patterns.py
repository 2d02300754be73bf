"""How a pattern names models and endpoints: shell wildcards, forgiving about the spelling of names.

- Case does not matter, and in model names `.`, `-` and `_` are one character, because doors spell versions each their
  own way (`claude-opus-5.5`, `claude-opus-5-5`).
- A number ends where the pattern ends it: `gpt-5.2*` is not `gpt-5-2025-08-07`, and `*:1234*` is not port 12345.
- A model is also known after its vendor's prefix: `anthropic/claude-…`, `us.anthropic.claude-…`.

Matching is linear in the name. What a match means is decided elsewhere.
"""

import ipaddress
import re
from functools import lru_cache

from mustcall.core.errors import ConfigError

__all__ = [
    "LONGEST_NAME",
    "Pattern",
    "endpoint_pattern",
    "is_local",
    "model_pattern",
    "place_of",
    "spellings",
]

#: No more of a name is looked at than this.
LONGEST_NAME = 256

_ANY_SEPARATOR = "[-._]"
_VENDORS = re.compile(r"(?:[a-z][a-z-]*\.)+(?=[a-z])")
_POINT_AS_P = re.compile(r"(?<=\d)p(?=\d)")
#: An address without a host: its scheme and what is behind it, which is no port.
_INSIDE = re.compile(r"([A-Za-z][A-Za-z+.-]*:)(?!//|\d)(.*)", re.DOTALL)


class Pattern:
    """One compiled pattern; `weight` is how much of it is literal, so that the more specific one can win."""

    __slots__ = ("_match", "text", "weight")

    def __init__(self, text: str, *, separators_alike: bool, exact: bool = False) -> None:
        self.text = text
        lowered = text.strip().lower()
        if not lowered:
            raise ConfigError("an empty pattern matches nothing; write `*` to match everything")
        try:
            written = _exactly(lowered, separators_alike) if exact else _translate(lowered, separators_alike)
            self._match = re.compile(written).fullmatch
        except re.error as error:
            raise ConfigError(f"the pattern {text!r} cannot be read: {error}") from None
        self.weight = len(re.sub(r"\[[^]]*\]|[*?]", "", lowered))

    def matches(self, *names: str) -> bool:
        """Tell whether one of the names, in lower case, is meant."""
        return any(map(self._match, names))  # a match is true; a model that is new meets hundreds of patterns

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


def model_pattern(text: str, *, exact: bool = False) -> Pattern:
    """Return the pattern of a model name, without wildcards if it is `exact`; raise `ConfigError`."""
    return Pattern(text, separators_alike=True, exact=exact)


def endpoint_pattern(text: str, *, exact: bool = False) -> Pattern:
    """Return the pattern of an endpoint's `host:port/path`, without wildcards if it is `exact`; raise `ConfigError`."""
    return Pattern(text, separators_alike=False, exact=exact)


def spellings(model: str) -> tuple[str, ...]:
    """Return the names a model is known by: as given, and without what doors put before it.

    Fireworks writes the point of a version as `p` (`kimi-k2p5`).
    """
    full = model[:LONGEST_NAME].lower()
    last = full.rpartition("/")[2]
    vendor = _VENDORS.match(last)
    bare = last[vendor.end() :] if vendor is not None else last
    return tuple(dict.fromkeys((full, last, bare, _POINT_AS_P.sub(".", bare))))


def place_of(base_url: str) -> str:
    """Return what endpoint patterns are matched against: host, port and path, in lower case.

    Of a file in this process (`embedded:/path/to.gguf`) it is `embedded:/to.gguf`: what its folders are called says
    nothing of it.
    """
    inside = _INSIDE.fullmatch(base_url)
    if inside is not None:
        name = re.split(r"[/\\]", inside[2])
        return f"{inside[1]}{'/' if name[1:] else ''}{name[-1]}"[: 4 * LONGEST_NAME].lower()
    rest = base_url[: 4 * LONGEST_NAME].lower().partition("://")
    place = rest[2] if rest[1] else rest[0]
    host, slash, path = place.partition("/")
    return (host.rpartition("@")[2] + slash + path).rstrip("/")


def is_local(place: str) -> bool:
    """Tell whether a place as `place_of` returns it is on this machine or in its network, by its address alone."""
    if _INSIDE.fullmatch(place) is not None:
        return False  # no server at all
    host = place.partition("/")[0]
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        # A name without a dot is one that a compose file, a cluster or the hosts file gives.
        return bool(host) and ("." not in host or host.endswith((".local", ".lan", ".internal", ".localhost")))
    return address.is_loopback or address.is_private


def _exactly(name: str, separators_alike: bool) -> str:
    return "".join(_ANY_SEPARATOR if separators_alike and char in "-._" else re.escape(char) for char in name)


@lru_cache(maxsize=512)
def _translate(pattern: str, separators_alike: bool) -> str:
    chunks = [_chunk(chunk, separators_alike) for chunk in pattern.split("*")]
    bounded = [
        f"{chunk}(?!\\d)" if source[-1:].isdigit() else chunk
        for chunk, source in zip(chunks, pattern.split("*"), strict=True)
    ]
    if len(chunks) == 1:
        return chunks[0]
    middle = "".join(f"(?>.*?{chunk})" for chunk in bounded[1:-1] if chunk)
    return f"(?s:{bounded[0]}{middle}.*{chunks[-1]})"


def _chunk(source: str, separators_alike: bool) -> str:
    parts: list[str] = []
    at = 0
    while at < len(source):
        char = source[at]
        at += 1
        if char == "?":
            parts.append(".")
        elif char == "[" and (end := source.find("]", at + 1)) > 0:
            inner = source[at:end].replace("\\", "\\\\").replace("[", "\\[")
            parts.append(f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]")
            at = end + 1
        elif separators_alike and char in "-._":
            parts.append(_ANY_SEPARATOR)
        else:
            parts.append(re.escape(char))
    return "".join(parts)
