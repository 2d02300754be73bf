"""The lying upstream is deterministic, never stumbles, and tells the truth on the side."""

import json
import random
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.scenario import build
from mustcall.core.origin import Wire
from mustcall.testing import Fail, Recorded, Turn
from mustcall.testing.adversary.content import lie
from mustcall.testing.adversary.upstream import Adversary, CallerIntent, ContentMarks, answer_request
from mustcall.testing.adversary.values import sample, spoil
from mustcall.testing.adversary.wire import STREAM_BENDS, Effect, parse_events, write_events
from mustcall.testing.delivery import plan_delivery
from mustcall.testing.offers import Choice, OfferedTool
from mustcall.testing.render import Stamp, stream_reply

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"enum": ["c", "f"]},
        "where": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
        "tags": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "minItems": 1},
        "next": {"$ref": "#/$defs/next"},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
    "$defs": {"next": {"type": ["null", "object"], "properties": {"next": {"$ref": "#/$defs/next"}}}},
}
ENDINGS = {
    Wire.CHAT: (b"[DONE]",),
    Wire.RESPONSES: (b"response.completed", b"response.incomplete"),
    Wire.MESSAGES: (b"message_stop",),
}
seeds = st.integers(0, 1 << 30)
wires = st.sampled_from(list(Wire))


def request(wire: Wire, *, stream: bool = False) -> dict[str, Any]:
    """A request body the adversary may be asked with."""
    tools = {
        Wire.CHAT: [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}],
        Wire.RESPONSES: [{"type": "function", "name": "look", "parameters": SCHEMA}],
        Wire.MESSAGES: [{"name": "look", "input_schema": SCHEMA}],
    }
    return {"model": "m", "stream": stream, "tools": tools[wire]}


@given(seed=seeds)
def test_samples_fit(seed: int) -> None:
    """What is sampled fits the schema and carries the mark."""
    value = sample(SCHEMA, random.Random(seed), "zqmark")
    assert jsonschema_rs.is_valid(SCHEMA, value), value
    assert "zqmark" in json.dumps(value)


@given(seed=seeds)
def test_spoilt_samples_do_not_fit(seed: int) -> None:
    """What is spoilt does not fit."""
    source = random.Random(seed)
    assert not jsonschema_rs.is_valid(SCHEMA, spoil(sample(SCHEMA, source, "x"), SCHEMA, source, "zqmark"))


@settings(max_examples=200)
@given(seed=seeds, wire=wires, stream=st.booleans(), honest=st.booleans())
def test_any_answer_can_be_sent(seed: int, wire: Wire, stream: bool, honest: bool) -> None:
    """Every lie can be written on every wire, and the same seed tells it again byte for byte."""
    demand = CallerIntent(seed=seed, tools=(OfferedTool("look", SCHEMA),), honest_from=0 if honest else None)
    body = request(wire, stream=stream)
    deliveries = [
        plan_delivery(answer_request(demand, ContentMarks(seed, 0), wire, body)[1], wire, body, Stamp(1))
        for _ in range(2)
    ]
    assert deliveries[0] == deliveries[1]
    assert deliveries[0].status >= 200


@given(seed=seeds, wire=wires)
def test_honest_answers_do_what_is_asked(seed: int, wire: Wire) -> None:
    """Asked for a named tool, an honest attempt calls it with fitting arguments."""
    demand = CallerIntent(
        seed=seed, tools=(OfferedTool("look", SCHEMA),), choice=Choice("named", "look"), honest_from=0
    )
    told, answer = answer_request(demand, ContentMarks(seed, 0), wire, request(wire))
    assert isinstance(answer, Turn)
    assert [call.name for call in answer.calls] == ["look"]
    assert all(jsonschema_rs.is_valid(SCHEMA, call.arguments) for call in answer.calls)
    assert told.honest
    assert told.calls_may


@given(seed=seeds)
def test_the_truth_about_lies(seed: int) -> None:
    """A lie whose calls are promised exactly has those calls fit the schema."""
    demand = CallerIntent(seed=seed, tools=(OfferedTool("look", SCHEMA),))
    spoken = lie(demand, ContentMarks(seed, 0), random.Random(seed))
    for name, arguments in spoken.calls:
        assert name == "look"
        assert jsonschema_rs.is_valid(SCHEMA, arguments)
    assert spoken.calls_may or not spoken.calls or spoken.turn.finish == "length"


@given(seed=seeds, wire=wires)
def test_bends_leave_events(seed: int, wire: Wire) -> None:
    """Any stream can be bent in any way; bends that keep the meaning keep the end of the stream."""
    source = random.Random(seed)
    spoken = lie(CallerIntent(seed=seed, tools=(OfferedTool("look", SCHEMA),)), ContentMarks(seed, 0), source)
    frames = stream_reply(spoken.turn, wire, request(wire, stream=True), Stamp(1))
    for bend, effect in STREAM_BENDS[wire]:
        bent = write_events(bend(parse_events(frames), source))
        if effect is Effect.KEEPS:
            assert any(mark in b"".join(bent) for mark in ENDINGS[wire])
        if effect is Effect.ENDS:
            assert len(bent) < len(frames)


def test_events_are_written_as_they_were_read() -> None:
    """Unbent events say the same as before."""
    spoken = lie(CallerIntent(seed=3), ContentMarks(3, 0), random.Random(3))
    frames = stream_reply(spoken.turn, Wire.MESSAGES, request(Wire.MESSAGES, stream=True), Stamp(1))
    events = parse_events(frames)
    assert parse_events(write_events(events)) == events


def recorded(wire: Wire | None, model: str) -> Recorded:
    """A request as the upstream records it."""
    body = request(wire or Wire.CHAT) | {"model": model}
    return Recorded("POST", "/", {}, wire, {}, body, json.dumps(body).encode())


def test_turns_are_kept_apart() -> None:
    """Each model name is a turn of its own; its attempts are numbered, and forgotten on demand."""
    adversary = Adversary()
    scenario = build(5)
    adversary.expect(scenario.model, scenario.demand)
    for _ in range(2):
        adversary(recorded(Wire.CHAT, scenario.model))
        adversary(recorded(Wire.RESPONSES, "unannounced"))
    assert [told.marks for told in adversary.told[scenario.model]] == [ContentMarks(5, 0), ContentMarks(5, 1)]
    assert len(adversary.told["unannounced"]) == 2
    assert len(adversary.forget(scenario.model)) == 2
    assert scenario.model not in adversary.told


def test_off_the_wires() -> None:
    """Where no wire is spoken there is nothing to lie about."""
    answer = Adversary()(recorded(None, "m"))
    assert isinstance(answer, Fail)
    assert answer.status == 404


@pytest.mark.parametrize("letter", ["text", "markup", "argument", "reasoning", "error", "loose"])
def test_marks_differ(letter: str) -> None:
    """A mark names its turn, its attempt and its kind."""
    marks = {getattr(ContentMarks(seed, attempt), letter) for seed in (1, 11) for attempt in (0, 1)}
    assert len(marks) == 4
    assert ContentMarks(1, 0).text not in ContentMarks(11, 0).text
