"""Requests of other wires, written for a Responses upstream: what is carried, reshaped, noted and refused."""

from collections.abc import Callable
from typing import Any

import pytest

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
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
    Text,
    ToolCall,
    ToolReference,
    ToolResult,
    Unknown,
)
from mustcall.core.request import OutputFormat, OutputKind, ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import ChoiceMode, ProviderTool, Tool, ToolChoice
from mustcall.wire.codec import Provenance, Target
from mustcall.wire.responses import ResponsesCodec

STATELESS = {"store": False, "include": ["reasoning.encrypted_content"]}
USER_ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
DEFAULTED = {(AdaptationKind.FIELD_DEFAULTED, "store"), (AdaptationKind.FIELD_DEFAULTED, "include")}


def message(wire: Wire, role: Role, *parts: Part, **fields: Any) -> Message:
    """Return a message as that wire's codec reads it."""
    return Message(role=role, parts=parts, origin=Origin(wire, fields, {"as": "it came"}))


def request(wire: Wire, *messages: Message, fields: dict[str, Any] | None = None, **settings: Any) -> Request:
    """Return a request as that wire's codec reads it."""
    said = messages or (message(wire, Role.USER, Text(text="hi")),)
    origin = Origin(wire, fields or {}, {"as": "it came"})
    return Request(model="m", messages=said, origin=origin, **settings)


def write(asked: Request, issuer: str = "up") -> tuple[dict[str, Any], set[tuple[AdaptationKind, str]]]:
    """Return the body and the notes, without the two that every crossing has."""
    log = AdaptationLog()
    written = ResponsesCodec().encode_request(asked, Target(issuer=issuer), log)
    return written, {(entry.kind, entry.subject) for entry in log.entries} - DEFAULTED


def items(*messages: Message) -> tuple[list[Any], set[tuple[AdaptationKind, str]]]:
    """Return the items messages are written as, and the notes."""
    written, notes = write(request(messages[0].origin.wire if messages[0].origin else Wire.CHAT, *messages))
    return written["input"], notes


def test_without_server_state() -> None:
    """A request of another wire is sent without server state and asks for reasoning it can carry back."""
    assert write(request(Wire.CHAT)) == ({"model": "m", "input": [USER_ITEM], **STATELESS}, set())


def test_explicit_store_is_kept() -> None:
    """A chat caller's own `store` is not overruled."""
    written, _ = write(request(Wire.CHAT, fields={"store": True}))
    assert written["store"] is True


def test_null_store_is_no_store() -> None:
    """A `store` that says nothing does not turn server state on, which is this wire's default."""
    written, _ = write(request(Wire.CHAT, fields={"store": None}))
    assert written["store"] is False


def test_settings() -> None:
    """Every canonical setting has its Responses name."""
    written, notes = write(
        request(
            Wire.CHAT,
            system=Message(role=Role.SYSTEM, parts=(Text(text="A."), Text(text="B."))),
            max_tokens=100,
            temperature=0.5,
            top_p=0.9,
            parallel_tool_calls=False,
            reasoning=ReasoningConfig(effort="low"),
            output=OutputFormat(kind=OutputKind.SCHEMA, schema={"type": "object"}, name="n", strict=True),
            stream=True,
        )
    )
    assert written == {
        "model": "m",
        "input": [USER_ITEM],
        "instructions": "A.\n\nB.",
        "max_output_tokens": 100,
        "temperature": 0.5,
        "top_p": 0.9,
        "parallel_tool_calls": False,
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}},
        "stream": True,
        **STATELESS,
    }
    assert notes == set()


def test_stop_is_dropped_with_a_note() -> None:
    """Responses has no stop sequences."""
    written, notes = write(request(Wire.CHAT, stop=("END",)))
    assert "stop" not in written
    assert notes == {(AdaptationKind.FIELD_DROPPED, "stop")}


def test_tiny_limit_is_raised() -> None:
    """Responses refuses limits below 16; Messages clients probe with 1."""
    written, notes = write(request(Wire.MESSAGES, max_tokens=1))
    assert written["max_output_tokens"] == 16
    assert notes == {(AdaptationKind.VALUE_CLAMPED, "max_output_tokens")}


def test_fields_of_chat() -> None:
    """Fields that mean the same are carried, `verbosity` moves, others are dropped with a note each."""
    fields = {"user": "u", "metadata": {"a": "b"}, "verbosity": "low", "seed": 7, "n": 1, "logit_bias": {}}
    written, notes = write(request(Wire.CHAT, fields=fields))
    assert (written["user"], written["metadata"], written["text"]) == ("u", {"a": "b"}, {"verbosity": "low"})
    assert notes == {
        (AdaptationKind.FIELD_MAPPED, "verbosity"),
        (AdaptationKind.FIELD_DROPPED, "seed"),
        (AdaptationKind.FIELD_DROPPED, "n"),
        (AdaptationKind.FIELD_DROPPED, "logit_bias"),
    }
    assert {"seed", "n", "logit_bias", "verbosity"}.isdisjoint(written)


def test_fields_of_messages() -> None:
    """wires.md 1.4: fields only Anthropic knows are dropped with a note each, metadata of its own meaning too."""
    fields: dict[str, Any] = {"metadata": {"user_id": "{}"}, "context_management": {"edits": []}, "top_k": 5}
    written, notes = write(request(Wire.MESSAGES, fields=fields))
    assert set(written) == {"model", "input", "store", "include"}
    assert notes == {(AdaptationKind.FIELD_DROPPED, name) for name in fields}


REFUSED_FIELDS: list[tuple[Wire, dict[str, Any]]] = [
    (Wire.CHAT, {"n": 2}),
    (Wire.CHAT, {"modalities": ["text", "audio"]}),
    (Wire.CHAT, {"audio": {"voice": "x"}}),
    (Wire.CHAT, {"logprobs": True}),
    (Wire.CHAT, {"functions": [{}]}),
    (Wire.CHAT, {"tool_choice": {"type": "else"}}),
    (Wire.MESSAGES, {"mcp_servers": [{}]}),
    (Wire.MESSAGES, {"container": "c"}),
    (Wire.MESSAGES, {"thread": {"type": "create"}}),
]


@pytest.mark.parametrize(("wire", "fields"), REFUSED_FIELDS)
def test_refused_fields(wire: Wire, fields: dict[str, Any]) -> None:
    """What would change the answer is refused by name, not dropped."""
    with pytest.raises(UnsupportedFeature) as caught:
        write(request(wire, fields=fields))
    assert caught.value.param == next(iter(fields))


def test_tools_are_explicitly_not_strict() -> None:
    """Absent `strict` means strict on this wire only, so it is written; `strict` that was said is kept."""
    tools = (
        Tool(name="a", description="A.", parameters={"type": "object"}, origin=Origin(Wire.CHAT)),
        Tool(name="b", parameters=None, strict=True, origin=Origin(Wire.MESSAGES, {"cache_control": {}})),
    )
    written, notes = write(request(Wire.CHAT, tools=tools, tool_choice=ToolChoice(mode=ChoiceMode.NAMED, name="a")))
    assert written["tools"] == [
        {"type": "function", "name": "a", "description": "A.", "parameters": {"type": "object"}, "strict": False},
        {"type": "function", "name": "b", "parameters": {"type": "object", "properties": {}}, "strict": True},
    ]
    assert written["tool_choice"] == {"type": "function", "name": "a"}
    assert notes == {(AdaptationKind.FIELD_DROPPED, "cache_control")}


def test_custom_tool_of_chat() -> None:
    """A custom tool stays custom; chat's nested grammar becomes the flat one, a choice of it names its kind."""
    form = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}}
    tool = Tool(name="p", kind=CallKind.CUSTOM, format=form, origin=Origin(Wire.CHAT))
    choice = ToolChoice(mode=ChoiceMode.NAMED, name="p")
    written, _ = write(request(Wire.CHAT, tools=(tool,), tool_choice=choice))
    flat = {"type": "grammar", "syntax": "lark", "definition": "start: x"}
    assert written["tools"] == [{"type": "custom", "name": "p", "format": flat}]
    assert written["tool_choice"] == {"type": "custom", "name": "p"}


def test_illegal_names_are_mapped_alike() -> None:
    """A name this wire refuses is mapped the same way in tools, choice and history."""
    tool = Tool(name="a.b", parameters={}, origin=Origin(Wire.CHAT))
    call = message(Wire.CHAT, Role.ASSISTANT, ToolCall(id="c", name="a.b", arguments_json="{}"))
    written, notes = write(
        request(Wire.CHAT, call, tools=(tool,), tool_choice=ToolChoice(mode=ChoiceMode.NAMED, name="a.b"))
    )
    name = written["tools"][0]["name"]
    assert name.startswith("a_b_")
    assert (written["tool_choice"]["name"], written["input"][0]["name"]) == (name, name)
    assert (AdaptationKind.NAME_MAPPED, "a.b") in notes


def test_provider_tools_of_messages() -> None:
    """wires.md 1.6: a server tool the agent can do without is dropped, any other is refused."""
    search = ProviderTool(type="web_search_20250305", value={}, origin=Origin(Wire.MESSAGES))
    written, notes = write(request(Wire.MESSAGES, tools=(search,), tool_choice=ToolChoice(mode=ChoiceMode.AUTO)))
    assert {"tools", "tool_choice"}.isdisjoint(written)
    assert notes == {(AdaptationKind.TOOL_DROPPED, "web_search_20250305")}
    shell = ProviderTool(type="bash_20250124", value={}, origin=Origin(Wire.MESSAGES))
    with pytest.raises(UnsupportedFeature, match="bash_20250124"):
        write(request(Wire.MESSAGES, tools=(shell,)))


def test_deferred_tools() -> None:
    """wires.md 1.5: a deferred tool is offered once a result referred to it; the reference becomes text."""
    tools = tuple(
        Tool(name=name, parameters={}, deferred=True, origin=Origin(Wire.MESSAGES))
        for name in ("DeferredToolPlaceholder", "WebFetch")
    )
    result = ToolResult(call_id="c", content=(ToolReference(name="WebFetch"),))
    written, notes = write(request(Wire.MESSAGES, message(Wire.MESSAGES, Role.USER, result), tools=tools))
    assert [tool["name"] for tool in written["tools"]] == ["WebFetch"]
    assert "defer_loading" not in written["tools"][0]
    assert written["input"][0]["output"] == "The tool WebFetch is now available."
    assert (AdaptationKind.PART_RESHAPED, "tool_reference") in notes


def test_history_of_chat() -> None:
    """Rule 77: calls become `function_call` items and each result is an output with the call's own id, made legal."""
    written, notes = items(
        message(
            Wire.CHAT,
            Role.ASSISTANT,
            Text(text="Ok."),
            ToolCall(id="functions.Bash:0", name="Bash", arguments_json='{"a":1}'),
            ToolCall(id="call_2", name="Bash", arguments_json=""),
            name="bot",
        ),
        message(Wire.CHAT, Role.TOOL, ToolResult(call_id="functions.Bash:0", content=(Text(text="out"),))),
        message(Wire.CHAT, Role.TOOL, ToolResult(call_id="call_2", content=(Text(text="a"), Text(text="b")))),
    )
    legal = written[1]["call_id"]
    assert legal.startswith("functions_Bash_0_")
    assert written == [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Ok."}]},
        {"type": "function_call", "call_id": legal, "name": "Bash", "arguments": '{"a":1}'},
        {"type": "function_call", "call_id": "call_2", "name": "Bash", "arguments": ""},
        {"type": "function_call_output", "call_id": legal, "output": "out"},
        {"type": "function_call_output", "call_id": "call_2", "output": "a\nb"},
    ]
    assert notes == {
        (AdaptationKind.ID_MAPPED, "functions.Bash:0"),
        (AdaptationKind.FIELD_DROPPED, "name"),
    }


def test_custom_history_keeps_its_kind() -> None:
    """The result of a custom call is a custom result, although chat's own form does not say so."""
    written, _ = items(
        message(Wire.CHAT, Role.ASSISTANT, ToolCall(id="c", name="p", arguments_json="x", kind=CallKind.CUSTOM)),
        message(Wire.CHAT, Role.TOOL, ToolResult(call_id="c", content=(Text(text="ok"),))),
    )
    assert written == [
        {"type": "custom_tool_call", "call_id": "c", "name": "p", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
    ]


def test_results_with_media() -> None:
    """wires.md 1.6: a Messages user turn of results and text is split; images stay in their result, errors in words."""
    written, notes = items(
        message(
            Wire.MESSAGES,
            Role.USER,
            ToolResult(
                call_id="t1",
                content=(
                    Text(text="shot", origin=Origin(Wire.MESSAGES, {"cache_control": {}})),
                    Image(data="AA", media_type="image/png"),
                ),
            ),
            ToolResult(call_id="t2", content=(Text(text="no such file"),), is_error=True),
            Text(text="go on", origin=Origin(Wire.MESSAGES, {"cache_control": {}})),
        )
    )
    assert written == [
        {
            "type": "function_call_output",
            "call_id": "t1",
            "output": [
                {"type": "input_text", "text": "shot"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA"},
            ],
        },
        {"type": "function_call_output", "call_id": "t2", "output": "Error: no such file"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]},
    ]
    assert notes == {
        (AdaptationKind.FIELD_DROPPED, "cache_control"),
        (AdaptationKind.PART_RESHAPED, "tool_result"),
    }


def test_media_of_other_wires() -> None:
    """Images and files go inline or by URL; file ids of another provider and foreign parts are dropped."""
    written, notes = items(
        message(
            Wire.MESSAGES,
            Role.USER,
            Image(url="https://example.com/a.png"),
            File(data="BB", media_type="application/pdf", origin=Origin(Wire.MESSAGES)),
            File(text="plain", name="a.txt"),
            Audio(data="CC", format="mp3"),
            Image(file_id="file_1", origin=Origin(Wire.MESSAGES)),
            Unknown(wire=Wire.MESSAGES, type="search_result", value={}),
        )
    )
    assert written[0]["content"] == [
        {"type": "input_image", "image_url": "https://example.com/a.png"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,BB", "filename": "document.pdf"},
        {"type": "input_text", "text": "plain"},
        {"type": "input_audio", "input_audio": {"data": "CC", "format": "mp3"}},
    ]
    assert notes == {
        (AdaptationKind.FIELD_DEFAULTED, "filename"),
        (AdaptationKind.PART_RESHAPED, "file"),
        (AdaptationKind.PART_DROPPED, "image"),
        (AdaptationKind.PART_DROPPED, "search_result"),
    }


def test_system_messages_inside() -> None:
    """wires.md 1.3: system messages stay where they are, the billing header of the system prompt is left out."""
    system = message(
        Wire.MESSAGES,
        Role.SYSTEM,
        Text(text="x-anthropic-billing-header: cc_version=1"),
        Text(text="You are an agent.", origin=Origin(Wire.MESSAGES, {"cache_control": {"type": "ephemeral"}})),
    )
    inside = message(Wire.MESSAGES, Role.SYSTEM, Text(text="Today."), output_config={"effort": "low"})
    written, notes = write(
        request(Wire.MESSAGES, message(Wire.MESSAGES, Role.USER, Text(text="hi")), inside, system=system)
    )
    assert written["instructions"] == "You are an agent."
    assert written["input"] == [
        USER_ITEM,
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Today."}]},
    ]
    assert notes == {
        (AdaptationKind.PART_DROPPED, "system"),
        (AdaptationKind.FIELD_DROPPED, "cache_control"),
        (AdaptationKind.FIELD_DROPPED, "output_config"),
    }


@pytest.mark.parametrize(
    ("config", "expected", "notes"),
    [
        (ReasoningConfig(mode=ReasoningMode.ADAPTIVE), None, set[tuple[AdaptationKind, str]]()),
        (
            ReasoningConfig(mode=ReasoningMode.ENABLED, budget_tokens=31_999),
            {"effort": "high"},
            {(AdaptationKind.FIELD_MAPPED, "thinking")},
        ),
        (ReasoningConfig(mode=ReasoningMode.DISABLED), None, {(AdaptationKind.FIELD_DROPPED, "thinking")}),
        (
            ReasoningConfig(mode=ReasoningMode.ADAPTIVE, effort="max", summary="summarized"),
            {"effort": "max", "summary": "auto"},
            {(AdaptationKind.FIELD_MAPPED, "thinking.display")},
        ),
        (
            ReasoningConfig(mode=ReasoningMode.ADAPTIVE, summary="omitted"),
            None,
            {(AdaptationKind.FIELD_DROPPED, "thinking.display")},
        ),
    ],
)
def test_thinking_settings(config: ReasoningConfig, expected: Any, notes: set[tuple[AdaptationKind, str]]) -> None:
    """wires.md 1.4: thinking settings of Messages in the words of Responses."""
    written, noted = write(request(Wire.MESSAGES, reasoning=config))
    assert written.get("reasoning") == expected
    assert noted == notes


@pytest.mark.parametrize(
    ("state", "carried"),
    [
        (OpaqueState(Wire.RESPONSES, "enc", "up"), True),
        (OpaqueState(Wire.RESPONSES, "enc", ""), True),
        (OpaqueState(Wire.RESPONSES, "enc", "another"), False),
        (OpaqueState(Wire.MESSAGES, {"signature": "s"}, "up"), False),
        (None, False),
    ],
)
def test_reasoning_goes_back_to_its_issuer_only(state: OpaqueState | None, carried: bool) -> None:
    """Reasoning without state this upstream can read is left out whole; its text is a summary, never `content`."""
    thought = Reasoning(text="Hm.", state=state)
    written, notes = items(message(Wire.MESSAGES, Role.ASSISTANT, thought, Text(text="Yes.")))
    reasoning = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": "enc",
    }
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}
    assert written == ([reasoning, answer] if carried else [answer])
    assert notes == (set() if carried else {(AdaptationKind.STATE_DROPPED, "reasoning")})


def test_provider_items_of_messages_are_dropped() -> None:
    """What another provider ran by itself has no form here."""
    item = ProviderItem(wire=Wire.MESSAGES, type="server_tool_use", value={})
    written, notes = items(
        message(Wire.MESSAGES, Role.ASSISTANT, item), message(Wire.MESSAGES, Role.USER, Text(text="hi"))
    )
    assert written == [USER_ITEM]
    assert notes == {(AdaptationKind.PART_DROPPED, "server_tool_use")}


def test_same_history_gives_the_same_bytes() -> None:
    """Contract 6: encoding is deterministic, so prompt caches survive."""
    asked = request(
        Wire.CHAT,
        message(Wire.CHAT, Role.ASSISTANT, ToolCall(id="a:b", name="x y", arguments_json="{}")),
        message(Wire.CHAT, Role.TOOL, ToolResult(call_id="a:b", content=(Text(text="r"),))),
    )
    assert write(asked) == write(asked)


def test_reply_parts_as_next_input(codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """A library loop hands a reply's parts back: items as they came, a message's `phase` with its text."""
    output: list[Any] = [
        {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "enc"},
        {
            "id": "msg_1",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "phase": "commentary",
            "content": [{"type": "output_text", "text": "A", "annotations": []}],
        },
        {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    ]
    reply = codec.decode_reply(body({"id": "resp_1", "model": "m", "output": output}), Provenance(issuer="up"))
    asked = Request(model="m", messages=(Message(role=Role.ASSISTANT, parts=reply.parts),))
    written, notes = write(asked)
    assert written["input"] == [
        output[0],
        {"type": "message", "role": "assistant", "phase": "commentary", "content": output[1]["content"]},
        output[2],
    ]
    assert notes == set()
    elsewhere, dropped = write(asked, issuer="another")
    assert [item["type"] for item in elsewhere["input"]] == ["message", "function_call"]
    assert dropped == {(AdaptationKind.STATE_DROPPED, "reasoning")}
