"""One connection of a client: writes a request, reads its answer, one exchange at a time.

What the bytes mean is `AnswerReader`'s; this moves them. It knows no URL, no pool and no wording: an exchange that
fails has an `error`, which is a `Hangup`, a `Garbled`, a `TimeoutError` or the socket's own `OSError`.

Nothing here is a coroutine and nothing is scheduled per exchange. Who waits takes the one future of `wait`; the timer
behind it outlives exchanges and looks, when it is due, whether the present wait has lasted too long. Answers are read
no faster than they are used, and large requests written no faster than they are taken.
"""

import asyncio
import math
import select
from collections.abc import Callable
from typing import cast

from mustcall.upstream.http1.answer import AnswerPhase, AnswerReader, Garbled, Hangup
from mustcall.upstream.http1.idle import STALLED

__all__ = ["HIGH_WATER", "Connection"]

#: The most of an answer that is held for a consumer that does not take it, give or take one read of the socket.
HIGH_WATER = 256 * 1024

#: Requests up to this size are copied into one write.
_JOINED = 64 * 1024
#: Larger ones are written in slices of this size, and at most so much at a time before other tasks run.
_SLICE = 256 * 1024
_BURST = 1024 * 1024

#: How much too early, in seconds, a loop may call back.
_EARLY = 0.001

_IDLE, _HEAD, _BODY, _DONE = AnswerPhase.IDLE, AnswerPhase.HEAD, AnswerPhase.BODY, AnswerPhase.DONE


class Connection(AnswerReader, asyncio.Protocol):
    """A connection. `begin` an exchange, `wait` until the phase is no longer `HEAD`, then `take` and `wait` in turn."""

    __slots__ = (
        "_deadline",
        "_due",
        "_given",
        "_gone",
        "_held",
        "_paused",
        "_seconds",
        "_since",
        "_stuck",
        "_timer",
        "_transport",
        "_unsent",
        "_waiter",
        "loop",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, gone: "Callable[[Connection], None]") -> None:
        """Make a connection that tells `gone`, maybe more than once, when it cannot be used for another exchange."""
        super().__init__()
        self.loop = loop
        self._gone = gone
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf
        self._deadline = 0.0
        self._seconds = 0.0
        self._given = 0.0
        self._since = 0.0
        self._unsent: memoryview | None = None
        self._stuck = False
        self._paused = False
        self._held = 0

    # The exchange, as its user sees it.

    def begin(self, head: bytes, body: bytes, *, bodiless: bool) -> bool:
        """Write a request; return False if not a byte of it could be. `bodiless`: its answer has a head only."""
        transport = self._transport
        if transport is None or self.phase is not _IDLE or transport.is_closing():
            return False
        self.expect(bodiless=bodiless)
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
        loop = self.loop
        waiter = self._waiter = loop.create_future()
        self._seconds = seconds
        deadline = self._deadline = loop.time() + seconds
        if deadline < self._due:
            self._set_timer(deadline)
        return waiter

    def take(self) -> bytes:
        """Return what has arrived of the body and was not taken yet."""
        pieces = self.pieces
        taken = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._held = 0
        if self._paused and self.phase is _BODY and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return taken

    def rest(self, seconds: float) -> bool:
        """Make the connection ready for another exchange within so many seconds; return False if it cannot be."""
        transport = self._transport
        if (
            self.phase is not _DONE
            or not self.keep
            or self._unsent is not None
            or transport is None
            or transport.is_closing()
        ):
            self.abort()
            return False
        self.pieces.clear()
        if self._paused:
            self._paused = False
            transport.resume_reading()
        self.phase = _IDLE
        self._since = self.loop.time()
        deadline = self._deadline = self._since + seconds
        if deadline < self._due:
            self._set_timer(deadline)
        return True

    @property
    def rested(self) -> float:
        """For how many seconds the connection has rested, or since when it last did."""
        return self.loop.time() - self._since

    def is_stale(self) -> bool:
        """Whether a resting connection was ended by its peer, also if the loop has not noticed yet."""
        transport = self._transport
        if transport is None or self.phase is not _IDLE or transport.is_closing():
            return True
        sock = transport.get_extra_info("socket")
        # Nothing is asked for: what comes is the end, or of TLS a message that is not worth a closed connection's risk.
        return sock is not None and _is_readable(sock.fileno())

    def abort(self) -> None:
        """End the connection now; an exchange under way is cut off."""
        self.pieces.clear()
        self._break(Hangup())

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        # uvloop's transports are transports in everything but their base class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read what came, and wake who waits for it."""
        had_begun = self.begun
        self.feed(data)
        phase = self.phase
        if phase is _BODY:
            held = self._held = self._held + len(data)
            if self.pieces:
                if held > HIGH_WATER and not self._paused and self._transport is not None:
                    self._paused = True
                    self._transport.pause_reading()
            elif held > HIGH_WATER:
                self._break(Garbled(f"more than {HIGH_WATER} bytes of framing without content"))
                return
            elif had_begun:
                return
        elif phase is _HEAD:
            return
        elif not self.keep:
            self._drop()
        self._wake()

    def eof_received(self) -> None:
        """The peer sends no more."""
        self._finish(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take leave."""
        self._finish(exc)
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

    # Inside.

    def _finish(self, error: Exception | None) -> None:
        self.end(error)
        self._drop()
        self._wake()

    def _break(self, error: Exception) -> None:
        self.fail(error)
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
                self.loop.call_soon(self.resume_writing)
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
        self._timer = self.loop.call_at(due, self._look)

    def _look(self) -> None:
        """End a wait, or a rest, that has lasted too long; otherwise look again when it would have.

        A look that comes late gives a wait time back, once (`idle`).
        """
        now = self.loop.time()
        late = now - max(self._due, self._deadline)
        self._timer = None
        self._due = math.inf
        waits = self._waiter is not None
        if not waits and self.phase is not _IDLE:
            return
        if self._deadline - now > _EARLY:
            self._set_timer(self._deadline)
        elif waits and late > STALLED and self._given != self._deadline:
            self._given = self._deadline
            self._set_timer(now + min(late, self._seconds))
        else:
            self._break(TimeoutError())


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
