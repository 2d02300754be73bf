"""Replies: what an upstream said is understood, and a caller gets a whole response object."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.errors import ErrorInfo, UpstreamError, UpstreamGarbage, UpstreamRejected
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import (
    CallKind,
    Image,
    OpaqueState,
    ProviderItem,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Unknown,
)
from mustcall.core.reply import FinishReason, Reply, Usage
from mustcall.wire.codec import Provenance, ReplyStamp
from mustcall.wire.crossing.sealing import seal, unseal
from mustcall.wire.responses import ResponsesCodec

REPLIES: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "replies.json").read_text())
REQUESTS: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "requests.json").read_text())
STAMP = ReplyStamp(token="tok", created=1_760_000_001)
FROM_UP = Provenance(issuer="up", token="t")


def reply(*parts: Any, finish: FinishReason = FinishReason.STOP, usage: Usage | None = None) -> Reply:
    """Return a reply of another wire."""
    return Reply(id="chatcmpl-1", model="m-1", parts=parts, finish=finish, usage=usage)


@pytest.mark.parametrize("name", REPLIES)
def test_identity(name: str, codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """An untouched reply goes out JSON-equal to what came in, unknown fields included."""
    caller = codec.decode_request(body(REQUESTS["plain string"]))
    read = codec.decode_reply(body(REPLIES[name]), FROM_UP)
    assert codec.encode_reply(read, caller, STAMP, AdaptationLog()) == REPLIES[name]


def test_text_and_usage(codec: ResponsesCodec, body: Callable[[Any], bytes], strip: Callable[[Any], Any]) -> None:
    """Text, identity and token counts; cached and written tokens are part of the input."""
    assert strip(codec.decode_reply(body(REPLIES["text"]), FROM_UP)) == Reply(
        id="resp_1",
        model="gpt-5.5-2026",
        parts=(Text(text="Hello world"),),
        finish=FinishReason.STOP,
        reported_finish="completed",
        usage=Usage(input_tokens=20, output_tokens=5, cached_tokens=8, cache_write_tokens=2, reasoning_tokens=3),
    )


def test_reasoning_and_calls(codec: ResponsesCodec, body: Callable[[Any], bytes], strip: Callable[[Any], Any]) -> None:
    """Reasoning state is tagged with its issuer; calls keep their namespace and item ids."""
    read = strip(codec.decode_reply(body(REPLIES["reasoning and two calls"]), FROM_UP))
    assert read.parts == (
        Reasoning(summary=("First.", "Second."), state=OpaqueState(Wire.RESPONSES, "enc", "up"), id="rs_1"),
        ToolCall(id="call_1", name="get_weather", arguments_json='{"city":"Oslo"}', item_id="fc_1"),
        ToolCall(id="call_2", name="spawn_agent", arguments_json="{}", namespace="multi_agent_v1", item_id="fc_2"),
    )
    assert read.finish is FinishReason.TOOL_CALLS


@pytest.mark.parametrize(
    ("name", "finish", "reported"),
    [
        ("custom call after commentary", FinishReason.TOOL_CALLS, "completed"),
        ("refusal", FinishReason.REFUSAL, "completed"),
        ("length", FinishReason.LENGTH, "max_output_tokens"),
        ("filtered", FinishReason.CONTENT_FILTER, "content_filter"),
    ],
)
def test_finish(
    name: str, finish: FinishReason, reported: str, codec: ResponsesCodec, body: Callable[[Any], bytes]
) -> None:
    """Status and incomplete details say why the reply ended."""
    read = codec.decode_reply(body(REPLIES[name]), FROM_UP)
    assert (read.finish, read.reported_finish) == (finish, reported)


def test_contents_and_provider_items(
    codec: ResponsesCodec, body: Callable[[Any], bytes], strip: Callable[[Any], Any]
) -> None:
    """Each content is a part of its own; what the provider ran is carried unread."""
    read = strip(codec.decode_reply(body(REPLIES["two contents and a search"]), FROM_UP))
    search = REPLIES["two contents and a search"]["output"][0]
    assert read.parts == (
        ProviderItem(wire=Wire.RESPONSES, type="web_search_call", value=search),
        Text(text="One"),
        Text(text="Two"),
    )


def test_tolerated_lies(codec: ResponsesCodec, body: Callable[[Any], bytes], strip: Callable[[Any], Any]) -> None:
    """Arguments as an object or null, a missing call id, model, id or status do not lose the reply."""
    output = [
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": {"a": 1}},
        {"type": "function_call", "name": "g", "arguments": None},
        {"type": "message", "content": None},
    ]
    read = strip(codec.decode_reply(body({"output": output, "usage": {"input_tokens": None}}), FROM_UP))
    assert read == Reply(
        id="resp_t",
        model="",
        parts=(
            ToolCall(id="c", name="f", arguments_json='{"a":1}', item_id="fc_1"),
            ToolCall(id="call_t_1", name="g", arguments_json=""),
        ),
        finish=FinishReason.TOOL_CALLS,
        usage=Usage(),
    )


@pytest.mark.parametrize(
    ("value", "status", "code"),
    [
        (
            {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "Slow."}},
            429,
            "rate_limit_exceeded",
        ),
        ({"status": "failed", "error": {"code": "server_error", "message": "Oops."}}, 502, "server_error"),
        ({"error": {"message": "No.", "type": "invalid_request_error", "code": None}}, 502, "upstream_rejected"),
        ({"status": "failed", "error": None, "output": []}, 502, "upstream_rejected"),
    ],
)
def test_failures(value: Any, status: int, code: str, codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """A failed response or an error in a 200 is the upstream's rejection, in its words."""
    with pytest.raises(UpstreamRejected) as caught:
        codec.decode_reply(body(value), FROM_UP)
    assert (caught.value.error.status, caught.value.error.code) == (status, code)


GARBAGE: list[Any] = [
    [],
    {},
    {"output": None},
    {"output": ["x"]},
    {"output": [{}]},
    {"output": [{"type": "message", "content": [{"type": "output_text", "text": None}]}]},
    {"output": [{"type": "function_call", "name": None, "arguments": ""}]},
]


@pytest.mark.parametrize("value", GARBAGE)
def test_garbage(value: Any, codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """What is no response is the upstream's garbage."""
    with pytest.raises(UpstreamGarbage):
        codec.decode_reply(body(value), FROM_UP)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["type", "content", "summary", "encrypted_content", "call_id", "id", "name", "arguments", "text"]
)
WORDS = st.sampled_from(["message", "reasoning", "function_call", "custom_tool_call", "output_text", "refusal"])
ITEM = st.dictionaries(
    KEYS, JSON | WORDS | st.lists(st.dictionaries(KEYS, JSON | WORDS, max_size=4), max_size=2), max_size=6
)
RESPONSE = st.fixed_dictionaries(
    {},
    optional={
        "output": JSON | st.lists(ITEM, max_size=3),
        "status": JSON | st.sampled_from(["completed", "incomplete", "failed"]),
        "usage": JSON | st.dictionaries(st.sampled_from(["input_tokens", "input_tokens_details"]), JSON),
        "incomplete_details": JSON,
        "error": JSON,
        "created_at": JSON,
        "id": JSON,
        "model": JSON,
    },
)


@given(RESPONSE.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40))
def test_hostile_replies(raw: bytes) -> None:
    """Any bytes are a reply or raise an error of the upstream's family."""
    try:
        read = ResponsesCodec().decode_reply(raw, FROM_UP)
    except UpstreamError as error:
        assert error.message  # noqa: PT017  either way is right, no other exception is
    else:
        assert isinstance(read.id, str)


# --- for the caller -----------------------------------------------------------------------------------------------


def encode(value: Reply, codec: ResponsesCodec, asked: str = "plain string") -> tuple[Any, AdaptationLog]:
    """Return the response object for a caller, checked against the SDK's own models."""
    log = AdaptationLog()
    caller = codec.decode_request(json.dumps(REQUESTS[asked]).encode())
    written = codec.encode_reply(value, caller, STAMP, log)
    Response.model_validate(written)
    return written, log


def test_whole_response_object(codec: ResponsesCodec) -> None:
    """wires.md 2: a full response object, with the caller's settings repeated and usage in detail."""
    usage = Usage(input_tokens=10, output_tokens=4, cached_tokens=3, cache_write_tokens=1, reasoning_tokens=2)
    written, log = encode(reply(Text(text="Hi"), usage=usage), codec, "sdk with instructions and settings")
    tools = REQUESTS["sdk with instructions and settings"]["tools"]
    assert written == {
        "id": "resp_tok",
        "object": "response",
        "created_at": 1_760_000_001,
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": "Be brief.",
        "max_output_tokens": 500,
        "max_tool_calls": None,
        "model": "m-1",
        "output": [
            {
                "id": "msg_tok_0",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}],
            }
        ],
        "parallel_tool_calls": False,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "flex",
        "store": False,
        "temperature": 0.2,
        "text": {"format": {"type": "text"}},
        "tool_choice": "required",
        "tools": tools,
        "top_logprobs": 0,
        "top_p": 0.9,
        "truncation": "auto",
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1},
            "output_tokens": 4,
            "output_tokens_details": {"reasoning_tokens": 2},
            "total_tokens": 14,
        },
        "user": "u-1",
        "metadata": {"run": "7"},
    }
    assert log.entries == ()


def test_calls_come_back_in_their_own_kind(codec: ResponsesCodec) -> None:
    """wires.md 1.9: namespaced calls carry `namespace`, custom calls are `custom_tool_call` with `input`."""
    calls = (
        ToolCall(id="c1", name="spawn_agent", arguments_json="{}", namespace="multi_agent_v1"),
        ToolCall(id="c2", name="apply_patch", arguments_json="*** x", kind=CallKind.CUSTOM),
        ToolCall(id="c3", name="exec_command", arguments_json='{"cmd":"ls"}'),
    )
    written, _ = encode(reply(*calls, finish=FinishReason.TOOL_CALLS), codec, "codex first turn")
    assert written["output"] == [
        {
            "id": "fc_tok_0",
            "type": "function_call",
            "status": "completed",
            "call_id": "c1",
            "name": "spawn_agent",
            "arguments": "{}",
            "namespace": "multi_agent_v1",
        },
        {
            "id": "ctc_tok_1",
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": "c2",
            "name": "apply_patch",
            "input": "*** x",
        },
        {
            "id": "fc_tok_2",
            "type": "function_call",
            "status": "completed",
            "call_id": "c3",
            "name": "exec_command",
            "arguments": '{"cmd":"ls"}',
        },
    ]


def test_thinking_of_another_wire(codec: ResponsesCodec) -> None:
    """Thinking text is shown as a summary, which clients render, and its state is sealed into the native slot."""
    state = OpaqueState(Wire.MESSAGES, {"signature": "sig"}, "claude")
    written, log = encode(reply(Reasoning(text="Hm.", state=state), Text(text="Yes")), codec)
    item = written["output"][0]
    assert item["summary"] == [{"type": "summary_text", "text": "Hm."}]
    assert unseal(item["encrypted_content"]) == state
    assert "content" not in item
    assert [entry.kind for entry in log.entries] == [AdaptationKind.PART_RESHAPED]


def test_native_state_goes_natively(codec: ResponsesCodec) -> None:
    """State of this wire needs no seal, and native reasoning text stays what it is."""
    thought = Reasoning(
        text="Hm.",
        summary=("S",),
        state=OpaqueState(Wire.RESPONSES, "enc", "up"),
        id="rs_9",
        origin=Origin(Wire.RESPONSES),
    )
    written, log = encode(reply(thought), codec)
    assert written["output"] == [
        {
            "id": "rs_9",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "S"}],
            "content": [{"type": "reasoning_text", "text": "Hm."}],
            "encrypted_content": "enc",
        }
    ]
    assert log.entries == ()


def test_sealed_state_survives_the_client(codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """What the client hands back opens to the state that was sealed."""
    state = OpaqueState(Wire.CHAT, {"field": "reasoning_content"}, "deepseek")
    written, _ = encode(reply(Reasoning(text="Hm.", state=state)), codec)
    assert written["output"][0]["encrypted_content"] == seal(state)
    request = codec.decode_request(body({"model": "m", "input": written["output"]}))
    thought = request.messages[0].parts[0]
    assert isinstance(thought, Reasoning)
    assert (thought.state, thought.summary) == (state, ("Hm.",))


@pytest.mark.parametrize(
    ("finish", "reason"),
    [(FinishReason.LENGTH, "max_output_tokens"), (FinishReason.CONTENT_FILTER, "content_filter")],
)
def test_incomplete(finish: FinishReason, reason: str, codec: ResponsesCodec) -> None:
    """A reply that was cut is incomplete, and so is its last item."""
    written, _ = encode(reply(Text(text="A"), Text(text="B"), finish=finish), codec)
    assert (written["status"], written["incomplete_details"]) == ("incomplete", {"reason": reason})
    assert [item["status"] for item in written["output"]] == ["completed", "incomplete"]


def test_refusals(codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """A refusal is told in refusal content; one without a refusal part as a filter's stop, with no invented words."""
    written, log = encode(reply(Refusal(text="No."), finish=FinishReason.REFUSAL), codec)
    assert written["output"][0]["content"] == [{"type": "refusal", "refusal": "No."}]
    assert log.entries == ()
    written, log = encode(reply(Text(text="I"), finish=FinishReason.REFUSAL), codec)
    assert [item["content"][0]["text"] for item in written["output"]] == ["I"]
    assert written["incomplete_details"] == {"reason": "content_filter"}
    assert codec.decode_reply(body(written), FROM_UP).finish is FinishReason.CONTENT_FILTER


def test_parts_without_a_form(codec: ResponsesCodec) -> None:
    """Provider items of another wire and media are left out of the reply, with a note each."""
    parts = (
        ProviderItem(wire=Wire.MESSAGES, type="web_search_tool_result", value={}),
        Image(data="x"),
        Unknown(wire=Wire.CHAT, type="odd", value={}),
        Text(text="Hi"),
    )
    written, log = encode(reply(*parts), codec)
    assert [item["id"] for item in written["output"]] == ["msg_tok_3"]
    assert [(entry.kind, entry.subject) for entry in log.entries] == [
        (AdaptationKind.PART_DROPPED, "web_search_tool_result"),
        (AdaptationKind.PART_DROPPED, "image"),
        (AdaptationKind.PART_DROPPED, "odd"),
    ]


@pytest.mark.parametrize("name", REPLIES)
@pytest.mark.parametrize("asked", REQUESTS)
def test_changed_reply_keeps_its_meaning(
    name: str, asked: str, codec: ResponsesCodec, body: Callable[[Any], bytes], strip: Callable[[Any], Any]
) -> None:
    """A reply whose own form was dropped is written anew for any caller and reads the same."""
    read = codec.decode_reply(body(REPLIES[name]), FROM_UP)
    parts = tuple(part.evolve() for part in read.parts)
    written = codec.encode_reply(
        read.evolve(parts=parts), codec.decode_request(body(REQUESTS[asked])), STAMP, AdaptationLog()
    )
    again = codec.decode_reply(body(written), FROM_UP)
    assert strip(again.parts) == strip(read.parts)
    assert (again.id, again.finish, strip(again.usage)) == (read.id, read.finish, strip(read.usage))


# --- errors -------------------------------------------------------------------------------------------------------


def test_error_body(codec: ResponsesCodec) -> None:
    """Errors have OpenAI's shape, our code and the request id."""
    error = ErrorInfo(message="No such model.", status=404, code="model_not_found", param="model")
    written = codec.encode_error(error, "req_1")
    assert written == {
        "error": {
            "message": "No such model.",
            "type": "not_found_error",
            "param": "model",
            "code": "model_not_found",
            "request_id": "req_1",
        }
    }
    assert codec.decode_error(404, json.dumps(written).encode()).code == "model_not_found"


@given(
    st.integers(400, 599),
    st.binary(max_size=50) | st.text(max_size=20).map(lambda text: json.dumps({"error": text}).encode()),
)
def test_any_error_body_is_read(status: int, raw: bytes) -> None:
    """Whatever the bytes, an error value comes out."""
    error = ResponsesCodec().decode_error(status, raw)
    assert error.status == status
    assert error.message


def test_stream_error_event(codec: ResponsesCodec) -> None:
    """A forwarded stream ends with an `error` event of the wire's own shape."""
    error = ErrorInfo(message="cut", status=502, code="upstream_unavailable")
    head, data, *_ = codec.encode_stream_error(error, "req_1").decode().split("\n")
    assert head == "event: error"
    assert json.loads(data.removeprefix("data: ")) == {
        "type": "error",
        "sequence_number": 0,
        "code": "upstream_unavailable",
        "message": "cut",
        "param": None,
        "request_id": "req_1",
    }
