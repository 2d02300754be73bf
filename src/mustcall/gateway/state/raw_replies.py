"""Keeps what upstreams answer, byte for byte, for the trace of a turn whose contents are kept.

A transport around the real one. A request that wants its replies kept says so with `tap`; for any other one nothing is
copied, and where contents are not kept there is no such transport at all.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar

from mustcall.upstream.seam import Transport, UpstreamCall, UpstreamReply

__all__ = ["MOST_RAW", "Tap", "Tapping", "raw_replies", "tap"]

#: The most bytes of one reply that are kept.
MOST_RAW = 1_000_000

_CUT = b"\n[cut here: only the first 1,000,000 bytes are kept]"


class Tap:
    """What came of one upstream call so far."""

    __slots__ = ("_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Take a piece, up to the limit."""
        room = MOST_RAW - self._size
        if room > 0:
            self._pieces.append(piece[:room])
        self._size += len(piece)

    def read(self) -> bytes:
        """Return all that is kept."""
        return b"".join(self._pieces) + (_CUT if self._size > MOST_RAW else b"")


_taps: ContextVar[list[Tap] | None] = ContextVar("mustcall_taps", default=None)


def tap() -> list[Tap]:
    """Keep what is answered to calls of this task from now on; return where it is put, call by call."""
    taps: list[Tap] = []
    _taps.set(taps)
    return taps


def raw_replies(taps: Sequence[Tap], sends: Sequence[int]) -> list[bytes]:
    """Return the reply of each attempt, whose calls to its upstream are counted by `sends`: that of its last call."""
    raws: list[bytes] = []
    done = 0
    for count in sends:
        done += count
        raws.append(taps[done - 1].read() if 0 < done <= len(taps) else b"")
    return raws


class Tapping:
    """A transport that keeps replies for whoever asked."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def send(self, call: UpstreamCall) -> UpstreamReply:
        """Send a request; its reply is kept as it is read."""
        taps = _taps.get()
        if taps is None:
            return await self._transport.send(call)
        kept = Tap()
        taps.append(kept)  # also for a call that fails: attempts count it
        return _Tapped(await self._transport.send(call), kept)

    async def close(self) -> None:
        """Free everything."""
        await self._transport.close()


class _Tapped:
    __slots__ = ("_kept", "_reply")

    def __init__(self, reply: UpstreamReply, kept: Tap) -> None:
        self._reply = reply
        self._kept = kept

    @property
    def status(self) -> int:
        return self._reply.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._reply.headers

    @property
    def arrived(self) -> bool:
        return self._reply.arrived

    async def read(self) -> bytes:
        body = await self._reply.read()
        self._kept.add(body)
        return body

    async def chunks(self) -> AsyncGenerator[bytes]:
        async with aclosing(self._reply.chunks()) as chunks:
            async for chunk in chunks:
                self._kept.add(chunk)
                yield chunk

    async def close(self) -> None:
        await self._reply.close()
