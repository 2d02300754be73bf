"""Chat requests on their own wire: identity, and what survives a change."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import InvalidRequest
from mustcall.core.message import Message, Role
from mustcall.core.parts import Image, Reasoning, Text, ToolCall
from mustcall.core.request import OutputFormat, OutputKind, ReasoningConfig, Request
from mustcall.core.tools import ChoiceMode, ToolChoice
from mustcall.wire.chat import ChatCodec
from mustcall.wire.chat.parts import decode_call, encode_call
from mustcall.wire.codec import Peek, Target

_CODEC = ChatCodec()
_REMINDER = Message(role=Role.USER, parts=(Text(text="reminder"),))


def _decode(body: Any) -> Request:
    return _CODEC.decode_request(json.dumps(body).encode())


def _exact(value: Any) -> str:
    """Return JSON text that tells 1 from 1.0 and null from absent, but not the order of keys."""
    return json.dumps(value, sort_keys=True)


def _encode(request: Request) -> str:
    log = AdaptationLog()
    body = _CODEC.encode_request(request, Target(issuer="up"), log)
    assert log.entries == ()
    return _exact(body)


def test_identity(recorded_request: dict[str, Any]) -> None:
    """Must show: on the same wire the body that goes out is JSON-equal to what came in."""
    assert _encode(_decode(recorded_request)) == _exact(recorded_request)


def test_identity_with_a_reminder_at_the_tail(recorded_request: dict[str, Any]) -> None:
    """Must show, wires.md 1.12 to 1.16: after a change at the tail everything else goes out as it came in."""
    request = _decode(recorded_request)
    changed = _encode(request.evolve(messages=(*request.messages, _REMINDER)))
    messages = [*recorded_request["messages"], {"role": "user", "content": "reminder"}]
    assert changed == _exact({**recorded_request, "messages": messages})


def test_peek_agrees(recorded_request: dict[str, Any]) -> None:
    """Every recorded request passes the quick look, with the model and the stream flag it holds."""
    body = json.dumps(recorded_request).encode()
    assert _CODEC.peek(body) == Peek(recorded_request["model"], recorded_request.get("stream") is True)


@pytest.mark.parametrize(
    ("name", "changes", "written"),
    [
        ("title", {"temperature": 0.5}, {"temperature": 0.5}),
        ("title", {"max_tokens": 7}, {"max_tokens": 7}),
        ("openai_sdk", {"max_tokens": 7}, {"max_completion_tokens": 7}),
        ("nulls", {"max_tokens": 7}, {"max_tokens": None, "max_completion_tokens": 7}),
        ("smolagents", {"stop": ("x",)}, {"stop": ["x"]}),
        ("kimi", {"stream_usage": False}, {"stream_options": {"include_obfuscation": False}}),
        ("title", {"stream": True}, {"stream": True}),
        ("title", {"stream": True, "stream_usage": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        ("unknown_choice", {"tool_choice": ToolChoice(mode=ChoiceMode.REQUIRED)}, {"tool_choice": "required"}),
        ("title", {"reasoning": ReasoningConfig(effort="low")}, {"reasoning_effort": "low"}),
        ("title", {"output": OutputFormat(kind=OutputKind.JSON)}, {"response_format": {"type": "json_object"}}),
        ("title", {"model": "other"}, {"model": "other"}),
        ("tool_turn_null_content", {"parallel_tool_calls": True}, {"parallel_tool_calls": True}),
    ],
)
def test_one_changed_field(
    requests: dict[str, Any], name: str, changes: dict[str, Any], written: dict[str, Any]
) -> None:
    """Only the changed field is written anew, in the caller's own spelling of it."""
    body = requests[name]
    expected = {**body, **written}
    if name == "nulls":
        del expected["max_tokens"]  # the other name of the same limit, rewritten with it
    assert _encode(_decode(body).evolve(**changes)) == _exact(expected)


@pytest.mark.parametrize(
    ("name", "changes", "gone"),
    [
        ("kimi", {"stream": False, "stream_usage": False}, ["stream", "stream_options"]),
        ("smolagents", {"stop": ()}, ["stop"]),
        ("title", {"max_tokens": None}, ["max_tokens"]),
        ("tool_turn_null_content", {"tools": (), "tool_choice": None}, ["tools", "tool_choice"]),
        ("tool_turn_null_content", {"tools": ()}, ["tools", "tool_choice"]),
        ("reasoning", {"reasoning": None}, ["reasoning_effort"]),
        ("instructor", {"output": None}, ["response_format"]),
    ],
)
def test_removed_field(requests: dict[str, Any], name: str, changes: dict[str, Any], gone: list[str]) -> None:
    """A field whose meaning was taken away is not sent; a choice goes with the tools it chose from."""
    body = requests[name]
    assert _encode(_decode(body).evolve(**changes)) == _exact({key: body[key] for key in body if key not in gone})


def test_changed_tool_keeps_unknown_fields(requests: dict[str, Any]) -> None:
    """A changed tool is written from its fields plus what no codec has a word for; the others stay exact."""
    body = requests["custom_and_allowed"]
    request = _decode(body)
    tools = list(request.tools)
    tools[1] = tools[1].evolve(description="new")
    written = json.loads(_encode(request.evolve(tools=tuple(tools))))["tools"]
    assert written == [
        body["tools"][0],
        {"type": "function", "function": {"name": "w", "description": "new", "x": 1}, "y": 2},
        body["tools"][2],
    ]


def test_changed_message_keeps_unknown_fields(requests: dict[str, Any]) -> None:
    """A changed message keeps its unknown fields, its calls' own unknown fields and its untouched parts."""
    request = _decode(requests["extra_keys"])
    first, second, third = request.messages
    changed = request.evolve(
        messages=(first.evolve(parts=(Text(text="new"),)), second.evolve(parts=second.parts[1:]), third)
    )
    written = json.loads(_encode(changed))["messages"]
    assert written[0] == {"role": "user", "name": "alice", "content": "new"}
    assert written[1]["provider_specific_fields"] == {"x": 1}
    assert written[1]["content"] is None
    assert written[1]["tool_calls"] == requests["extra_keys"]["messages"][1]["tool_calls"]
    assert written[2] == requests["extra_keys"]["messages"][2]


def test_changed_parts_keep_unknown_fields() -> None:
    """Every kind of content part keeps its unknown fields through a change of its own."""
    parts = [
        {"type": "text", "text": "t", "u": 1},
        {"type": "refusal", "refusal": "r", "u": 2},
        {"type": "image_url", "image_url": {"url": "https://x"}, "u": 3},
        {"type": "input_audio", "input_audio": {"data": "A", "format": "wav"}, "u": 4},
        {"type": "file", "file": {"file_id": "f"}, "u": 5},
    ]
    request = _decode({"model": "m", "messages": [{"role": "user", "content": parts}]})
    message = request.messages[0]
    touched = message.evolve(parts=tuple(part.evolve() for part in message.parts))
    assert json.loads(_encode(request.evolve(messages=(touched,))))["messages"][0]["content"] == parts


def test_meaning_of_a_tool_turn(requests: dict[str, Any], bare: Callable[[Any], Any]) -> None:
    """wires.md 1.12: null, empty and texted content with calls are told apart; extra keys are tolerated."""
    call = ToolCall(id="call_1", name="w", arguments_json='{"c": "Bern"}')
    assert bare(_decode(requests["tool_turn_null_content"]).messages[1]).parts == (call,)
    empty = _decode(requests["tool_turn_empty_content"])
    assert bare(empty.messages[1]).parts == (ToolCall(id="functions.w:0", name="w", arguments_json=""),)
    assert bare(empty.messages[2].results[0]).content == (Text(text="sunny"), Text(text="warm"))
    texted = bare(_decode(requests["extra_keys"]).messages[1])
    assert texted.parts == (Text(text="Let me look."), ToolCall(id="a", name="w", arguments_json="{}"))


def test_history_is_never_read_for_calls(requests: dict[str, Any], bare: Callable[[Any], Any]) -> None:
    """wires.md 1.14 and 1.16: call-like text in history stays text, `stop` is kept, no tools are made up."""
    request = bare(_decode(requests["smolagents"]))
    assert request.messages[1].parts == (Text(text="Calling tools:\n[{'id': 'call_1', 'type': 'function'}]"),)
    assert request.stop == ("Observation:", "Calling tools:")
    assert (request.tools, request.tool_choice) == ((), None)


def test_meaning_of_media(requests: dict[str, Any], bare: Callable[[Any], Any]) -> None:
    """Build 3: images inline and by address are read into their parts."""
    parts = bare(_decode(requests["media"]).messages[0]).parts
    assert parts[1] == Image(data="AAAA", media_type="image/png", detail="low")
    assert parts[2] == Image(url="https://x/y.png")
    assert [type(part).__name__ for part in parts[3:]] == ["Audio", "File", "File", "Unknown"]


def test_meaning_of_the_rest(requests: dict[str, Any], bare: Callable[[Any], Any]) -> None:
    """Build 3: choice, effort, limits and thinking of real clients are read."""
    assert bare(_decode(requests["custom_and_allowed"])).tool_choice == ToolChoice(
        mode=ChoiceMode.REQUIRED, allowed=("w",)
    )
    assert _decode(requests["nulls"]).max_tokens == 5
    assert _decode(requests["kimi"]).stream_usage
    reasoning = bare(_decode(requests["reasoning"])).messages[3].parts[0]
    assert isinstance(reasoning, Reasoning)
    assert reasoning.text == "hm"
    assert reasoning.state is not None
    assert reasoning.state.data == {
        "field": "reasoning",
        "details": [{"type": "reasoning.text", "text": "hm", "signature": "s", "index": 0}],
    }


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": None}, "model"),
        ({"messages": {}}, "messages"),
        ({"messages": ["x"]}, "messages[0]"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"arguments": "{}"}}]}]},
            "messages[0].tool_calls[0].function.name",
        ),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": 1}}]}, "tools[0].function.name"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"stop": [1]}, "stop[0]"),
        ({"stream": "yes"}, "stream"),
        ({"response_format": {"type": "poem"}}, "response_format.type"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], param: str) -> None:
    """Must show: every bad input gives an error that names the place."""
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], **change}
    with pytest.raises(InvalidRequest) as raised:
        _decode(body)
    assert raised.value.param == param
    assert f"`{param}`" in raised.value.message


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"[]", None),
        (b'{"messages":[]}', None),
        (b'{"model":5,"messages":[]}', "model"),
        (b'{"model":"m"}', None),
        (b'{"model":"m","messages":{}}', "messages"),
        (b'{"model":"m","messages":[{}]}', "messages[0]"),
        (b'{"model":"m","messages":[{"role":"user","content":5}]}', "messages[0].content"),
        (b'{"model":"m","messages":[],"stream":"yes"}', "stream"),
        (b'{"model":"m","messages":[],"tools":[5]}', "tools[0]"),
        (b'{"model":"m","messages":[],"temperature":1e400}', "temperature"),
        (b'{"model":"m","messages":[],"x":' + b"[" * 99999, None),
        (b'{"model":"\xff","messages":[]}', None),
    ],
)
def test_peek_refuses(body: bytes, param: str | None) -> None:
    """Must show: the quick look refuses what is not a request, naming the place where there is one."""
    with pytest.raises(InvalidRequest) as raised:
        _CODEC.peek(body)
    assert raised.value.param == param


@pytest.mark.parametrize("own", [None, "", "call_own"])
def test_a_call_goes_back_under_the_id_it_was_read_with(own: str | None) -> None:
    """Rule 101: where a server gave no id, the one that was made for its call is written, and its result pairs."""
    value = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    call = decode_call(value if own is None else value | {"id": own}, "call_made_0")
    assert encode_call(call, call.name, call.id)["id"] == (own or "call_made_0")
    history = decode_call(value)  # of a client that gives none: as it came
    assert encode_call(history, "f", "") == value


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "any"},
        {"type": "tool", "name": "f"},
        {"type": "function"},
        {"type": "function", "name": "f"},
        {"type": "allowed_tools", "mode": "auto", "tools": []},
        {"type": 3, "function": {"name": "f"}},
        {},
    ],
)
def test_a_choice_that_is_misspelt(choice: Any) -> None:
    """Rule 8: it would force nothing, and the caller would not know."""
    with pytest.raises(InvalidRequest) as raised:
        _decode({"model": "m", "messages": [], "tool_choice": choice})
    assert raised.value.param == "tool_choice"


@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        ({"type": "auto"}, ToolChoice(mode=ChoiceMode.AUTO)),
        ({"type": "none"}, ToolChoice(mode=ChoiceMode.NONE)),
        ({"type": "required"}, ToolChoice(mode=ChoiceMode.REQUIRED)),
        ({"function": {"name": "f"}}, ToolChoice(mode=ChoiceMode.NAMED, name="f")),
    ],
)
def test_a_choice_that_clients_spell_their_own_way(choice: Any, meant: ToolChoice) -> None:
    """Rule 1: Cursor sends words as types, and servers take a function without its type."""
    assert _decode({"model": "m", "messages": [], "tool_choice": choice}).tool_choice == meant
