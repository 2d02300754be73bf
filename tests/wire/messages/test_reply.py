"""Whole replies, read from an upstream and written for a caller."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import UpstreamGarbage, UpstreamRejected
from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import (
    CallKind,
    Image,
    OpaqueState,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Unknown,
)
from mustcall.core.reply import FinishReason, Reply, Usage
from mustcall.core.request import Request
from mustcall.core.tools import Tool
from mustcall.wire.codec import Provenance, ReplyStamp
from mustcall.wire.crossing.sealing import unseal
from mustcall.wire.messages import MessagesCodec

UP = Provenance(issuer="up", token="tok")
STAMP = ReplyStamp(token="abc", created=1)
NEEDS: dict[str, Any] = {"type": "object", "properties": {"x": {}}, "required": ["x"]}
CALLER = Request(
    model="asked",
    messages=(Message(role=Role.USER, parts=(Text(text="Hi"),)),),
    tools=(Tool(name="free", parameters={"type": "object", "properties": {}}), Tool(name="strict", parameters=NEEDS)),
)

Shapes = dict[str, dict[str, Any]]


def reply_of(*parts: Part, finish: FinishReason = FinishReason.STOP, **fields: Any) -> Reply:
    """A reply of another wire."""
    return Reply(id="chatcmpl-1", model="gpt", parts=parts, finish=finish, **fields)


def encode(reply: Reply) -> tuple[dict[str, Any], list[str]]:
    """Encode for the caller and return the body and what was noted."""
    log = AdaptationLog()
    body = MessagesCodec().encode_reply(reply, CALLER, STAMP, log)
    return body, [f"{entry.kind} {entry.subject}" for entry in log.entries]


def test_untouched_reply_goes_out_as_it_came(codec: MessagesCodec, reply_shape: dict[str, Any]) -> None:
    """Every recorded reply survives decode and encode unchanged."""
    reply = codec.decode_reply(json.dumps(reply_shape).encode(), UP)
    assert encode(reply) == (reply_shape, [])


def test_changed_reply_is_rebuilt_equal(codec: MessagesCodec, reply_shape: dict[str, Any]) -> None:
    """A reply changed in one field is rebuilt from its parts, unknown fields included."""
    reply = codec.decode_reply(json.dumps(reply_shape).encode(), UP)
    body, _ = encode(reply.evolve(model="other"))
    expected = {**reply_shape, "model": "other"}
    if expected["stop_reason"] == "something_new":
        expected["stop_reason"] = "end_turn"
    assert body == expected


def test_rebuilt_parts_are_equal(codec: MessagesCodec, reply_shape: dict[str, Any]) -> None:
    """Parts written from their canonical fields equal the blocks they were read from."""
    reply = codec.decode_reply(json.dumps(reply_shape).encode(), UP)
    body, _ = encode(reply.evolve(parts=tuple(part.evolve() for part in reply.parts)))
    assert body["content"] == reply_shape["content"]


def test_finish_reasons(codec: MessagesCodec, reply_shapes: Shapes) -> None:
    """Each stop reason has its canonical word; the upstream's own is kept beside it."""
    read = {name: codec.decode_reply(json.dumps(shape).encode(), UP) for name, shape in reply_shapes.items()}
    assert {name: reply.finish for name, reply in read.items()} == {
        "text": FinishReason.STOP,
        "stop_sequence": FinishReason.STOP,
        "one_call": FinishReason.TOOL_CALLS,
        "parallel_calls": FinishReason.TOOL_CALLS,
        "thinking_call": FinishReason.TOOL_CALLS,
        "omitted_thinking": FinishReason.STOP,
        "server_tool": FinishReason.PAUSE,
        "length": FinishReason.LENGTH,
        "context_full": FinishReason.LENGTH,
        "refusal": FinishReason.REFUSAL,
        "empty": FinishReason.STOP,
        "unknown_block": FinishReason.UNKNOWN,
    }
    assert read["context_full"].reported_finish == "model_context_window_exceeded"
    assert read["stop_sequence"].stop_sequence == "END"


CONTRADICTIONS: list[tuple[Any, ...]] = [
    ("tool_use", [{"type": "text", "text": "a"}], FinishReason.STOP),
    ("end_turn", [{"type": "tool_use", "id": "a", "name": "f", "input": {}}], FinishReason.TOOL_CALLS),
    (None, [{"type": "tool_use", "id": "a", "name": "f", "input": {}}], FinishReason.TOOL_CALLS),
]


@pytest.mark.parametrize(("reported", "content", "finish"), CONTRADICTIONS)
def test_finish_is_derived_from_content(
    codec: MessagesCodec, reported: Any, content: Any, finish: FinishReason
) -> None:
    """Rules 36 and 127: what the content shows wins over what was reported."""
    body = json.dumps({"content": content, "stop_reason": reported}).encode()
    assert codec.decode_reply(body, UP).finish is finish


def test_usage_includes_cached_tokens(codec: MessagesCodec, reply_shapes: Shapes) -> None:
    """Input tokens are the sum of fresh, cached and newly cached ones; thinking is told apart."""
    usage = codec.decode_reply(json.dumps(reply_shapes["one_call"]).encode(), UP).usage
    assert usage is not None
    counts = (usage.input_tokens, usage.cached_tokens, usage.cache_write_tokens, usage.output_tokens)
    assert counts == (20, 7, 3, 5)
    usage = codec.decode_reply(json.dumps(reply_shapes["thinking_call"]).encode(), UP).usage
    assert usage is not None
    assert usage.reasoning_tokens == 30


def test_state_is_tagged_with_its_issuer(codec: MessagesCodec, reply_shapes: Shapes) -> None:
    """Rule 124: signatures become state of this upstream, the whole block inside."""
    parts = codec.decode_reply(json.dumps(reply_shapes["thinking_call"]).encode(), UP).parts
    states = [part.state for part in parts if isinstance(part, Reasoning)]
    assert states == [OpaqueState(Wire.MESSAGES, block, "up") for block in reply_shapes["thinking_call"]["content"][:2]]


def test_missing_envelope_fields_are_made_up(codec: MessagesCodec) -> None:
    """A clone that leaves out ids, model and usage still gives a reply, with deterministic ids."""
    body = b'{"content":[{"type":"tool_use","name":"f","input":null}],"usage":[]}'
    reply = codec.decode_reply(body, UP)
    assert (reply.id, reply.model, reply.usage) == ("msg_tok", "", None)
    assert [(call.id, call.arguments_json) for call in reply.calls] == [("toolu_tok_0", "")]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"content":5}',
        b'{"content":[5]}',
        b'{"content":[{"type":"text"}]}',
        b'{"content":[{"type":"tool_use","id":"a"}]}',
        b'{"content":[],"stop_reason":5}',
        b'{"content":[]',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_garbage_is_named(codec: MessagesCodec, body: bytes) -> None:
    """What is no reply raises UpstreamGarbage and nothing else."""
    with pytest.raises(UpstreamGarbage):
        codec.decode_reply(body, UP)


def test_error_in_a_200(codec: MessagesCodec) -> None:
    """An error body under status 200 is the upstream's refusal, with the status its class word has."""
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    with pytest.raises(UpstreamRejected) as caught:
        codec.decode_reply(body, UP)
    assert (caught.value.info().status, caught.value.info().message) == (529, "Overloaded")


def test_foreign_reply_in_full() -> None:
    """A reply of another wire gets a Messages envelope: id, role, blocks, stop reason, usage."""
    call = ToolCall(id="call_1", name="free", arguments_json='{"a": 1}')
    usage = Usage(input_tokens=10, output_tokens=4, cached_tokens=3, cache_write_tokens=2, reasoning_tokens=1)
    body, noted = encode(reply_of(Text(text="Hm"), call, finish=FinishReason.TOOL_CALLS, usage=usage))
    assert body == {
        "id": "msg_abc",
        "type": "message",
        "role": "assistant",
        "model": "gpt",
        "content": [
            {"type": "text", "text": "Hm"},
            {"type": "tool_use", "id": "call_1", "name": "free", "input": {"a": 1}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 5,
            "cache_creation_input_tokens": 2,
            "cache_read_input_tokens": 3,
            "output_tokens": 4,
            "output_tokens_details": {"thinking_tokens": 1},
        },
    }
    assert noted == []


def test_usage_is_never_missing() -> None:
    """wires.md 2 (a-nousage): clients crash without usage, so it is 0 where it is not known."""
    body, _ = encode(reply_of(Text(text="a")))
    assert body["usage"]["input_tokens"] == 0
    assert body["usage"]["output_tokens"] == 0


@pytest.mark.parametrize(
    ("finish", "stop", "word"),
    [
        (FinishReason.STOP, None, "end_turn"),
        (FinishReason.STOP, "X", "stop_sequence"),
        (FinishReason.LENGTH, None, "max_tokens"),
        (FinishReason.CONTENT_FILTER, None, "refusal"),
        (FinishReason.REFUSAL, None, "refusal"),
        (FinishReason.PAUSE, None, "pause_turn"),
        (FinishReason.UNKNOWN, None, "end_turn"),
    ],
)
def test_stop_reasons(finish: FinishReason, stop: str | None, word: str) -> None:
    """Each canonical finish has its word on the wire."""
    body, _ = encode(reply_of(Text(text="a"), finish=finish, stop_sequence=stop, reported_finish="other"))
    assert (body["stop_reason"], body["stop_sequence"]) == (word, stop)


def test_reasoning_for_the_caller() -> None:
    """Thinking always has its signature slot: sealed foreign state, or empty; summaries become its text."""
    state = OpaqueState(Wire.RESPONSES, {"encrypted_content": "e"}, "openai")
    body, _ = encode(
        reply_of(
            Reasoning(text="plain"),
            Reasoning(summary=("one", "two"), state=state),
            Reasoning(state=state),
            Reasoning(),
            Text(text="Hi"),
        )
    )
    blocks = body["content"]
    assert blocks[0] == {"type": "thinking", "thinking": "plain", "signature": ""}
    assert (blocks[1]["thinking"], unseal(blocks[1]["signature"])) == ("one\n\ntwo", state)
    assert (blocks[2]["thinking"], unseal(blocks[2]["signature"])) == ("", state)
    assert [block["type"] for block in blocks] == ["thinking"] * 3 + ["text"]


def test_own_state_goes_native() -> None:
    """State of this wire is a signature or redacted data, never sealed."""
    signed = {"type": "thinking", "thinking": "a", "signature": "s"}
    redacted = {"type": "redacted_thinking", "data": "d"}
    body, _ = encode(
        reply_of(
            Reasoning(text="a", state=OpaqueState(Wire.MESSAGES, signed, "up")),
            Reasoning(state=OpaqueState(Wire.MESSAGES, redacted, "up")),
        )
    )
    assert body["content"] == [signed, redacted]


@pytest.mark.parametrize("text", ["", " ", "null"])
def test_no_arguments_are_empty_only_if_nothing_is_required(text: str) -> None:
    """Rules 107 and 131: {} stands for no arguments only where the schema requires none."""
    body, noted = encode(reply_of(ToolCall(id="a", name="free", arguments_json=text)))
    assert body["content"][0]["input"] == {}
    assert noted == ["part_reshaped free"]
    for name in ("strict", "never_offered"):
        with pytest.raises(UpstreamGarbage, match=name):
            encode(reply_of(ToolCall(id="a", name=name, arguments_json=text)))


@pytest.mark.parametrize("text", ["{", "[]", '"{}"', "hello", '{"a":1} trailing'])
def test_broken_arguments_are_never_written(text: str) -> None:
    """Rule 107: arguments that are no object raise, naming the tool."""
    with pytest.raises(UpstreamGarbage, match="free"):
        encode(reply_of(ToolCall(id="a", name="free", arguments_json=text), finish=FinishReason.TOOL_CALLS))


def test_a_call_cut_by_the_token_limit_is_dropped() -> None:
    """Rule 40: half a call is not delivered; the stop reason says why."""
    call = ToolCall(id="a", name="free", arguments_json='{"x": "unfin')
    body, noted = encode(reply_of(Text(text="Hm"), call, finish=FinishReason.LENGTH))
    assert body["content"] == [{"type": "text", "text": "Hm"}]
    assert body["stop_reason"] == "max_tokens"
    assert noted == ["part_dropped free"]


def test_odd_calls() -> None:
    """Illegal ids are mapped, missing ones made, namespaces flattened, custom input wrapped."""
    body, noted = encode(
        reply_of(
            ToolCall(id="functions.f:0", name="free", arguments_json="{}"),
            ToolCall(id="", name="free", arguments_json="{}"),
            ToolCall(id="b", name="n", namespace="ns", arguments_json="{}"),
            ToolCall(id="c", name="patch", arguments_json="text", kind=CallKind.CUSTOM),
        )
    )
    blocks = body["content"]
    assert blocks[0]["id"].startswith("functions_f_0_")
    assert blocks[1]["id"] == "toolu_abc_1"
    assert blocks[2]["name"] == "ns__n"
    assert blocks[3]["input"] == {"input": "text"}
    assert noted == ["id_mapped functions.f:0", "part_reshaped patch"]


def test_parts_without_a_form_are_noted() -> None:
    """What the wire cannot carry in a reply is dropped and noted; refusals are text; empty text is no block."""
    origin = Origin(Wire.CHAT, {"system_fingerprint": "fp"})
    body, noted = encode(
        reply_of(
            Refusal(text="No"),
            Text(text=""),
            ProviderItem(wire=Wire.RESPONSES, type="web_search_call", value={}),
            Unknown(wire=Wire.CHAT, type="odd", value={}),
            Image(url="https://x"),
            origin=origin,
        )
    )
    assert body["content"] == [{"type": "text", "text": "No"}]
    assert noted == [
        "field_dropped system_fingerprint",
        "part_dropped web_search_call",
        "part_dropped odd",
        "part_dropped image",
    ]


def test_model_falls_back_to_the_asked_one() -> None:
    """A reply that does not say its model gets the caller's name for it."""
    body, _ = encode(Reply(id="", model="", parts=(Text(text="a"),), finish=FinishReason.STOP))
    assert body["model"] == "asked"


def test_reply_survives_the_round_trip(codec: MessagesCodec, bare: Callable[[Any], Any]) -> None:
    """Encoded for the caller and read again, a canonical reply is the same."""
    reply = Reply(
        id="msg_1",
        model="m",
        parts=(
            Reasoning(
                text="a",
                state=OpaqueState(Wire.MESSAGES, {"type": "thinking", "thinking": "a", "signature": "s"}, "up"),
            ),
            Text(text="b"),
            ToolCall(id="c", name="free", arguments_json='{"x":[1,2]}'),
        ),
        finish=FinishReason.TOOL_CALLS,
        reported_finish="tool_use",
        usage=Usage(input_tokens=9, output_tokens=1, cached_tokens=4),
    )
    body, _ = encode(reply)
    assert bare(codec.decode_reply(json.dumps(body).encode(), UP)) == reply
