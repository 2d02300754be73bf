"""Decides which headers of an upstream's answer reach the caller: all end-to-end ones except those withheld here.

A withheld header is listed with its reason. What no row names passes, so that headers of tomorrow do too (rule 112).
"""

from collections.abc import Mapping
from typing import NamedTuple

from mustcall.core.memo import kept

__all__ = ["MOST_HEADERS", "MOST_PASSED", "WITHHELD", "WithheldHeaders", "markdown", "passed", "withheld"]

#: The most bytes of an upstream's headers that are passed on: common HTTP clients refuse a head above 16 KiB.
MOST_PASSED = 8 * 1024
#: The most headers of an upstream that are passed on: Python's own HTTP client refuses an answer with more than 99, and
#: up to 20 are the gateway's.
MOST_HEADERS = 76


class WithheldHeaders(NamedTuple):
    """Headers that stay here: exact names, how names begin, or a word between the hyphens of a name.

    A name that also has a word of `unless` passes.
    """

    what: str
    why: str
    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()
    unless: frozenset[str] = frozenset()

    def covers(self, name: str) -> bool:
        """Tell whether a header of this lower-case name is one of them."""
        if name in self.names or name.startswith(self.prefixes):
            return True
        words = name.split("-")
        return not self.words.isdisjoint(words) and self.unless.isdisjoint(words)


#: The first row that covers a name gives the reason.
WITHHELD = (
    WithheldHeaders(
        "hop-by-hop",
        "They are about the connection to the upstream. So is every name listed in its `connection` header.",
        names=frozenset(
            {
                *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "proxy-connection"),
                *("proxy-authenticate", "proxy-authorization", "proxy-authentication-info", "http2-settings"),
            }
        ),
    ),
    WithheldHeaders(
        "framing and representation",
        "The gateway may write the body anew, and states type and length itself.",
        names=frozenset({"accept-ranges", "digest", "etag", "last-modified", "repr-digest", "want-repr-digest"}),
        prefixes=("content-",),
    ),
    WithheldHeaders(
        "cookies and challenges",
        "They would bind the caller to the operator's session, or ask it for the operator's credentials.",
        names=frozenset({"authentication-info", "set-cookie", "set-cookie2", "www-authenticate"}),
    ),
    WithheldHeaders(
        "policies of the upstream's site",
        "A browser would apply them to the gateway's host.",
        names=frozenset(
            {
                *("accept-ch", "alt-svc", "clear-site-data", "critical-ch", "expect-ct", "link", "location", "nel"),
                *("origin-agent-cluster", "permissions-policy", "public-key-pins", "referrer-policy", "refresh"),
                *("report-to", "reporting-endpoints", "service-worker-allowed", "sourcemap"),
                *("strict-transport-security", "timing-allow-origin", "x-frame-options", "x-xss-protection"),
            }
        ),
        prefixes=("access-control-", "cross-origin-"),
    ),
    WithheldHeaders(
        "the gateway's own",
        "Only this gateway says them.",
        prefixes=("x-mustcall-",),
    ),
    WithheldHeaders(
        "the operator's account",
        "They name the account, key or address that the operator uses. Rate limits (`ratelimit` in the name) pass.",
        prefixes=("x-litellm-key-", "x-litellm-model-api-", "llm_provider-set-cookie"),
        words=frozenset(
            {
                *("account", "billing", "customer", "deployment", "org", "organisation", "organization", "owner"),
                *("project", "subscription", "team", "tenant", "workspace"),
            }
        ),
        unless=frozenset({"ratelimit"}),  # counts requests or tokens, and names nobody
    ),
)


def withheld(name: str) -> WithheldHeaders | None:
    """Return why a header of this lower-case name stays here, None where it passes."""
    return next((row for row in WITHHELD if row.covers(name)), None)


@kept(most=64, most_bytes=None)
def _passing(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return which of an answer's headers are not withheld; an upstream sends the same ones every time."""
    return tuple([name for name in names if withheld(name) is None])


def passed(upstream: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the headers that reach the caller; what is beyond `MOST_HEADERS` or `MOST_PASSED` bytes is left out."""
    names = _passing(tuple(upstream))
    found = [*zip(names, map(upstream.__getitem__, names), strict=True)]
    listed = upstream.get("connection")
    if listed and listed.lower() not in ("keep-alive", "close"):
        hops = frozenset(name.strip() for name in listed.lower().split(","))
        found = [header for header in found if header[0] not in hops]
    del found[MOST_HEADERS:]
    if sum(map(len, upstream)) + sum(map(len, upstream.values())) + 4 * len(upstream) <= MOST_PASSED:
        return found
    left = MOST_PASSED
    for count, (name, value) in enumerate(found):
        left -= len(name) + len(value) + 4
        if left < 0:
            return found[:count]
    return found


def markdown() -> str:
    """Return the table of what is withheld."""
    lines = ["| withheld | headers | because |", "|---|---|---|"]
    for row in WITHHELD:
        shown = [f"`{name}`" for name in sorted(row.names)] + [f"`{prefix}*`" for prefix in row.prefixes]
        if row.words:
            shown.append("names with the word " + ", ".join(f"`{word}`" for word in sorted(row.words)))
        lines.append(f"| {row.what} | {', '.join(shown)} | {row.why} |")
    return "\n".join(lines) + "\n"
