"""What an upstream's answer may be, the same over every transport: its bytes, its values, the size of a piece.

Answers in one piece are counted in steps between which other tasks run; a stream is cut into pieces that take a few
milliseconds to read at most. What takes time are events rather than bytes, so a piece is bounded in both: many bytes
of few events are read at once, because each piece has a fixed cost (about a third of what 16 kB cost). Other tasks run
after a piece once what came at once has taken `_STEP` seconds of CPU. Most takes a fraction of that, and each step of
the loop costs a system call of its own. Large bodies are put together in a thread: copying megabytes takes tens of
milliseconds, in which the interpreter holds no lock.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from time import thread_time

from mustcall.core.elements import UNCOUNTED, count_elements
from mustcall.core.limits import GatewayLimits
from mustcall.upstream import failures

__all__ = [
    "LINES",
    "PIECE",
    "SHORT",
    "check_body",
    "cut",
    "fits",
    "holds_more",
    "in_turns",
    "joined",
    "read_bounded",
    "take_turns",
]

#: The largest piece of a stream that is read at once, in bytes and in ends of lines. Most pieces are one event, which
#: has two or three lines; three hundred take a few milliseconds.
PIECE = 128 * 1024
LINES = 640
#: Pieces up to this size are not counted: they are short whatever is in them.
SHORT = 4 * 1024
#: Seconds of work after which other tasks run.
_STEP = 0.002
#: Bodies from this size on are put together beside the loop. Joining less takes about a millisecond.
_ASIDE = 2 * 1024 * 1024


async def read_bounded(chunks: AsyncGenerator[bytes], limits: GatewayLimits) -> bytes:
    """Return a whole body, or raise `UpstreamGarbage`."""
    pieces: list[bytes] = []
    size = 0
    async with aclosing(chunks):
        async for piece in chunks:
            size += len(piece)
            if size > limits.reply_bytes:
                raise failures.answer_too_large(limits.reply_bytes)
            pieces.append(piece)
    body = await joined(pieces, size)
    await check_body(body, limits)
    return body


async def joined(pieces: list[bytes], size: int) -> bytes:
    """Return the pieces as one; they are given up, so that a large body is not held twice while it is looked at."""
    return _join(pieces) if size < _ASIDE or len(pieces) == 1 else await asyncio.to_thread(_join, pieces)


def _join(pieces: list[bytes]) -> bytes:
    body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    pieces.clear()
    return body


async def holds_more(body: bytes, most: int) -> bool:
    """Tell whether a JSON text has more than so many values; other tasks run meanwhile."""
    if len(body) <= UNCOUNTED:
        return False
    counting = count_elements(body, most)
    while True:
        try:
            next(counting)
        except StopIteration as counted:
            return counted.value > most
        await asyncio.sleep(0)


async def check_body(body: bytes, limits: GatewayLimits) -> None:
    """Raise `UpstreamGarbage` for a whole body over the limits."""
    if len(body) > limits.reply_bytes:
        raise failures.answer_too_large(limits.reply_bytes)
    if await holds_more(body, limits.reply_elements):
        raise failures.answer_too_fine(limits.reply_elements)


def fits(data: bytes) -> bool:
    """Tell whether what came at once is a single piece: `cut` would leave it as it is."""
    size = len(data)
    return size <= SHORT or (size <= PIECE and not _has_many_lines(data))


def _has_many_lines(data: bytes) -> bool:
    """Tell whether there are more than `LINES` ends of lines, CRLF counted as two.

    Leaving them out finds each with `memchr` and stops behind the last that counts; `count` looks at every byte.
    """
    if b"\r" in data:
        return data.count(b"\n") + data.count(b"\r") > LINES
    return len(data) - len(data.replace(b"\n", b"", LINES + 1)) > LINES


def cut(data: bytes) -> Iterator[bytes]:
    """Yield what came at once in pieces of at most `PIECE` bytes and `LINES` ends of lines.

    A piece ends behind an event where one ends in it. Pieces up to `SHORT` bytes may have more lines.
    """
    start, size = 0, len(data)
    most = PIECE
    while size - start > SHORT:
        most = min(2 * most, PIECE, size - start)
        while most > SHORT and _has_many_lines(data[start : start + most]):
            most //= 2
        end = start + most
        if end >= size:
            break
        behind = data.rfind(b"\n\n", start, end) + 2
        if behind > start + 1:
            end = behind
        yield data[start:end]
        start = end
    yield data[start:]


async def take_turns(began: float) -> float:
    """Let other tasks run if the step that began then has lasted long enough; return when the present step began."""
    if thread_time() - began < _STEP:
        return began
    await asyncio.sleep(0)
    return thread_time()


async def in_turns(chunks: AsyncGenerator[bytes], limits: GatewayLimits) -> AsyncGenerator[bytes]:
    """Yield a body in small pieces; raise `UpstreamGarbage` once it is too large."""
    size = 0
    async with aclosing(chunks):
        async for piece in chunks:
            size += len(piece)
            if size > limits.reply_bytes:
                raise failures.answer_too_large(limits.reply_bytes)
            if len(piece) <= SHORT:
                yield piece
                continue
            began = thread_time()
            for part in cut(piece):
                yield part
                began = await take_turns(began)
