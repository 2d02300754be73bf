"""Calls written as text (rules 42 to 52, 54 and 69), seen from both ends of real gateways; 53 has a file of its own.

Each test counts the upstream calls and compares their whole bodies with ones written by hand.
"""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from mustcall.core.origin import Wire
from mustcall.testing import Call, Hang, RunningGateway, Say, ScriptedUpstream, Think, Turn
from mustcall.testing.render import Stamp, stream_reply
from rules.driving import GRID, UNKNOWN, WAYS, WORDS, Stage, arriving, ask_slowly, prompted, request
from rules.forms import HERMES, INVOKE, MALFORMED, MARKUP, OPEN, PROSE, check_no_trace
from support.forcing import BUDGET, FAILED, WIRES, Assistant, Called, Result, User

Json = dict[str, Any]

BAD = Turn(Say(INVOKE))
GOOD = Turn(Call("get_weather", {"city": "Paris"}))
CALLED = (("get_weather", {"city": "Paris"}),)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One upstream behind three gateways."""
    with Stage(compares=True) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _untaught(stage: Stage) -> None:
    """In any order a test meets gateways that have learnt nothing."""
    stage.forget()


# --- the scenario: native --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
@pytest.mark.parametrize(("caller", "upstream", "stream"), GRID)
def test_text_call_is_discarded(stage: Stage, caller: str, upstream: str, stream: bool, finish: str) -> None:
    """Rule 45: a turn with a text call is wholly absent from the retries and from what the caller gets."""
    bad = Turn(Say(INVOKE), finish=finish)
    outcome = stage.play(bad, bad, GOOD).ask(caller, request(caller, stream=stream), upstream)
    first = arriving(caller, upstream, stream=stream)
    assert stage.bodies == [first, first, arriving(caller, upstream, WORDS.text_call, stream=stream)]
    for sent in stage.sent:
        check_no_trace(sent.raw)
    assert (outcome.error, outcome.text, outcome.calls, outcome.finish) == ({}, "", CALLED, "calls")
    assert outcome.verdicts == "text_call,text_call,called"
    check_no_trace(outcome.raw)


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_later_history_is_clean(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 45: what the caller hands back next holds the accepted attempt's call and nothing of the discarded one."""
    outcome = stage.prepare(BAD, GOOD).ask(wire, request(wire, stream=stream))
    (call_id,) = outcome.ids
    history = (User("Weather in Paris?"), Called(call_id, *outcome.calls[0]), Result(call_id, "Sunny."))
    body = request(wire, *history, stream=stream)
    answer = stage.play(Turn(Say("It is sunny."))).ask(wire, body)
    assert stage.bodies == [body]
    check_no_trace(stage.sent[0].raw)
    assert answer.text == "It is sunny."


# --- rule 42 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", ["chat", "messages"])
def test_finish_says_calls(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 42: the finish says tool calls, none is there, the text holds markup: a text call, also in strict mode."""
    body = request(wire, stream=stream)
    bad = Turn(Say(INVOKE), finish="tool_calls")
    outcome = stage.play(bad, GOOD).ask(wire, {**body, "mustcall": {"broad": False}})
    assert stage.bodies == [body, body]
    assert (outcome.verdicts, outcome.calls) == ("text_call,called", CALLED)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", ["chat", "messages"])
def test_finish_says_calls_without_markup(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 42: the same finish without markup is no text call: a call was lost, and the text is not taken for one."""
    body = request(wire, stream=stream, mustcall={"hold": True})
    outcome = stage.play(Turn(Say("Sunny."), finish="tool_calls"), GOOD).ask(wire, body)
    del body["mustcall"]
    assert stage.bodies == [body, body]
    assert (outcome.verdicts, outcome.calls) == ("phantom_call,called", CALLED)


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_markup_beside_a_call(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 42: markup beside a structured call is no text call: nothing is discarded, nothing is asked again."""
    body = request(wire, stream=stream)
    turn = Turn(Say(INVOKE), Call("get_weather", {"city": "Paris"}), finish="tool_calls")
    outcome = stage.play(turn).ask(wire, body)
    assert stage.bodies == [body]
    assert (outcome.verdicts, outcome.calls) == ("called", CALLED)


# --- rule 43 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", MARKUP)
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_recognised_markup(stage: Stage, wire: str, stream: bool, form: str) -> None:
    """Rule 43: every listed form of markup is seen for what it is, and discarded under `native`."""
    body = request(wire, stream=stream)
    outcome = stage.play(Turn(Say(MARKUP[form])), GOOD).ask(wire, body)
    assert stage.bodies == [body, body]
    assert "reported:dialect_unknown" not in outcome.adaptations  # that is how other forms are seen (rule 121)
    assert (outcome.verdicts, outcome.text, outcome.calls) == ("text_call,called", "", CALLED)
    check_no_trace(outcome.raw)


@pytest.mark.parametrize("form", MARKUP)
def test_recognised_markup_in_strict_mode(stage: Stage, form: str) -> None:
    """Rule 43: the same forms count where only a finish that says tool calls makes a text call."""
    body = request("chat")
    turn = Turn(Say(MARKUP[form]), finish="tool_calls")
    outcome = stage.play(turn, GOOD).ask("chat", {**body, "mustcall": {"broad": False}})
    assert stage.bodies == [body, body]
    assert outcome.verdicts == "text_call,called"


@pytest.mark.parametrize(
    "text",
    ["The function_calls of get_weather are counted.", "function_calls", "I used get_weather for tool_call 3."],
)
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_bare_words_are_text(stage: Stage, wire: str, stream: bool, text: str) -> None:
    """Rule 43: the bare word `function_calls` is a word: the answer is delivered at once, unchanged."""
    body = request(wire, stream=stream)
    outcome = stage.play(Turn(Say(text))).ask(wire, body)
    assert stage.bodies == [body]
    assert (outcome.text, outcome.calls, outcome.finish) == (text, (), "stop")


# --- rule 44 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_native_strict(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 44: with broad mode off, markup in a reply that ends ordinarily is text, delivered as it is."""
    body = request(wire, stream=stream)
    outcome = stage.play(Turn(Say(PROSE + INVOKE))).ask(wire, {**body, "mustcall": {"broad": False}})
    assert stage.bodies == [body]
    assert (outcome.error, outcome.text, outcome.calls, outcome.finish) == ({}, PROSE + INVOKE, (), "stop")


NOT_CALLS = {
    "fenced": f"Write it so:\n```xml\n{INVOKE}\n```\n",
    "inline code": f"Write `{INVOKE}` for that.",
    "another tool": INVOKE.replace("get_weather", "no_such_tool"),
}


@pytest.mark.parametrize("model", ["gpt-4o", UNKNOWN])
@pytest.mark.parametrize("form", NOT_CALLS)
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_broad_mode_spares(stage: Stage, wire: str, stream: bool, form: str, model: str) -> None:
    """Rule 44: markup in code, or that names no offered tool, is text in broad mode too: delivered unchanged."""
    body = request(wire, stream=stream, model=model)
    outcome = stage.play(Turn(Say(NOT_CALLS[form]))).ask(wire, body)
    assert stage.bodies == [body]
    assert (outcome.error, outcome.text, outcome.calls, outcome.finish) == ({}, NOT_CALLS[form], (), "stop")


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_nothing_offered(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 44: without tools on offer markup is text."""
    body = request(wire, stream=stream, tools=())
    outcome = stage.play(BAD).ask(wire, body)
    assert stage.bodies == [body]
    assert (outcome.text, outcome.finish) == (INVOKE, "stop")


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_broad_mode_of_hybrid(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 44: broad mode is on for `hybrid`: half a text call in a reply that ends ordinarily is discarded."""
    body = request(wire, stream=stream, model=UNKNOWN)
    outcome = stage.play(Turn(Say(OPEN)), GOOD).ask(wire, body)
    assert stage.bodies == [body, body]
    assert (outcome.verdicts, outcome.text, outcome.calls) == ("text_call,called", "", CALLED)
    check_no_trace(outcome.raw)


# --- the scenario: hybrid --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [form for form in MARKUP if form not in ("namespaced", "unclosed")])
@pytest.mark.parametrize(("caller", "upstream", "stream"), GRID)
def test_hybrid_promotes(stage: Stage, caller: str, upstream: str, stream: bool, form: str) -> None:
    """Rules 42, 66: under `hybrid` a valid text call is promoted: one upstream call, prose and a real call out."""
    turn = Turn(Say(PROSE + MARKUP[form]))
    outcome = stage.play(turn).ask(caller, request(caller, stream=stream, model=UNKNOWN), upstream)
    assert stage.bodies == [arriving(caller, upstream, stream=stream, model=UNKNOWN)]
    assert (outcome.error, outcome.calls, outcome.finish) == ({}, CALLED, "calls")
    assert outcome.text.strip() == PROSE.strip()
    check_no_trace(outcome.raw)


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_hybrid_promotes_nothing_invalid(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 42: under `hybrid` a text call whose arguments do not fit is discarded, not promoted."""
    body = request(wire, stream=stream, model=UNKNOWN)
    turn = Turn(Say('<tool_call>{"name": "get_weather", "arguments": {"town": "Paris"}}</tool_call>'))
    outcome = stage.play(turn, GOOD).ask(wire, body)
    assert stage.bodies == [body, body]
    assert (outcome.verdicts, outcome.text, outcome.calls) == ("text_call,called", "", CALLED)
    check_no_trace(outcome.raw)
    check_no_trace(stage.sent[1].raw)


# --- rule 46 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [None, 0.7])
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_first_retry_is_the_same_bytes(stage: Stage, wire: str, stream: bool, temperature: float | None) -> None:
    """Rule 46: unless sampling is greedy the first retry is the same bytes, the second has a reminder at its tail."""
    fields: Json = {} if temperature is None else {"temperature": temperature}
    stage.play(BAD, BAD, GOOD).ask(wire, request(wire, stream=stream, **fields))
    first = request(wire, stream=stream, **fields)
    assert stage.bodies == [first, first, arriving(wire, wire, WORDS.text_call, stream=stream, **fields)]
    assert stage.sent[0].raw == stage.sent[1].raw


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_greedy_sampling_is_reminded_at_once(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 46: greedy sampling would say the same again, so the reminder comes with the first retry."""
    stage.play(BAD, BAD, GOOD).ask(wire, request(wire, stream=stream, temperature=0))
    reminded = arriving(wire, wire, WORDS.text_call, stream=stream, temperature=0)
    assert stage.bodies == [request(wire, stream=stream, temperature=0), reminded, reminded]


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_retries_end_on_the_callers_side(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 46: after a tool result the first retry ends on that result and the second on a user turn, never on ours."""
    history = (User("Weather?"), Called("call_1", "get_weather", {"city": "Rome"}), Result("call_1", "Rain."))
    body = request(wire, *history, stream=stream)
    outcome = stage.play(BAD, BAD, GOOD).ask(wire, body)
    key = "input" if wire == "responses" else "messages"
    reminded = {**body, key: [*body[key], *arriving(wire, wire, WORDS.text_call)[key][1:]]}
    assert stage.bodies == [body, body, reminded]
    assert outcome.calls == CALLED


# --- rules 47 and 48 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("caller", "upstream", "stream"), GRID)
def test_exhaustion(stage: Stage, caller: str, upstream: str, stream: bool) -> None:
    """Rule 48: after 2 retries the caller gets `TextToolCallError` in its own wire's error form, and no markup."""
    outcome = stage.play(BAD, BAD, BAD, GOOD).ask(caller, request(caller, stream=stream), upstream)
    first = arriving(caller, upstream, stream=stream)
    assert stage.bodies == [first, first, arriving(caller, upstream, WORDS.text_call, stream=stream)]
    assert (outcome.status, outcome.attempts) == (FAILED[caller], 3)
    assert outcome.headers["x-should-retry"] == "false"
    assert outcome.message.startswith("TextToolCallError: ")
    answer = json.loads(outcome.raw)
    if caller == "messages":
        assert (answer["type"], answer["error"]["type"]) == ("error", "api_error")
    else:
        assert (answer["error"]["type"], answer["error"]["code"]) == ("invalid_request_error", "text_tool_call")
    attempts = outcome.error["details"]["attempts"]
    assert [attempt["remedy"] for attempt in attempts] == ["resample", "remind", "fail"]
    check_no_trace(outcome.raw)


@pytest.mark.parametrize("wire", WIRES)
def test_exhaustion_after_text(stage: Stage, wire: str) -> None:
    """Rule 48: once prose was streamed, the same error is an event of the stream; the markup is still held back."""
    bad = Turn(Say(PROSE + OPEN))
    outcome = stage.play(bad, bad, bad, GOOD).ask(wire, request(wire, stream=True))
    first = request(wire, stream=True)
    assert stage.bodies == [first, first, arriving(wire, wire, WORDS.text_call, stream=True)]
    assert outcome.message.startswith("TextToolCallError: ")
    assert (PROSE.startswith(outcome.text), outcome.calls) == (True, ())
    check_no_trace(outcome.raw)


@pytest.mark.parametrize("stream", [False, True])
def test_exhaustion_is_logged(stage: Stage, stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Rule 48: the operator's log names the error and the request, and holds nothing of what was said."""
    with caplog.at_level(logging.WARNING, logger="mustcall"):
        outcome = stage.play(BAD, BAD, BAD).ask("chat", request("chat", stream=stream))
    stage.comparing.leave("it is about the log; bodies: test_exhaustion")
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("mustcall")]
    assert outcome.headers["x-mustcall-request-id"] in line
    assert "text_tool_call" in line
    check_no_trace(line.encode())
    assert "Paris" not in line


@pytest.mark.parametrize("limit", [0, 1, 2, 9])
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_limit(stage: Stage, wire: str, stream: bool, limit: int) -> None:
    """Rule 47: at most 2 retries, each a real call; a caller can lower that, 0 disables it, and cannot raise it."""
    body = request(wire, stream=stream)
    extended = {**body, "mustcall": {"limits": {"text_call": limit}}}
    outcome = stage.play(*[BAD] * 9).ask(wire, extended)
    made = [body, body, arriving(wire, wire, WORDS.text_call, stream=stream)][: 1 + min(limit, 2)]
    assert stage.bodies == made
    assert outcome.attempts == len(made)
    assert outcome.message.startswith("TextToolCallError: ")


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_new_request_starts_at_zero(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 47: a new request has its own retries, whatever the one before it used."""
    body = request(wire, stream=stream)
    for _ in range(2):
        outcome = stage.play(BAD, BAD, GOOD).ask(wire, body)
        assert stage.bodies == [body, body, arriving(wire, wire, WORDS.text_call, stream=stream)]
        assert outcome.calls == CALLED


# --- rule 49 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_old_markup_triggers_nothing(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 49: markup in old turns costs no retry; it is stripped from the assistant's, and the user's words stay."""
    asked = f"You wrote {INVOKE}. Why?"
    history = (User("Weather?"), Assistant(PROSE + INVOKE), User(asked))
    outcome = stage.play(Turn(Say("I was wrong."))).ask(wire, request(wire, *history, stream=stream))
    key = "input" if wire == "responses" else "messages"
    expected = request(wire, User("Weather?"), Assistant("Let me look."), User(asked), stream=stream)
    if wire == "responses":
        content = [{"type": "output_text", "text": "Let me look."}]
        expected[key][1] = {"type": "message", "role": "assistant", "content": content}
    assert stage.bodies == [expected]
    assert (outcome.text, outcome.calls, outcome.finish) == ("I was wrong.", (), "stop")


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_each_attempt_is_judged_once(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 49: a discarded turn is never judged again: after it an ordinary answer is an answer."""
    body = request(wire, stream=stream, mustcall={"hold": True})
    outcome = stage.play(BAD, Turn(Say("Sunny."))).ask(wire, body)
    del body["mustcall"]
    assert stage.bodies == [body, body]
    assert (outcome.verdicts, outcome.text, outcome.finish) == ("text_call,answered", "Sunny.", "stop")


# --- rule 50 ---------------------------------------------------------------------------------------------------------

_STEP = (User("Weather?"), Called("call_1", "get_weather", {"city": "Rome"}), Result("call_1", "Rain. And in Paris?"))
_SCHEMA: Json = {
    "type": "object",
    "properties": {"sky": {"type": "string"}},
    "required": ["sky"],
    "additionalProperties": False,
}
_STRUCTURED: dict[str, Json] = {
    "chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "sky", "schema": _SCHEMA}}},
    "responses": {"text": {"format": {"type": "json_schema", "name": "sky", "schema": _SCHEMA}}},
    "messages": {"output_config": {"format": {"type": "json_schema", "schema": _SCHEMA}}},
}


@pytest.mark.parametrize("path", ["first call", "loop step", "structured answer", "choice auto"])
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_every_path(stage: Stage, wire: str, stream: bool, path: str) -> None:
    """Rule 50: it holds on each way through the gateway: first call, loop step, structured answer, choice `auto`."""
    body = {
        "first call": request(wire, stream=stream),
        "loop step": request(wire, *_STEP, stream=stream),
        "structured answer": request(wire, stream=stream, **_STRUCTURED[wire]),
        "choice auto": request(wire, stream=stream, choice="auto"),
    }[path]
    outcome = stage.play(BAD, GOOD).ask(wire, body)
    assert stage.bodies == [body, body]
    assert (outcome.error, outcome.text, outcome.calls) == ({}, "", CALLED)
    check_no_trace(outcome.raw)


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_structured_answer_after_a_text_call(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 50: on the path of a structured answer the retry's answer is delivered, and it is the one that fits."""
    body = request(wire, stream=stream, **_STRUCTURED[wire])
    outcome = stage.play(BAD, Turn(Say('{"sky":"blue"}'))).ask(wire, body)
    assert stage.bodies == [body, body]
    assert (outcome.text, outcome.calls) == ('{"sky":"blue"}', ())


# --- rule 51 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("caller", "upstream", "stream"), GRID)
def test_salvage_last(stage: Stage, caller: str, upstream: str, stream: bool) -> None:
    """Rule 51: with salvage on, the last attempt's text call is promoted after the retries, and only then."""
    body = request(caller, stream=stream)
    outcome = stage.play(BAD, BAD, BAD).ask(caller, {**body, "mustcall": {"salvage": "last"}}, upstream)
    first = arriving(caller, upstream, stream=stream)
    assert stage.bodies == [first, first, arriving(caller, upstream, WORDS.text_call, stream=stream)]
    assert (outcome.error, outcome.text, outcome.calls, outcome.finish) == ({}, "", CALLED, "calls")
    assert "call_promoted:get_weather" in outcome.adaptations
    check_no_trace(outcome.raw)


NOT_SALVAGED = {
    "incomplete": OPEN,
    "not offered": INVOKE.replace("get_weather", "no_such_tool"),
    "not valid": INVOKE.replace("city", "town"),
}


@pytest.mark.parametrize("form", NOT_SALVAGED)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", ["chat", "messages"])
def test_salvage_of_nothing_else(stage: Stage, wire: str, stream: bool, form: str) -> None:
    """Rule 51: what is incomplete, not on offer or not valid is never promoted: the error stands."""
    bad = Turn(Say(NOT_SALVAGED[form]), finish="tool_calls")
    body = request(wire, stream=stream)
    outcome = stage.play(bad, bad, bad).ask(wire, {**body, "mustcall": {"salvage": "last", "hold": True}})
    assert stage.bodies == [body, body, arriving(wire, wire, WORDS.text_call, stream=stream)]
    assert (outcome.status, outcome.calls) == (FAILED[wire], ())
    assert outcome.message.startswith("TextToolCallError: ")


@pytest.mark.parametrize("upstream", WIRES)
@pytest.mark.parametrize("caller", WIRES)
def test_salvage_after_release(caller: str, upstream: str) -> None:
    """Rule 51: where prose was already streamed, a complete, offered, valid call follows it; nothing is asked again."""
    turn = Turn(Say(PROSE + INVOKE))
    body = arriving(caller, upstream, stream=True)
    events = stream_reply(turn, Wire(upstream), body, Stamp(0))
    before = b"".join(events).index(b"<invoke")  # the rest comes when the caller has seen the prose
    with (
        ScriptedUpstream([Hang(turn, before)], strict=True) as scripted,
        RunningGateway(f"{upstream}={scripted.base_url}") as gateway,
    ):
        outcome = ask_slowly(gateway.url, caller, request(caller, stream=True), b"look.", scripted.release)
        assert [one.body for one in scripted.requests] == [body]
    assert (outcome.error, outcome.calls, outcome.finish) == ({}, CALLED, "calls")
    assert outcome.text == PROSE
    check_no_trace(outcome.raw)


@pytest.mark.parametrize("form", ["incomplete", "not valid", "never"])
@pytest.mark.parametrize("wire", WIRES)
def test_salvage_after_release_of_nothing_else(wire: str, form: str) -> None:
    """Rule 51: behind streamed prose, too, only what is complete and valid is promoted, and nothing with `never`."""
    bad = Turn(Say(PROSE + NOT_SALVAGED.get(form, INVOKE)), finish="tool_calls")
    body = request(wire, stream=True)
    asked = {**body, "mustcall": {"salvage": "never"}} if form == "never" else body
    before = b"".join(stream_reply(bad, Wire(wire), body, Stamp(0))).index(b"<invoke")
    with (
        ScriptedUpstream([Hang(bad, before), GOOD], strict=True) as scripted,
        RunningGateway(f"{wire}={scripted.base_url}") as gateway,
    ):
        outcome = ask_slowly(gateway.url, wire, asked, b"look.", scripted.release)
        assert [one.body for one in scripted.requests] == [body, body]
    assert (outcome.error, outcome.text, outcome.calls) == ({}, PROSE, CALLED)
    assert not any(entry.startswith("call_promoted") for entry in outcome.adaptations)
    check_no_trace(outcome.raw)


# --- rule 52 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["gpt-4o", UNKNOWN])
@pytest.mark.parametrize(("caller", "upstream", "stream"), GRID)
def test_call_and_markup(stage: Stage, caller: str, upstream: str, stream: bool, model: str) -> None:
    """Rule 52: of a real call with markup beside it the call is kept, once, and the markup is gone from the text."""
    turn = Turn(Say(PROSE + INVOKE.replace("Paris", "Rome")), Call("get_weather", {"city": "Paris"}))
    outcome = stage.play(turn).ask(caller, request(caller, stream=stream, model=model), upstream)
    assert stage.bodies == [arriving(caller, upstream, stream=stream, model=model)]
    assert (outcome.error, outcome.calls, outcome.finish) == ({}, CALLED, "calls")
    assert outcome.text.strip() == PROSE.strip()
    check_no_trace(outcome.raw)


@pytest.mark.parametrize("wire", WIRES)
def test_markup_does_not_enter_history(stage: Stage, wire: str) -> None:
    """Rule 52: markup that history still holds beside a call is stripped before it goes out, the call stays."""
    steps = (User("Weather?"), Assistant(PROSE + INVOKE), Called("call_1", "get_weather", {"city": "Paris"}))
    body = request(wire, *steps, Result("call_1", "Sunny."))
    if wire != "responses":  # there a turn holds both
        body["messages"][1:3] = [_both(wire, PROSE + INVOKE)]
    stage.play(Turn(Say("Sunny."))).ask(wire, body)
    (sent,) = stage.sent
    check_no_trace(sent.raw)
    assert b"Let me look." in sent.raw
    assert sent.raw.count(b'"call_1"') == 2


def _both(wire: str, text: str) -> Json:
    if wire == "chat":
        function = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
        calls = [{"id": "call_1", "type": "function", "function": function}]
        return {"role": "assistant", "content": text, "tool_calls": calls}
    use = {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Paris"}}
    return {"role": "assistant", "content": [{"type": "text", "text": text}, use]}


# --- rule 54 ---------------------------------------------------------------------------------------------------------

CLAUDE = "claude-sonnet-4-5"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["get_weather", "required"])
@pytest.mark.parametrize("caller", WIRES)
def test_forced_text_call(stage: Stage, caller: str, choice: str, stream: bool) -> None:
    """Rule 54: a soft-forced reply with markup is discarded whole, and its one next attempt is the hard force."""
    body = request(caller, stream=stream, model=CLAUDE, thinking=True, choice=choice)
    bad = Turn(Think("Hm."), Say(INVOKE))
    outcome = stage.play(bad, GOOD).ask(caller, body, "messages")
    stage.comparing.leave("every field is compared below")
    asked = WORDS.call_any if choice == "required" else [line.format(tool=choice) for line in WORDS.call_named]
    soft, hard = stage.bodies
    forced = {"type": "any"} if choice == "required" else {"type": "tool", "name": choice}
    assert (soft["tool_choice"], soft["thinking"]["type"]) == ({"type": "auto"}, "enabled")
    assert (hard["tool_choice"], hard["thinking"]) == (forced, {"type": "disabled"})
    assert _texts(soft) == ["Weather in Paris?", asked[0]]
    assert _texts(hard) == ["Weather in Paris?", asked[0], asked[1]]
    assert soft["thinking"].get("budget_tokens", BUDGET) == BUDGET
    rest = {"model", "max_tokens", "tools", "stream"}
    expected = arriving(caller, "messages", stream=stream, model=CLAUDE)
    for sent in (soft, hard):
        assert {key: sent[key] for key in sent if key in rest} == {
            key: expected[key] for key in expected if key in rest
        }
        assert sent.keys() - rest == {"messages", "tool_choice", "thinking"}
    check_no_trace(stage.sent[1].raw)
    assert (outcome.error, outcome.text, outcome.thinking, outcome.calls) == ({}, "", "", CALLED)
    assert (outcome.verdicts, outcome.attempts) == ("text_call,called", 2)
    assert outcome.headers["x-mustcall-force"] == "met"
    check_no_trace(outcome.raw)


def _texts(body: Json) -> list[str]:
    """Return what the user said in a Messages body, each text on its own."""
    said: list[str] = []
    for turn in body["messages"]:
        assert turn["role"] == "user"
        content = turn["content"]
        said += [content] if isinstance(content, str) else [block["text"] for block in content]
    return said


# --- the scenario: prompt, and rule 69 -------------------------------------------------------------------------------


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_prompted_answers_show_no_prompt(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 71: what we told the model stays between us: a reply that repeats its request repeats the caller's own."""
    body = request(wire, stream=stream, mustcall={"protocol": "prompt"})
    outcome = stage.play(Turn(Say("It is sunny."))).ask(wire, body)
    assert stage.bodies == [prompted(wire, stream=stream)]
    assert (outcome.error, outcome.text, outcome.calls) == ({}, "It is sunny.", ())
    assert b"You can call tools" not in outcome.raw
    check_no_trace(outcome.raw)


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_prompt_protocol_parses(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 69: under `prompt` text is the channel: a well-formed call is parsed at once, nothing is retried."""
    outcome = stage.play(Turn(Say(PROSE + HERMES))).ask(
        wire, request(wire, stream=stream, mustcall={"protocol": "prompt"})
    )
    assert stage.bodies == [prompted(wire, stream=stream)]
    assert (outcome.error, outcome.calls, outcome.finish) == ({}, CALLED, "calls")
    assert outcome.text.strip() == PROSE.strip()
    check_no_trace(outcome.raw)


@pytest.mark.parametrize("form", MALFORMED)
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_format_correction(stage: Stage, wire: str, stream: bool, form: str) -> None:
    """Rule 69: a malformed text call is asked for again with one neutral line that does not quote it."""
    body = request(wire, stream=stream, mustcall={"protocol": "prompt"})
    outcome = stage.play(Turn(Say(MALFORMED[form])), Turn(Say(HERMES))).ask(wire, body)
    assert stage.bodies == [
        prompted(wire, stream=stream),
        prompted(wire, WORDS.format_correction, stream=stream),
    ]
    assert (outcome.error, outcome.text, outcome.calls, outcome.finish) == ({}, "", CALLED, "calls")


@pytest.mark.parametrize("form", MALFORMED)
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_format_correction_limit(stage: Stage, wire: str, stream: bool, form: str) -> None:
    """Rule 69: two format corrections at most, then the typed error; the hint does not pile up."""
    body = request(wire, stream=stream, mustcall={"protocol": "prompt"})
    bad = Turn(Say(MALFORMED[form]))
    outcome = stage.play(bad, bad, bad, Turn(Say(HERMES))).ask(wire, body)
    hinted = prompted(wire, WORDS.format_correction, stream=stream)
    assert stage.bodies == [prompted(wire, stream=stream), hinted, hinted]
    assert (outcome.status, outcome.calls) == (FAILED[wire], ())
    assert outcome.message.startswith("TextToolCallError: ")
    check_no_trace(outcome.raw)
