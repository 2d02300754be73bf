"""A skimmed reply is what the codec reads, without the form it came in."""

import json
from typing import Any, cast

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import UpstreamGarbage
from mustcall.core.origin import Wire
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.wire.codec import Provenance, ReplyStamp
from mustcall.wire.registry import codec_for
from support.bending import places

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
counts = st.integers(0, 10**9)


def chat_body(
    text: str | None, thinking: dict[str, Any], calls: list[tuple[str, str]], finish: str | None, numbers: list[int]
) -> dict[str, Any]:
    """A completion as OpenAI writes it, with thinking as other servers do."""
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None, "annotations": [], **thinking}
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for at, (name, arguments) in enumerate(calls)
        ]
    usage = {"prompt_tokens": numbers[0], "completion_tokens": numbers[1], "total_tokens": sum(numbers[:2])}
    usage |= {"prompt_tokens_details": {"cached_tokens": numbers[2], "audio_tokens": 0}}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def messages_body(
    text: str | None, thoughts: list[Any], inputs: list[Any], finish: str | None, numbers: list[int]
) -> dict[str, Any]:
    """A message as Anthropic writes it."""
    content: list[Any] = thoughts if text is None else [*thoughts, {"type": "text", "text": text}]
    content += [{"type": "tool_use", "id": f"t{at}", "name": "f", "input": given} for at, given in enumerate(inputs)]
    usage: dict[str, Any] = {"input_tokens": numbers[0], "output_tokens": numbers[1]}
    usage |= {"cache_read_input_tokens": numbers[2], "output_tokens_details": {"thinking_tokens": numbers[2]}}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content}
    return {**head, "stop_reason": finish, "stop_sequence": None, "usage": usage}


def responses_body(
    said: list[dict[str, Any]],
    thoughts: list[Any],
    calls: list[tuple[str, str]],
    numbers: list[int],
    reason: str | None,
) -> dict[str, Any]:
    """A response as OpenAI writes it."""
    message = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": said}
    output: list[Any] = [{"id": f"rs_{at}", "type": "reasoning", **thought} for at, thought in enumerate(thoughts)]
    output += [{**message, "phase": "final_answer"}] if said else []
    output += [
        {"id": f"fc_{at}", "type": "function_call", "status": "completed", "call_id": f"call_{at}", "name": name}
        | {"arguments": arguments, "namespace": name if at else None}
        for at, (name, arguments) in enumerate(calls)
    ]
    output += [{"id": "ctc", "type": "custom_tool_call", "call_id": "c", "name": "p", "input": "x"}] * len(calls[:1])
    usage: dict[str, Any] = {"input_tokens": numbers[0], "output_tokens": numbers[1], "total_tokens": sum(numbers[:2])}
    usage |= {"input_tokens_details": {"cached_tokens": numbers[2]}, "output_tokens_details": {"reasoning_tokens": 0}}
    head: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "error": None,
        "tools": [],
    }
    head |= {"status": "completed" if reason is None else "incomplete"}
    head |= {"incomplete_details": None if reason is None else {"reason": reason}}
    return {**head, "output": output, "usage": usage}


def bare(reply: Reply) -> Reply:
    """The reply without any form it came in."""
    usage = None if reply.usage is None else msgspec.structs.replace(reply.usage, origin=None)
    parts = tuple(msgspec.structs.replace(part, origin=None) for part in reply.parts)
    return msgspec.structs.replace(reply, origin=None, usage=usage, parts=parts)


bodies = st.one_of(
    st.tuples(
        st.just(Wire.CHAT),
        st.builds(
            chat_body,
            st.none() | texts,
            st.dictionaries(st.sampled_from(["reasoning_content", "reasoning", "refusal"]), st.none() | texts)
            | st.builds(lambda: {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}),
            st.lists(st.tuples(texts.filter(bool), texts), max_size=3),
            st.sampled_from(["stop", "tool_calls", "length", None, "new"]),
            st.lists(counts, min_size=3, max_size=3),
        ),
    ),
    st.tuples(
        st.just(Wire.MESSAGES),
        st.builds(
            messages_body,
            st.none() | texts,
            st.lists(
                st.fixed_dictionaries({"type": st.just("thinking"), "thinking": texts, "signature": texts})
                | st.fixed_dictionaries({"type": st.just("redacted_thinking"), "data": texts}),
                max_size=2,
            ),
            st.lists(st.dictionaries(texts, values, max_size=3), max_size=3),
            st.sampled_from(["end_turn", "tool_use", "max_tokens", None, "new"]),
            st.lists(counts, min_size=3, max_size=3),
        ),
    ),
    st.tuples(
        st.just(Wire.RESPONSES),
        st.builds(
            responses_body,
            st.lists(
                texts.map(lambda text: {"type": "output_text", "text": text, "logprobs": None})
                | texts.map(lambda text: {"type": "refusal", "refusal": text}),
                max_size=2,
            ),
            st.lists(
                st.fixed_dictionaries(
                    {"summary": st.lists(texts.map(lambda text: {"type": "summary_text", "text": text}), max_size=2)},
                    optional={
                        "content": st.none()
                        | st.lists(texts.map(lambda text: {"type": "t", "text": text}), max_size=2),
                        "encrypted_content": st.none() | texts,
                    },
                ),
                max_size=2,
            ),
            st.lists(st.tuples(texts.filter(bool), texts), max_size=3),
            st.lists(counts, min_size=3, max_size=3),
            st.sampled_from([None, "max_output_tokens", "content_filter", "new"]),
        ),
    ),
)


@given(case=bodies)
def test_a_skimmed_reply_is_the_reply(case: tuple[Wire, dict[str, Any]]) -> None:
    """What is skimmed is regular and means what the codec reads."""
    wire, value = case
    body = json.dumps(value).encode()
    skimmed = codec_for(wire).read_regular(body, Provenance(token="t"))
    assert skimmed is not None
    assert codec_for(wire).is_regular(body)
    assert skimmed == bare(codec_for(wire).decode_reply(body, Provenance(token="t")))


@given(case=bodies, data=st.data())
def test_whatever_is_bent(case: tuple[Wire, dict[str, Any]], data: st.DataObject) -> None:
    """A reply with a value bent or left out is skimmed as the codec reads it or not at all; nothing is raised."""
    wire, value = case
    _bend(value, data)
    body = json.dumps(value).encode()
    skimmed = codec_for(wire).read_regular(body, Provenance(token="t"))
    if skimmed is not None:
        assert codec_for(wire).is_regular(body)
        assert skimmed == bare(codec_for(wire).decode_reply(body, Provenance(token="t")))


@given(case=bodies, caller=st.sampled_from(list(Wire)), data=st.data())
def test_told_on_another_wire(case: tuple[Wire, dict[str, Any]], caller: Wire, data: st.DataObject) -> None:
    """On another wire a skimmed reply is told as the one the codec reads, with the same adaptations."""
    wire, value = case
    assume(caller is not wire)
    if data.draw(st.booleans()):
        _bend(value, data)
    body = json.dumps(value).encode()
    skimmed = codec_for(wire).read_regular(body, Provenance(token="t"))
    assume(skimmed is not None)
    asked = Request(model="m", messages=())
    told: list[Any] = []
    for reply in (cast("Reply", skimmed), codec_for(wire).decode_reply(body, Provenance(token="t"))):
        log = AdaptationLog()
        try:
            written: Any = codec_for(caller).encode_reply(reply.evolve(), asked, ReplyStamp(token="t", created=1), log)
        except UpstreamGarbage as garbage:  # arguments that are no JSON, for a wire that has only objects
            written = str(garbage)
        told.append((written, log.entries))
    assert told[0] == told[1]


@pytest.mark.parametrize("wire", list(Wire))
@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b'{"id":"\xff"}', b"[" * 5000])
def test_what_is_no_reply(wire: Wire, body: bytes) -> None:
    """Anything else is left to the codec."""
    assert codec_for(wire).read_regular(body, Provenance(token="t")) is None


def _bend(value: Any, data: st.DataObject) -> None:
    """Put another value anywhere, or leave a key out."""
    holder, key = data.draw(st.sampled_from(list(places(value))))
    if data.draw(st.booleans()):
        holder[key] = data.draw(values)
    else:
        del holder[key]
