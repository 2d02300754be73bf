"""Rule 111 carried out: how often the upstream is called, how long is waited, what comes back."""

import pytest

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import (
    MustcallError,
    UpstreamGarbage,
    UpstreamRedirected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mustcall.policy.failures.backoff import Backoff
from mustcall.testing.transport import FakeClock, FakeReply, FakeTransport
from mustcall.upstream.retry import Answer, send_patiently
from mustcall.upstream.seam import Timeouts, UpstreamCall
from mustcall.wire.openai_errors import decode_error_body

CALL = UpstreamCall(url="http://upstream/v1/x", headers={}, body=b"{}", timeouts=Timeouts(read=60))
BUSY = b'{"error":{"message":"busy","type":"server_error"}}'


async def send(
    transport: FakeTransport, clock: FakeClock, log: AdaptationLog | None = None, seconds: float = 100.0
) -> Answer:
    """Send with two retries and so many seconds in all."""
    return await send_patiently(
        transport,
        CALL,
        Backoff(retries=2),
        decode_error_body,
        clock=clock,
        deadline=clock.monotonic() + seconds,
        log=log or AdaptationLog(),
    )


async def test_success_is_one_call() -> None:
    """Rule 111: a healthy answer costs one call, no wait, and leaves no trace."""
    transport, clock, log = FakeTransport([FakeReply(b"ok")]), FakeClock(), AdaptationLog()
    answer = await send(transport, clock, log)
    assert await answer.reply.read() == b"ok"
    assert (len(transport.calls), clock.sleeps, log.entries) == (1, [], ())


@pytest.mark.parametrize("first", [FakeReply(BUSY, status=503), UpstreamUnavailable("reset"), UpstreamTimeout("late")])
async def test_transient_failure_is_tried_again(first: FakeReply | MustcallError) -> None:
    """Rule 111: the same call again, after the wait, and the retry is reported."""
    transport, clock, log = FakeTransport([first, FakeReply(b"ok")]), FakeClock(jitter=0.0), AdaptationLog()
    answer = await send(transport, clock, log)
    assert answer.error_body is None
    assert transport.calls == [CALL, CALL]
    assert clock.sleeps == [0.25]
    assert [entry.kind for entry in log.entries] == ["retried"]


async def test_retries_are_bounded_and_the_last_answer_returned() -> None:
    """Rule 111: two retries, then the upstream's own error with its body."""
    transport, clock = FakeTransport([FakeReply(BUSY, status=529) for _ in range(3)]), FakeClock()
    answer = await send(transport, clock)
    assert (answer.reply.status, answer.error_body) == (529, BUSY)
    assert transport.calls == [CALL] * 3
    assert clock.sleeps == [0.25, 0.5]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("https://other.example:8443/v2/x?key=sekret#a", " to https://other.example:8443/v2/x"),
        ("https://anna:sekret@other.example/", " to https://other.example/"),
        ("/v2/x", " to http://upstream/v2/x"),
        ("http://[sekret/", ""),
        (None, ""),
    ],
)
async def test_a_redirect_is_told_and_not_tried_again(status: int, location: str | None, target: str) -> None:
    """One call, and an error with the status and the target without its secrets; the body is not read."""
    reply = FakeReply(b"", status=status, headers={} if location is None else {"location": location})
    transport, clock = FakeTransport([reply]), FakeClock()
    with pytest.raises(UpstreamRedirected) as caught:
        await send(transport, clock)
    assert caught.value.message == (
        f"the upstream upstream redirects (HTTP {status}){target}; redirects are not followed: correct base_url"
    )
    assert (caught.value.code, caught.value.retryable) == ("upstream_redirected", False)
    assert (transport.calls, clock.sleeps, reply.closed) == ([CALL], [], True)


async def test_last_failure_is_raised() -> None:
    """Rule 111: with nothing answered the last failure is the caller's to see."""
    transport = FakeTransport([UpstreamUnavailable("one"), UpstreamUnavailable("two"), UpstreamTimeout("three")])
    with pytest.raises(UpstreamTimeout, match="three"):
        await send(transport, FakeClock())
    assert transport.calls == [CALL] * 3


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_permanent_errors_are_not_tried_again(status: int) -> None:
    """Rule 111: one call, and the body is kept for the caller."""
    transport, clock = FakeTransport([FakeReply(b'{"error":{"message":"no"}}', status=status)]), FakeClock()
    answer = await send(transport, clock)
    assert (answer.reply.status, len(transport.calls), clock.sleeps) == (status, 1, [])


async def test_garbage_is_not_tried_again() -> None:
    """Rule 111: a server that speaks no HTTP will not learn it."""
    transport = FakeTransport([UpstreamGarbage("what")])
    with pytest.raises(UpstreamGarbage):
        await send(transport, FakeClock())
    assert len(transport.calls) == 1


async def test_retry_after_is_waited_for() -> None:
    """Rule 111: the upstream's own advice replaces the back-off."""
    busy = FakeReply(BUSY, status=429, headers={"retry-after": "4"})
    transport, clock = FakeTransport([busy, FakeReply(b"ok")]), FakeClock()
    await send(transport, clock)
    assert transport.calls == [CALL, CALL]
    assert clock.sleeps == [4.0]


async def test_no_wait_past_the_deadline() -> None:
    """Rule 111: advice that ends after the deadline is not followed; the error comes at once."""
    busy = FakeReply(BUSY, status=429, headers={"retry-after": "20"})
    transport, clock = FakeTransport([busy]), FakeClock()
    answer = await send(transport, clock, seconds=10)
    assert (answer.reply.status, clock.sleeps, len(transport.calls)) == (429, [], 1)


async def test_read_timeout_never_exceeds_the_time_left() -> None:
    """Rule 97: no attempt may take longer than the request has left."""
    transport = FakeTransport([FakeReply(b"ok")])
    await send(transport, FakeClock(), seconds=7)
    assert transport.calls[0].timeouts.read == 7


async def test_no_attempt_without_time() -> None:
    """Rule 97: nothing is sent after the deadline."""
    transport = FakeTransport([])
    with pytest.raises(UpstreamTimeout):
        await send(transport, FakeClock(), seconds=0)
    assert transport.calls == []


async def test_error_body_that_breaks_off() -> None:
    """An error whose body cannot be read is still that error."""
    broken = FakeReply(b'{"err', UpstreamUnavailable("reset"), status=404)
    answer = await send(FakeTransport([broken]), FakeClock())
    assert (answer.reply.status, answer.error_body, broken.closed) == (404, b"", True)
