"""What was written for another wire before is what would be written now: settings, messages, notes."""

import json
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import MustcallError
from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.request import Request
from mustcall.wire.caching.conversations import Conversations, Tenant
from mustcall.wire.caching.encode_cache import OfSettings, WrittenTurns
from mustcall.wire.codec import Target
from mustcall.wire.opening import open_body
from mustcall.wire.registry import codec_for

PAIRS = [(mine, theirs) for mine in Wire for theirs in Wire if mine is not theirs]
_PICTURE = "data:image/png;base64,AAAA"

#: Few messages, so that most of a conversation came before, in another place or beside other neighbours.
_MESSAGES: dict[Wire, list[Any]] = {
    Wire.CHAT: [
        {"role": "system", "content": "be kind"},
        {"role": "developer", "content": [{"type": "text", "text": "be brief"}], "odd": 1},
        {"role": "user", "content": "hello", "name": "ann"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": _PICTURE, "detail": "low"}}]},
        {"role": "assistant", "content": "hm", "reasoning_content": "let me think"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "call:2", "type": "function", "function": {"name": "g", "arguments": ""}},
            ],
        },
        {
            "role": "assistant",
            "tool_calls": [{"id": "call_1", "type": "custom", "custom": {"name": "p", "input": "x"}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "call:2", "content": ""},
        {"role": "assistant", "content": "", "refusal": "no"},
    ],
    Wire.MESSAGES: [
        {"role": "user", "content": "hello"},
        {"role": "user", "content": [{"type": "text", "text": "again", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "is_error": True,
                    "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
                    ],
                }
            ],
        },
        {"role": "user", "content": [{"type": "text", "text": "and"}, {"type": "document", "source": {"type": "x"}}]},
        {"role": "assistant", "content": "fine"},
    ],
    Wire.RESPONSES: [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        {"role": "user", "content": "again", "odd": True},
        {"role": "developer", "content": "be brief"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "call:2", "name": "g", "arguments": "nonsense"},
        {"type": "custom_tool_call", "call_id": "call_1", "name": "p", "input": "x"},
        {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
        {
            "type": "function_call_output",
            "call_id": "call:2",
            "output": [{"type": "input_image", "image_url": _PICTURE}],
        },
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "fine", "annotations": []}],
        },
    ],
}
_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
_TOOLS: dict[Wire, list[Any]] = {
    Wire.CHAT: [
        {"type": "function", "function": {"name": "f", "parameters": _SCHEMA}},
        {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "required": ["a"]}}},
        {"type": "custom", "custom": {"name": "p"}},
    ],
    Wire.MESSAGES: [
        {"name": "f", "input_schema": _SCHEMA},
        {"name": "later", "input_schema": _SCHEMA, "defer_loading": True},
        {"type": "web_search_20250305", "name": "web_search"},
    ],
    Wire.RESPONSES: [
        {"type": "function", "name": "f", "parameters": _SCHEMA, "strict": False},
        {"type": "custom", "name": "p"},
        {"type": "web_search"},
    ],
}
_SETTINGS: dict[Wire, list[dict[str, Any]]] = {
    Wire.CHAT: [{"reasoning_effort": "high"}, {"stop": ["x"]}, {"user": "ann"}, {"seed": 4}],
    Wire.MESSAGES: [{"thinking": {"type": "enabled", "budget_tokens": 2048}}, {"top_k": 3}, {"system": "be kind"}],
    Wire.RESPONSES: [{"reasoning": {"effort": "low"}}, {"instructions": "be kind"}, {"truncation": "auto"}],
}
_COMMON: list[dict[str, Any]] = [{"temperature": 1}, {"temperature": 1.0}, {"top_p": 0.5}, {"stream": True}]


@st.composite
def bodies(draw: Callable[[Any], Any], wire: Wire) -> bytes:
    """Return a request of few words."""
    messages = draw(st.lists(st.sampled_from(_MESSAGES[wire]), min_size=1, max_size=6))
    body: dict[str, Any] = {"model": draw(st.sampled_from(["m", "n"]))}
    body["input" if wire is Wire.RESPONSES else "messages"] = messages
    if wire is Wire.MESSAGES:
        body["max_tokens"] = draw(st.sampled_from([100, 4000]))
    body["tools"] = draw(st.lists(st.sampled_from(_TOOLS[wire]), max_size=3, unique_by=json.dumps))
    for settings in (_COMMON, _SETTINGS[wire]):
        body |= draw(st.sampled_from([{}, *settings]))
    return json.dumps(body).encode()


def _decoded(wire: Wire, body: bytes, tenant: Tenant) -> Request:
    return codec_for(wire).decode_request(body, open_body(body, tenant, wire))


def _told(wire: Wire, request: Request, target: Target) -> Any:
    log = AdaptationLog()
    try:
        body = codec_for(wire).encode_request(request, target, log)
    except MustcallError as refused:
        return type(refused), str(refused)
    return msgspec.json.encode(body), set(log.entries)


@pytest.mark.parametrize(("mine", "theirs"), PAIRS)
@given(data=st.data())
def test_written_before_is_written_now(mine: Wire, theirs: Wire, data: st.DataObject) -> None:
    """Requests of one caller after the other give what each gives where nothing is remembered."""
    tenant = Conversations().of("a tenant", mine)
    for body in data.draw(st.lists(bodies(mine), min_size=1, max_size=4)):
        target = Target(issuer=data.draw(st.sampled_from(["a", "b"])))
        request = _decoded(mine, body, tenant)
        told = _told(theirs, request, target)
        with patch.object(WrittenTurns, "find", return_value=None), patch.object(OfSettings, "get", return_value=None):
            assert told == _told(theirs, request, target)


@pytest.mark.parametrize(("mine", "theirs"), PAIRS)
def test_nothing_is_written_twice(mine: Wire, theirs: Wire) -> None:
    """All but the new message of a longer conversation is found, not written."""
    first = _MESSAGES[mine][:1] if mine is not Wire.CHAT else _MESSAGES[mine][2:3]
    listed = "input" if mine is Wire.RESPONSES else "messages"
    answer = {"role": "assistant", "content": "fine and well"}
    kept: list[list[Message]] = []
    keep = WrittenTurns.keep
    tenant = Conversations().of("a tenant", mine)

    def noted(self: WrittenTurns, messages: Any, *rest: Any) -> None:
        kept.append(list(messages))
        keep(self, messages, *rest)

    with patch.object(WrittenTurns, "keep", noted):
        for messages in (first, [*first, answer], [*first, answer]):
            body = {"model": "m", listed: messages, "tools": _TOOLS[mine][:1], "max_tokens": 55}
            request = _decoded(mine, json.dumps(body).encode(), tenant)
            assert isinstance(_told(theirs, request, Target())[0], bytes)
    assert sum(messages[0].role is Role.ASSISTANT for messages in kept) <= 1
    assert len(kept) <= 2


def test_one_and_one_point_nought_are_not_the_same() -> None:
    """Settings are known by what they are, not by what they equal."""
    written: list[bytes] = []
    for number in ("1", "1.0", "1"):
        body = f'{{"model":"m","max_tokens":9,"temperature":{number},"messages":[{{"role":"user","content":"x"}}]}}'
        request = codec_for(Wire.MESSAGES).decode_request(body.encode())
        written.append(msgspec.json.encode(codec_for(Wire.CHAT).encode_request(request, Target(), AdaptationLog())))
    assert b'"temperature":1,' in written[0] or b'"temperature":1}' in written[0]
    assert b'"temperature":1.0' in written[1]
    assert written[2] == written[0]


def _read(tenant: Tenant | None, text: str, **more: Any) -> Message:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text, **more}]}).encode()
    fields = open_body(body, tenant, Wire.CHAT)
    return codec_for(Wire.CHAT).decode_request(body, fields).messages[0]


def test_memory_is_bounded() -> None:
    """What was written of a turn goes with its conversation, by the bytes it was read from."""
    conversations, turns = Conversations(50_000), WrittenTurns(Wire.MESSAGES)
    tenant = conversations.of("a tenant", Wire.CHAT)
    for number in range(40):
        message = _read(tenant, f"{number:02}", dropped="x" * 3_000)
        turns.keep((message,), "i", [{}], AdaptationLog())
        assert conversations.size <= 50_000
    last, first = _read(tenant, "39", dropped="x" * 3_000), _read(tenant, "00", dropped="x" * 3_000)
    assert turns.find((last,), "i", AdaptationLog()) == [{}]
    assert turns.find((last,), "another", AdaptationLog()) is None
    assert turns.find((first,), "i", AdaptationLog()) is None


def test_only_what_comes_again_is_kept() -> None:
    """Not what is too long to be remembered, what was changed on its way, or what no conversation holds."""
    conversations, turns = Conversations(), WrittenTurns(Wire.MESSAGES)
    tenant = conversations.of("a tenant", Wire.CHAT)
    for keeper, text in ((tenant, "x" * 5_000_000), (None, "short")):
        turns.keep((_read(keeper, text),), "i", [{}], AdaptationLog())
        assert turns.find((_read(keeper, text),), "i", AdaptationLog()) is None
    assert conversations.size == 0
    message = _read(tenant, "short")
    turns.keep((message,), "i", [{}], AdaptationLog())
    assert turns.find((message.evolve(parts=()),), "i", AdaptationLog()) is None
    assert turns.find((_read(tenant, "short"),), "i", AdaptationLog()) == [{}]


@pytest.mark.parametrize("theirs", [Wire.CHAT, Wire.MESSAGES])
def test_settings_that_will_be_others_are_not_kept(theirs: Wire) -> None:
    """An `input` that is a text is read whole, and its request is another object every time; so is a very long one."""
    made: list[str] = []
    kept: OfSettings[str] = OfSettings()
    for body in ({"input": "hello"}, {"input": [{"role": "user", "content": "x"}], "metadata": {"k": "x" * 200_000}}):
        for _ in range(2):
            request = codec_for(Wire.RESPONSES).decode_request(json.dumps({"model": "m", **body}).encode())
            assert request.origin is not None
            kept.get(request, request.origin, Target(issuer=str(theirs)), lambda: made.append("") or "")
    assert len(made) == 4


def _sent(tenant: Tenant, theirs: Wire, target: Target | None = None, **body: Any) -> Any:
    request = _decoded(Wire.CHAT, json.dumps({"model": "m", **body}).encode(), tenant)
    return codec_for(theirs).encode_request(request, target or Target(), AdaptationLog())


def _chat_call(arguments: str, kind: str = "function") -> dict[str, Any]:
    text = "input" if kind == "custom" else "arguments"
    return {"role": "assistant", "tool_calls": [{"id": "call_1", "type": kind, kind: {"name": "f", text: arguments}}]}


_ASK: dict[str, Any] = {"role": "user", "content": "the weather?"}
_SUNNY: dict[str, Any] = {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}


def test_a_result_is_of_the_kind_of_its_call() -> None:
    """The same result, of a function in one conversation and of a custom tool in another."""
    tenant = Conversations().of("a tenant", Wire.CHAT)
    for kind, output in (("function", "function_call_output"), ("custom", "custom_tool_call_output")) * 2:
        sent = _sent(tenant, Wire.RESPONSES, messages=[_ASK, _chat_call("x", kind), _SUNNY])
        assert sent["input"][-1]["type"] == output


def test_a_call_without_arguments_is_what_its_tool_makes_of_it() -> None:
    """The same empty arguments, of a tool that requires nothing and of one that does."""
    tenant = Conversations().of("a tenant", Wire.CHAT)
    for required, read in (([], {}), (["a"], {"_raw_arguments": ""})) * 2:
        tool = {"type": "function", "function": {"name": "f", "parameters": {**_SCHEMA, "required": required}}}
        sent = _sent(tenant, Wire.MESSAGES, messages=[_ASK, _chat_call(""), _SUNNY], tools=[tool])
        assert sent["messages"][1]["content"][0]["input"] == read


def test_settings_are_for_one_upstream() -> None:
    """The same settings go to one upstream with its own default, and to another with that one's."""
    tenant = Conversations().of("a tenant", Wire.CHAT)
    for limit in (100, 200, 100):
        target = Target(default_max_tokens=limit)
        sent = _sent(tenant, Wire.MESSAGES, target, messages=[_ASK], seed=1, tools=_TOOLS[Wire.CHAT])
        assert sent["max_tokens"] == limit


def test_changed_settings_are_not_those_that_came() -> None:
    """A request that was changed on its way is written as it is, and so is the one it was made of."""
    body = {"model": "m", "messages": [_ASK], "max_completion_tokens": 70, "tools": _TOOLS[Wire.CHAT]}
    request = codec_for(Wire.CHAT).decode_request(json.dumps(body).encode())
    for one, limit in ((request, 70), (request.evolve(max_tokens=30), 30), (request, 70)):
        assert codec_for(Wire.MESSAGES).encode_request(one, Target(), AdaptationLog())["max_tokens"] == limit


def test_thinking_depends_on_the_conversation() -> None:
    """It is asked for, unless a call without thinking is being answered."""
    tenant = Conversations().of("a tenant", Wire.CHAT)
    tools = _TOOLS[Wire.CHAT][:1]
    for messages, asked in (([_ASK], True), ([_ASK, _chat_call("{}"), _SUNNY], False)) * 2:
        sent = _sent(tenant, Wire.MESSAGES, messages=messages, tools=tools, reasoning_effort="high")
        assert ("thinking" in sent) is asked
