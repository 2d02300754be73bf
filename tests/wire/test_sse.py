"""Server-sent events: chunking, line ends, limits, and forwarding at event borders."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import UpstreamGarbage
from mustcall.wire import sse
from mustcall.wire.sse import SseDecoder, SseEvent, SseFramer, encode_event


def _read(*chunks: bytes) -> list[SseEvent]:
    decoder = SseDecoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events + decoder.close()


def _feed_all(reader: SseDecoder | SseFramer, chunks: list[bytes]) -> None:
    for chunk in chunks:
        reader.feed(chunk)


def _per_byte(data: bytes) -> list[bytes]:
    return [data[position : position + 1] for position in range(len(data))]


_CASES = [
    pytest.param(b"data: a\n\n", [("", b"a")], id="lf"),
    pytest.param(b"data: a\r\n\r\n", [("", b"a")], id="crlf"),
    pytest.param(b"data: a\r\r", [("", b"a")], id="cr"),
    pytest.param(
        b"data: a\n\r\ndata: b\r\n\ndata: c\r\r\ndata: d\n\r",
        [("", b"a"), ("", b"b"), ("", b"c"), ("", b"d")],
        id="mixed line ends",
    ),
    pytest.param(b"event: x\ndata: a\n\ndata: b\n\n", [("x", b"a"), ("", b"b")], id="a name holds for one event"),
    pytest.param(b"data: a\ndata: b\ndata:\ndata\n\n", [("", b"a\nb\n\n")], id="multi-line data"),
    pytest.param(b"data:a\ndata:  b\n\n", [("", b"a\n b")], id="one space is skipped, not two"),
    pytest.param(b": keepalive\n\n:\n\ndata: a\n: in between\ndata: b\n\n", [("", b"a\nb")], id="comments"),
    pytest.param(b"id: 7\nretry: 10\nfoo: bar\nnonsense\ndata: a\n\n", [("", b"a")], id="other fields"),
    pytest.param(b"\xef\xbb\xbfdata: a\n\n", [("", b"a")], id="byte order mark"),
    pytest.param(b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [("", b"a")], id="a later mark is no mark"),
    pytest.param(
        "data: a\u2028b\u2029c\u0085d\x0b\x0ce\n\n".encode(),
        [("", "a\u2028b\u2029c\u0085d\x0b\x0ce".encode())],
        id="other separators",
    ),
    pytest.param("event: \u00e9\ndata: \U0001f600\n\n".encode(), [("é", "\U0001f600".encode())], id="split utf-8"),
    pytest.param(b"event: \xff\ndata: \xff\n\n", [("\ufffd", b"\xff")], id="bytes that are no utf-8"),
    pytest.param(b"event: ping\n\ndata: a\n\n", [("", b"a")], id="an event without data is none"),
    pytest.param(b"data: {}\n\ndata: [DONE]\n\n", [("", b"{}"), ("", b"[DONE]")], id="done"),
    pytest.param(b"data: a\n\ndata: b", [("", b"a"), ("", b"b")], id="hung up after the last line"),
    pytest.param(b"data: a\n\ndata: b\n", [("", b"a"), ("", b"b")], id="hung up before the blank line"),
    pytest.param(b"\n\n\r\n\r\r", [], id="blank lines"),
    pytest.param(b"", [], id="nothing"),
]


@pytest.mark.parametrize(("data", "expected"), _CASES)
def test_events_at_every_split(data: bytes, expected: list[tuple[str, bytes]]) -> None:
    """Build 3: the events of a stream are the same whole, per byte and at every split position."""
    events = [SseEvent(name, value) for name, value in expected]
    assert _read(data) == events
    assert _read(*_per_byte(data)) == events
    for cut in range(len(data) + 1):
        assert _read(data[:cut], data[cut:]) == events, cut


_lines = st.sampled_from([b"data: a", b"data: b\xc3\xa9", b"event: e", b": c", b"data", b"", b"", b"id: 1"])
_ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
_streams = st.lists(st.tuples(_lines, _ends), max_size=12).map(lambda pairs: b"".join(a + b for a, b in pairs))


_anything = _streams | st.binary(max_size=60)


@st.composite
def _chunked(draw: st.DrawFn, streams: st.SearchStrategy[bytes] = _anything) -> list[bytes]:
    data = draw(streams)
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    return [data[start:end] for start, end in itertools.pairwise([0, *cuts, len(data)])]


@given(_chunked())
def test_chunking_never_matters(chunks: list[bytes]) -> None:
    """Build 3: random splits of random streams and of random bytes give what the whole gives."""
    assert _read(*chunks) == _read(b"".join(chunks))


def test_line_ends_are_cr_and_lf_only() -> None:
    """Build 3: an independent reading by the standard's rules agrees for every mix of line ends."""
    for ends in itertools.product((b"\n", b"\r\n", b"\r"), repeat=4):
        if (b"\r", b"\n") in itertools.pairwise(ends[:2]) or (b"\r", b"\n") in itertools.pairwise(ends[2:]):
            continue  # CR and then LF on an empty line are one line end, not two
        data = b"".join(line + end for line, end in zip((b"data: a", b"", b"data: b", b""), ends, strict=True))
        assert _read(data) == [SseEvent("", b"a"), SseEvent("", b"b")], ends
        assert _read(*_per_byte(data)) == [SseEvent("", b"a"), SseEvent("", b"b")], ends


@pytest.mark.parametrize(
    "data",
    [
        b"data: " + b"x" * 100,
        b"data: x\n" * 30,
        b"event: " + b"x" * 100,
        b": " + b"x" * 100,
        b"data: x\n" + b": comment\n" * 20,
    ],
    ids=["one line", "many lines", "name", "comment", "comments inside an event"],
)
@pytest.mark.parametrize("per_byte", [False, True])
def test_oversize_event_is_garbage(data: bytes, per_byte: bool) -> None:
    """Build 3: an event that does not end within the limit raises `UpstreamGarbage`, whole or in bytes."""
    decoder = SseDecoder(limit=64)
    with pytest.raises(UpstreamGarbage, match="more than 64 bytes"):
        _feed_all(decoder, _per_byte(data) if per_byte else [data])


def test_limit_is_per_event() -> None:
    """Many events and many comments under the limit never add up to it."""
    decoder = SseDecoder(limit=64)
    for _ in range(50):
        assert decoder.feed(b": " + b"c" * 40 + b"\n\nevent: e\ndata: " + b"x" * 40 + b"\n\n") == [
            SseEvent("e", b"x" * 40)
        ]


def test_partial_line_is_kept_in_fragments() -> None:
    """Linear cost: a line in a thousand pieces is joined once, not per piece."""
    decoder = SseDecoder()
    pieces = [b"data: ", *([b"xy"] * 1000)]
    for piece in pieces:
        assert decoder.feed(piece) == []
    assert decoder._framer._held == pieces
    assert decoder.feed(b"\n\n") == [SseEvent("", b"xy" * 1000)]


@given(st.text(alphabet=st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=30))
def test_encoded_event_is_read_back(text: str) -> None:
    """Whatever single line goes into an event comes out again."""
    assert _read(encode_event(text.encode(), "name")) == [SseEvent("name", text.encode())]
    assert _read(encode_event(b"x" + text.encode())) == [SseEvent("", b"x" + text.encode())]


def _frame(chunks: list[bytes]) -> tuple[list[bytes], bytes]:
    framer = SseFramer()
    blocks = [framer.feed(chunk) for chunk in chunks]
    return [block for block in blocks if block], framer.close()


@given(_chunked())
def test_framer_changes_no_byte(chunks: list[bytes]) -> None:
    """Must show: forwarded bytes are the upstream's bytes."""
    blocks, rest = _frame(chunks)
    assert b"".join(blocks) + rest == b"".join(chunks)


@given(_chunked(_streams))
def test_framer_cuts_at_borders(chunks: list[bytes]) -> None:
    """A block never leaves half an event behind, and every complete event is handed out at once."""
    framer = SseFramer()
    given_out, fed = b"", b""
    for chunk in chunks:
        given_out += framer.feed(chunk)
        fed += chunk
        whole, cut = SseDecoder(), SseDecoder()
        complete = whole.feed(fed)
        assert cut.feed(given_out) == complete
        assert cut.close() == []


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\r\n\n"])
def test_framer_knows_every_border(end: bytes) -> None:
    """Each mix of line ends is a border, so that no event waits for the next one."""
    framer = SseFramer()
    assert framer.feed(b"data: a" + end + b"data: b") == b"data: a" + end
    assert framer.feed(end) == b"data: b" + end
    assert framer.close() == b""
    assert framer.last_events() == [SseEvent("", b"a"), SseEvent("", b"b")]


def test_framer_tail() -> None:
    """The last blocks are enough to see how the stream ended, and no more are kept."""
    framer = SseFramer()
    for number in range(10):
        framer.feed(b"data: %d\n\n" % number)
    framer.feed(b"data: [DONE]")
    assert framer.last_events() == [SseEvent("", b"%d" % number) for number in (6, 7, 8, 9)]
    assert framer.close() == b"data: [DONE]"
    assert framer.last_events()[-1] == SseEvent("", b"[DONE]")
    assert len(framer.tail) == 4


def test_framer_limit() -> None:
    """An event that never ends is garbage; whole events of any size pass and can be looked at."""
    framer = SseFramer(limit=64)
    assert framer.feed(b"data: " + b"x" * 100 + b"\n\n")
    assert framer.last_events() == [SseEvent("", b"x" * 100)]
    with pytest.raises(UpstreamGarbage, match="more than 64 bytes"):
        _feed_all(framer, [b"data: x\n"] * 20)


def test_framer_searches_each_byte_once() -> None:
    """Linear cost: what is held is kept in pieces, with one byte of overlap."""
    framer = SseFramer()
    for _ in range(1000):
        assert framer.feed(b"xy") == b""
    assert len(framer._held) == 1000
    assert framer._overlap == b"y"


_LINES = st.sampled_from([b"data: a", b"data:b", b"data: ", b"event: e", b"event:f", b": c", b"id: 1", b"", b"", b"x"])


@given(st.lists(_LINES, max_size=12))
def test_the_quick_reader_agrees_with_the_standard_one(lines: list[bytes]) -> None:
    """A block the quick reader takes is read as the line reader reads it."""
    block = b"\n".join(lines) + b"\n\n"
    quick = sse._read_usual(block)
    assert quick is None or quick == sse._read_lines(block)


def test_the_quick_reader_takes_the_usual_forms() -> None:
    """Chat's data-only events and the other wires' named ones are the quick forms."""
    assert sse._read_usual(b"data: 1\n\ndata: 2\n\n") == [SseEvent("", b"1"), SseEvent("", b"2")]
    assert sse._read_usual(b"event: a\ndata: 1\n\nevent: b\ndata: 2\n\n") == [
        SseEvent("a", b"1"),
        SseEvent("b", b"2"),
    ]
