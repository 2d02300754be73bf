"""What may be fetched: URLs that have one reading, prefixes, and addresses that are public."""

from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mustcall.policy.limits.egress import Denied, EgressTarget, is_public, permit, read_network, read_place, read_prefix
from mustcall.upstream.http1.request import read_url


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://a.test", EgressTarget("https", "a.test", 443, "/")),
        ("HTTPS://A.Test:443/X?q=1#f", EgressTarget("https", "a.test", 443, "/X?q=1")),
        ("http://a.test:8080?q", EgressTarget("http", "a.test", 8080, "/?q")),
        ("http://1.2.3.4/", EgressTarget("http", "1.2.3.4", 80, "/")),
        ("http://[2606:2800:021F::1]/", EgressTarget("http", "2606:2800:21f::1", 80, "/")),
        ("http://xn--bcher-kva.test/é", EgressTarget("http", "xn--bcher-kva.test", 80, "/é")),
        ("http://a.test/a@b:c//d", EgressTarget("http", "a.test", 80, "/a@b:c//d")),
        ("http://a.test/...", EgressTarget("http", "a.test", 80, "/...")),
    ],
)
def test_urls(url: str, place: EgressTarget) -> None:
    """A URL is read into its parts, and written from them so that nothing is left to the reader."""
    assert read_place(url) == place
    assert read_place(place.url) == place


#: Pieces that URLs, and tricks with them, are made of.
_PIECES = st.sampled_from(
    [
        *("http://", "https://", "http:", "//", "/", "\\", "@", ":", "#", "?", "%", ".", "..", "[", "]", "::1", "%2e"),
        *("a.test", "127.0.0.1", "127.1", "0x7f", "017", "1", "localhost", "\uff11", "\u3002", "ⓛ", "\t", "\n", " "),
        *(":80", ":0", ":99999", "user", "%00", "%2f", "\x00", "é", "-", "_", "*", "xn--"),
    ]
)


@given(st.lists(_PIECES, max_size=8).map("".join) | st.text(max_size=30).map(lambda text: f"http://{text}"))
@example("http://a.test\\@127.0.0.1/")
@example("http://a.test#@127.0.0.1/")
@example("http://a.test?@127.0.0.1/")
@example("http://a.test;@127.0.0.1/")
@example("http://[::1]a.test/")
def test_one_reading(url: str) -> None:
    """Whatever is written, a URL is refused or others read the same host and port from it, before and after."""
    try:
        place = read_place(url)
    except Denied:
        return
    assert read_place(place.url) == place
    to = read_url(place.url)
    assert (to.host, to.port, to.tls) == (place.host, place.port, place.scheme == "https")
    assert (urlsplit(url).port or place.port) == place.port
    if place.address is None:
        assert urlsplit(url).hostname == place.host


@given(st.ip_addresses())
def test_public_is_global(address: object) -> None:
    """What is taken for public is so for Python's own tables, too; whatever is written in an odd form is not."""
    if is_public(str(address)):
        assert getattr(address, "is_global", False)
        assert not getattr(address, "is_multicast", True)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("172.15.255.255", True),
        ("168.63.129.15", True),
        ("168.63.129.16", False),
        ("172.16.0.0", False),
        ("192.0.2.1", False),
        ("198.19.255.255", False),
        ("2001::1", False),
        ("2001:db8::1", False),
        ("fec0::1", False),
        ("ff02::1", False),
        ("fe80::1%eth0", False),
        ("2606:2800:21f::1%eth0", False),
        ("localhost", False),
        ("", False),
    ],
)
def test_public_addresses(address: str, public: bool) -> None:
    """Rule 99: only what is handed out to the public net is public."""
    assert is_public(address) is public


def test_exempt_networks() -> None:
    """A network that is named is reached all the same, and nothing beside it."""
    exempt = [read_network("127.0.0.1/32"), read_network("fd00::/8")]
    assert is_public("127.0.0.1", exempt)
    assert is_public("fd00::1", exempt)
    assert not is_public("127.0.0.2", exempt)
    assert not is_public("::ffff:127.0.0.1", exempt)
    assert not is_public("fd00::1%eth0", exempt)
    with pytest.raises(Denied):
        read_network("127.0.0.1/8")


def test_the_empty_list() -> None:
    """Rule 99: no prefix permits nothing."""
    with pytest.raises(Denied, match="not on the list"):
        permit(read_place("https://a.test/"), [])
    permit(read_place("https://a.test/"), [read_prefix("a.test")])


@pytest.mark.parametrize(
    "path",
    [
        "/docs/..;/admin",
        "/docs/..;a=b/admin",
        "/docs/..%3b/admin",
        "/docs/%2E%2e%3B/admin",
        "/docs/..%253b/admin",
        "/docs/%252e%252e/admin",
        "/docs/%25252e%25252E/admin",
        "/docs/..%252f/admin",
        "/docs/..%255c/admin",
        "/docs/%c0%ae%c0%ae/x",
        "/docs/..%C0%AFx",
        "/docs/..%c1%9cx",
        "/docs/%e0%80%ae%e0%80%ae/x",
        "/docs/%f0%80%80%ae/x",
        "/docs/%u002e%u002e/x",
    ],
)
def test_a_path_stays_under_its_prefix(path: str) -> None:
    """Rule 99: what some server reads as a way up is not under a path prefix."""
    with pytest.raises(Denied):
        permit(read_place(f"https://a.test{path}"), [read_prefix("https://a.test/docs")])


@pytest.mark.parametrize(
    "path",
    ["/docs/a;b=c", "/docs/a..b", "/docs/...;/x", "/docs/100%25", "/docs/%252a", "/docs/%c3%a0", "/docs/%e0%a4%85"],
)
def test_a_path_that_only_looks_odd(path: str) -> None:
    """What every server reads as a place below is under the prefix, and under no other."""
    place = read_place(f"https://a.test{path}")
    permit(place, [read_prefix("https://a.test/docs")])
    with pytest.raises(Denied):
        permit(place, [read_prefix("https://a.test/other")])
