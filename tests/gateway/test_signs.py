"""Rule 145: what keeps the clients of each wire alive while a turn holds a call, seen on a clock that never waits."""

import asyncio
import json
from collections.abc import AsyncGenerator, MutableMapping
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from mustcall.core.origin import Wire
from mustcall.gateway.app import Gateway
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.policy.facts.wording import Wording
from mustcall.testing import Call, Fail, Hang, Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from mustcall.testing.render import Stamp, stream_reply
from mustcall.testing.transport import FakeReply, FakeTransport
from support.gated import KEYS, PATHS, Listener, events_of
from support.http import post
from support.jumping import run
from support.laddering import climbed
from support.sending import with_steps

#: Seconds that the call takes, and after which Codex gives a stream up in this setting.
SECONDS, IDLE = 20.0, 6.0
UPSTREAM = "chat=http://127.0.0.1:9/v1"
TEXT = " ".join(["word"] * 60)
CALLS = {"first": Turn(Call("f", {"q": TEXT})), "after text": Turn(Say("I will look."), Call("f", {"q": TEXT}))}
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
BODIES: dict[str, dict[str, Any]] = {
    "chat": {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
    },
    "responses": {
        "input": "hi",
        "store": False,
        "tools": [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}],
    },
    "messages": {
        "max_tokens": 5000,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"name": "f", "input_schema": SCHEMA}],
    },
}
wires = pytest.mark.parametrize("wire", BODIES)


def asking(wire: str, **fields: Any) -> dict[str, Any]:
    """A streamed request that offers a tool."""
    return {"model": "m", "stream": True, **BODIES[wire], **fields}


class Slow(FakeReply):
    """A stream that is as long on its way as it is told to be: what comes before the call is there at once."""

    def __init__(self, pieces: list[bytes], seconds: float) -> None:
        super().__init__(headers={"content-type": "text/event-stream"})
        self._pieces = pieces
        self._seconds = seconds

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the events, at equal distances from the first arguments on."""
        start = next(number for number, piece in enumerate(self._pieces) if b"word" in piece)
        step = self._seconds / (len(self._pieces) - start)
        for number, piece in enumerate(self._pieces):
            if number > start:
                await asyncio.sleep(step)
            yield piece


def listen(wire: str, upstream: str, turn: Turn, body: dict[str, Any]) -> list[tuple[float, bytes]]:
    """Ask a gateway over an upstream that is slow; return what came and when."""
    heard: list[tuple[float, bytes]] = []

    async def scene() -> None:
        asked = {**asking(upstream), "stream_options": {"include_usage": True}}
        pieces = list(stream_reply(turn, Wire(upstream), asked, Stamp(0)))
        settings = settings_from_flags(f"{upstream}=http://127.0.0.1:1/v1")
        gateway = Gateway(settings, FakeTransport([Slow(pieces, SECONDS)]))
        scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "path": PATHS[wire],
            "query_string": b"",
            "headers": [],
        }
        sent = json.dumps(body).encode()
        left = asyncio.Event()
        given = iter([{"type": "http.request", "body": sent, "more_body": False}])

        async def receive() -> MutableMapping[str, Any]:
            message = next(given, None)
            if message is None:
                await left.wait()
            return message or {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message.get("body"):
                heard.append((asyncio.get_running_loop().time(), message["body"]))

        await gateway(scope, receive, send)

    run(scene)
    return heard


@pytest.mark.parametrize("upstream", BODIES)
@pytest.mark.parametrize("name", CALLS)
@wires
def test_a_call_of_twenty_seconds_shows_life(wire: str, upstream: str, name: str) -> None:
    """Rule 145: held for 20 s, a stream has something its clients count within a second and every 2 s from then on."""
    heard = listen(wire, upstream, CALLS[name], asking(wire))
    # Codex counts events, not comments; clients of chat count bytes.
    counted = [at for at, piece in heard if wire == "chat" or events_of(piece)]
    gaps = [later - earlier for earlier, later in zip([0.0, *counted], counted, strict=False)]
    assert counted[-1] == pytest.approx(SECONDS, abs=1.0)
    assert gaps[0] <= 1.001
    assert max(gaps) <= 2.001 < IDLE


def numbers_of(stream: bytes) -> list[int]:
    """The sequence numbers of a Responses stream."""
    return [event["sequence_number"] for event in events_of(stream) if isinstance(event, dict)]


@pytest.mark.parametrize("upstream", BODIES)
@pytest.mark.parametrize("name", CALLS)
def test_a_responses_stream_with_signs_is_one_response(upstream: str, name: str) -> None:
    """Rule 145: created once, one id, numbered from 0 on without a gap, signs as `response.in_progress`."""
    stream = b"".join(piece for _, piece in listen("responses", upstream, CALLS[name], asking("responses")))
    events = events_of(stream)
    kinds = [event["type"] for event in events]
    assert (kinds[0], kinds.count("response.created")) == ("response.created", 1)
    assert kinds.count("response.in_progress") >= 9
    assert numbers_of(stream) == list(range(len(events)))
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1
    (call,) = [item for item in events[-1]["response"]["output"] if item["type"] == "function_call"]
    assert json.loads(call["arguments"]) == {"q": TEXT}
    assert {event["item"]["id"] for event in events if event["type"] == "response.output_item.done"} == {
        item["id"] for item in events[-1]["response"]["output"]
    }


def test_a_kept_response_gets_signs_without_an_id() -> None:
    """Rules 78, 145: where the upstream keeps the reply, its id is known at the end only: signs are comments."""
    body = asking("responses", store=True)
    heard = listen("responses", "responses", CALLS["first"], body)
    stream = b"".join(piece for _, piece in heard)
    assert stream.count(b": keepalive\n\n") >= 9
    assert [event["type"] for event in events_of(stream)].count("response.in_progress") == 1


def test_openai_reads_a_stream_with_signs() -> None:
    """Rule 145: the official SDK's accumulator takes the signs, and ends with the call."""
    body = asking("responses", tool_choice="required")
    with (
        ScriptedUpstream([Hang(CALLS["first"], after=2500)]) as upstream,
        RunningGateway(f"responses={upstream.base_url}", keepalive=0.02) as gateway,
        openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="k", max_retries=0) as client,
    ):
        options: Any = {name: body[name] for name in ("model", "input", "store", "tools", "tool_choice")}
        signs = 0
        with client.responses.stream(**options) as events:
            for event in events:
                signs += event.type == "response.in_progress"
                if signs == 4:
                    upstream.release()
            response = events.get_final_response()
    assert signs >= 4
    assert [(item.type, json.loads(getattr(item, "arguments", "{}"))) for item in response.output] == [
        ("function_call", {"q": TEXT})
    ]


def test_anthropic_reads_a_stream_with_signs() -> None:
    """Rule 145: the official SDK passes over pings, also before the message begins."""
    heard = listen("messages", "messages", CALLS["first"], asking("messages"))
    stream = b"".join(piece for _, piece in heard)
    assert stream.startswith(b"event: ping\n")
    assert stream.count(b"event: ping\n") >= 9
    served = httpx2.MockTransport(
        lambda _: httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=stream)
    )
    with (
        anthropic.Anthropic(base_url="http://x", api_key="k", http_client=httpx2.Client(transport=served)) as client,
        client.messages.stream(model="m", max_tokens=5000, messages=[{"role": "user", "content": "hi"}]) as events,
    ):
        message = events.get_final_message()
    assert [block.input for block in message.content if block.type == "tool_use"] == [{"q": TEXT}]


def test_a_failure_behind_signs_is_the_same_response() -> None:
    """Rules 135, 145: an upstream's error after signs ends the response that was begun, with the next number."""
    body = asking("responses", tool_choice="required")
    with (
        ScriptedUpstream([Hang(Turn(Say("Prose.")), after=600)], default=Fail(400, "No.")) as upstream,
        RunningGateway(f"responses={upstream.base_url}", keepalive=0.02) as gateway,
        Listener(gateway.url, "responses", body) as client,
    ):
        client.wait_for(b"event: response.in_progress", 3)
        upstream.release()
        events = events_of(client.read_rest())
        sent = [request.body for request in upstream.requests]
        soft = with_steps(Wire.RESPONSES, {**body, "tool_choice": "auto"}, Wording().call_any[0])
        assert sent == [*climbed("responses", body)[:3], soft]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events].count("response.created") == 1
    assert events[-1]["type"] == "response.failed"


def test_an_error_behind_forwarded_events_has_the_next_number() -> None:
    """Rule 135: what breaks off behind forwarded bytes ends with a failed response, numbered on."""
    body = asking("responses")
    turn = Turn(Say("It is sunny in Paris today, and warm."), Call("f", {"q": 7}))
    with (
        ScriptedUpstream([turn] * 3) as upstream,
        RunningGateway(f"responses={upstream.base_url}") as gateway,
    ):
        events = events_of(post(gateway.url + PATHS["responses"], body, KEYS).body)
        again = with_steps(Wire.RESPONSES, body, Wording().bad_arguments.format(problem="f: q: string"))
        assert [request.body for request in upstream.requests] == [body, again]
    assert events[-1]["type"] == "response.failed"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@pytest.mark.parametrize(("given", "kept"), [({}, 0.0), ({"keepalive": 5.0}, 5.0)])
def test_a_gateway_for_tests_sends_none_by_itself(given: dict[str, Any], kept: float) -> None:
    """A slow machine would begin an answer with a sign and without its headers; whole settings stay as they are."""
    with RunningGateway(UPSTREAM, **given) as gateway:
        assert gateway.app._settings.server.keepalive == kept
    settings = settings_from_flags(UPSTREAM)
    with RunningGateway(settings=settings) as gateway:
        assert gateway.app._settings.server.keepalive == settings.server.keepalive
