"""A call that the token limit fell into: the caller is told of the limit, and is given no call it could run."""

import json
from typing import Any

import pytest

from mustcall.testing import Call, Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from support.http import Response, post

Json = dict[str, Any]

SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
MESSAGES: Json = {
    "model": "m",
    "max_tokens": 5,
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"name": "f", "input_schema": SCHEMA}],
}
RESPONSES: Json = {"model": "m", "input": "hi", "tools": [{"type": "custom", "name": "f"}]}


def ask(path: str, body: Json, turn: Turn) -> Response:
    """Post a request to a gateway before a chat upstream that answers with this turn."""
    with ScriptedUpstream([turn]) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        answer = post(gateway.url + path, body)
        assert len(upstream.requests) == 1
    assert answer.status == 200
    return answer


def events_of(answer: Response) -> list[Json]:
    """Read the data of a stream's events."""
    lines = answer.body.decode().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def test_messages_whole() -> None:
    """The cut call is left out; the stop reason tells."""
    answer = ask("/v1/messages", MESSAGES, Turn(Call("f", '{"a":"abc'), finish="length")).json
    assert (answer["stop_reason"], answer["content"]) == ("max_tokens", [])


def test_messages_stream() -> None:
    """What was streamed of the call is closed as Anthropic closes it: no error event, and the stop reason tells."""
    turn = Turn(Call("f", '{"a":"abc'), finish="length")
    events = events_of(ask("/v1/messages", {**MESSAGES, "stream": True}, turn))
    kinds = [event["type"] for event in events if event["type"] not in ("content_block_delta", "ping")]
    assert kinds == ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]
    pieces = [event["delta"]["partial_json"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(pieces) == '{"a":"abc'
    assert events[-2]["delta"]["stop_reason"] == "max_tokens"


def test_messages_stream_broken_otherwise() -> None:
    """A broken call without the limit as its reason stays an error."""
    turn = Turn(Call("f", '{"a":"abc'), finish="tool_calls")
    events = events_of(ask("/v1/messages", {**MESSAGES, "stream": True}, turn))
    assert events[-1]["type"] == "error"


@pytest.mark.parametrize("before", [(), (Say("Hm"),)], ids=["alone", "after text"])
def test_responses_custom_whole(before: tuple[Say, ...]) -> None:
    """The cut custom call is left out; the status tells."""
    turn = Turn(*before, Call("f", '{"input":"abc'), finish="length")
    answer = ask("/v1/responses", RESPONSES, turn).json
    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["type"] for item in answer["output"]] == ["message"] * len(before)


@pytest.mark.parametrize("before", [(), (Say("Hm"),)], ids=["alone", "after text"])
def test_responses_custom_stream(before: tuple[Say, ...]) -> None:
    """A cut custom call is never announced: Codex would run it at `output_item.done`."""
    turn = Turn(*before, Call("f", '{"input":"abc'), finish="length")
    answer = ask("/v1/responses", {**RESPONSES, "stream": True}, turn)
    events = events_of(answer)
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["status"] == "incomplete"
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["message"] * len(before)
    items = [event["item"]["type"] for event in events if event["type"].startswith("response.output_item.")]
    assert items == ["message"] * 2 * len(before)
    assert b"custom_tool_call" not in answer.body


def test_responses_stream_of_a_function_call() -> None:
    """Codex runs a call at `output_item.done`: half a call comes there as incomplete, in an incomplete response."""
    tools = [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}]
    turn = Turn(Call("f", '{"a":"abc'), finish="length")
    events = events_of(ask("/v1/responses", {**RESPONSES, "tools": tools, "stream": True}, turn))
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [(item["type"], item["status"]) for item in done] == [("function_call", "incomplete")]
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
