"""Rule 127: bytes whose calls another client would read in another way are not forwarded as they are."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.origin import Wire
from mustcall.wire.chat import ChatCodec
from mustcall.wire.codec import Provenance
from mustcall.wire.regular import respelled, spells_calls

FUNCTION = {"name": "f", "arguments": "{}"}
CALL: dict[str, Any] = {"id": "a", "type": "function", "function": FUNCTION}


def whole(*calls: Any) -> bytes:
    """A whole reply with these calls."""
    choice = {"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": list(calls)}}
    return json.dumps({"id": "x", "choices": [choice | {"finish_reason": "tool_calls"}]}).encode()


def stream(*deltas: Any) -> bytes:
    """A stream of one delta of one call each."""
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [delta]}}]} for delta in deltas]
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def without(key: str) -> dict[str, Any]:
    """The call without one of its fields."""
    return {name: value for name, value in CALL.items() if name != key}


REGULAR = {
    "a call": whole(CALL),
    "a custom call": whole({"id": "a", "type": "custom", "custom": {"name": "f", "input": "x"}}),
    "two calls": whole(CALL, CALL | {"id": "b"}),
    "no list": json.dumps({"choices": [{"message": {"content": "hi"}}]}).encode(),
    "a stream": stream(CALL | {"index": 0}, {"index": 0, "function": {"arguments": "{}"}}),
    "two in a stream": stream(CALL | {"index": 0}, CALL | {"index": 1}, {"index": 0, "function": {"arguments": ""}}),
    "no calls in a stream": b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\ndata: [DONE]\n\n',
}
IRREGULAR = {
    "no id": whole(without("id")),
    "an empty id": whole(CALL | {"id": ""}),
    "no type": whole(without("type")),
    "another kind than it says": whole(CALL | {"type": "custom"}),
    "an object of arguments": whole(CALL | {"function": {"name": "f", "arguments": {}}}),
    "null arguments": whole(CALL | {"function": {"name": "f", "arguments": None}}),
    "no index": stream(CALL),
    "a first index of one": stream(CALL | {"index": 1}),
    "one index for two ids": stream(CALL | {"index": 0}, CALL | {"index": 0, "id": "b"}),
    "the name again": stream(CALL | {"index": 0}, {"index": 0, "function": FUNCTION}),
    "the id again": stream(CALL | {"index": 0}, {"index": 0, "id": "a", "function": {"arguments": ""}}),
    "no id in a stream": stream(without("id") | {"index": 0}),
    "a delta of a call that never began": stream({"index": 0, "function": {"arguments": "{}"}}),
}


@pytest.mark.parametrize("case", REGULAR)
def test_what_the_wire_says_is_regular(case: str) -> None:
    """Rule 127: the provider's own spelling is forwarded."""
    assert spells_calls(Wire.CHAT, REGULAR[case])


@pytest.mark.parametrize("case", IRREGULAR)
def test_anything_else_is_not(case: str) -> None:
    """Rule 127: a spelling that clients join differently is written anew; other wires leave no such room."""
    assert not spells_calls(Wire.CHAT, IRREGULAR[case])
    assert spells_calls(Wire.MESSAGES, IRREGULAR[case])
    assert spells_calls(Wire.RESPONSES, IRREGULAR[case])


@given(st.binary() | st.text().map(str.encode))
def test_it_never_raises(data: bytes) -> None:
    """Rule 127: whatever the bytes are, the answer is yes or no."""
    assert spells_calls(Wire.CHAT, data) in (True, False)


def test_regular_replies_are_the_same_object_and_others_are_spelled() -> None:
    """Contract 3: nothing changes where nothing must; where it must, the call is spelled as the wire says."""
    codec, log = ChatCodec(), AdaptationLog()
    good = codec.decode_reply(whole(CALL), Provenance(issuer="u", token="t"))
    assert respelled(good, Wire.CHAT, whole(CALL), log) is good
    assert respelled(good, Wire.CHAT, None, log) is good
    assert log.entries == ()
    data = whole(CALL | {"function": {"name": "f", "arguments": {"a": 1}}})
    odd = codec.decode_reply(data, Provenance(issuer="u", token="t"))
    (call,) = respelled(odd, Wire.CHAT, data, log).calls
    assert (call.arguments, call.raw_for(Wire.CHAT)) == ('{"a":1}', None)
    assert [entry.subject for entry in log.entries] == ["tool_calls"]
