"""Conversations written behind what was written before: only new messages are written, and all of it is counted."""

import gc
import json
import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import pytest

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.history import Beginning, beginning_of, continued
from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.parts import Text
from mustcall.core.request import Request
from mustcall.wire.caching.conversations import Conversations, Tenant
from mustcall.wire.caching.encode_cache import write_body
from mustcall.wire.caching.written_history import Pieces, WrittenHistory, splice
from mustcall.wire.codec import Target
from mustcall.wire.opening import open_body
from mustcall.wire.registry import codec_for

Json = dict[str, Any]

PAIRS = [(mine, theirs) for mine in Wire for theirs in Wire if mine is not theirs]
_TOOLS: dict[Wire, Json] = {
    Wire.CHAT: {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
    Wire.MESSAGES: {"name": "f", "input_schema": {"type": "object"}},
    Wire.RESPONSES: {"type": "function", "name": "f", "parameters": {"type": "object"}},
}


def _exchange(wire: Wire, number: int, result: str = "done") -> list[Json]:
    """What the assistant said and called, and the result."""
    call_id, said = f"call_{number}", f"step {number}"
    match wire:
        case Wire.CHAT:
            call: Json = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
            answer: Json = {"role": "tool", "tool_call_id": call_id, "content": result}
            return [{"role": "assistant", "content": said, "tool_calls": [call]}, answer]
        case Wire.MESSAGES:
            call = {"type": "tool_use", "id": call_id, "name": "f", "input": {"a": 1}}
            answer = {"type": "tool_result", "tool_use_id": call_id, "content": result}
            asked = {"role": "assistant", "content": [{"type": "text", "text": said}, call]}
            return [asked, {"role": "user", "content": [answer]}]
        case Wire.RESPONSES:
            call = {"type": "function_call", "call_id": call_id, "name": "f", "arguments": '{"a":1}'}
            return [call, {"type": "function_call_output", "call_id": call_id, "output": result}]


def _body(wire: Wire, talk: Sequence[Json], **more: Any) -> bytes:
    listed = "input" if wire is Wire.RESPONSES else "messages"
    fields = {"model": "m", "max_tokens": 50, "tools": [_TOOLS[wire]], listed: talk, **more}
    if wire is Wire.RESPONSES:
        fields["max_output_tokens"] = fields.pop("max_tokens")
    return json.dumps(fields).encode()


def _request(wire: Wire, body: bytes, tenant: Tenant | None) -> Request:
    return codec_for(wire).decode_request(body, open_body(body, tenant, wire))


def _sent(theirs: Wire, request: Request, issuer: str = "me", *, pieces: bool = True) -> bytes:
    target = Target(issuer=issuer)
    return write_body(codec_for(theirs).encode_request(request, target, AdaptationLog(), pieces=pieces))


@pytest.fixture
def written() -> Iterator[list[int]]:
    """How many messages were written, passage by passage."""
    counts: list[int] = []
    write = WrittenHistory.write

    def counted(self: WrittenHistory, request: Request, past: Any, messages: Sequence[Message], issuer: str) -> Any:
        counts.append(len(messages))
        return write(self, request, past, messages, issuer)

    with patch.object(WrittenHistory, "write", counted):
        yield counts


def _begin(wire: Wire) -> list[Json]:
    return [{"role": "user", "content": "begin"}, *(one for number in range(30) for one in _exchange(wire, number))]


@pytest.mark.parametrize(("mine", "theirs"), PAIRS)
def test_only_what_is_new_is_written(mine: Wire, theirs: Wire, written: list[int]) -> None:
    """A request that goes on costs its new messages, whatever its history is; the bytes are the same."""
    tenant, talk = Conversations().of("a", mine), _begin(mine)
    _sent(theirs, _request(mine, _body(mine, talk), tenant))
    assert sum(written) == len(talk)
    for number in range(30, 34):
        written.clear()
        talk += _exchange(mine, number)
        body = _body(mine, talk)
        sent = _sent(theirs, _request(mine, body, tenant))
        assert written == [2]
        assert sent == _sent(theirs, _request(mine, body, None), pieces=False)


@pytest.mark.parametrize(("mine", "theirs"), PAIRS)
def test_an_edit_costs_what_is_behind_it(mine: Wire, theirs: Wire, written: list[int]) -> None:
    """Of a history that came in one request and is edited in the middle, the beginning is not written again."""
    tenant, talk = Conversations().of("a", mine), _begin(mine)
    _sent(theirs, _request(mine, _body(mine, talk), tenant))
    written.clear()
    del talk[45:47]
    body = _body(mine, talk)
    assert _sent(theirs, _request(mine, body, tenant)) == _sent(theirs, _request(mine, body, None), pieces=False)
    assert sum(written) <= len(talk) - 45 + 18


@pytest.mark.parametrize(("mine", "theirs"), PAIRS)
def test_what_is_added_at_the_tail_of_each_request_costs_no_more(mine: Wire, theirs: Wire, written: list[int]) -> None:
    """A directive of ours behind every request joins its last turn; what is before that turn is found."""
    tenant, talk = Conversations().of("a", mine), _begin(mine)
    tail = Message(role=Role.USER, parts=(Text(text="Call a tool."),))
    for number in range(30, 35):
        talk += _exchange(mine, number)
        written.clear()
        body = _body(mine, talk)
        request, cold = _request(mine, body, tenant), _request(mine, body, None)
        added = continued(request.evolve(messages=(*request.messages, tail)), request, (tail,))
        assert _sent(theirs, added) == _sent(theirs, cold.evolve(messages=(*cold.messages, tail)), pieces=False)
        if number > 31:
            assert sum(written) <= 5


def test_what_joins_is_written_anew() -> None:
    """Two user turns become one on the Messages wire, also where the first was written alone before."""
    tenant = Conversations().of("a", Wire.CHAT)
    first: Json = {"role": "user", "content": "one"}
    for talk in ([first], [first, {"role": "user", "content": "two"}], [first, *_exchange(Wire.CHAT, 1)], [first]):
        body = _body(Wire.CHAT, talk)
        sent = _sent(Wire.MESSAGES, _request(Wire.CHAT, body, tenant))
        assert sent == _sent(Wire.MESSAGES, _request(Wire.CHAT, body, None), pieces=False)


def test_arguments_are_what_the_tools_on_offer_make_of_them() -> None:
    """The same history, behind tools that require nothing and behind such that do: each is written for its own."""
    tenant = Conversations().of("a", Wire.CHAT)
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
    talk: list[Json] = [
        {"role": "user", "content": "begin"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]
    for required, read in (([], {}), (["a"], {"_raw_arguments": ""})) * 2:
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "required": required}}}
        # The tools stand behind the messages: the bytes up to those are the same.
        body = json.dumps({"model": "m", "messages": talk, "tools": [tool]}).encode()
        sent = json.loads(_sent(Wire.MESSAGES, _request(Wire.CHAT, body, tenant)))
        assert sent["messages"][1]["content"][0]["input"] == read


@pytest.mark.parametrize("mine", [Wire.CHAT, Wire.RESPONSES])
def test_whether_thinking_may_be_asked_for_is_known_of_what_was_written(mine: Wire, written: list[int]) -> None:
    """A Messages upstream is asked to think unless a call without thinking is answered, also behind a long history."""
    tenant, talk = Conversations().of("a", mine), _begin(mine)
    effort: Json = {"reasoning_effort": "low"} if mine is Wire.CHAT else {"reasoning": {"effort": "low"}}
    for more in (
        [],
        _exchange(mine, 50),
        [{"role": "assistant", "content": "well"}, {"role": "user", "content": "go"}],
    ):
        talk += more
        written.clear()
        body = _body(mine, talk, **effort)
        sent = _sent(Wire.MESSAGES, _request(mine, body, tenant))
        assert sent == _sent(Wire.MESSAGES, _request(mine, body, None), pieces=False)
        assert ("thinking" in json.loads(sent)) is (talk[-1].get("content") == "go")
        assert sum(written) == len(more or talk)


def test_nothing_is_found_by_another_tenant(written: list[int]) -> None:
    """What was written of one tenant's conversation is not what another's is written of."""
    conversations, talk = Conversations(), _begin(Wire.CHAT)
    body = _body(Wire.CHAT, talk)
    for tenant in ("a", "b"):
        written.clear()
        _sent(Wire.MESSAGES, _request(Wire.CHAT, body, conversations.of(tenant, Wire.CHAT)))
        assert sum(written) == len(talk)


def test_a_conversation_that_nobody_keeps_is_written_whole(written: list[int]) -> None:
    """A library call that is made once leaves nothing behind."""
    request = _request(Wire.CHAT, _body(Wire.CHAT, _begin(Wire.CHAT)), None)
    body = codec_for(Wire.MESSAGES).encode_request(request, Target(), AdaptationLog(), pieces=True)
    assert isinstance(body["messages"], list)
    assert not written


def test_passages_are_counted_and_go_with_their_conversation() -> None:
    """What is written takes memory, which is counted; what is forgotten keeps nothing, and gets nothing more."""
    conversations = Conversations(400_000)
    tenant = conversations.of("a", Wire.CHAT)
    talk = [{"role": "user", "content": "begin"}, *_exchange(Wire.CHAT, 1, "x" * 20_000)]
    request = _request(Wire.CHAT, _body(Wire.CHAT, talk), tenant)
    before = conversations.size
    sent = _sent(Wire.MESSAGES, request)
    assert 20_000 < conversations.size - before < len(sent) + 1_000
    last = beginning_of(request)
    assert last is not None
    assert last.keeper is not None
    for number in range(60):
        other = [{"role": "user", "content": f"{number}"}, *_exchange(Wire.CHAT, 1, "y" * 20_000)]
        _sent(Wire.MESSAGES, _request(Wire.CHAT, _body(Wire.CHAT, other), tenant))
        assert conversations.size <= 400_000
    assert last.keeper is None
    link: Beginning | None = last
    while link is not None:
        link.held.clear()
        link = link.past
    _sent(Wire.MESSAGES, request)
    assert not [value for value in last.held.values() if "Passage" in type(value).__name__]


def test_memory_is_counted_however_often_the_upstream_changes() -> None:
    """A conversation that goes to one upstream and then to another holds no more than is counted for it."""
    conversations = Conversations(1 << 30)
    tenant = conversations.of("a", Wire.CHAT)
    talk: list[Json] = [{"role": "user", "content": "begin"}]
    for number in range(20):
        talk += _exchange(Wire.CHAT, number, "x" * 5_000)

    def send(number: int) -> None:
        more = [*talk, *(one for step in range(number) for one in _exchange(Wire.CHAT, 100 + step))]
        _sent(Wire.MESSAGES, _request(Wire.CHAT, _body(Wire.CHAT, more), tenant), issuer=f"upstream {number % 2}")

    for number in range(4):
        send(number)
    gc.collect()
    counted = conversations.size
    tracemalloc.start()
    try:
        for number in range(4, 24):
            send(number)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held <= (conversations.size - counted) * 1.1


@pytest.mark.parametrize("chunks", [[], [b"1"], [b"1", b"2,3", b"{}"]])
@pytest.mark.parametrize("before", [{}, {"model": 'm"'}])
@pytest.mark.parametrize("after", [{}, {"stream": True, "x": None}])
def test_a_body_in_pieces_is_the_body(chunks: list[bytes], before: Json, after: Json) -> None:
    """Fields keep their order, and nothing is written that is not JSON."""
    listed = [one for chunk in chunks for one in json.loads(b"[" + chunk + b"]")]
    body = {**before, "messages": Pieces(chunks), **after}
    sent = splice(body, "messages", Pieces(chunks))
    assert json.loads(sent) == {**before, "messages": listed, **after}
    assert list(json.loads(sent)) == list(body)
