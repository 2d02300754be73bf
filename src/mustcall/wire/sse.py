"""Server-sent events, read and written by hand.

Lines end at CR, LF or CRLF and nowhere else (not at U+2028, U+0085 or form feeds, which are legal in JSON strings).
Comments, `id` and `retry` are read and ignored; several `data` lines are joined by LF; a byte order mark at the
start is skipped. Data stays bytes: an event is only read whole, so a split UTF-8 sequence never shows.

Cost is linear in the bytes fed: what follows the last border between events is kept as a list of pieces, joined once
when the next border comes, and read once. An event over `limit` bytes, or of more JSON values than are ever read,
raises `UpstreamGarbage`; nothing else is ever raised. `Silence` counts what says nothing; who reads the events knows
what does.
"""

import re
from collections.abc import Callable
from itertools import repeat
from operator import itemgetter

import msgspec

from mustcall.core.elements import UNCOUNTED, count_elements
from mustcall.core.errors import UpstreamGarbage
from mustcall.core.limits import DEFAULTS, GatewayLimits

__all__ = ["DEFAULT_EVENT_LIMIT", "Silence", "SseDecoder", "SseEvent", "SseFramer", "encode_event"]

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


class Silence:
    """How many lines of a stream have said nothing since something was said."""

    __slots__ = ("_most", "_since", "lines")

    def __init__(self, limits: GatewayLimits = DEFAULTS) -> None:
        self._most = limits.silent_lines
        self._since: float | None = None
        self.lines = 0

    def end(self) -> None:
        """Something was said."""
        self.lines = 0
        self._since = None

    def lasted(self, now: float) -> float:
        """Return how long nothing has been said, since it was first asked for."""
        if self._since is None:
            self._since = now
        return now - self._since

    def note(self, block: bytes) -> None:
        """Count lines in which nothing was said; raise `UpstreamGarbage` once they are too many."""
        self.lines += max(block.count(b"\n"), block.count(b"\r"))
        if self.lines > self._most:
            raise UpstreamGarbage(f"the upstream's stream said nothing in {self._most} lines ([limits] silent_lines)")


class SseFramer:
    """Bytes in, the same bytes out at event borders, so that a cut stream never leaves half an event behind.

    A border is a line end right after a line end, in any mix of CR, LF and CRLF. Only the bytes since the last one are
    held; each chunk is searched once, with one byte of overlap.
    `tail` keeps the last few blocks handed out: enough to tell afterwards how the stream ended.
    """

    __slots__ = ("_held", "_limit", "_most", "_overlap", "_size", "tail")

    _BORDERS = (b"\n\n", b"\n\r", b"\r\r")
    _TAIL_BLOCKS = 4
    _TAIL_EVENTS = 4

    def __init__(self, limits: GatewayLimits = DEFAULTS, *, limit: int = DEFAULT_EVENT_LIMIT) -> None:
        self._limit = limit
        self._most = limits.reply_elements
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
        for border in self._BORDERS if b"\r" in window else self._BORDERS[:1]:
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

    @property
    def holds(self) -> bool:
        """Whether bytes after the last border are held."""
        return bool(self._held)

    @property
    def size(self) -> int:
        """How many bytes are held."""
        return self._size

    def close(self) -> bytes:
        """Return what was held: bytes after the last border."""
        block = b"".join(self._held)
        self._held.clear()
        return self._hand_out(block) if block else block

    def last_events(self) -> list[SseEvent]:
        """Read the last few events handed out."""
        data = b"".join(self.tail)
        if b"\r" not in data:
            cut = len(data)
            for _ in range(self._TAIL_EVENTS + 1):
                border = data.rfind(b"\n\n", 0, cut)
                if border < 0:
                    break
                cut = border
            else:
                data = data[cut:]
        return _read_lines(data.removeprefix(_BOM))

    def _hold(self, piece: bytes) -> None:
        self._held.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            raise UpstreamGarbage(
                f"the upstream sent a stream event of more than {self._limit} bytes without ending it"
            )

    def _hand_out(self, block: bytes) -> bytes:
        if len(block) > UNCOUNTED:
            _check_elements(block, self._most)
        tail = self.tail
        tail.append(block)
        if len(tail) > self._TAIL_BLOCKS:
            del tail[0]
        return block


def _check_elements(block: bytes, most: int) -> None:
    """Raise `UpstreamGarbage` for bytes that hold more values than are ever read."""
    counting = count_elements(block, most)
    try:
        while True:
            next(counting)
    except StopIteration as counted:
        if counted.value > most:
            raise UpstreamGarbage(
                f"the upstream sent a stream event of more than {most} values ([limits] reply_elements)"
            ) from None


class SseDecoder:
    """Bytes in, events out, whatever the chunking."""

    __slots__ = ("_first", "_framer")

    def __init__(self, limits: GatewayLimits = DEFAULTS, *, limit: int = DEFAULT_EVENT_LIMIT) -> None:
        self._framer = SseFramer(limits, limit=limit)
        self._first = True

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Take some bytes and return the events they complete."""
        block = self._framer.feed(chunk)
        return self.read(block) if block else []

    @property
    def holds(self) -> bool:
        """Whether bytes after the last border are held."""
        return self._framer.holds

    @property
    def size(self) -> int:
        """How many bytes after the last border are held."""
        return self._framer.size

    def frame(self, chunk: bytes) -> bytes:
        """Take some bytes and return the whole events among them, to be read with `read`."""
        if chunk.endswith(b"\n\n") and not self._framer.holds:
            return chunk
        return self._framer.feed(chunk)

    def close_block(self) -> tuple[bytes, list[SseEvent]]:
        """Do as `close`, and return the bytes as well."""
        block = self._framer.close()
        return (block, self.read(block)) if block else (block, [])

    def close(self) -> list[SseEvent]:
        """Take the end of the bytes.

        An event without its closing blank line is dispatched too: servers that hang up right after the last line
        are common, and a half-written one is caught by its JSON not parsing.
        """
        block = self._framer.close()
        return self.read(block) if block else []

    def read(self, block: bytes) -> list[SseEvent]:
        """Read the events of bytes that begin and end at borders; all of them have to be given, in order."""
        if self._first:
            self._first = False
            block = block.removeprefix(_BOM)
        events = _read_usual(block) if block.endswith(b"\n\n") else None
        return _read_lines(block) if events is None else events


def _read_usual(block: bytes) -> list[SseEvent] | None:
    """Read a block in which all events have the one usual form, quickly; None for any other block.

    OpenAI's chat writes a data line and a blank one for each event, the other wires a name, data and a blank one.
    """
    if b"\r" in block:
        return None
    lines = block.split(b"\n")
    # What is translated is read here, every delta of it: in C this takes four fifths of the time.
    if not any(lines[1::2]):
        data = lines[0:-1:2]
        return [*map(SseEvent, repeat(""), map(_value_of, data))] if _all_begin(data, b"data: ") else None
    names, data = lines[0:-1:3], lines[1:-1:3]
    if any(lines[2::3]) or len(names) != len(data):
        return None
    if not (_all_begin(names, b"event: ") and _all_begin(data, b"data: ")):
        return None
    named = {name: name[7:].decode("utf-8", "replace") for name in set(names)}
    return [*map(SseEvent, map(named.__getitem__, names), map(_value_of, data))]


def _all_begin(lines: list[bytes], field: bytes) -> bool:
    return all(map(bytes.startswith, lines, repeat(field)))


#: What stands behind `data: ` in a line.
_value_of: Callable[[bytes], bytes] = itemgetter(slice(6, None))


def _read_lines(block: bytes) -> list[SseEvent]:
    """Read whole events line by line, as the standard says."""
    events: list[SseEvent] = []
    name = b""
    data: list[bytes] = []
    for line in (*_LINE_END.split(block), b""):
        if line:
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value
        elif data:
            events.append(SseEvent(name.decode("utf-8", "replace"), b"\n".join(data)))
            name, data = b"", []
        else:
            name = b""
    return events
