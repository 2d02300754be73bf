"""Slow, hanging, half-closing and reset upstreams give typed errors in time; clients that leave free the upstream."""

import contextlib
import json
import socket
import threading
from typing import Any

import msgspec
import pytest

from mustcall.gateway.config.settings import Settings, settings_from_flags
from mustcall.policy.failures.backoff import Backoff
from mustcall.testing import Cut, Fail, Hang, Raw, RawStream, Recorded, Reset, Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from mustcall.testing.transport import FakeClock
from mustcall.upstream.seam import Timeouts
from support.http import post
from support.ports import closed_port
from support.sdk import Ask, Failure, Seen, ask
from support.sending import carried_from_sdk

WIRES = ("chat", "responses", "messages")
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
GOOD: dict[str, Any] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    "responses": {"model": "m", "input": "hi"},
    "messages": {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
}
TEXT = Turn(Say("It is going to rain all day long, from the morning to the evening."))

callers = pytest.mark.parametrize("caller_wire", WIRES)
upstreams = pytest.mark.parametrize("upstream_wire", WIRES)
streaming = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def patient(url: str, wire: str, *, retries: int = 0, seconds: float = 60.0) -> Settings:
    """Settings whose timeouts no machine is too slow for; `seconds` is what an upstream that hangs is given."""
    settings = settings_from_flags(f"up:{wire}={url}")
    timeouts = Timeouts(connect=60.0, read=seconds, idle=seconds)
    endpoint = msgspec.structs.replace(settings.endpoints[0], backoff=Backoff(retries=retries), timeouts=timeouts)
    return msgspec.structs.replace(settings, endpoints=(endpoint,))


def waiting(fault: str) -> float:
    """Return the timeout for a fault: short for an upstream that would never go on."""
    return 0.1 if isinstance(FAULTS[fault][0], Hang) else 60.0


def ask_once_sent(caller_wire: str, upstream_wire: str, fault: str) -> tuple[Seen | Failure, list[Recorded]]:
    """Ask an upstream with a fault; return what the caller saw and the upstream's requests.

    The timeout also covers connecting. On a busy machine a short one may run out before a request was sent, which says
    nothing about the fault; then a longer one is tried.
    """
    for seconds in (waiting(fault), 2.0, 20.0):
        with (
            ScriptedUpstream([FAULTS[fault][0]]) as upstream,
            RunningGateway(settings=patient(upstream.base_url, upstream_wire, seconds=seconds)) as gateway,
        ):
            seen = ask(caller_wire, gateway.url, Ask(), stream=False)
            with contextlib.suppress(TimeoutError):  # it may be read after the gateway has given it up
                upstream.wait_for_requests(1, timeout=5.0)
        if upstream.requests:
            break
    return seen, upstream.requests


FAULTS = {
    "no answer": (Hang(TEXT), 504),
    "headers only": (Hang(TEXT, head=True), 504),
    "hangs in the body": (Hang(TEXT, after=150), 504),
    "closed without an answer": (Cut(TEXT), 502),
    "closed in the body": (Cut(TEXT, after=150), 502),
    "reset without an answer": (Reset(TEXT), 502),
    "reset in the body": (Reset(TEXT, after=150), 502),
    "not the wire's": (Raw(200, b"<html>Sign in</html>", {"content-type": "text/html"}), 502),
    "empty": (Raw(200, b""), 502),
    "an error as a success": (Raw(200, b'{"error":{"message":"lost","type":"server_error"}}'), 502),
}


@callers
@upstreams
@pytest.mark.parametrize("fault", FAULTS)
def test_whole_replies_fail_in_time(caller_wire: str, upstream_wire: str, fault: str) -> None:
    """Rule 41: each fault is a typed error with a status and a sentence, within its timeout."""
    seen, requests = ask_once_sent(caller_wire, upstream_wire, fault)
    assert isinstance(seen, Failure)
    assert seen.status == FAULTS[fault][1]
    assert "upstream" in seen.message or "lost" in seen.message
    assert len(requests) == 1


@callers
@upstreams
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if "body" in fault])
def test_streams_fail_in_time(caller_wire: str, upstream_wire: str, fault: str) -> None:
    """Rules 41, 135: a stream that breaks ends in an error event; the client never takes it for finished."""
    answer, _ = FAULTS[fault]
    with (
        ScriptedUpstream([answer]) as upstream,
        RunningGateway(settings=patient(upstream.base_url, upstream_wire, seconds=waiting(fault))) as gateway,
    ):
        seen = ask(caller_wire, gateway.url, Ask(), stream=True)
        assert isinstance(seen, Failure)
        assert "upstream" in seen.message


@callers
@upstreams
@pytest.mark.parametrize("cut", range(1, 8))
def test_streams_cut_anywhere(caller_wire: str, upstream_wire: str, cut: int) -> None:
    """Rule 41: cut at any eighth of its bytes, a stream is a failure, never a reply."""
    with ScriptedUpstream(default=TEXT) as upstream:
        whole = len(post(upstream.url + PATHS[upstream_wire], {**GOOD[upstream_wire], "stream": True}).body)
    with (
        ScriptedUpstream([Cut(TEXT, after=whole * cut // 10)]) as upstream,
        RunningGateway(settings=patient(upstream.base_url, upstream_wire)) as gateway,
    ):
        assert isinstance(ask(caller_wire, gateway.url, Ask(), stream=True), Failure)


@callers
@upstreams
@streaming
@pytest.mark.parametrize("fault", [Hang, Cut])
def test_what_follows_the_last_event_changes_nothing(
    caller_wire: str, upstream_wire: str, stream: bool, fault: type[Hang | Cut]
) -> None:
    """Contract 1: a complete reply stays complete, however its connection then ends, and nobody waits for that."""
    with ScriptedUpstream(default=TEXT) as upstream:
        body = post(upstream.url + PATHS[upstream_wire], {**GOOD[upstream_wire], "stream": True}).body
    with (
        ScriptedUpstream([fault(RawStream([body]), after=len(body))]) as upstream,
        RunningGateway(f"{upstream_wire}={upstream.base_url}") as gateway,
    ):
        seen = ask(caller_wire, gateway.url, Ask(system=None), stream=stream)
        assert isinstance(seen, Seen)
        assert seen.text.startswith("It is going to rain")
        upstream.release()


@callers
@upstreams
@streaming
def test_no_connection(caller_wire: str, upstream_wire: str, stream: bool) -> None:
    """Nobody listens: 502 that names the host and port."""
    port = closed_port()
    with RunningGateway(settings=patient(f"http://127.0.0.1:{port}/v1", upstream_wire)) as gateway:
        seen = ask(caller_wire, gateway.url, Ask(), stream=stream)
    assert isinstance(seen, Failure)
    assert seen.status == 502
    assert f"127.0.0.1:{port}" in seen.message


@callers
@upstreams
@streaming
def test_upstream_errors_keep_status_and_words(caller_wire: str, upstream_wire: str, stream: bool) -> None:
    """An upstream's own error arrives as the client's own exception, with its status and message."""
    with (
        ScriptedUpstream([Fail(422, "the field foo is odd")]) as upstream,
        RunningGateway(settings=patient(upstream.base_url, upstream_wire)) as gateway,
    ):
        seen = ask(caller_wire, gateway.url, Ask(), stream=stream)
        assert len(upstream.wait_for_requests(1)) == 1  # it may be read after the gateway has given it up
    assert isinstance(seen, Failure)
    assert seen.status == 422
    assert "the field foo is odd" in seen.message


@callers
@upstreams
@streaming
def test_transient_failures_are_hidden(caller_wire: str, upstream_wire: str, stream: bool) -> None:
    """Rule 111: busy, then reset, then fine: the caller sees one healthy reply, the upstream three equal requests."""
    script = [Fail(529, "overloaded"), Reset(TEXT), TEXT]
    with ScriptedUpstream(script) as upstream:
        settings = patient(upstream.base_url, upstream_wire, retries=2)
        with RunningGateway(settings=settings, clock=FakeClock()) as gateway:
            seen = ask(caller_wire, gateway.url, Ask(), stream=stream)
        assert isinstance(seen, Seen)
        assert seen.text == "It is going to rain all day long, from the morning to the evening."
        sent = carried_from_sdk(caller_wire, upstream_wire, stream=stream)
        assert [request.body for request in upstream.requests] == [sent] * 3
        assert len({bytes(request.raw) for request in upstream.requests}) == 1


@upstreams
@streaming
def test_client_that_leaves_frees_the_upstream(upstream_wire: str, stream: bool) -> None:
    """Rule 116: a client that goes away cancels the upstream's work and nothing more is sent."""
    held = Hang(Turn(Say("It rains. " * 1000)), after=6000 if stream else 0)  # well past the first event
    with (
        ScriptedUpstream([held]) as upstream,
        RunningGateway(f"{upstream_wire}={upstream.base_url}") as gateway,
    ):
        body = json.dumps({**GOOD["chat"], "stream": stream}).encode()
        with socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2]))) as client:
            client.settimeout(180)
            client.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b"
                % (len(body), body)
            )
            upstream.wait_for_requests(1)
            if stream:
                assert client.recv(10)
        upstream.wait_until_done()
        assert upstream.requests[0].disconnected
        upstream.wait_for_connections(0)
        assert len(upstream.wait_for_requests(1)) == 1  # it may be read after the gateway has given it up
        assert gateway.app.under_way == 0


def test_slow_client_is_not_a_slow_upstream() -> None:
    """The idle timeout runs while the upstream is waited for, not while a client is slow to read."""
    chunk = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % (b"x" * 50_000)
    done = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    with (
        ScriptedUpstream([RawStream([chunk] * 200 + [done])]) as upstream,
        RunningGateway(settings=patient(upstream.base_url, "chat", seconds=0.5)) as gateway,
    ):
        body = json.dumps({**GOOD["chat"], "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2]))) as client:
            client.settimeout(180)
            client.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n%b" % (len(body), body)
            )
            received = [client.recv(1000)]
            threading.Event().wait(1.0)  # longer than the idle timeout, with the pipes full
            while piece := client.recv(1_000_000):
                received.append(piece)
    text = b"".join(received)
    assert b"data: [DONE]" in text
    assert b"error" not in text


@callers
@upstreams
def test_stream_answered_in_one_piece(caller_wire: str, upstream_wire: str) -> None:
    """wires.md 2: stream:true is answered with events, always, even when the upstream answers with JSON."""
    with ScriptedUpstream(default=TEXT) as upstream:
        whole = post(upstream.url + PATHS[upstream_wire], GOOD[upstream_wire]).body
    with (
        ScriptedUpstream([Raw(200, whole)]) as upstream,
        RunningGateway(f"{upstream_wire}={upstream.base_url}") as gateway,
    ):
        seen = ask(caller_wire, gateway.url, Ask(), stream=True)
    assert isinstance(seen, Seen)
    assert seen.text.startswith("It is going to rain")


@callers
@upstreams
def test_whole_reply_answered_as_a_stream(caller_wire: str, upstream_wire: str) -> None:
    """The other way round: events nobody asked for are assembled into one reply."""
    with ScriptedUpstream(default=TEXT) as upstream:
        streamed = post(upstream.url + PATHS[upstream_wire], {**GOOD[upstream_wire], "stream": True}).body
    with (
        ScriptedUpstream([RawStream([streamed])]) as upstream,
        RunningGateway(f"{upstream_wire}={upstream.base_url}") as gateway,
    ):
        seen = ask(caller_wire, gateway.url, Ask(system=None), stream=False)
    assert isinstance(seen, Seen)
    assert seen.text.startswith("It is going to rain")
