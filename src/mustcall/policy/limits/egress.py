"""What a tool may fetch from the net: which URLs can be read at all, which are on the list, which addresses are public.

Pure decisions, each a refusal unless something says yes (rule 99). A URL is read here and nowhere else: it has one
reading or none. What other readers are known to disagree about (backslashes, users, numbers as hosts, dots at the end,
letters that turn into others, dot segments) is refused, so that nothing checked here is another place when connected.
"""

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

__all__ = ["Denied", "EgressTarget", "Prefix", "is_public", "permit", "read_network", "read_place", "read_prefix"]

Network = IPv4Network | IPv6Network

_LONGEST = 2048
_PORTS = {"http": 80, "https": 443}
#: Nothing unprintable, no blank and no backslash anywhere.
_PRINTABLE = re.compile(r"[!-\[\]-~\u00a1-\ud7ff\ue000-\ufdcf\ufdf0-\uffef]+")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
#: A last label that some readers take for a number, and the whole host for an address.
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)")
_DOTS = re.compile(r"(?:\.|%2e){1,2}", re.IGNORECASE)
#: A slash or a dot in disguise: servers disagree on what the path then is.
_DISGUISED = re.compile(r"%(?:2f|5c|00)", re.IGNORECASE)
#: Some servers cut a segment off here before they read it.
_PARAMETERS = re.compile(r";|%3b", re.IGNORECASE)
#: The same in two disguises: encoded twice, in more bytes than UTF-8 allows, or by number.
_TWICE = re.compile(
    r"%(?:25)+(?:2e|2f|5c|3b|00)|%(?:c[01]%[0-9a-f]{2}|e0%[89][0-9a-f]|f0%8[0-9a-f])|%u[0-9a-f]{4}", re.IGNORECASE
)

#: Everything that is not the public net, as IANA's special-purpose registries have it; and Azure's own address.
_PRIVATE_4 = tuple(
    IPv4Network(each)
    for each in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
#: Of IPv6 only what is handed out is public; forms that carry an IPv4 address in them are not.
_PUBLIC_6 = IPv6Network("2000::/3")
_PRIVATE_6 = tuple(
    IPv6Network(each) for each in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
)


class Denied(Exception):
    """What is not to be fetched; the words say why, in one line. Stays inside."""


class EgressTarget(msgspec.Struct, frozen=True):
    """A URL that has one reading. `host` is in lower case; an IPv6 address is without its brackets."""

    scheme: str
    host: str
    port: int
    #: The path and the query.
    target: str

    @property
    def url(self) -> str:
        """The URL, with nothing left to the reader."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.target}"

    @property
    def address(self) -> IPv4Address | IPv6Address | None:
        """The address that the host is, None if it is a name."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None


class Prefix(msgspec.Struct, frozen=True):
    """What may be fetched: a host (or all below `*.host`, or any with `*`), maybe a scheme, a port and a path.

    Without a port it is the scheme's own.
    """

    host: str
    scheme: str | None = None
    port: int | None = None
    path: str = ""

    def covers(self, place: EgressTarget) -> bool:
        """Tell whether a place is under this prefix; paths end at a slash."""
        if self.scheme not in (None, place.scheme) or place.port != (self.port or _PORTS[place.scheme]):
            return False
        if self.host.startswith("*."):
            if not place.host.endswith(self.host[1:]):
                return False
        elif self.host not in ("*", place.host):
            return False
        path = place.target.partition("?")[0]
        if self.path and _TWICE.search(path):  # a server that decodes it twice would leave the prefix
            return False
        return not self.path or path == self.path or path.startswith(f"{self.path.rstrip('/')}/")


def read_place(url: str) -> EgressTarget:
    """Read a URL; raise `Denied` for one that is not http(s), or that others could read as another place."""
    if len(url) > _LONGEST:
        raise Denied(f"the URL has more than {_LONGEST} characters")
    if not _PRINTABLE.fullmatch(url):
        raise Denied("the URL holds blanks, control characters or backslashes")
    found = _URL.fullmatch(url)
    if found is None:
        raise Denied("that is no URL; it must begin with https://")
    scheme, slashes, authority, path, query, _ = found.groups()
    if scheme.lower() not in _PORTS:
        raise Denied(f"only http and https are fetched, not {scheme[:20]}")
    if not slashes:
        raise Denied("that is no URL; it must begin with https://")
    if "@" in authority:
        raise Denied("the URL has a user in it")
    host, port = _authority(authority)
    _check_path(path)
    target = (path or "/") + (query or "")
    return EgressTarget(scheme.lower(), host, port or _PORTS[scheme.lower()], target)


def read_prefix(text: str) -> Prefix:
    """Read an entry of the list, `[scheme://]host[:port][/path]`; raise `Denied` for what is none."""
    scheme, slashes, rest = text.strip().rpartition("://")
    if slashes and scheme not in _PORTS:
        raise Denied("its scheme must be http or https")
    authority, slash, path = rest.partition("/")
    wild = authority.startswith("*.")
    if authority == "*" or authority.startswith("*:"):
        name, port = "*", _port(authority[2:]) if authority[1:] else None
    else:
        name, port = _authority(authority.removeprefix("*."))
    if "?" in path or "#" in path:
        raise Denied("a prefix ends with its path")
    _check_path(slash + path)
    return Prefix(f"*.{name}" if wild else name, scheme or None, port, "" if path == "" else f"/{path}")


def permit(place: EgressTarget, prefixes: Sequence[Prefix]) -> None:
    """Raise `Denied` for a place that no prefix covers; without prefixes that is every place (rule 99)."""
    if not any(prefix.covers(place) for prefix in prefixes):
        raise Denied(f"{place.scheme}://{place.host} is not on the list of what may be fetched")


def is_public(address: str, exempt: Sequence[Network] = ()) -> bool:
    """Tell whether an address is on the public net, or on one that is exempt by name."""
    try:
        read = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if any(read in network for network in exempt):
        return "%" not in address
    if isinstance(read, IPv4Address):
        return not any(read in network for network in _PRIVATE_4)
    return read in _PUBLIC_6 and not any(read in network for network in _PRIVATE_6) and "%" not in address


def read_network(text: str) -> Network:
    """Read a network that is exempt; raise `Denied`."""
    try:
        return ip_network(text)
    except ValueError:
        raise Denied("it is no network like 127.0.0.1/32") from None


def _authority(text: str) -> tuple[str, int | None]:
    """Return the host and the port."""
    if text.startswith("["):
        inside, bracket, after = text[1:].partition("]")
        if not bracket or (after and not after.startswith(":")):
            raise Denied("the host cannot be read")
        return _six(inside), _port(after[1:]) if after else None
    name, colon, port = text.partition(":")
    return _name(name.lower()), _port(port) if colon else None


def _port(text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 65535:
        raise Denied("the port is no number from 1 to 65535")
    return int(text)


def _six(text: str) -> str:
    if "%" in text:
        raise Denied("an address with a zone is a local one")
    try:
        return str(IPv6Address(text))
    except ValueError:
        raise Denied("what stands in brackets is no IPv6 address") from None


def _name(name: str) -> str:
    """Return a host's name as it is, or an IPv4 address in its one usual form."""
    if not name.isascii():
        raise Denied("the host has letters that are not ASCII; write it as xn--…")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise Denied("the host cannot be read" if name else "the URL has no host")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(IPv4Address(name))  # takes four decimal numbers without leading zeros, and nothing else
        except ValueError:
            raise Denied("the host is a number in an unusual form") from None
    return name


def _check_path(path: str) -> None:
    if _DISGUISED.search(path) or any(_DOTS.fullmatch(_PARAMETERS.split(each, 1)[0]) for each in path.split("/")):
        raise Denied("the path has dot segments, or slashes in disguise")
