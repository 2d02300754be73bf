"""Rules 100, 103, 104, 105, 134: the history as a whole."""

from typing import Any

import msgspec
import pytest

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import Image, OpaqueState, ProviderItem, Reasoning, Text, ToolCall, ToolResult
from mustcall.core.request import OutputFormat, OutputKind, Request
from mustcall.core.tools import ChoiceMode, Tool
from mustcall.policy.facts.profile import Profile
from mustcall.policy.facts.wording import Wording
from mustcall.policy.history.mended import drop_reasoning, mend_history, remove_trailing_assistant
from mustcall.policy.request.structured_answer import can_go_alone
from mustcall.wire.codec import Target
from mustcall.wire.registry import codec_for

EMPTY_USER = "(empty)"
NO_RESULT = "No result was recorded for this call."
_USER = Message(role=Role.USER, parts=(Text(text="hi"),))
_ANSWER = Message(role=Role.ASSISTANT, parts=(Text(text="hello"),))
_CONTINUE = Message(role=Role.USER, parts=(Text(text="Continue."),))
_SEARCH = Tool(name="search", parameters={"type": "object", "properties": {"q": {"type": "string"}}})
_MARKUP = '<tool_call>{"name": "search", "arguments": {"q": "x"}}</tool_call>'
_SIGNED = Reasoning(text="hm", state=OpaqueState(Wire.MESSAGES, {"type": "thinking", "signature": "s"}))
_BOUND = Profile(prefix_bound=True)


def _assistant(*parts: Any, **more: Any) -> Message:
    return Message(role=Role.ASSISTANT, parts=parts, **more)


def _request(*messages: Message, **more: Any) -> Request:
    return Request(model="m", messages=messages, **more)


def _mend(request: Request, profile: Profile | None = None) -> tuple[tuple[Message, ...], AdaptationLog]:
    log = AdaptationLog()
    mended = mend_history(request, profile or Profile(), "me", log)
    assert mend_history(mended, profile or Profile(), "me", AdaptationLog()) is mended, "mending twice is mending once"
    return mended.messages, log


def _sent(wire: Wire, body: dict[str, Any], profile: Profile | None = None) -> dict[str, Any]:
    codec = codec_for(wire)
    mended = mend_history(codec.decode_request(msgspec.json.encode(body)), profile or Profile(), "me", AdaptationLog())
    return codec.encode_request(mended, Target(issuer="me"), AdaptationLog())


_CLEAN: list[tuple[Wire, dict[str, Any]]] = [
    (
        Wire.CHAT,
        {
            "model": "m",
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "Hello."},
                {"role": "user", "content": "and?"},
            ],
        },
    ),
    (
        Wire.CHAT,
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "hi"}], "name": "n"},
                {
                    "role": "assistant",
                    "content": "\n\n",
                    "reasoning_content": "hm",
                    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "search", "arguments": "{}"}}],
                },
                {"role": "tool", "tool_call_id": "1", "content": ""},
                {"role": "assistant", "content": "Use `search` in <b>code</b>: ```\n" + _MARKUP + "\n```"},
                {"role": "user", "content": _MARKUP},
            ],
        },
    ),
    (
        Wire.MESSAGES,
        {
            "model": "m",
            "max_tokens": 9,
            "messages": [
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "s"},
                        {"type": "tool_use", "id": "1", "name": "search", "input": {}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "1", "content": "r", "x_new": 1},
                        {"type": "text", "text": "and?"},
                    ],
                },
            ],
        },
    ),
    (
        Wire.RESPONSES,
        {
            "model": "m",
            "input": [
                {"role": "user", "content": "hi"},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
                {"type": "function_call", "id": "fc_1", "call_id": "1", "name": "search", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "1", "output": "r"},
            ],
        },
    ),
]


@pytest.mark.parametrize(("wire", "body"), _CLEAN)
def test_clean_history_is_the_same_object(wire: Wire, body: dict[str, Any]) -> None:
    """Rule 105: a clean history comes back as the same object, nothing noted, and is sent as it came."""
    request = codec_for(wire).decode_request(msgspec.json.encode(body))
    log = AdaptationLog()
    assert mend_history(request, Profile(), "me", log) is request
    assert log.entries == ()
    assert _sent(wire, body) == body


def test_talk_and_calls_in_order_are_the_same_object() -> None:
    """Rule 105: the history most clients send, talk and calls with their results, comes back as the same object."""
    call = {"id": "1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    talk = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "so?"},
    ]
    calls = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "r"},
    ]
    for messages in (talk, [*talk, *calls]):
        body: dict[str, Any] = {"model": "m", "messages": messages}
        request = codec_for(Wire.CHAT).decode_request(msgspec.json.encode(body))
        log = AdaptationLog()
        assert mend_history(request, Profile(), "me", log) is request
        assert log.entries == ()
        assert _sent(Wire.CHAT, body) == body


@pytest.mark.parametrize("parts", [(), (Text(text=""),), (Text(text=" \n"), Text(text=""))])
def test_empty_user_content_is_backfilled(parts: tuple[Text, ...]) -> None:
    """Rule 103: a user turn that says nothing gets a word, and it is noted."""
    messages, log = _mend(_request(Message(role=Role.USER, parts=parts), _ANSWER, _USER))
    assert messages == (Message(role=Role.USER, parts=(Text(text=EMPTY_USER),)), _ANSWER, _USER)
    assert [entry.kind for entry in log.entries] == [AdaptationKind.HISTORY_MENDED]


@pytest.mark.parametrize("parts", [(), (Text(text=""),), (Text(text=" \n"),), (Reasoning(text="hm"),)])
def test_empty_assistant_turns_are_dropped(parts: tuple[Any, ...]) -> None:
    """Rule 103: an assistant turn without content goes, one of nothing but reasoning included."""
    messages, log = _mend(_request(_USER, _assistant(*parts), _USER))
    assert messages == (_USER, _USER)
    assert len(log.entries) == 1


def test_reasoning_only_turns_stay_where_they_are_answers() -> None:
    """Rule 103: where reasoning is this family's way to answer, a turn of nothing else is not empty."""
    request = _request(_USER, _assistant(Reasoning(text="hm")), _USER)
    assert _mend(request, Profile(reasoning_only_final=True))[0] is request.messages


def test_reasoning_item_of_a_fuller_turn_stays() -> None:
    """Rule 103: a Responses reasoning item is part of the turn it leads, not an empty turn."""
    request = _request(_USER, _assistant(Reasoning(id="rs")), _assistant(Text(text="a")), _USER)
    assert _mend(request)[0] is request.messages


def test_unknown_content_is_content() -> None:
    """Rule 103: a message whose content is a field nobody knows (a spoken reply) is not empty."""
    spoken = _assistant(origin=Origin(Wire.CHAT, {"audio": {"id": "a"}}))
    request = _request(_USER, spoken, _USER)
    assert _mend(request)[0] is request.messages
    silent = _assistant(origin=Origin(Wire.CHAT, {"audio": None, "annotations": [1], "name": "n"}))
    assert _mend(_request(_USER, silent, _USER))[0] == (_USER, _USER)


def test_tool_messages_are_untouched() -> None:
    """Rule 103: an empty tool result is a result."""
    call = ToolCall(id="1", name="search", arguments_json="{}")
    request = _request(_USER, _assistant(call), Message(role=Role.TOOL, parts=(ToolResult(call_id="1"),)))
    assert _mend(request)[0] is request.messages


def test_blank_blocks_beside_content_go_only_where_the_wire_refuses_them() -> None:
    """Rule 103: the Messages wire refuses blank text blocks; on other wires they are left alone."""
    image = Image(url="http://x")
    for wire, kept in ((Wire.MESSAGES, (image,)), (Wire.CHAT, (Text(text=" "), image))):
        user = Message(role=Role.USER, parts=(Text(text=" "), image), origin=Origin(wire))
        assert _mend(_request(user))[0][0].parts == kept
    call = ToolCall(id="1", name="search", arguments_json="{}")
    blank = _assistant(Text(text=""), call, origin=Origin(Wire.MESSAGES))
    result = Message(role=Role.TOOL, parts=(ToolResult(call_id="1"),))
    assert _mend(_request(_USER, blank, result))[0][1].parts == (call,)


def test_no_request_ends_on_the_assistant() -> None:
    """Rule 100: content is kept and a minimal user turn appended."""
    messages, log = _mend(_request(_USER, _ANSWER))
    assert messages == (_USER, _ANSWER, _CONTINUE)
    assert messages[:2] == (_USER, _ANSWER)
    assert [entry.subject for entry in log.entries] == ["user"]


def test_empty_residue_is_dropped_before_the_end_is_judged() -> None:
    """Rule 103 before 100: a trailing empty turn goes and nothing is appended."""
    assert _mend(_request(_USER, _assistant(Text(text=" "))))[0] == (_USER,)
    assert _mend(_request(_USER, _assistant(Reasoning(text="hm"))))[0] == (_USER,)
    assert _mend(_request(_assistant()))[0] == (_CONTINUE,)
    assert _mend(_request())[0] == ()


def test_prefill_is_kept_where_it_is_known_to_work() -> None:
    """Rule 100: a model known to accept prefill gets it."""
    request = _request(_USER, _ANSWER)
    assert _mend(request, Profile(prefill=True))[0] is request.messages


def test_the_added_turn_is_a_setting() -> None:
    """Rule 120: the sentence that is added is the configured one."""
    mended = mend_history(_request(_ANSWER), Profile(), "me", AdaptationLog(), Wording(continue_turn="Go on."))
    assert mended.messages[-1].parts == (Text(text="Go on."),)


def test_the_words_of_a_mended_history_are_settings() -> None:
    """Rule 120: what stands for an empty user turn, and for a result that is missing, is what is configured."""
    call = ToolCall(id="1", name="search", arguments_json="{}")
    request = _request(Message(role=Role.USER, parts=()), _assistant(call), _USER)
    words = Wording(empty_user="(nothing)", no_result="(lost)")
    mended = mend_history(request, Profile(), "me", AdaptationLog(), words)
    assert mended.messages == (
        Message(role=Role.USER, parts=(Text(text="(nothing)"),)),
        _assistant(call),
        Message(role=Role.TOOL, parts=(ToolResult(call_id="1", content=(Text(text="(lost)"),), is_error=True),)),
        _USER,
    )


def test_system_messages_hide_no_trailing_assistant_on_the_messages_wire() -> None:
    """Rule 100: the Messages wire looks through system messages, others do not."""
    system = Message(role=Role.SYSTEM, parts=(Text(text="s"),), origin=Origin(Wire.MESSAGES))
    assert _mend(_request(_USER, _ANSWER, system))[0][-1] == _CONTINUE
    other = _request(_USER, _ANSWER, Message(role=Role.SYSTEM, parts=(Text(text="s"),)))
    assert _mend(other)[0] is other.messages


def test_a_providers_own_item_at_the_end_is_left_alone() -> None:
    """Rule 100: a paused turn goes back as it is, and the output of a provider's tool is no assistant turn."""
    paused = ProviderItem(wire=Wire.MESSAGES, type="server_tool_use", value={"type": "server_tool_use", "id": "s"})
    request = _request(_USER, _assistant(Text(text="a"), paused))
    assert _mend(request)[0] is request.messages


def test_trailing_call_item_counts_as_assistant() -> None:
    """Rules 100, 101: a Responses history that ends on a call is answered and so ends on a tool's turn."""
    body = {
        "model": "m",
        "input": [
            {"role": "user", "content": "hi"},
            {"type": "function_call", "call_id": "1", "name": "search", "arguments": "{}"},
        ],
    }
    assert _sent(Wire.RESPONSES, body)["input"] == [
        *body["input"],
        {"type": "function_call_output", "call_id": "1", "output": f"Error: {NO_RESULT}"},
    ]


def test_trailing_assistant_run_is_removed_for_the_resend() -> None:
    """Rule 100: after the prefill refusal the whole trailing run goes; anything else is the same object."""
    request = _request(_USER, _ANSWER, _USER, _ANSWER, _ANSWER)
    assert remove_trailing_assistant(request).messages == (_USER, _ANSWER, _USER)
    fine = _request(_USER)
    assert remove_trailing_assistant(fine) is fine
    assert remove_trailing_assistant(_request(_ANSWER)).messages == (_CONTINUE,)


def test_history_with_calls_gets_stub_tools() -> None:
    """Rule 104: one unusable stub per called tool and the choice none, only where the upstream needs it."""
    calls = (
        ToolCall(id="1", name="search", arguments_json="{}"),
        ToolCall(id="2", name="search", arguments_json="{}"),
        ToolCall(id="3", name="read", arguments_json="{}"),
    )
    results = Message(role=Role.TOOL, parts=tuple(ToolResult(call_id=call.id) for call in calls))
    request = _request(_USER, _assistant(*calls), results)
    log = AdaptationLog()
    mended = mend_history(request, Profile(history_needs_tools=True), "me", log)
    assert [tool.name for tool in mended.tools if isinstance(tool, Tool)] == ["search", "read"]
    assert mended.tool_choice is not None
    assert mended.tool_choice.mode is ChoiceMode.NONE
    assert mended.messages is request.messages
    assert [entry.kind for entry in log.entries] == [AdaptationKind.TOOL_ADDED]
    assert mend_history(request, Profile(), "me", AdaptationLog()) is request
    offering = request.evolve(tools=(_SEARCH,))
    assert mend_history(offering, Profile(history_needs_tools=True), "me", AdaptationLog()) is offering


def test_an_answer_beside_a_history_with_results_keeps_the_tools() -> None:
    """Rule 104: where a history with calls needs tools on offer, so does one with results in a provider's own form."""
    output = OutputFormat(kind=OutputKind.SCHEMA, schema={"type": "object"})
    done = ProviderItem(wire=Wire.RESPONSES, type="shell_call_output", value={}, result_of="1")
    needing = Profile(history_needs_tools=True, schema_output=True)
    assert can_go_alone(_request(_USER, output=output), needing)
    assert not can_go_alone(_request(_USER, _assistant(done), output=output), needing)
    assert can_go_alone(_request(_USER, _assistant(done), output=output), Profile(schema_output=True))


def test_stub_tools_reach_the_same_wire() -> None:
    """Rule 104: on the same wire the stubs are written, too."""
    body: dict[str, Any] = {
        "model": "m",
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "search", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1"}]},
        ],
    }
    sent = _sent(Wire.MESSAGES, body, Profile(history_needs_tools=True))
    assert sent == {
        **body,
        "tools": [{"name": "search", "input_schema": {"type": "object", "properties": {}}}],
        "tool_choice": {"type": "none"},
    }


def _broken_then(thought: Reasoning) -> Request:
    orphan = ToolCall(id="1", name="search", arguments_json="{}")
    return _request(
        Message(role=Role.USER, parts=()),
        _assistant(Text(text=f"ok {_MARKUP}")),
        _assistant(orphan),
        Message(role=Role.TOOL, parts=(ToolResult(call_id="nobody"),)),
        _USER,
        _assistant(thought, ToolCall(id="2", name="search", arguments_json="{}")),
        Message(role=Role.USER, parts=()),
        tools=(_SEARCH,),
    )


def test_nothing_before_the_tail_changes_where_reasoning_is_bound() -> None:
    """Rule 134: up to the last signed turn every message is the same object; the tail is mended, the rest reported."""
    request = _broken_then(_SIGNED)
    messages, log = _mend(request, _BOUND)
    assert all(new is old for new, old in zip(messages[:6], request.messages, strict=False))
    assert [part for message in messages[6:] for part in message.parts] == [
        ToolResult(call_id="2", content=(Text(text=NO_RESULT),), is_error=True),
        Text(text=EMPTY_USER),
    ]
    reported = [entry.detail for entry in log.entries if entry.kind is AdaptationKind.REPORTED]
    assert len(reported) == 3, reported


@pytest.mark.parametrize(
    ("thought", "profile"),
    [
        pytest.param(_SIGNED, Profile(), id="upstream does not bind"),
        pytest.param(Reasoning(text="hm"), _BOUND, id="nothing signed"),
        pytest.param(
            _SIGNED.evolve(state=OpaqueState(Wire.MESSAGES, "x", "other")), _BOUND, id="another upstream's state"
        ),
    ],
)
def test_unbound_history_is_mended_throughout(thought: Reasoning, profile: Profile) -> None:
    """Rule 134: it holds only where the upstream binds and its own signed reasoning is there."""
    messages, log = _mend(_broken_then(thought), profile)
    assert messages[0].parts == (Text(text=EMPTY_USER),)
    assert messages[1].parts == (Text(text="ok"),)
    assert AdaptationKind.REPORTED not in {entry.kind for entry in log.entries}


def test_dropped_reasoning_unbinds_the_history() -> None:
    """Rules 124, 134: after the reasoning was dropped the same request is mended throughout."""
    unbound = drop_reasoning(_broken_then(_SIGNED))
    assert not any(isinstance(part, Reasoning) for message in unbound.messages for part in message.parts)
    assert _mend(unbound, _BOUND)[0][1].parts == (Text(text="ok"),)
    assert drop_reasoning(unbound) is unbound
