"""Which web pages may call the gateway, and the headers a browser needs to let them."""

from collections.abc import Mapping, Sequence

from mustcall.core.errors import ForeignOrigin
from mustcall.gateway.replies import Header

__all__ = ["check_origin", "cors_headers"]

#: Our headers that a web page may read.
_EXPOSED = b", ".join(
    b"x-mustcall-" + name
    for name in (
        *(b"request-id", b"outcome", b"attempts", b"verdicts", b"adaptations", b"force", b"protocol", b"trace"),
        *(b"usage-total", b"cost-usd", b"cost-estimated"),
    )
)


def check_origin(headers: Mapping[str, str], listed: Sequence[str]) -> None:
    """Refuse pages nobody listed. Only browsers send an origin; CORS alone would not keep a page from posting."""
    origin = headers.get("origin")
    if origin is not None and not _allows(listed, origin):
        raise ForeignOrigin(f"the web page {origin[:200]!r} may not call this gateway; list it in cors_origins")


def cors_headers(headers: Mapping[str, str], listed: Sequence[str]) -> list[Header]:
    """Return the headers that let a listed page read the answer."""
    origin = headers.get("origin")
    if origin is None or not _allows(listed, origin):
        return []
    asked = headers.get("access-control-request-headers", "")
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
        (b"access-control-allow-headers", asked.encode("latin-1") or b"authorization, content-type, x-api-key"),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"origin"),
    ]


def _allows(listed: Sequence[str], origin: str) -> bool:
    return origin in listed or "*" in listed
