"""Rules 112, 127: a whole reply is forwarded only where a strict client reads in it what we read."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.origin import Wire
from mustcall.engine.replies.respelling import respelled
from mustcall.testing import Call, Say, Think, Turn
from mustcall.testing.render import Stamp, build_reply
from mustcall.wire.codec import Provenance
from mustcall.wire.registry import codec_for

Bend = Callable[[dict[str, Any]], Any]

TURNS = {
    "text": Turn(Say("Hello")),
    "calls": Turn(Think("hm"), Say("Look:"), Call("f", {"a": 1}), Call("f", {})),
    "length": Turn(Say("Once"), finish="length"),
    "unknown finish": Turn(Say("Once"), finish="no_such_reason"),
}


def body(wire: Wire, turn: Turn) -> dict[str, Any]:
    """A healthy reply."""
    return build_reply(turn, wire, {"model": "m"}, Stamp(1, "s"))


def dump(value: Any) -> bytes:
    """JSON as a server writes it."""
    return json.dumps(value).encode()


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize("name", TURNS)
def test_healthy_replies_are_regular(wire: Wire, name: str) -> None:
    """Rule 112: what a healthy server sends is forwarded, fields of tomorrow included."""
    assert codec_for(wire).is_regular(dump({**body(wire, TURNS[name]), "future": [1.0]}))


MINIMAL: dict[Wire, dict[str, Any]] = {
    Wire.CHAT: {"id": "x", "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "new": 1}]},
    Wire.RESPONSES: {"id": "x", "object": "response", "status": "completed", "output": [{"type": "new_item"}]},
    Wire.MESSAGES: {"id": "x", "type": "message", "role": "assistant", "content": [{"type": "new"}], "usage": {}},
}


@pytest.mark.parametrize("wire", Wire)
def test_small_servers_and_unknown_contents_are_regular(wire: Wire) -> None:
    """Rule 112: what no client needs may be left out, and what it does not know has its own type."""
    assert codec_for(wire).is_regular(dump(MINIMAL[wire]))
    assert not codec_for(wire).is_regular(dump({**MINIMAL[wire], "id": None}))
    assert not codec_for(wire).is_regular(dump(MINIMAL[wire])[:-1] + b',"x":"\xff"}')


def chat_call(**changes: Any) -> Bend:
    """Change the first call of a chat reply."""
    return lambda value: value["choices"][0]["message"]["tool_calls"][0].update(changes)


def item(at: int, **changes: Any) -> Bend:
    """Change one item or block."""
    return lambda value: value["output" if "output" in value else "content"][at].update(changes)


BENDS: dict[Wire, dict[str, Bend]] = {
    Wire.CHAT: {
        "no id": chat_call(id=""),
        "no type": chat_call(type=None),
        "another kind than it says": chat_call(type="custom"),
        "an object of arguments": chat_call(function={"name": "f", "arguments": {}}),
        "null arguments": chat_call(function={"name": "f", "arguments": None}),
        "one id for two": chat_call(id="call_s_0001_1"),
        "content as a list": lambda value: value["choices"][0]["message"].update(content=[{"type": "text"}]),
        "a call we do not read": lambda value: value["choices"][0]["message"].update(function_call={"name": "f"}),
        "an empty finish": lambda value: value["choices"][0].update(finish_reason=""),
        "no choices": lambda value: value.update(choices=[]),
        "odd usage": lambda value: value.update(usage={"prompt_tokens": "many"}),
    },
    Wire.RESPONSES: {
        "no call id": item(2, call_id=None),
        "an empty call id": item(2, call_id=""),
        "an object of arguments": item(2, arguments={}),
        "no message id": item(1, id=""),
        "text that is none": item(1, content=[{"type": "output_text", "text": 5}]),
        "no status": lambda value: value.pop("status"),
        "no object": lambda value: value.pop("object"),
        "incomplete for no reason": lambda value: value.update(status="incomplete"),
        "odd usage": lambda value: value.update(usage=True),
    },
    Wire.MESSAGES: {
        "no call id": item(2, id=None),
        "an empty call id": item(2, id=""),
        "input that is no object": item(2, input=5),
        "text that is none": item(1, text=None),
        "no type": item(1, type=None),
        "no role": lambda value: value.pop("role"),
        "no usage": lambda value: value.pop("usage"),
        "odd usage": lambda value: value.update(usage={"input_tokens": -5}),
    },
}


@pytest.mark.parametrize(("wire", "bend"), [(wire, bend) for wire, bends in BENDS.items() for bend in bends])
def test_bent_replies_are_not(wire: Wire, bend: str) -> None:
    """Rule 127: what a client would crash on, or read in another way, is not forwarded."""
    value = json.loads(dump(body(wire, TURNS["calls"])))
    assert codec_for(wire).is_regular(dump(value))
    BENDS[wire][bend](value)
    assert not codec_for(wire).is_regular(dump(value))


@pytest.mark.parametrize("wire", Wire)
@given(data=st.binary() | st.text().map(str.encode))
def test_it_never_raises(wire: Wire, data: bytes) -> None:
    """Whatever the bytes are, the answer is yes or no."""
    assert codec_for(wire).is_regular(data) in (True, False)


@pytest.mark.parametrize("wire", Wire)
def test_respelled_replies_mean_the_same(wire: Wire) -> None:
    """Contract 2: a reply that is written anew has no form of its own left, keeps its meaning, and it is reported."""
    log = AdaptationLog()
    reply = codec_for(wire).decode_reply(dump(body(wire, TURNS["calls"])), Provenance(issuer="u", token="t"))
    again = respelled(reply, log)
    assert [(call.id, call.name, call.arguments_json) for call in again.calls] == [
        (call.id, call.name, call.arguments_json) for call in reply.calls
    ]
    assert again.raw_for(wire) is None
    assert all(part.raw_for(wire) is None for part in again.parts)
    assert [entry.subject for entry in log.entries] == ["reply"]
