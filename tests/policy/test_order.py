"""Rules 101, 105, 129: a history that is said to be in order needs nothing, whoever looks closer."""

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.history import Beginning, Folded
from mustcall.core.memo import Attached
from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import (
    Image,
    OpaqueState,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolReference,
    ToolResult,
    Unknown,
)
from mustcall.core.request import Request
from mustcall.core.tools import ProviderTool, Tool
from mustcall.policy.facts.profile import Profile, ReasoningPolicy
from mustcall.policy.history import in_order as order
from mustcall.policy.history import mended as history
from mustcall.policy.history import reasoning_state
from mustcall.policy.history.in_order import order_of
from mustcall.policy.history.mended import mend_history
from mustcall.policy.history.names import NameMap
from mustcall.wire.caching.conversations import Conversations
from mustcall.wire.opening import open_body
from mustcall.wire.registry import codec_for
from support.examples import PROFILE, share

_LEAKED = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
_texts = st.sampled_from(["hi", "", " \n", "see (this)", f"ok {_LEAKED}"])
_ids = st.sampled_from(["a", "b", "call_1", "odd id", ""])
_calls = st.builds(
    ToolCall,
    id=_ids,
    name=st.sampled_from(["f", "g", "odd name"]),
    arguments_json=st.just("{}"),
    namespace=st.sampled_from([None, None, None, "n"]),
)
_results = st.builds(
    ToolResult,
    call_id=_ids,
    content=st.sampled_from([(), (Text(text="r"),), (Text(text=""),), (ToolReference(name="f"),)]),
)
_words = st.builds(Text, text=_texts)
_others = st.sampled_from(
    [
        Refusal(text="no"),
        Refusal(text=" "),
        Reasoning(text="hm"),
        Reasoning(text="hm", state=OpaqueState(Wire.CHAT, {"field": "reasoning"}, "another")),
        Image(url="https://example.org/a.png"),
        ProviderItem(wire=Wire.RESPONSES, type="item_reference", value={"type": "item_reference", "id": "a"}),
        Unknown(wire=Wire.MESSAGES, type="x", value={"id": "b"}),
        ToolReference(name="f"),
    ]
)
_parts = st.lists(st.one_of(_words, _calls, _results, _others), max_size=3).map(tuple)
_origins = st.sampled_from([None, *(Origin(wire) for wire in Wire), Origin(Wire.CHAT, {"audio": {"id": "x"}})])
_anything = st.lists(st.builds(Message, role=st.sampled_from(Role), parts=_parts, origin=_origins), max_size=6)


#: Reasoning without state, of an unknown upstream, of this one and of another.
_THOUGHTS = (
    Reasoning(text="hm"),
    Reasoning(text="hm", origin=Origin(Wire.MESSAGES)),
    Reasoning(text="hm", state=OpaqueState(Wire.MESSAGES, {"signature": "s"})),
    Reasoning(text="hm", state=OpaqueState(Wire.CHAT, {"field": "reasoning"}, "me")),
    Reasoning(text="", state=OpaqueState(Wire.RESPONSES, {"encrypted_content": "x"}, "another")),
)


@st.composite
def _nearly_kept(draw: st.DrawFn) -> list[Message]:
    """Rounds of an agent as they should be, of which now and then one message is left out, doubled or moved."""
    origin = draw(st.sampled_from([None, *(Origin(wire) for wire in Wire)]))
    messages = [Message(role=Role.USER, parts=(Text(text="hi"),), origin=origin)]
    number = 0
    for _ in range(draw(st.integers(0, 4))):
        ids = [f"call_{number + step}" for step in range(draw(st.integers(0, 2)))]
        number += len(ids)
        thought: tuple[Part, ...] = (draw(st.sampled_from(_THOUGHTS)),) if draw(st.booleans()) else ()
        spoken = (Text(text=draw(_texts)),) if draw(st.booleans()) or not ids else ()
        asked = tuple(ToolCall(id=one, name="f", arguments_json="{}") for one in ids)
        held: list[tuple[Part, ...]] = [(*thought, *spoken, *asked)]
        if draw(st.booleans()):
            held = [(part,) for part in (*thought, *spoken, *asked)]
        messages += [Message(role=Role.ASSISTANT, parts=parts, origin=origin) for parts in held]
        answers = [ToolResult(call_id=one, content=(Text(text="r"),)) for one in draw(st.permutations(ids))]
        if answers and draw(st.booleans()):
            said = (Text(text=draw(_texts)),) if draw(st.booleans()) else ()
            messages.append(Message(role=Role.USER, parts=(*answers, *said), origin=origin))
        else:
            messages += [Message(role=Role.TOOL, parts=(one,), origin=origin) for one in answers]
    if draw(st.booleans()):
        messages.append(Message(role=Role.USER, parts=(Text(text="go on"),), origin=origin))
    place = draw(st.integers(0, len(messages) - 1))
    match draw(st.sampled_from(["as it is", "as it is", "left out", "doubled", "moved"])):
        case "left out":
            del messages[place]
        case "doubled":
            messages.insert(place, messages[place])
        case "moved":
            messages.append(messages.pop(place))
        case _:
            pass
    return messages


_tools = st.sampled_from(
    [(), (Tool(name="f"),), (Tool(name="f"), Tool(name="odd name")), (ProviderTool(type="web", value={"name": "w"}),)]
)
_profiles = st.builds(
    Profile,
    prefill=st.booleans(),
    history_needs_tools=st.booleans(),
    prefix_bound=st.booleans(),
    reasoning_history=st.sampled_from(ReasoningPolicy),
    reasoning_field=st.sampled_from([None, None, "reasoning", "reasoning_content"]),
    reasoning_only_final=st.booleans(),
    id_pattern=st.sampled_from(["", "[a-z]"]),
    name_pattern=st.sampled_from(["", "[a-f]"]),
    name_length=st.sampled_from([0, 1, 64]),
)


def _never(*_: object) -> bool:
    return False


def _mended(request: Request, profile: Profile) -> tuple[Request, tuple[Any, ...]]:
    log = AdaptationLog()
    return mend_history(request, profile, "me", log), log.entries


def _compare(messages: tuple[Message, ...], tools: Any, profile: Profile) -> bool:
    """Go the short way and the long one, and tell whether the short one was taken."""
    request = Request(model="m", messages=messages, tools=tools)
    short, notes = _mended(request, profile)
    map_ = NameMap.of(request, profile)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "_is_clean", _never)
        long, told = _mended(request, profile)
    assert notes == told
    assert (short is request) == (long is request)
    assert short == long
    full = NameMap(request, profile)
    assert map_.trivial == full.trivial
    if not full.trivial:
        log, full_log = AdaptationLog(), AdaptationLog()
        assert map_.outgoing(request, log) == full.outgoing(request, full_log)
        assert log.entries == full_log.entries
    return order_of(request).kept


@given(messages=st.one_of(_anything, _nearly_kept()), tools=_tools, profile=_profiles)
@settings(max_examples=400, deadline=None)
def test_what_is_in_order_is_what_mending_and_mapping_leave_alone(
    messages: list[Message], tools: Any, profile: Profile
) -> None:
    """Rules 101, 105, 129: the short way never says more than the long one, and comes to the same."""
    _compare(tuple(messages), tools, profile)


def _asks(*ids: str) -> tuple[Role, tuple[Part, ...]]:
    return Role.ASSISTANT, tuple(ToolCall(id=one, name="f", arguments_json="{}") for one in ids)


def _answers(role: Role, *ids: str, said: str = "") -> tuple[Role, tuple[Part, ...]]:
    results = tuple(ToolResult(call_id=one, content=(Text(text="r"),)) for one in ids)
    return role, (*results, Text(text=said)) if said else results


#: What rounds are made of.
_MOVES: list[tuple[Role, tuple[Part, ...]]] = [
    (Role.USER, (Text(text="hi"),)),
    (Role.ASSISTANT, (Text(text="hello"),)),
    _asks("a"),
    _asks("a", "b"),
    _answers(Role.TOOL, "a"),
    _answers(Role.TOOL, "b"),
    _answers(Role.TOOL, "a", "a"),
    _answers(Role.USER, "a", said="and"),
    _answers(Role.USER, "b", "a"),
]


@pytest.mark.parametrize("wire", [None, *Wire])
def test_every_short_history_of_rounds(wire: Wire | None) -> None:
    """Rules 101, 129: calls and results in any order, doubled, late or missing: both ways agree."""
    origin = None if wire is None else Origin(wire)
    moves = [Message(role=role, parts=parts, origin=origin) for role, parts in _MOVES]
    histories = [places for count in (1, 2, 3) for places in itertools.product(range(len(moves)), repeat=count)]
    most = 4 if wire in (Wire.CHAT, Wire.MESSAGES) else 3
    if most == 4:
        # Of four moves, those in which every three of them meet, at any three places.
        histories += [(*three, sum(three) % len(moves)) for three in itertools.product(range(len(moves)), repeat=3)]
    taken = sum(_compare(tuple(moves[at] for at in places), (Tool(name="f"),), Profile()) for places in histories)
    assert taken > most * 10, "most of what agents send goes the short way"


#: Rounds in which the model thinks: beside what it says, alone before it, and without saying anything.
_THOUGHTFUL: list[tuple[Role, tuple[Part, ...]]] = [
    (Role.USER, (Text(text="hi"),)),
    (Role.ASSISTANT, (Text(text="hello"),)),
    (Role.ASSISTANT, (_THOUGHTS[2],)),
    (Role.ASSISTANT, (_THOUGHTS[0], Text(text="so"))),
    (Role.ASSISTANT, (_THOUGHTS[2], *_asks("a")[1])),
    _asks("a"),
    _answers(Role.TOOL, "a"),
]


_THINKING_PROFILES = (
    Profile(),
    Profile(prefix_bound=True, prefill=False),
    Profile(reasoning_history=ReasoningPolicy.DROP),
    Profile(reasoning_only_final=True, reasoning_field="reasoning"),
)


@pytest.mark.parametrize("profile", _THINKING_PROFILES)
@pytest.mark.parametrize("wire", Wire)
def test_every_short_history_with_thoughts(wire: Wire, profile: Profile) -> None:
    """Rules 103, 124, 134: reasoning anywhere in a round, with words or without: both ways agree.

    Under `ci` the profiles share the histories of three messages, other ones on each wire; `deep` takes all with each.
    """
    moves = [Message(role=role, parts=parts, origin=Origin(wire)) for role, parts in _THOUGHTFUL]
    histories: list[tuple[Message, ...]] = [(one,) for one in moves] + list(itertools.product(moves, repeat=2))
    histories += share(
        [*itertools.product(moves, repeat=3)], _THINKING_PROFILES.index(profile) + [*Wire].index(wire), 4
    )
    taken = sum(_compare(messages, (Tool(name="f"),), profile) for messages in histories)
    assert taken > len(histories) // 5, "most of what agents send goes the short way"


_THINKS: dict[Wire, list[dict[str, Any]]] = {
    Wire.CHAT: [
        {
            "role": "assistant",
            "content": "so",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "ID", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "ID", "content": "ok"},
    ],
    Wire.MESSAGES: [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "ID", "name": "f", "input": {}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "ID", "content": "ok"}]},
    ],
    Wire.RESPONSES: [
        {"type": "reasoning", "id": "rs_ID", "summary": [], "encrypted_content": "x"},
        {"type": "function_call", "call_id": "ID", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "ID", "output": "ok"},
    ],
}


@pytest.mark.parametrize("wire", Wire)
def test_reasoning_that_an_upstream_may_get_is_looked_at_once(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 124: of a conversation with thoughts in every round, only the new ones are looked at."""
    looked: list[Reasoning] = []
    fitted = vars(reasoning_state)["_fitted"]

    def counted(part: Reasoning, profile: Profile, issuer: str) -> Any:
        looked.append(part)
        return fitted(part, profile, issuer)

    monkeypatch.setattr(reasoning_state, "_fitted", counted)
    tenant = Conversations().of("a", wire)
    talk: list[dict[str, Any]] = [{"role": "user", "content": "begin"}]
    for number in range(20):
        talk += json.loads(json.dumps(_THINKS[wire]).replace("ID", f"call_{number}"))
        body = json.dumps({"model": "m", "input" if wire is Wire.RESPONSES else "messages": talk}).encode()
        request = codec_for(wire).decode_request(body, open_body(body, tenant, wire))
        looked.clear()
        assert mend_history(request, Profile(), "me", AdaptationLog()) is request
        assert len(looked) == 1


def test_an_edit_in_the_middle_costs_what_is_behind_it() -> None:
    """What is known of a history that came in one request is known of its beginning too, block by block."""
    looked: list[Message] = []

    def step(state: int, message: Message, _: None) -> int:
        looked.append(message)
        return state + len(message.parts)

    fold: Folded[int, None] = Folded(lambda _: 0, step)
    links: list[Beginning] = []
    for number in range(100):
        message = Message(role=Role.USER, parts=(Text(text=f"{number}"),))
        links.append(Beginning(links[-1] if links else None, message))
    assert fold.of(links[-1], None) == 100
    looked.clear()
    assert fold.of(Beginning(links[69], links[0].message), None) == 71
    assert len(looked) <= 16


_ODD: list[Message] = [
    Message(role=role, parts=parts, origin=None if wire is None else Origin(wire, fields))
    for wire, fields in ((None, {}), (Wire.MESSAGES, {}), (Wire.CHAT, {"audio": {"id": "x"}}))
    for role in Role
    for parts in [
        (),
        (Text(text=" \n"),),
        (Text(text=""), ToolCall(id="c", name="f", arguments_json="{}")),
        (Text(text=f"ok {_LEAKED}"),),
        (Text(text="see (f)"),),
        (Text(text="hi"), ToolResult(call_id="a")),
        (ToolResult(call_id="b"), Text(text=" ")),
        (ToolResult(call_id="a"), ToolResult(call_id="a")),
        (ToolCall(id="c", name="f", arguments_json="{}", namespace="n"),),
        (ToolCall(id="c d", name="f", arguments_json="{}"),),
        (ToolCall(id="c", name="f g", arguments_json="{}"),),
        (ToolCall(id="c", name="f", arguments_json="{}"), ToolCall(id="c", name="f", arguments_json="{}")),
        (ToolCall(id="c", name="f", arguments_json="{}"), ToolResult(call_id="c")),
        (Refusal(text=" "),),
        (Refusal(text="no"),),
        (Reasoning(text="hm"), Text(text="so")),
        (Reasoning(text="hm", state=OpaqueState(Wire.CHAT, {"field": "reasoning"}, "another")),),
        (Image(url="https://example.org/a.png"),),
        (ProviderItem(wire=Wire.RESPONSES, type="item_reference", value={"type": "item_reference", "id": "a"}),),
        (Unknown(wire=Wire.MESSAGES, type="x", value={"id": "b"}), Text(text="hi")),
        (ToolReference(name="f"),),
    ]
]


_UPSTREAMS: list[tuple[Profile, tuple[Tool | ProviderTool, ...]]] = [
    (Profile(), (Tool(name="f"),)),
    (Profile(prefill=True, id_pattern="[a-c]"), (Tool(name="f"),)),
    (Profile(history_needs_tools=True, name_length=1), ()),
    (Profile(prefix_bound=True, id_pattern="[a-zA-Z0-9]{9}"), (Tool(name="f"), Tool(name="odd name"))),
    (Profile(name_pattern="[a-z_0-9]+", name_length=32), (ProviderTool(type="web", value={"name": "w"}),)),
]


@pytest.mark.parametrize(("profile", "tools"), _UPSTREAMS, ids=["usual", "prefill", "needs-tools", "bound", "hosted"])
def test_one_odd_message_anywhere(profile: Profile, tools: Any) -> None:
    """Rules 100-105, 129: whatever one message holds, wherever it stands, with whatever upstream.

    Under `ci` each message meets each upstream and each place, and each place each upstream; `deep` runs all of them.
    """
    at = _UPSTREAMS.index((profile, tools))
    for number, odd in enumerate(_ODD):
        rounds = [Message(role=role, parts=parts, origin=odd.origin) for role, parts in _MOVES]
        clean = [rounds[0], rounds[3], rounds[-1], rounds[1], rounds[0]]
        for place in range(len(clean) + 1):
            if PROFILE == "ci" and (number + place + at) % len(_UPSTREAMS):
                continue
            _compare((*clean[:place], odd, *clean[place:]), tools, profile)
            if place < len(clean):
                _compare((*clean[:place], odd, *clean[place + 1 :]), tools, profile)
            followed = Message(role=Role.TOOL, parts=(ToolResult(call_id="c"),), origin=odd.origin)
            if odd.calls:
                _compare((*clean[:place], odd, followed, *clean[place:]), tools, profile)


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_rounds_as_they_should_be_are_in_order(data: st.DataObject) -> None:
    """Rule 105: the short way is taken by what agents send: the long one finds nothing, and neither did it."""
    messages = data.draw(_nearly_kept())
    request = Request(model="m", messages=tuple(messages), tools=(Tool(name="f"),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "_is_clean", _never)
        clean = _mended(request, Profile())[0] is request
    ids = [part.id for message in messages for part in message.parts if isinstance(part, ToolCall)]
    blank = any(
        message.role is not Role.TOOL
        and any(isinstance(part, Text) and not part.text.strip() for part in message.parts)
        for message in messages
    )
    if clean and len(set(ids)) == len(ids) and not blank:
        assert order_of(request).kept


@given(first=_nearly_kept(), second=_nearly_kept(), profile=_profiles, edit=st.integers(0, 8))
@settings(max_examples=100, deadline=None)
def test_messages_that_were_seen_before_change_nothing(
    first: list[Message], second: list[Message], profile: Profile, edit: int
) -> None:
    """Rule 105: what is kept with a message is true of it in any conversation, in any order, after any edit."""
    mixed = (*first[:edit], *second, *first[edit:])
    for messages in (tuple(first), tuple(second), mixed, tuple(reversed(mixed))):
        warm = Request(model="m", messages=messages, tools=(Tool(name="f"),))
        cold = Request(model="m", messages=tuple(message.evolve() for message in messages), tools=warm.tools)
        assert _mended(warm, profile) == _mended(cold, profile)
        maps = NameMap.of(warm, profile), NameMap.of(cold, profile)
        assert maps[0].outgoing(warm) == maps[1].outgoing(cold)
        assert maps[0].trivial == maps[1].trivial


@pytest.mark.parametrize("wire", list(Wire))
def test_only_new_messages_are_read(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 105: a request that goes on from the last one costs the reading of what it adds, and no history walk."""
    read: list[Message] = []
    make = order._traits_of

    def counted(message: Message) -> Any:
        read.append(message)
        return make(message)

    monkeypatch.setattr(order, "_traits", Attached("traits", counted))
    monkeypatch.setattr(history, "pair_results", None)
    monkeypatch.setattr(history, "fit_reasoning", None)
    codec, tenant = codec_for(wire), Conversations().of("a tenant", wire)
    entries: list[dict[str, Any]] = [{"role": "user", "content": f"count the new ones on {wire}"}]
    for number in range(12):
        name, one = "f", f"counted_{wire}_{number}"
        match wire:
            case Wire.CHAT:
                call = {"id": one, "type": "function", "function": {"name": name, "arguments": "{}"}}
                entries.append({"role": "assistant", "content": None, "tool_calls": [call]})
                entries.append({"role": "tool", "tool_call_id": one, "content": one})
            case Wire.MESSAGES:
                call = {"type": "tool_use", "id": one, "name": name, "input": {"q": 1}}
                entries.append({"role": "assistant", "content": [call]})
                result = {"type": "tool_result", "tool_use_id": one, "content": one}
                entries.append({"role": "user", "content": [result]})
            case Wire.RESPONSES:
                entries.append({"type": "function_call", "call_id": one, "name": name, "arguments": "{}"})
                entries.append({"type": "function_call_output", "call_id": one, "output": one})
        body: dict[str, Any] = {"model": "m", "input" if wire is Wire.RESPONSES else "messages": entries}
        if wire is Wire.MESSAGES:
            body["max_tokens"] = 9
        read.clear()
        written = msgspec.json.encode(body)
        request = codec.decode_request(written, open_body(written, tenant, wire))
        assert mend_history(request, Profile(), "me", AdaptationLog()) is request
        assert NameMap.of(request, Profile()).trivial
        assert len(read) == 2  # the user's first words are talk, which is told without a look at its traits


def test_what_was_made_of_a_value_goes_with_it() -> None:
    """A changed copy is looked at anew, an equal one as well; neither knows of the other."""
    made: list[Message] = []
    attached: Attached[Message, int] = Attached("parts", lambda message: made.append(message) or 1 + len(message.parts))
    message = Message(role=Role.USER, parts=(Text(text="hi"),))
    assert [attached.of(message), attached.of(message), *attached.each([message, message])] == [2, 2, 2, 2]
    assert len(made) == 1
    changed = message.evolve(parts=())
    assert (attached.of(changed), len(made)) == (1, 2)
    assert message == Message(role=Role.USER, parts=(Text(text="hi"),))
