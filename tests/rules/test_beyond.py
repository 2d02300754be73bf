"""Rules 121 to 128 (without 124) through a real gateway: calls in disguise, half calls, forbidden calls, odd deltas."""

import json
from typing import Any

import pytest

from mustcall.testing import Call, Cut, Raw, RawStream, Say, Turn, Usage
from support.forcing import FAILED, TIME, WAYS, WEATHER, WIRES, Called, Result, Rig, Step, write_body
from support.gated import KEYS, PATHS
from support.http import post

#: Native models, and one nobody knows.
MODELS = {"chat": "gpt-4o", "responses": "gpt-4o", "messages": "claude-sonnet-4-6"}
UNKNOWN = "some-model"
KEY = {"chat": "messages", "responses": "input", "messages": "messages"}
LIMIT = 4096
PARIS = {"city": "Paris"}
ROME = {"city": "Rome"}
CALL = Turn(Call("get_weather", PARIS))
FINE = Turn(Say("Fine."))
LEAK = '<invoke name="get_weather"><parameter name="city">Paris</parameter></invoke>'
NOT_AS_TEXT = "Make tool calls through the tool interface, not as text."
TOO_LARGE = "The tool call was too large and got cut off. Make it again with a smaller payload."
EMPTY = "The reply was empty. Please answer."

ways = pytest.mark.parametrize(("wire", "stream"), WAYS)
wires = pytest.mark.parametrize("wire", WIRES)


def request(wire: str, *steps: Step | str, **options: Any) -> dict[str, Any]:
    """A request to the wire's usual model that offers one tool."""
    given: dict[str, Any] = {"model": MODELS[wire], "tools": (WEATHER,)} | options
    return write_body(wire, *(steps or ("Weather?",)), **given)


def reminded(wire: str, body: dict[str, Any], text: str) -> dict[str, Any]:
    """The body with a user turn of ours at its tail."""
    turn: dict[str, Any] = {"role": "user", "content": text}
    if wire == "responses":
        turn = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return {**body, KEY[wire]: [*body[KEY[wire]], turn]}


# --- rule 121 ---------------------------------------------------------------------------------------------------------

#: Wrappers no dialect has, around a call of the tool on offer.
DISGUISES = {
    "attributes": '<do_it tool="get_weather" city="Paris"/>',
    "odd brackets": '<<get_weather>>{"city": "Paris"}<</get_weather>>',
    "tags of its own": '<action name="get_weather"><city>Paris</city></action>',
    "lines of its own": '<my_code>\nget_weather(city="Paris")\n</my_code>',
    "an object of its own": '{"action": "get_weather", "action_input": {"city": "Paris"}}',
}


@ways
@pytest.mark.parametrize("known", [True, False], ids=["native", "unknown"])
def test_calls_in_unknown_wrappers_are_seen_and_never_executed(wire: str, stream: bool, known: bool) -> None:
    """Rule 121: an offered tool and its parameters in any markup is a text call; it is discarded and reported.

    A form that nobody knows is only known by its end: a stream must be held to show nothing of it.
    """
    asked = request(wire, model=MODELS[wire] if known else UNKNOWN, stream=stream)
    script = [Turn(Say(text)) for disguise in DISGUISES.values() for text in (disguise, disguise)]
    turns = [turn for pair in zip(script[::2], script[1::2], strict=True) for turn in (*pair, CALL)]
    with Rig(*turns, upstream=wire) as rig:
        seen = [rig.ask(wire, asked, {"x-mustcall-hold": "true"}) for _ in DISGUISES]
        assert rig.bodies == [asked, asked, reminded(wire, asked, NOT_AS_TEXT)] * len(DISGUISES)
    for disguise, got in zip(DISGUISES, seen, strict=True):
        assert (got.text, got.calls) == ("", (("get_weather", PARIS),)), disguise
        assert got.outcome[3] == "text_call,text_call,called", disguise
        assert got.adaptations == ["directive_added:messages", "reported:dialect_unknown"], disguise


@wires
def test_names_in_prose_are_no_calls(wire: str) -> None:
    """Rule 121: a tool that is only talked about is not called, and the answer is the upstream's own bytes."""
    prose = 'I used "get_weather" for the city of Paris; 3 < 4, and a <b>bold</b> word.'
    asked = json.dumps(request(wire)).encode()
    with Rig(Turn(Say(prose)), upstream=wire) as rig:
        seen = post(rig.url + PATHS[wire], asked, KEYS)
        assert [one.raw for one in rig.requests] == [asked]
    assert json.dumps(prose)[1:-1].encode() in seen.body
    assert "x-mustcall-adaptations" not in seen.headers


# --- rule 122 ---------------------------------------------------------------------------------------------------------


@ways
@pytest.mark.parametrize("known", [True, False], ids=["native", "unknown"])
def test_quoted_markup_is_shown_as_it_is(wire: str, stream: bool, known: bool) -> None:
    """Rule 122: markup in a code fence or inline code is text, whoever wrote it first; nothing is stripped."""
    quoted = f"Write this:\n```xml\n{LEAK}\n```\nor inline `{LEAK}`, as you said."
    steps = (f"What does {LEAK} mean?", Called("c1", "get_weather", PARIS), Result("c1", LEAK))
    asked = request(wire, *steps, model=MODELS[wire] if known else UNKNOWN, stream=stream)
    with Rig(Turn(Say(quoted)), upstream=wire) as rig:
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked]
    assert (got.text, got.calls, got.adaptations) == (quoted, (), [])


# --- rule 123 ---------------------------------------------------------------------------------------------------------

#: Ways in which a call shows that it was cut off.
CUTS = {
    "length": Turn(Call("get_weather", PARIS), finish="length"),
    "length, half": Turn(Call("get_weather", '{"city":"Par'), finish="length"),
    "unbalanced": Turn(Call("get_weather", '{"city":"Par')),
    "at the cap": Turn(Call("get_weather", PARIS), usage=Usage(input_tokens=9, output_tokens=LIMIT)),
}


#: A whole Messages reply holds its input as JSON, so there is nothing in it that could be unbalanced.
WAYS_TO_CUT = [
    (wire, stream, cut)
    for wire in ("chat", "responses", "messages")
    for stream in (False, True)
    for cut in CUTS
    if (wire, stream, cut) != ("messages", False, "unbalanced")
]


@pytest.mark.parametrize(("wire", "stream", "cut"), WAYS_TO_CUT)
def test_truncated_calls_are_never_delivered(wire: str, stream: bool, cut: str) -> None:
    """Rule 123: whatever shows that a call was cut, even one that could be read, its retry says it was too large."""
    asked = request(wire, stream=stream)
    with Rig(CUTS[cut], Turn(Call("get_weather", ROME)), upstream=wire) as rig:
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked, reminded(wire, asked, TOO_LARGE)]
    assert (got.calls, got.finish) == ((("get_weather", ROME),), "tool_calls")
    assert got.outcome[3] == "truncated,called"


@ways
def test_a_call_that_is_cut_again_is_an_error(wire: str, stream: bool) -> None:
    """Rule 123: one retry; then a typed error and no call, readable or not."""
    asked = request(wire, stream=stream)
    with Rig(*[CUTS["length"]] * 2, upstream=wire) as rig:
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked, reminded(wire, asked, TOO_LARGE)]
    assert (got.status, got.calls) == (FAILED[wire], ())
    assert got.error["message"].startswith("TruncatedReply: ")


@wires
def test_a_call_in_a_cut_stream_is_taken_again(wire: str) -> None:
    """Rules 41, 123: a stream without its end has no calls; as nothing was shown, the same bytes are sent again."""
    asked = request(wire, stream=True)
    whole = _streamed(wire, asked)
    with Rig(Cut(CALL, after=whole.rindex(b"city")), CALL, upstream=wire) as rig:
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked, asked]
        assert rig.requests[0].raw == rig.requests[1].raw
    assert got.calls == (("get_weather", PARIS),)


def _streamed(wire: str, asked: dict[str, Any]) -> bytes:
    with Rig(CALL, upstream=wire) as rig:
        return post(rig.url + PATHS[wire], asked, KEYS).body


# --- rule 125 ---------------------------------------------------------------------------------------------------------


@ways
def test_none_is_enforced(wire: str, stream: bool) -> None:
    """Rule 125: a call made although nothing may be called is dropped; what was said beside it is the answer."""
    asked = request(wire, choice="none", stream=stream)
    with Rig(Turn(Say("No need."), Call("get_weather", PARIS)), upstream=wire) as rig:
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked]
    assert (got.text, got.calls, got.finish) == ("No need.", (), "stop")


@ways
def test_none_is_enforced_when_nothing_else_was_said(wire: str, stream: bool) -> None:
    """Rules 38, 125: a forbidden call alone is an empty reply: two reminders without tools, then a typed error."""
    asked = request(wire, choice="none", stream=stream)
    with Rig(CALL, CALL, CALL, upstream=wire) as rig:
        got = rig.ask(wire, asked)
        again = {key: value for key, value in asked.items() if key not in ("tools", "tool_choice")}
        assert rig.bodies == [asked, *[reminded(wire, again, EMPTY)] * 2]
    assert (got.status, got.calls) == (FAILED[wire], ())
    assert got.error["message"].startswith("EmptyReply: ")


# --- rule 126 ---------------------------------------------------------------------------------------------------------


@ways
def test_one_call_at_a_time_is_enforced(wire: str, stream: bool) -> None:
    """Rule 126: the first call is delivered, the rest dropped and reported."""
    one = {"type": "auto", "disable_parallel_tool_use": True}
    setting: dict[str, Any] = {"tool_choice": one} if wire == "messages" else {"parallel_tool_calls": False}
    asked = request(wire, stream=stream, tools=(WEATHER, TIME), **setting)
    many = Turn(Call("get_weather", PARIS), Call("get_time", {"zone": "UTC"}), Call("get_weather", ROME))
    with Rig(many, upstream=wire) as rig:
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked]
    assert got.calls == (("get_weather", PARIS),)
    assert got.adaptations == ["call_dropped:get_time", "call_dropped:get_weather"]


# --- rule 127 ---------------------------------------------------------------------------------------------------------


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _piece(arguments: str, **fields: Any) -> dict[str, Any]:
    name = {"name": fields.pop("name")} if "name" in fields else {}
    return {"tool_calls": [{**fields, "function": {**name, "arguments": arguments}}]}


_W = "get_weather"
#: Deltas as servers write them, and the calls they mean.
DELTAS: dict[str, tuple[list[bytes], list[dict[str, Any]]]] = {
    "one index for two ids": (
        [
            _chunk(_piece('{"city":', index=0, id="a", name=_W)),
            _chunk(_piece('"Paris"}', index=0, id="a")),
            _chunk(_piece('{"city":"Rome"}', index=0, id="b", name=_W)),
            _chunk({}, "tool_calls"),
        ],
        [PARIS, ROME],
    ),
    "no index": (
        [
            _chunk(_piece('{"city":"Paris"}', id="a", name=_W)),
            _chunk(_piece('{"city":"Rome"}', id="b", name=_W)),
            _chunk({}, "tool_calls"),
        ],
        [PARIS, ROME],
    ),
    "the name in every delta": (
        [
            _chunk(_piece('{"city":', index=0, id="a", name=_W)),
            _chunk(_piece('"Paris"}', index=0, id="a", name=_W)),
            _chunk({}, "tool_calls"),
        ],
        [PARIS],
    ),
    "interleaved": (
        [
            _chunk(_piece('{"city":', index=0, id="a", name=_W)),
            _chunk(_piece('{"city":', index=1, id="b", name=_W)),
            _chunk(_piece('"Paris"}', index=0)),
            _chunk(_piece('"Rome"}', index=1)),
            _chunk({}, "tool_calls"),
        ],
        [PARIS, ROME],
    ),
    "a finish that says stop": (
        [_chunk(_piece('{"city":"Paris"}', index=0, id="a", name=_W)), _chunk({}, "stop")],
        [PARIS],
    ),
    "an empty list of calls": (
        [_chunk({"content": "Fine.", "tool_calls": []}), _chunk({"tool_calls": []}, "stop")],
        [],
    ),
}


@wires
@pytest.mark.parametrize("case", DELTAS)
def test_deltas_are_assembled_by_what_tells_calls_apart(wire: str, case: str) -> None:
    """Rule 127: by id, else index, else name; an empty list is no call, and the finish follows from the content."""
    chunks, meant = DELTAS[case]
    asked = request(wire, stream=True, model="gpt-4o")
    with Rig(RawStream([*chunks, b"data: [DONE]\n\n"]), upstream="chat") as rig:
        got = rig.ask(wire, asked)
        assert len(rig.bodies) == 1
    assert got.calls == tuple((_W, arguments) for arguments in meant)
    assert (got.text, got.finish) == (("", "tool_calls") if meant else ("Fine.", "stop"))


#: Calls in a whole reply as careless servers spell them.
SPELLINGS: dict[str, dict[str, Any]] = {
    "arguments as an object": {"id": "a", "type": "function", "function": {"name": _W, "arguments": PARIS}},
    "no id": {"type": "function", "function": {"name": _W, "arguments": json.dumps(PARIS)}},
    "an empty id": {"id": "", "type": "function", "function": {"name": _W, "arguments": json.dumps(PARIS)}},
    "no type": {"id": "a", "function": {"name": _W, "arguments": json.dumps(PARIS)}},
}


@wires
@pytest.mark.parametrize("case", SPELLINGS)
def test_careless_spelling_is_mended_on_every_wire(wire: str, case: str) -> None:
    """Rule 127: a call that could be read is delivered as the wire spells calls, also to the upstream's own wire."""
    message = {"role": "assistant", "content": None, "tool_calls": [SPELLINGS[case]]}
    reply = {"id": "x", "object": "chat.completion", "created": 1, "model": "gpt-4o"} | {
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    }
    with Rig(Raw(200, json.dumps(reply).encode()), upstream="chat") as rig:
        got = rig.ask(wire, request(wire, model="gpt-4o"))
        assert len(rig.bodies) == 1
    assert (got.calls, got.finish) == ((("get_weather", PARIS),), "tool_calls")


# --- rule 128 ---------------------------------------------------------------------------------------------------------

WRITTEN = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
#: Errors that carry what the model wrote.
HARVESTS = {
    "groq": (
        400,
        {
            "error": {
                "message": "Failed to call a function. Please adjust your prompt.",
                "type": "invalid_request_error",
                "code": "tool_use_failed",
                "failed_generation": WRITTEN,
            }
        },
    ),
    "llama.cpp": (
        500,
        {"error": {"code": 500, "message": f"Failed to parse input at pos 0: {WRITTEN}", "type": "server_error"}},
    ),
}


@ways
@pytest.mark.parametrize("server", HARVESTS)
def test_generations_inside_errors_are_judged_like_replies(wire: str, stream: bool, server: str) -> None:
    """Rule 128: a complete, valid call in an error is promoted where text may carry calls, with no further call."""
    status, body = HARVESTS[server]
    asked = request(wire, model=UNKNOWN, stream=stream)
    with Rig(Raw(status, json.dumps(body).encode()), upstream="chat") as rig:
        got = rig.ask(wire, asked)
        assert len(rig.bodies) == 1
    assert (got.status, got.calls, got.finish) == (200, (("get_weather", PARIS),), "tool_calls")
    assert {"reported:generation", "call_promoted:get_weather"} <= set(got.adaptations)


#: What a stream may hold before the error: nothing, its start, or what is shown at once.
BEFORE: dict[str, list[dict[str, Any]]] = {
    "nothing": [],
    "start": [{"role": "assistant", "content": ""}],
    "reasoning": [{"role": "assistant", "reasoning_content": "Let me see."}],
}


def broken(before: str, body: dict[str, Any]) -> RawStream:
    """A chat stream that ends in an error event."""
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in BEFORE[before]]
    return RawStream([b"data: " + json.dumps(event).encode() + b"\n\n" for event in (*chunks, body)])


@ways
@pytest.mark.parametrize("server", HARVESTS)
@pytest.mark.parametrize("before", BEFORE)
def test_generations_inside_error_events_are_judged_like_replies(
    wire: str, stream: bool, server: str, before: str
) -> None:
    """Rule 128: an error event of a stream that carries a complete, valid call is that call, with no further call."""
    _, body = HARVESTS[server]
    asked = request(wire, model=UNKNOWN, stream=stream)
    with Rig(broken(before, body), upstream="chat") as rig:
        got = rig.ask(wire, asked)
        assert len(rig.bodies) == 1
    assert (got.status, got.text, got.calls, got.finish) == (200, "", (("get_weather", PARIS),), "tool_calls")
    assert got.error == {}
    if not (stream and before == "reasoning"):  # the headers are out with the reasoning
        assert {"reported:generation", "call_promoted:get_weather"} <= set(got.adaptations)


@pytest.mark.parametrize("server", HARVESTS)
def test_generations_inside_error_events_are_discarded_where_text_is_no_channel(server: str) -> None:
    """Rules 45, 128: under `native` such an event is a text call: it is tried again, and nothing of it is seen."""
    asked = request("chat", stream=True)
    with Rig(broken("start", HARVESTS[server][1]), CALL, upstream="chat") as rig:
        got = rig.ask("chat", asked)
        assert rig.bodies == [asked, asked]
    assert (got.text, got.calls) == ("", (("get_weather", PARIS),))
    assert got.outcome[3] == "text_call,called"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("server", HARVESTS)
def test_generations_inside_errors_are_discarded_where_text_is_no_channel(server: str, stream: bool) -> None:
    """Rules 45, 128: under `native` it is a text call: the same bytes again, and nothing of it reaches the caller."""
    status, body = HARVESTS[server]
    asked = request("chat", stream=stream)
    with Rig(Raw(status, json.dumps(body).encode()), CALL, upstream="chat") as rig:
        got = rig.ask("chat", asked)
        assert rig.bodies == [asked, asked]
    assert (got.text, got.calls) == ("", (("get_weather", PARIS),))
    assert got.outcome[3] == "text_call,called"
