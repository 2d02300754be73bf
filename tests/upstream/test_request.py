"""The head of a request: as given, or refused. Nothing in a call can break out of its place."""

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.upstream.http1.request import RequestTarget, UnusableUrl, Unwritable, read_url, write_head
from mustcall.upstream.seam import UpstreamCall

TO = read_url("http://upstream:8000/v1/chat?x=1")


def head_of(headers: dict[str, str], to: RequestTarget = TO, method: str = "POST", body: bytes | None = b"{}") -> bytes:
    """Write a head."""
    return write_head(UpstreamCall(url="", headers=headers, body=body, method=method), to)


def lines_of(head: bytes) -> list[bytes]:
    """Take a head apart."""
    assert head.endswith(b"\r\n\r\n")
    return head[:-4].split(b"\r\n")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://a.example/v1", (False, "a.example", 80, "/v1", "Host: a.example\r\n")),
        ("https://a.example", (True, "a.example", 443, "/", "Host: a.example\r\n")),
        ("HTTP://A.Example:80/", (False, "a.example", 80, "/", "Host: a.example\r\n")),
        ("https://a.example:80/", (True, "a.example", 80, "/", "Host: a.example:80\r\n")),
        ("http://[::1]:8000/v1?a=b#part", (False, "::1", 8000, "/v1?a=b", "Host: [::1]:8000\r\n")),
        ("http://[::1]/", (False, "::1", 80, "/", "Host: [::1]\r\n")),
        ("http://my_service:9/", (False, "my_service", 9, "/", "Host: my_service:9\r\n")),
        ("http://bücher.example/é b?q=ü", (False, "xn--bcher-kva.example", 80, "/%C3%A9%20b?q=%C3%BC", None)),
        ("http://a/x%2Fy?q=%7E+%20", (False, "a", 80, "/x%2Fy?q=%7E+%20", "Host: a\r\n")),
        ("http://a?only=query", (False, "a", 80, "/?only=query", "Host: a\r\n")),
    ],
)
def test_urls(url: str, expected: tuple[bool, str, int, str, str | None]) -> None:
    """A URL gives where to connect, what to ask for and whom: what is quoted stays, what must be is quoted."""
    to = read_url(url)
    assert (to.tls, to.host, to.port, to.target) == expected[:4]
    assert expected[4] is None or to.host_line == expected[4]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nowhere",
        "http://",
        "http://:80",
        "ftp://a/",
        "http://[::1",
        "http://a:99999/",
        "http://a:0/",
        "http://a:x/",
        "http://a b/",
        "http://a\x00b/",
        "http://a\u2028b/",
        "http://" + "ü" * 80 + "/",
        "//a/",
    ],
)
def test_unusable_urls(url: str) -> None:
    """What no request can be sent to is one error."""
    with pytest.raises(UnusableUrl):
        read_url(url)


def test_user_in_the_url() -> None:
    """A user and a password in a URL are an authorization, and never part of host or target."""
    to = read_url("http://us%3Aer:p%40ss@a/v1")
    assert (to.host, to.target, to.host_line) == ("a", "/v1", "Host: a\r\n")
    assert lines_of(head_of({}, to))[2] == b"Authorization: Basic dXM6ZXI6cEBzcw=="
    with pytest.raises(Unwritable, match="take one of them away"):
        head_of({"authorization": "Bearer key"}, to)


def test_head() -> None:
    """The request's own lines, the headers as given, and nothing else."""
    assert lines_of(head_of({"x-a": "1", "X-B": "two words"})) == [
        b"POST /v1/chat?x=1 HTTP/1.1",
        b"Host: upstream:8000",
        b"x-a: 1",
        b"X-B: two words",
        b"Content-Length: 2",
    ]


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [
        ("POST", b"abc", b"3"),
        ("POST", b"", b"0"),
        ("POST", None, b"0"),
        ("DELETE", None, b"0"),
        ("GET", None, None),
        ("HEAD", None, None),
        ("GET", b"", b"0"),
    ],
)
def test_length(method: str, body: bytes | None, length: bytes | None) -> None:
    """A body is declared, and so is the lack of one where a server would wait for it."""
    lines = lines_of(head_of({}, method=method, body=body))
    assert lines[2:] == ([] if length is None else [b"Content-Length: " + length])


@pytest.mark.parametrize("name", ["host", "Host", "HOST"])
def test_host_of_the_call(name: str) -> None:
    """A host that the call brings replaces ours, each time."""
    for _ in range(2):
        assert lines_of(head_of({name: "virtual"}))[1:2] == [name.encode() + b": virtual"]


@pytest.mark.parametrize("name", ["content-length", "Transfer-Encoding", "connection", "Upgrade", "expect"])
def test_framing_is_ours(name: str) -> None:
    """A header that says how the request is framed is refused, by its name."""
    for _ in range(2):
        with pytest.raises(Unwritable, match=name.lower()):
            head_of({"x-a": "1", name: "5"})


@pytest.mark.parametrize("name", ["", "a b", "a:", "a\r\nb", "a\n", "a\0", "é", "a\u010a"])
def test_names_are_words(name: str) -> None:
    """A name that is no word of HTTP is refused."""
    with pytest.raises(Unwritable, match="name of one of its headers"):
        head_of({name: "1"})


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\0b", "\r\nx-injected: 1", "\n", "a\r\n\r\nGET / HTTP/1.1"])
def test_values_stay_in_their_line(value: str) -> None:
    """A value with a line break or a NUL is refused, by the header's name and without the value."""
    with pytest.raises(Unwritable, match="x-bad") as caught:
        head_of({"x-good": "1", "x-bad": f"sekret{value}"})
    assert "sekret" not in str(caught.value)


@pytest.mark.parametrize("method", ["", "GE T", "GET\r\nx: y", "GÉT"])
def test_method_is_a_word(method: str) -> None:
    """A method that is no word is refused."""
    with pytest.raises(Unwritable, match="method"):
        head_of({}, method=method)


def test_values_leave_as_they_came() -> None:
    """Bytes that were read as latin-1 leave as the same bytes; what has no latin-1 form leaves as UTF-8."""
    assert lines_of(head_of({"x": "caf\xe9"}))[2] == b"x: caf\xe9"
    assert lines_of(head_of({"x": "caf\xe9", "y": "žluť", "z": "\ud800"}))[2:5] == [
        b"x: caf\xe9",
        b"y: " + "žluť".encode(),
        b"z: ?",
    ]


class Heard:
    """What a server's parser hears."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.ended = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header."""
        self.headers.append((name, value))

    def on_message_complete(self) -> None:
        """Note the end of a request."""
        self.ended += 1


@given(
    st.dictionaries(
        st.one_of(st.sampled_from(["x-a", "x-b"]), st.text(max_size=8)),
        st.text(st.characters(max_codepoint=0x2100), max_size=20),
        max_size=4,
    )
)
def test_a_server_hears_what_was_given(headers: dict[str, str]) -> None:
    """Whatever headers hold, a server reads one request with just these headers, or nothing is written."""
    try:
        head = head_of(headers, body=b"")
    except Unwritable:
        return
    heard = Heard()
    parser = httptools.HttpRequestParser(heard)
    try:
        parser.feed_data(head)
    except httptools.HttpParserError:  # a control character that this server does not take
        assert any(ord(mark) < 32 or mark == "\x7f" for value in headers.values() for mark in value)
        return
    assert heard.ended == 1
    assert [name.decode().lower() for name, _ in heard.headers] == [
        *(["host"] if not any(name.lower() == "host" for name in headers) else []),
        *[name.lower() for name in headers],
        "content-length",
    ]
