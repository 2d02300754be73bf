"""Rules 20 to 27: soft force, its one retry, and what a spent ladder gives, as callers of each wire see it.

The upstream speaks Messages and is strict: a forced choice with thinking on is refused, as Anthropic refuses it. The
callers are the official SDKs on all three wires.
"""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from mustcall.core.origin import Wire
from mustcall.core.tools import ChoiceMode
from mustcall.engine.turns import OperatorSettings, make_turn_state
from mustcall.policy.facts.controls import Controls, OnUnmet
from mustcall.policy.facts.wording import Wording
from mustcall.policy.request.plan import RungKind
from mustcall.profiles import read_overrides, resolve
from mustcall.testing import Call, Fail, Hang, Refuse, RunningGateway, Say, ScriptedUpstream, Think, Turn
from mustcall.wire.registry import codec_for
from rules.thinking import (
    ANY,
    ASK,
    CALL,
    CLAUDE,
    MET,
    NAMED,
    PARIS,
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
    WIRES,
    Assistant,
    Called,
    Result,
    Rig,
    User,
    choice_on,
    expect_body,
    join_users,
    turns_on,
    typed_item,
)

# --- rules 20 to 25: soft, then hard ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_claude_with_thinking_and_a_named_tool(wire: str, stream: bool) -> None:
    """Rule 20: `auto` and a directive first, with thinking on; text → the real choice once, with thinking off (23, 25).

    Both bodies are written out whole. The strict upstream accepts both; the caller gets exactly one call.
    """
    tools = [
        {
            "name": "get_weather",
            "description": "The weather in a city.",
            "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
        {
            "name": "get_time",
            "description": "The time in a zone.",
            "input_schema": {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]},
        },
    ]
    question = {"role": "user", "content": "Weather in Paris?"}
    directive = {"role": "user", "content": "Use the tool `get_weather` for this: call it now."}
    opening = [question, directive] if wire == "messages" else join_users([question, directive])
    shared = {"model": "claude-sonnet-4-6", "max_tokens": 4096, "tools": tools} | ({"stream": True} if stream else {})
    first = shared | {
        "messages": opening,
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "enabled", "budget_tokens": 2048},
    }
    second = shared | {
        "messages": [
            *opening,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig-1"},
                    {"type": "text", "text": "It is sunny."},
                ],
            },
            {
                "role": "user",
                "content": "The tool `get_weather` has not been called yet. Call it now, before anything else.",
            },
        ],
        "tool_choice": {"type": "tool", "name": "get_weather"},
        "thinking": {"type": "disabled"},
    }
    with Rig(thought(), CALL) as rig:
        got = rig.ask(wire, asked(wire, stream=stream))
        assert rig.bodies == [first, second]
    assert (got.calls, got.text, got.thinking, got.finish) == (MET, "", "", "tool_calls")
    assert got.tokens == (25, 12)
    assert got.outcome == ("calls", "2", "met", "force_missed,called")
    told = {"force_softened:tool_choice", "directive_added:messages", "reasoning_off:reasoning"}
    assert told <= set(got.adaptations)


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_the_soft_attempt_is_often_enough(wire: str, stream: bool) -> None:
    """Rule 20: a model that follows the directive is asked once, and its thinking reaches the caller."""
    with Rig(Turn(Think("hm", signature="sig-1"), Call("get_weather", PARIS))) as rig:
        got = rig.ask(wire, asked(wire, stream=stream))
        assert rig.bodies == [soft_body(wire, stream=stream)]
    assert (got.calls, got.thinking, got.outcome) == (MET, "hm", ("calls", "1", "met", "called"))


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_any_tool_is_asked_for_in_its_own_words(wire: str, stream: bool) -> None:
    """Rule 20: for `required` the directive asks for at least one tool, and the retry sends `any`."""
    with Rig(thought(), CALL) as rig:
        got = rig.ask(wire, asked(wire, choice="required", stream=stream))
        soft = soft_body(wire, words="Use at least one tool for this: call it now.", stream=stream)
        words = "No tool has been called yet. Call at least one tool now, before anything else."
        assert rig.bodies == [soft, hard(soft, words, "required")]
    assert (got.calls, got.outcome) == (MET, ("calls", "2", "met", "force_missed,called"))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("choice", ["required", "get_weather"])
def test_the_choice_is_recorded_before_it_is_softened(wire: str, choice: str) -> None:
    """Rule 21: plan and directive know the caller's own choice and its reasoning, whatever the attempt sends."""
    request = codec_for(Wire(wire)).decode_request(json.dumps(asked(wire, choice=choice)).encode())
    profile = resolve(CLAUDE, "http://127.0.0.1/v1", Wire.MESSAGES, (), upstream="main").profile
    turn_state = make_turn_state(request, profile, "main", controls=Controls(), wording=Wording())
    assert turn_state.plan.demand.choice is request.tool_choice
    assert turn_state.plan.reasoning is True
    assert [rung.kind for rung in turn_state.plan.rungs] == [RungKind.SOFT, RungKind.HARD]
    sent = turn_state.shaped().request
    assert sent.tool_choice is not None
    assert sent.tool_choice.mode is ChoiceMode.AUTO
    assert sent.reasoning == request.reasoning
    (part,) = sent.messages[-1].parts
    assert getattr(part, "text", "") == (ANY[0] if choice == "required" else NAMED[0])


def test_the_directive_names_a_rules_tool() -> None:
    """Rule 21: also a choice that a header made is the one the directive is built from."""
    with Rig(CALL) as rig:
        body = asked("messages", choice="auto")
        got = rig.ask("messages", body, {"x-mustcall-force-tools": "get_weather"})
        assert rig.bodies == [soft_body("messages")]
    assert (got.calls, got.outcome[2]) == (MET, "met")


@pytest.mark.parametrize(
    ("model", "configured", "soft"),
    [
        (CLAUDE, None, False),  # thinks only when asked to
        (CLAUDE, {"type": "disabled"}, False),
        (CLAUDE, {"type": "enabled", "budget_tokens": 2048}, True),
        (CLAUDE, {"type": "adaptive"}, True),
        ("claude-opus-5", None, True),  # thinks unless told not to
        ("claude-opus-5", {"type": "disabled"}, False),
        ("mystery-1", None, False),  # nothing is known of it, and nothing turns it on
        ("mystery-1", {"type": "disabled"}, False),
    ],
)
def test_when_reasoning_counts_as_active(model: str, configured: dict[str, Any] | None, soft: bool) -> None:
    """Rule 22: reasoning counts as active when the request or the profile turns it on; else the force goes as it came.

    A force that is not known to be obeyed is streamed, whoever asks for it (rule 137).
    """
    own = {} if configured is None else {"thinking": configured}
    body = asked("messages", model=model, thinking=False) | own
    with Rig(CALL) as rig:
        got = rig.ask("messages", body)
        expected = soft_body("messages", model=model, thinking=False) | own if soft else body
        assert rig.bodies == [expected | ({"stream": True} if model == "mystery-1" else {})]
    assert (got.calls, got.outcome) == (MET, ("calls", "1", "met", "called"))


@pytest.mark.parametrize("wire", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_unknown_model_that_reasons_gets_the_force_as_it_came(wire: str, stream: bool) -> None:
    """Rule 22: also where the request turns reasoning on: only a refusal or an ignored force changes that."""
    with Rig(CALL, upstream=wire) as rig:
        got = rig.ask(wire, asked(wire, model="mystery-1", stream=stream))
        assert rig.bodies == [asked(wire, model="mystery-1", stream=True)]
    assert (got.calls, got.outcome) == (MET, ("calls", "1", "met", "called"))


@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_an_effort_counts_as_configured(wire: str) -> None:
    """Rule 22: an effort of another wire is reasoning too; `none` is not."""
    with Rig(CALL, CALL) as rig:
        none = {"chat": {"reasoning_effort": "none"}, "responses": {"reasoning": {"effort": "none"}}}[wire]
        rig.ask(wire, asked(wire))
        rig.ask(wire, asked(wire, thinking=False) | none)
        plain = expect_body(wire, "messages", ASK, model=CLAUDE, choice="get_weather")
        assert rig.bodies == [soft_body(wire), plain]


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_exactly_one_retry(wire: str, stream: bool) -> None:
    """Rule 23: a second answer without a call is the end: two upstream calls, never a third."""
    with Rig(thought(), Turn(Say("Still sunny.")), CALL) as rig:
        got = rig.ask(wire, asked(wire, stream=stream))
        soft = soft_body(wire, stream=stream)
        assert rig.bodies == [soft, hard(soft)]
    assert got.status == FAILED[wire]
    assert got.outcome == ("failure", "2", "unmet", "force_missed,force_missed")


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_the_next_request_thinks_as_configured(wire: str, stream: bool) -> None:
    """Rule 24: thinking is off for the one retry only; after the result, and for a new question, it is on again.

    Messages refuses to think on behind a call that was made without thinking. A caller of another wire cannot know
    that of its own call: for the request with that call's result thinking is left out, and reported.
    """
    done = (User(ASK), Called("call_1", "get_weather", PARIS), Result("call_1", "sunny"))
    later = (*done, Assistant("Sunny."), User("And in Rome?"))
    with Rig(thought(), CALL, Turn(Say("Sunny.")), Turn(Call("get_weather", {"city": "Rome"}, id="c2"))) as rig:
        rig.ask(wire, asked(wire, stream=stream))
        after = rig.ask(wire, asked(wire, *done, choice="auto", stream=stream))
        again = rig.ask(wire, asked(wire, *later, stream=stream))
        soft = soft_body(wire, stream=stream)
        on = {"thinking": {"type": "enabled", "budget_tokens": 2048}}
        resumed = expect_body(wire, "messages", *done, model=CLAUDE, choice="auto", thinking=True, stream=stream)
        assert {"thinking": resumed.pop("thinking")} == on
        resumed |= on if wire == "messages" else {}
        assert rig.bodies == [soft, hard(soft), resumed, soft_body(wire, *later, stream=stream)]
        assert rig.bodies[-1]["thinking"] == on["thinking"]
    assert (after.text, again.calls) == ("Sunny.", (("get_weather", {"city": "Rome"}),))
    assert ("field_dropped:reasoning" in after.adaptations) == (wire != "messages")


@pytest.mark.parametrize("upstream", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_next_request_reasons_as_configured(upstream: str, stream: bool) -> None:
    """Rule 24: where reasoning was off for the retry, the caller's next requests are sent byte for byte."""
    operator = OperatorSettings(overrides=read_overrides([{"models": ["gpt-5.1"], "forced": "without_reasoning"}]))
    done = (User(ASK), Called("call_1", "get_weather", PARIS), Result("call_1", "sunny"))
    following = asked(upstream, *done, model="gpt-5.1", choice="auto", stream=stream)
    new = asked(upstream, User("Hello?"), model="gpt-5.1", choice="auto", stream=stream)
    off = {"chat": {"reasoning_effort": "none"}, "responses": {"reasoning": {"effort": "none"}}}[upstream]
    with Rig(thought(), CALL, Turn(Say("Sunny.")), Turn(Say("Hello.")), upstream=upstream, operator=operator) as rig:
        rig.ask(upstream, asked(upstream, model="gpt-5.1", stream=stream))
        rig.ask(upstream, following)
        rig.ask(upstream, new)
        rig.comparing.leave("whole bodies: test_the_first_answer_stays_in_context_on_every_wire")
        first, second, *next_ones = rig.bodies
    name = next(iter(off))
    assert (first[name], second[name]) == (new[name], off[name])
    assert next_ones == [following, new]


@pytest.mark.parametrize("upstream", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_first_answer_stays_in_context_on_every_wire(upstream: str, stream: bool) -> None:
    """Rule 25: text and reasoning of the first attempt stay, as the upstream's wire carries them, then a user turn."""
    operator = OperatorSettings(overrides=read_overrides([{"models": ["gpt-5.1"], "forced": "without_reasoning"}]))
    turns = "input" if upstream == "responses" else "messages"
    with Rig(Turn(Think("hm"), Say("It is sunny.")), CALL, upstream=upstream, operator=operator) as rig:
        got = rig.ask(upstream, asked(upstream, model="gpt-5.1", stream=stream))
        first, second = rig.bodies
    directive, firmer = turns_on(upstream, [User(NAMED[0]), User(NAMED[1])])
    plain = asked(upstream, model="gpt-5.1", choice="auto", stream=stream)
    if upstream == "chat":
        kept = [{"role": "assistant", "content": "It is sunny.", "reasoning_content": "hm"}]
        off: dict[str, Any] = {"reasoning_effort": "none"}
    else:
        directive, firmer = typed_item(directive), typed_item(firmer)
        summary = [{"type": "summary_text", "text": "hm"}]
        said = typed_item({"role": "assistant", "content": "It is sunny."})
        kept = [{"id": "rs_scripted_0000_0", "type": "reasoning", "summary": summary}, said]
        off = {"reasoning": {"effort": "none"}}
    assert first == plain | {turns: [*plain[turns], directive]}
    assert second == first | off | {
        turns: [*first[turns], *kept, firmer],
        "tool_choice": choice_on(upstream, "get_weather"),
    }
    assert (got.calls, got.text, got.outcome) == (MET, "", ("calls", "2", "met", "force_missed,called"))


@pytest.mark.parametrize("wire", WIRES)
def test_the_callers_history_is_its_own(wire: str) -> None:
    """Rule 25: nothing a turn added comes back: not in the caller's reply, not in the caller's next request."""
    done = (User(ASK), Called("call_1", "get_weather", PARIS), Result("call_1", "sunny"))
    with Rig(thought(), CALL, Turn(Say("Sunny."))) as rig:
        got = rig.ask(wire, asked(wire))
        rig.ask(wire, asked(wire, *done, choice="auto", thinking=False))
        soft = soft_body(wire)
        following = expect_body(wire, "messages", *done, model=CLAUDE, choice="auto")
        assert rig.bodies == [soft, hard(soft), following]
    assert (got.calls, got.text, got.thinking) == (MET, "", "")


# --- rules 26 and 27: what is not retried, and what a spent ladder gives ---------------------------------------------


@pytest.mark.parametrize(("wire", "stream"), WAYS)
@pytest.mark.parametrize(
    ("reply", "verdict", "status"),
    [
        (Turn(Refuse("I will not."), finish="refusal"), "refused", 200),
        (Turn(Think("hm"), Call("get_weather", PARIS)), "called", 200),
        (Fail(400, "messages: something else is wrong"), "rejected", 400),
        (Fail(401, "invalid x-api-key"), "rejected", 401),
    ],
    ids=["refused", "called", "invalid", "unauthorised"],
)
def test_replies_that_are_not_retried(wire: str, stream: bool, reply: Any, verdict: str, status: int) -> None:
    """Rule 26: refused, errored and tool-calling replies do not trigger the retry."""
    with Rig(reply, CALL) as rig:
        got = rig.ask(wire, asked(wire, stream=stream))
        assert rig.bodies == [soft_body(wire, stream=stream)]
    assert got.status == status
    assert got.outcome[1] == "1"
    assert got.outcome[3] == verdict
    assert got.outcome[2] == ("met" if verdict == "called" else "unmet")
    if verdict == "refused":
        assert (got.text, got.calls) == ("I will not.", ())
    if verdict == "called":
        assert got.calls == MET
    if verdict == "rejected":
        assert got.error["message"] in ("messages: something else is wrong", "invalid x-api-key")


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_truncated_reply_climbs(wire: str, stream: bool) -> None:
    """Rule 26: a truncated reply is not repeated: the next rung follows, and nothing of it stays in context."""
    cut = Turn(Think("hm", signature="sig-1"), Say("It is"), finish="length")
    with Rig(cut, CALL) as rig:
        got = rig.ask(wire, asked(wire, stream=stream))
        assert rig.bodies == [soft_body(wire, stream=stream), hard_afresh(wire, stream=stream)]
    assert (got.calls, got.text, got.thinking) == (MET, "", "")
    assert got.outcome == ("calls", "2", "met", "truncated,called")


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_truncated_replies_to_the_end_are_an_error(wire: str, stream: bool) -> None:
    """Rule 26: no rung is asked twice: when the last one is truncated as well, the caller is told so."""
    cut = Turn(Say("It is"), finish="length")
    with Rig(cut, cut, CALL) as rig:
        got = rig.ask(wire, asked(wire, stream=stream))
        assert rig.bodies == [soft_body(wire, stream=stream), hard_afresh(wire, stream=stream)]
    assert (got.status, got.outcome) == (FAILED[wire], ("failure", "2", "unmet", "truncated,truncated"))
    assert got.error["message"].startswith("TruncatedReply: ")
    assert attempts_of(got) == [("soft", "truncated", "climb"), ("hard", "truncated", "fail")]


@pytest.mark.parametrize("upstream", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_filtered_reply_is_not_retried(upstream: str, stream: bool) -> None:
    """Rule 26: a content filter is the end, on the wires that have a word for it."""
    operator = OperatorSettings(overrides=read_overrides([{"models": ["gpt-5.1"], "forced": "without_reasoning"}]))
    turns = "input" if upstream == "responses" else "messages"
    filtered = Turn(Say("It is"), finish="content_filter")
    with Rig(filtered, CALL, upstream=upstream, operator=operator) as rig:
        got = rig.ask(upstream, asked(upstream, model="gpt-5.1", stream=stream))
        (sent,) = rig.bodies
    plain = asked(upstream, model="gpt-5.1", choice="auto", stream=stream)
    (directive,) = turns_on(upstream, [User(NAMED[0])])
    directive = typed_item(directive) if upstream == "responses" else directive
    assert sent == plain | {turns: [*plain[turns], directive]}
    assert (got.finish, got.calls, got.outcome) == ("content_filter", (), ("answer", "1", "unmet", "filtered"))


@pytest.mark.parametrize("stream", [False, True])
def test_a_caller_who_left_is_not_retried_for(stream: bool) -> None:
    """Rule 26: a cancelled turn ends with the attempt under way."""
    with (
        ScriptedUpstream([Hang(thought(), after=40), CALL], strict=True) as upstream,
        RunningGateway(f"messages={upstream.base_url}") as gateway,
    ):
        place = urlsplit(gateway.url)
        assert place.hostname is not None
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=180)
        headers = {"content-type": "application/json", "x-api-key": "sk-test", "anthropic-version": "2023-06-01"}
        connection.request("POST", "/v1/messages", json.dumps(asked("messages", stream=stream)), headers)
        upstream.wait_for_requests(1)
        connection.close()
        (only,) = upstream.wait_until_done()
        assert only.disconnected
        upstream.release()
    assert [one.body for one in upstream.requests] == [soft_body("messages", stream=stream)]


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_an_unmet_force_is_a_typed_error(wire: str, stream: bool) -> None:
    """Rule 27: `error`, the gateway's default, answers `force_unmet` with the text and every attempt."""
    with Rig(thought(), Turn(Say("Still sunny."))) as rig:
        got = rig.ask(wire, asked(wire, stream=stream))
        soft = soft_body(wire, stream=stream)
        assert rig.bodies == [soft, hard(soft)]
    assert got.status == FAILED[wire]
    assert got.error["message"].startswith("ForceUnmet: ")
    assert got.headers["x-should-retry"] == "false"
    assert wire == "messages" or got.error["code"] == "force_unmet"
    assert got.error["details"]["text"] == "Still sunny."
    assert attempts_of(got) == [("soft", "force_missed", "climb"), ("hard", "force_missed", "fail")]


@pytest.mark.parametrize(("wire", "stream"), WAYS)
@pytest.mark.parametrize("way", ["header", "body", "setting"])
def test_an_unmet_force_can_be_an_answer(wire: str, stream: bool, way: str) -> None:
    """Rule 27: `answer`, asked for by header, body or setting, returns the reply and says that the force is unmet."""
    operator = OperatorSettings(controls=Controls(on_unmet=OnUnmet.ANSWER)) if way == "setting" else OperatorSettings()
    headers = {"x-mustcall-on-unmet": "answer"} if way == "header" else {}
    extension = {"mustcall": {"on_unmet": "answer"}} if way == "body" else {}
    with Rig(thought(), Turn(Say("Still sunny.")), operator=operator) as rig:
        got = rig.ask(wire, asked(wire, stream=stream) | extension, headers)
        soft = soft_body(wire, stream=stream)
        assert rig.bodies == [soft, hard(soft)]
    assert (got.status, got.text, got.calls, got.finish) == (200, "Still sunny.", (), "stop")
    assert got.outcome == ("answer", "2", "unmet", "force_missed,force_missed")
