"""One HTTP/1.1 connection of a client: writes a request, reads its answer, one exchange at a time.

The bytes are parsed by `httptools` (llhttp, in C); this decides what they mean for the exchange: when the answer
begins, when it is complete, whether the connection may be used again. It knows no URL, no pool and no wording: an
exchange that fails has an `error`, which is a `Hangup`, a `Garbled`, a `TimeoutError` or the socket's own `OSError`.

Nothing here is a coroutine and nothing is scheduled per exchange. Who waits takes the one future of `wait`; the timer
behind it outlives exchanges and looks, when it is due, whether the present wait has lasted too long. Answers are read
no faster than they are used, and large requests written no faster than they are taken.
"""

import asyncio
import math
import select
from collections.abc import Callable
from enum import Enum, auto
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

__all__ = ["HEAD_LIMIT", "HIGH_WATER", "Connection", "Garbled", "Hangup", "Phase"]

#: The most a head may have, interim answers included, in bytes. Model endpoints send about two thousand.
HEAD_LIMIT = 64 * 1024
#: The most of an answer that is held for a consumer that does not take it, give or take one read of the socket.
HIGH_WATER = 256 * 1024

#: Requests up to this size are copied into one write.
_JOINED = 64 * 1024
#: Larger ones are written in slices of this size, and at most so much at a time before other tasks run.
_SLICE = 256 * 1024
_BURST = 1024 * 1024

#: A connection that was used a moment ago is not asked whether it is still open: the loop would have noticed.
_FRESH = 1.0

#: How much too early, in seconds, a loop may call back.
_EARLY = 0.001


class Hangup(Exception):
    """The connection ended before the answer was complete."""


class Garbled(Exception):
    """What came is not an answer in HTTP/1.1; the text says why, in words of the parser or ours."""


class Phase(Enum):
    """Where the exchange is. `DONE`: the answer has arrived whole; `BROKEN`: no more will come, see `error`."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    DONE = auto()
    BROKEN = auto()


# A name is cheaper to look up than a member of an enum, and these are compared for every piece of every stream.
_IDLE, _HEAD, _BODY, _DONE, _BROKEN = Phase


class Connection(asyncio.Protocol):
    """A connection. `begin` an exchange, `wait` until the phase is no longer `HEAD`, then `take` and `wait` in turn."""

    __slots__ = (
        "_bodiless",
        "_deadline",
        "_due",
        "_gone",
        "_held",
        "_interim",
        "_keep",
        "_left",
        "_loop",
        "_parser",
        "_paused",
        "_pieces",
        "_since",
        "_stuck",
        "_timer",
        "_transport",
        "_unsent",
        "_waiter",
        "_whole",
        "begun",
        "error",
        "headers",
        "on_body",
        "phase",
        "status",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, gone: "Callable[[Connection], None]") -> None:
        """Make a connection that tells `gone` as soon as it cannot be used for another exchange."""
        self._loop = loop
        self._gone = gone
        self._transport: asyncio.Transport | None = None
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # called by the parser, from C to C
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf
        self._deadline = 0.0
        self._since = 0.0
        self._unsent: memoryview | None = None
        self._stuck = False
        self._paused = False
        self._bodiless = False
        self._interim = False
        self._keep = True
        self._left = HEAD_LIMIT
        self._held = 0
        self._whole = 0
        self.phase = Phase.IDLE
        self.error: Exception | None = None
        self.status = 0
        self.headers: dict[str, str] = {}
        self.begun = False

    # The exchange, as its user sees it.

    def begin(self, head: bytes, body: bytes, *, bodiless: bool) -> bool:
        """Write a request; return False if not a byte of it could be. `bodiless`: its answer has a head only."""
        transport = self._transport
        if transport is None or self.phase is not _IDLE or transport.is_closing():
            return False
        if self._parser is None:
            self._parser = HttpResponseParser(self)
        self.phase = _HEAD
        self.begun = False
        self.headers = {}
        self._bodiless = bodiless
        self._left = HEAD_LIMIT
        self._held = 0
        if len(body) <= _JOINED:
            transport.write(head + body)
        else:
            transport.write(head)
            self._unsent = memoryview(body)
        if transport.is_closing():  # a loop that writes at once has been told that nobody is there
            return False
        if self._unsent is not None:
            self._pump()
        return True

    def wait(self, seconds: float) -> asyncio.Future[None]:
        """Return what is done when there is more of the answer, or when it has ended in some way."""
        loop = self._loop
        waiter = self._waiter = loop.create_future()
        deadline = self._deadline = loop.time() + seconds
        if deadline < self._due:
            self._set_timer(deadline)
        return waiter

    def take(self) -> bytes:
        """Return what has arrived of the body and was not taken yet."""
        pieces = self._pieces
        taken = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._held = 0
        if self._paused and self.phase is _BODY and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return taken

    @property
    def has_more(self) -> bool:
        """Whether something of the body has arrived and was not taken yet."""
        return bool(self._pieces)

    @property
    def answered(self) -> bool:
        """Whether any byte of an answer has arrived; `begun` says whether its whole head has."""
        return self._left != HEAD_LIMIT

    def rest(self, seconds: float) -> bool:
        """Make the connection ready for another exchange within so many seconds; return False if it cannot be."""
        transport = self._transport
        if (
            self.phase is not _DONE
            or not self._keep
            or self._unsent is not None
            or transport is None
            or transport.is_closing()
        ):
            self.abort()
            return False
        self._pieces.clear()
        if self._paused:
            self._paused = False
            transport.resume_reading()
        self.phase = _IDLE
        self._since = self._loop.time()
        deadline = self._deadline = self._since + seconds
        if deadline < self._due:
            self._set_timer(deadline)
        return True

    def is_stale(self) -> bool:
        """Whether a resting connection was ended by its peer, also if the loop has not noticed yet."""
        transport = self._transport
        if transport is None or self.phase is not _IDLE or transport.is_closing():
            return True
        if self._loop.time() - self._since < _FRESH:
            return False
        sock = transport.get_extra_info("socket")
        return sock is None or _is_readable(sock.fileno())  # nothing is asked for, so all that can come is the end

    def abort(self) -> None:
        """End the connection now; an exchange under way is cut off."""
        self._pieces.clear()
        self._fail(Hangup())

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        # uvloop's transports are transports in everything but their base class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        phase = self.phase
        if phase is _HEAD:
            left = self._left
            self._left = left - len(data)
            if len(data) > left:
                self._feed(data[:left])
                if self.phase is _HEAD:
                    self._fail(Garbled(f"its head is larger than {HEAD_LIMIT} bytes"))
                    return
                data = data[left:]
            self._feed(data)
            phase = self.phase
            if phase is _HEAD:
                return
        elif phase is _BODY:
            self._feed(data)
            phase = self.phase
            if phase is _BODY and not self._pieces:
                self._held += len(data)
                if self._held > HIGH_WATER:
                    self._fail(Garbled(f"more than {HIGH_WATER} bytes of framing without content"))
                return
        else:  # nobody asked for anything
            self._end_use()
            return
        if phase is _BODY:
            self._held += len(data)
            if self._held > HIGH_WATER and self._pieces and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def eof_received(self) -> None:
        """The peer sends no more: what can be complete is, and the rest never will be."""
        self._ended(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take leave."""
        self._ended(exc)
        self._transport = None
        self._parser = None
        self._unsent = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def pause_writing(self) -> None:
        """Stop writing slices."""
        self._stuck = True

    def resume_writing(self) -> None:
        """Write the next slices."""
        self._stuck = False
        if self._unsent is not None:
            self._pump()

    # What the parser calls, from within `_feed`.

    def on_message_begin(self) -> None:
        """An answer begins: the one that is waited for, or one that nobody asked for."""
        if self.phase is not _HEAD:
            self._keep = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; those of trailers are ignored."""
        if self.phase is _HEAD:
            key = _NAMES.get(name) or name.lower().decode("latin-1")
            text = value.decode("latin-1").rstrip(" \t")
            headers = self.headers
            headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """Go on to the body, or to the next head after an interim answer."""
        parser = self._parser
        if self.phase is not _HEAD or parser is None:
            return
        status = self.status = parser.get_status_code()
        if status < 200:
            if status == 101 or status < 100:
                raise Garbled(f"status {status}")
            self._interim = True
            self.headers = {}
            return
        self.begun = True
        self._keep = parser.should_keep_alive()
        if self._bodiless or status in {204, 304}:
            self.phase = _DONE
            self._whole = 0
        else:
            self.phase = _BODY

    def on_message_complete(self) -> None:
        """Note where the answer ends."""
        if self._interim:
            self._interim = False
        elif self.phase is _BODY:
            self.phase = _DONE
            self._whole = len(self._pieces)

    # Inside.

    def _feed(self, data: bytes) -> None:
        """Parse, and settle what follows from it."""
        parser = self._parser
        if parser is None:  # the answer was a head only, and there is more
            self._keep = False
            return
        try:
            parser.feed_data(data)
        except HttpParserUpgrade:
            self._spoil("it changes the protocol")
        except HttpParserError as error:
            cause = error.__context__
            self._spoil(str(cause if isinstance(cause, Garbled) else error))
        if self.phase is _DONE:
            if len(self._pieces) > self._whole:  # more than the answer: whatever it is, it is not another answer
                del self._pieces[self._whole :]
                self._keep = False
            if self._bodiless or self.status in {204, 304}:
                self._parser = None  # which still waits for the body that the headers may speak of

    def _spoil(self, why: str) -> None:
        """Bytes that are no HTTP: after the answer they end the use of the connection, within it they break it."""
        self._keep = False
        if self.phase is not _DONE:
            self._fail(Garbled(why))

    def _ended(self, error: Exception | None) -> None:
        """Settle what the end of the connection means."""
        if self.phase is _BODY and error is None and self._lasts_until_close():
            self.phase = _DONE
            self._wake()
        self._end_use(error)

    def _lasts_until_close(self) -> bool:
        """Whether the body's end is the connection's: neither its length nor chunks say where it ends."""
        coding = self.headers.get("transfer-encoding")
        if coding is not None:
            return coding.lower().rpartition(",")[2].strip() != "chunked"
        return "content-length" not in self.headers

    def _end_use(self, error: Exception | None = None) -> None:
        """End the connection; a complete answer can still be taken."""
        if self.phase is not _DONE:
            self._fail(error or Hangup())
            return
        self._keep = False
        self._drop()

    def _fail(self, error: Exception) -> None:
        if self.phase is not _BROKEN:
            self.phase = _BROKEN
            self.error = error
        self._drop()
        self._wake()

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._gone(self)

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def _pump(self) -> None:
        """Write slices until the transport has enough for now."""
        transport, unsent = self._transport, self._unsent
        written = 0
        while unsent is not None and transport is not None and not self._stuck and not transport.is_closing():
            if written >= _BURST:
                self._unsent = unsent
                self._stuck = True
                self._loop.call_soon(self.resume_writing)
                return
            written += _SLICE
            piece, rest = unsent[:_SLICE], unsent[_SLICE:]
            # Set first: a transport that is full pauses from within `write`, one that is broken ends from within it.
            unsent = self._unsent = rest if len(rest) else None
            transport.write(piece)

    def _set_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        """End a wait, or a rest, that has lasted too long; otherwise look again when it would have."""
        self._timer = None
        self._due = math.inf
        if self._waiter is None and self.phase is not _IDLE:
            return
        if self._deadline - self._loop.time() > _EARLY:
            self._set_timer(self._deadline)
        else:
            self._fail(TimeoutError())


def _is_readable(fileno: int) -> bool:
    if fileno < 0:
        return True
    try:
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(fileno, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([fileno], [], [], 0)[0])
    except (OSError, ValueError):
        return True


_NAMES = {
    spelling.encode(): name
    for name in (
        "access-control-expose-headers",
        "alt-svc",
        "cache-control",
        "cf-cache-status",
        "cf-ray",
        "connection",
        "content-length",
        "content-type",
        "date",
        "keep-alive",
        "openai-model",
        "openai-organization",
        "openai-processing-ms",
        "openai-version",
        "request-id",
        "server",
        "set-cookie",
        "strict-transport-security",
        "transfer-encoding",
        "vary",
        "via",
        "x-request-id",
    )
    for spelling in (name, name.title())
}
