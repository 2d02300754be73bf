"""Conversations that came before: a warm reading gives what a cold one gives, and tenants are kept apart."""

import contextlib
import gc
import json
import sys
import tracemalloc
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import MustcallError
from mustcall.core.history import Beginning, beginning_of
from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.engine.turns import make_turn_state
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Profile
from mustcall.policy.facts.wording import Wording
from mustcall.policy.scanning.echoes import echoes_in
from mustcall.wire.caching.conversations import Conversations, Tenant
from mustcall.wire.caching.encode_cache import write_body
from mustcall.wire.codec import Target
from mustcall.wire.opening import Opened, doubled_field, open_body
from mustcall.wire.registry import codec_for
from support.covering import pairwise
from support.examples import PROFILE

Json = dict[str, Any]

_TEXTS = ("hi", "a (b) [c]", '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>', " ", "", 'é😀 \\ "q"', "]},{")
_IDS = ("c1", "c2", "c3", "c 4 odd", "call_5")
_NAMES = ("f", "g.h", "other tool")
_TOOL: dict[Wire, Json] = {
    Wire.CHAT: {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
    Wire.MESSAGES: {"name": "f", "input_schema": {"type": "object"}},
    Wire.RESPONSES: {"type": "function", "name": "f", "parameters": {"type": "object"}},
}
_text = st.sampled_from(_TEXTS)
_id = st.sampled_from(_IDS)


@st.composite
def _chat(draw: st.DrawFn) -> Json:
    kind = draw(st.sampled_from(("user", "assistant", "call", "tool", "thought", "system", "odd")))
    match kind:
        case "call":
            function = {"name": draw(st.sampled_from(_NAMES)), "arguments": draw(st.sampled_from(("{}", '{"a":1}')))}
            calls = [{"id": draw(_id), "type": "function", "function": function}]
            return {"role": "assistant", "content": draw(st.sampled_from((None, *_TEXTS))), "tool_calls": calls}
        case "tool":
            return {"role": "tool", "tool_call_id": draw(_id), "content": draw(_text)}
        case "thought":
            return {"role": "assistant", "content": draw(_text), "reasoning_content": "hm"}
        case "odd":
            return {"role": "user", "content": draw(_text), "name": "x", "unknown": [1, {"a": None}]}
        case role:
            return {"role": role, "content": draw(_text)}


@st.composite
def _messages(draw: st.DrawFn) -> Json:
    kind = draw(st.sampled_from(("user", "assistant", "call", "tool", "thought", "cached")))
    match kind:
        case "call":
            call = {"type": "tool_use", "id": draw(_id), "name": draw(st.sampled_from(_NAMES)), "input": {"a": 1}}
            return {"role": "assistant", "content": [{"type": "text", "text": draw(_text)}, call]}
        case "tool":
            result = {"type": "tool_result", "tool_use_id": draw(_id), "content": draw(_text)}
            return {"role": "user", "content": [result]}
        case "thought":
            return {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": draw(_id)}]}
        case "cached":
            block = {"type": "text", "text": draw(_text), "cache_control": {"type": "ephemeral"}}
            return {"role": "user", "content": [block]}
        case role:
            return {"role": role, "content": draw(_text)}


@st.composite
def _responses(draw: st.DrawFn) -> Json:
    kind = draw(st.sampled_from(("user", "assistant", "call", "custom", "tool", "thought")))
    match kind:
        case "call":
            name = draw(st.sampled_from(_NAMES))
            return {"type": "function_call", "call_id": draw(_id), "name": name, "arguments": "{}"}
        case "custom":
            return {"type": "custom_tool_call", "call_id": draw(_id), "name": "f", "input": draw(_text)}
        case "tool":
            return {"type": "function_call_output", "call_id": draw(_id), "output": draw(_text)}
        case "thought":
            return {"type": "reasoning", "id": draw(_id), "summary": [], "encrypted_content": "x"}
        case "assistant":
            part: Json = {"type": "output_text", "text": draw(_text), "annotations": []}
            return {"type": "message", "role": "assistant", "content": [part]}
        case role:
            return {"type": "message", "role": role, "content": [{"type": "input_text", "text": draw(_text)}]}


#: Reasoning: alone, beside words, with state of its upstream and without.
_THOUGHTS: dict[Wire, list[Json]] = {
    Wire.CHAT: [
        {"role": "assistant", "content": "so", "reasoning_content": "hm"},
        {"role": "assistant", "content": None, "reasoning_content": "hm"},
        {"role": "assistant", "content": "so", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]},
    ],
    Wire.MESSAGES: [
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "so"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "so"}]},
    ],
    Wire.RESPONSES: [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "x"},
    ],
}

_ELEMENTS = {Wire.CHAT: _chat(), Wire.MESSAGES: _messages(), Wire.RESPONSES: _responses()}


@st.composite
def _exchange(draw: st.DrawFn, wire: Wire) -> list[Json]:
    """A call and its result, as a client sends them; the id may have been there before."""
    call_id, name, said = draw(_id), draw(st.sampled_from(_NAMES)), draw(st.sampled_from(_TEXTS[:3]))
    match wire:
        case Wire.CHAT:
            call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
            result: Json = {"role": "tool", "tool_call_id": call_id, "content": said}
            return [{"role": "assistant", "content": said, "tool_calls": [call]}, result]
        case Wire.MESSAGES:
            call: Json = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
            result = {"type": "tool_result", "tool_use_id": call_id, "content": said}
            asked: Json = {"role": "assistant", "content": [{"type": "text", "text": said}, call]}
            return [asked, {"role": "user", "content": [result]}]
        case Wire.RESPONSES:
            result = {"type": "function_call_output", "call_id": call_id, "output": said}
            return [{"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"}, result]


@st.composite
def _bodies(draw: st.DrawFn, wire: Wire) -> list[bytes]:
    """Bodies of a few conversations in any interleaving: grown, cut, edited in the middle, or sent again."""
    user: Json = {"role": "user", "content": "begin"}
    openings = st.just(user) | _ELEMENTS[wire]
    talks: list[list[Json]] = [[draw(openings)] for _ in range(draw(st.integers(1, 3)))]
    first, spaced = draw(st.booleans()), draw(st.sampled_from((None, 1)))
    bodies: list[bytes] = []
    for _ in range(draw(st.integers(2, 9))):
        talk = draw(st.sampled_from(talks))
        match draw(
            st.sampled_from(
                (
                    "exchange",
                    "exchange",
                    "exchange",
                    "grow",
                    "again",
                    "cut",
                    "edit",
                    "remove",
                    "fork",
                    "think",
                    "compact",
                )
            )
        ):
            case "exchange":
                talk += draw(_exchange(wire))
            case "grow":
                talk += draw(st.lists(_ELEMENTS[wire], min_size=1, max_size=3))
            case "cut" if len(talk) > 1:
                del talk[draw(st.integers(1, len(talk) - 1)) :]
            case "edit":
                talk[draw(st.integers(0, len(talk) - 1))] = draw(_ELEMENTS[wire])
            case "remove" if len(talk) > 1:
                del talk[draw(st.integers(0, len(talk) - 1))]
            case "fork":
                talks.append([*talk, draw(_ELEMENTS[wire])])
            case "think":
                talk.insert(draw(st.integers(0, len(talk))), draw(st.sampled_from(_THOUGHTS[wire])))
            case "compact":
                talk[: draw(st.integers(1, len(talk)))] = [{"role": "user", "content": "what was said before"}]
            case _:
                pass
        bodies.append(_written(wire, talk, messages_first=first, spaced=spaced, model=draw(st.sampled_from("fg"))))
    return bodies


def _written(wire: Wire, talk: list[Json], *, messages_first: bool, spaced: int | None, model: str) -> bytes:
    listed: Json = {"input" if wire is Wire.RESPONSES else "messages": talk}
    tool = json.loads(json.dumps(_TOOL[wire]).replace('"f"', f'"{model}"'))
    rest: Json = {"model": model, "tools": [tool], "max_tokens": 9}
    body = listed | rest if messages_first else rest | listed
    separators = None if spaced else (",", ":")
    return json.dumps(body, separators=separators, indent=spaced, ensure_ascii=False).encode()


_PROFILES = (
    Profile(),
    Profile(prefix_bound=True, reasoning_field="reasoning"),
    Profile(id_pattern="^[a-z0-9]+$", id_length=9, prefill=False),
    Profile(id_pattern="^c[12]$", id_length=9),
)


def _told(error: MustcallError) -> tuple[object, ...]:
    return (type(error), str(error))


#: Under `ci` a body is sent to two upstreams, one of which a body before it was sent to; `deep` sends it to all.
_UPSTREAMS = list(product(_PROFILES, (Controls(), Controls(force_tools="f"))))


def _upstreams(number: int) -> list[tuple[Profile, Controls]]:
    if PROFILE != "ci":
        return _UPSTREAMS
    return [_UPSTREAMS[at % len(_UPSTREAMS)] for at in (2 * number, 2 * number + 3)]


def _outcome(
    wire: Wire, body: bytes, tenant: Tenant | None, upstreams: list[tuple[Profile, Controls]], issuer: str = "me"
) -> list[object]:
    """Everything a turn makes of a body before it is sent: what is read, noted, planned and written for each wire."""
    told: list[object] = []
    fields = open_body(body, tenant, wire)
    assert fields is not None
    told.append(doubled_field(body, fields))
    try:
        request = codec_for(wire).decode_request(body, fields)
    except MustcallError as error:
        return [*told, _told(error)]
    told.append(request)
    for profile, controls in upstreams:
        # Read anew: what is known of a request from another profile must not be what makes both alike.
        request = codec_for(wire).decode_request(body, open_body(body, tenant, wire))
        try:
            turn_state = make_turn_state(request, profile, issuer, controls=controls, wording=Wording())
            shaped = turn_state.shaped()
        except MustcallError as error:
            told.append(_told(error))
            continue
        told += [turn_state.log.entries, shaped.request, echoes_in(request, shaped.request, Wording())]
        for upstream in Wire:
            log = AdaptationLog()
            try:
                # Cold, everything is written as one; warm, behind what was written before.
                target, pieces = Target(issuer=issuer), tenant is not None
                sent = write_body(codec_for(upstream).encode_request(shaped.request, target, log, pieces=pieces))
            except MustcallError as error:
                told.append(_told(error))
            else:
                told += [sent, log.entries]
    return told


@pytest.mark.parametrize("wire", list(Wire))
@pytest.mark.parametrize("most", [1 << 24, 20_000])
@settings(deadline=None)
@given(data=st.data())
def test_warm_is_cold(wire: Wire, most: int, data: st.DataObject) -> None:
    """Rule 105: whatever came before, a request is read, mended, noted and written as if it were the first."""
    tenant = Conversations(most).of("a tenant", wire)
    first = data.draw(st.integers(0, len(_PROFILES) - 1))
    for number, body in enumerate(data.draw(_bodies(wire)), first):
        issuer = data.draw(st.sampled_from(("me", "me", "another")))
        upstreams = _upstreams(number)
        assert _outcome(wire, body, tenant, upstreams, issuer) == _outcome(wire, body, None, upstreams, issuer)


@pytest.mark.parametrize("wire", list(Wire))
@settings(deadline=None)
@given(data=st.data())
def test_any_bytes_behind_what_is_known(wire: Wire, data: st.DataObject) -> None:
    """Bytes changed anywhere, cut or doubled, open as they do cold: the same fields, or the same refusal."""
    body = data.draw(_bodies(wire))[-1]
    tenant = Conversations().of("a tenant", wire)
    codec_for(wire)  # its module is loaded
    fields = open_body(body, tenant, wire)
    assert fields is not None
    try:
        codec_for(wire).decode_request(body, fields)
    except MustcallError:
        return
    place = data.draw(st.integers(0, len(body)))
    inserted = data.draw(
        st.sampled_from((b"", b" ", b",", b"]", b"}", b'"', b"{}", b',"messages":[]', b',"model":"m"'))
    )
    removed = data.draw(st.integers(0, 3))
    bent = body[:place] + inserted + body[place + removed :]
    warm, cold = open_body(bent, tenant, wire), open_body(bent)
    assert (warm is None) == (cold is None)
    if warm is None or cold is None:
        return
    assert list(warm) == list(cold)
    assert doubled_field(bent, warm) == doubled_field(bent, cold)
    if doubled_field(bent, cold) is None:
        assert _read(wire, bent, warm) == _read(wire, bent, cold)


def _read(wire: Wire, body: bytes, fields: dict[str, msgspec.Raw]) -> object:
    try:
        return codec_for(wire).decode_request(body, fields)
    except MustcallError as error:
        return _told(error)


def _talk(number: int, size: int = 300) -> bytes:
    talk = [{"role": "user", "content": f"{number}: " + "x" * size}]
    return _written(Wire.CHAT, talk, messages_first=True, spaced=None, model="m")


def _kept(conversations: Conversations, tenant: str, body: bytes) -> bool:
    """Read a body for a tenant and tell whether some of it came before."""
    fields = open_body(body, conversations.of(tenant, Wire.CHAT), Wire.CHAT)
    assert isinstance(fields, Opened)
    codec_for(Wire.CHAT).decode_request(body, fields)
    return fields.known is not None


def test_tenants_are_apart() -> None:
    """What one tenant sent is not found by another, whose own is found; nor on another wire."""
    conversations = Conversations()
    assert not _kept(conversations, "a", _talk(1))
    assert not _kept(conversations, "b", _talk(1))
    assert _kept(conversations, "a", _talk(1))
    assert _kept(conversations, "b", _talk(1))
    assert conversations.of("a", Wire.MESSAGES).find(_talk(1)) is None


def test_what_was_not_used_for_longest_goes_first() -> None:
    """The bound holds over all tenants together; what is used stays, and what goes is gone."""
    conversations = Conversations(8 * (300 + 4096))
    for number in range(6):
        _kept(conversations, "a", _talk(number))
    assert _kept(conversations, "a", _talk(0))
    for number in range(6, 11):
        _kept(conversations, "b", _talk(number))
    assert conversations.size <= 8 * (300 + 4096)
    assert _kept(conversations, "a", _talk(0))
    assert not _kept(conversations, "a", _talk(1))


def _grow(conversations: Conversations, tenant: str, number: int, turns: int) -> list[bool]:
    """Send a conversation that grows; tell of each request whether some of it came before."""
    talk: list[Json] = [{"role": "user", "content": f"conversation {number}"}]
    found: list[bool] = []
    for turn in range(turns):
        body = _written(Wire.CHAT, talk, messages_first=True, spaced=None, model="m")
        found.append(_kept(conversations, tenant, body))
        talk.append({"role": "assistant", "content": f"answer {turn} " + "x" * 300})
    return found


def test_bodies_that_came_once_do_not_push_out_conversations() -> None:
    """However many bodies come from which nothing goes on, what went on is found again."""
    conversations = Conversations(100_000)
    for number in range(3):
        assert _grow(conversations, "a", number, 4) == [False, True, True, True]
    for number in range(1_000):
        assert not _kept(conversations, "b", _talk(number))
    assert conversations.size <= 100_000
    for number in range(3):
        assert all(_grow(conversations, "a", number, 4))
    assert _kept(conversations, "b", _talk(999)), "the latest of them is there as well"


@pytest.fixture(scope="module")
def _settled() -> None:
    """Leave all that is there out of garbage collection, once: each measurement collects, and walks the rest only."""
    gc.collect()
    gc.freeze()


def _memory(body: bytes, requests: int, other: Wire | None) -> tuple[int, int]:
    """Return the bytes that conversations like this take in memory, and those that are counted."""
    conversations = Conversations(1 << 30)
    tenant = conversations.of("a tenant", Wire.CHAT)

    def send(number: int) -> None:
        came = body.replace(b"NUMBER", b"%06d" % number)
        request = codec_for(Wire.CHAT).decode_request(came, open_body(came, tenant, Wire.CHAT))
        shaped = make_turn_state(request, Profile(), "me", controls=Controls(), wording=Wording()).shaped()
        if other is not None:
            write_body(
                codec_for(other).encode_request(shaped.request, Target(issuer="me"), AdaptationLog(), pieces=True)
            )

    send(0)  # modules are loaded, patterns compiled
    counted = conversations.size
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(1, requests + 1):
            send(number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0], conversations.size - counted
    finally:
        tracemalloc.stop()


_CALL: Json = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


_TALKS: dict[str, list[Json]] = {
    "ascii": [{"role": "user", "content": "x" * 3_000}],
    "emoji": [{"role": "user", "content": "x" * 3_000 + "😀"}],
    "cjk": [{"role": "user", "content": "行" * 1_000}],
    "arrays": [{"role": "user", "content": "x", "odd": [[] for _ in range(1_000)]}],
    "objects": [{"role": "user", "content": "x", "odd": [{str(number): 1000 + number} for number in range(500)]}],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "word"} for _ in range(100)]}],
    "call": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [_CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ],
    "arguments": [
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {**_CALL, "function": {"name": "f", "arguments": json.dumps({"a": [[] for _ in range(1_000)]})}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ],
}


@pytest.mark.usefixtures("_settled")
@pairwise({"kind": list(_TALKS), "other": [None, Wire.MESSAGES, Wire.RESPONSES], "escaped": [False, True]})
def test_what_is_counted_is_what_is_held(kind: str, other: Wire | None, escaped: bool) -> None:
    """Memory is bounded by what it is, whatever it was written as: one emoji makes a text four times as large."""
    talk = _TALKS[kind]
    body: Json = {"model": "m", "messages": [{**talk[0], "name": "NUMBER"}, *talk[1:]], "tools": [_TOOL[Wire.CHAT]]}
    held, counted = _memory(json.dumps(body, ensure_ascii=escaped).encode(), 6, other)
    assert held <= counted * 1.1


def _reach(value: object, seen: set[int]) -> int:
    """Return the bytes of everything a value leads to."""
    if id(value) in seen or isinstance(value, type | Message):
        return 0
    seen.add(id(value))
    return sys.getsizeof(value) + sum(_reach(one, seen) for one in gc.get_referents(value))


def test_what_is_known_of_a_branch_is_small() -> None:
    """What is kept with a message is bounded, whatever its history called and whatever tools came with it."""
    tenant = Conversations().of("a", Wire.CHAT)
    calls: list[Json] = []
    talk: list[Json] = [{"role": "user", "content": "begin"}]
    for number in range(300):
        call = {**_CALL, "id": f"c{number}", "function": {"name": f"f{number}", "arguments": "{}"}}
        calls.append(call)
        talk += [
            {"role": "assistant", "content": "look (here)", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "ok"},
        ]
    several = {
        "role": "assistant",
        "content": "(all)",
        "tool_calls": [{**call, "id": f"{call['id']}b"} for call in calls],
    }
    first: Json = {"role": "tool", "tool_call_id": "c0b", "content": "ok"}
    for history in (talk[:101], talk, [*talk[:3], several], [*talk[:3], several, first]):
        tools = [{"type": "function", "function": {"name": "f", "description": "x" * 50_000}}]
        body = json.dumps({"model": "m", "messages": history, "tools": tools}).encode()
        request = codec_for(Wire.CHAT).decode_request(body, open_body(body, tenant, Wire.CHAT))
        with contextlib.suppress(MustcallError):
            make_turn_state(request, Profile(), "me", controls=Controls(), wording=Wording())
        beginning = beginning_of(request)
        assert beginning is not None
        assert beginning.held
        assert _reach([value for _, value in beginning.held.items()], set()) < 32_768


def test_branches_share_their_history() -> None:
    """A hundred branches of a long conversation, each put together whole, take no copy of it each."""
    stem: Beginning | None = None
    for _ in range(3_000):
        stem = Beginning(stem, Message(role=Role.USER, parts=()), {})
    assert stem is not None
    assert len(stem.all()[0]) == 3_000
    tracemalloc.start()
    try:
        branches = [Beginning(stem, Message(role=Role.USER, parts=()), {}) for _ in range(100)]
        assert all(len(branch.all()[0]) == len(branch.all()[1]) == 3_001 for branch in branches)
        assert tracemalloc.get_traced_memory()[0] < 100 * 1_024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("depth", [1, 2, 31, 32, 33, 63, 64, 65, 200])
def test_a_history_is_put_together_from_anywhere(depth: int) -> None:
    """Whichever beginning is asked first, each gives its own messages, in order."""
    links: list[Beginning] = []
    for number in range(depth):
        links.append(Beginning(links[-1] if links else None, Message(role=Role.USER, parts=()), number))
    for link in (*links[::7], *reversed(links), *links):
        messages, values = link.all()
        assert values == list(range(link.depth))
        assert all(one is other.message for one, other in zip(messages, links, strict=False))
        assert len(messages) == link.depth


def test_a_message_of_very_many_values_is_not_kept() -> None:
    """It would take more than all that is kept may take, and weighing it more time than reading it again."""
    conversations = Conversations()
    talk: list[Json] = [{"role": "user", "content": "x", "odd": [[] for _ in range(20_000)]}]
    body = _written(Wire.CHAT, talk, messages_first=True, spaced=None, model="m")
    assert not _kept(conversations, "a", body)
    assert not _kept(conversations, "a", body)
    assert conversations.size == 0


def test_a_place_that_was_parted_between_finding_and_keeping() -> None:
    """Another body parts the node right where what was found ends: both are kept, and each is found."""
    conversations = Conversations()
    tenant = conversations.of("a", Wire.CHAT)
    first, second = b'{"role":"user","content":"1"}', b'{"role":"assistant","content":"2"}'
    bodies = [b'{"model":"m","messages":[' + first + comma + second + b"]}" for comma in (b",", b"\n,", b" ,")]
    assert not _kept(conversations, "a", bodies[0])
    slow = open_body(bodies[2], tenant, Wire.CHAT)
    assert _kept(conversations, "a", bodies[1])
    assert len(codec_for(Wire.CHAT).decode_request(bodies[2], slow).messages) == 2
    for body in bodies:
        fields = open_body(body, tenant, Wire.CHAT)
        assert isinstance(fields, Opened)
        assert len(fields.rest) < 80
        assert codec_for(Wire.CHAT).decode_request(body, fields) == codec_for(Wire.CHAT).decode_request(body)


def test_what_was_forgotten_between_finding_and_keeping_is_not_kept_again() -> None:
    """A body whose beginning is gone by then is read all the same; nothing that is not counted stays."""
    conversations = Conversations(20_000)
    tenant = conversations.of("a", Wire.CHAT)
    talk: list[Json] = [{"role": "user", "content": "begin"}]
    body = _written(Wire.CHAT, talk, messages_first=True, spaced=None, model="m")
    assert not _kept(conversations, "a", body)
    talk.append({"role": "assistant", "content": "and on"})
    longer = _written(Wire.CHAT, talk, messages_first=True, spaced=None, model="m")
    slow = open_body(longer, tenant, Wire.CHAT)
    for number in range(50):
        _grow(conversations, "b", number, 3)
    assert len(codec_for(Wire.CHAT).decode_request(longer, slow).messages) == 2
    assert tenant.find(longer) is None


def test_different_bodies_stay_within_the_bound() -> None:
    """Thousands of bodies that never come again: the bytes that are kept stay bounded, and so do the nodes."""
    conversations = Conversations(100_000)
    for number in range(3_000):
        _kept(conversations, f"tenant {number % 7}", _talk(number))
    assert conversations.size <= 100_000
    assert len(conversations) <= 100_000 // 4096 + 7


def test_only_new_messages_are_decoded() -> None:
    """A conversation that grows costs the reading of what it adds, however long it is."""
    tenant = Conversations().of("a tenant", Wire.CHAT)
    talk: list[Json] = []
    for number in range(40):
        talk.append({"role": "user", "content": f"message {number} " + "x" * 500})
        body = _written(Wire.CHAT, talk, messages_first=False, spaced=None, model="m")
        fields = open_body(body, tenant, Wire.CHAT)
        assert isinstance(fields, Opened)
        request = codec_for(Wire.CHAT).decode_request(body, fields)
        assert len(request.messages) == number + 1
        if number:
            assert len(fields.rest) < 1_000
