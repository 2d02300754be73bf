"""Every limit on what callers and upstreams may make one process do, with its default and its reason.

One table: the settings are read from it (`[limits]`), the code takes its numbers from it and docs/security.md prints
it. 0 means what the reason says. Nothing is enforced here.
"""

from typing import NamedTuple

import msgspec

__all__ = ["DEFAULTS", "MOST_PARTS", "REASONS", "GatewayLimits", "LimitReason"]

_MIB = 1024 * 1024


class GatewayLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[limits]`: what one request, reply, key or address may take."""

    header_bytes: int = 64 * 1024
    header_count: int = 128
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    body_bytes_per_second: int = 1024
    connections: int = 0
    connections_per_address: int = 0
    key_concurrency: int = 0
    body_elements: int = 100_000
    bodies_bytes: int = 256 * _MIB
    key_bodies_bytes: int = 0
    reply_bytes: int = 64 * _MIB
    reply_elements: int = 100_000
    silent_lines: int = 20_000
    inflate_ratio: int = 100
    hosts: tuple[str, ...] = ()


#: What holds where nobody says otherwise.
DEFAULTS = GatewayLimits()


class LimitReason(NamedTuple):
    """What a limit bounds, what happens above it, and why it is as it is."""

    bounds: str
    above: str
    why: str


REASONS: dict[str, LimitReason] = {
    "header_bytes": LimitReason("bytes of a request's head", "431, connection closed", "read before any key is known"),
    "header_count": LimitReason("headers of a request", "431, connection closed", "clients send about twenty"),
    "head_seconds": LimitReason(
        "seconds until a request's head is complete", "408, connection closed", "half-sent heads hold connections"
    ),
    "body_seconds": LimitReason(
        "seconds a request's body may take before its rate counts", "400", "half-sent bodies hold memory"
    ),
    "body_bytes_per_second": LimitReason(
        "average rate of a body after that", "400", "the slowest honest network is faster"
    ),
    "connections": LimitReason(
        "client connections; 0: three quarters of the open-file limit",
        "closed with 503",
        "upstream connections and the ledger need files, too",
    ),
    "connections_per_address": LimitReason(
        "client connections of one address; 0: half of `connections`",
        "closed with 503",
        "one address must not shut out all others",
    ),
    "key_concurrency": LimitReason(
        "requests of one key at once; 0: half of `max_concurrency` where there are several keys",
        "503",
        "one key must not shut out all others",
    ),
    "body_elements": LimitReason("values in a request's JSON", "413", "many small values cost more than their bytes"),
    "bodies_bytes": LimitReason(
        "bytes of all request bodies held at once", "503", "a body is held until its reply is complete"
    ),
    "key_bodies_bytes": LimitReason(
        "the same for one key; 0: half of `bodies_bytes` where there are several keys",
        "503",
        "one key must not shut out all others",
    ),
    "reply_bytes": LimitReason(
        "bytes of an upstream's reply, streamed or not, inflated", "502", "128,000 tokens streamed one by one are 40 MB"
    ),
    "reply_elements": LimitReason("values in the JSON of a reply or of one event", "502", "as for `body_elements`"),
    "silent_lines": LimitReason(
        "lines of a stream in which nothing is said: comments, blank lines, events without content",
        "502",
        "a comment each second for an hour is 7,200 lines",
    ),
    "inflate_ratio": LimitReason(
        "inflated bytes for each compressed byte, after the first MiB",
        "502",
        "replies compress 10 to 1; compression was not asked for",
    ),
    "hosts": LimitReason(
        "names in `Host` that are answered; empty: those of loopback where it listens on loopback, else any",
        "403",
        "a web page can point its own name at 127.0.0.1 (DNS rebinding)",
    ),
}

#: The most parts of one reply: texts, reasoning, calls. Fixed, because each call is checked on its own.
MOST_PARTS = 1_000
