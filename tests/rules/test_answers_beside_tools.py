"""Rules 81, 84, 86, 91 through the gateway: tools and a structured answer in one request, on upstreams that cannot.

Every caller's wire, whole and streamed, by the official SDKs; exact bodies upstream.
"""

import json
from typing import Any

import pytest

from mustcall.engine.turns import OperatorSettings
from mustcall.policy.facts.wording import Wording, fill
from mustcall.profiles import read_overrides
from mustcall.testing import Call, Fail, Say, Think, Turn
from support.forcing import FAILED, WAYS, WEATHER, Called, Got, Result, Rig, Step, expect_body, write_body

ways = pytest.mark.parametrize(("wire", "stream"), WAYS, ids=[f"{w}-{'stream' if s else 'whole'}" for w, s in WAYS])
WORDS = Wording()
MODEL = "some-model"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}
FORMATS: dict[str, dict[str, Any]] = {
    "chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA}}},
    "responses": {"text": {"format": {"type": "json_schema", "name": "weather", "schema": SCHEMA}}, "store": False},
    "messages": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
}
GOOD = '{"city":"Oslo","degrees":21}'
BAD = '{"city":"Oslo"}'
PROBLEM = "degrees: integer, required"
NO_JSON = "top level: valid JSON"
ASKED = fill(WORDS.answer_as_json, schema=json.dumps(SCHEMA, separators=(",", ":"), sort_keys=True))
DONE: tuple[Step | str, ...] = ("Weather?", Called("c_0", "get_weather", {"city": "Oslo"}), Result("c_0", "21"))

#: What is known of an upstream that takes tools, and schemas, and not both.
APART = {"schema_with_tools": False, "protocol": "native", "forced": "ignored", "reasoning": "never"}
ANSWER = Turn(Say("Here:"), Call("answer", GOOD))


def operator(**facts: Any) -> OperatorSettings:
    """An operator who says these facts about every model."""
    return OperatorSettings(overrides=read_overrides([facts]))


def answer_tool(wire: str) -> dict[str, Any]:
    """The tool that takes the answer, as a request offers it."""
    function = {"name": "answer", "description": WORDS.answer_tool, "parameters": SCHEMA}
    return {
        "chat": {"type": "function", "function": function},
        "responses": {"type": "function", **function, "strict": False},
        "messages": {"name": "answer", "description": WORDS.answer_tool, "input_schema": SCHEMA},
    }[wire]


def asking(wire: str, stream: bool, *steps: Step | str, **fields: Any) -> dict[str, Any]:
    """A request with a tool and a schema."""
    return write_body(
        wire, *(steps or ("Weather?",)), model=MODEL, tools=[WEATHER], stream=stream, **{**FORMATS[wire], **fields}
    )


def sent(wire: str, stream: bool, *steps: Step | str, **fields: Any) -> dict[str, Any]:
    """The same without the schema, as it goes to an upstream of the same wire."""
    body = expect_body(wire, wire, *(steps or ("Weather?",)), model=MODEL, tools=[WEATHER], stream=stream, **fields)
    return body | ({"store": False} if wire == "responses" else {})


def through_a_tool(wire: str, stream: bool) -> dict[str, Any]:
    """What is sent where the answer is asked for through a tool."""
    body = sent(wire, stream)
    return body | {"tools": [*body["tools"], answer_tool(wire)]}


def reminded(wire: str, body: dict[str, Any], text: str) -> dict[str, Any]:
    """The body with a user turn of ours at its tail."""
    turn: dict[str, Any] = {"role": "user", "content": text}
    if wire == "responses":
        turn = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    turns = "input" if wire == "responses" else "messages"
    return {**body, turns: [*body[turns], turn]}


@ways
def test_both_at_once_stay_byte_equal(wire: str, stream: bool) -> None:
    """Rule 86: on an upstream that does both, and on one of which nothing is known, the request is the caller's own."""
    for facts in ({"schema_with_tools": True, "schema_output": True}, {"name_length": 64}):
        with Rig(Turn(Say(GOOD)), upstream=wire, operator=operator(**facts)) as rig:
            got = rig.ask(wire, asking(wire, stream))
        assert rig.bodies == [asking(wire, stream)]
        assert (got.text, got.calls, got.adaptations) == (GOOD, (), [])


@ways
def test_a_tool_takes_the_answer(wire: str, stream: bool) -> None:
    """Rule 91: where both do not go together the schema is that of a tool, and its call is the answer's text."""
    with Rig(ANSWER, upstream=wire, operator=operator(**APART)) as rig:
        got = rig.ask(wire, asking(wire, stream, *DONE))
    expected = sent(wire, stream, *DONE)
    assert rig.bodies == [expected | {"tools": [*expected["tools"], answer_tool(wire)]}]
    assert (got.text, got.calls, got.finish in ("stop", "end_turn", "completed")) == (GOOD, (), True)
    assert got.outcome[0] == "answer"


@ways
def test_a_call_goes_to_the_caller(wire: str, stream: bool) -> None:
    """Rule 81: the tool phase comes first: an offered tool's call is delivered, an answer beside it is not."""
    both = Turn(Call("get_weather", {"city": "Oslo"}), Call("answer", GOOD))
    for turn in (Turn(Call("get_weather", {"city": "Oslo"})), both):
        with Rig(turn, upstream=wire, operator=operator(**APART)) as rig:
            got = rig.ask(wire, asking(wire, stream))
        assert got.calls == (("get_weather", {"city": "Oslo"}),)
        assert (got.text, len(rig.bodies)) == ("", 1)


@ways
def test_asked_again_with_its_problem(wire: str, stream: bool) -> None:
    """Rule 91: an answer that does not fit, given or written, is asked for again; nothing of it reaches the caller."""
    bad = Turn(Call("answer", BAD)), Turn(Say("It is 21 degrees.")), ANSWER
    with Rig(*bad, upstream=wire, operator=operator(**APART)) as rig:
        got = rig.ask(wire, asking(wire, stream))
    again, prose = (fill(WORDS.answer_again, problem=each, tool="answer") for each in (PROBLEM, NO_JSON))
    base = through_a_tool(wire, stream)
    assert rig.bodies == [base, reminded(wire, base, again), reminded(wire, base, prose)]
    assert (got.text, got.outcome[1]) == (GOOD, "3")


@ways
def test_spent(wire: str, stream: bool) -> None:
    """Rule 91: two retries, then the typed error with the real count."""
    with Rig(*[Turn(Call("answer", BAD))] * 3, upstream=wire, operator=operator(**APART)) as rig:
        got = rig.ask(wire, asking(wire, stream))
    base = through_a_tool(wire, stream)
    again = reminded(wire, base, fill(WORDS.answer_again, problem=PROBLEM, tool="answer"))
    assert (got.status, rig.bodies) == (FAILED[wire], [base, again, again])
    assert "StructuredOutputError" in got.error["message"]
    assert "3 attempts made" in got.error["message"]


@ways
def test_the_schema_alone_the_second_time(wire: str, stream: bool) -> None:
    """Rule 84: where the upstream has schema output without tools, the one re-prompt uses that."""
    facts = APART | {"schema_output": True}
    with Rig(Turn(Say("Warm.")), Turn(Say(GOOD)), upstream=wire, operator=operator(**facts)) as rig:
        got = rig.ask(wire, asking(wire, stream))
    alone = sent(wire, stream) | FORMATS[wire]
    del alone["tools"]
    told = fill(WORDS.bad_answer, problem=NO_JSON)
    assert rig.bodies == [through_a_tool(wire, stream), reminded(wire, alone, told)]
    assert got.text == GOOD


@pytest.mark.parametrize("given", [BAD, "It is 21 degrees."], ids=["misfit", "prose"])
@ways
def test_a_providers_schema_is_asked_for_twice_more(wire: str, stream: bool, given: str) -> None:
    """Rule 91: with a schema the upstream takes, an answer that does not fit gets two retries, then the typed error.

    A stream is held for it: what was shown is not taken back (rule 135).
    """
    facts = {"schema_with_tools": True, "schema_output": True, "protocol": "native", "reasoning": "never"}
    with Rig(*[Turn(Say(given))] * 3, upstream=wire, operator=operator(**facts)) as rig:
        got = rig.ask(wire, asking(wire, stream), {"x-mustcall-hold": "true"})
    problem = PROBLEM if given == BAD else NO_JSON
    again = reminded(wire, asking(wire, stream), fill(WORDS.bad_answer, problem=problem))
    assert (got.status, rig.bodies) == (FAILED[wire], [asking(wire, stream), again, again])
    assert "StructuredOutputError" in got.error["message"]
    assert "3 attempts made" in got.error["message"]


@ways
def test_required_where_that_works(wire: str, stream: bool) -> None:
    """Rule 91: the answer is a call as well, so some call is required where that is obeyed."""
    with Rig(ANSWER, upstream=wire, operator=operator(**APART | {"forced": "always"})) as rig:
        got = rig.ask(wire, asking(wire, stream))
    assert rig.bodies[0]["tool_choice"] == ({"type": "any"} if wire == "messages" else "required")
    assert (got.text, got.outcome[2]) == (GOOD, "none")


@ways
def test_words_where_tools_are_text(wire: str, stream: bool) -> None:
    """Rules 84, 86: under `prompt` the schema is put in words; a fence is taken off, and one re-prompt made.

    Where a schema may be taken, the re-prompt is held to it (`tests/probe/test_real_server.py`).
    """
    facts = APART | {"protocol": "prompt", "schema_output": False}
    script = Turn(Say("Warm.")), Turn(Say(f"```json\n{GOOD}\n```"))
    with Rig(*script, upstream=wire, operator=operator(**facts)) as rig:
        rig.comparing.leave("the whole rendering is compared in test_tools_as_text")
        got = rig.ask(wire, asking(wire, stream, **({"store": False} if wire == "responses" else {})))
    assert all(json.dumps(ASKED)[1:-1] in json.dumps(body) for body in rig.bodies)
    assert all(not FORMATS[wire].keys() - {"store"} & body.keys() for body in rig.bodies)
    assert (got.text, got.outcome[1]) == (GOOD, "2")
    with Rig(*[Turn(Say("Warm."))] * 2, upstream=wire, operator=operator(**facts)) as rig:
        rig.comparing.leave("as above")
        got = rig.ask(wire, asking(wire, stream))
    assert (got.status, len(rig.bodies)) == (FAILED[wire], 2)


@ways
def test_a_text_call_before_the_answer(wire: str, stream: bool) -> None:
    """Rule 81: under `prompt` an envelope is a call for the caller, never the answer."""
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    with Rig(Turn(Say(call)), upstream=wire, operator=operator(**APART | {"protocol": "prompt"})) as rig:
        got = rig.ask(wire, asking(wire, stream))
    assert (got.text, got.calls) == ("", (("get_weather", {"city": "Oslo"}),))


@ways
def test_nothing_may_be_called(wire: str, stream: bool) -> None:
    """Under `none` the schema goes alone; where the upstream has none, in words."""
    choice = {"type": "none"} if wire == "messages" else "none"
    for facts, alone in ((APART | {"schema_output": True}, True), (APART, False)):
        with Rig(Turn(Say(GOOD)), upstream=wire, operator=operator(**facts)) as rig:
            got = rig.ask(wire, asking(wire, stream, tool_choice=choice))
        assert ("tools" not in rig.bodies[0]) is alone
        assert (FORMATS[wire].items() <= rig.bodies[0].items()) is alone
        assert got.text == GOOD


@ways
def test_a_demanded_call_leaves_the_schema_for_later(wire: str, stream: bool) -> None:
    """A forced turn has no answer: the schema is left out where it does not go with tools."""
    choice = {"type": "any"} if wire == "messages" else "required"
    turn = Turn(Call("get_weather", {"city": "Oslo"}))
    with Rig(turn, upstream=wire, operator=operator(**APART | {"forced": "always"})) as rig:
        got = rig.ask(wire, asking(wire, stream, tool_choice=choice))
    assert rig.bodies == [sent(wire, stream, tool_choice=choice)]
    assert got.calls == (("get_weather", {"city": "Oslo"}),)


REFUSALS = (
    "json mode cannot be combined with tool/function calling",
    "Function calling with a response mime type: 'application/json' is unsupported",
    "This response_format type is unavailable now",
)


@pytest.mark.parametrize("message", REFUSALS)
@ways
def test_learnt_from_a_refusal(wire: str, stream: bool, message: str) -> None:
    """Rule 33: an upstream that says it cannot do both is asked the other way, and remembered."""
    with Rig(Fail(400, message), ANSWER, ANSWER, upstream=wire) as rig:
        got = [rig.ask(wire, asking(wire, stream)) for _ in range(2)]
    assert [each.text for each in got] == [GOOD, GOOD]
    assert rig.received == [asking(wire, stream), *[through_a_tool(wire, stream)] * 2]


@ways
def test_across_wires(wire: str, stream: bool) -> None:
    """The same for a caller of any wire before a chat upstream; reasoning stays."""
    turn = Turn(Think("hm"), Call("answer", GOOD))
    with Rig(turn, upstream="chat", operator=operator(**APART)) as rig:
        got = rig.ask(wire, asking(wire, stream))
    assert rig.bodies[0]["tools"][1] == answer_tool("chat")
    assert "response_format" not in rig.bodies[0]
    assert (got.text, got.calls) == (GOOD, ())


def test_kept_replies_get_words() -> None:
    """Rule 78: where the upstream keeps the reply, a call of our own would wait for a result for ever: words."""
    with Rig(Turn(Say(GOOD)), upstream="responses", operator=operator(**APART)) as rig:
        got = rig.ask("responses", asking("responses", stream=False, store=True))
    assert [tool["name"] for tool in rig.bodies[0]["tools"]] == ["get_weather"]
    assert rig.bodies[0]["instructions"] == ASKED
    assert got.text == GOOD


def test_names_and_forms_that_are_taken() -> None:
    """A tool called `answer` stays the caller's; an answer that is no object is asked for in words."""
    mine = {"type": "function", "function": {"name": "answer", "parameters": {"type": "object"}}}
    body = asking("chat", stream=False) | {"tools": [mine]}
    with Rig(Turn(Call("final_answer", GOOD)), upstream="chat", operator=operator(**APART)) as rig:
        got: Got = rig.ask("chat", body)
    assert [tool["function"]["name"] for tool in rig.bodies[0]["tools"]] == ["answer", "final_answer"]
    assert got.text == GOOD
    number = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer"}}}
    with Rig(Turn(Say("7")), upstream="chat", operator=operator(**APART)) as rig:
        got = rig.ask("chat", asking("chat", stream=False, response_format=number))
    assert (got.text, "response_format" in rig.bodies[0]) == ("7", False)


@ways
def test_a_refused_force_of_ours(wire: str, stream: bool) -> None:
    """Rules 33, 139: a `required` that only we asked for is left out when it is refused; the caller hears nothing.

    What the operator configured is not overridden by what was learnt: the next turn tries it again.
    """
    refusal = Fail(400, "tool_choice is not supported while thinking mode is on: in thinking mode use auto")
    script = (refusal, ANSWER, refusal, ANSWER)
    with Rig(*script, upstream=wire, operator=operator(**APART | {"forced": "always"})) as rig:
        got = [rig.ask(wire, asking(wire, stream)) for _ in range(2)]
    base = through_a_tool(wire, stream)
    forced = base | {"tool_choice": {"type": "any"} if wire == "messages" else "required"}
    assert rig.received == [forced, base] * 2
    assert [each.text for each in got] == [GOOD, GOOD]


def test_no_room_for_another_tool() -> None:
    """Where the upstream takes no more tools than there are, the schema is put in words."""
    with Rig(Turn(Say(GOOD)), upstream="chat", operator=operator(**APART | {"most_tools": 1})) as rig:
        got = rig.ask("chat", asking("chat", stream=False))
    assert ([tool["function"]["name"] for tool in rig.bodies[0]["tools"]], got.text) == (["get_weather"], GOOD)


def test_an_allowed_set_takes_the_answer_in() -> None:
    """A choice among some tools allows the answer, too."""
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_weather"}]}
    with Rig(ANSWER, upstream="responses", operator=operator(**APART)) as rig:
        got = rig.ask("responses", asking("responses", stream=False, tool_choice=allowed))
    assert [tool["name"] for tool in rig.bodies[0]["tool_choice"]["tools"]] == ["get_weather", "answer"]
    assert got.text == GOOD


def test_a_leaked_answer_call() -> None:
    """Under `hybrid` a call of the answer tool in text is the answer; under `native` it is asked for again."""
    leak = f'<tool_call>{{"name": "answer", "arguments": {GOOD}}}</tool_call>'
    for protocol, count in (("hybrid", 1), ("native", 2)):
        with Rig(Turn(Say(leak)), ANSWER, upstream="chat", operator=operator(**APART | {"protocol": protocol})) as rig:
            got = rig.ask("chat", asking("chat", stream=True))
        assert json.loads(got.text) == json.loads(GOOD)
        assert rig.bodies == [through_a_tool("chat", stream=True)] * count


@pytest.mark.parametrize(
    ("question", "envelope"),
    [
        ("Weather?", '{"name": "get_weather", "arguments": {"city": 3}}'),
        ("Show me the JSON of an example call.", '{"name": "get_weather", "arguments": {"city": "Oslo"}}'),
        ("Show me the JSON of an example call.", '{"calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]}'),
    ],
    ids=["misfit", "shown", "list shown"],
)
def test_an_envelope_is_no_answer(question: str, envelope: str) -> None:
    """Rule 81: JSON that calls an offered tool is asked again, whatever the schema takes and the user asks to see."""
    any_json = {"response_format": {"type": "json_object"}}
    with Rig(Turn(Say(envelope)), Turn(Say('{"a":1}')), upstream="chat", operator=operator(**APART)) as rig:
        got = rig.ask("chat", asking("chat", False, question, **any_json))
    told = {"role": "system", "content": fill(WORDS.answer_as_json, schema='{"type":"object"}')}
    base = sent("chat", False, question)
    first = base | {"messages": [told, *base["messages"]]}
    problem = fill(WORDS.bad_answer, problem="top level: an answer, not a tool call")
    # A call that does not fit went wrong: it is asked for in the same bytes. One that was shown is an answer.
    again = first if question == "Weather?" else reminded("chat", first, problem)
    assert rig.bodies == [first, again]
    assert got.text == '{"a":1}'
