"""Requests of other wires, written for a chat upstream."""

import json
from typing import Any

import pytest

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import UnsupportedFeature
from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import (
    CallKind,
    File,
    Image,
    OpaqueState,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolReference,
    ToolResult,
    Unknown,
)
from mustcall.core.request import OutputFormat, OutputKind, ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import ChoiceMode, ProviderTool, Tool, ToolChoice
from mustcall.wire.chat import ChatCodec
from mustcall.wire.codec import Target
from mustcall.wire.crossing.sealing import seal

_CODEC = ChatCodec()
_PNG = Image(data="AAAA", media_type="image/png")
_PNG_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def _message(role: str, *parts: Part, wire: Wire = Wire.MESSAGES, **fields: Any) -> Message:
    return Message(role=Role(role), parts=parts, origin=Origin(wire, fields, {"raw": "of another wire"}))


def _cross(request: Request) -> tuple[dict[str, Any], set[tuple[str, str]]]:
    log = AdaptationLog()
    body = _CODEC.encode_request(request, Target(issuer="up"), log)
    return body, {(str(entry.kind), entry.subject) for entry in log.entries}


def _request(*messages: Message, wire: Wire = Wire.MESSAGES, **fields: Any) -> Request:
    unknown = fields.pop("unknown", {})
    return Request(model="m", messages=messages, origin=Origin(wire, unknown, {"raw": "body"}), **fields)


def _messages(*messages: Message) -> tuple[list[Any], set[tuple[str, str]]]:
    body, notes = _cross(_request(*messages))
    return body["messages"], notes


def _call(call_id: str, name: str = "f", arguments: str = "{}") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments_json=arguments)


def _written(call_id: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_images_of_results_move_behind_the_last_result() -> None:
    """wires.md 1.10: images in tool results go to a user message after all results of the turn."""
    messages, notes = _messages(
        _message("assistant", _call("a"), _call("b")),
        _message("tool", ToolResult(call_id="a", content=(_PNG,))),
        _message("tool", ToolResult(call_id="b", content=(Text(text="ok"),))),
        _message("assistant", Text(text="seen")),
    )
    assert messages == [
        {"role": "assistant", "content": None, "tool_calls": [_written("a"), _written("b")]},
        {"role": "tool", "tool_call_id": "a", "content": "The result is attached below."},
        {"role": "tool", "tool_call_id": "b", "content": "ok"},
        {"role": "user", "content": [_PNG_PART]},
        {"role": "assistant", "content": "seen"},
    ]
    assert ("part_reshaped", "tool_result") in notes


def test_images_of_results_join_the_users_own_words() -> None:
    """wires.md 1.10: where the turn has user content, the images stand before it."""
    messages, _ = _messages(
        _message("user", ToolResult(call_id="a", content=(Text(text="t"), _PNG)), Text(text="what is it?"))
    )
    assert messages == [
        {"role": "tool", "tool_call_id": "a", "content": "t"},
        {"role": "user", "content": [_PNG_PART, {"type": "text", "text": "what is it?"}]},
    ]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_images_of_results_never_land_in_a_system_message(role: str) -> None:
    """wires.md 1.3 and 1.10: a system message right after an image result does not take the image in."""
    messages, _ = _messages(
        _message("tool", ToolResult(call_id="a", content=(_PNG,))), _message(role, Text(text="note"))
    )
    assert messages[1:] == [{"role": "user", "content": [_PNG_PART]}, {"role": "system", "content": "note"}]


def test_images_wait_for_untouched_results() -> None:
    """wires.md 1.10: an untouched result of the same turn is not cut off from its call by moved images."""
    raw = {"role": "tool", "tool_call_id": "b", "content": "ok"}
    untouched = Message(
        role=Role.TOOL, parts=(ToolResult(call_id="b", content=(Text(text="ok"),)),), origin=Origin(Wire.CHAT, {}, raw)
    )
    messages, _ = _messages(_message("tool", ToolResult(call_id="a", content=(_PNG,))), untouched)
    assert messages == [
        {"role": "tool", "tool_call_id": "a", "content": "The result is attached below."},
        raw,
        {"role": "user", "content": [_PNG_PART]},
    ]


def test_deferred_tools_and_references() -> None:
    """wires.md 1.5: the referenced tool is offered, the placeholder is not, and the result says something."""
    origin = Origin(Wire.MESSAGES)
    body, notes = _cross(
        _request(
            _message("assistant", _call("a", "ToolSearch")),
            _message("user", ToolResult(call_id="a", content=(ToolReference(name="WebFetch"),))),
            tools=(
                Tool(name="DeferredToolPlaceholder", deferred=True, origin=origin),
                Tool(name="ToolSearch", parameters={"type": "object"}, origin=origin),
                Tool(name="WebFetch", deferred=True, origin=origin),
            ),
        )
    )
    assert [tool["function"]["name"] for tool in body["tools"]] == ["ToolSearch", "WebFetch"]
    assert body["messages"][1]["content"] == "The tool WebFetch is now available."
    assert {("tool_dropped", "DeferredToolPlaceholder"), ("part_reshaped", "tool_result")} <= notes


def test_custom_and_namespace_tools() -> None:
    """wires.md 1.9: custom tools and calls cross as functions, namespaces in the name, choice included."""
    origin = Origin(Wire.RESPONSES)
    body, notes = _cross(
        _request(
            _message(
                "assistant",
                ToolCall(id="a", name="apply_patch", arguments_json="*** Begin", kind=CallKind.CUSTOM),
                ToolCall(id="b", name="spawn", namespace="agents", arguments_json="{}"),
                wire=Wire.RESPONSES,
            ),
            wire=Wire.RESPONSES,
            tools=(
                Tool(name="apply_patch", kind=CallKind.CUSTOM, origin=origin),
                Tool(name="spawn", namespace="agents", origin=origin),
            ),
            tool_choice=ToolChoice(mode=ChoiceMode.NAMED, name="apply_patch", kind=CallKind.CUSTOM),
        )
    )
    assert [tool["type"] for tool in body["tools"]] == ["function", "function"]
    assert [tool["function"]["name"] for tool in body["tools"]] == ["apply_patch", "agents__spawn"]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "apply_patch"}}
    assert body["messages"][0]["tool_calls"] == [
        _written("a", "apply_patch", '{"input":"*** Begin"}'),
        _written("b", "agents__spawn"),
    ]
    assert {("tool_reshaped", "apply_patch"), ("name_mapped", "spawn")} <= notes


def test_tool_without_parameters() -> None:
    """wires.md 1.12: a function without parameters stays without."""
    body, _ = _cross(_request(tools=(Tool(name="f", strict=False, origin=Origin(Wire.RESPONSES)),)))
    assert body["tools"] == [{"type": "function", "function": {"name": "f", "strict": False}}]


@pytest.mark.parametrize(
    ("choice", "written"),
    [
        (ToolChoice(mode=ChoiceMode.NONE), "none"),
        (ToolChoice(mode=ChoiceMode.AUTO), "auto"),
        (ToolChoice(mode=ChoiceMode.REQUIRED), "required"),
        (ToolChoice(mode=ChoiceMode.NAMED, name="f"), {"type": "function", "function": {"name": "f"}}),
        (
            ToolChoice(mode=ChoiceMode.AUTO, allowed=("f",)),
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
            },
        ),
    ],
)
def test_choice(choice: ToolChoice, written: object) -> None:
    """Rule 1: the caller's demand in chat's words."""
    body, _ = _cross(_request(tools=(Tool(name="f"),), tool_choice=choice, parallel_tool_calls=False))
    assert body["tool_choice"] == written
    assert body["parallel_tool_calls"] is False


def test_no_choice_without_tools() -> None:
    """providers.md: neither choice nor parallel setting goes out where no tool does."""
    body, _ = _cross(_request(tool_choice=ToolChoice(mode=ChoiceMode.AUTO), parallel_tool_calls=True))
    assert body == {"model": "m", "messages": []}


def test_history_with_calls_but_no_tools() -> None:
    """wires.md 1.13: chat takes calls in history without tools; nothing is made up."""
    body, notes = _cross(
        _request(_message("assistant", _call("a")), _message("tool", ToolResult(call_id="a")), wire=Wire.RESPONSES)
    )
    assert "tools" not in body
    assert notes == set()


def test_system_prompts() -> None:
    """wires.md 1.3: system first and as one string, late ones in place, no billing header, developer as system."""
    body, notes = _cross(
        _request(
            _message("user", Text(text="a")),
            _message("system", Text(text="late")),
            _message("developer", Text(text="dev")),
            system=Message(
                role=Role.SYSTEM,
                parts=(
                    Text(text="x-anthropic-billing-header: cc_version=2.1"),
                    Text(text="You are."),
                    Text(text="Be."),
                ),
                origin=Origin(Wire.MESSAGES),
            ),
        )
    )
    assert body["messages"] == [
        {"role": "system", "content": "You are.\n\nBe."},
        {"role": "user", "content": "a"},
        {"role": "system", "content": "late"},
        {"role": "system", "content": "dev"},
    ]
    assert notes == {("part_dropped", "system")}


def test_nothing_but_a_billing_header() -> None:
    """wires.md 1.3: no empty system message is left behind."""
    system = Message(role=Role.SYSTEM, parts=(Text(text="x-anthropic-billing-header: x"),))
    body, _ = _cross(_request(_message("user", Text(text="a")), system=system))
    assert body["messages"] == [{"role": "user", "content": "a"}]


def test_items_of_one_turn_are_joined() -> None:
    """wires.md 1.8: the items a Responses client sends per turn become one assistant message."""
    messages, _ = _messages(
        _message("assistant", Text(text="one"), wire=Wire.RESPONSES),
        _message("assistant", Refusal(text="no"), wire=Wire.RESPONSES),
        _message("assistant", _call("a"), wire=Wire.RESPONSES),
        _message("assistant", Text(text="two"), wire=Wire.RESPONSES),
        _message("assistant", _call("b"), wire=Wire.RESPONSES),
    )
    assert messages == [
        {"role": "assistant", "content": "one\n\ntwo", "refusal": "no", "tool_calls": [_written("a"), _written("b")]}
    ]


def test_ids_are_mapped_alike() -> None:
    """Rule 129: a call and its result from another wire keep one legal id between them."""
    messages, notes = _messages(
        _message("assistant", _call("functions.f:0")), _message("tool", ToolResult(call_id="functions.f:0"))
    )
    mapped = messages[0]["tool_calls"][0]["id"]
    assert mapped != "functions.f:0"
    assert messages[1]["tool_call_id"] == mapped
    assert notes == {("id_mapped", "functions.f:0")}


def test_error_results_say_so() -> None:
    """wires.md 1.6: `is_error` becomes a word, and that is reported."""
    messages, notes = _messages(_message("tool", ToolResult(call_id="a", content=(Text(text="boom"),), is_error=True)))
    assert messages == [{"role": "tool", "tool_call_id": "a", "content": "Error: boom"}]
    assert notes == {("part_reshaped", "tool_result")}


def test_unknown_fields_of_parts_and_tools_are_reported_once() -> None:
    """wires.md 1.6: `cache_control` and the like are dropped with one note per name, wherever they stood."""
    cached = Origin(Wire.MESSAGES, {"cache_control": {"type": "ephemeral"}})
    body, notes = _cross(
        _request(
            _message("user", Text(text="a", origin=cached)),
            _message("assistant", _call("a").evolve(origin=cached), output_config={"effort": "low"}),
            _message("user", ToolResult(call_id="a", content=(Text(text="x", origin=cached),), origin=cached)),
            system=Message(role=Role.SYSTEM, parts=(Text(text="s", origin=cached),)),
            tools=(Tool(name="f", origin=Origin(Wire.MESSAGES, {"eager_input_streaming": True})),),
        )
    )
    assert "cache_control" not in json.dumps(body)
    assert notes == {
        ("field_dropped", "cache_control"),
        ("field_dropped", "output_config"),
        ("field_dropped", "eager_input_streaming"),
    }


def test_parts_without_a_form() -> None:
    """Build 3: what only its own wire can carry is dropped and reported; an empty list of parts never goes out."""
    messages, notes = _messages(
        _message(
            "user",
            Unknown(wire=Wire.MESSAGES, type="search_result", value={}),
            Image(file_id="file_1"),
            File(file_id="file_1"),
        ),
        _message("assistant", ProviderItem(wire=Wire.RESPONSES, type="web_search_call", value={})),
        _message("user", File(text="plain", name="a.txt"), Text(text="read")),
    )
    assert messages == [
        {"role": "user", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": "plain"}, {"type": "text", "text": "read"}]},
    ]
    assert notes == {
        ("part_dropped", "search_result"),
        ("part_dropped", "image"),
        ("part_dropped", "file"),
        ("part_dropped", "web_search_call"),
        ("part_reshaped", "file"),
    }


@pytest.mark.parametrize(
    ("state", "written"),
    [
        (OpaqueState(Wire.CHAT, {"field": "reasoning"}, "up"), {"reasoning": "hm"}),
        (OpaqueState(Wire.CHAT, {"field": "reasoning_content"}, ""), {"reasoning_content": "hm"}),
        (OpaqueState(Wire.CHAT, "forged", "up"), {"reasoning_content": "hm"}),
        (OpaqueState(Wire.CHAT, {"field": ["x"], "details": 5}, "up"), {"reasoning_content": "hm"}),
        (
            OpaqueState(Wire.CHAT, {"field": "reasoning", "details": [{"a": 1}]}, "up"),
            {"reasoning": "hm", "reasoning_details": [{"a": 1}]},
        ),
        (OpaqueState(Wire.CHAT, {"field": "reasoning"}, "other"), None),
        (OpaqueState(Wire.MESSAGES, {"signature": "s"}, "up"), None),
        (None, None),
    ],
)
@pytest.mark.parametrize("as_summary", [False, True])
def test_thinking_goes_back_to_its_issuer_only(
    state: OpaqueState | None, written: dict[str, Any] | None, as_summary: bool
) -> None:
    """Rule 124: thinking returns in the field it came in, to its own upstream only; else it is dropped, reported."""
    part = Reasoning(summary=("hm",), state=state) if as_summary else Reasoning(text="hm", state=state)
    messages, notes = _messages(_message("assistant", part, Text(text="t")))
    assert messages == [{"role": "assistant", "content": "t", **(written or {})}]
    assert notes == (set() if written else {("state_dropped", "reasoning")})


def test_several_thoughts_of_one_turn() -> None:
    """Rule 124: thoughts of neighbouring items are joined, none is lost."""
    state = OpaqueState(Wire.CHAT, {"field": "reasoning_content", "details": [{"n": 1}]}, "up")
    messages, _ = _messages(
        _message("assistant", Reasoning(text="one", state=state)),
        _message("assistant", Reasoning(text="two", state=state), Text(text="t")),
    )
    assert messages == [
        {
            "role": "assistant",
            "content": "t",
            "reasoning_content": "one\n\ntwo",
            "reasoning_details": [{"n": 1}, {"n": 1}],
        }
    ]


def test_sealed_state_of_a_chat_client() -> None:
    """Rule 124: another wire's sealed state is read back whole, and never sent to a chat server."""
    states = [OpaqueState(Wire.MESSAGES, {"signature": str(number)}, "claude") for number in range(2)]
    details = [{"type": "reasoning.encrypted", "data": seal(state)} for state in states]
    body: dict[str, Any] = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": "t", "reasoning_content": "hm", "reasoning_details": details, "name": "n"},
            {"role": "user", "content": "y", "z": 1},
        ],
        "seed": 1,
    }
    request = _CODEC.decode_request(json.dumps(body).encode())
    assert request.messages[1].parts == (
        Reasoning(text="hm", state=states[0]),
        Reasoning(state=states[1]),
        Text(text="t"),
    )
    written, notes = _cross(request)
    assert written == {
        "model": "m",
        "messages": [body["messages"][0], {"role": "assistant", "content": "t", "name": "n"}, body["messages"][2]],
        "seed": 1,
    }
    assert notes == {("state_dropped", "reasoning")}


@pytest.mark.parametrize(
    ("config", "effort", "note"),
    [
        (ReasoningConfig(effort="max"), "max", None),
        (ReasoningConfig(effort="high", budget_tokens=100), "high", None),
        (ReasoningConfig(mode=ReasoningMode.ENABLED, budget_tokens=31999), "high", ("field_mapped", "thinking")),
        (ReasoningConfig(mode=ReasoningMode.ENABLED, budget_tokens=1024), "low", ("field_mapped", "thinking")),
        (ReasoningConfig(mode=ReasoningMode.ADAPTIVE), None, ("field_dropped", "thinking")),
        (ReasoningConfig(mode=ReasoningMode.DISABLED), None, ("field_dropped", "thinking")),
        (ReasoningConfig(mode=ReasoningMode.DISABLED, effort="none"), "none", None),
        (ReasoningConfig(effort="low", summary="auto"), "low", ("field_dropped", "reasoning.summary")),
    ],
)
def test_effort(config: ReasoningConfig, effort: str | None, note: tuple[str, str] | None) -> None:
    """wires.md 1.4: thinking settings become an effort; what cannot be said is reported."""
    body, notes = _cross(_request(reasoning=config))
    assert body.get("reasoning_effort") == effort
    assert notes == ({note} if note else set())


def test_settings() -> None:
    """Build 3: limits, sampling, stop, output form and stream in chat's words; usage is asked for."""
    body, notes = _cross(
        _request(
            max_tokens=10,
            temperature=0.5,
            top_p=0.9,
            stop=("a", "b"),
            output=OutputFormat(kind=OutputKind.SCHEMA, schema={"type": "object"}, strict=True),
            stream=True,
        )
    )
    assert body == {
        "model": "m",
        "messages": [],
        "max_completion_tokens": 10,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["a", "b"],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
        },
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert notes == set()


def test_top_level_fields() -> None:
    """Build 3: fields both OpenAI wires share are carried, others dropped and reported, empty refusable ones too."""
    body, notes = _cross(
        _request(
            wire=Wire.RESPONSES,
            unknown={
                "store": False,
                "prompt_cache_key": "k",
                "include": ["reasoning.encrypted_content"],
                "client_metadata": {},
                "top_logprobs": 3,
                "background": False,
                "conversation": None,
            },
        )
    )
    assert body == {"model": "m", "messages": [], "store": False, "prompt_cache_key": "k"}
    assert notes == {
        ("field_dropped", name) for name in ("include", "client_metadata", "top_logprobs", "background", "conversation")
    }


def test_messages_metadata_is_not_openais() -> None:
    """wires.md 1.4: Anthropic's `metadata` and `service_tier` mean something else and are dropped."""
    body, notes = _cross(_request(unknown={"metadata": {"user_id": "{}"}, "service_tier": "auto", "top_k": 5}))
    assert body == {"model": "m", "messages": []}
    assert notes == {("field_dropped", "metadata"), ("field_dropped", "service_tier"), ("field_dropped", "top_k")}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("background", True),
        ("conversation", "conv_1"),
        ("prompt", {"id": "p"}),
        ("tool_choice", {"type": "web_search"}),
        ("mcp_servers", [{"url": "x"}]),
        ("container", "c"),
    ],
)
def test_refused_fields(name: str, value: object) -> None:
    """Build 3: a field whose loss would change what the caller gets is refused, named with its fix."""
    with pytest.raises(UnsupportedFeature, match=f"`{name}` has no counterpart") as raised:
        _cross(_request(unknown={name: value}))
    assert raised.value.param == name


def test_previous_response_id() -> None:
    """wires.md 1.8: server-held state is refused until there is some."""
    with pytest.raises(UnsupportedFeature, match=r"'resp_1'.*send the whole conversation") as raised:
        _cross(_request(previous_response_id="resp_1"))
    assert raised.value.info().code == "previous_response_not_found"


def test_provider_tools() -> None:
    """Build 3: a droppable provider tool is dropped; the choice goes with the last tool."""
    tool = ProviderTool(type="web_search", value={"type": "web_search"}, origin=Origin(Wire.RESPONSES))
    body, notes = _cross(_request(tools=(tool,), tool_choice=ToolChoice(mode=ChoiceMode.AUTO)))
    assert body == {"model": "m", "messages": []}
    assert notes == {("tool_dropped", "web_search")}


def test_same_history_same_bytes() -> None:
    """Design 2.6: the same client history gives the same upstream bytes."""
    request = _request(
        _message("assistant", _call("functions.f:0"), Reasoning(text="x")),
        _message("tool", ToolResult(call_id="functions.f:0", content=(_PNG,))),
        tools=(Tool(name="bad name", namespace="ns"),),
    )
    assert json.dumps(_cross(request)[0]) == json.dumps(_cross(request)[0])
