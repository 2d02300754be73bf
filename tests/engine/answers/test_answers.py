"""Structured answers of an agent: a bounded tool phase, then an answer that fits, or a typed error; exact requests."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from mustcall import Agent, CallStatus, Options, RunEvent, Stopped, TextDelta, Upstream
from mustcall.core.errors import StructuredOutputError
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.wording import Wording, fill
from mustcall.profiles import read_overrides
from mustcall.testing import Answer, Call, Fail, Refuse, RunningGateway, Say, ScriptedUpstream, Turn
from support.agents import WIRES, ask_body, collect, get_weather, offer, results, said, user, wrapped

wires = pytest.mark.parametrize("wire", WIRES)
streaming = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
WORDS = Wording()


@dataclass
class Weather:
    """The answer."""

    city: str
    degrees: int


SCHEMA = {
    "title": "Weather",
    "description": "The answer.",
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
}
ASKED = fill(WORDS.answer_as_json, schema=json.dumps(dict(sorted(SCHEMA.items())), separators=(",", ":")))
GOOD = Turn(Say('{"city":"Oslo","degrees":21}'))
BAD = Turn(Say('{"city":"Oslo"}'))
OSLO = Weather("Oslo", 21)
HOP = ("get_weather", {"city": "Oslo"})


def call(city: str = "Oslo") -> Turn:
    """A call."""
    return Turn(Call("get_weather", {"city": city}))


async def answer(
    wire: str, script: list[Answer], *, stream: bool = False, facts: dict[str, Any] | None = None, **settings: Any
) -> tuple[Any, list[dict[str, Any]], list[RunEvent]]:
    """Ask for the weather; return the result, the bodies and the events."""
    overrides = read_overrides([facts]) if facts else ()
    asking = {name: settings.pop(name) for name in ("hops", "check") if name in settings}
    with ScriptedUpstream(script, strict=True) as upstream:
        where = Upstream(f"{wire}={upstream.base_url}", model="m", api_key="k", overrides=overrides)
        settings.setdefault("tools", [get_weather])
        agent = Agent(where, **settings)
        seen: list[RunEvent] = []
        if stream:
            seen, result = await collect(agent.stream("Weather?", output=Weather, **asking))
        else:
            result = await agent.run("Weather?", output=Weather, **asking)
        return result, [one.body for one in upstream.requests], seen


def body(wire: str, turns: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """A request with the schema in words."""
    if wire == "chat":
        return ask_body(wire, [{"role": "system", "content": ASKED}, *turns], **fields)
    place: Any = {"system" if wire == "messages" else "instructions": ASKED}
    return ask_body(wire, turns, **place, **fields)


FORMATS: dict[str, Any] = {
    "chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}},
    "responses": {"text": {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}}},
    "messages": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
}


def none(wire: str) -> dict[str, Any]:
    """The choice that forbids calls."""
    return {"tool_choice": {"type": "none"} if wire == "messages" else "none"}


@wires
@streaming
async def test_happy_path(wire: str, stream: bool) -> None:
    """Rule 82: the call is run, wrapped, and the model asked again; its JSON is the answer."""
    result, bodies, _ = await answer(wire, [call(), GOOD], stream=stream)
    asked = [user(wire, "Weather?")]
    after = [*asked, *said(wire, 0, HOP), *results(wire, 0, wrapped("Sunny in Oslo"))]
    assert bodies == [body(wire, asked, stream=stream), body(wire, after, stream=stream)]
    assert (result.output, result.stopped) == (OSLO, Stopped.ANSWERED)
    assert result.text == '{"city":"Oslo","degrees":21}'


@streaming
async def test_hops_are_a_setting(stream: bool) -> None:
    """Rules 82, 120: `Controls.hops` is how many tools run before the answer, unless the run says it."""
    script: list[Answer] = [call("Oslo"), call("Rome"), GOOD]
    result, bodies, _ = await answer("chat", script, stream=stream, controls=Controls(hops=1))
    assert [each.status for each in result.calls] == [CallStatus.OK, CallStatus.HOP_BUDGET_EXHAUSTED]
    assert len(bodies) == 3
    result, bodies, _ = await answer("chat", script, stream=stream, controls=Controls(hops=1), hops=2)
    assert [each.status for each in result.calls] == [CallStatus.OK, CallStatus.OK]
    assert len(bodies) == 3


@wires
async def test_hops_spent(wire: str) -> None:
    """Rules 83, 89: the third call is refused, and exactly one final round without calls follows."""
    script: list[Answer] = [call("Oslo"), call("Rome"), call("Bern"), GOOD]
    result, bodies, _ = await answer(wire, script)
    assert [each.status for each in result.calls] == [CallStatus.OK, CallStatus.OK, CallStatus.HOP_BUDGET_EXHAUSTED]
    refusal = fill(WORDS.hops_spent, tool="get_weather")
    written = f"Error: {refusal}" if wire != "messages" else refusal
    turns = [user(wire, "Weather?")]
    for number, city in enumerate(("Oslo", "Rome", "Bern")):
        turns += said(wire, number, ("get_weather", {"city": city}))
        spent = number == 2
        turns += results(wire, number, written if spent else wrapped(f"Sunny in {city}"), failed=spent)
    turns.append(user(wire, WORDS.step_cap))
    assert len(bodies) == 4
    assert bodies[3] == body(wire, turns, **none(wire), **FORMATS[wire])
    assert result.output == OSLO


async def test_parallel_calls_are_hops_each() -> None:
    """Rule 82: each execution is a hop; of three calls in one reply two are run."""
    three = Turn(*(Call("get_weather", {"city": city}) for city in ("a", "b", "c")))
    result, bodies, _ = await answer("chat", [three, GOOD])
    assert sorted(each.status for each in result.calls) == ["hop_budget_exhausted", "ok", "ok"]
    assert bodies[1]["tool_choice"] == "none"


async def test_parallel_calls_leave_no_hop_to_others() -> None:
    """Rule 82: two calls of one reply take both hops; a call after them is refused and the next round is the last."""
    two = Turn(*(Call("get_weather", {"city": city}) for city in ("a", "b")))
    result, bodies, _ = await answer("chat", [two, Turn(Call("get_weather", {"city": "c"})), GOOD])
    assert sorted((each.call.arguments_json, each.status) for each in result.calls) == [
        ('{"city":"a"}', "ok"),
        ('{"city":"b"}', "ok"),
        ('{"city":"c"}', "hop_budget_exhausted"),
    ]
    assert [one.get("tool_choice") for one in bodies] == [None, None, "none"]
    assert result.output == OSLO


async def test_final_round_is_validated_once() -> None:
    """Rule 83: what does not fit in the final round is an error, with no further request."""
    with pytest.raises(StructuredOutputError, match="1 attempt made"):
        await answer("chat", [call(), BAD], hops=0)
    result, bodies, _ = await answer("chat", [call(), GOOD], hops=0)
    assert ([each.ok for each in result.calls], result.output, len(bodies)) == ([False], OSLO, 2)


@wires
@streaming
async def test_one_reprompt(wire: str, stream: bool) -> None:
    """Rule 84: an answer that does not fit is asked for once more, with its problem, at the cost of no hop."""
    result, bodies, seen = await answer(wire, [call(), BAD, GOOD], stream=stream, hops=1)
    reminder = fill(WORDS.bad_answer, problem="degrees: integer, required")
    turns = [user(wire, "Weather?"), *said(wire, 0, HOP), *results(wire, 0, wrapped("Sunny in Oslo"))]
    turns.append(user(wire, reminder))
    if wire == "messages":  # neighbouring user turns are one there
        *turns, before, last = turns
        joined = [*before["content"], {"type": "text", "text": last["content"]}]
        turns.append({"role": "user", "content": joined})
    assert bodies[2] == body(wire, turns, stream=stream, **none(wire), **FORMATS[wire])
    assert (result.output, result.stopped, len(bodies)) == (OSLO, Stopped.ANSWERED, 3)
    assert reminder not in str(result.messages)
    said_text = "".join(event.text for event in seen if isinstance(event, TextDelta))
    assert said_text == ('{"city":"Oslo","degrees":21}' if stream else "")


async def test_spent() -> None:
    """Rule 91: a second misfit is the typed error with the real count; `check=False` returns the run."""
    with pytest.raises(StructuredOutputError, match="2 attempts made"):
        await answer("chat", [BAD, BAD])
    result, bodies, _ = await answer("chat", [BAD, BAD], check=False)
    assert result.error.code == "bad_answer"
    assert (result.answer, result.stopped, len(bodies)) == (None, Stopped.FAILED, 2)


async def test_no_tools_is_the_plain_call() -> None:
    """Rule 86: without tools the request has no trace of them."""
    result, bodies, _ = await answer("chat", [GOOD], tools=[], facts={"schema_output": False})
    assert bodies == [body("chat", [user("chat", "Weather?")], tools=[])]
    assert result.output == OSLO


@wires
@pytest.mark.parametrize("facts", [{"schema_output": True}, None], ids=["known", "unknown"])
async def test_schema_output_without_tools(wire: str, facts: dict[str, Any] | None) -> None:
    """Rule 140: schema output is used from the start where no tools are in the way, also where nothing is known."""
    result, bodies, _ = await answer(wire, [GOOD], tools=[], facts=facts)
    assert bodies == [body(wire, [user(wire, "Weather?")], tools=[], **FORMATS[wire])]
    assert result.output == OSLO


REFUSAL = Fail(400, "response_format of type json_schema is not supported by this server")


@wires
@streaming
async def test_schema_output_that_is_refused(wire: str, stream: bool) -> None:
    """Rules 33, 140: a refused schema is put in words at once, and the next run begins with words."""
    with ScriptedUpstream([REFUSAL, GOOD, GOOD]) as upstream:
        agent = Agent(Upstream(f"{wire}={upstream.base_url}", model="m", api_key="k"))
        for _ in range(2):
            result = (
                (await collect(agent.stream("Weather?", output=Weather)))[1]
                if stream
                else await agent.run("Weather?", output=Weather)
            )
            assert result.output == OSLO
        bodies = [one.body for one in upstream.requests]
    asked = body(wire, [user(wire, "Weather?")], tools=[], stream=stream)
    assert bodies == [{**asked, **FORMATS[wire]}, asked, asked]


async def test_schema_output_that_is_refused_beside_tools() -> None:
    """Rules 33, 140: in the last round, too, a refusal costs one call and the answer is asked for in words."""
    with ScriptedUpstream([call(), BAD, REFUSAL, GOOD]) as upstream:
        agent = Agent(Upstream(f"chat={upstream.base_url}", model="m", api_key="k"), tools=[get_weather])
        result = await agent.run("Weather?", output=Weather)
        bodies = [one.body for one in upstream.requests]
    assert result.output == OSLO
    asked = [user("chat", "Weather?")]
    after = [*asked, *said("chat", 0, HOP), *results("chat", 0, wrapped("Sunny in Oslo"))]
    reminder = fill(WORDS.bad_answer, problem="degrees: integer, required")
    last = body("chat", [*after, user("chat", reminder)], **none("chat"))
    assert bodies == [body("chat", asked), body("chat", after), {**last, **FORMATS["chat"]}, last]


async def test_a_fence_where_the_schema_was_ignored() -> None:
    """Rule 140: a server that takes the schema and does not keep to it is read like one that was asked in words."""
    fenced = Turn(Say('```json\n{"city":"Oslo","degrees":21}\n```'))
    result, bodies, _ = await answer("chat", [fenced], tools=[])
    assert (result.output, len(bodies)) == (OSLO, 1)


@wires
async def test_through_our_own_gateway(wire: str) -> None:
    """Rule 140: an agent on our own gateway has its schema forwarded to a server that can enforce it."""
    with (
        ScriptedUpstream([GOOD], strict=True) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}") as gateway,
    ):
        agent = Agent(Upstream(f"{wire}={gateway.url}/v1", model="m", api_key="k"))
        result = await agent.run("Weather?", output=Weather)
        bodies = [one.body for one in upstream.requests]
    assert result.output == OSLO
    assert all(bodies[0][field] == value for field, value in FORMATS[wire].items())


@wires
async def test_schema_output_after_tools(wire: str) -> None:
    """Rule 74: not known to go with tools, it waits for the last round, which offers none."""
    result, bodies, _ = await answer(wire, [call(), BAD, GOOD], facts={"schema_output": True})
    assert [set(FORMATS[wire]) <= set(sent) for sent in bodies] == [False, False, True]
    # A history with calls needs tools on offer on Messages (rule 104): a stub, and none may be called.
    assert (bodies[2].get("tool_choice") == {"type": "none"}) if wire == "messages" else ("tools" not in bodies[2])
    assert result.output == OSLO


@wires
async def test_schema_output_beside_tools(wire: str) -> None:
    """Where both are known to go together, every request carries both, and the turn itself sees to the fit."""
    target = "anthropic" if wire == "messages" else "openai"
    facts = {"schema_output": True, "protocol": "native", "schema_target": target}
    result, bodies, _ = await answer(wire, [call(), BAD, GOOD], facts=facts)
    closed = {**SCHEMA, "additionalProperties": False}
    form: dict[str, Any] = {
        "chat": {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": closed, "strict": True},
            }
        },
        "responses": {"text": {"format": {"type": "json_schema", "name": "answer", "schema": closed, "strict": True}}},
        "messages": {"output_config": {"format": {"type": "json_schema", "schema": closed}}},
    }[wire]
    asked = [user(wire, "Weather?")]
    after = [*asked, *said(wire, 0, HOP), *results(wire, 0, wrapped("Sunny in Oslo"))]
    again = [*after, user(wire, fill(WORDS.bad_answer, problem="degrees: integer, required"))]
    assert bodies == [ask_body(wire, turns, **form) for turns in (asked, after, again)]
    assert [len(step.attempts) for step in result.steps] == [1, 2]
    assert result.output == OSLO


APART = {"schema_with_tools": False, "protocol": "native", "forced": "ignored", "reasoning": "never"}


@wires
@streaming
async def test_an_answer_tool(wire: str, stream: bool) -> None:
    """Rule 91: where tools and a schema do not go together a tool takes the answer, as at the gateway."""
    given = Turn(Call("answer", {"city": "Oslo", "degrees": 21}))
    bad = Turn(Call("answer", {"city": "Oslo"}))
    result, bodies, _ = await answer(wire, [call(), bad, given], stream=stream, facts=APART)
    tools = [offer(wire), offer(wire, "answer", WORDS.answer_tool, SCHEMA)]
    asked = [user(wire, "Weather?")]
    after = [*asked, *said(wire, 0, HOP), *results(wire, 0, wrapped("Sunny in Oslo"))]
    again = user(wire, fill(WORDS.answer_again, problem="degrees: integer, required", tool="answer"))
    assert bodies == [ask_body(wire, turns, tools=tools, stream=stream) for turns in (asked, after, [*after, again])]
    assert (result.output, result.text, len(result.calls)) == (OSLO, '{"city":"Oslo","degrees":21}', 1)
    assert "answer_tool" not in str(result.messages)


@wires
async def test_an_answer_tool_and_spent_hops(wire: str) -> None:
    """Rule 83: in the final round nothing can be called, and the answer is asked for in words, or by schema alone."""
    for facts, alone in ((APART, False), (APART | {"schema_output": True}, wire != "messages")):
        result, bodies, _ = await answer(wire, [call(), GOOD], hops=0, facts=facts)
        assert (set(FORMATS[wire]) <= set(bodies[1])) is alone
        assert (json.dumps(ASKED)[1:-1] in json.dumps(bodies[1])) is not alone
        assert (result.output, len(bodies)) == (OSLO, 2)


@streaming
@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_the_answer_follows_the_last_hop(wire: str, stream: bool) -> None:
    """Rules 82, 84: with no hop left, a server that enforces a schema only without tools gets none to call.

    An answer that does not fit is asked for once more, and the run was not cut short.
    """
    facts, misfit = APART | {"schema_output": True}, Turn(Say('{"city": "Oslo"}'))
    asked = [user(wire, "Weather?")]
    tools = [offer(wire), offer(wire, "answer", WORDS.answer_tool, SCHEMA)]
    told = user(wire, f"{WORDS.step_cap}\n\n{ASKED}")
    after = [*asked, *said(wire, 0, HOP), *results(wire, 0, wrapped("Sunny in Oslo")), told]
    again = [*after, user(wire, fill(WORDS.bad_answer, problem="degrees: integer, required"))]
    expected = [ask_body(wire, asked, tools=tools, stream=stream)]
    expected += [ask_body(wire, turns, tools=[], stream=stream, **FORMATS[wire]) for turns in (after, again)]
    scripts: list[list[Answer]] = [[call(), GOOD], [call(), misfit, GOOD]]
    for script in scripts:
        result, bodies, seen = await answer(wire, script, hops=1, facts=facts, stream=stream)
        assert bodies == expected[: len(script)]
        assert (result.output, result.stopped) == (OSLO, Stopped.ANSWERED)
        heard = "".join(event.text for event in seen if isinstance(event, TextDelta))
        assert heard == ('{"city":"Oslo","degrees":21}' if stream else "")


async def test_an_envelope_is_never_the_answer() -> None:
    """Rule 81: a call as bare JSON is either a call or asked again, never an answer, whatever the schema."""
    envelope = Turn(Say('{"name": "get_weather", "arguments": {"city": 3}}'))
    with ScriptedUpstream([envelope, Turn(Say('{"a": 1}'))]) as upstream:
        agent = Agent(Upstream(f"chat={upstream.base_url}", model="m"), tools=[get_weather])
        result = await agent.run("Weather?", output={"type": "object"})
    assert result.output == {"a": 1}
    told = {"role": "system", "content": fill(WORDS.answer_as_json, schema='{"type":"object"}')}
    assert [one.body for one in upstream.requests] == [ask_body("chat", [told, user("chat", "Weather?")])] * 2


def broken(text: str = '{"name": "get_weather", "arguments": {"city": "Oslo}') -> Turn:
    """A call in the text form that cannot be read."""
    return Turn(Say(f"<tool_call>\n{text}\n</tool_call>"))


#: The tool as the system prompt tells of it where calls are made in text.
TOLD = """You can call tools. To call one, write exactly this, with the tool's name and its arguments:

<tool_call>
{"name": "TOOL_NAME", "arguments": {"PARAMETER": "VALUE"}}
</tool_call>

Write nothing after a call; its result will be given to you. These are the tools:

## get_weather
Look up the weather.
Parameters:
- city (string, required): a city

"""


def prompted(turns: list[dict[str, Any]], *, stream: bool) -> dict[str, Any]:
    """A request with the tool and the schema in words."""
    words = [{"type": "text", "text": text} for text in (TOLD, ASKED)]
    return ask_body("chat", [{"role": "system", "content": words}, *turns], tools=[], stream=stream)


def in_text(result: str) -> list[dict[str, Any]]:
    """The call of a model that calls in text, and its result."""
    written = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    answered = f"<tool_response>\n{result}\n</tool_response>"
    return [{"role": "assistant", "content": written}, user("chat", answered)]


MISFIT = '{"name": "get_weather", "arguments": {"town": "Oslo"}}'


@streaming
@pytest.mark.parametrize(
    ("written", "status", "sentence"),
    [
        (broken(), CallStatus.PARSE_ERROR, WORDS.format_correction),
        (
            broken(MISFIT),
            CallStatus.SCHEMA_ERROR,
            fill(WORDS.bad_arguments, problem="get_weather: top level: no fields but city; city: string, required"),
        ),
    ],
    ids=["parse", "schema"],
)
async def test_a_malformed_envelope_costs_a_hop(written: Turn, status: CallStatus, sentence: str, stream: bool) -> None:
    """Rules 85, 89: it costs a hop, the next request says what is wrong, and the record has it."""
    facts = {"protocol": "prompt"}
    good_call = broken('{"name": "get_weather", "arguments": {"city": "Oslo"}}')
    script: list[Answer] = [written, good_call, good_call, GOOD]
    result, bodies, _ = await answer("chat", script, stream=stream, facts=facts)
    asked = [user("chat", "Weather?")]
    after = [*asked, *in_text(wrapped("Sunny in Oslo"))]
    spent = [*after, *in_text(f"Error: {fill(WORDS.hops_spent, tool='get_weather')}"), user("chat", WORDS.step_cap)]
    assert bodies == [
        *[prompted(turns, stream=stream) for turns in (asked, [*asked, user("chat", sentence)], after)],
        body("chat", spent, tools=[], stream=stream),
    ]
    assert [each.status for each in result.calls] == [status, CallStatus.OK, CallStatus.HOP_BUDGET_EXHAUSTED]
    assert (result.output, len(bodies), sentence in str(result.messages)) == (OSLO, 4, False)


async def test_a_malformed_envelope_without_hops() -> None:
    """Rules 83, 85: with no hop left it is refused, and exactly one final round follows."""
    result, bodies, _ = await answer("chat", [broken(), GOOD], hops=0, facts={"protocol": "prompt"})
    assert [each.status for each in result.calls] == [CallStatus.HOP_BUDGET_EXHAUSTED]
    assert (result.output, len(bodies)) == (OSLO, 2)


async def test_what_the_turn_cannot_mend_costs_a_hop() -> None:
    """Rules 83, 85: the turn retries as long as hops pay for it; what stays malformed ends the tools, not the run."""
    bad = Turn(Call("get_weather", '{"town": "Oslo"}'))
    result, bodies, _ = await answer("chat", [bad, bad, bad, GOOD])
    assert [(each.name, each.status) for each in result.calls] == [
        ("get_weather", CallStatus.SCHEMA_ERROR),
        ("get_weather", CallStatus.SCHEMA_ERROR),
        ("get_weather", CallStatus.HOP_BUDGET_EXHAUSTED),
    ]
    asked = [user("chat", "Weather?")]
    wrong = "top level: no fields but city; city: string, required"
    again = user("chat", fill(WORDS.bad_arguments, problem=f"get_weather: {wrong}"))
    told = user("chat", fill(WORDS.tool_misfit, tool="get_weather", problem=wrong))
    assert bodies == [
        *[body("chat", turns) for turns in (asked, [*asked, again], [*asked, told])],
        body("chat", asked, **none("chat"), **FORMATS["chat"]),
    ]
    assert result.output == OSLO


async def test_what_the_turn_cannot_mend_is_refused() -> None:
    """Rule 85: what stays malformed while hops are left costs one too, and the next request says what is wrong."""
    bad = Turn(Call("get_weather", '{"town": "Oslo"}'))
    result, bodies, _ = await answer("chat", [bad, bad, bad, call(), GOOD], hops=4)
    misfit = [("get_weather", CallStatus.SCHEMA_ERROR)] * 3
    assert [(each.name, each.status) for each in result.calls] == [*misfit, ("get_weather", CallStatus.OK)]
    wrong = "top level: no fields but city; city: string, required"
    sentence = fill(WORDS.tool_misfit, tool="get_weather", problem=wrong)
    reminder = fill(WORDS.bad_arguments, problem=f"get_weather: {wrong}")
    asked = [user("chat", "Weather?")]
    told = [*asked, user("chat", sentence)]
    reminded = user("chat", reminder)
    after = [*asked, *said("chat", 3, HOP), *results("chat", 3, wrapped("Sunny in Oslo"))]
    sent = [asked, [*asked, reminded], told, [*told, reminded], after]  # each turn asks once more (rule 141)
    assert bodies == [body("chat", messages, stream=False) for messages in sent]
    assert result.output == OSLO


MALFORMED: dict[str, tuple[str, Turn, CallStatus]] = {
    "misfit": ("get_weather", Turn(Call("get_weather", {"town": "Oslo"})), CallStatus.SCHEMA_ERROR),
    "no JSON": ("get_weather", Turn(Call("get_weather", "{city")), CallStatus.PARSE_ERROR),
    "not on offer": ("get_time", Turn(Call("get_time", {})), CallStatus.UNKNOWN_TOOL),
    "text": ("get_weather", broken('{"name": "get_weather", "arguments": {"town": "Oslo"}}'), CallStatus.SCHEMA_ERROR),
    "broken text": ("get_weather", broken('{"name": "get_weather", "arguments": {"city": '), CallStatus.PARSE_ERROR),
}


WRONG = fill(WORDS.bad_arguments, problem="get_weather: top level: no fields but city; city: string, required")
#: What the next request says of a malformed call: where calls are native, and where they are made in text. Nothing: the
#: request is sent again as it is.
SAID: dict[str, tuple[str | None, str]] = {
    "misfit": (WRONG, WRONG),
    "no JSON": (WORDS.truncated, WORDS.format_correction),
    "not on offer": (None, WORDS.unknown_tool),
    "text": (None, WRONG),
    "broken text": (None, WORDS.format_correction),
}


@pytest.mark.parametrize("what", MALFORMED)
@pytest.mark.parametrize("protocol", ["native", "hybrid", "prompt"])
@streaming
async def test_a_mended_call_costs_a_hop(protocol: str, what: str, stream: bool) -> None:
    """Rules 85, 89: under each protocol the malformed call took the only hop, and is recorded under its name."""
    name, written, status = MALFORMED[what]
    good = broken('{"name": "get_weather", "arguments": {"city": "Oslo"}}') if protocol == "prompt" else call()
    if protocol == "prompt" and not isinstance(written.parts[0], Say):
        made = {"misfit": '{"town": "Oslo"}', "no JSON": "{city", "not on offer": "{}"}[what]
        written = broken(f'{{"name": "{name}", "arguments": {made}}}')
    result, bodies, _ = await answer("chat", [written, good, GOOD], hops=1, stream=stream, facts={"protocol": protocol})
    assert [(each.name, each.status) for each in result.calls] == [
        (name, status),
        ("get_weather", CallStatus.HOP_BUDGET_EXHAUSTED),
    ]
    sentence = SAID[what][protocol == "prompt"]
    asked = [user("chat", "Weather?")]
    again = asked if sentence is None else [*asked, user("chat", sentence)]
    refusal = f"Error: {fill(WORDS.hops_spent, tool='get_weather')}"
    cap = user("chat", WORDS.step_cap)
    if protocol == "prompt":
        last = body("chat", [*asked, *in_text(refusal), cap], tools=[], stream=stream)
        sends = [prompted(asked, stream=stream), prompted(again, stream=stream), last]
    else:
        spent = [*asked, *said("chat", 1, HOP), *results("chat", 1, refusal), cap]
        last = body("chat", spent, stream=stream, **none("chat"), **FORMATS["chat"])
        sends = [body("chat", asked, stream=stream), body("chat", again, stream=stream), last]
    assert (result.output, bodies) == (OSLO, sends)


async def test_surplus_calls_are_recorded() -> None:
    """Rule 89: of two calls where one is allowed the second is `ignored_extra`, and never runs."""
    two = Turn(Call("get_weather", {"city": "Oslo"}), Call("get_weather", {"city": "Rome"}))
    options = Options(parallel_tool_calls=False)
    result, bodies, _ = await answer("chat", [two, GOOD], options=options)
    assert sorted(each.status for each in result.calls) == [CallStatus.IGNORED_EXTRA, CallStatus.OK]
    assert (result.output, len(bodies), "Rome" in str(bodies)) == (OSLO, 2, False)


async def test_refusal() -> None:
    """Rule 37: a refusal is one, not a bad answer."""
    result, bodies, _ = await answer("messages", [Turn(Refuse("I cannot."))])
    assert (result.stopped, result.answer, len(bodies)) == (Stopped.REFUSED, None, 1)


FINALS = {
    "a call": call("Bern"),
    "an envelope": Turn(Say('{"name": "get_weather", "arguments": {"city": "Bern"}}')),
    "markup": broken('{"name": "get_weather", "arguments": {"city": "Bern"}}'),
    "nothing": Turn(Say("")),
}


@wires
@pytest.mark.parametrize("what", FINALS)
async def test_exactly_one_final_round(wire: str, what: str) -> None:
    """Rules 83, 89: a final reply that is a call or nothing ends the run at once, and the call is `ignored_extra`."""
    result, bodies, _ = await answer(wire, [call(), FINALS[what], GOOD], hops=0, check=False)
    assert (result.answer, result.error.code, len(bodies)) == (None, "bad_answer", 2)
    assert result.error.message.endswith("; 1 attempt made")
    called = [("get_weather", CallStatus.IGNORED_EXTRA)] if what != "nothing" else []
    assert [(each.name, each.status) for each in result.calls[1:]] == called


async def test_the_final_round_without_tools_is_one_too() -> None:
    """Rule 83: where the schema is asked for without tools, a call in the final round is not asked about again."""
    facts = {"schema_output": True, "protocol": "hybrid"}
    result, bodies, _ = await answer("chat", [call(), call("Bern"), GOOD], hops=0, check=False, facts=facts)
    assert (result.error.code, len(bodies), "tools" in bodies[1]) == ("bad_answer", 2, False)
    assert [(each.name, each.status) for each in result.calls[1:]] == [("get_weather", CallStatus.IGNORED_EXTRA)]
