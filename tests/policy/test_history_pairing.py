"""Rule 101: every call sent has exactly one result and every result one call."""

from typing import Any

import msgspec
import pytest

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import CallKind, Part, ProviderItem, Text, ToolCall, ToolResult
from mustcall.core.request import Request
from mustcall.policy.facts.profile import Profile
from mustcall.policy.history.mended import mend_history
from mustcall.policy.history.pairing import pair_results
from mustcall.wire.codec import Target
from mustcall.wire.registry import codec_for

NO_RESULT = "No result was recorded for this call."


def _call(call_id: str, kind: CallKind = CallKind.FUNCTION) -> ToolCall:
    return ToolCall(id=call_id, name="search", arguments_json="{}", kind=kind)


def _result(call_id: str, text: str = "r") -> ToolResult:
    return ToolResult(call_id=call_id, content=(Text(text=text),))


def _none(call_id: str) -> ToolResult:
    return ToolResult(call_id=call_id, content=(Text(text=NO_RESULT),), is_error=True)


def _a(*parts: Part, wire: Wire | None = None) -> Message:
    return Message(role=Role.ASSISTANT, parts=parts, origin=Origin(wire) if wire else None)


def _t(*parts: Part, wire: Wire | None = None) -> Message:
    return Message(role=Role.TOOL, parts=parts, origin=Origin(wire) if wire else None)


def _u(*parts: Part | str, wire: Wire | None = None) -> Message:
    content = tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
    return Message(role=Role.USER, parts=content, origin=Origin(wire) if wire else None)


def _pair(messages: tuple[Message, ...], **more: Any) -> tuple[Message, ...]:
    log = AdaptationLog()
    paired = pair_results(messages, 0, log, **more)
    assert (paired is messages) == (not log.entries), "a change is noted, and nothing else is"
    assert pair_results(paired, 0, AdaptationLog(), **more) is paired, "pairing twice is pairing once"
    return paired


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param((), id="nothing"),
        pytest.param((_u("q"), _a(_call("1"), _call("2")), _t(_result("2")), _t(_result("1")), _a(Text(text="x")))),
        pytest.param((_a(_call("1")), _t(_result("1")), _a(_call("1")), _t(_result("1"))), id="ids start anew"),
        pytest.param((_a(_call("1"), _call("1")), _t(_result("1")), _t(_result("1"))), id="one id for two calls"),
        pytest.param((_a(_call("1")), _a(_call("2")), _t(_result("1")), _t(_result("2"))), id="items of one turn"),
        pytest.param((_a(_call("1")), _u(_result("1"), "and?"), _u("well?")), id="results and text in one message"),
    ],
)
def test_well_paired_history_is_the_same_tuple(messages: tuple[Message, ...]) -> None:
    """Rule 105: what is paired is not touched."""
    assert _pair(messages) is messages


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param((_a(_call("1")), _u("q")), (_a(_call("1")), _t(_none("1")), _u("q")), id="orphan call"),
        pytest.param((_u("q"), _a(_call("1"))), (_u("q"), _a(_call("1")), _t(_none("1"))), id="call at the very end"),
        pytest.param(
            (_a(_call("1"), _call("2")), _t(_result("2")), _u("q")),
            (_a(_call("1"), _call("2")), _t(_none("1")), _t(_result("2")), _u("q")),
            id="one of two calls",
        ),
        pytest.param((_u("q"), _t(_result("1")), _u("p")), (_u("q"), _u("p")), id="orphan result"),
        pytest.param((_u("q"), _u(_result("1"), "p")), (_u("q"), _u("p")), id="orphan result beside text"),
        pytest.param(
            (_a(_call("1")), _t(_result("1", "a")), _t(_result("1", "b"))),
            (_a(_call("1")), _t(_result("1", "a"))),
            id="second result: the first is kept",
        ),
        pytest.param((_t(_result("1")), _a(_call("1"))), (_a(_call("1")), _t(_none("1"))), id="result before its call"),
        pytest.param(
            (_a(_call("1")), _u("wait"), _a(Text(text="ok")), _t(_result("1")), _u("q")),
            (_a(_call("1")), _t(_result("1")), _u("wait"), _a(Text(text="ok")), _u("q")),
            id="late result: moved up",
        ),
        pytest.param(
            (_a(_call("1")), _u("wait"), _t(_result("1"))),
            (_a(_call("1")), _t(_result("1")), _u("wait")),
            id="result behind other content",
        ),
        pytest.param(
            (_a(_call("1")), _u("wait", _result("1"))), (_a(_call("1")), _u(_result("1"), "wait")), id="in one message"
        ),
        pytest.param(
            (_a(_call("1"), _call("2")), _u(_result("1"), "p"), _u(_result("2"), "q")),
            (_a(_call("1"), _call("2")), _t(_result("2")), _u(_result("1"), "p"), _u("q")),
            id="text between results",
        ),
        pytest.param(
            (_a(_call("1")), _u("q"), _a(_call("1")), _t(_result("1"))),
            (_a(_call("1")), _t(_none("1")), _u("q"), _a(_call("1")), _t(_result("1"))),
            id="the latest call of an id is answered",
        ),
        pytest.param(
            (_a(_call("1"), _call("1")), _t(_result("1"))),
            (_a(_call("1"), _call("1")), _t(_none("1")), _t(_result("1"))),
            id="one id for two calls, one result",
        ),
        pytest.param(
            (_a(_call("1")), _u("q"), _a(_result("1"))), (_a(_call("1")), _t(_result("1")), _u("q")), id="wrong role"
        ),
        pytest.param(
            (_a(_call("1"), wire=Wire.CHAT), _a(Text(text="x"), wire=Wire.CHAT), _t(_result("1"))),
            (_a(_call("1"), wire=Wire.CHAT), _t(_result("1")), _a(Text(text="x"), wire=Wire.CHAT)),
            id="chat wants results behind the very message",
        ),
        pytest.param(
            (_a(_call("1", CallKind.CUSTOM)),),
            (_a(_call("1", CallKind.CUSTOM)), _t(_none("1").evolve(kind=CallKind.CUSTOM))),
            id="kind of the call",
        ),
    ],
)
def test_pairs(messages: tuple[Message, ...], expected: tuple[Message, ...]) -> None:
    """Rule 101: orphan calls get an error result, orphan results go, misplaced results are moved to their calls."""
    assert _pair(messages) == expected


@pytest.mark.parametrize(
    ("head", "more"),
    [
        ((), {"kept_by_server": True}),
        ((_a(ProviderItem(wire=Wire.RESPONSES, type="local_shell_call", value={"call_id": "1"})),), {}),
        ((_a(ProviderItem(wire=Wire.RESPONSES, type="item_reference", value={"type": "item_reference"})),), {}),
    ],
)
def test_a_result_whose_call_is_elsewhere_is_no_orphan(head: tuple[Message, ...], more: dict[str, Any]) -> None:
    """Rule 101: a call that the server keeps, refers to or made in its own kind is a call."""
    messages = (*head, _t(_result("1")))
    assert _pair(messages, **more) is messages


@pytest.mark.parametrize("more", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}])
def test_server_state_is_recognised(more: dict[str, str]) -> None:
    """Rule 101: with `previous_response_id` or a conversation the call is not in the request."""
    body = {"model": "m", "input": [{"type": "function_call_output", "call_id": "1", "output": "r"}], **more}
    request = codec_for(Wire.RESPONSES).decode_request(msgspec.json.encode(body))
    assert mend_history(request, Profile(), "me", AdaptationLog()) is request


def test_messages_results_join_the_users_turn() -> None:
    """Rule 101: on the Messages wire turns alternate, so made and moved results join the user message."""
    wire = Wire.MESSAGES
    call = _call("1").evolve(origin=Origin(wire))
    made = _none("1").evolve(origin=Origin(wire))
    assert _pair((_a(call, wire=wire), _u("q", wire=wire))) == (_a(call, wire=wire), _u(made, "q", wire=wire))
    assert _pair((_a(call, wire=wire),)) == (_a(call, wire=wire), _t(made, wire=wire))
    system = Message(role=Role.SYSTEM, parts=(Text(text="s"),), origin=Origin(wire))
    assert _pair((_a(call, wire=wire), system))[1] == _t(made, wire=wire)


def test_ids_are_spelled_alike() -> None:
    """Rule 101: a made result goes out under its call's id, also where that would be illegal on another wire."""
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "q"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "functions.x:0", "type": "function", "function": {"name": "x", "arguments": "{}"}}
                ],
            },
        ],
    }
    codec = codec_for(Wire.CHAT)
    mended = mend_history(codec.decode_request(msgspec.json.encode(body)), Profile(), "me", AdaptationLog())
    sent = codec.encode_request(mended, Target(), AdaptationLog())
    assert sent["messages"] == [
        *body["messages"],
        {"role": "tool", "tool_call_id": "functions.x:0", "content": f"Error: {NO_RESULT}"},
    ]


def test_untouched_messages_stay_the_same_objects() -> None:
    """Rule 105: mending one pair leaves every other message its exact form."""
    messages = (_u("q"), _a(_call("1")), _t(_result("1")), _a(_call("2")), _u("p"))
    paired = _pair(messages)
    assert [paired[at] is messages[at] for at in range(4)] == [True] * 4
    assert paired[5] is messages[4]


def test_bound_turns_are_left_and_reported() -> None:
    """Rule 134: orphans before the tail stay; a late result of a bound call stays where it is."""
    messages = (_t(_result("0")), _a(_call("1")), _u("q"), _a(Text(text="signed")), _t(_result("1")), _t(_result("9")))
    log = AdaptationLog()
    assert pair_results(messages, 4, log) == messages[:5]
    assert {entry.kind for entry in log.entries} == {AdaptationKind.REPORTED, AdaptationKind.HISTORY_MENDED}


def test_notes_are_bounded() -> None:
    """A thousand orphans are one note: notes travel in a header."""
    log = AdaptationLog()
    pair_results(tuple(_t(_result(str(number))) for number in range(1000)), 0, log)
    assert [entry.detail for entry in log.entries] == ["1000 without a call: removed"]


def test_a_mended_request_keeps_what_it_was() -> None:
    """Rule 101: only the messages change."""
    request = Request(model="m", messages=(_a(_call("1")),), temperature=0.5)
    mended = mend_history(request, Profile(), "me", AdaptationLog())
    assert (mended.model, mended.temperature, len(mended.messages)) == ("m", 0.5, 2)
