"""Rule 145: what a streaming client gets while its upstream has not sent a first byte, on a clock that never waits."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, MutableMapping
from itertools import pairwise
from typing import Any, NamedTuple

import anthropic
import httpx2
import msgspec
import openai
import pytest

from mustcall.core.origin import Wire
from mustcall.gateway.app import Gateway
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.testing import Hang, Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from mustcall.testing.render import Stamp, stream_reply
from mustcall.testing.transport import FakeReply, FakeTransport
from mustcall.upstream.seam import UpstreamCall
from support.compared import leave
from support.gated import PATHS, Listener, events_of
from support.jumping import run

#: Seconds after which a stream is begun, by default, and that a slow upstream takes.
PATIENCE, SLOW = 10.0, 30.0
SAID = Turn(Say("It is sunny in Paris today."))
SIGNS = {"chat": b": keepalive\n\n", "messages": b'event: ping\ndata: {"type":"ping"}\n\n'}
BODIES: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "hi"}], "stream_options": {"include_usage": True}},
    "responses": {"input": "hi", "store": False},
    "messages": {"max_tokens": 500, "messages": [{"role": "user", "content": "hi"}]},
}
REFUSED = b'{"error":{"type":"invalid_request_error","message":"No such thing."}}'
wires = pytest.mark.parametrize("wire", BODIES)
#: The pairs of wires whose streams get signs before their first byte.
SIGNED = [(wire, upstream) for wire in BODIES for upstream in BODIES if (wire, upstream) != ("responses", "responses")]
upstreams = pytest.mark.parametrize("upstream", BODIES)


def asking(wire: str, **fields: Any) -> dict[str, Any]:
    """A streamed request."""
    return {"model": "m", "stream": True, **BODIES[wire], **fields}


class SlowTransport(FakeTransport):
    """Answers after so many seconds, the head included."""

    def __init__(self, answer: FakeReply, seconds: float) -> None:
        super().__init__([answer] * 5)
        self._seconds = seconds

    async def send(self, call: UpstreamCall) -> FakeReply:
        """Wait, then answer."""
        await asyncio.sleep(self._seconds)
        return await super().send(call)


class LateBody(FakeReply):
    """A stream whose head is there at once, and its first event after so many seconds."""

    def __init__(self, pieces: list[bytes], seconds: float) -> None:
        super().__init__(*pieces, headers={"content-type": "text/event-stream"})
        self._seconds = seconds

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Wait, then yield the events."""
        await asyncio.sleep(self._seconds)
        async for piece in super().chunks():
            yield piece


class Heard(NamedTuple):
    """What a client got: the head, and each piece of the body with its time."""

    status: int
    headers: dict[str, str]
    pieces: list[tuple[float, bytes]]

    @property
    def body(self) -> bytes:
        """All of the body."""
        return b"".join(piece for _, piece in self.pieces)


def streamed(upstream: str, turn: Turn = SAID) -> list[bytes]:
    """The pieces of an upstream's reply."""
    return list(stream_reply(turn, Wire(upstream), asking(upstream), Stamp(0)))


def listen(wire: str, upstream: str, transport: FakeTransport, **server: Any) -> Heard:
    """Ask a gateway over this transport."""
    head: MutableMapping[str, Any] = {}
    pieces: list[tuple[float, bytes]] = []

    async def scene() -> None:
        settings = settings_from_flags(f"{upstream}=http://127.0.0.1:1/v1")
        settings = msgspec.structs.replace(settings, server=msgspec.structs.replace(settings.server, **server))
        gateway = Gateway(settings, transport)
        scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "path": PATHS[wire],
            "query_string": b"",
            "headers": [],
        }
        given = iter([{"type": "http.request", "body": json.dumps(asking(wire)).encode(), "more_body": False}])

        async def receive() -> MutableMapping[str, Any]:
            message = next(given, None)
            if message is None:
                await asyncio.Event().wait()
            return message or {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                head.update(message)
            elif message.get("body"):
                pieces.append((asyncio.get_running_loop().time(), message["body"]))

        await gateway(scope, receive, send)

    run(scene)
    return Heard(head["status"], {name.decode(): value.decode() for name, value in head["headers"]}, pieces)


def said(stream: bytes) -> list[Any]:
    """The events of a stream without what differs from one request to the next."""
    text = json.dumps([event for event in events_of(stream) if event != {"type": "ping"}])
    ids = {word for word in text.replace('"', " ").split() if word.startswith(("msg_", "resp_", "chatcmpl"))}
    for word in ids:
        text = text.replace(word, "ID")
    events: list[Any] = json.loads(text)
    for event in events:
        if event != "[DONE]":
            event.pop("created", None)
            event.get("response", {}).pop("created_at", None)
    return events


def late_head(upstream: str) -> FakeTransport:
    """An upstream that says nothing for 30 s."""
    return SlowTransport(FakeReply(*streamed(upstream), headers={"content-type": "text/event-stream"}), SLOW)


def late_body(upstream: str) -> FakeTransport:
    """An upstream that sends its head at once, and nothing more for 30 s."""
    return FakeTransport([LateBody(streamed(upstream), SLOW)])


@pytest.mark.parametrize("late", [late_head, late_body])
@upstreams
@pytest.mark.parametrize("wire", SIGNS)
def test_a_slow_upstream_is_waited_for_with_signs(
    wire: str, upstream: str, late: Callable[[str], FakeTransport]
) -> None:
    """Rule 145: the first sign after 10 s of silence, then one every 2 s, then the reply as it would have been."""
    heard = listen(wire, upstream, late(upstream))
    plain = listen(wire, upstream, late(upstream), first_sign=0.0)
    signs = [at for at, piece in heard.pieces if piece == SIGNS[wire] and at < SLOW - 1]
    assert signs == pytest.approx([PATIENCE + 2 * number for number in range(10)], abs=0.01)
    assert heard.status == 200
    assert heard.body.startswith(SIGNS[wire] * 9)
    if wire == upstream:
        assert plain.body == b"".join(streamed(upstream))
        assert heard.body == SIGNS[wire] * len(signs) + plain.body
    else:
        assert said(heard.body) == said(plain.body)


@pytest.mark.parametrize("upstream", ["chat", "messages"])
def test_a_responses_client_gets_events(upstream: str) -> None:
    """Rule 145: Codex counts events only; the response that the signs begin is the one that is answered."""
    heard = listen("responses", upstream, late_head(upstream))
    events = events_of(heard.body)
    kinds = [event["type"] for event in events]
    assert kinds[0] == "response.created"
    assert kinds.count("response.created") == 1
    assert kinds.count("response.in_progress") >= 9
    assert heard.pieces[0][0] == pytest.approx(PATIENCE, abs=0.01)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "It is sunny in Paris today."


def test_a_forwarded_responses_stream_is_left_as_it_is() -> None:
    """Rules 112, 145: its events carry the upstream's numbers, so none of ours can stand before them."""
    heard = listen("responses", "responses", late_head("responses"))
    assert heard.body == b"".join(streamed("responses"))
    assert heard.pieces[0][0] == pytest.approx(SLOW, abs=0.01)


@pytest.mark.parametrize("seconds", [0.0, 2.0, 9.5])
@upstreams
@wires
def test_a_quick_upstream_gets_no_sign(wire: str, upstream: str, seconds: float) -> None:
    """Rule 112: what answers within the patience is answered as before, headers included."""
    reply = FakeReply(*streamed(upstream), headers={"content-type": "text/event-stream", "x-ratelimit-limit": "7"})
    heard = listen(wire, upstream, SlowTransport(reply, seconds))
    assert heard.pieces[0][0] == pytest.approx(seconds, abs=0.01)
    assert not any(piece in SIGNS.values() for _, piece in heard.pieces[:1])
    assert b": keepalive" not in heard.body
    if wire == upstream:
        assert heard.body == b"".join(streamed(upstream))
        assert heard.headers["x-ratelimit-limit"] == "7"


@pytest.mark.parametrize(("status", "seconds"), [(400, 5.0), (404, 9.0)])
@upstreams
@wires
def test_a_refusal_within_the_patience_keeps_its_status(wire: str, upstream: str, status: int, seconds: float) -> None:
    """Rule 135: an upstream that refuses at once, or after a few seconds, is told by its status."""
    refusal = FakeReply(REFUSED, status=status)
    heard = listen(wire, upstream, SlowTransport(refusal, seconds))
    assert heard.status == status
    assert b"No such thing." in heard.body


#: Where the last event of a stream that failed says so.
ENDS = {"chat": ("error",), "responses": ("response", "error"), "messages": ("error",)}


@pytest.mark.parametrize(("wire", "upstream"), SIGNED)
def test_a_late_refusal_is_the_end_of_the_stream(wire: str, upstream: str) -> None:
    """Rules 135, 144: once a sign is out, an upstream's 4xx is the terminal event that the wire defines."""
    refusal = FakeReply(REFUSED, status=400)
    heard = listen(wire, upstream, SlowTransport(refusal, SLOW))
    assert heard.status == 200
    events = [event for event in events_of(heard.body) if event != "[DONE]"]
    end = events[-1]
    for name in ENDS[wire]:
        end = end[name]
    assert "No such thing." in end["message"]
    assert "x-mustcall-attempts" not in heard.headers
    assert heard.headers["x-mustcall-outcome"] == "streaming"


@pytest.mark.parametrize("before", [0.0, PATIENCE + 2])
@pytest.mark.parametrize(("wire", "upstream"), SIGNED)
def test_a_later_attempt_is_waited_for_as_well(wire: str, upstream: str, before: float) -> None:
    """Rule 145: after an empty reply the next attempt's first byte may take as long, and the client sees signs."""
    empty = LateBody(streamed(upstream, Turn(Say(""))), before)
    transport = FakeTransport([empty, LateBody(streamed(upstream), SLOW)])
    heard = listen(wire, upstream, transport)
    times = [at for at, _ in heard.pieces]
    assert times[0] == pytest.approx(PATIENCE, abs=0.01)
    assert max(later - earlier for earlier, later in pairwise(times)) <= 2.01
    assert b"Paris" in heard.body
    assert len(transport.calls) == 2
    leave(transport, "what follows an empty reply is compared in the tests of remedies; here the times are looked at")


def served(stream: bytes) -> httpx2.Client:
    """A client that is answered with this stream."""
    head = {"content-type": "text/event-stream"}
    return httpx2.Client(transport=httpx2.MockTransport(lambda _: httpx2.Response(200, headers=head, content=stream)))


def test_anthropic_reads_a_stream_that_signs_began() -> None:
    """Rule 145: the official SDK passes over pings before the message, and raises the error behind them."""
    hi: Any = {"model": "m", "max_tokens": 500, "messages": [{"role": "user", "content": "hi"}]}
    told = served(listen("messages", "chat", late_head("chat")).body)
    with anthropic.Anthropic(base_url="http://x", api_key="k", http_client=told).messages.stream(**hi) as events:
        assert events.get_final_text() == "It is sunny in Paris today."
    refused = served(listen("messages", "chat", SlowTransport(FakeReply(REFUSED, status=400), SLOW)).body)
    client = anthropic.Anthropic(base_url="http://x", api_key="k", http_client=refused)
    with pytest.raises(anthropic.APIStatusError, match="No such thing"), client.messages.stream(**hi) as events:
        events.until_done()


@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_openai_reads_a_stream_that_signs_began(wire: str) -> None:
    """Rule 145: the official SDK takes the signs of both its wires, and raises the error behind them."""

    def read(transport: FakeTransport) -> str:
        told = served(listen(wire, "messages", transport).body)
        client = openai.OpenAI(base_url="http://x", api_key="k", http_client=told)
        if wire == "chat":
            with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "hi"}]) as events:
                return events.get_final_completion().choices[0].message.content or ""
        with client.responses.stream(model="m", input="hi") as response:
            return response.get_final_response().output_text

    assert read(late_head("messages")) == "It is sunny in Paris today."
    if wire == "chat":
        with pytest.raises(openai.APIError, match="No such thing"):
            read(SlowTransport(FakeReply(REFUSED, status=400), SLOW))


def test_an_upstream_over_http_is_waited_for() -> None:
    """Rule 145: the same over sockets; the reply that was waited for is the first attempt's."""
    with (
        ScriptedUpstream([Hang(SAID)]) as upstream,
        RunningGateway(f"chat={upstream.base_url}", keepalive=0.02, first_sign=0.02) as gateway,
        Listener(gateway.url, "messages", asking("messages")) as client,
    ):
        client.wait_for(SIGNS["messages"], 4)
        upstream.release()
        assert b"sunny" in client.read_rest()
        assert len(upstream.requests) == 1


def test_signs_can_be_switched_off() -> None:
    """Rule 145: `first_sign = 0` leaves the head of the answer to the upstream."""
    heard = listen("messages", "chat", late_head("chat"), first_sign=0.0)
    assert heard.pieces[0][0] == pytest.approx(SLOW, abs=0.01)
    assert SIGNS["messages"] not in heard.body
