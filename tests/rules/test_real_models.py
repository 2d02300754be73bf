"""What real models and servers do with a demanded call: they ramble, run into the limit, refuse (rules 137, 138, 140).

Seen from both ends of real gateways. A reply that must not be waited for hangs behind its call: whoever waits for its
end gets no answer at all.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mustcall.core.origin import Wire
from mustcall.core.parts import Text
from mustcall.core.reply import FinishReason, Reply
from mustcall.core.streams.events import PartEnded, PartStarted, PartTextDelta
from mustcall.core.tools import Tool as CoreTool
from mustcall.engine.turns import OperatorSettings
from mustcall.policy.scanning.reply_scanner import ReplyScanner, ScanTargets
from mustcall.profiles import read_overrides
from mustcall.testing import Answer, Call, Fail, Hang, Raw, Say, Turn, random_chunks
from mustcall.testing.render import Stamp, build_reply, stream_reply
from rules.driving import (
    GRID,
    NATIVE,
    WAYS,
    WORDS,
    Stage,
    arriving,
    as_grammar,
    as_schema,
    kept,
    prompted,
    request,
    stranger,
)
from rules.forms import HERMES, INVOKE, check_no_trace
from support.forcing import FAILED, TIME, WEATHER, WIRES

Json = dict[str, Any]

JSON_CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
ROME = JSON_CALL.replace("Paris", "Rome")
OTHER = '{"name": "get_time", "arguments": {"zone": "CET"}}'
GOOD = Turn(Call("get_weather", {"city": "Paris"}))
NO = Turn(Say("No."))
CALLED = (("get_weather", {"city": "Paris"}),)
BOTH = (*CALLED, ("get_weather", {"city": "Rome"}))
FIRST, SECOND, *_ = (text.format(tool="get_weather") for text in WORDS.call_named)
#: What a model goes on with behind its call; nothing of it may be waited for.
RAMBLE = "\n\nAnd so, ZZZ, that is why the weather matters."

OVERRIDES = [{"models": ["bare*"], "schema_output": False, "local": False}, {"models": ["remote*"], "local": False}]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One upstream behind three gateways."""
    with Stage(OperatorSettings(overrides=read_overrides(OVERRIDES)), compares=True) as opened:
        yield opened


def rambling(text: str, upstream: str, body: Json) -> Answer:
    """Return a reply that hangs where it begins to ramble: all before that has been sent."""
    turn = Turn(Say(text + RAMBLE))
    return Hang(turn, b"".join(stream_reply(turn, Wire(upstream), body, Stamp(0))).index(b"ZZZ"))


def in_one_piece(data: bytes) -> list[bytes]:
    """Write a stream at once."""
    return [data]


# --- rule 137 --------------------------------------------------------------------------------------------------------

FORMS = {
    "hermes": HERMES,
    "invoke": INVOKE,
    "fenced": f"```json\n{JSON_CALL}\n```",
    "bare": JSON_CALL,
}
#: Calls that stand in one list.
LISTS = {
    "array": f"[{JSON_CALL}, {ROME}]\n",
    "fenced array": f"```json\n[{JSON_CALL}, {ROME}]\n```",
    "hermes array": f"<tool_call>\n[{JSON_CALL}, {ROME}]\n</tool_call>",
    "marked array": f"[TOOL_CALLS] [{JSON_CALL}, {ROME}]",
    "python list": '[get_weather(city="Paris"), get_weather(city="Rome")]\n',
}
#: Calls behind each other: the first settles.
SERIES = {
    "hermes twice": f"{HERMES}\n{HERMES.replace('Paris', 'Rome')}",
    "fenced twice": f"```json\n{JSON_CALL}\n```\n```json\n{ROME}\n```",
    "lines": f"{JSON_CALL}\n{ROME}\n",
    "a list, then another": f"<tool_call>\n[{JSON_CALL}]\n</tool_call><tool_call>\n[{ROME}]\n</tool_call>",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("caller", "upstream", "stream"), GRID)
def test_a_demanded_call_settles_the_reply(stage: Stage, caller: str, upstream: str, stream: bool, form: str) -> None:
    """Rule 137: at the first complete call the upstream is left; what follows is neither waited for nor delivered."""
    model = stranger()
    sent = arriving(caller, upstream, stream=True, model=model, choice="get_weather")
    body = request(caller, stream=stream, model=model, choice="get_weather")
    outcome = stage.play(rambling(FORMS[form], upstream, sent)).ask(caller, body, upstream)
    assert stage.bodies == [sent]
    assert stage.ends == ["disconnected"]
    assert (outcome.error, outcome.text, outcome.calls, outcome.finish) == ({}, "", CALLED, "calls")
    assert (outcome.verdicts, outcome.headers["x-mustcall-force"]) == ("called", "met")
    assert "reported:settled" in outcome.adaptations
    assert b"ZZZ" not in outcome.raw
    check_no_trace(outcome.raw)


@pytest.mark.parametrize("form", LISTS)
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_list_of_calls_is_taken_whole(stage: Stage, wire: str, stream: bool, form: str) -> None:
    """Rule 137: calls that stand in one list settle the reply together, at the end of their list."""
    model = stranger()
    sent = arriving(wire, wire, stream=True, model=model, choice="required")
    outcome = stage.play(rambling(LISTS[form], wire, sent)).ask(
        wire, request(wire, stream=stream, model=model, choice="required")
    )
    assert stage.bodies == [sent]
    assert stage.ends == ["disconnected"]
    assert (outcome.error, outcome.text, outcome.calls) == ({}, "", BOTH)
    assert len(set(outcome.ids)) == 2


@pytest.mark.parametrize("form", SERIES)
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_the_first_call_is_the_only_one(stage: Stage, wire: str, stream: bool, form: str) -> None:
    """Rule 137: of calls behind each other the first is delivered, also where the others came in the same piece."""
    for chunking in (None, in_one_piece):
        model = stranger()
        body = request(wire, stream=stream, model=model, choice="required")
        outcome = stage.play(Turn(Say(SERIES[form] + RAMBLE)), chunking=chunking).ask(wire, body)
        assert stage.bodies == [arriving(wire, wire, stream=True, model=model, choice="required")]
        assert (outcome.error, outcome.text, outcome.calls) == ({}, "", CALLED)
        assert b"ZZZ" not in outcome.raw


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_one_call_of_a_list_where_one_is_wanted(stage: Stage, wire: str, stream: bool) -> None:
    """Rules 126, 137: where one call at a time was asked for, the first of a list is delivered, the rest reported."""
    serial: Json = {"parallel_tool_calls": False}
    if wire == "messages":
        serial = {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
    model = stranger()
    body = request(wire, stream=stream, model=model, choice="required", **serial)
    outcome = stage.play(Turn(Say(LISTS["fenced array"]))).ask(wire, body)
    assert stage.bodies == [arriving(wire, wire, stream=True, model=model, choice="required", **serial)]
    assert (outcome.error, outcome.calls) == ({}, CALLED)
    assert "call_dropped:get_weather" in outcome.adaptations


PASSED = {
    "another tool": (f"<tool_call>\n{OTHER}\n</tool_call>\n", "call_dropped:get_time"),
    "wrong arguments": (HERMES.replace("city", "town") + "\n", "call_dropped:get_weather"),
    "broken": (
        '<tool_call>{"name": "get_weather", "arguments": {"city": }}</tool_call>\n',
        "markup_stripped:get_weather",
    ),
}


@pytest.mark.parametrize("form", PASSED)
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_what_comes_before_the_demanded_call(stage: Stage, wire: str, stream: bool, form: str) -> None:
    """Rule 137: calls that are not demanded and markup that cannot be read are passed over, reported, and not shown."""
    before, told = PASSED[form]
    model = stranger()
    body = request(wire, stream=stream, model=model, choice="get_weather")
    outcome = stage.play(Turn(Say(before + HERMES + RAMBLE))).ask(wire, body)
    assert stage.bodies == [arriving(wire, wire, stream=True, model=model, choice="get_weather")]
    assert (outcome.error, outcome.text.strip(), outcome.calls) == ({}, "", CALLED)
    assert told in outcome.adaptations
    check_no_trace(outcome.raw)


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_prose_before_the_call_is_kept(stage: Stage, wire: str, stream: bool) -> None:
    """Rules 66, 137: what the model said before its call reaches the caller, what it said behind it does not."""
    model = stranger()
    body = request(wire, stream=stream, model=model, choice="required")
    outcome = stage.play(Turn(Say("Let me look.\n\n" + HERMES + RAMBLE))).ask(wire, body)
    assert len(stage.bodies) == 1
    assert (outcome.text.strip(), outcome.calls) == ("Let me look.", CALLED)


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_call_that_is_begun_twice(stage: Stage, wire: str, stream: bool) -> None:
    """Rules 52, 137: what a model wrote of its call before the call itself is not shown; words before that are."""
    model = stranger()
    text = f"Let me look.\n{JSON_CALL}.json\n```json\n{JSON_CALL}\n```"
    outcome = stage.play(Turn(Say(text))).ask(wire, request(wire, stream=stream, model=model, choice="required"))
    assert stage.bodies == [arriving(wire, wire, stream=True, model=model, choice="required")]
    assert (outcome.error, outcome.text.strip(), outcome.calls) == ({}, "Let me look.", CALLED)


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_native_call_ends_by_itself(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 137: a call of the provider's own is read to the end of its reply: others may follow it."""
    both = Turn(Call("get_weather", {"city": "Paris"}), Call("get_weather", {"city": "Rome"}))
    model = stranger()
    outcome = stage.play(both).ask(wire, request(wire, stream=stream, model=model, choice="required"))
    assert stage.bodies == [arriving(wire, wire, stream=True, model=model, choice="required")]
    assert stage.ends == ["complete"]
    assert (outcome.error, outcome.calls) == ({}, BOTH)
    assert "reported:settled" not in outcome.adaptations


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_force_that_is_known_to_work_is_untouched(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 137: where enforcement is known the request goes out byte for byte, not streamed for our sake."""
    body = request(wire, stream=stream, model=NATIVE, choice="required")
    outcome = stage.play(GOOD).ask(wire, body)
    assert [one.raw for one in stage.sent] == [json.dumps(body).encode()]
    assert stage.ends == ["complete"]
    assert (outcome.calls, outcome.adaptations) == (CALLED, [])


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_the_limit_does_not_matter_behind_the_call(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 137: a reply that ran into the token limit behind its call, all in one piece, has made its call."""
    model = stranger()
    cut = Turn(Say(HERMES + RAMBLE), finish="length")
    outcome = stage.play(cut, chunking=in_one_piece).ask(
        wire, request(wire, stream=stream, model=model, choice="required")
    )
    assert stage.bodies == [arriving(wire, wire, stream=True, model=model, choice="required")]
    assert (outcome.error, outcome.calls, outcome.finish) == ({}, CALLED, "calls")


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_the_limit_does_not_matter_behind_a_native_call(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 137: neither does it where the call is the provider's own and text follows it."""
    model = stranger()
    cut = Turn(Call("get_weather", {"city": "Paris"}), Say(RAMBLE), finish="length")
    outcome = stage.play(cut).ask(wire, request(wire, stream=stream, model=model, choice="required"))
    assert stage.bodies == [arriving(wire, wire, stream=True, model=model, choice="required")]
    assert (outcome.error, outcome.calls, outcome.finish) == ({}, CALLED, "calls")


@pytest.mark.parametrize("wire", WIRES)
def test_a_server_that_refuses_to_stream(stage: Stage, wire: str) -> None:
    """Rule 137: the stream was our wish: where it is refused, the caller's own bytes go out."""
    model = stranger()
    body = request(wire, model=model, choice="required")
    outcome = stage.play(Fail(400, "stream is not supported by this server"), GOOD).ask(wire, body)
    assert stage.bodies == [arriving(wire, wire, stream=True, model=model, choice="required"), body]
    assert stage.sent[1].raw == json.dumps(body).encode()
    assert (outcome.error, outcome.calls, outcome.verdicts) == ({}, CALLED, "rejected,called")


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_server_that_does_not_stream(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 137: a server that answers in one piece, asked for a stream or not, is read all the same."""
    model = stranger()
    whole = build_reply(Turn(Say(HERMES + RAMBLE)), Wire(wire), request(wire, model=model), Stamp(0))
    body = request(wire, stream=stream, model=model, choice="required")
    outcome = stage.play(Raw(200, json.dumps(whole).encode())).ask(wire, body)
    assert stage.bodies == [arriving(wire, wire, stream=True, model=model, choice="required")]
    assert (outcome.error, outcome.text, outcome.calls) == ({}, "", CALLED)


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_pieces_change_nothing(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 137: however the bytes are cut, the same call is delivered and nothing else."""
    for seed, text in enumerate([*SERIES.values(), *FORMS.values()] * 3):
        model = stranger()
        body = request(wire, stream=stream, model=model, choice="required")
        outcome = stage.play(Turn(Say(text + RAMBLE)), chunking=random_chunks(seed, 200)).ask(wire, body)
        assert (len(stage.bodies), outcome.error, outcome.text, outcome.calls) == (1, {}, "", CALLED)


_TOOLS = tuple(CoreTool(name=tool.name, parameters=tool.schema) for tool in (WEATHER, TIME))


def settle(pieces: list[str]) -> tuple[list[tuple[str, str]], bool]:
    """Read a text in these pieces up to the demanded call: the calls, and whether the end was not needed."""

    def demanded(name: str, arguments: str) -> bool:
        return name == "get_weather" and "city" in json.loads(arguments)

    lens = ReplyScanner(ScanTargets(tools=_TOOLS, alone="anywhere", demanded=demanded), "token")
    lens.feed(PartStarted(0, Text(text="")))
    read = ""
    for piece in pieces:
        read += piece
        lens.feed(PartTextDelta(0, piece))
        if lens.settled:
            break
    else:
        lens.feed(PartEnded(0))
    found = lens.found(Reply(id="r", model="m", parts=(Text(text=read),), finish=FinishReason.STOP))
    return [(call.name, call.arguments) for call in found.calls], lens.settled


@pytest.mark.parametrize("form", [*FORMS, *LISTS, *SERIES])
def test_every_cut_settles_at_the_same_call(form: str) -> None:
    """Rule 137: at every cut, and character by character, the same calls settle the text before its end."""
    text = (FORMS | LISTS | SERIES)[form] + RAMBLE
    wanted = [("get_weather", '{"city": "Paris"}'), ("get_weather", '{"city": "Rome"}')][: 2 if form in LISTS else 1]
    for pieces in [[text[:cut], text[cut:]] for cut in range(len(text))] + [list(text)]:
        assert settle(pieces) == (wanted, True)


@pytest.mark.parametrize("form", FORMS)
def test_blanks_in_an_argument(form: str) -> None:
    """Rule 137: a long run of blanks in a call is part of it, however it is cut; behind prose it ends the text."""
    text = FORMS[form].replace("Paris", "Pa" + " " * 90 + "ris")
    assert text != FORMS[form]
    for pieces in [[text[:cut], text[cut:]] for cut in range(len(text))] + [list(text)]:
        (call,), settled = settle([*pieces, RAMBLE])
        assert (json.loads(call[1]), settled) == ({"city": "Pa" + " " * 90 + "ris"}, True)
    dry = "Well." + "\n" * 45 + FORMS[form]
    for pieces in [[dry[:cut], dry[cut:]] for cut in range(len(dry))] + [list(dry)]:
        assert settle(pieces) == ([], False)


# --- rule 138 --------------------------------------------------------------------------------------------------------

CUT = Turn(Say("Well, there are several things to consider before"), finish="length")
WRITTEN = Turn(Say(JSON_CALL))


def rungs(wire: str, model: str, *, stream: bool) -> list[Json]:
    """Return the requests of the whole ladder of an unknown server here, nothing kept in context."""
    return [
        arriving(wire, wire, stream=True, model=model, choice="get_weather"),
        as_schema(wire, wire, "get_weather", stream=stream, model=model),
        as_grammar(wire, wire, "get_weather", stream=stream, model=model),
        arriving(wire, wire, FIRST, stream=True, model=model, choice="auto"),
        prompted(wire, FIRST, stream=True, model=model),
    ]


@pytest.mark.parametrize("cuts", [1, 2, 3, 4])
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_truncated_attempt_climbs(stage: Stage, wire: str, stream: bool, cuts: int) -> None:
    """Rule 138: each attempt that ends by length without a call is followed by the next rung, under the same limit."""
    model = stranger()
    answer = [WRITTEN, WRITTEN, GOOD, Turn(Say(HERMES))][cuts - 1]
    body = request(wire, stream=stream, model=model, choice="get_weather")
    outcome = stage.play(*[CUT] * cuts, answer).ask(wire, body)
    assert stage.bodies == rungs(wire, model, stream=stream)[: cuts + 1]
    assert (outcome.error, outcome.text, outcome.calls) == ({}, "", CALLED)
    assert outcome.verdicts == ",".join(["truncated"] * cuts + ["called"])


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_truncated_to_the_end(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 138: it fails only when the ladder is spent, and no rung is asked twice."""
    model = stranger()
    body = request(wire, stream=stream, model=model, choice="get_weather")
    outcome = stage.play(*[CUT] * 5, GOOD).ask(wire, body)
    assert stage.bodies == rungs(wire, model, stream=stream)
    assert (outcome.status, outcome.calls) == (FAILED[wire], ())
    assert outcome.message.startswith("TruncatedReply: ")
    attempts = [(one["rung"], one["remedy"]) for one in outcome.error["details"]["attempts"]]
    assert attempts == [
        ("native", "climb"),
        ("schema", "climb"),
        ("grammar", "climb"),
        ("soft", "climb"),
        ("text", "fail"),
    ]


@pytest.mark.parametrize(
    "reply",
    [Turn(Call("get_weather", '{"city": "Par'), finish="length"), Turn(Say(HERMES[:50]), finish="length")],
    ids=["native", "text"],
)
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_cut_call_climbs_and_is_told(stage: Stage, wire: str, stream: bool, reply: Turn) -> None:
    """Rules 123, 138: a call that the limit cut off climbs, and a directive is followed by why."""
    model = stranger("bare")
    body = request(wire, stream=stream, model=model, choice="get_weather")
    outcome = stage.play(reply, GOOD).ask(wire, body)
    soft = arriving(wire, wire, FIRST, WORDS.truncated, stream=True, model=model, choice="auto")
    if wire == "messages":  # neighbours of ours are one turn there
        blocks = [{"type": "text", "text": text} for text in (FIRST, WORDS.truncated)]
        soft["messages"] = [soft["messages"][0], {"role": "user", "content": blocks}]
    assert stage.bodies == [arriving(wire, wire, stream=True, model=model, choice="get_weather"), soft]
    assert (outcome.error, outcome.text, outcome.calls) == ({}, "", CALLED)
    check_no_trace(outcome.raw)


# --- rule 140 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["required", "get_weather"])
@pytest.mark.parametrize("rung", ["schema", "grammar"])
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_what_a_server_may_have_is_tried(stage: Stage, wire: str, stream: bool, rung: str, choice: str) -> None:
    """Rule 140: on a server of which nothing is known the call is asked for by schema, then by grammar."""
    model = stranger()
    body = request(wire, stream=stream, model=model, choice=choice)
    outcome = stage.play(NO, *([NO] if rung == "grammar" else []), WRITTEN).ask(wire, body)
    asked = [
        arriving(wire, wire, stream=True, model=model, choice=choice),
        as_schema(wire, wire, choice, stream=stream, model=model),
        as_grammar(wire, wire, choice, stream=stream, model=model),
    ]
    assert stage.bodies == asked[: 2 if rung == "schema" else 3]
    assert (outcome.error, outcome.text, outcome.calls, outcome.finish) == ({}, "", CALLED, "calls")
    assert "call_promoted:get_weather" in outcome.adaptations


@pytest.mark.parametrize("wire", WIRES)
def test_fields_of_servers_are_for_ones_own(stage: Stage, wire: str) -> None:
    """Rule 140: a server elsewhere is not sent fields that only servers people run themselves have."""
    model = stranger("remote")
    stage.play(NO, NO, NO, GOOD).ask(wire, request(wire, model=model, choice="get_weather"))
    soft = arriving(wire, wire, FIRST, stream=True, model=model, choice="auto")
    key = "input" if wire == "responses" else "messages"
    soft[key] += [kept(wire, "No."), arriving(wire, wire, SECOND)[key][-1]]
    assert stage.bodies == [
        arriving(wire, wire, stream=True, model=model, choice="get_weather"),
        as_schema(wire, wire, "get_weather", model=model),
        soft,
        prompted(wire, FIRST, stream=True, model=model),
    ]


NO_SCHEMA = Fail(400, "response_format not supported")
NO_FIELD = Fail(400, "Unrecognized request argument supplied: guided_json")
NO_JSON = Fail(400, "Unrecognized request argument supplied: json_schema")
BAD = Fail(400, "Bad Request")


@pytest.mark.parametrize(
    ("refusals", "learnt"),
    [
        ((NO_SCHEMA, NO_FIELD), ["learnt:schema_output", "learnt:grammar_output"]),
        ((NO_SCHEMA, NO_JSON), ["learnt:schema_output", "learnt:grammar_output"]),
        ((NO, NO_JSON), ["learnt:grammar_output"]),
        ((BAD, BAD), []),
        ((BAD, NO_FIELD), ["learnt:grammar_output"]),
    ],
    ids=["both", "one kind", "grammar only", "no reason", "one reason"],
)
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_refused_rungs_are_gone_past(
    stage: Stage, wire: str, stream: bool, refusals: tuple[Answer, Answer], learnt: list[str]
) -> None:
    """Rule 140: whatever a server says to a constrained request, the next rung follows: the caller sent none."""
    model = stranger()
    body = request(wire, stream=stream, model=model, choice="get_weather")
    outcome = stage.play(NO, *refusals, GOOD).ask(wire, body)
    assert stage.bodies == rungs(wire, model, stream=stream)[:4]
    assert (outcome.error, outcome.calls) == ({}, CALLED)
    assert [entry for entry in outcome.adaptations if entry.startswith("learnt:")] == learnt


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_refusal_is_learnt(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 140: `response_format not supported` is learnt: no later turn of the model asks for schema output."""
    model = stranger()
    native, schema, grammar, soft, text = rungs(wire, model, stream=stream)
    body = request(wire, stream=stream, model=model, choice="get_weather")
    outcome = stage.play(NO, NO_SCHEMA, WRITTEN).ask(wire, body)
    assert stage.bodies == [native, schema, grammar]
    assert (outcome.calls, outcome.verdicts) == (CALLED, "force_missed,rejected,called")
    assert "learnt:schema_output" in outcome.adaptations
    outcome = stage.play(CUT, CUT, CUT, Turn(Say(HERMES))).ask(wire, body)
    forced = arriving(wire, wire, SECOND, stream=True, model=model, choice="get_weather")
    assert stage.bodies == [grammar, forced, soft, text]
    assert outcome.calls == CALLED


# --- rule 63, through a gateway --------------------------------------------------------------------------------------

ACTION = 'Action: get_weather\nAction Input: {"city": "Paris"}'
REPLIES = {
    "fenced": (f"```json\n{JSON_CALL}\n```", CALLED),
    "bare": (JSON_CALL, CALLED),
    "behind a lead-in": (f"I'll check the weather.\n\n```json\n{JSON_CALL}\n```", CALLED),
    "an array": (f"[{JSON_CALL}, {ROME}]", BOTH),
    "a fence each": (f"```json\n{JSON_CALL}\n```\n```json\n{ROME}\n```", BOTH),
    "a ReAct step": (f"Thought: I need the weather.\n{ACTION}", CALLED),
    "a ReAct action": (ACTION, CALLED),
    "a ReAct step that goes on": (f"{ACTION}\nObservation: It rains in Paris.\nFinal Answer: Rain.", ()),
    "an array with prose behind it": (f"[{JSON_CALL}]\n\nThis asks for the weather in the city of Paris.", ()),
    "with prose behind it": (f"```json\n{JSON_CALL}\n```\n\nThis asks for the weather in the city of Paris.", ()),
    "another tool": ('```json\n{"name": "rm", "arguments": {"path": "/"}}\n```', ()),
}


@pytest.mark.parametrize("form", REPLIES)
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_json_that_is_the_reply(stage: Stage, wire: str, stream: bool, form: str) -> None:
    """Rule 63: without a force a JSON call or a ReAct step that is the reply is a call; else it is text as it came."""
    text, calls = REPLIES[form]
    model = stranger()
    body = request(wire, stream=stream, model=model)
    outcome = stage.play(Turn(Say(text))).ask(wire, body)
    assert stage.bodies == [body]
    assert (outcome.error, outcome.calls) == ({}, calls)
    assert outcome.text == text if not calls else not any(form in outcome.text for form in (JSON_CALL, "Action"))


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_json_that_was_asked_for(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 63: it stays text where the user asked to see it."""
    step = f"Thought: I need it.\n{ACTION}"
    asked = {"Show me an example of a tool call in JSON.": f"```json\n{JSON_CALL}\n```", "Explain ReAct to me.": step}
    for question, text in asked.items():
        body = request(wire, question, stream=stream, model=stranger())
        outcome = stage.play(Turn(Say(text))).ask(wire, body)
        assert stage.bodies == [body]
        assert (outcome.calls, outcome.text) == ((), text)


@pytest.mark.parametrize("form", ["bare", "fenced", "an array", "a fence each", "a ReAct action"])
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_json_where_nothing_may_be_called(stage: Stage, wire: str, stream: bool, form: str) -> None:
    """Rules 63, 125: under `tool_choice: none` a JSON call that is the reply is a call, and no call is delivered."""
    asked: Json = {"stream": stream, "model": stranger(), "choice": "none"}
    outcome = stage.play(Turn(Say(REPLIES[form][0])), Turn(Say("It rains."))).ask(wire, request(wire, **asked))
    again = arriving(wire, wire, WORDS.empty, **asked)
    del again["tools"], again["tool_choice"]
    assert stage.bodies == [request(wire, **asked), again]
    assert (outcome.error, outcome.calls, outcome.text) == ({}, (), "It rains.")


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_json_that_is_the_answer_where_nothing_may_be_called(stage: Stage, wire: str, stream: bool) -> None:
    """Rules 63, 122, 125: what the user asked to see, what prose explains, and what names no tool on offer stays."""
    asked = [
        ("Show me an example of a tool call in JSON.", f"```json\n{JSON_CALL}\n```"),
        ("Weather in Paris?", REPLIES["with prose behind it"][0]),
        ("Weather in Paris?", REPLIES["another tool"][0]),
        ("Weather in Paris?", '{"city": "Paris", "weather": "rain"}'),
    ]
    for question, text in asked:
        body = request(wire, question, stream=stream, model=stranger(), choice="none")
        outcome = stage.play(Turn(Say(text))).ask(wire, body)
        assert stage.bodies == [body]
        assert (outcome.error, outcome.calls, outcome.text) == ({}, (), text)
