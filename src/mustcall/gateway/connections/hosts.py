"""Which names a gateway answers to, so that a web page cannot reach one on loopback by a name of its own.

A browser sends no `Origin` with a plain GET of the page's own site. A page whose name was pointed at 127.0.0.1 after
it was loaded (DNS rebinding) is told from a client by its `Host` alone.
"""

from ipaddress import ip_address

from mustcall.core.errors import ForeignOrigin
from mustcall.gateway.config.settings import Settings

__all__ = ["allowed_hosts", "check_host", "is_local"]

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


def allowed_hosts(settings: Settings) -> frozenset[str] | None:
    """Return the names that are answered, None for all."""
    named = frozenset(host.lower() for host in settings.limits.hosts)
    if "*" in named:
        return None
    if is_local(settings.server.host):
        return named | _LOOPBACK
    return named or None


def check_host(host: str | None, allowed: frozenset[str]) -> None:
    """Raise `ForeignOrigin` for a request to another name; one without any comes from no browser."""
    if host is None:
        return
    name = host.lower()
    if name in allowed:
        return
    bare, _, port = name.rpartition(":")
    if bare and port.isdecimal():
        name = bare
    if name not in allowed and not is_local(name):
        raise ForeignOrigin(
            f"this gateway is not called {host[:200]!r}; list the name under hosts in [limits] if it is: a web page "
            "may not reach a local gateway by a name of its own"
        )


def is_local(name: str) -> bool:
    """Tell whether a name or an address is this machine's own."""
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return name == "localhost"
