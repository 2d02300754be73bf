"""The sentences about exchanges that failed, the same over every transport.

They name the host and port of the upstream and never more of the call: paths, queries and headers may hold secrets. A
redirect is named with its path: it is what base_url is to become.
"""

import os
from urllib.parse import urljoin, urlsplit

from mustcall.core.errors import UpstreamGarbage, UpstreamRedirected, UpstreamTimeout, UpstreamUnavailable
from mustcall.upstream.seam import UpstreamCall
from mustcall.upstream.variables import shown_url

__all__ = [
    "answer_stopped",
    "answer_too_fine",
    "answer_too_large",
    "broke",
    "cannot_connect",
    "closed_early",
    "host_of",
    "no_answer",
    "no_connection",
    "no_proxy",
    "no_turn",
    "not_http",
    "proxy_refused",
    "reason_of",
    "redirected",
    "unreadable_proxy",
    "unusable_proxy",
    "unusable_url",
]


def host_of(call: UpstreamCall) -> str | None:
    """Return what to call the upstream; None if its URL cannot be read."""
    try:
        parts = urlsplit(call.url)
        port = parts.port
    except ValueError:
        return None
    return f"{parts.hostname}:{port}" if port else f"{parts.hostname}"


def unusable_url() -> UpstreamUnavailable:
    """The address is none."""
    return UpstreamUnavailable("the upstream's base_url is not a usable http(s) URL")


def no_connection(call: UpstreamCall) -> UpstreamTimeout:
    """Nobody took the connection in time."""
    return _unsent(UpstreamTimeout(f"no connection to the upstream {host_of(call)} within {call.timeouts.connect:g} s"))


def no_answer(call: UpstreamCall) -> UpstreamTimeout:
    """The answer did not begin in time."""
    return UpstreamTimeout(f"the upstream {host_of(call)} did not answer in time")


def no_turn(call: UpstreamCall) -> UpstreamTimeout:
    """The time ran out before the request could be sent."""
    return _unsent(no_answer(call))


def answer_stopped(call: UpstreamCall) -> UpstreamTimeout:
    """The answer began and did not go on."""
    return UpstreamTimeout(f"the upstream sent nothing for {call.timeouts.idle:g} s in the middle of its answer")


def cannot_connect(call: UpstreamCall, error: OSError) -> UpstreamUnavailable:
    """There is no connection to be had."""
    return UpstreamUnavailable(f"cannot connect to the upstream {host_of(call)}: {reason_of(error)}")


def reason_of(error: OSError) -> str:
    """Return why there is no connection. asyncio puts the address in place of the system's own words."""
    if error.errno is not None and (error.strerror or "").startswith("Connect call failed"):
        return os.strerror(error.errno)
    return error.strerror or type(error).__name__


def no_proxy(call: UpstreamCall, reason: str) -> UpstreamUnavailable:
    """There is no connection to the proxy to be had."""
    return UpstreamUnavailable(f"cannot connect to the proxy for the upstream {host_of(call)}: {reason}")


def proxy_refused(call: UpstreamCall, status: int) -> UpstreamUnavailable:
    """The proxy opens no tunnel."""
    return UpstreamUnavailable(f"the proxy for the upstream {host_of(call)} refused: HTTP {status}")


def redirected(call: UpstreamCall, status: int, location: str | None) -> UpstreamRedirected:
    """The answer is elsewhere; where is said without query and user."""
    try:
        target = shown_url(urljoin(call.url, location)) if location else ""
    except ValueError:
        target = ""
    to = f" to {target}" if target else ""
    return UpstreamRedirected(
        f"the upstream {host_of(call)} redirects (HTTP {status}){to}; redirects are not followed: correct base_url"
    )


def closed_early(call: UpstreamCall) -> UpstreamUnavailable:
    """The connection ended first."""
    return UpstreamUnavailable(f"the upstream {host_of(call)} closed the connection before its answer was complete")


def broke(call: UpstreamCall, error: Exception) -> UpstreamUnavailable:
    """The connection failed."""
    return UpstreamUnavailable(f"the connection to the upstream {host_of(call)} broke: {type(error).__name__}")


def not_http(call: UpstreamCall, why: str) -> UpstreamGarbage:
    """Something else than HTTP came back."""
    return UpstreamGarbage(f"the upstream {host_of(call)} did not answer in HTTP: {why}")


def answer_too_large(limit: int) -> UpstreamGarbage:
    """More came than may be held."""
    return UpstreamGarbage(f"the upstream's answer is larger than {limit} bytes ([limits] reply_bytes)")


def answer_too_fine(limit: int) -> UpstreamGarbage:
    """It holds more values than are ever read."""
    return UpstreamGarbage(f"the upstream's answer holds more than {limit} values ([limits] reply_elements)")


def _unsent(error: UpstreamTimeout) -> UpstreamTimeout:
    error.sent = False
    return error


def unreadable_proxy(call: UpstreamCall) -> UpstreamUnavailable:
    """The proxy that the environment names has an address that cannot be read; it may hold a password."""
    return UpstreamUnavailable(
        f"the environment names a proxy for {host_of(call)} whose address cannot be read: look at HTTP_PROXY, "
        "HTTPS_PROXY and ALL_PROXY, and write odd characters of a password with percent signs (%40 for @)"
    )


def unusable_proxy(call: UpstreamCall, kind: str) -> UpstreamUnavailable:
    """The proxy that the environment names does not speak HTTP."""
    return UpstreamUnavailable(
        f"the environment names a {kind} proxy for {host_of(call)}, and only http and https proxies can be used: "
        "set HTTP_PROXY and HTTPS_PROXY to one, or NO_PROXY to the host"
    )
