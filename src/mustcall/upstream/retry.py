"""One exchange, tried again while the failure is transient and there is time (rule 111).

Nothing has reached the caller while this runs, so trying again is invisible but for the time it takes and the
adaptation it leaves. Time, sleep and randomness are a `Clock`, so that tests never wait.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.errors import ErrorInfo, MustcallError, UpstreamTimeout
from mustcall.policy.failures.backoff import Backoff, is_transient, retry_after
from mustcall.policy.limits.budget import has_time
from mustcall.upstream import failures
from mustcall.upstream.seam import Transport, UpstreamCall, UpstreamReply

__all__ = ["Answer", "Clock", "Retry", "SystemClock", "Tries", "send_patiently"]


class Clock(Protocol):
    """Everything of time and chance the I/O layers use."""

    def monotonic(self) -> float:
        """Seconds that only go forward."""
        ...

    def now(self) -> float:
        """Unix seconds."""
        ...

    def jitter(self) -> float:
        """A random number in [0, 1)."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The real one."""

    monotonic = staticmethod(time.monotonic)
    now = staticmethod(time.time)
    jitter = staticmethod(random.random)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class Retry(msgspec.Struct, frozen=True):
    """One call that was made again: how it failed, after how many seconds, and how long the next one waited."""

    why: str
    seconds: float
    wait: float


class Tries:
    """The transport retries of one turn.

    They are counted apart from every other counter (rule 111) and, where `may` says so, under the turn's ceiling
    (rule 96); `note` is told of each. None begins with less than `least` seconds left (rule 97).
    """

    __slots__ = ("_made", "_may", "_note", "least", "used")

    def __init__(
        self, may: Callable[[], bool] | None = None, note: Callable[[], None] | None = None, least: float = 0.0
    ) -> None:
        self._may = may
        self._note = note
        self.least = least
        self.used = 0
        self._made: tuple[Retry, ...] = ()

    def wait(self, backoff: Backoff, asked: float | None, clock: Clock, deadline: float) -> float | None:
        """Return the seconds to wait before another try, None if there is to be none."""
        if self._may is not None and not self._may():
            return None
        wait = backoff.wait(self.used + 1, asked, clock.jitter())
        if wait is None or clock.monotonic() + wait >= deadline:
            return None
        return wait if has_time(deadline, clock.monotonic() + wait, self.least) else None

    def spend(self, retry: Retry) -> None:
        """Count one more."""
        self.used += 1
        self._made += (retry,)
        if self._note is not None:
            self._note()

    def take(self) -> tuple[Retry, ...]:
        """Return the retries since this was asked last."""
        made, self._made = self._made, ()
        return made


class Answer(msgspec.Struct):
    """What came back: a reply still to be read, or an error status with its body and what that says."""

    reply: UpstreamReply
    error_body: bytes | None = None
    error: ErrorInfo | None = None


async def send_patiently(
    transport: Transport,
    call: UpstreamCall,
    backoff: Backoff,
    read_error: Callable[[int, bytes], ErrorInfo],
    *,
    clock: Clock,
    deadline: float,
    log: AdaptationLog,
    tries: Tries | None = None,
) -> Answer:
    """Send until an answer is worth handing on; raise the last failure when it is not worth another try.

    `deadline` is in the clock's monotonic seconds: no wait goes past it.
    """
    tries = tries or Tries()
    while True:
        failure: MustcallError | None = None
        answer: Answer | None = None
        asked: float | None = None
        began = clock.monotonic()
        left = deadline - began
        if left <= 0 or left < tries.least:
            raise UpstreamTimeout("the time for this request ran out before the upstream answered")
        limited = call
        if call.timeouts.read > left:
            limited = msgspec.structs.replace(call, timeouts=msgspec.structs.replace(call.timeouts, read=left))
        try:
            reply = await transport.send(limited)
        except MustcallError as error:
            failure = error
            transient = error.retryable
            why = error.code
        else:
            if reply.status < 300:
                return Answer(reply)
            if reply.status < 400:
                await reply.close()
                raise failures.redirected(call, reply.status, reply.headers.get("location"))
            body = await _error_body(reply)
            info = read_error(reply.status, body)
            answer = Answer(reply, body, info)
            transient = is_transient(info)
            why = f"HTTP {reply.status}"
            asked = retry_after(reply.headers, clock.now())
        wait = tries.wait(backoff, asked, clock, deadline) if transient else None
        if wait is None:
            if answer is not None:
                return answer
            assert failure is not None, "an attempt ends in an answer or a failure"
            raise failure
        tries.spend(Retry(why, clock.monotonic() - began, wait))
        log.add(AdaptationKind.RETRIED, f"attempt {tries.used}", why)
        await clock.sleep(wait)


async def _error_body(reply: UpstreamReply) -> bytes:
    """Read an error's body; a connection that breaks meanwhile leaves what its status says."""
    try:
        return await reply.read()
    except MustcallError:
        return b""
    finally:
        await reply.close()
