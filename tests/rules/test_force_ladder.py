"""Rules 28 to 33: models that cannot stop reasoning, other tools, forces that are ignored or refused.

The upstream is strict and the callers are the official SDKs, as in `test_force`.
"""

from typing import Any

import pytest

from mustcall.engine.turns import OperatorSettings
from mustcall.profiles import read_overrides
from mustcall.testing import Call, Fail, Say, Think, Turn
from rules.thinking import (
    AS_JSON,
    ASK,
    CALL,
    CLAUDE,
    CLOSED,
    MET,
    NAMED,
    OTHER,
    PARIS,
    STUBBORN,
    answered,
    asked,
    attempts_of,
    hard,
    hard_afresh,
    soft_body,
    thought,
)
from support.forcing import (
    FAILED,
    WAYS,
    WEATHER,
    WIRES,
    Rig,
    User,
    expect_body,
    turns_on,
    typed_item,
    write_body,
)

# --- rule 28: models that cannot stop reasoning ----------------------------------------------------------------------


def _reminded(soft: dict[str, Any], reminders: int) -> list[dict[str, Any]]:
    """The bodies of the soft attempt and its reminders: each grows the one before it at the tail."""
    bodies = [soft]
    for number in range(1, reminders + 1):
        more = [answered(number), {"role": "user", "content": NAMED[number]}]
        bodies.append(soft | {"messages": [*bodies[-1]["messages"], *more]})
    return bodies


def _as_schema(wire: str, *, stream: bool) -> dict[str, Any]:
    """The call asked for as a JSON answer; thinking stays, and so do the tools, because thinking is bound to them."""
    body = expect_body(wire, "messages", ASK, AS_JSON, model=STUBBORN, choice="none", thinking=True, stream=stream)
    return body | {"output_config": {"format": {"type": "json_schema", "schema": CLOSED}}}


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_reminders_then_the_call_as_a_schema_answer(wire: str, stream: bool) -> None:
    """Rule 28: `auto` and up to 3 firmer reminders, then the call as a schema answer, re-emitted as a tool call."""
    written = Turn(Think("ok", signature="sig-5"), Say('{"name":"get_weather","arguments":{"city":"Paris"}}'))
    with Rig(*map(thought, range(1, 5)), written) as rig:
        got = rig.ask(wire, asked(wire, model=STUBBORN, stream=stream))
        soft = soft_body(wire, model=STUBBORN, stream=stream)
        assert rig.bodies == [*_reminded(soft, 3), _as_schema(wire, stream=stream)]
    assert (got.calls, got.text, got.finish) == (MET, "", "tool_calls")
    assert got.outcome == ("calls", "5", "met", ",".join(["force_missed"] * 4 + ["called"]))
    assert "call_promoted:get_weather" in got.adaptations
    assert got.tokens == (25, 12)


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_reminder_that_helps_is_the_last(wire: str, stream: bool) -> None:
    """Rule 28: the first reminder that is followed ends the turn; only that attempt's call is delivered."""
    called = Turn(Think("ok", signature="sig-3"), Call("get_weather", PARIS))
    with Rig(thought(1), thought(2), called) as rig:
        got = rig.ask(wire, asked(wire, model=STUBBORN, stream=stream))
        assert rig.bodies == _reminded(soft_body(wire, model=STUBBORN, stream=stream), 2)
    assert (got.calls, got.text, got.thinking) == (MET, "", "ok")
    assert got.outcome == ("calls", "3", "met", "force_missed,force_missed,called")


@pytest.mark.parametrize("wire", WIRES)
def test_the_number_of_reminders_is_a_setting(wire: str) -> None:
    """Rule 28: the limit of reminders can be lowered, to none at all."""
    written = Turn(Say('{"name":"get_weather","arguments":{"city":"Paris"}}'))
    with Rig(thought(), written) as rig:
        body = asked(wire, model=STUBBORN) | {"mustcall": {"limits": {"reminders": 0}}}
        got = rig.ask(wire, body)
        assert rig.bodies == [soft_body(wire, model=STUBBORN), _as_schema(wire, stream=False)]
    assert (got.calls, got.outcome[1]) == (MET, "2")


@pytest.mark.parametrize("wire", WIRES)
def test_a_schema_answer_is_checked_too(wire: str) -> None:
    """Rule 28: what does not fit the schema is no call: after the last rung rule 27 decides, at five upstream calls."""
    wrong = Turn(Say('{"name":"get_weather","arguments":{"town":"Paris"'))
    with Rig(*map(thought, range(1, 5)), wrong, CALL) as rig:
        got = rig.ask(wire, asked(wire, model=STUBBORN))
        assert rig.bodies == [*_reminded(soft_body(wire, model=STUBBORN), 3), _as_schema(wire, stream=False)]
    assert (got.status, got.outcome[:3]) == (FAILED[wire], ("failure", "5", "unmet"))
    assert got.error["message"].startswith("ForceUnmet: ")
    assert [rung for rung, _, _ in attempts_of(got)] == ["soft"] * 4 + ["schema"]


@pytest.mark.parametrize("wire", WIRES)
def test_without_schema_output_the_reminders_are_the_end(wire: str) -> None:
    """Rule 28: where the upstream has no schema output, rule 27 follows the third reminder."""
    facts = {"models": [STUBBORN], "schema_output": False}
    with Rig(*map(thought, range(1, 5)), CALL, operator=OperatorSettings(overrides=read_overrides([facts]))) as rig:
        got = rig.ask(wire, asked(wire, model=STUBBORN))
        assert rig.bodies == _reminded(soft_body(wire, model=STUBBORN), 3)
    assert (got.status, got.outcome[:3]) == (FAILED[wire], ("failure", "4", "unmet"))


# --- rule 29: other tools --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_other_tools_do_not_meet_a_named_choice(wire: str, stream: bool) -> None:
    """Rule 29: a named tool answered only by another counts as unmet and is retried; one attempt's calls are given."""
    with Rig(OTHER, CALL) as rig:
        got = rig.ask(wire, asked(wire, stream=stream))
        assert rig.bodies == [soft_body(wire, stream=stream), hard_afresh(wire, stream=stream)]
    assert (got.calls, got.outcome) == (MET, ("calls", "2", "met", "force_missed,called"))


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_other_tools_beside_the_named_one_are_dropped(wire: str, stream: bool) -> None:
    """Rule 29: of a reply that calls the named tool and another, the named one is given, the other reported."""
    both = Turn(Call("get_time", {"zone": "CET"}), Call("get_weather", PARIS))
    with Rig(both) as rig:
        got = rig.ask(wire, asked(wire, stream=stream))
        assert rig.bodies == [soft_body(wire, stream=stream)]
    assert (got.calls, got.outcome) == (MET, ("calls", "1", "met", "called"))
    assert "call_dropped:get_time" in got.adaptations


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_other_tools_can_be_accepted(wire: str, stream: bool) -> None:
    """Rule 29: with the policy `accept` they are delivered, in order, and the force is reported as unmet."""
    both = Turn(Call("get_time", {"zone": "CET"}), Call("get_weather", PARIS))
    with Rig(OTHER, both) as rig:
        got = rig.ask(wire, asked(wire, stream=stream), {"x-mustcall-other-tool": "accept"})
        mixed = rig.ask(wire, asked(wire, stream=stream), {"x-mustcall-other-tool": "accept"})
        assert rig.bodies == [soft_body(wire, stream=stream)] * 2
    other = ("get_time", {"zone": "CET"})
    assert (got.calls, got.outcome) == ((other,), ("calls", "1", "unmet", "called"))
    assert "reported:get_time" in got.adaptations
    assert (mixed.calls, mixed.outcome) == ((other, *MET), ("calls", "1", "met", "called"))
    assert not any(entry.startswith("call_dropped") for entry in got.adaptations + mixed.adaptations)


@pytest.mark.parametrize("wire", WIRES)
def test_an_unmet_named_choice_answers_with_the_last_attempt_only(wire: str) -> None:
    """Rule 29: with `on_unmet` `answer` the last attempt's other call is the reply, never those of two attempts."""
    with Rig(OTHER, Turn(Call("get_time", {"zone": "UTC"}))) as rig:
        got = rig.ask(wire, asked(wire), {"x-mustcall-on-unmet": "answer"})
        assert rig.bodies == [soft_body(wire), hard_afresh(wire)]
    assert got.calls == (("get_time", {"zone": "UTC"}),)
    assert got.outcome == ("calls", "2", "unmet", "force_missed,force_missed")
    assert not any(entry.startswith("call_dropped") for entry in got.adaptations)


# --- rules 30 to 33 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["required", "get_weather"])
def test_a_force_without_reasoning_is_sent_as_it_is(choice: str, stream: bool) -> None:
    """Rule 30: a forced choice without active reasoning goes out as it came: no directive, no other attempt."""
    for wire in WIRES:
        with Rig(CALL) as rig:
            got = rig.ask(wire, asked(wire, choice=choice, thinking=False, stream=stream))
            assert rig.bodies == [expect_body(wire, "messages", ASK, model=CLAUDE, choice=choice, stream=stream)]
        assert (got.calls, got.adaptations, got.outcome) == (MET, [], ("calls", "1", "met", "called"))


@pytest.mark.parametrize(("wire", "stream"), WAYS)
@pytest.mark.parametrize("choice", ["auto", None])
def test_auto_with_reasoning_is_untouched(wire: str, stream: bool, choice: str | None) -> None:
    """Rule 30: without a force a thinking model may answer in text; nothing is added and nothing is asked again."""
    with Rig(thought()) as rig:
        got = rig.ask(wire, asked(wire, choice=choice, stream=stream))
        expected = expect_body(wire, "messages", ASK, model=CLAUDE, choice=choice, thinking=True, stream=stream)
        assert rig.bodies == [expected]
    assert (got.text, got.thinking, got.calls) == ("It is sunny.", "hm", ())
    assert not {entry.partition(":")[0] for entry in got.adaptations} - {"field_mapped", "part_reshaped"}


@pytest.mark.parametrize("stream", [False, True])
def test_what_needs_reasoning_goes_with_it(stream: bool) -> None:
    """Rule 31: on the retry effort and budget are gone, and thinking that comes all the same is dropped."""
    own = {"output_config": {"effort": "high"}}
    late = Turn(Think("still thinking"), Call("get_weather", PARIS))
    with Rig(thought(), late) as rig:
        got = rig.ask("messages", asked("messages", stream=stream) | own)
        soft = soft_body("messages", stream=stream)
        assert rig.bodies == [soft | own, hard(soft)]
    assert (got.calls, got.thinking) == (MET, "")
    assert "part_dropped:reasoning" in got.adaptations


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_reasoning_of_the_retry_is_dropped_on_every_wire(wire: str, stream: bool) -> None:
    """Rule 31: no caller sees reasoning of an attempt that turned it off."""
    with Rig(thought(), Turn(Think("still thinking"), Say("Here."), Call("get_weather", PARIS))) as rig:
        got = rig.ask(wire, asked(wire, stream=stream))
        soft = soft_body(wire, stream=stream)
        assert rig.bodies == [soft, hard(soft)]
    assert (got.calls, got.text, got.thinking) == (MET, "Here.", "")


def _ignored(wire: str, stream: bool) -> list[dict[str, Any]]:
    """The attempts at a model that obeys every choice, and does not: as it came, again with a directive, as JSON."""
    first = write_body(wire, ASK, model="gpt-4o", choice="get_weather", stream=stream)
    turns = "input" if wire == "responses" else "messages"
    answer: dict[str, Any] = {"role": "assistant", "content": "It is sunny."}
    firmer, as_json = turns_on(wire, [User(NAMED[1]), User(AS_JSON)])
    if wire == "responses":
        answer, firmer, as_json = typed_item(answer), typed_item(firmer), typed_item(as_json)
    plain = write_body(wire, ASK, model="gpt-4o", tools=(), stream=stream)
    named = {"name": "tool_call", "schema": CLOSED, "strict": True}
    form = {
        "chat": {"response_format": {"type": "json_schema", "json_schema": named}},
        "responses": {"text": {"format": {"type": "json_schema", **named}}},
        "messages": {"output_config": {"format": {"type": "json_schema", "schema": CLOSED}}},
    }[wire]
    return [
        first,
        first | {turns: [*first[turns], answer, firmer]},
        plain | form | {turns: [*plain[turns], as_json]},
    ]


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_hard_force_is_checked_too(wire: str, stream: bool) -> None:
    """Rule 32: a forced choice that the upstream ignores is reported, asked again with a directive, then as JSON."""
    text = Turn(Say("It is sunny."))
    written = Turn(Say('{"name":"get_weather","arguments":{"city":"Paris"}}'))
    with Rig(text, text, written, upstream=wire) as rig:
        got = rig.ask(wire, write_body(wire, ASK, model="gpt-4o", choice="get_weather", stream=stream))
        assert rig.bodies == _ignored(wire, stream)
    assert (got.calls, got.text) == (MET, "")
    assert got.outcome == ("calls", "3", "met", "force_missed,force_missed,called")


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_force_ignored_to_the_end_is_an_error(wire: str, stream: bool) -> None:
    """Rule 32: within the force limit: when the ladder is spent, the caller is told, and nothing more is asked."""
    text = Turn(Say("It is sunny."))
    with Rig(text, text, text, CALL, upstream=wire) as rig:
        got = rig.ask(wire, write_body(wire, ASK, model="gpt-4o", choice="get_weather", stream=stream))
        assert rig.bodies == _ignored(wire, stream)
    assert (got.status, got.outcome[:3]) == (FAILED[wire], ("failure", "3", "unmet"))
    assert [rung for rung, _, _ in attempts_of(got)] == ["native", "native", "schema"]


@pytest.mark.parametrize("wire", ["chat", "messages"])
def test_a_kept_answer_is_in_its_own_form(wire: str) -> None:
    """Rule 25: what stays in context is the upstream's own item, whichever wire the caller is on."""
    kept: list[object] = []
    for caller in (wire, "responses"):
        with Rig(Turn(Say("It is sunny.")), CALL, upstream="responses") as rig:
            rig.ask(caller, write_body(caller, ASK, model="gpt-4o", choice="get_weather", stream=False))
            rig.comparing.leave("whole bodies: test_the_first_answer_stays_in_context_on_every_wire")
            kept.append(rig.bodies[1]["input"][-2])
    assert kept[0] == kept[1]


@pytest.mark.parametrize("stream", [False, True])
def test_a_refused_force_is_learnt(stream: bool) -> None:
    """Rule 33: a 400 to force plus thinking, which the profile thought legal, leads to the soft plan, once and for all.

    The strict upstream itself refuses the pair. The second request of the process goes soft at once.
    """
    believed = "claude-haiku-5-5"  # its profile says that it can be forced while it thinks
    body = asked("messages", model=believed, stream=stream)
    thinking = Turn(Think("hm", signature="sig-2"), Call("get_weather", PARIS))
    with Rig(thought(), CALL, thinking) as rig:
        first = rig.ask("messages", body)
        second = rig.ask("messages", body)
        soft = soft_body("messages", model=believed, stream=stream)
        assert rig.received == [body, soft, hard(soft), soft]
        assert [one.refused_by for one in rig.requests] == ["never_forces_thinking", None, None, None]
    assert (first.calls, first.outcome) == (MET, ("calls", "3", "met", "rejected,force_missed,called"))
    assert "learnt:forced" in first.adaptations
    assert (second.calls, second.thinking, second.outcome) == (MET, "hm", ("calls", "1", "met", "called"))


@pytest.mark.parametrize("wire", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_learnt_holds_for_its_model_only(wire: str, stream: bool) -> None:
    """Rule 33: the lesson is kept for the model; another model of the same upstream is still forced."""
    refusal = Fail(400, "tool_choice 'required' is incompatible with thinking enabled")
    with Rig(refusal, CALL, CALL, CALL, upstream=wire) as rig:
        body = asked(wire, model="gpt-5.1", stream=stream)
        got = [
            rig.ask(wire, body),
            rig.ask(wire, body),
            rig.ask(wire, body | {"model": "gpt-5.2"}),
        ]
        soft = body | {"tool_choice": "auto"}
        turns = "input" if wire == "responses" else "messages"
        (directive,) = turns_on(wire, [User(NAMED[0])])
        soft[turns] = [*body[turns], typed_item(directive) if wire == "responses" else directive]
        assert rig.bodies == [body, soft, soft, body | {"model": "gpt-5.2"}]
    assert [one.calls for one in got] == [MET] * 3
    assert [one.outcome[1] for one in got] == ["2", "1", "1"]


def test_an_unrelated_refusal_teaches_nothing() -> None:
    """Rule 33: a 400 about something else is the caller's answer, and the next request is forced as before."""
    body = asked("messages", tools=[WEATHER], thinking=False, choice="required")
    with Rig(Fail(400, "max_tokens: too large"), CALL) as rig:
        refused, got = rig.ask("messages", body), rig.ask("messages", body)
        assert rig.bodies == [body, body]
    assert (refused.status, refused.error["message"]) == (400, "max_tokens: too large")
    assert (got.calls, got.outcome[2]) == (MET, "met")
