"""A checker that accepts everything proves nothing: each clause of the contract, violated on purpose, is found."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from contract.checker import CEILING, check
from contract.client import Capture, Outcome
from contract.scenario import Scenario, build
from mustcall.core.origin import Wire
from mustcall.testing import Recorded
from mustcall.testing.adversary.upstream import AttemptTruth, CallerIntent, ContentMarks
from mustcall.testing.offers import Choice, OfferedTool

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = (("get_weather", SCHEMA),)
MARKS = (ContentMarks(1, 0), ContentMarks(1, 1))
GOOD_CALL = ("c1", "get_weather", json.dumps({"city": MARKS[0].argument}))


def scenario(mode: Any = "auto", **changes: Any) -> Scenario:
    """A plain turn: chat to chat, whole, one tool."""
    choice = Choice(mode, "get_weather" if mode == "named" else None)
    demand = CallerIntent(seed=1, tools=(OfferedTool("get_weather", SCHEMA),), choice=choice)
    plain: dict[str, Any] = {
        "caller": "chat",
        "upstream": "chat",
        "stream": False,
        "model": "mystery-s1",
        "tools": TOOLS,
        "choice": choice,
        "parallel": True,
        "schema": None,
        "dirt": (),
        "impossible": False,
        "controls": {},
        "demand": demand,
    }
    return replace(build(1), **{**plain, **changes})


def outcome(kind: str = "answered", *, body: str | None = None, streamed: bool = False, **fields: Any) -> Outcome:
    """An outcome and the bytes it was read from."""
    shown = json.dumps([fields.get("text", ""), fields.get("calls", ())]) if body is None else body
    headers = {"content-type": "text/event-stream" if streamed else "application/json"}
    return Outcome(kind, capture=Capture(200, headers, bytearray(shown.encode())), **fields)


def request(text: str = "", choice: str | None = None, **fields: Any) -> Recorded:
    """An upstream request with this in its body; a forced turn's begins with the caller's choice."""
    chosen = {"named": {"type": "function", "function": {"name": "get_weather"}}}.get(choice or "", choice)
    body = {"model": "mystery-s1", "said": text, **({"tool_choice": chosen} if chosen else {}), **fields}
    raw = json.dumps(body).encode()
    return Recorded("POST", "/v1/chat/completions", {}, Wire.CHAT, {}, json.loads(raw), raw)


CALLED = AttemptTruth(
    what="calls", marks=MARKS[0], calls=(("get_weather", {"city": MARKS[0].argument}),), calls_may=True
)
SAID = AttemptTruth(what="text", marks=MARKS[0], text=f"So {MARKS[0].text}.", text_may=True, clean=True)
ANSWER = outcome(text=f"So {MARKS[0].text}.", finish="stop")
CALLS = outcome(calls=(GOOD_CALL,), finish="tool_calls")
ERROR = '{"error": {"message": "no", "type": "server_error", "param": null, "code": "upstream_unavailable"}}'
FAILURE = outcome("failed", body=ERROR, message="no", status=502)
BAD = AttemptTruth(what="bad arguments", marks=MARKS[0])
LATER = AttemptTruth(what="text", marks=MARKS[1], text=f"So {MARKS[1].text}.", text_may=True)


@pytest.mark.parametrize(
    ("turn", "seen", "told"),
    [
        (scenario(), ANSWER, SAID),
        (scenario(), CALLS, CALLED),
        (scenario("named"), CALLS, CALLED),
        (scenario(), FAILURE, BAD),
        (scenario("required", controls={"on-unmet": "answer"}), ANSWER, SAID),
    ],
)
def test_kept(turn: Scenario, seen: Outcome, told: AttemptTruth) -> None:
    """Each of the three outcomes is accepted as it should be."""
    assert check(turn, seen, [told], [request(choice=turn.demand.choice.mode)]) == []


def call(arguments: str, name: str = "get_weather") -> Outcome:
    """An outcome of one call."""
    return outcome(calls=(("c1", name, arguments),), finish="tool_calls")


OTHER = AttemptTruth(what="calls", marks=MARKS[1], calls=(("get_weather", {"city": "x"}),), calls_may=True)
VIOLATIONS: dict[str, tuple[Scenario, Outcome, list[AttemptTruth], str]] = {
    "a foreign exception": (scenario(), outcome("broken", message="TypeError"), [SAID], "broken"),
    "our own crash": (
        scenario(),
        outcome("failed", message="x", body=ERROR.replace("upstream_unavailable", "internal_error")),
        [SAID],
        "foreign",
    ),
    "an unknown tool": (scenario(), call("{}", "rm"), [CALLED], "not offered"),
    "half a call": (scenario(), call('{"city": "Par'), [CALLED], "no object"),
    "wrong arguments": (scenario(), call('{"city": 3}'), [CALLED], "do not fit"),
    "invented arguments": (scenario(), call('{"city": "x"}'), [CALLED], "not what attempt"),
    "calls under none": (scenario("none"), CALLS, [CALLED], "the choice was none"),
    "calls that must not be": (scenario(), CALLS, [BAD], "none that may be delivered"),
    "calls of an earlier attempt": (scenario(), CALLS, [CALLED, OTHER], "made of attempts"),
    "a lying finish": (scenario(), replace(CALLS, finish="stop"), [CALLED], "the finish is"),
    "two calls, parallel off": (
        scenario(parallel=False),
        outcome(calls=(GOOD_CALL, ("c2", *GOOD_CALL[1:])), finish="tool_calls"),
        [CALLED],
        "at once",
    ),
    "the same id twice": (
        scenario(),
        outcome(calls=(GOOD_CALL, GOOD_CALL), finish="tool_calls"),
        [CALLED],
        "ids",
    ),
    "prose for a call": (scenario("required"), ANSWER, [SAID], "although a call was demanded"),
    "no text": (scenario(), outcome(text=" ", finish="stop"), [SAID], "no text"),
    "another text": (scenario(), outcome(text=f"{MARKS[0].text}", finish="stop"), [SAID], "not what the last attempt"),
    "a phantom": (scenario(), replace(ANSWER, finish="tool_calls"), [SAID], "the finish says calls"),
    "the wrong form": (scenario(schema=SCHEMA), ANSWER, [SAID], "does not fit the schema"),
    "text of nothing": (scenario(), outcome(text="So.", finish="stop"), [BAD], "gave none"),
    "a refusal of nobody": (scenario(), replace(ANSWER, refused=True), [SAID], "nobody said"),
    "leaked markup": (scenario(), outcome(text=f"<x>{MARKS[0].markup}", finish="stop"), [SAID], "leak: markup"),
    "leaked arguments": (
        scenario(),
        outcome("failed", message="x", body=ERROR.replace("no", MARKS[0].argument)),
        [BAD],
        "leak: argument",
    ),
    "leaked reasoning": (scenario(), outcome(text=MARKS[0].reasoning, finish="stop"), [SAID], "leak: reasoning"),
    "two attempts' text": (
        scenario(),
        outcome(text=f"{MARKS[0].text} {MARKS[1].text}", finish="stop"),
        [SAID, LATER],
        "text of attempts",
    ),
    "discarded text": (
        scenario(),
        outcome("failed", message="x", body=ERROR.replace("no", MARKS[0].text)),
        [SAID],
        "leak: text",
    ),
    "an error of another shape": (
        scenario(),
        replace(FAILURE, capture=Capture(502, {}, bytearray(b"oops"))),
        [BAD],
        "shape",
    ),
    "a good attempt repeated": (
        scenario(),
        outcome(text=f"So {MARKS[1].text}.", finish="stop"),
        [AttemptTruth(what="text", marks=MARKS[0], honest=True, text_may=True), LATER],
        "wasteful",
    ),
    "a good attempt lost": (
        scenario(),
        FAILURE,
        [AttemptTruth(what="text", marks=MARKS[0], honest=True, text_may=True)],
        "lifeless",
    ),
}


@pytest.mark.parametrize("case", VIOLATIONS)
def test_violated(case: str) -> None:
    """Each way to break the contract is found, and named."""
    turn, seen, told, word = VIOLATIONS[case]
    found = check(turn, seen, told, [request()] * len(told))
    assert any(word in violation for violation in found), found


@pytest.mark.parametrize("case", ["a good attempt repeated", "a good attempt lost"])
def test_liveness_is_not_checked_where_time_runs_out(case: str) -> None:
    """An upstream that hangs needs a short timeout, which may end a good attempt on a slow machine; no leak may."""
    turn, seen, told, _ = VIOLATIONS[case]
    hanging = replace(turn, demand=msgspec.structs.replace(turn.demand, hangs=True))
    assert check(hanging, seen, told, [request()] * len(told)) == []
    turn, seen, told, word = VIOLATIONS["an error of another shape"]
    hanging = replace(turn, demand=msgspec.structs.replace(turn.demand, hangs=True))
    assert any(word in violation for violation in check(hanging, seen, told, [request()] * len(told)))


def test_arguments_that_flowed_before_the_failure() -> None:
    """Rule 145: a trusted call may be seen before it turns out bad, if the stream fails then, with no other attempt."""
    leaks = outcome("failed", body=ERROR.replace("no", MARKS[0].argument, 1), message="no", status=502)
    told, sent = [BAD], [request(stream=True)]
    assert check(scenario(stream=True), leaks, told, sent, trusting=True) == []
    assert "leak: argument" in check(scenario(stream=True), leaks, told, sent)[0]
    assert "leak: argument" in check(scenario(stream=False), leaks, told, [request()], trusting=True)[0]
    again = check(
        scenario(stream=True), leaks, [BAD, AttemptTruth(what="bad arguments", marks=MARKS[1])], sent * 2, trusting=True
    )
    assert "leak: argument of attempt 0" in again[0]


def test_too_many_requests() -> None:
    """Rule 96: one attempt and four more."""
    assert check(scenario(), ANSWER, [SAID], [request()] * CEILING) == []
    assert "ceiling" in check(scenario(), ANSWER, [SAID], [request()] * (CEILING + 1))[0]
    assert "ceiling" in check(scenario(controls={"extra-calls": "0"}), ANSWER, [SAID], [request()] * 2)[0]


@pytest.mark.parametrize("kind", ["argument", "markup", "text"])
def test_what_is_discarded_stays_out_of_the_next_request(kind: str) -> None:
    """Rule 45: nothing of a bad attempt is sent on; clean text may be, where a call is demanded."""
    told = [AttemptTruth(what="bad", marks=MARKS[0]), LATER]
    seen = outcome(text=f"So {MARKS[1].text}.", finish="stop")
    sent = [request(), request(getattr(MARKS[0], kind))]
    assert f"{kind} of attempt 0 (bad) was sent on" in check(scenario(), seen, told, sent)[0]


def test_clean_text_may_stay_in_a_forced_turn() -> None:
    """Rule 25: the clean text of a missed force stays in context."""
    told = [SAID, AttemptTruth(what="calls", marks=MARKS[1], calls_may=True, exact=False)]
    seen = outcome(calls=(("c1", "get_weather", json.dumps({"city": MARKS[1].argument})),), finish="tool_calls")
    sent = [request(choice="required"), request(MARKS[0].text)]
    assert check(scenario("required"), seen, told, sent) == []
    assert check(scenario("auto"), seen, told, sent)


#: The turn, its first upstream request and what is wrong with that, None for nothing.
FORMS: dict[str, tuple[Scenario, dict[str, Any], str | None]] = {
    "a force, streamed for us": (scenario("named"), {"choice": "named", "stream": True}, None),
    "a force, held to a grammar": (scenario("named"), {"choice": "named", "guided_json": {}}, None),
    "streamed without need": (scenario(), {"stream": True}, "nothing was demanded"),
    "streamed where it is obeyed": (
        scenario("named", model="gpt-4o-s1"),
        {"choice": "named", "stream": True},
        "known to obey",
    ),
    "obeyed, used otherwise": (
        scenario("named", model="gpt-4o-s1", controls={"protocol": "prompt"}),
        {"stream": True},
        None,
    ),
    "not streamed": (scenario(stream=True), {}, "reads as it comes"),
    "a grammar for nothing": (scenario(), {"json_schema": {}}, "constrained"),
    "a schema for nothing": (scenario(), {"response_format": {}}, "held to a schema"),
    "the caller's schema": (scenario(schema=SCHEMA), {"response_format": {}}, None),
    "a softened force": (scenario("named"), {"choice": "auto"}, "the force is auto"),
    "a force of another kind": (scenario("named"), {"choice": "required"}, "the force is required"),
    "the only tool on Messages": (scenario("named", upstream="messages"), {"choice": "required"}, None),
}


@pytest.mark.parametrize("case", FORMS)
def test_what_a_request_asks_for(case: str) -> None:
    """Rules 22, 74, 137, 140: what the caller did not ask for is explained by a demanded call, or found."""
    turn, fields, word = FORMS[case]
    found = [one for one in check(turn, FAILURE, [BAD], [request(**fields)]) if one.startswith("request 0")]
    assert found == [] if word is None else len(found) == 1 and word in found[0], found


STREAMS = {
    "nothing at the end": ("chat", 'data: {"choices": []}\n\n', "no end"),
    "more after the end": ("chat", 'data: [DONE]\n\ndata: {"choices": []}\n\n', "follow the end"),
    "more after an error": ("messages", 'event: error\ndata: {"type": "error"}\n\ndata: {}\n\n', "follow the error"),
    "a second start": (
        "messages",
        'data: {"type": "message_start"}\n\ndata: {"type": "message_start"}\n\ndata: {"type": "message_stop"}\n\n',
        "2 message_start",
    ),
    "no last event": ("responses", 'data: {"type": "response.created"}\n\n', "no end"),
}


@pytest.mark.parametrize("case", STREAMS)
def test_disorder(case: str) -> None:
    """Rule 135: a stream ends once, in its own way, and nothing follows."""
    wire, body, word = STREAMS[case]
    turn = scenario(caller=wire, stream=True)
    seen = outcome(body=body, streamed=True, text=f"So {MARKS[0].text}.", finish="stop")
    assert any(word in violation for violation in check(turn, seen, [SAID], [request()]))


def test_cuts_hide_nothing() -> None:
    """Rule 53: a mark that is spread over several deltas is seen all the same."""
    mark = MARKS[0].markup
    events = "".join(f'data: {{"choices": [{{"delta": {{"content": "{letter}"}}}}]}}\n\n' for letter in mark)
    seen = outcome(body=events + "data: [DONE]\n\n", streamed=True, text=f"So {MARKS[0].text}.", finish="stop")
    assert any("leak: markup" in found for found in check(scenario(stream=True), seen, [SAID], [request()]))
