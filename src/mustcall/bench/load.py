"""The load generator: raw keep-alive connections that ask, read to the end, check, and ask again. Its own process.

Orders come as JSON lines on stdin, one measured run each; a report per order goes out on stdout. A run makes an exact
number of requests from a standing start to the last byte, so the work is the same for every contender. The CPU time
of the processes under test is read here, at the run's own borders, from their POSIX CPU clocks (all threads, ns).
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import cast

import msgspec
import uvloop

from mustcall.bench.exchanges import Wire
from mustcall.bench.sessions import BenchSession, Growth

__all__ = ["LoadOrder", "Report", "cpu_seconds", "family_seconds", "main"]


#: Stands in a body for a number that no other request has.
NUMBERED = "#00000000"


class Talk(msgspec.Struct, kw_only=True):
    """Conversations instead of one body: each connection has a session of its own, which grows request by request."""

    wire: Wire
    model: str
    stream: bool
    growth: Growth


class LoadOrder(msgspec.Struct, kw_only=True):
    """One run. `length` is the exact size of a correct body (None where it varies), `ending` its last bytes."""

    host: str
    port: int
    path: str
    headers: dict[str, str]
    body: str
    warm_up: str
    concurrency: int
    requests: int
    length: int | None
    ending: str
    #: The processes whose CPU time is wanted: one figure per family.
    families: list[list[int]]
    timeout: float
    #: What is asked instead of `body`, and what every tenth request is; `NUMBERED` in a body is counted up.
    talk: Talk | None = None
    tenth: str | None = None
    #: Whether each request has a connection of its own.
    fresh: bool = False
    #: How many new connections come at once, again and again, while the usual ones are busy. `requests` and the
    #: latencies, from the connect to the first byte, are then those of the new ones alone.
    storm: int = 0


class Report(msgspec.Struct, kw_only=True):
    """What a run took: seconds in all, CPU seconds per family in the order's order, latencies in ms."""

    answers: int = 0
    seconds: float = 0.0
    cpu: list[float] = []
    own_cpu: float = 0.0
    p50: float = 0.0
    p99: float = 0.0
    reads: float = 0.0
    broken: str | None = None


def cpu_seconds(pid: int) -> float:
    """Return the CPU time a process has used, in all its threads."""
    # clock_getcpuclockid(3) for a process: the complement of its id, above three bits that mean "scheduler time".
    return time.clock_gettime((~pid << 3) | 2)


def family_seconds(pids: Iterable[int]) -> float:
    """Return the CPU time that several processes have used together."""
    return sum(map(cpu_seconds, pids))


class Wrong(Exception):
    """An answer that is not what was asked for."""


def body_length(raw: bytes, head: int) -> tuple[int, int]:
    """Return size and end of a complete body that begins at `head`; (-1, 0) if there is more to come."""
    lower = raw[:head].lower()
    at = lower.find(b"content-length:")
    if at >= 0:
        length = int(lower[at + 15 :].split(b"\r\n", 1)[0])
        return (length, head + length) if len(raw) >= head + length else (-1, 0)
    if not raw.endswith(b"0\r\n\r\n"):
        return -1, 0
    size, position, end = 0, head, len(raw)
    while position < end:
        line = raw.find(b"\r\n", position)
        chunk = int(raw[position:line], 16)
        if not chunk:
            return size, position - 2
        size += chunk
        position = line + 2 + chunk + 2
    return -1, 0


class _Run:
    """What the connections of one run share: how much is left, what came back."""

    def __init__(self, order: LoadOrder, script: Callable[[int], Iterator[bytes]], total: int) -> None:
        self.order = order
        self.script = script
        self.left = total
        self.missing = total
        self.latencies: list[float] = []
        self.reads = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, problem: str) -> None:
        if not self.done.done():
            self.done.set_exception(Wrong(problem))

    def count(self) -> None:
        self.missing -= 1
        if not self.missing and not self.done.done():
            self.done.set_result(None)


class _Connection(asyncio.Protocol):
    """One keep-alive connection; of its number depends what it asks."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._script: Iterator[bytes] = iter(())
        self._pieces: list[bytes] = []
        self._began = 0.0
        #: When the first byte of an answer came, where that is wanted.
        self._first = 0.0
        self._run: _Run | None = None
        self._check = False
        self._opening: asyncio.Task[None] | None = None
        self._used = False
        #: When a connection of its own for the next request was begun.
        self._opened = 0.0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it
        self._used = False

    def connection_lost(self, exc: Exception | None) -> None:
        run = self._run
        if run is None:
            return
        if self._began and self._used and not self._pieces:
            # Closed between two requests without a word: every client asks again on a new connection.
            run.left += 1
            self._began = 0.0
        if self._began:
            run.fail(f"the connection was lost in the middle of an answer: {exc}")
        elif not run.done.done():
            self._next(run)

    async def _reopen(self, run: _Run) -> None:
        """Connect again: some servers close after each answer, and that is part of what they cost."""
        self._opened = time.perf_counter() if run.order.fresh else 0.0
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, run.order.host, run.order.port)
        except OSError as error:
            run.fail(f"cannot connect again: {error}")
        else:
            self._opening = None
            self._next(run)

    async def open(self, run: _Run) -> None:
        """Connect and make requests until the run has none left; the first one's latency counts from the connect."""
        self._opened = time.perf_counter()
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, run.order.host, run.order.port)
        except OSError as error:
            run.fail(f"cannot connect: {error}")
        else:
            self.start(run, check=True)

    def start(self, run: _Run, *, check: bool) -> None:
        """Make requests until the run has none left."""
        self._run = run
        self._check = check
        self._script = run.script(self._number)
        self._next(run)

    def _next(self, run: _Run) -> None:
        if not run.left:
            return
        assert self.transport is not None
        if self.transport.is_closing():
            if self._opening is None:
                self._opening = asyncio.get_running_loop().create_task(self._reopen(run))
            return
        request = next(self._script, None)
        if request is None:
            return
        run.left -= 1
        self._began = self._opened or time.perf_counter()
        self._opened = 0.0
        self.transport.write(request)

    def _go_on(self, run: _Run, head: bytes) -> None:
        """Ask again, on a new connection if this one is being closed."""
        assert self.transport is not None
        if run.order.fresh or b"connection: close" in head.lower():
            self.transport.close()
        else:
            self._next(run)

    def data_received(self, data: bytes) -> None:
        run = self._run
        assert run is not None
        run.reads += 1
        pieces = self._pieces
        if run.order.storm and not pieces:
            self._first = time.perf_counter()
        pieces.append(data)
        # Only what may be the end of an answer is worth a look at the whole of it.
        if len(pieces) > 1 and len(data) >= 5 and not data.endswith((b"0\r\n\r\n", b"}")):
            return
        raw = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        head = raw.find(b"\r\n\r\n") + 4
        if head < 4:
            return
        length, end = body_length(raw, head)
        if length < 0:
            return
        run.latencies.append((self._first or time.perf_counter()) - self._began)
        self._began = 0.0
        self._used = True
        pieces.clear()
        if raw[9:12] != b"200":
            run.fail(f"status {raw[9:12].decode()}: {raw[head : head + 300].decode(errors='replace')}")
            return
        if self._check:
            order = run.order
            if order.length is not None and length != order.length:
                run.fail(f"a body of {length} bytes instead of {order.length}")
                return
            if not raw.endswith(order.ending.encode(), 0, end):
                run.fail(f"a body that ends in {raw[end - 40 : end]!r}")
                return
        run.count()
        self._go_on(run, raw[:head])


def _request(order: LoadOrder, data: bytes) -> bytes:
    lines = [f"POST {order.path} HTTP/1.1", *(f"{name}: {value}" for name, value in order.headers.items())]
    head = "\r\n".join([*lines, f"content-length: {len(data)}", "", ""])
    return head.encode() + data


def _script(order: LoadOrder) -> Callable[[int], Iterator[bytes]]:
    """Return what the connection of a number asks, request after request."""
    talk = order.talk
    if talk is not None:
        return lambda number: (
            _request(order, body)
            for body in BenchSession(talk.wire, talk.model, talk.growth, number, stream=talk.stream).bodies()
        )
    usual = _request(order, order.body.encode())
    tenth = usual if order.tenth is None else _request(order, order.tenth.encode())
    numbers = count(1)
    numbered, place = NUMBERED.encode() in usual, NUMBERED.encode()

    def ask() -> Iterator[bytes]:
        while True:
            number = next(numbers)
            request = usual if number % 10 else tenth
            yield request.replace(place, b"#%08d" % number) if numbered else request

    return lambda _: ask()


def _warm(order: LoadOrder) -> Callable[[int], Iterator[bytes]]:
    request = _request(order, order.warm_up.encode())
    return lambda _: iter((request,) * 2)


async def _drive(connections: list[_Connection], run: _Run, *, check: bool) -> None:
    for connection in connections:
        connection.start(run, check=check)
    async with asyncio.timeout(run.order.timeout):
        await run.done


async def _storm(connections: list[_Connection], order: LoadOrder) -> tuple[_Run, int]:
    """Keep the connections busy while others come, all at once; return the run of those and all answers together."""
    busy = _Run(order, _script(order), sys.maxsize)
    new = _Run(order, _script(order), order.requests)
    for connection in connections:
        connection.start(busy, check=True)
    for done in range(0, order.requests, order.storm):
        wave = _Run(order, new.script, min(order.storm, order.requests - done))
        comers = [_Connection(number) for number in range(wave.left)]
        try:
            async with asyncio.timeout(order.timeout):
                await _answered(busy, len(busy.latencies) + 2 * order.concurrency)
                await asyncio.gather(*(comer.open(wave) for comer in comers))
                await asyncio.wait([busy.done, wave.done], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for comer in comers:
                if comer.transport is not None:
                    comer.transport.abort()
        for run in (busy, wave):
            if run.done.done():
                run.done.result()
        new.latencies += wave.latencies
        new.reads += wave.reads
    busy.done.set_result(None)  # or its connections would be opened again when they are ended
    return new, len(new.latencies) + len(busy.latencies)


async def _answered(run: _Run, answers: int) -> None:
    """Wait until a run has so many answers, or has failed."""
    while len(run.latencies) < answers and not run.done.done():  # noqa: ASYNC110  an event would cost every answer
        await asyncio.sleep(0.001)


async def _measure(order: LoadOrder) -> Report:
    loop = asyncio.get_running_loop()
    made = await asyncio.gather(
        *(
            loop.create_connection(lambda number=number: _Connection(number), order.host, order.port)
            for number in range(order.concurrency)
        )
    )
    connections = [connection for _, connection in made]
    try:
        # Opens the server's own connections to the upstream; whole replies, so that it is short.
        warm = _Run(order, _warm(order), order.concurrency)
        await _drive(connections, warm, check=False)
        run = _Run(order, _script(order), order.requests)
        before = [family_seconds(family) for family in order.families]
        own, began = time.process_time(), time.perf_counter()
        answers = order.requests
        if order.storm:
            run, answers = await _storm(connections, order)
        else:
            await _drive(connections, run, check=True)
        seconds, own = time.perf_counter() - began, time.process_time() - own
        after = [family_seconds(family) for family in order.families]
    finally:
        for connection in connections:
            if connection.transport is not None:
                connection.transport.abort()
    ranked = sorted(run.latencies)
    return Report(
        answers=answers,
        seconds=seconds,
        cpu=[late - early for early, late in zip(before, after, strict=True)],
        own_cpu=own,
        p50=ranked[len(ranked) // 2] * 1000,
        p99=ranked[len(ranked) * 99 // 100] * 1000,
        reads=run.reads / order.requests,
    )


async def _carry_out(order: LoadOrder) -> Report:
    try:
        return await _measure(order)
    except TimeoutError:
        return Report(broken=f"not done after {order.timeout:g} s")
    except (Wrong, OSError) as error:
        return Report(broken=f"{error}")


def main() -> None:
    """Carry out orders until stdin ends."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin:
            report = runner.run(_carry_out(msgspec.json.decode(line, type=LoadOrder)))
            sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
