"""Rule 129: tool names and call ids as one upstream accepts them, and back."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import CallKind, Text, ToolCall, ToolReference, ToolResult
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, ProviderTool, Tool, ToolChoice
from mustcall.policy.facts.profile import Profile
from mustcall.policy.history.names import NameMap
from mustcall.wire.codec import Target
from mustcall.wire.crossing.binding import Binding
from mustcall.wire.registry import codec_for

_MISTRAL = Profile(id_pattern="[a-zA-Z0-9]{9}")
_STRICT = Profile(name_pattern="[a-zA-Z_][a-zA-Z0-9_]*", name_length=32)
_LONG = "mcp__very_long_server_name__" + "x" * 80


def _call(call_id: str, name: str = "f", namespace: str | None = None) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments_json="{}", namespace=namespace)


def _pair(*ids: str) -> tuple[Message, Message]:
    return (
        Message(role=Role.ASSISTANT, parts=tuple(map(_call, ids))),
        Message(role=Role.TOOL, parts=tuple(ToolResult(call_id=one) for one in ids)),
    )


def _request(*messages: Message, **more: Any) -> Request:
    return Request(model="m", messages=messages, **more)


def _ids(request: Request) -> tuple[list[str], list[str]]:
    parts = [part for message in request.messages for part in message.parts]
    calls = [part.id for part in parts if isinstance(part, ToolCall)]
    return calls, [part.call_id for part in parts if isinstance(part, ToolResult)]


def _names(request: Request) -> list[str]:
    return [tool.name for tool in request.tools if isinstance(tool, Tool)]


def test_legal_names_and_ids_are_the_same_object() -> None:
    """Rules 105, 129: a request in which everything is legal is not touched."""
    request = _request(*_pair("call_1", "call_2"), tools=(Tool(name="f"), Tool(name="mcp__a-b")))
    names = NameMap.of(request, Profile())
    assert names.trivial
    log = AdaptationLog()
    assert names.outgoing(request, log) is request
    assert log.entries == ()
    call = _call("x")
    assert names.restore(call) is call


def test_mistral_ids() -> None:
    """Rule 129: ids of exactly nine letters and digits, the same each time, the same for call and result."""
    request = _request(*_pair("call_abc", "toolu_01!"), *_pair("abcDEF123"))
    names = NameMap.of(request, _MISTRAL)
    assert not names.trivial
    log = AdaptationLog()
    sent = names.outgoing(request, log)
    calls, results = _ids(sent)
    assert calls == results
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", one) for one in calls)
    assert len(set(calls)) == 3
    assert calls[2] == "abcDEF123"
    assert [entry.kind for entry in log.entries] == [AdaptationKind.ID_MAPPED]
    assert NameMap.of(request, _MISTRAL).outgoing(request) == sent
    assert names.outgoing(sent) is sent


def test_what_comes_later_changes_nothing_before() -> None:
    """Rule 129: a longer conversation begins with the bytes of the shorter one."""
    short = _request(*_pair("a", "a"), *_pair("b"))
    long = short.evolve(messages=(*short.messages, *_pair("a"), *_pair("c", "b")))
    before = NameMap.of(short, _MISTRAL).outgoing(short).messages
    assert NameMap.of(long, _MISTRAL).outgoing(long).messages[: len(before)] == before


def test_ids_are_unique_within_the_conversation() -> None:
    """Rule 129: a server that counts anew each round gives ids twice; the first keeps its own."""
    request = _request(*_pair("0", "1"), *_pair("0"), *_pair("0", "0"))
    calls, results = _ids(NameMap.of(request, Profile()).outgoing(request))
    assert calls == results
    assert calls[:2] == ["0", "1"]
    assert len(set(calls)) == 5


def test_a_result_answers_the_latest_call_of_its_id() -> None:
    """Rule 129: an unanswered call of an earlier turn takes no later call's result, mended or not."""
    call, result = _pair("0")
    user = Message(role=Role.USER, parts=(Text(text="q"),))
    request = _request(call, user, call, result)
    calls, results = _ids(NameMap.of(request, Profile()).outgoing(request))
    assert results == calls[1:]


def test_missing_ids_are_made() -> None:
    """Rule 129: calls without an id get one each, their results the same."""
    calls, results = _ids(NameMap.of(_request(*_pair("", "")), Profile()).outgoing(_request(*_pair("", ""))))
    assert calls == results
    assert len({*calls, ""}) == 3


def test_long_ids_pass_where_nothing_is_known() -> None:
    """Rule 129: without a pattern an upstream's own long ids are its business."""
    request = _request(*_pair("call_1__thought__" + "A" * 500))
    assert NameMap.of(request, Profile()).trivial


def test_many_equal_ids_cost_linear_time_and_stay_unique() -> None:
    """Rule 129: a thousand rounds with one id are a thousand ids."""
    request = _request(*(message for _ in range(1000) for message in _pair("call_0")))
    calls, results = _ids(NameMap.of(request, _MISTRAL).outgoing(request))
    assert calls == results
    assert len(set(calls)) == 1000


def test_a_rule_nothing_fits_leaves_ids_alone() -> None:
    """Rule 129: where nothing legal can be made, what came is sent."""
    request = _request(*_pair("a"), tools=(Tool(name="b c"),))
    odd = Profile(id_pattern="[äöü]+", name_pattern="[äöü]+")
    assert NameMap.of(request, odd).trivial


def test_result_of_a_call_elsewhere_is_spelled_the_same_way() -> None:
    """Rule 129: a result whose call the server keeps gets the id its call had been given."""
    pair = _pair("call_abc")
    calls, _ = _ids(NameMap.of(_request(*pair), _MISTRAL).outgoing(_request(*pair)))
    alone = _request(pair[1])
    assert _ids(NameMap.of(alone, _MISTRAL).outgoing(alone))[1] == calls


def test_names_are_mapped_and_restored() -> None:
    """Rule 129: tools, choice, history and references go out under the legal name; calls come back under the own."""
    tools = (Tool(name="9 lives"), Tool(name="fine"), Tool(name=_LONG, deferred=True))
    request = _request(
        Message(role=Role.ASSISTANT, parts=(Text(text="9 lives"), _call("1", "9 lives"))),
        Message(role=Role.TOOL, parts=(ToolResult(call_id="1", content=(ToolReference(name=_LONG),)),)),
        tools=tools,
        tool_choice=ToolChoice(mode=ChoiceMode.NAMED, name="9 lives"),
    )
    names = NameMap.of(request, _STRICT)
    log = AdaptationLog()
    sent = names.outgoing(request, log)
    nine, fine, long = _names(sent)
    assert fine == "fine"
    assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]{0,31}", name) for name in (nine, long))
    assert sent.tools[1] is tools[1]
    assert sent.tool_choice is not None
    assert sent.tool_choice.name == nine
    assert sent.messages[0].parts == (Text(text="9 lives"), _call("1", nine))
    reference = sent.messages[1].results[0].content[0]
    assert reference == ToolReference(name=long)
    assert names.restore(_call("2", nine)) == _call("2", "9 lives")
    assert names.restore(_call("2", long)) == _call("2", _LONG)
    assert [entry.subject for entry in log.entries] == ["9 lives", _LONG]


def test_allowed_sets_are_mapped() -> None:
    """Rule 129: a set of allowed tools names them as they are sent."""
    choice = ToolChoice(mode=ChoiceMode.AUTO, allowed=("9 lives", "fine"))
    request = _request(tools=(Tool(name="9 lives"), Tool(name="fine")), tool_choice=choice)
    sent = NameMap.of(request, _STRICT).outgoing(request)
    assert sent.tool_choice is not None
    assert sent.tool_choice.allowed == tuple(_names(sent))


def test_namespaces_survive_the_way_back() -> None:
    """Rule 129: a namespaced tool whose flat name is illegal goes out plain and comes back with its namespace."""
    tools = (Tool(name="b", namespace="9"), Tool(name="b"))
    choice = ToolChoice(mode=ChoiceMode.NAMED, name="b", namespace="9")
    request = _request(
        Message(role=Role.ASSISTANT, parts=(_call("1", "b", "9"), _call("2", "b"))), tools=tools, tool_choice=choice
    )
    names = NameMap.of(request, _STRICT)
    sent = names.outgoing(request)
    mapped, plain = _names(sent)
    assert plain == "b"
    assert sent.messages[0].parts == (_call("1", mapped), _call("2", "b"))
    assert sent.tool_choice is not None
    assert (sent.tool_choice.name, sent.tool_choice.namespace) == (mapped, None)
    assert names.restore(_call("3", mapped)) == _call("3", "b", "9")
    assert names.restore(_call("3", "b")) == _call("3", "b")


def test_a_bare_choice_finds_the_namespaced_tool() -> None:
    """Rule 129: a choice may name a tool without its namespace; it follows the tool."""
    choice = ToolChoice(mode=ChoiceMode.NAMED, name="b")
    request = _request(tools=(Tool(name="b", namespace="9"),), tool_choice=choice)
    sent = NameMap.of(request, _STRICT).outgoing(request)
    assert sent.tool_choice is not None
    assert [sent.tool_choice.name] == _names(sent)
    both = request.evolve(tools=(*request.tools, Tool(name="b")))
    assert NameMap.of(both, _STRICT).outgoing(both).tool_choice is choice


def test_mapped_names_never_meet_others() -> None:
    """Rule 129: neither a tool on offer nor a provider's own tool has the name a mapped one gets."""
    alone = _request(tools=(Tool(name="a b"),))
    mapped = _names(NameMap.of(alone, _STRICT).outgoing(alone))[0]
    for other in (Tool(name=mapped), ProviderTool(type="x", value={"name": mapped})):
        request = _request(tools=(Tool(name="a b"), other))
        assert _names(NameMap.of(request, _STRICT).outgoing(request))[0] != mapped


def test_crossing_wires_on_top() -> None:
    """Rule 129 with wires.md 1.9: a custom tool with an illegal name crosses, is called and comes back as it was."""
    tool = Tool(name="apply patch!", kind=CallKind.CUSTOM, origin=Origin(Wire.RESPONSES))
    request = Request(model="m", messages=(), tools=(tool,), origin=Origin(Wire.RESPONSES))
    names = NameMap.of(request, _STRICT)
    sent = names.outgoing(request)
    body = codec_for(Wire.CHAT).encode_request(sent, Target(), AdaptationLog())
    upstream_name = body["tools"][0]["function"]["name"]
    called = ToolCall(id="1", name=upstream_name, arguments_json='{"input": "x"}')
    restored = names.restore(Binding(sent, Wire.CHAT).restore(called))
    assert restored == ToolCall(id="1", name="apply patch!", arguments_json="x", kind=CallKind.CUSTOM)


def test_same_wire_bodies() -> None:
    """Rule 129: on the same wire what changed is written and everything else is as it came."""
    body = {
        "model": "m",
        "messages": [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{ }"}}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "r", "x_new": 1},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        ],
    }
    codec = codec_for(Wire.CHAT)
    request = codec.decode_request(msgspec.json.encode(body))
    sent = codec.encode_request(NameMap.of(request, _MISTRAL).outgoing(request), Target(), AdaptationLog())
    call_id = sent["messages"][1]["tool_call_id"]
    assert len(call_id) == 9
    expected = msgspec.json.decode(msgspec.json.encode(body).replace(b'"call_1"', msgspec.json.encode(call_id)))
    assert sent == expected


@pytest.mark.parametrize("namespace", [None, "ns"])
@given(
    name=st.text(max_size=90),
    pattern=st.sampled_from(["", "[a-zA-Z0-9_-]+", "[a-z][a-z0-9_]*", "[a-zA-Z]{1,10}", "[a-zA-Z_][\\w.-]*"]),
    length=st.integers(1, 100),
)
@settings(deadline=None)
def test_any_name_goes_out_legal_and_comes_back(namespace: str | None, name: str, pattern: str, length: int) -> None:
    """Rule 129: for any name and rule the way out is legal or nothing, and the way back is exact."""
    profile = Profile(name_pattern=pattern, name_length=length)
    request = _request(tools=(Tool(name=name, namespace=namespace),))
    names = NameMap.of(request, profile)
    sent = names.outgoing(request)
    assert NameMap.of(sent, profile).outgoing(sent) is sent
    if sent is not request:
        mapped = _names(sent)[0]
        assert len(mapped) <= length
        assert not pattern or re.fullmatch(pattern, mapped)
        assert names.restore(_call("1", mapped)) == _call("1", name, namespace)


@given(
    rounds=st.lists(st.lists(st.text(max_size=70), min_size=1, max_size=3), max_size=6),
    pattern=st.sampled_from(["", "[a-zA-Z0-9]{9}", "[a-zA-Z0-9_-]+", "call_[a-z0-9A-Z]{8,}", "[0-9a-f]{6}"]),
)
@settings(deadline=None)
def test_any_ids_go_out_legal_unique_and_paired(rounds: list[list[str]], pattern: str) -> None:
    """Rule 129: whatever the ids were, calls and results stay paired and no two calls share one."""
    profile = Profile(id_pattern=pattern)
    request = _request(*(message for ids in rounds for message in _pair(*ids)))
    sent = NameMap.of(request, profile).outgoing(request)
    calls, results = _ids(sent)
    assert calls == results
    assert len(set(calls)) == len(calls)
    if pattern:
        assert all(re.fullmatch(pattern, one) for one in calls)
    assert NameMap.of(sent, profile).outgoing(sent) is sent
