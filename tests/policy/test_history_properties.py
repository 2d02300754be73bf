"""Any history on any wire: mended once for all, and taken by the strictest upstream of any wire."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.origin import Wire
from mustcall.core.request import Request
from mustcall.policy.facts.profile import Profile
from mustcall.policy.history.mended import mend_history
from mustcall.policy.history.names import NameMap
from mustcall.testing.rules import SeenRequest, find_violation
from mustcall.wire.codec import Target
from mustcall.wire.registry import codec_for

_CALL = '<tool_call>{"name": "search", "arguments": {"q": "x"}}</tool_call>'
_PROFILE = Profile(history_needs_tools=True)
_HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
_FIELDS: dict[Wire, dict[str, Any]] = {
    Wire.CHAT: {"model": "m"},
    Wire.MESSAGES: {"model": "m", "max_tokens": 9},
    Wire.RESPONSES: {"model": "m", "store": False},
}
_LIST = {Wire.CHAT: "messages", Wire.MESSAGES: "messages", Wire.RESPONSES: "input"}
_SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
_TOOLS: dict[Wire, dict[str, Any]] = {
    Wire.CHAT: {"type": "function", "function": {"name": "search", "parameters": _SCHEMA}},
    Wire.MESSAGES: {"name": "search", "input_schema": _SCHEMA},
    Wire.RESPONSES: {"type": "function", "name": "search", "parameters": _SCHEMA, "strict": False},
}

_id = st.sampled_from(["a", "b", "c", "call_1"])
_name = st.sampled_from(["search", "read_file"])
_text = st.sampled_from(["", "hi", f"ok {_CALL}", _CALL, f"`{_CALL}`"])
# Blank text that is not empty is a matter of one wire: what it means across them is the codecs' business.
_any_text = st.one_of(_text, st.sampled_from([" ", "\n\n"]))


def _fixed(**fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Draw a JSON object; fields that are no strategy are as given."""
    mapping: dict[str, st.SearchStrategy[Any]] = {}
    for key, value in fields.items():
        mapping[key] = value if isinstance(value, st.SearchStrategy) else st.just(value)
    return st.fixed_dictionaries(mapping)


def _chat(text: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    call = _fixed(id=_id, type="function", function=_fixed(name=_name, arguments="{}"))
    return st.one_of(
        _fixed(role="user", content=text),
        _fixed(role="system", content="s"),
        _fixed(role="assistant", content=text),
        _fixed(role="assistant", content=st.one_of(st.none(), text), tool_calls=st.lists(call, min_size=1, max_size=2)),
        _fixed(role="tool", tool_call_id=_id, content=text),
    )


def _messages(text: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    words = _fixed(type="text", text=text)
    call = _fixed(type="tool_use", id=_id, name=_name, input={})
    result = _fixed(type="tool_result", tool_use_id=_id, content="r")
    return st.one_of(
        _fixed(role="user", content=text),
        _fixed(role="user", content=st.lists(st.one_of(words, result), max_size=3)),
        _fixed(role="assistant", content=st.one_of(text, st.lists(st.one_of(words, call), max_size=3))),
    )


def _responses(text: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        _fixed(role="user", content=text),
        _fixed(type="message", role="assistant", content=st.lists(_fixed(type="output_text", text=text), max_size=2)),
        _fixed(type="function_call", call_id=_id, name=_name, arguments="{}"),
        _fixed(type="function_call_output", call_id=_id, output=text),
    )


_ENTRIES = {Wire.CHAT: _chat, Wire.MESSAGES: _messages, Wire.RESPONSES: _responses}


def _histories(wire: Wire, text: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    body = _fixed(**{**_FIELDS[wire], _LIST[wire]: st.lists(_ENTRIES[wire](text), min_size=1, max_size=9)})
    return st.one_of(body, body.map(lambda found: {**found, "tools": [_TOOLS[wire]]}))


def _decode(wire: Wire, body: dict[str, Any]) -> Request:
    return codec_for(wire).decode_request(msgspec.json.encode(body))


def _send(request: Request, wire: Wire) -> dict[str, Any]:
    mended = mend_history(request, _PROFILE, "me", AdaptationLog())
    outgoing = NameMap.of(mended, _PROFILE).outgoing(mended)
    return codec_for(wire).encode_request(outgoing, Target(issuer="me"), AdaptationLog())


@pytest.mark.parametrize("wire", list(Wire))
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_mending_twice_is_mending_once(wire: Wire, data: st.DataObject) -> None:
    """Rules 100-105: any history is mended without an exception; a second time is the same object, nothing noted."""
    request = _decode(wire, data.draw(_histories(wire, _any_text)))
    log = AdaptationLog()
    once = mend_history(request, _PROFILE, "me", log)
    assert (once is request) == (not log.entries)
    again = AdaptationLog()
    assert mend_history(once, _PROFILE, "me", again) is once
    assert again.entries == ()


@pytest.mark.parametrize("wire", list(Wire))
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_strict_upstream_of_the_same_wire_takes_it(wire: Wire, data: st.DataObject) -> None:
    """Rules 100, 101, 103, 104: what is sent on the same wire breaks none of the provider's rules."""
    body = data.draw(_histories(wire, _any_text))
    assert find_violation(wire, SeenRequest(_send(_decode(wire, body), wire), _HEADERS)) is None


@pytest.mark.parametrize("upstream", list(Wire))
@pytest.mark.parametrize("caller", list(Wire))
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_the_strict_upstream_of_another_wire_takes_it(caller: Wire, upstream: Wire, data: st.DataObject) -> None:
    """Rules 100, 101, 103, 104: nor does what is sent on another."""
    body = data.draw(_histories(caller, _text))
    # A chat of nothing but system messages is legal there and has no counterpart on the Messages wire.
    body[_LIST[caller]] = [{"role": "user", "content": "hi"}, *body[_LIST[caller]]]
    assert find_violation(upstream, SeenRequest(_send(_decode(caller, body), upstream), _HEADERS)) is None


@pytest.mark.parametrize("wire", list(Wire))
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_what_is_clean_is_forwarded_as_it_came(wire: Wire, data: st.DataObject) -> None:
    """Rule 105: what was sent once needs nothing the next time: it is the same object and the same body."""
    sent = _send(_decode(wire, data.draw(_histories(wire, _any_text))), wire)
    request = _decode(wire, msgspec.json.decode(msgspec.json.encode(sent)))
    assert mend_history(request, _PROFILE, "me", AdaptationLog()) is request
    assert _send(request, wire) == sent


@pytest.mark.parametrize("wire", list(Wire))
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_longer_history_begins_like_the_shorter_one(wire: Wire, data: st.DataObject) -> None:
    """Rules 105, 134: once a turn is answered by a user's, what comes later never changes how it is sent."""
    body = data.draw(_histories(wire, _any_text))
    question = {"role": "user", "content": "and now?"}
    body[_LIST[wire]] = [*body[_LIST[wire]], question]
    body["tools"] = [_TOOLS[wire]]
    answer = {"role": "assistant", "content": "well"}
    longer = {**body, _LIST[wire]: [*body[_LIST[wire]], answer, question]}
    before = _send(_decode(wire, body), wire)[_LIST[wire]]
    assert _send(_decode(wire, longer), wire)[_LIST[wire]][: len(before)] == before


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_nothing_before_the_tail_changes_where_reasoning_is_bound(data: st.DataObject) -> None:
    """Rule 134: whatever the history is, every message up to the last signed turn is the very same object."""
    wire = Wire.MESSAGES
    signed = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}
    before = data.draw(st.lists(_messages(_any_text), max_size=5))
    after = data.draw(st.lists(_messages(_any_text), max_size=4))
    body = {**_FIELDS[wire], "messages": [*before, signed, {"role": "user", "content": "q"}, *after]}
    request = _decode(wire, body)
    profile = Profile(prefix_bound=True)
    mended = mend_history(request, profile, "me", AdaptationLog())
    bound = len(before) + 1
    assert all(new is old for new, old in zip(mended.messages[:bound], request.messages[:bound], strict=True))
    assert mend_history(mended, profile, "me", AdaptationLog()) is mended
