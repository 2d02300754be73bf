"""Server-sent events, read and written by hand.

Lines end at CR, LF or CRLF and nowhere else (not at U+2028, U+0085 or form feeds, which are legal in JSON strings).
Comments, `id` and `retry` are read and ignored; several `data` lines are joined by LF; a byte order mark at the
start is skipped. Data stays bytes: a line is only handed on whole, so a split UTF-8 sequence never shows.

Cost is linear in the bytes fed: a partial line is kept as a list of fragments and joined once, when its end comes.
An event over `limit` bytes raises `UpstreamGarbage`; nothing else is ever raised.
"""

import re

import msgspec

from mustcall.core.errors import UpstreamGarbage

__all__ = ["DEFAULT_EVENT_LIMIT", "SseDecoder", "SseEvent", "SseFramer", "encode_event"]

DEFAULT_EVENT_LIMIT = 32 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\r|\n")


class SseEvent(msgspec.Struct, frozen=True):
    """One dispatched event: its `event:` name (empty if none) and its joined data."""

    name: str
    data: bytes


def encode_event(data: bytes, name: str = "") -> bytes:
    """Write one event whose data is a single line, as every wire's JSON is."""
    if name:
        return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
    return b"data: %b\n\n" % data


class SseDecoder:
    """Bytes in, events out, whatever the chunking.

    The line buffer (`_partial`) holds fragments of one unfinished line and is never scanned again; `_size` counts
    what the current event holds, lines included, and is what the limit is checked against.
    """

    __slots__ = ("_after_cr", "_data", "_first", "_limit", "_name", "_partial", "_size")

    def __init__(self, limit: int = DEFAULT_EVENT_LIMIT) -> None:
        self._limit = limit
        self._partial: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""
        self._size = 0
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Take some bytes and return the events they complete."""
        events: list[SseEvent] = []
        if self._after_cr and chunk:
            # The CR that ended the last line may have been the first half of a CRLF.
            self._after_cr = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        if not chunk:
            return events
        if b"\r" not in chunk:
            lines = chunk.split(b"\n")
        else:
            lines = _LINE_END.split(chunk)
            self._after_cr = chunk[-1:] == b"\r"
        last = len(lines) - 1
        for number, line in enumerate(lines):
            if number == last:
                if line:
                    self._partial.append(line)
                    self._grow(len(line))
                break
            if self._partial:
                self._partial.append(line)
                whole = b"".join(self._partial)
                self._partial.clear()
            else:
                whole = line
            self._grow(len(line))
            event = self._line(whole)
            if event is not None:
                events.append(event)
        return events

    def close(self) -> list[SseEvent]:
        """Take the end of the bytes.

        An event without its closing blank line is dispatched too: servers that hang up right after the last line
        are common, and a half-written one is caught by its JSON not parsing.
        """
        events: list[SseEvent] = []
        if self._partial:
            whole = b"".join(self._partial)
            self._partial.clear()
            event = self._line(whole)
            if event is not None:
                events.append(event)
        event = self._line(b"")
        if event is not None:
            events.append(event)
        return events

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise UpstreamGarbage(
                f"the upstream sent a stream event of more than {self._limit} bytes without ending it"
            )

    def _line(self, line: bytes) -> SseEvent | None:
        """Take one line without its end; a blank one dispatches the event."""
        if self._first:
            self._first = False
            if line.startswith(_BOM):
                line = line[3:]
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        elif not self._data:
            # A comment or an unknown field between events: nothing of it is kept, so it does not count.
            self._size = len(self._name)
        return None

    def _dispatch(self) -> SseEvent | None:
        data, name = self._data, self._name
        self._size = 0
        self._name = b""
        if not data:
            return None
        self._data = []
        return SseEvent(
            name.decode("utf-8", "replace") if name else "",
            data[0] if len(data) == 1 else b"\n".join(data),
        )


class SseFramer:
    """Bytes in, the same bytes out at event borders, so that a cut stream never leaves half an event behind.

    A border is a line end right after a line end, in any mix of CR, LF and CRLF. Only the bytes since the last one are
    held; each chunk is searched once, with one byte of overlap.
    `tail` keeps the last few blocks handed out: enough to tell afterwards how the stream ended.
    """

    __slots__ = ("_held", "_limit", "_overlap", "_size", "tail")

    _BORDERS = (b"\n\n", b"\n\r", b"\r\r")
    _TAIL_BLOCKS = 4

    def __init__(self, limit: int = DEFAULT_EVENT_LIMIT) -> None:
        self._limit = limit
        self._held: list[bytes] = []
        self._size = 0
        self._overlap = b""
        self.tail: list[bytes] = []

    def feed(self, chunk: bytes) -> bytes:
        """Take some bytes and return everything up to the last event border."""
        if not self._held and chunk.endswith(b"\n\n"):
            # Most chunks are whole events.
            return self._hand_out(chunk)
        window = self._overlap + chunk
        cut = -1
        for border in self._BORDERS:
            found = window.rfind(border)
            if found >= 0:
                cut = max(cut, found + len(border))
        if cut < 0:
            self._hold(chunk)
            self._overlap = window[-1:]
            return b""
        if window[cut - 1 : cut + 1] == b"\r\n":
            cut += 1
        cut -= len(self._overlap)
        self._held.append(chunk[:cut])
        block = b"".join(self._held)
        self._held.clear()
        self._size = 0
        rest = chunk[cut:]
        self._overlap = rest[-1:]
        if rest:
            self._hold(rest)
        return self._hand_out(block)

    def close(self) -> bytes:
        """Return what was held: bytes after the last border."""
        block = b"".join(self._held)
        self._held.clear()
        return self._hand_out(block) if block else block

    def last_events(self) -> list[SseEvent]:
        """Read the events of the last blocks handed out."""
        decoder = SseDecoder(sum(map(len, self.tail)))
        return [event for block in self.tail for event in decoder.feed(block)] + decoder.close()

    def _hold(self, piece: bytes) -> None:
        self._held.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            raise UpstreamGarbage(
                f"the upstream sent a stream event of more than {self._limit} bytes without ending it"
            )

    def _hand_out(self, block: bytes) -> bytes:
        tail = self.tail
        tail.append(block)
        if len(tail) > self._TAIL_BLOCKS:
            del tail[0]
        return block
