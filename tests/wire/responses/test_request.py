"""Requests: what comes in goes out unchanged, and means what it says."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import InvalidRequest
from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.parts import (
    Audio,
    CallKind,
    File,
    Image,
    OpaqueState,
    ProviderItem,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from mustcall.core.request import OutputFormat, OutputKind, ReasoningConfig, ReasoningMode
from mustcall.core.tools import ChoiceMode, ProviderTool, Tool, ToolChoice
from mustcall.wire.codec import Target
from mustcall.wire.crossing.sealing import seal
from mustcall.wire.responses import ResponsesCodec

REQUESTS: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "requests.json").read_text())
REMINDER = Message(role=Role.USER, parts=(Text(text="Use a tool."),))
REMINDER_ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Use a tool."}]}


def as_items(given_input: Any) -> list[Any]:
    """Return `input` as a list of items."""
    if isinstance(given_input, str):
        return [{"role": "user", "content": given_input}]
    return given_input or []


@pytest.mark.parametrize("name", REQUESTS)
def test_identity(name: str, codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """An untouched request goes out JSON-equal to what came in."""
    request = codec.decode_request(body(REQUESTS[name]))
    assert codec.encode_request(request, Target(), AdaptationLog()) == REQUESTS[name]


@pytest.mark.parametrize("name", REQUESTS)
def test_new_model_changes_nothing_else(name: str, codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """A request sent to another model differs in `model` alone, spelled nulls and strings included."""
    request = codec.decode_request(body(REQUESTS[name])).evolve(model="other")
    log = AdaptationLog()
    assert codec.encode_request(request, Target(), log) == {**REQUESTS[name], "model": "other"}
    assert log.entries == ()


@pytest.mark.parametrize("name", REQUESTS)
def test_tail_identity(name: str, codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """A reminder at the tail leaves everything before it, tools and unknown fields as they were."""
    request = codec.decode_request(body(REQUESTS[name]))
    changed = request.evolve(messages=(*request.messages, REMINDER))
    expected = {**REQUESTS[name], "input": [*as_items(REQUESTS[name].get("input")), REMINDER_ITEM]}
    assert codec.encode_request(changed, Target(), AdaptationLog()) == expected


@pytest.mark.parametrize("name", REQUESTS)
def test_rewritten_messages_keep_their_parts(name: str, codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """Messages whose own form was dropped are rebuilt from untouched parts and unknown fields."""
    request = codec.decode_request(body(REQUESTS[name]))
    again = request.evolve(messages=tuple(message.evolve() for message in request.messages))
    written = codec.encode_request(again, Target(), AdaptationLog())

    def plain(item: Any) -> Any:
        if item.get("type", "message") != "message":
            return item
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        content = item["content"]
        content = [{"type": kind, "text": content}] if isinstance(content, str) else content
        return {**item, "type": "message", "content": content}

    given_items = as_items(REQUESTS[name].get("input"))
    assert as_items(written.get("input")) == [plain(item) for item in given_items]


def test_codex_first_turn(codec: ResponsesCodec, body: Callable[[Any], bytes], strip: Callable[[Any], Any]) -> None:
    """wires.md 1.8 and 1.9: Codex' context messages, namespace, custom and provider tools are all understood."""
    request = codec.decode_request(body(REQUESTS["codex first turn"]))
    assert [message.role for message in request.messages] == [Role.DEVELOPER, Role.USER, Role.USER]
    assert request.system is None
    assert request.messages[0].fields_for(Wire.RESPONSES) == {"id": "msg_a"}
    tools = [strip(tool) for tool in request.tools]
    assert [(tool.namespace, tool.name, tool.kind) for tool in tools if isinstance(tool, Tool)] == [
        (None, "exec_command", CallKind.FUNCTION),
        (None, "apply_patch", CallKind.CUSTOM),
        ("multi_agent_v1", "spawn_agent", CallKind.FUNCTION),
        ("multi_agent_v1", "wait_agent", CallKind.FUNCTION),
    ]
    assert [tool.type for tool in tools if isinstance(tool, ProviderTool)] == [
        "tool_search",
        "web_search",
        "image_generation",
    ]
    assert tools[2].namespace_description == "Sub-agents."
    assert tools[1].format == {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch"'}
    assert request.reasoning == ReasoningConfig(effort="medium", summary="auto")
    assert request.stream
    assert request.stream_usage
    fields = request.fields_for(Wire.RESPONSES)
    assert fields["client_metadata"] == {"x-codex-installation-id": "i"}
    assert fields["text"] == {"verbosity": "low"}
    assert fields["reasoning"] == {"context": "all_turns"}


def test_codex_second_turn(codec: ResponsesCodec, body: Callable[[Any], bytes], strip: Callable[[Any], Any]) -> None:
    """wires.md 1.9 and 1.10: each item is one message; calls keep kind, namespace and ids; images come in results."""
    request = codec.decode_request(body(REQUESTS["codex second turn"]))
    assert [strip(message) for message in request.messages] == [
        Message(role=Role.USER, parts=(Text(text="Fix the bug."),)),
        Message(
            role=Role.ASSISTANT,
            parts=(Reasoning(summary=("Look first.",), state=OpaqueState(Wire.RESPONSES, "gAAAA-opaque"), id="rs_1"),),
        ),
        Message(role=Role.ASSISTANT, parts=(Text(text="Looking."),)),
        Message(
            role=Role.ASSISTANT,
            parts=(ToolCall(id="call_1", name="exec_command", arguments_json='{"cmd":"ls"}', item_id="fc_1"),),
        ),
        Message(
            role=Role.ASSISTANT,
            parts=(
                ToolCall(id="call_2", name="spawn_agent", arguments_json='{"task":"x"}', namespace="multi_agent_v1"),
            ),
        ),
        Message(
            role=Role.ASSISTANT,
            parts=(
                ToolCall(
                    id="call_3",
                    name="apply_patch",
                    arguments_json="*** Begin Patch",
                    kind=CallKind.CUSTOM,
                    item_id="ctc_3",
                ),
            ),
        ),
        Message(role=Role.TOOL, parts=(ToolResult(call_id="call_1", content=(Text(text="a.py"),)),)),
        Message(
            role=Role.TOOL,
            parts=(ToolResult(call_id="call_2", content=(Image(data="AAAA", media_type="image/png", detail="high"),)),),
        ),
        Message(
            role=Role.TOOL,
            parts=(ToolResult(call_id="call_3", content=(Text(text="Done"),), kind=CallKind.CUSTOM),),
        ),
    ]


def test_output_forms(codec: ResponsesCodec, body: Callable[[Any], bytes], strip: Callable[[Any], Any]) -> None:
    """wires.md 1.10 and 1.11: a tool output is a string or a list, calls come without ids or with rewritten ones."""
    kimi = codec.decode_request(body(REQUESTS["kimi output list"]))
    assert strip(kimi.messages[2].results[0]).content == (Text(text="one"), Text(text="two"))
    assert kimi.messages[1].calls[0].item_id is None
    copilot = codec.decode_request(body(REQUESTS["copilot rewritten ids"]))
    assert (copilot.messages[1].calls[0].item_id, copilot.messages[1].calls[0].id) == ("fc_call_abc", "call_abc")
    assert copilot.messages[2].results[0].content == ()


def test_prompts_and_roles(codec: ResponsesCodec, body: Callable[[Any], bytes], strip: Callable[[Any], Any]) -> None:
    """wires.md 1.11: `instructions`, system and developer are told apart, items need no type."""
    request = codec.decode_request(body(REQUESTS["roles and missing types"]))
    assert strip(request.system) == Message(role=Role.SYSTEM, parts=(Text(text="I."),))
    assert [(message.role.value, strip(message).parts[0].text) for message in request.messages] == [
        ("system", "S."),
        ("developer", "D."),
        ("user", "U."),
        ("assistant", "A."),
        ("user", ""),
    ]


def test_strict_three_ways(codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """wires.md 1.11: `strict` true, false and absent stay apart, also when the tool is rewritten."""
    tools: list[Any] = [
        {"type": "function", "name": "a", "parameters": {}, "strict": True},
        {"type": "function", "name": "b", "parameters": {}, "strict": False},
        {"type": "function", "name": "c", "parameters": {}},
    ]
    request = codec.decode_request(body({"model": "m", "input": "x", "tools": tools}))
    assert [tool.strict for tool in request.tools if isinstance(tool, Tool)] == [True, False, None]
    again = request.evolve(tools=tuple(tool.evolve() for tool in request.tools))
    assert codec.encode_request(again, Target(), AdaptationLog())["tools"] == tools


def test_forced_tool_with_format(codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """wires.md 1.11: a forced tool together with `text.format`, whose other settings survive a change."""
    request = codec.decode_request(body(REQUESTS["instructor forced tool with format"]))
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    assert request.output == OutputFormat(kind=OutputKind.SCHEMA, schema=schema, name="Person", strict=True)
    assert request.tool_choice is not None
    assert (request.tool_choice.mode, request.tool_choice.name) == (ChoiceMode.NAMED, "Person")
    changed = codec.encode_request(request.evolve(output=OutputFormat(kind=OutputKind.JSON)), Target(), AdaptationLog())
    assert changed["text"] == {"format": {"type": "json_object"}, "verbosity": "medium"}


def test_media_parts(codec: ResponsesCodec, body: Callable[[Any], bytes], strip: Callable[[Any], Any]) -> None:
    """Images, files and audio in each of their forms; what is not known is kept unread."""
    request = codec.decode_request(body(REQUESTS["media"]))
    assert strip(request.messages[0]).parts == (
        Text(text="See:"),
        Image(url="https://example.com/a.png"),
        Image(data="BBBB", media_type="image/jpeg", detail="low"),
        Image(file_id="file-1", detail="auto"),
        File(data="CCCC", media_type="application/pdf", name="a.pdf"),
        File(url="https://example.com/b.pdf"),
        File(file_id="file-2"),
        Audio(data="DDDD", format="wav"),
        Unknown(
            wire=Wire.RESPONSES,
            type="input_video",
            value={"type": "input_video", "video_url": "https://example.com/c.mp4"},
        ),
        Unknown(
            wire=Wire.RESPONSES,
            type="input_audio",
            value={"type": "input_audio", "input_audio": {"data": "EEEE", "format": "wav", "rate": 8000}},
        ),
    )


def test_provider_items_and_hosted_choice(codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """Items the provider runs, references and choices of hosted tools are carried unread."""
    request = codec.decode_request(body(REQUESTS["provider items and references"]))
    items = [message.parts[0] for message in request.messages[:-1]]
    assert [item.type for item in items if isinstance(item, ProviderItem)] == [
        "item_reference",
        "web_search_call",
        "mcp_approval_response",
        "function_call_output",
        "never_seen_before",
    ]
    assert request.tool_choice is None
    assert request.fields_for(Wire.RESPONSES)["tool_choice"] == {"type": "mcp", "server_label": "s"}


def test_allowed_tools(codec: ResponsesCodec, body: Callable[[Any], bytes], strip: Callable[[Any], Any]) -> None:
    """An allowed set is read, and written with each tool's kind; a provider's tool is known by its type."""
    request = codec.decode_request(body(REQUESTS["allowed tools"]))
    assert strip(request.tool_choice) == ToolChoice(mode=ChoiceMode.REQUIRED, allowed=("a", "b"))
    assert request.tool_choice is not None
    narrowed = request.evolve(tool_choice=request.tool_choice.evolve(mode=ChoiceMode.AUTO))
    assert codec.encode_request(narrowed, Target(), AdaptationLog())["tool_choice"] == {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "a"}, {"type": "custom", "name": "b"}],
    }
    hosted = codec.decode_request(body(REQUESTS["allowed tools with hosted ones"]))
    assert strip(hosted.tool_choice) == ToolChoice(mode=ChoiceMode.AUTO, allowed=("image_generation",))
    assert hosted.tool_choice is not None
    firmer = hosted.evolve(tool_choice=hosted.tool_choice.evolve(mode=ChoiceMode.REQUIRED))
    assert codec.encode_request(firmer, Target(), AdaptationLog())["tool_choice"] == {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "image_generation"}],
    }


def test_removed_tool_leaves_its_namespace(codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """wires.md 1.9: tools of a namespace are put together again, without one that was taken away."""
    request = codec.decode_request(body(REQUESTS["codex first turn"]))
    kept = tuple(tool for tool in request.tools if not (isinstance(tool, Tool) and tool.name == "spawn_agent"))
    written = codec.encode_request(request.evolve(tools=kept), Target(), AdaptationLog())["tools"]
    original = REQUESTS["codex first turn"]["tools"]
    assert written == [*original[:2], {**original[2], "tools": [original[2]["tools"][1]]}, *original[3:]]


def test_effort_none_means_disabled(codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """`reasoning.effort: none` is reasoning turned off."""
    request = codec.decode_request(body(REQUESTS["format text"]))
    assert request.reasoning == ReasoningConfig(mode=ReasoningMode.DISABLED, effort="none")
    assert request.output == OutputFormat(kind=OutputKind.TEXT)


def test_sealed_state_is_never_sent_raw(codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """State of another wire, carried by the client in our seal, comes back as that state and is not forwarded."""
    state = OpaqueState(Wire.MESSAGES, {"signature": "s"}, "claude")
    item: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": seal(state)}
    user = {"role": "user", "content": "go"}
    request = codec.decode_request(body({"model": "m", "input": [user, item], "store": False}))
    reasoning = request.messages[1].parts[0]
    assert isinstance(reasoning, Reasoning)
    assert reasoning.state == state
    log = AdaptationLog()
    assert codec.encode_request(request, Target(), log) == {"model": "m", "input": [user], "store": False}
    assert [entry.kind.value for entry in log.entries] == ["state_dropped"]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"input": "x"}, "model"),
        ({"model": 1, "input": "x"}, "model"),
        ({"model": "m"}, "input"),
        ({"model": "m", "input": 5}, "input"),
        ({"model": "m", "input": [5]}, "input[0]"),
        ({"model": "m", "input": [{"role": "user", "content": 5}]}, "input[0].content"),
        ({"model": "m", "input": "x", "tools": {}}, "tools"),
        ({"model": "m", "input": "x", "tools": ["a"]}, "tools[0]"),
        ({"model": "m", "input": "x", "stream": "yes"}, "stream"),
        ({"model": "m", "input": "x", "temperature": "hot"}, "temperature"),
    ],
)
def test_bad_outline(value: Any, path: str, codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """Both readers of a request name the place that is wrong."""
    for reader in (codec.peek, codec.decode_request):
        with pytest.raises(InvalidRequest) as caught:
            reader(body(value))
        assert path in (caught.value.param or caught.value.message)


BAD_ITEMS: list[tuple[list[Any], str]] = [
    ([{"type": "message", "role": "user"}], "input[0].content"),
    ([{"role": "critic", "content": "x"}], "input[0].role"),
    ([{"role": "user", "content": [{"type": "input_text"}]}], "input[0].content[0].text"),
    ([{"type": "function_call", "name": "f", "arguments": "{}"}], "input[0].call_id"),
    ([{"type": "function_call", "call_id": "c", "arguments": "{}"}], "input[0].name"),
    ([{"type": "function_call", "call_id": "c", "name": "f", "arguments": []}], "input[0].arguments"),
    ([{"type": "function_call_output", "call_id": "c"}], "input[0].output"),
    ([{"type": "reasoning", "summary": [{"type": "summary_text"}]}], "input[0].summary[0].text"),
]


@pytest.mark.parametrize(("value", "path"), BAD_ITEMS)
def test_bad_items(value: Any, path: str, codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """A wrong item is named by its path."""
    with pytest.raises(InvalidRequest) as caught:
        codec.decode_request(body({"model": "m", "input": value}))
    assert caught.value.param == path


@pytest.mark.parametrize("choice", ["any", 5, ["auto"], {"type": "function"}])
def test_bad_choice(choice: Any, codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """A `tool_choice` that is none of the wire's is refused by name."""
    with pytest.raises(InvalidRequest, match="tool_choice"):
        codec.decode_request(body({"model": "m", "input": "x", "tool_choice": choice}))


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b'{"model":"\xff"}', b"[" * 100_000, b'{"a":' * 100_000]
)
def test_not_json(raw: bytes, codec: ResponsesCodec) -> None:
    """Bytes that are no request give our error."""
    for reader in (codec.peek, codec.decode_request):
        with pytest.raises(InvalidRequest):
            reader(raw)


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "any"},
        {"type": "tool", "name": "f"},
        {"type": "function"},
        {"type": "function", "function": {"name": "f"}},
        {"type": "allowed_tools", "tools": []},
        {"name": "f"},
        {},
    ],
)
def test_a_choice_that_is_misspelt(choice: Any, codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """Rule 8: it would force nothing, and the caller would not know."""
    with pytest.raises(InvalidRequest) as raised:
        codec.decode_request(body({"model": "m", "input": "x", "tool_choice": choice}))
    assert str(raised.value.param).startswith("tool_choice")


def test_what_content_may_be(codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """A `content` that is neither a string nor a list is told both."""
    with pytest.raises(InvalidRequest, match="must be a string or an array, got the number 5"):
        codec.decode_request(body({"model": "m", "input": [{"role": "user", "content": 5}]}))


def test_peek(codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """Routing learns model and stream from every recorded shape."""
    for value in REQUESTS.values():
        seen = codec.peek(body(value))
        assert (seen.model, seen.stream) == (value["model"], bool(value.get("stream")))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["type", "role", "content", "summary", "encrypted_content", "call_id", "id", "name", "arguments", "input", "output"]
)
WORDS = st.sampled_from(
    [
        "message",
        "reasoning",
        "function_call",
        "custom_tool_call",
        "function_call_output",
        "user",
        "input_text",
        "function",
    ]
)
ITEM = st.dictionaries(
    KEYS, JSON | WORDS | st.lists(st.dictionaries(KEYS, JSON | WORDS, max_size=4), max_size=2), max_size=6
)
HOSTILE = st.fixed_dictionaries(
    {"model": st.just("m"), "input": JSON | st.lists(ITEM, max_size=3)},
    optional={
        "tools": JSON
        | st.lists(
            ITEM
            | st.fixed_dictionaries(
                {"type": st.just("namespace"), "name": st.text(max_size=3), "tools": JSON | st.lists(ITEM, max_size=2)}
            ),
            max_size=3,
        ),
        "tool_choice": JSON | ITEM,
        "text": JSON,
        "reasoning": JSON,
        "instructions": JSON,
        "stream": JSON,
        "unheard_of": JSON,
    },
)


@given(HOSTILE)
def test_any_object_is_read_or_refused(value: Any) -> None:
    """Whatever the shape: a request that keeps identity and survives a change, or `InvalidRequest`."""
    codec = ResponsesCodec()
    raw = json.dumps(value).encode()
    try:
        request = codec.decode_request(raw)
    except InvalidRequest:
        return
    assert codec.encode_request(request, Target(), AdaptationLog()) == value
    changed = codec.encode_request(request.evolve(messages=(*request.messages, REMINDER)), Target(), AdaptationLog())
    assert changed == {**value, "input": [*as_items(value["input"]), REMINDER_ITEM]}


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_hostile_bytes(raw: bytes) -> None:
    """Any bytes are read or refused with our error."""
    codec = ResponsesCodec()
    for reader in (codec.peek, codec.decode_request):
        try:
            read = reader(raw)
        except InvalidRequest as error:
            assert error.message  # noqa: PT017  either way is right, no other exception is
        else:
            assert read.model is not None


@pytest.mark.parametrize("word", ["auto", "none", "required"])
def test_a_choice_spelt_as_a_type(word: str, codec: ResponsesCodec, body: Callable[[Any], bytes]) -> None:
    """Rule 1: Cursor sends words as types."""
    request = codec.decode_request(body({"model": "m", "input": "x", "tool_choice": {"type": word}}))
    assert request.tool_choice is not None
    assert request.tool_choice.mode == word
