"""What a Messages request means, and that what nobody changed goes out as it came."""

import json
from typing import Any

import pytest

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import InvalidRequest, UnsupportedFeature
from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.parts import (
    File,
    Image,
    OpaqueState,
    ProviderItem,
    Reasoning,
    Text,
    ToolCall,
    ToolReference,
    ToolResult,
    Unknown,
)
from mustcall.core.request import OutputKind, ReasoningConfig, ReasoningMode
from mustcall.core.tools import ChoiceMode, ProviderTool, Tool
from mustcall.wire.codec import Codec, Target
from mustcall.wire.crossing.sealing import seal
from mustcall.wire.messages import MessagesCodec

Shapes = dict[str, dict[str, Any]]


def body_of(shape: dict[str, Any]) -> bytes:
    """Write a body."""
    return json.dumps(shape).encode()


def encode(codec: MessagesCodec, request: Any) -> dict[str, Any]:
    """Encode for an upstream and forget the log."""
    return codec.encode_request(request, Target(issuer="up"), AdaptationLog())


def test_untouched_request_goes_out_as_it_came(codec: MessagesCodec, request_shape: dict[str, Any]) -> None:
    """Every recorded request survives decode and encode unchanged, nulls and unknown fields included."""
    log = AdaptationLog()
    out = codec.encode_request(codec.decode_request(body_of(request_shape)), Target(), log)
    assert out == request_shape
    assert log.entries == ()


def test_change_at_the_tail_leaves_the_rest_equal(codec: MessagesCodec, request_shape: dict[str, Any]) -> None:
    """Rule 105: after a reminder at the tail all old messages, tools and unknown fields go out JSON-equal."""
    request = codec.decode_request(body_of(request_shape))
    reminder = Message(role=Role.USER, parts=(Text(text="Use the tool."),))
    out = encode(codec, request.evolve(messages=(*request.messages, reminder)))
    tail = {"role": "user", "content": "Use the tool."}
    assert out == {"max_tokens": 8192, **request_shape, "messages": [*request_shape["messages"], tail]}


def test_changed_message_is_rebuilt_from_parts(codec: MessagesCodec, shapes: Shapes) -> None:
    """A changed message keeps its own unknown fields and the exact form of the parts that were not changed."""
    request = codec.decode_request(body_of(shapes["claude_code_turn_1"]))
    changed = request.messages[1].evolve(parts=(*request.messages[1].parts, Text(text="More.")))
    out = encode(codec, request.evolve(messages=(request.messages[0], changed)))
    assert out["messages"][1] == {
        "role": "system",
        "content": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "More."}],
        "output_config": {"effort": "low"},
    }


def test_changed_parts_keep_unknown_fields(codec: MessagesCodec, shapes: Shapes) -> None:
    """`evolve` of a part drops its exact form and keeps cache_control, source extras and the like."""
    request = codec.decode_request(body_of(shapes["media"]))
    message = request.messages[0]
    parts = tuple(part.evolve() for part in message.parts)
    out = encode(codec, request.evolve(messages=(message.evolve(parts=parts),)))
    assert out["messages"] == shapes["media"]["messages"]


def test_changed_results_and_calls_are_equal(codec: MessagesCodec, shapes: Shapes) -> None:
    """Calls and results written from their canonical fields equal what came in, up to absent defaults."""
    request = codec.decode_request(body_of(shapes["tool_results"]))
    messages = tuple(m.evolve(parts=tuple(p.evolve() for p in m.parts)) for m in request.messages)
    out = encode(codec, request.evolve(messages=messages))
    expected = shapes["tool_results"]["messages"]
    del expected[2]["content"][4]["is_error"]
    assert out["messages"] == expected


def test_changed_tool_keeps_unknown_fields(codec: MessagesCodec, shapes: Shapes) -> None:
    """wires.md 1.6: eager_input_streaming and cache_control on a tool outlive a change of its description."""
    request = codec.decode_request(body_of(shapes["tool_results"]))
    tool = request.tools[0]
    assert isinstance(tool, Tool)
    out = encode(codec, request.evolve(tools=(tool.evolve(description="New"),)))
    assert out["tools"] == [
        {
            "name": "f",
            "description": "New",
            "input_schema": {"type": "object", "properties": {}},
            "eager_input_streaming": True,
        }
    ]


def test_changed_reasoning_keeps_unknown_keys(codec: MessagesCodec, shapes: Shapes) -> None:
    """Unknown keys inside thinking and output_config survive a change of the known ones."""
    request = codec.decode_request(body_of(shapes["settings"]))
    out = encode(codec, request.evolve(reasoning=ReasoningConfig(mode=ReasoningMode.DISABLED)))
    assert out["thinking"] == {"type": "disabled", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    assert out["output_config"] == {
        "task_budget": {"tokens": 5},
        "format": {"type": "json_schema", "schema": {"type": "object", "properties": {}}, "name": "answer"},
    }


def test_removed_output_format_is_gone(codec: MessagesCodec, shapes: Shapes) -> None:
    """Taking the output format away leaves no half of it behind."""
    request = codec.decode_request(body_of(shapes["settings"]))
    out = encode(codec, request.evolve(output=None))
    assert out["output_config"] == {"effort": "max", "task_budget": {"tokens": 5}}


@pytest.mark.parametrize(
    ("field", "sent", "setting", "without"),
    [
        ("temperature", 0.5, "temperature", None),
        ("top_p", 0.9, "top_p", None),
        ("stop_sequences", ["END"], "stop", ()),
    ],
)
def test_a_setting_that_was_taken_away_is_gone(
    codec: MessagesCodec, field: str, sent: Any, setting: str, without: Any
) -> None:
    """What the caller sent for a setting does not come back once the request is asked without it."""
    shape = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}], field: sent}
    request = codec.decode_request(body_of(shape))
    assert encode(codec, request) == shape
    assert field not in encode(codec, request.evolve(**{setting: without}))


def test_parallel_change_rewrites_the_choice(codec: MessagesCodec, shapes: Shapes) -> None:
    """disable_parallel_tool_use follows parallel_tool_calls even if the choice itself was not touched (rule 6 too)."""
    request = codec.decode_request(body_of(shapes["settings"]))
    out = encode(codec, request.evolve(parallel_tool_calls=None))
    assert out["tool_choice"] == {"type": "any", "hint": 1}


def test_choice_without_tools_is_not_sent(codec: MessagesCodec, shapes: Shapes) -> None:
    """Rule 4: with no tools there is no tool_choice."""
    request = codec.decode_request(body_of(shapes["choice_any"]))
    assert "tool_choice" not in encode(codec, request.evolve(tools=()))


def test_system_role_inside_messages(codec: MessagesCodec, shapes: Shapes) -> None:
    """wires.md 1.3: system messages stay in place, as blocks and as string, with their own fields."""
    first = codec.decode_request(body_of(shapes["claude_code_turn_1"]))
    assert [message.role for message in first.messages] == [Role.USER, Role.SYSTEM]
    assert first.messages[1].fields_for(Wire.MESSAGES) == {"output_config": {"effort": "low"}}
    assert first.system is not None
    assert [part.text for part in first.system.parts if isinstance(part, Text)] == [
        "x-anthropic-billing-header: cc_version=2.1; cch=abc",
        "You are an agent.",
    ]
    second = codec.decode_request(body_of(shapes["claude_code_turn_2"]))
    assert second.messages[1].role is Role.SYSTEM
    assert second.messages[1].parts == (Text(text="Be brief."),)


def test_thinking_and_effort(codec: MessagesCodec, shapes: Shapes) -> None:
    """wires.md 1.4: adaptive and enabled thinking, display, effort, metadata and context_management are carried."""
    first = codec.decode_request(body_of(shapes["claude_code_turn_1"]))
    assert first.reasoning == ReasoningConfig(mode=ReasoningMode.ADAPTIVE, effort="high", summary="omitted")
    fields = first.fields_for(Wire.MESSAGES)
    assert fields.keys() == {"context_management", "metadata"}
    second = codec.decode_request(body_of(shapes["claude_code_turn_2"]))
    assert second.reasoning == ReasoningConfig(mode=ReasoningMode.ENABLED, budget_tokens=31999)
    kimi = codec.decode_request(body_of(shapes["settings"]))
    assert kimi.max_tokens == 262144
    assert kimi.reasoning == ReasoningConfig(effort="max")
    assert kimi.output is not None
    assert kimi.output.kind is OutputKind.SCHEMA


def test_deferred_tools_and_references(codec: MessagesCodec, shapes: Shapes) -> None:
    """wires.md 1.5: defer_loading is read, and a result of nothing but tool_reference is not empty."""
    first = codec.decode_request(body_of(shapes["claude_code_turn_1"]))
    assert [tool.deferred for tool in first.tools if isinstance(tool, Tool)] == [False, False, True]
    second = codec.decode_request(body_of(shapes["claude_code_turn_2"]))
    result = second.messages[3].results[0]
    assert [item.name for item in result.content if isinstance(item, ToolReference)] == ["WebFetch"]
    assert second.messages[3].role is Role.USER


def test_tool_kinds(codec: MessagesCodec, shapes: Shapes) -> None:
    """wires.md 1.6: type custom is a client tool, any other type is the provider's."""
    custom = codec.decode_request(body_of(shapes["tool_results"])).tools[0]
    assert isinstance(custom, Tool)
    assert custom.fields_for(Wire.MESSAGES) == {"eager_input_streaming": True}
    tools = codec.decode_request(body_of(shapes["server_tools"])).tools
    assert [tool.type for tool in tools if isinstance(tool, ProviderTool)] == ["web_search_20250305", "bash_20250124"]


def test_result_forms(codec: MessagesCodec, shapes: Shapes) -> None:
    """wires.md 1.6: result content as string, texts, image, nothing, search result and document; is_error."""
    message = codec.decode_request(body_of(shapes["tool_results"])).messages[2]
    assert message.role is Role.TOOL
    contents = [[type(item) for item in result.content] for result in message.results]
    assert contents == [[Text], [Text, Text], [Image], [], [Unknown, File]]
    assert [result.is_error for result in message.results] == [False, True, False, False, False]


def test_media_blocks(codec: MessagesCodec, shapes: Shapes) -> None:
    """Images and documents by URL, data, text and file id; sources and blocks of the future stay unknown."""
    parts = codec.decode_request(body_of(shapes["media"])).messages[0].parts
    assert [type(part) for part in parts] == [
        *(Image, Image, Image, Unknown),
        *(File, File, File, Unknown),
        *(ProviderItem, Unknown, Text),
    ]
    pdf = parts[4]
    assert isinstance(pdf, File)
    assert (pdf.media_type, pdf.data, pdf.name) == ("application/pdf", "JVBERi0=", "T")


def test_calls_and_thinking_in_history(codec: MessagesCodec, shapes: Shapes) -> None:
    """Input becomes compact argument text; signed thinking becomes state that holds the whole block."""
    parts = codec.decode_request(body_of(shapes["claude_code_turn_2"])).messages[2].parts
    thinking, redacted, _, call = parts
    assert isinstance(thinking, Reasoning)
    block = {"type": "thinking", "thinking": "Need a tool.", "signature": "c2ln"}
    assert thinking.state == OpaqueState(Wire.MESSAGES, block)
    assert isinstance(redacted, Reasoning)
    assert redacted.state == OpaqueState(Wire.MESSAGES, {"type": "redacted_thinking", "data": "cmVk"})
    assert isinstance(call, ToolCall)
    assert (call.id, call.name, call.arguments_json) == ("toolu_1", "ToolSearch", '{"query":"fetch"}')


def test_choice_forms(codec: MessagesCodec, shapes: Shapes) -> None:
    """Rule 2: auto, any, tool, none and the parallel setting inside them."""
    read = {name: codec.decode_request(body_of(shape)) for name, shape in shapes.items()}
    modes = {name: request.tool_choice.mode for name, request in read.items() if request.tool_choice is not None}
    assert modes == {
        "settings": ChoiceMode.NAMED,
        "choice_any": ChoiceMode.REQUIRED,
        "choice_auto": ChoiceMode.AUTO,
        "choice_none": ChoiceMode.NONE,
    }
    assert read["settings"].parallel_tool_calls is False
    assert read["choice_any"].parallel_tool_calls is True
    assert read["choice_auto"].parallel_tool_calls is None


def test_no_stubs_for_a_history_of_this_wire(codec: MessagesCodec, shapes: Shapes) -> None:
    """A history with calls but no tools that came on this wire is not given tools."""
    request = codec.decode_request(body_of(shapes["history_without_tools"]))
    assert "tools" not in encode(codec, request.evolve(max_tokens=5))


def test_sealed_state_never_reaches_an_upstream(codec: MessagesCodec) -> None:
    """Rule 124: another wire's state in the signature slot is unsealed, and not sent to a Messages upstream."""
    state = OpaqueState(Wire.RESPONSES, {"encrypted_content": "x"}, "openai")
    shape: dict[str, Any] = {
        "model": "m",
        "max_tokens": 5,
        "messages": [
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm", "signature": seal(state)},
                    {"type": "text", "text": "Yes"},
                ],
            },
            {"role": "user", "content": "And?"},
        ],
    }
    request = codec.decode_request(body_of(shape))
    part = request.messages[1].parts[0]
    assert isinstance(part, Reasoning)
    assert part.state == state
    log = AdaptationLog()
    out = codec.encode_request(request, Target(issuer="up"), log)
    assert out["messages"][1] == {"role": "assistant", "content": [{"type": "text", "text": "Yes"}]}
    assert [entry.kind.value for entry in log.entries] == ["state_dropped"]


def test_unsigned_thinking_of_the_caller_is_kept(codec: MessagesCodec) -> None:
    """A thinking block without a signature stays in a changed message: the upstream is the judge of it."""
    block = {"type": "thinking", "thinking": "Hm", "signature": ""}
    shape: dict[str, Any] = {"model": "m", "max_tokens": 5, "messages": [{"role": "assistant", "content": [block]}]}
    request = codec.decode_request(body_of(shape))
    changed = request.messages[0].evolve(parts=(*request.messages[0].parts, Text(text="Yes")))
    out = encode(codec, request.evolve(messages=(changed,)))
    assert out["messages"][0]["content"] == [block, {"type": "text", "text": "Yes"}]


def test_it_is_a_codec(codec: MessagesCodec) -> None:
    """The class fits the protocol every wire implements (checked by types) and names its wire."""
    general: Codec = codec
    assert general.wire is Wire.MESSAGES


@pytest.mark.parametrize("thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}, "x", {}])
def test_threads_are_refused(codec: MessagesCodec, shapes: Shapes, thread: Any) -> None:
    """wires.md 1.1: `thread` gets the documented error, from peek and from decode alike."""
    body = body_of({**shapes["plain"], "thread": thread})
    for read in (codec.peek, codec.decode_request):
        with pytest.raises(UnsupportedFeature) as caught:
            read(body)
        error = codec.encode_error(caught.value.info(), "req_1")
        assert caught.value.info().status == 400
        assert error["error"].pop("message")
        assert error == {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "details": {"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
            },
            "request_id": "req_1",
        }


def test_peek_reads_model_and_stream(codec: MessagesCodec, request_shape: dict[str, Any]) -> None:
    """Every recorded request passes the outline check."""
    peek = codec.peek(body_of(request_shape))
    assert (peek.model, peek.stream) == (request_shape["model"], request_shape.get("stream", False))


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b"\xff", None),
        (b'{"model":"\xff","messages":[]}', None),
        (b'{"model":1,"messages":[]}', "model"),
        (b'{"model":"m"}', "messages"),
        (b'{"model":"m","messages":{}}', "messages"),
        (b'{"model":"m","messages":[1]}', "messages[0]"),
        (b'{"model":"m","messages":[{"role":"user"}]}', "messages[0].content"),
        (b'{"model":"m","messages":[{"role":"user","content":7}]}', "messages[0].content"),
        (b'{"model":"m","messages":[{"role":"user","content":[{"text":"a"}]}]}', "messages[0].content[0].type"),
        (b'{"model":"m","messages":[],"tools":{}}', "tools"),
        (b'{"model":"m","messages":[],"tools":[1]}', "tools[0]"),
        (b'{"model":"m","messages":[],"stream":"yes"}', "stream"),
        (b'{"model":"m","messages":[],"system":5}', "system"),
        (b'{"model":"m","messages":[],"tool_choice":"auto"}', "tool_choice"),
        (b"[" * 100_000, None),
        (b'{"model":"m","messages":[],"x":' + b"[" * 100_000, None),
    ],
)
def test_bad_bodies_are_named(codec: MessagesCodec, body: bytes, param: str | None) -> None:
    """Peek and decode refuse the same bodies, and decode names the path."""
    with pytest.raises(InvalidRequest):
        codec.peek(body)
    with pytest.raises(InvalidRequest) as caught:
        codec.decode_request(body)
    assert caught.value.param == param


WRONG_FIELDS: list[tuple[Any, ...]] = [
    ("messages", [{"role": "robot", "content": "x"}], "messages[0].role"),
    ("messages", [{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
    (
        "messages",
        [{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}],
        "messages[0].content[0].name",
    ),
    ("messages", [{"role": "user", "content": [{"type": "tool_result"}]}], "messages[0].content[0].tool_use_id"),
    ("tools", [{"description": "x"}], "tools[0].name"),
    ("tools", [{"name": "f", "input_schema": []}], "tools[0].input_schema"),
    ("tool_choice", {"type": "maybe"}, "tool_choice.type"),
    ("tool_choice", {"type": "tool"}, "tool_choice.name"),
    ("temperature", "hot", "temperature"),
    ("stop_sequences", ["a", 1], "stop_sequences[1]"),
    ("thinking", {"type": "enabled", "budget_tokens": "many"}, "thinking.budget_tokens"),
    ("output_config", {"format": 1}, "output_config.format"),
]


@pytest.mark.parametrize(("field", "value", "param"), WRONG_FIELDS)
def test_wrong_fields_are_named(codec: MessagesCodec, shapes: Shapes, field: str, value: Any, param: str) -> None:
    """A wrong value is refused by its path."""
    with pytest.raises(InvalidRequest) as caught:
        codec.decode_request(body_of({**shapes["plain"], field: value}))
    assert caught.value.param == param


def test_results_only_is_a_tool_message(codec: MessagesCodec) -> None:
    """A user turn of nothing but results is `tool`; an empty one is not."""
    blocks: list[dict[str, Any]] = [{"type": "tool_result", "tool_use_id": "a"}]
    shape: dict[str, Any] = {
        "model": "m",
        "messages": [{"role": "user", "content": blocks}, {"role": "user", "content": []}],
    }
    request = codec.decode_request(body_of(shape))
    assert [message.role for message in request.messages] == [Role.TOOL, Role.USER]
    assert isinstance(request.messages[0].parts[0], ToolResult)
