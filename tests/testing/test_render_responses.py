"""Responses bodies and events, read by the official SDK with strict validation and compared event by event."""

from typing import Any

import msgspec
import pytest
from openai import APIStatusError, OpenAI

from mustcall.core.origin import Wire
from mustcall.testing import Call, Fail, Refuse, Say, ScriptedUpstream, StreamError, Think, Turn, Usage
from mustcall.testing.render import Stamp, build_reply, stream_reply

TURNS = {
    "text": Turn(Say("Good  morning,\nworld. ")),
    "one call": Turn(Call("f", {"city": "Paris", "days": 3})),
    "two calls": Turn(Call("f", {}, id="call_a"), Call("g", '{"b": [1, 2]}')),
    "call and text": Turn(Say("Let me look."), Call("f", {"a": 1})),
    "reasoning and call": Turn(Think("The user wants f.", encrypted="b3BhcXVl"), Call("f", {"a": 1})),
    "full reasoning": Turn(Think("All of it.", shown="full"), Say("a")),
    "refusal": Turn(Refuse("I will not do that.")),
    "length": Turn(Say("Once upon"), finish="length"),
    "filtered": Turn(Say("Well"), finish="content_filter"),
}


def connect(upstream: ScriptedUpstream) -> OpenAI:
    """Return a client that refuses bodies its models do not describe."""
    return OpenAI(base_url=upstream.base_url, api_key="key", max_retries=0, _strict_response_validation=True)


def decode(events: list[bytes]) -> list[Any]:
    """Return the data of events after checking their names and numbers."""
    pairs = [event.decode().strip().split("\ndata: ") for event in events]
    data = [msgspec.json.decode(text) for _, text in pairs]
    assert [name for name, _ in pairs] == [f"event: {one['type']}" for one in data]
    assert [one["sequence_number"] for one in data] == list(range(len(data)))
    return data


def without_numbers(data: list[Any]) -> list[Any]:
    """Return events without their numbers."""
    return [{key: value for key, value in one.items() if key != "sequence_number"} for one in data]


@pytest.mark.parametrize("name", TURNS)
@pytest.mark.parametrize("streamed", [False, True])
def test_sdk_reads_every_turn(name: str, streamed: bool) -> None:
    """The SDK sees every item, the status and the usage as scripted, streamed or not."""
    turn = TURNS[name]
    with ScriptedUpstream([turn]) as upstream, connect(upstream) as client:
        if streamed:
            with client.responses.stream(model="m", input="hi") as stream:
                last: Any = list(stream)[-1]
                response: Any = last.response
        else:
            response = client.responses.create(model="m", input="hi")
    expected = build_reply(turn, Wire.RESPONSES, {"model": "m"}, Stamp(0))
    items = [item.model_dump(exclude_unset=True) for item in response.output]
    wanted = expected["output"]
    assert [item["type"] for item in items] == [item["type"] for item in wanted]
    for item, want in zip(items, wanted, strict=True):
        assert {key: item[key] for key in want if key not in ("content", "summary")} == {
            key: value for key, value in want.items() if key not in ("content", "summary")
        }
    assert response.output_text == "".join(part.text for part in turn.parts if isinstance(part, Say))
    assert response.status == expected["status"]
    assert response.usage.input_tokens == 25  # pyrefly: ignore[missing-attribute]
    assert response.usage.output_tokens == 12  # pyrefly: ignore[missing-attribute]


def test_text_stream_is_the_canonical_sequence() -> None:
    """Created, in progress, the item and its part opened, deltas, all of it closed, completed."""
    data = decode(stream_reply(Turn(Say("Yes sir")), Wire.RESPONSES, {"model": "m"}, Stamp(3)))
    part: dict[str, Any] = {"type": "output_text", "text": "Yes sir", "annotations": [], "logprobs": []}
    item = {"id": "msg_scripted_0003_0", "type": "message", "status": "completed", "role": "assistant"}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    assert [one["type"] for one in data[:2]] == ["response.created", "response.in_progress"]
    assert data[0]["response"]["status"] == "in_progress"
    assert data[0]["response"]["output"] == []
    assert data[0]["response"]["usage"] is None
    assert without_numbers(data[2:-1]) == [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": item | {"status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", "part": part | {"text": ""}} | place,
        {"type": "response.output_text.delta", "delta": "Yes", "logprobs": []} | place,
        {"type": "response.output_text.delta", "delta": " sir", "logprobs": []} | place,
        {"type": "response.output_text.done", "text": "Yes sir", "logprobs": []} | place,
        {"type": "response.content_part.done", "part": part} | place,
        {"type": "response.output_item.done", "output_index": 0, "item": item | {"content": [part]}},
    ]
    assert data[-1]["type"] == "response.completed"
    assert data[-1]["response"] == build_reply(Turn(Say("Yes sir")), Wire.RESPONSES, {"model": "m"}, Stamp(3))


def test_reasoning_and_call_stream_is_the_canonical_sequence() -> None:
    """A reasoning item with its summary part, then a function call with its arguments."""
    request = {"model": "m", "include": ["reasoning.encrypted_content"]}
    data = decode(stream_reply(Turn(Think("Hm."), Call("f", {"a": 1})), Wire.RESPONSES, request, Stamp(3)))
    assert [one["type"] for one in data] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    reasoning, call = data[-1]["response"]["output"]
    assert len(reasoning["encrypted_content"]) > 20
    assert reasoning["summary"] == [{"type": "summary_text", "text": "Hm."}]
    assert call == {
        "id": "fc_scripted_0003_1",
        "type": "function_call",
        "status": "completed",
        "call_id": "call_scripted_0003_1",
        "name": "f",
        "arguments": '{"a":1}',
    }
    assert data[7]["item"] == reasoning
    assert data[8]["item"] == call | {"status": "in_progress", "arguments": ""}
    assert data[10]["arguments"] == '{"a":1}'
    assert data[11]["item"] == call


def test_incomplete_replies_say_why() -> None:
    """A length stop ends in `response.incomplete`, its last item incomplete."""
    data = decode(stream_reply(Turn(Call("f", '{"a'), finish="length"), Wire.RESPONSES, {}, Stamp(0)))
    assert data[-1]["type"] == "response.incomplete"
    response = data[-1]["response"]
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][0]["status"] == "incomplete"
    assert data[-2]["item"]["status"] == "incomplete"


def test_custom_tools_and_namespaces_are_echoed() -> None:
    """A custom tool is called as such; a namespaced one carries its namespace."""
    request: dict[str, Any] = {
        "tools": [
            {"type": "custom", "name": "patch"},
            {
                "type": "namespace",
                "name": "crm",
                "description": "d",
                "tools": [{"type": "function", "name": "find", "parameters": {"type": "object"}}],
            },
        ]
    }
    turn = Turn(Call("patch", "*** Begin"), Call("find", {"q": 1}), Call("other", {}, namespace="given"))
    patch, find, other = build_reply(turn, Wire.RESPONSES, request, Stamp(0))["output"]
    assert (patch["type"], patch["input"]) == ("custom_tool_call", "*** Begin")
    assert (find["type"], find["namespace"]) == ("function_call", "crm")
    assert other["namespace"] == "given"
    kinds = [one["type"] for one in decode(stream_reply(turn, Wire.RESPONSES, request, Stamp(0)))]
    assert "response.custom_tool_call_input.delta" in kinds
    assert "response.custom_tool_call_input.done" in kinds


def test_settings_are_echoed_and_usage_is_detailed() -> None:
    """The response repeats the request's settings; usage tells cached, written and reasoning tokens."""
    usage = Usage(input_tokens=100, output_tokens=9, cached_tokens=60, cache_write_tokens=5, reasoning_tokens=4)
    request = {"model": "m", "tool_choice": "required", "metadata": {"k": "v"}, "store": False, "temperature": 0}
    body = build_reply(Turn(Say("a"), usage=usage, extra={"x_vendor": 1}), Wire.RESPONSES, request, Stamp(0))
    assert {key: body[key] for key in request} == request
    assert body["x_vendor"] == 1
    assert body["usage"] == {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 5},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 109,
    }


def test_errors_have_openai_shape() -> None:
    """A failure is an error object with param and code."""
    fail = Fail(404, "no such model", code="model_not_found", param="model")
    with ScriptedUpstream([fail]) as upstream, connect(upstream) as client, pytest.raises(APIStatusError) as caught:
        client.responses.create(model="m", input="hi")
    assert caught.value.status_code == 404
    assert caught.value.body == {
        "message": "no such model",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }


@pytest.mark.parametrize(("form", "kind"), [("failed", "response.failed"), ("error", "error")])
def test_stream_error_in_both_forms(form: Any, kind: str) -> None:
    """A broken stream ends in `response.failed` or `error`, with the message, numbered on."""
    error = StreamError(Turn(Say("one two")), after=3, message="boom", form=form)
    with ScriptedUpstream([error]) as upstream, connect(upstream) as client:
        events: list[Any] = list(client.responses.create(model="m", input="hi", stream=True))
    last = events[-1]
    assert last.type == kind
    assert (last.response.error.message if form == "failed" else last.message) == "boom"
    assert [event.sequence_number for event in events] == [0, 1, 2, 3]
