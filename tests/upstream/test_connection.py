"""One connection on a transport of the test's own, in a time of the test's own: timers, slices, back-pressure."""

import asyncio
from contextlib import aclosing

import pytest

from mustcall.core.errors import UpstreamUnavailable
from mustcall.core.limits import DEFAULTS
from mustcall.upstream.http import HttpReply
from mustcall.upstream.http1.answer import AnswerPhase, Garbled, Hangup
from mustcall.upstream.http1.connection import HIGH_WATER, Connection
from mustcall.upstream.http1.dialling import DialTarget
from mustcall.upstream.http1.pool import PooledOrigin
from support.instant import now, run, stall
from support.loopback import call_to

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
BEGUN = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n"


class Line(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.reading = True
        self.aborted = False
        self.broken = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep what is written; a broken line notices now."""
        assert not self.aborted, "nothing is written to a connection that has ended"
        if self.broken:
            self.aborted = True
        else:
            self.written.append(bytes(data))

    def pause_reading(self) -> None:
        """Note it."""
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        """Note it."""
        assert not self.reading
        self.reading = True

    def abort(self) -> None:
        """Note it."""
        self.aborted = True

    def is_closing(self) -> bool:
        """Whether it has ended."""
        return self.aborted


class Ends:
    """A connection, its line, and how often it said that it was gone."""

    def __init__(self) -> None:
        self.gone = 0
        self.line = Line()
        self.connection = Connection(asyncio.get_running_loop(), self._note)
        self.connection.connection_made(self.line)

    def _note(self, _connection: Connection) -> None:
        self.gone += 1

    def begin(self, body: bytes = b"{}") -> None:
        """Begin an exchange."""
        assert self.connection.begin(b"POST / HTTP/1.1\r\n\r\n", body, bodiless=False)

    def exchange(self) -> None:
        """Make a whole exchange, and rest for half a minute at most."""
        self.begin()
        self.connection.data_received(OK)
        assert self.connection.take() == b"ok"
        assert self.connection.rest(30)


# Time.


def test_wait_ends_on_time() -> None:
    """Who waits is woken when the time is over, and the connection has ended."""

    async def main() -> float:
        ends = Ends()
        ends.begin()
        await ends.connection.wait(600)
        assert isinstance(ends.connection.error, TimeoutError)
        assert ends.line.aborted
        assert ends.gone
        return now()

    assert run(main) == pytest.approx(600, abs=0.002)


@pytest.mark.parametrize(("first", "second"), [(600, 120), (120, 600), (5, 5)])
def test_each_wait_has_its_own_time(first: int, second: int) -> None:
    """Waits that follow each other are timed each from its own beginning, the shorter after the longer, too."""

    async def main() -> float:
        ends = Ends()
        ends.begin()
        waiter = ends.connection.wait(first)
        await asyncio.sleep(first - 1)
        ends.connection.data_received(BEGUN)
        assert waiter.done()
        begun = now()
        await ends.connection.wait(second)
        assert isinstance(ends.connection.error, TimeoutError)
        return now() - begun

    assert run(main) == pytest.approx(second, abs=0.002)


@pytest.mark.parametrize(("stalled", "second"), [(10.4, 10.4), (14.0, 18.0), (60.0, 70.0)])
def test_time_in_which_nothing_ran_is_given_back(stalled: float, second: float) -> None:
    """An answer that came while the process was stopped is read; for one that does not come, the wait goes on once.

    It goes on for as long as it was over, at most for its own length.
    """

    async def main() -> float:
        ends = Ends()
        ends.begin()
        waiter = ends.connection.wait(10)
        stall(60)
        await asyncio.sleep(9)
        ends.connection.data_received(BEGUN + b"x")
        await waiter
        assert ends.connection.take() == b"x"
        begun = now()
        waiter = ends.connection.wait(10)
        stall(stalled)
        await waiter
        assert isinstance(ends.connection.error, TimeoutError)
        return now() - begun

    assert run(main) == pytest.approx(second, abs=0.002)


def test_time_is_given_back_once() -> None:
    """A loop that is always late ends its waits all the same."""

    async def main() -> float:
        ends = Ends()
        ends.begin()
        waiter = ends.connection.wait(10)
        for _ in range(100):
            stall(12)
            await asyncio.sleep(0)
            if waiter.done():
                break
        assert isinstance(ends.connection.error, TimeoutError)
        return now()

    # The timer looks after each second step: at 24, and because time was given back to 34, at 48.
    assert run(main) == 48


def test_rest_gets_no_time_back() -> None:
    """A connection that rested while the process was stopped is not handed out long after its time."""

    async def main() -> float:
        ends = Ends()
        ends.begin()
        ends.connection.data_received(OK)
        assert ends.connection.rest(30)
        stall(3600)
        await asyncio.sleep(0.001)
        assert ends.line.aborted
        return now()

    assert run(main) == pytest.approx(3600, abs=0.002)


def test_time_of_the_consumer_does_not_count() -> None:
    """While nobody waits no time is too long."""

    async def main() -> float:
        ends = Ends()
        ends.begin()
        waiter = ends.connection.wait(10)
        ends.connection.data_received(BEGUN + b"x")
        await waiter
        assert ends.connection.take() == b"x"
        await asyncio.sleep(5000)
        assert ends.connection.error is None
        begun = now()
        await ends.connection.wait(10)
        return now() - begun

    assert run(main) == pytest.approx(10, abs=0.002)


def test_rest_is_neither_waiting_nor_endless() -> None:
    """A connection rests for as long as it was told to, counted from its last exchange, and then ends."""

    async def main() -> float:
        ends = Ends()
        for _ in range(5):
            ends.exchange()
            await asyncio.sleep(29)
            assert ends.connection.phase is AnswerPhase.IDLE
        await asyncio.sleep(1.01)
        assert ends.connection.phase is AnswerPhase.BROKEN
        assert ends.line.aborted
        assert ends.gone
        return now()

    run(main)


def test_one_timer_for_many_exchanges() -> None:
    """Exchanges that follow each other leave no timers behind."""

    async def main() -> float:
        ends = Ends()
        loop = asyncio.get_running_loop()
        made = 0
        original = loop.call_at

        def count(*args: object, **named: object) -> asyncio.TimerHandle:
            nonlocal made
            made += 1
            return original(*args, **named)  # pyrefly: ignore[bad-argument-type]

        loop.call_at = count  # pyrefly: ignore[method-assign]
        for _ in range(100):
            ends.begin()
            waiter = ends.connection.wait(600)
            ends.connection.data_received(OK)
            await waiter
            ends.connection.take()
            assert ends.connection.rest(30)
        assert made == 2  # the first for the answer, the second for the rest, which is due sooner
        return now()

    run(main)


# Ends.


@pytest.mark.parametrize("error", [None, ConnectionResetError()])
def test_end_wakes_who_waits(error: Exception | None) -> None:
    """An end of the connection is an end of the wait."""

    async def main() -> float:
        ends = Ends()
        ends.begin()
        waiter = ends.connection.wait(600)
        ends.connection.connection_lost(error)
        await waiter
        assert ends.connection.error is error or isinstance(ends.connection.error, Hangup)
        assert ends.gone
        return now()

    assert run(main) == 0


def test_cancelled_wait_is_left_alone() -> None:
    """What comes after a wait was cancelled finds nobody, and breaks nothing."""

    async def main() -> float:
        ends = Ends()
        ends.begin()
        ends.connection.wait(600).cancel()
        ends.connection.data_received(OK)
        assert ends.connection.phase is AnswerPhase.DONE
        return now()

    run(main)


def test_no_exchange_on_an_ended_connection() -> None:
    """A connection that has ended, or ends as it is written to, takes no request."""

    async def main() -> float:
        for spoil in ("aborted", "broken"):
            ends = Ends()
            setattr(ends.line, spoil, True)
            assert not ends.connection.begin(b"GET / HTTP/1.1\r\n\r\n", b"", bodiless=False)
            assert not ends.connection.answered
        ends = Ends()
        ends.connection.eof_received()
        assert not ends.connection.begin(b"GET / HTTP/1.1\r\n\r\n", b"", bodiless=False)
        return now()

    run(main)


def test_no_second_exchange_before_the_first_is_over() -> None:
    """An exchange at a time: a connection in use takes no other request, and does not rest."""

    async def main() -> float:
        ends = Ends()
        ends.begin()
        assert not ends.connection.begin(b"GET / HTTP/1.1\r\n\r\n", b"", bodiless=False)
        assert len(ends.line.written) == 1
        assert not ends.connection.rest(30)
        assert ends.line.aborted
        return now()

    run(main)


# Pressure.


def test_reading_stops_above_the_mark_and_goes_on_when_taken() -> None:
    """What is not taken stops the reading; taking it starts it again."""

    async def main() -> float:
        ends = Ends()
        ends.begin()
        ends.connection.data_received(BEGUN)
        received = 0
        while ends.line.reading and received < 4 * HIGH_WATER:
            ends.connection.data_received(bytes(65536))
            received += 65536
        assert HIGH_WATER < received + len(BEGUN) <= HIGH_WATER + 65536 + len(BEGUN)
        assert len(ends.connection.take()) == received
        assert ends.line.reading
        return now()

    run(main)


def test_answer_that_is_complete_while_reading_is_stopped() -> None:
    """A connection whose reading was stopped reads again in its next exchange."""

    async def main() -> float:
        ends = Ends()
        ends.begin()
        size = HIGH_WATER + 100
        ends.connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + bytes(size - 50))
        assert not ends.line.reading
        ends.connection.data_received(bytes(50))  # what TLS had still in its hands
        assert ends.connection.phase is AnswerPhase.DONE
        assert ends.connection.rest(30)
        assert ends.line.reading
        ends.exchange()
        return now()

    run(main)


def test_framing_wakes_nobody_and_has_a_limit() -> None:
    """Chunk extensions are not content: nobody is woken for them, and too many are refused."""

    async def main() -> float:
        ends = Ends()
        ends.begin()
        waiter = ends.connection.wait(600)
        ends.connection.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        assert waiter.done()
        waiter = ends.connection.wait(600)
        ends.connection.data_received(b"5;x=")
        for _ in range(HIGH_WATER // 65536):
            assert not waiter.done()
            ends.connection.data_received(b"y" * 65536)
        await waiter
        assert isinstance(ends.connection.error, Garbled)
        return now()

    run(main)


@pytest.mark.parametrize("size", [64 * 1024, 64 * 1024 + 1, 3_000_000])
def test_writing_waits_for_the_transport(size: int) -> None:
    """A large request leaves in slices, none of them while the transport has enough; a small one leaves at once."""
    body = b"".join(b"%04d" % (number % 10000) for number in range(size // 4 + 1))[:size]

    async def main() -> float:
        ends = Ends()
        pauses = 0
        write = ends.line.write

        def write_and_pause(data: bytes | bytearray | memoryview) -> None:
            write(data)
            ends.connection.pause_writing()

        ends.line.write = write_and_pause  # pyrefly: ignore[method-assign]  watched
        ends.begin(body)
        while b"".join(ends.line.written) != b"POST / HTTP/1.1\r\n\r\n" + body:
            written = len(ends.line.written)
            await asyncio.sleep(1)
            assert len(ends.line.written) == written
            ends.connection.resume_writing()
            assert len(ends.line.written) == written + 1
            pauses += 1
        assert pauses == (0 if size <= 65536 else -(-size // 262144))
        ends.connection.resume_writing()
        ends.connection.data_received(OK)
        assert ends.connection.rest(30)
        return now()

    run(main)


def test_other_tasks_run_while_a_large_body_is_written() -> None:
    """A large body leaves a megabyte at a time, also where the transport takes everything at once."""

    async def main() -> float:
        ends = Ends()
        ends.begin(bytes(10_000_000))
        steps = 0
        while sum(map(len, ends.line.written)) < 10_000_000:
            assert sum(map(len, ends.line.written)) <= (steps + 1) * 1_100_000
            await asyncio.sleep(0)
            steps += 1
        assert steps >= 9
        return now()

    run(main)


def test_no_rest_before_the_request_has_left() -> None:
    """A connection that is still owed a part of its request cannot carry another."""

    async def main() -> float:
        ends = Ends()
        ends.connection.pause_writing()
        ends.begin(bytes(1_000_000))
        ends.connection.data_received(OK)
        assert ends.connection.phase is AnswerPhase.DONE
        assert not ends.connection.rest(30)
        ends.connection.resume_writing()
        assert len(ends.line.written) == 1
        return now()

    run(main)


def test_an_answer_closed_while_it_is_waited_for() -> None:
    """Who waits for more of an answer that another task gives back never reads what the connection brings next."""

    async def main() -> float:
        ends = Ends()
        origin = PooledOrigin(asyncio.get_running_loop(), DialTarget("127.0.0.1", 1, tls=False), None)
        ends.begin()
        ends.connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nok")
        reply = HttpReply(ends.connection, origin, call_to("http://127.0.0.1:1"), DEFAULTS)
        async with aclosing(reply.chunks()) as chunks:
            assert await anext(chunks) == b"ok"
            waiting = asyncio.ensure_future(anext(chunks))
            await asyncio.sleep(0)
            ends.connection.data_received(b"ay")
            await reply.close()
            assert origin.take() is ends.connection
            ends.begin()
            ends.connection.data_received(OK)
            with pytest.raises(UpstreamUnavailable):
                await waiting
        assert ends.connection.take() == b"ok"
        return now()

    assert run(main) == 0
