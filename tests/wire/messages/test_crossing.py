"""Requests of other wires, or of none, written for a Messages upstream."""

import base64
from typing import Any

import pytest

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import UnsupportedFeature
from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import (
    Audio,
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
    ToolResult,
    Unknown,
)
from mustcall.core.request import OutputFormat, OutputKind, ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import ChoiceMode, ProviderTool, Tool, ToolChoice
from mustcall.wire.codec import Target
from mustcall.wire.messages import MessagesCodec

OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


def user(*parts: Part | str) -> Message:
    """A user message."""
    return Message(role=Role.USER, parts=tuple(Text(text=part) if isinstance(part, str) else part for part in parts))


def assistant(*parts: Part) -> Message:
    """An assistant message."""
    return Message(role=Role.ASSISTANT, parts=parts)


def tool(*results: ToolResult) -> Message:
    """A message of results."""
    return Message(role=Role.TOOL, parts=results)


def system(text: str, role: Role = Role.SYSTEM) -> Message:
    """A system or developer message."""
    return Message(role=role, parts=(Text(text=text),))


def ask(*messages: Message, **settings: Any) -> Request:
    """A request that came from the chat wire."""
    settings.setdefault("origin", Origin(Wire.CHAT))
    return Request(model="m", messages=messages, **settings)


def encode(request: Request, default_max_tokens: int = 8192) -> tuple[dict[str, Any], list[str]]:
    """Encode and return the body and what was noted, as `kind subject`."""
    log = AdaptationLog()
    body = MessagesCodec().encode_request(request, Target(issuer="up", default_max_tokens=default_max_tokens), log)
    return body, [f"{entry.kind} {entry.subject}" for entry in log.entries]


def test_leading_system_messages_are_hoisted() -> None:
    """One system message becomes a string, several become blocks, instructions first."""
    body, _ = encode(ask(system("A"), user("Hi"), max_tokens=5))
    assert body == {"model": "m", "system": "A", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
    own = Message(role=Role.SYSTEM, parts=(Text(text="I"),))
    body, _ = encode(ask(system("A"), system("B", Role.DEVELOPER), user("Hi"), system=own))
    assert body["system"] == [{"type": "text", "text": text} for text in "IAB"]


def test_later_system_messages_stay_in_place() -> None:
    """wires.md 1.12: a late system message stays where it is as marked user text, and that is noted."""
    body, noted = encode(ask(user("Hi"), system("Be brief"), assistant(Text(text="Yes")), system("Stop")))
    assert body["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Hi"},
                {"type": "text", "text": "<system>\nBe brief\n</system>"},
            ],
        },
        {"role": "assistant", "content": "Yes"},
        {"role": "user", "content": "<system>\nStop\n</system>"},
    ]
    assert "message_moved system" in noted
    assert "system" not in body


def test_neighbours_are_joined_and_results_come_first() -> None:
    """wires.md 1.12: user messages in a row become one turn, with its tool results in front."""
    call = ToolCall(id="a", name="f", arguments_json='{"x":1}')
    result = ToolResult(call_id="a", content=(Text(text="42"),))
    body, noted = encode(
        ask(user("Hi"), user("there"), assistant(call), user("wait"), tool(result), tools=(Tool(name="f"),))
    )
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "42"},
                {"type": "text", "text": "wait"},
            ],
        },
    ]
    assert "message_moved tool_result" in noted


def test_parallel_results_share_a_turn() -> None:
    """Each chat tool message becomes a block of one user turn: the wire wants all results in the next turn."""
    calls = (ToolCall(id="a", name="f", arguments_json="{}"), ToolCall(id="b", name="f", arguments_json="{}"))
    results = tuple(tool(ToolResult(call_id=call.id, content=(Text(text=call.id),))) for call in calls)
    body, noted = encode(ask(user("Hi"), assistant(*calls), *results, tools=(Tool(name="f", parameters=OBJECT),)))
    assert [block["tool_use_id"] for block in body["messages"][2]["content"]] == ["a", "b"]
    assert noted == ["field_defaulted max_tokens"]


def test_empty_texts_are_left_out() -> None:
    """Empty text blocks are refused by the wire; wires.md 1.12: assistant content may be an empty string."""
    body, _ = encode(ask(user("Hi", ""), assistant(Text(text="")), user("x"), tools=()))
    assert body["messages"] == [{"role": "user", "content": "Hi"}, {"role": "user", "content": "x"}]


def test_history_without_tools_gets_stubs() -> None:
    """wires.md 1.13: calls in history without tools on offer are given stub tools and choice none (rule 104)."""
    call = ToolCall(id="a", name="f", arguments_json="{}")
    body, noted = encode(ask(user("Hi"), assistant(call), tool(ToolResult(call_id="a"))))
    assert body["tools"] == [{"name": "f", "input_schema": OBJECT}]
    assert body["tool_choice"] == {"type": "none"}
    assert "tool_added f" in noted


def test_ids_are_made_legal_on_both_sides() -> None:
    """Kimi's ids are mapped the same way in the call and its result."""
    call = ToolCall(id="functions.Bash:0", name="Bash", arguments_json="{}")
    body, noted = encode(
        ask(user("Hi"), assistant(call), tool(ToolResult(call_id=call.id)), tools=(Tool(name="Bash"),))
    )
    sent = body["messages"][1]["content"][0]["id"]
    assert sent == body["messages"][2]["content"][0]["tool_use_id"]
    assert sent.replace("_", "").isalnum()
    assert "id_mapped functions.Bash:0" in noted


def test_namespaces_are_flattened() -> None:
    """wires.md 1.9: a namespaced tool goes out flat, in the offer, the history and the choice."""
    spawn = Tool(name="spawn", namespace="agents", parameters=OBJECT, origin=Origin(Wire.RESPONSES))
    call = ToolCall(id="a", name="spawn", namespace="agents", arguments_json="{}")
    choice = ToolChoice(mode=ChoiceMode.NAMED, name="spawn", namespace="agents")
    other = Tool(name="f", parameters=OBJECT)
    body, noted = encode(ask(user("Hi"), assistant(call), user("x"), tools=(spawn, other), tool_choice=choice))
    assert body["tools"][0]["name"] == "agents__spawn"
    assert body["messages"][1]["content"][0]["name"] == "agents__spawn"
    assert body["tool_choice"] == {"type": "tool", "name": "agents__spawn"}
    assert "name_mapped spawn" in noted


def test_custom_tools_become_functions() -> None:
    """wires.md 1.9: a custom tool and its calls go out as a function with one input string."""
    patch = Tool(name="apply_patch", kind=CallKind.CUSTOM, origin=Origin(Wire.RESPONSES))
    call = ToolCall(id="a", name="apply_patch", arguments_json='*** "Begin"', kind=CallKind.CUSTOM)
    body, noted = encode(ask(user("Hi"), assistant(call), user("x"), tools=(patch,)))
    assert body["tools"][0]["input_schema"]["required"] == ["input"]
    assert body["messages"][1]["content"][0]["input"] == {"input": '*** "Begin"'}
    assert "tool_reshaped apply_patch" in noted


@pytest.mark.parametrize("text", ["not json", "[1]", '"{}"', "{", "7"])
def test_broken_history_arguments_are_wrapped(text: str) -> None:
    """Rule 107: arguments that are no object are carried as text, never replaced by {}."""
    call = ToolCall(id="a", name="f", arguments_json=text)
    body, noted = encode(ask(user("Hi"), assistant(call), user("x"), tools=(Tool(name="f", parameters=OBJECT),)))
    assert body["messages"][1]["content"][0]["input"] == {"_raw_arguments": text}
    assert "part_reshaped f" in noted


@pytest.mark.parametrize(("required", "sent"), [([], {}), (["x"], {"_raw_arguments": ""})])
def test_empty_history_arguments(required: list[str], sent: dict[str, str]) -> None:
    """Rule 131: no arguments are {} only where nothing is required."""
    call = ToolCall(id="a", name="f", arguments_json="")
    offered = Tool(name="f", parameters={**OBJECT, "required": required})
    body, noted = encode(ask(user("Hi"), assistant(call), user("x"), tools=(offered,)))
    assert body["messages"][1]["content"][0]["input"] == sent
    assert "part_reshaped f" in noted


def test_reasoning_is_sent_only_with_its_own_state() -> None:
    """Rule 124: state of this upstream goes back as the block it issued; any other reasoning is dropped."""
    block = {"type": "thinking", "thinking": "Exactly this", "signature": "s"}
    mine = Reasoning(summary=("changed by the client",), state=OpaqueState(Wire.MESSAGES, block, "up"))
    other = Reasoning(text="b", state=OpaqueState(Wire.MESSAGES, {**block, "signature": "t"}, "elsewhere"))
    chat = Reasoning(text="c", state=OpaqueState(Wire.CHAT, {"field": "reasoning_content"}, "up"))
    none = Reasoning(text="d")
    body, noted = encode(ask(user("Hi"), assistant(other, chat, none, Text(text="Yes"), mine), user("x")))
    assert body["messages"][1]["content"] == [block, {"type": "text", "text": "Yes"}]
    assert "state_dropped reasoning" in noted


def test_interleaved_thinking_keeps_its_order() -> None:
    """A turn that begins with thinking is left in order: the upstream wants its blocks back as they were."""
    blocks = [{"type": "thinking", "thinking": t, "signature": t} for t in "ab"]
    first, second = (Reasoning(text=b["thinking"], state=OpaqueState(Wire.MESSAGES, b, "up")) for b in blocks)
    body, _ = encode(ask(user("Hi"), assistant(first, Text(text="mid"), second), user("x")))
    assert body["messages"][1]["content"] == [blocks[0], {"type": "text", "text": "mid"}, blocks[1]]


def test_redacted_state_goes_back_redacted() -> None:
    """The state remembers which kind of block it was."""
    data = {"type": "redacted_thinking", "data": "x"}
    body, _ = encode(ask(user("Hi"), assistant(Reasoning(state=OpaqueState(Wire.MESSAGES, data, "up"))), user("x")))
    assert body["messages"][1]["content"] == [data]


@pytest.mark.parametrize(
    ("effort", "thinking", "limit"),
    [
        ("low", {"type": "enabled", "budget_tokens": 2048}, 4000),
        ("medium", {"type": "enabled", "budget_tokens": 8192}, 12192),
        ("high", {"type": "enabled", "budget_tokens": 24576}, 28576),
        ("minimal", None, 4000),
        ("none", None, 4000),
    ],
)
def test_effort_becomes_a_budget(effort: str, thinking: dict[str, Any] | None, limit: int) -> None:
    """Effort becomes a thinking budget, and max_tokens is raised above it where needed."""
    body, noted = encode(ask(user("Hi"), reasoning=ReasoningConfig(effort=effort), max_tokens=4000, temperature=0.2))
    assert body.get("thinking") == thinking
    assert body["max_tokens"] == limit
    assert ("temperature" in body) is (thinking is None)
    assert "field_mapped reasoning.effort" in noted
    assert ("field_dropped temperature" in noted) is (thinking is not None)
    assert ("value_clamped max_tokens" in noted) is (limit > 4000)


def test_thinking_is_left_out_where_it_would_be_refused() -> None:
    """Thinking asked for by effort yields to a forced choice and to a tool loop that began without thinking."""
    offered = (Tool(name="f", parameters=OBJECT),)
    hard = ReasoningConfig(effort="high")
    body, noted = encode(
        ask(user("Hi"), reasoning=hard, tools=offered, tool_choice=ToolChoice(mode=ChoiceMode.REQUIRED))
    )
    assert "thinking" not in body
    assert "field_dropped reasoning" in noted
    call, result = ToolCall(id="a", name="f", arguments_json="{}"), ToolResult(call_id="a")
    body, noted = encode(ask(user("Hi"), assistant(call), tool(result), reasoning=hard, tools=offered))
    assert "thinking" not in body
    assert "field_dropped reasoning" in noted
    body, _ = encode(
        ask(
            user("Hi"),
            assistant(call),
            tool(result),
            user("x"),
            assistant(Text(text="y")),
            user("z"),
            reasoning=hard,
            tools=offered,
        )
    )
    assert body["thinking"]["type"] == "enabled"


def test_explicit_modes() -> None:
    """Disabled and adaptive thinking are spelled as such; enabled without a budget gets one."""
    body, _ = encode(ask(user("Hi"), reasoning=ReasoningConfig(mode=ReasoningMode.DISABLED)))
    assert body["thinking"] == {"type": "disabled"}
    body, noted = encode(
        ask(user("Hi"), reasoning=ReasoningConfig(mode=ReasoningMode.ADAPTIVE, effort="high", summary="auto"))
    )
    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": "high"}
    assert "field_dropped reasoning.summary" in noted
    body, noted = encode(ask(user("Hi"), reasoning=ReasoningConfig(mode=ReasoningMode.ENABLED)))
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 8192}
    assert "field_defaulted thinking.budget_tokens" in noted


def test_sampling_is_clamped() -> None:
    """Temperatures above 1 are clamped; top_p yields to temperature; the default limit is noted."""
    body, noted = encode(ask(user("Hi"), temperature=1.7, top_p=0.9), default_max_tokens=77)
    assert body["temperature"] == 1
    assert "top_p" not in body
    assert body["max_tokens"] == 77
    assert noted == ["field_defaulted max_tokens", "value_clamped temperature", "field_dropped top_p"]


def test_stops() -> None:
    """wires.md 1.14: stop strings are carried; white space alone is refused by the wire and noted."""
    body, noted = encode(ask(user("Hi"), stop=("Observation:", "\n"), max_tokens=5))
    assert body["stop_sequences"] == ["Observation:"]
    assert noted == ["value_clamped stop"]


@pytest.mark.parametrize(
    ("output", "config", "noted"),
    [
        (
            OutputFormat(kind=OutputKind.SCHEMA, schema=OBJECT, name="a", strict=True),
            {"format": {"type": "json_schema", "schema": OBJECT}},
            [],
        ),
        (OutputFormat(kind=OutputKind.JSON), None, ["field_dropped response_format"]),
        (OutputFormat(kind=OutputKind.TEXT), None, []),
        (OutputFormat(kind=OutputKind.SCHEMA), None, ["field_dropped response_format"]),
    ],
)
def test_output_formats(output: OutputFormat, config: dict[str, Any] | None, noted: list[str]) -> None:
    """A schema is carried; json_object has no counterpart."""
    body, log = encode(ask(user("Hi"), output=output, max_tokens=5))
    assert body.get("output_config") == config
    assert log == noted


@pytest.mark.parametrize(
    ("mode", "parallel", "sent"),
    [
        (None, None, None),
        (None, True, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        (ChoiceMode.AUTO, None, {"type": "auto"}),
        (ChoiceMode.AUTO, True, {"type": "auto", "disable_parallel_tool_use": False}),
        (ChoiceMode.REQUIRED, False, {"type": "any", "disable_parallel_tool_use": True}),
        (ChoiceMode.NAMED, None, {"type": "tool", "name": "f"}),
        (ChoiceMode.NONE, False, {"type": "none"}),
    ],
)
def test_choices(mode: ChoiceMode | None, parallel: bool | None, sent: dict[str, Any] | None) -> None:
    """Rules 2 and 3: each choice in the wire's own form, none where none was made."""
    choice = None if mode is None else ToolChoice(mode=mode, name="f" if mode is ChoiceMode.NAMED else None)
    offered = (Tool(name="f", parameters=OBJECT), Tool(name="g", parameters=OBJECT))
    body, _ = encode(ask(user("Hi"), tools=offered, tool_choice=choice, parallel_tool_calls=parallel))
    assert body.get("tool_choice") == sent


def test_forcing_the_only_tool() -> None:
    """Rule 6: the only tool on offer is forced by `any`."""
    choice = ToolChoice(mode=ChoiceMode.NAMED, name="f")
    body, noted = encode(ask(user("Hi"), tools=(Tool(name="f", parameters=OBJECT),), tool_choice=choice, max_tokens=5))
    assert body["tool_choice"] == {"type": "any"}
    assert noted == ["field_mapped tool_choice"]


def test_choice_without_tools() -> None:
    """Rule 4: no tools, no tool_choice."""
    body, _ = encode(ask(user("Hi"), tool_choice=ToolChoice(mode=ChoiceMode.REQUIRED)))
    assert "tool_choice" not in body


@pytest.mark.parametrize(
    ("parameters", "sent"),
    [
        (None, OBJECT),
        ({}, {"type": "object"}),
        ({"properties": {"a": {}}}, {"properties": {"a": {}}, "type": "object"}),
        ({"type": ["object", "null"]}, {"type": "object"}),
    ],
)
def test_schemas_always_have_type_object(parameters: dict[str, Any] | None, sent: dict[str, Any]) -> None:
    """wires.md 1.12: a function without parameters, or without a type, gets the one the wire demands."""
    body, _ = encode(ask(user("Hi"), tools=(Tool(name="f", parameters=parameters),)))
    assert body["tools"] == [{"name": "f", "input_schema": sent}]


def test_strict_and_foreign_tool_fields() -> None:
    """wires.md 1.11: strict true is carried, false is the default and left out, unknown fields are noted."""
    origin = Origin(Wire.CHAT, {"cache_control": {}})
    offered = (
        Tool(name="f", parameters=OBJECT, strict=True, origin=origin),
        Tool(name="g", parameters=OBJECT, strict=False, origin=origin),
    )
    body, noted = encode(ask(user("Hi"), tools=offered, max_tokens=5))
    assert [entry.get("strict") for entry in body["tools"]] == [True, None]
    assert noted == ["field_dropped cache_control"]


def test_provider_tools() -> None:
    """wires.md 1.9: a web search is dropped and noted, a shell refused by name."""
    search = ProviderTool(type="web_search", value={"type": "web_search"}, origin=Origin(Wire.RESPONSES))
    body, noted = encode(ask(user("Hi"), tools=(search,), max_tokens=5))
    assert "tools" not in body
    assert noted == ["tool_dropped web_search"]
    shell = ProviderTool(type="shell", value={"type": "shell"}, origin=Origin(Wire.RESPONSES))
    with pytest.raises(UnsupportedFeature, match="shell"):
        encode(ask(user("Hi"), tools=(shell,)))


def test_media() -> None:
    """Images and files by every way they come; a text file becomes a text document."""
    parts: tuple[Part, ...] = (
        Image(url="data:image/png;base64,aW1n", detail="high"),
        Image(url="https://x/y.png"),
        Image(data="aW1n", media_type="image/gif"),
        File(data="data:application/pdf;base64,JVBERi0=", name="a.pdf"),
        File(data=base64.b64encode(b"hello").decode(), media_type="text/markdown", name="a.md"),
        File(file_id="file-1"),
        File(url="https://x/y.pdf"),
    )
    body, noted = encode(ask(user(*parts), max_tokens=5))
    assert body["messages"][0]["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aW1n"}},
        {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "aW1n"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
            "title": "a.pdf",
        },
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hello"}, "title": "a.md"},
        {"type": "document", "source": {"type": "file", "file_id": "file-1"}},
        {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}},
    ]
    assert noted == ["field_dropped detail", "part_reshaped file"]


def test_audio_is_refused() -> None:
    """The wire has no audio; the error says what to do."""
    with pytest.raises(UnsupportedFeature, match="transcript"):
        encode(ask(user(Audio(data="x", format="wav"))))


def test_results_with_images_and_errors() -> None:
    """wires.md 1.10: images stay inside the result here; errors are marked; foreign parts become JSON text."""
    result = ToolResult(
        call_id="a",
        content=(
            Text(text="see"),
            Image(data="aW1n", media_type="image/png"),
            Unknown(wire=Wire.RESPONSES, type="q", value={"type": "q"}),
        ),
        is_error=True,
    )
    call = ToolCall(id="a", name="f", arguments_json="{}")
    body, _ = encode(ask(user("Hi"), assistant(call), tool(result), tools=(Tool(name="f"),)))
    assert body["messages"][2]["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "a",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aW1n"}},
                {"type": "text", "text": '{"type":"q"}'},
            ],
            "is_error": True,
        }
    ]


def test_foreign_parts_and_fields_are_noted() -> None:
    """Refusals become text; items only another wire knows are dropped; unknown fields are noted once per name."""
    item = ProviderItem(wire=Wire.RESPONSES, type="web_search_call", value={})
    cached = Origin(Wire.CHAT, {"cache_control": {}})
    named = Message(
        role=Role.USER,
        parts=(Text(text="a", origin=cached), Text(text="b", origin=cached)),
        origin=Origin(Wire.CHAT, {"name": "bob"}),
    )
    body, noted = encode(ask(named, assistant(Refusal(text="No"), item), user("x"), max_tokens=5))
    assert body["messages"][1] == {"role": "assistant", "content": "No"}
    assert noted == ["field_dropped name", "field_dropped cache_control", "part_dropped web_search_call"]


def test_foreign_top_level_fields() -> None:
    """Shared fields are carried, the user is mapped, inert ones vanish, the rest is noted."""
    fields = {
        "top_k": 5,
        "user": "u",
        "seed": 1,
        "n": 1,
        "store": False,
        "logit_bias": None,
        "thinking": {"type": "enabled"},
    }
    body, noted = encode(ask(user("Hi"), origin=Origin(Wire.CHAT, fields), max_tokens=5))
    assert body["top_k"] == 5
    assert body["metadata"] == {"user_id": "u"}
    assert "thinking" not in body
    assert noted == ["field_mapped user", "field_dropped seed", "field_dropped thinking"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("n", 2), ("background", True), ("conversation", "c"), ("prompt", {"id": "p"}), ("modalities", ["text", "audio"])],
)
def test_refused_fields(name: str, value: Any) -> None:
    """What would change the answer is refused by name."""
    with pytest.raises(UnsupportedFeature) as caught:
        encode(ask(user("Hi"), origin=Origin(Wire.CHAT, {name: value})))
    assert caught.value.param == name


def test_previous_response_is_refused() -> None:
    """wires.md 1.8: a conversation held elsewhere cannot be continued."""
    with pytest.raises(UnsupportedFeature) as caught:
        encode(ask(user("Hi"), previous_response_id="resp_1"))
    assert caught.value.param == "previous_response_id"


def test_encoding_is_deterministic() -> None:
    """The same request gives the same bytes (rule 105)."""
    call = ToolCall(id="we:ird", name="f.g", arguments_json='{"b":1,"a":2}')
    request = ask(
        system("S"), user("Hi"), assistant(call), tool(ToolResult(call_id="we:ird")), tools=(Tool(name="f.g"),)
    )
    assert encode(request) == encode(request)
