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
from mustcall.policy.backoff import Backoff, is_transient, retry_after
from mustcall.upstream.seam import Transport, UpstreamCall, UpstreamReply

__all__ = ["Answer", "Clock", "SystemClock", "send_patiently"]


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


class Answer(msgspec.Struct):
    """What came back: a reply still to be read, or an error status with its body."""

    reply: UpstreamReply
    error_body: bytes | None = None


async def send_patiently(
    transport: Transport,
    call: UpstreamCall,
    backoff: Backoff,
    read_error: Callable[[int, bytes], ErrorInfo],
    *,
    clock: Clock,
    deadline: float,
    log: AdaptationLog,
) -> Answer:
    """Send until an answer is worth handing on; raise the last failure when it is not worth another try.

    `deadline` is in the clock's monotonic seconds: no wait goes past it.
    """
    attempt = 0
    while True:
        attempt += 1
        failure: MustcallError | None = None
        answer: Answer | None = None
        asked: float | None = None
        left = deadline - clock.monotonic()
        if left <= 0:
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
            if reply.status < 400:
                return Answer(reply)
            body = await _error_body(reply)
            answer = Answer(reply, body)
            transient = is_transient(read_error(reply.status, body))
            why = f"HTTP {reply.status}"
            asked = retry_after(reply.headers, clock.now())
        wait = backoff.wait(attempt, asked, clock.jitter()) if transient else None
        if wait is None or clock.monotonic() + wait >= deadline:
            if answer is not None:
                return answer
            assert failure is not None, "an attempt ends in an answer or a failure"
            raise failure
        log.add(AdaptationKind.RETRIED, f"attempt {attempt}", why)
        await clock.sleep(wait)


async def _error_body(reply: UpstreamReply) -> bytes:
    """Read an error's body; a connection that breaks meanwhile leaves what its status says."""
    try:
        return await reply.read()
    except MustcallError:
        return b""
    finally:
        await reply.close()
