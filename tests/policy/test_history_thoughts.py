"""Rule 124: reasoning of earlier turns is kept byte for byte, renamed or dropped, and never sent to a stranger."""

from typing import Any

import msgspec
import pytest

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import OpaqueState, Reasoning, Text, ToolCall
from mustcall.core.request import Request
from mustcall.policy.facts.profile import Profile, ReasoningPolicy, SchemaTarget
from mustcall.policy.history.mended import drop_reasoning, mend_history
from mustcall.policy.history.reasoning_state import bound_until, fit_reasoning, without_reasoning
from mustcall.testing.issued import IssuedMemory
from mustcall.testing.rules import SeenRequest, find_violation
from mustcall.wire.codec import Target
from mustcall.wire.crossing.sealing import seal
from mustcall.wire.registry import codec_for

_TEXT = Text(text="a")
_CLAUDE = Profile(schema_target=SchemaTarget.ANTHROPIC)


def _thought(issuer: str, form: Wire = Wire.MESSAGES, **more: Any) -> Reasoning:
    return Reasoning(state=OpaqueState(form, {"field": "reasoning_content"}, issuer), **more)


def _assistant(*parts: Any) -> Message:
    return Message(role=Role.ASSISTANT, parts=parts)


def _fit(part: Reasoning, profile: Profile) -> tuple[tuple[Message, ...], tuple[Message, ...], AdaptationLog]:
    log = AdaptationLog()
    messages = (_assistant(part, _TEXT),)
    fitted = fit_reasoning(messages, profile, "me", log)
    assert fit_reasoning(fitted, profile, "me", AdaptationLog()) is fitted
    assert (fitted is messages) == (not log.entries)
    return messages, fitted, log


@pytest.mark.parametrize("issuer", ["me", ""])
def test_own_and_unknown_state_is_kept(issuer: str) -> None:
    """Rule 124: state of this upstream, and state whose maker is not known, is the same object."""
    messages, fitted, _ = _fit(_thought(issuer, text="hm"), _CLAUDE)
    assert fitted is messages


def test_state_of_another_issuer_is_never_sent() -> None:
    """Rule 124: a foreign block goes, and it is noted; a message of nothing else goes with it."""
    _, fitted, log = _fit(_thought("other", text="hm"), Profile())
    assert fitted == (_assistant(_TEXT),)
    assert [entry.kind for entry in log.entries] == [AdaptationKind.STATE_DROPPED]
    alone = (_assistant(_thought("other")), _assistant(_TEXT))
    assert fit_reasoning(alone, Profile(), "me", AdaptationLog()) == alone[1:]


@pytest.mark.parametrize(
    "thought", [_thought("other", text="hm"), _thought("other", Wire.RESPONSES, summary=("h", "m"), id="rs")]
)
def test_foreign_thoughts_are_plain_text_where_there_is_a_field_for_it(thought: Reasoning) -> None:
    """Rule 124: what can be read is sent in the upstream's own field, without the state."""
    _, fitted, _ = _fit(thought, Profile(reasoning_field="reasoning"))
    plain = fitted[0].parts[0]
    assert isinstance(plain, Reasoning)
    assert plain.text in ("hm", "h\n\nm")
    assert plain.state == OpaqueState(Wire.CHAT, {"field": "reasoning"})
    assert (plain.id, plain.summary) == (None, ())


def test_the_field_is_renamed() -> None:
    """Rule 124: thinking in another server's field is sent in this one's, its details unread."""
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": "a", "reasoning_content": "hm", "reasoning_details": [{"x": 1}]},
            {"role": "user", "content": "q"},
        ],
    }
    codec = codec_for(Wire.CHAT)
    request = codec.decode_request(msgspec.json.encode(body))
    mended = mend_history(request, Profile(reasoning_field="reasoning"), "me", AdaptationLog())
    sent = codec.encode_request(mended, Target(issuer="me"), AdaptationLog())
    assert sent["messages"][1] == {
        "role": "assistant",
        "content": "a",
        "reasoning": "hm",
        "reasoning_details": [{"x": 1}],
    }
    same = mend_history(request, Profile(reasoning_field="reasoning_content"), "me", AdaptationLog())
    assert same is request


def test_unsigned_thinking_goes_only_where_signatures_are_demanded() -> None:
    """Rule 124: a partial block is never sent to Claude; other Messages servers never sign theirs."""
    unsigned = Reasoning(text="hm", origin=Origin(Wire.MESSAGES, raw={"type": "thinking"}))
    assert _fit(unsigned, _CLAUDE)[1] == (_assistant(_TEXT),)
    assert _fit(unsigned, Profile(prefix_bound=True))[1] == (_assistant(_TEXT),)
    messages, fitted, _ = _fit(unsigned, Profile())
    assert fitted is messages


def test_drop_policy_drops_all() -> None:
    """Rule 124: a profile may say that no reasoning of earlier turns is sent."""
    drop = Profile(reasoning_history=ReasoningPolicy.DROP)
    _, fitted, log = _fit(_thought("me", text="hm"), drop)
    assert fitted == (_assistant(_TEXT),)
    assert len(log.entries) == 1


def test_drop_policy_yields_to_bound_reasoning() -> None:
    """Rule 134 before 124: reasoning that binds the history is not dropped by policy."""
    drop = Profile(reasoning_history=ReasoningPolicy.DROP, prefix_bound=True)
    messages, fitted, _ = _fit(_thought("me", text="hm"), drop)
    assert fitted is messages


def test_bound_reaches_to_the_end_of_the_last_signed_turn() -> None:
    """Rule 134: items of the turn that carries the state are bound with it."""
    user = Message(role=Role.USER, parts=(_TEXT,))
    messages = (user, _assistant(_thought("")), _assistant(_TEXT), user, _assistant(Reasoning(text="hm")), user)
    assert bound_until(messages, Profile(prefix_bound=True)) == 3
    assert bound_until(messages, Profile()) == 0
    assert bound_until((user,), Profile(prefix_bound=True)) == 0


def test_items_are_unlinked_from_dropped_reasoning() -> None:
    """Rule 124: OpenAI refuses a stored item without its reasoning, so the ids of that turn go with it."""
    body: dict[str, Any] = {
        "model": "m",
        "input": [
            {"role": "user", "content": "q"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
            {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "a"}]},
            {"type": "function_call", "id": "fc_1", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "r"},
            {"type": "function_call", "id": "fc_2", "call_id": "2", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "2", "output": "r"},
        ],
    }
    issued = IssuedMemory(led_to={"msg_1": "rs_1", "fc_1": "rs_1"})
    codec = codec_for(Wire.RESPONSES)
    request = drop_reasoning(codec.decode_request(msgspec.json.encode(body)))
    sent = codec.encode_request(request, Target(), AdaptationLog())
    assert [item.get("id") for item in sent["input"]] == [None, None, None, None, "fc_2", None]
    assert find_violation(Wire.RESPONSES, SeenRequest(sent, issued=issued)) is None
    untouched = {**body, "input": [item for item in body["input"] if item.get("type") != "reasoning"]}
    violation = find_violation(Wire.RESPONSES, SeenRequest(untouched, issued=issued))
    assert violation is not None, "the strict upstream would have refused the ids"


def test_sealed_state_returns_only_to_its_issuer() -> None:
    """Rule 124: Claude's thinking that travelled through a chat client is kept for Claude and for no one else."""
    state = OpaqueState(Wire.MESSAGES, {"type": "thinking", "thinking": "hm", "signature": "s"}, "claude")
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "q"},
            {
                "role": "assistant",
                "content": "a",
                "reasoning_details": [{"type": "reasoning.encrypted", "data": seal(state)}],
            },
            {"role": "user", "content": "q"},
        ],
    }
    request = codec_for(Wire.CHAT).decode_request(msgspec.json.encode(body))
    assert mend_history(request, Profile(), "claude", AdaptationLog()) is request
    other = mend_history(request, Profile(), "other", AdaptationLog())
    assert other.messages[1].parts == (_TEXT,)


def test_drop_reasoning_is_the_same_object_without_any() -> None:
    """Rules 105, 124: without reasoning there is nothing to drop."""
    request = Request(model="m", messages=(_assistant(_TEXT, ToolCall(id="1", name="f", arguments_json="{}")),))
    assert drop_reasoning(request) is request
    assert without_reasoning(()) == ()
