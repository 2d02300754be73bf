"""A call that was cut off is never delivered: one retry says that it was too large, then comes a typed error."""

import json
from typing import Any

import pytest

from mustcall.core.origin import Wire
from mustcall.policy.facts.wording import Wording
from mustcall.testing import Call, Hang, Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from mustcall.testing.render import Stamp, stream_reply
from support.forcing import FAILED
from support.gated import Listener
from support.http import Response, post
from support.sending import with_steps

Json = dict[str, Any]

SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
BODIES: dict[str, Json] = {
    "chat": {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
    },
    "messages": {
        "model": "m",
        "max_tokens": 500,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"name": "f", "input_schema": SCHEMA}],
    },
    "responses": {
        "model": "m",
        "input": "hi",
        "tools": [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}],
    },
    "custom": {"model": "m", "input": "hi", "tools": [{"type": "custom", "name": "f"}]},
}
PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "custom": "/v1/responses",
}
HALVES = {"chat": '{"a":"wxyz', "messages": '{"a":"wxyz', "responses": '{"a":"wxyz', "custom": '{"input":"wxyz'}
WHOLE: dict[str, Json] = {
    "chat": {"a": "wxyz"},
    "messages": {"a": "wxyz"},
    "responses": {"a": "wxyz"},
    "custom": {"input": "wxyz"},
}
#: What only half a call has in it, on any wire.
HALF = "wxyz"

callers = pytest.mark.parametrize("caller", BODIES)
streaming = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
finishes = pytest.mark.parametrize("finish", ["length", "tool_calls", "stop"])


def ask(caller: str, *script: Turn, stream: bool, upstream_wire: str = "chat") -> tuple[Response, list[Json]]:
    """Post a request to a gateway before an upstream with this script; the answer, and each body it sent."""
    body = {**BODIES[caller], **({"stream": True} if stream else {})}
    with (
        ScriptedUpstream(script) as upstream,
        RunningGateway(f"{upstream_wire}={upstream.base_url}") as gateway,
    ):
        answer = post(gateway.url + PATHS[caller], body)
        return answer, [request.body for request in upstream.requests]


def events_of(answer: Response) -> list[Json]:
    """Read the data of a stream's events."""
    lines = answer.body.decode().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def on_chat(caller: str, *, stream: bool = False, limit: int = 500) -> Json:
    """A caller's request as a chat upstream gets it: a custom tool is a function of one text there."""
    text = {"type": "string", "description": "The whole input of the tool, as plain text."}
    whole = {"type": "object", "properties": {"input": text}, "required": ["input"], "additionalProperties": False}
    function: Json = {"name": "f", "parameters": whole if caller == "custom" else SCHEMA}
    if caller == "responses":  # `strict` was said, and has a place there
        function["strict"] = False
    body: Json = {**BODIES["chat"], "tools": [{"type": "function", "function": function}]}
    if caller == "messages":
        body["max_completion_tokens"] = limit
    if stream:
        body |= {"stream": True, **({} if caller == "chat" else {"stream_options": {"include_usage": True}})}
    return body


def assert_retried_once(wire: str, body: Json, sent: list[Json]) -> None:
    """The second request is the first with one user turn more, which says that the payload was too large."""
    assert sent == [body, with_steps(Wire(wire), body, Wording().truncated)]


@callers
@finishes
@streaming
def test_cut_twice_is_a_typed_error(caller: str, finish: str, stream: bool) -> None:
    """Rules 40, 123: whatever the finish says, half a call is none; nothing of it is in the error."""
    cut = Turn(Call("f", HALVES[caller]), finish=finish)
    answer, sent = ask(caller, cut, cut, stream=stream)
    assert_retried_once("chat", on_chat(caller, stream=stream), sent)
    assert answer.status == FAILED["responses" if caller == "custom" else caller]
    assert answer.headers["x-should-retry"] == "false"
    assert answer.headers["x-mustcall-verdicts"] == "truncated,truncated"
    assert answer.headers["x-mustcall-attempts"] == "2"
    error = answer.json["error"]
    assert error["message"].startswith("TruncatedReply: ")
    assert [attempt["verdict"] for attempt in error["details"]["attempts"]] == ["truncated"] * 2
    if caller != "messages":  # whose errors have no code
        assert error["code"] == "truncated"
    assert HALF.encode() not in answer.body


@callers
@streaming
def test_cut_once_is_mended_by_the_retry(caller: str, stream: bool) -> None:
    """Rule 123: the caller gets the whole call of the second attempt, and nothing of the first."""
    cut = Turn(Say("Let me see."), Call("f", HALVES[caller], id="call_first"), finish="length")
    whole = Turn(Call("f", WHOLE[caller], id="call_second"))
    answer, sent = ask(caller, cut, whole, stream=stream)
    assert_retried_once("chat", on_chat(caller, stream=stream), sent)
    assert answer.status == 200
    assert b"call_second" in answer.body
    assert b"call_first" not in answer.body
    if caller != "chat" or not stream:
        # Text that was streamed before the call stays; in one piece only the accepted attempt is there. On one wire
        # bytes that arrive together with the call wait with it.
        assert (b"Let" in answer.body) is stream


@callers
def test_cut_after_released_text_is_an_error_event(caller: str) -> None:
    """Rule 135: text has gone out, so the failure is an event of the stream, and no call is announced before it."""
    cut = Turn(Say("Hm"), Call("f", HALVES[caller]), finish="length")
    body = {**BODIES[caller], "stream": True}
    usage: Json = {} if caller == "chat" else {"stream_options": {"include_usage": True}}  # asked for on a crossing
    said = b"".join(stream_reply(cut, Wire.CHAT, {**body, **usage}, Stamp(0))[:2])
    assert b'"Hm"' in said
    with (
        ScriptedUpstream([Hang(cut, after=len(said)), cut]) as upstream,
        RunningGateway(f"chat={upstream.base_url}") as gateway,
        Listener(gateway.url, PATHS[caller].rpartition("/v1/")[2].partition("/")[0], body) as client,
    ):
        client.wait_for(b"Hm")
        upstream.release()
        answer = Response(client.response.status, {}, client.read_rest())
        sent = [request.body for request in upstream.requests]
        assert_retried_once("chat", on_chat(caller, stream=True), sent)
    assert answer.status == 200
    assert HALF.encode() not in answer.body
    events = events_of(answer)
    last = events[-1]
    match caller:
        case "chat":
            assert last["error"]["code"] == "truncated"
            assert not any(choice["delta"].get("tool_calls") for event in events[:-1] for choice in event["choices"])
        case "messages":
            assert (last["type"], last["error"]["message"][:16]) == ("error", "TruncatedReply: ")
            blocks = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
            assert blocks == ["text"]
        case _:  # Codex runs a call at `output_item.done`
            assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
            items = [event["item"]["type"] for event in events if event["type"].startswith("response.output_item.")]
            assert items == ["message", "message"]
            assert [item["type"] for item in last["response"]["output"]] == ["message"]


@pytest.mark.parametrize("wire", ["chat", "messages", "responses"])
@streaming
def test_cut_on_the_same_wire(wire: str, stream: bool) -> None:
    """Rules 40, 112: bytes that would be forwarded as they are wait for the verdict where they hold a call."""
    cut = Turn(Call("f", HALVES[wire]), finish="length")
    answer, sent = ask(wire, cut, cut, stream=stream, upstream_wire=wire)
    assert_retried_once(wire, {**BODIES[wire], **({"stream": True} if stream else {})}, sent)
    assert answer.status == FAILED[wire]
    assert answer.json["error"]["message"].startswith("TruncatedReply: ")
    assert HALF.encode() not in answer.body


@streaming
def test_usage_at_the_limit_is_a_cut(stream: bool) -> None:
    """Rule 123: a call that parses is not trusted when every token allowed was used."""
    capped = {**BODIES["messages"], "max_tokens": 12, **({"stream": True} if stream else {})}
    turn = Turn(Call("f", {"a": "wxyz"}))  # the scripted usage is 12 output tokens
    with ScriptedUpstream(default=turn) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        answer = post(gateway.url + "/v1/messages", capped)
        fine = post(gateway.url + "/v1/messages", {**capped, "max_tokens": 13})
        sent = [request.body for request in upstream.requests]
    assert_retried_once("chat", on_chat("messages", stream=stream, limit=12), sent[:2])
    assert sent[2:] == [on_chat("messages", stream=stream, limit=13)]
    assert answer.status == 502
    assert answer.headers["x-mustcall-verdicts"] == "truncated,truncated"
    assert (fine.status, b"wxyz" in fine.body or b"tool_use" in fine.body) == (200, True)
