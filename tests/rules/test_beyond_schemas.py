"""Rules 129 to 133 through a real gateway: names and ids, schemas, coercions, cut prompts, announcements."""

import copy
import json
import re
from typing import Any

import pytest

from mustcall.engine.turns import OperatorSettings
from mustcall.policy.facts.controls import Controls
from mustcall.testing import Call, Recorded, RunningGateway, Say, ScriptedUpstream, Turn, Usage
from support.forcing import FAILED, TIME, WAYS, WEATHER, WIRES, Called, Result, Rig, Step, Tool, write_body
from support.gated import KEYS, PATHS
from support.http import post

MODELS = {"chat": "gpt-4o", "responses": "gpt-4o", "messages": "claude-sonnet-4-6"}
KEY = {"chat": "messages", "responses": "input", "messages": "messages"}
PARIS = {"city": "Paris"}
CALL = Turn(Call("get_weather", PARIS))
FINE = Turn(Say("Fine."))
MISFIT = "The tool call did not fit its schema: get_weather: {}. Make the call again."

ways = pytest.mark.parametrize(("wire", "stream"), WAYS)
wires = pytest.mark.parametrize("wire", WIRES)


def request(wire: str, *steps: Step | str, **options: Any) -> dict[str, Any]:
    """A request to the wire's usual model that offers two tools."""
    given: dict[str, Any] = {"model": MODELS[wire], "tools": (WEATHER, TIME)} | options
    return write_body(wire, *(steps or ("Weather?",)), **given)


def reminded(wire: str, body: dict[str, Any], text: str) -> dict[str, Any]:
    """The body with a user turn of ours at its tail."""
    turn: dict[str, Any] = {"role": "user", "content": text}
    if wire == "responses":
        turn = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return {**body, KEY[wire]: [*body[KEY[wire]], turn]}


def with_schema(wire: str, body: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The body whose first tool takes other parameters."""
    body = copy.deepcopy(body)
    tool = body["tools"][0]["function"] if wire == "chat" else body["tools"][0]
    tool["input_schema" if wire == "messages" else "parameters"] = schema
    return body


def replaced(body: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """The body with other words in the place of some, and past arguments in compact JSON."""
    text = json.dumps(body)
    for old, new in names.items():
        text = text.replace(json.dumps(old), json.dumps(new))
    return json.loads(text.replace(r"\": \"", r"\":\""))


# --- rule 129 ---------------------------------------------------------------------------------------------------------


@ways
def test_ids_become_what_the_upstream_accepts(wire: str, stream: bool) -> None:
    """Rule 129: Mistral takes ids of nine letters and digits; calls and results stay paired, the rest is untouched."""
    ids = ("call_one", "functions.get_weather:2")
    steps = [step for one in ids for step in (Called(one, "get_weather", PARIS), Result(one, "Rain."))]
    asked = request(wire, "Weather?", *steps, model="mistral-large-latest", stream=stream)
    with Rig(FINE, FINE, upstream=wire) as rig:
        got = rig.ask(wire, asked)
        rig.ask(wire, asked)
        first, second = rig.bodies
    made = dict.fromkeys(re.findall(r'"(?:id|call_id|tool_use_id)": "([^"]+)"', json.dumps(first)))
    assert len(made) == 2
    assert all(re.fullmatch(r"[a-zA-Z0-9]{9}", one) for one in made)
    assert first == second == replaced(asked, dict(zip(ids, made, strict=True)))
    assert (got.text, got.adaptations) == ("Fine.", ["id_mapped:tool_call"])


def test_ids_that_fit_are_left_alone() -> None:
    """Rules 105, 129: legal ids mean the caller's bytes."""
    steps = (Called("Ab3dEf6h1", "get_weather", PARIS), Result("Ab3dEf6h1", "Rain."))
    asked = json.dumps(request("chat", "Weather?", *steps, model="mistral-large-latest")).encode()
    with Rig(FINE, upstream="chat") as rig:
        assert post(rig.url + PATHS["chat"], asked, KEYS).status == 200
        assert [one.raw for one in rig.requests] == [asked]


@ways
@pytest.mark.parametrize("name", ["files.read/any", "mcp__" + "very_long_" * 9 + "name"], ids=["letters", "length"])
def test_names_are_mapped_there_and_back(wire: str, stream: bool, name: str) -> None:
    """Rule 129: a name the upstream refuses is sent as a legal one everywhere, and comes back as the caller's own."""
    odd = Tool(name, "path")
    asked = request(wire, "Read.", Called("c1", name, {"path": "a"}), Result("c1", "x"), tools=(odd,), stream=stream)
    asked["model"] = "gpt-4o"

    def call_it(got: Recorded) -> Turn:
        tool = got.body["tools"][0]
        return Turn(Call(tool.get("name") or tool["function"]["name"], {"path": "b"}))

    with ScriptedUpstream(call_it, strict=True) as upstream, RunningGateway(f"{wire}={upstream.base_url}") as gateway:
        reply = post(gateway.url + PATHS[wire], asked, KEYS)
        assert len(upstream.requests) == 1
    sent = upstream.requests[0]
    tool = sent.body["tools"][0]
    mapped = tool.get("name") or tool["function"]["name"]
    assert sent.refused_by is None
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", mapped)
    assert sent.body == replaced(asked, {name: mapped})
    assert json.dumps(name).encode() in reply.body
    assert mapped.encode() not in reply.body


# --- rule 130 ---------------------------------------------------------------------------------------------------------

SCHEMA: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "multipleOf": 2}},
    "required": ["city"],
    "additionalProperties": False,
}
#: What is left of it for Gemini: the keywords it refuses are gone.
REDUCED: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}


@ways
def test_dropped_keywords_are_enforced_here(wire: str, stream: bool) -> None:
    """Rule 130: Gemini gets the schema without what it refuses, and the arguments are held to the caller's own."""
    plain = request(wire, model="gemini-2.5-pro", stream=stream)
    asked, sent = with_schema(wire, plain, SCHEMA), with_schema(wire, plain, REDUCED)
    fits = Turn(Call("get_weather", {"city": "Paris", "days": 4}))
    misfits = ({"city": "Paris", "extra": 1}, {"city": "Paris", "days": 3})
    script = [turn for written in misfits for turn in (Turn(Call("get_weather", written)), fits)]
    with Rig(*script, upstream=wire) as rig:
        seen = [rig.ask(wire, asked) for _ in misfits]
        bodies = rig.bodies
    assert bodies[:3] == [sent, reminded(wire, sent, MISFIT.format("top level: no fields but city, days")), sent]
    assert bodies[3:] == [reminded(wire, sent, MISFIT.format("days: a multiple of 2"))]
    for got in seen:
        assert got.calls == (("get_weather", {"city": "Paris", "days": 4}),)
        assert got.adaptations == ["schema_reduced:get_weather", "directive_added:messages"]


@wires
def test_other_upstreams_get_the_schema_as_it_is(wire: str) -> None:
    """Rules 105, 130: where every keyword is taken, the caller's bytes go out."""
    asked = json.dumps(with_schema(wire, request(wire, model="some-model"), SCHEMA)).encode()
    with Rig(CALL, upstream=wire) as rig:
        assert post(rig.url + PATHS[wire], asked, KEYS).status == 200
        assert [one.raw for one in rig.requests] == [asked]


def test_one_bad_tool_never_fails_the_request() -> None:
    """Rule 130: a schema that is none leaves its own tool with less to check, and the others as they are."""
    asked = with_schema("chat", request("chat", model="gemini-2.5-pro"), REDUCED)
    broken: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"$ref": "#/nowhere"}, "b": {"type": "nonsense"}},
        "required": "a",
    }
    rest: dict[str, Any] = {"type": "object", "properties": {"a": {}, "b": {}}}
    sent = copy.deepcopy(asked)
    for body, schema in ((asked, broken), (sent, rest)):
        body["tools"].append({"type": "function", "function": {"name": "broken", "parameters": schema}})
    with Rig(CALL, upstream="chat") as rig:
        got = rig.ask("chat", asked)
        assert rig.bodies == [sent]
    assert (got.calls, got.adaptations) == ((("get_weather", PARIS),), ["schema_reduced:broken"])


# --- rule 131 ---------------------------------------------------------------------------------------------------------

LOOSE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "hot": {"type": "boolean"},
        "where": {"type": "object", "properties": {"lat": {"type": "number"}}},
    },
}
#: What a model wrote, and what it can only mean.
COERCED: list[tuple[str, dict[str, Any]]] = [
    ('{"days":"3"}', {"days": 3}),
    ('{"hot":"true"}', {"hot": True}),
    ('{"where":"{\\"lat\\": 1.5}"}', {"where": {"lat": 1.5}}),
    ('"{\\"days\\": 3}"', {"days": 3}),
    ('""', {}),
    ("null", {}),
    ("", {}),
]
#: What a model wrote that could mean several things, and what it is told.
REFUSED = [
    ('{"days":"3.5"}', "days: integer"),
    ('{"hot":"yes"}', "hot: boolean"),
    ('{"city":3}', "city: string"),
    ("[]", "top level: a JSON object"),
]


@wires
def test_loss_free_coercions_are_made_and_reported(wire: str) -> None:
    """Rule 131: what can mean one thing only is delivered as that, each time with a word about it."""
    asked = with_schema(wire, request(wire, stream=True), LOOSE)
    with Rig(*[Turn(Call("get_weather", written)) for written, _ in COERCED], upstream=wire) as rig:
        seen = [rig.ask(wire, asked) for _ in COERCED]
        assert rig.bodies == [asked] * len(COERCED)
    for (written, meant), got in zip(COERCED, seen, strict=True):
        assert got.calls == (("get_weather", meant),), written
        silent = wire == "messages" and not written  # a Messages call without arguments streams none
        assert [one.rpartition(":")[0] for one in got.adaptations] == (
            [] if silent else ["arguments_coerced:get_weather"]
        ), written


@wires
def test_everything_else_is_a_misfit(wire: str) -> None:
    """Rule 131: what could mean several things is asked for again; nothing is guessed."""
    asked = with_schema(wire, request(wire, stream=True), LOOSE)
    script = [turn for written, _ in REFUSED for turn in (Turn(Call("get_weather", written)), CALL)]
    with Rig(*script, upstream=wire) as rig:
        seen = [rig.ask(wire, asked) for _ in REFUSED]
        expected = [(asked, reminded(wire, asked, MISFIT.format(problem))) for _, problem in REFUSED]
        assert rig.bodies == [body for pair in expected for body in pair]
    assert [got.calls for got in seen] == [(("get_weather", PARIS),)] * len(REFUSED)


# --- rule 132 ---------------------------------------------------------------------------------------------------------

LONG = "Long ago in a land far away. " * 700


@ways
def test_starved_prompts_are_reported(wire: str, stream: bool) -> None:
    """Rule 132: usage far below what the prompt has at least is reported; honest usage and short prompts are not."""
    asked = request(wire, LONG, stream=stream, choice="get_weather")
    starved = Turn(Call("get_weather", PARIS), usage=Usage(input_tokens=2048, output_tokens=5))
    honest = Turn(Call("get_weather", PARIS), usage=Usage(input_tokens=6000, output_tokens=5))
    with Rig(starved, honest, CALL, upstream=wire) as rig:
        seen = [rig.ask(wire, asked), rig.ask(wire, asked), rig.ask(wire, request(wire, stream=stream))]
        assert rig.bodies == [asked, asked, request(wire, stream=stream)]
    assert [got.adaptations for got in seen] == [["reported:starved"], [], []]
    assert {len(got.calls) for got in seen} == {1}


@ways
def test_starved_prompts_are_refused_where_the_operator_says_so(wire: str, stream: bool) -> None:
    """Rule 132: refused, a starved reply is a typed error and is not tried again: the prompt would be cut again."""
    asked = request(wire, LONG, stream=stream, choice="get_weather")
    operator = OperatorSettings(controls=Controls(refuse_starved=True))
    with Rig(CALL, upstream=wire, operator=operator) as rig:
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked]
    assert (got.status, got.calls, got.outcome[3]) == (FAILED[wire], (), "starved")
    assert got.error["message"].startswith("StarvedPrompt: ")


# --- rule 133 ---------------------------------------------------------------------------------------------------------

ANNOUNCED = "I'll call get_weather for Paris now."


@wires
def test_an_announcement_without_a_force_is_only_reported(wire: str) -> None:
    """Rule 133: the text is the answer, untouched; one upstream call."""
    asked = request(wire)
    with Rig(Turn(Say(ANNOUNCED)), upstream=wire) as rig:
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked]
    assert (got.text, got.calls, got.outcome[3]) == (ANNOUNCED, (), "announced_only")
    assert got.adaptations == ["reported:announced_only"]


@ways
def test_an_announcement_under_a_force_is_a_missed_force(wire: str, stream: bool) -> None:
    """Rule 133: with a force active the words count for nothing: the call itself is asked for."""
    asked = request(wire, choice="get_weather", stream=stream)
    with Rig(Turn(Say(ANNOUNCED)), CALL, upstream=wire) as rig:
        got = rig.ask(wire, asked)
        first, second = rig.bodies
    assert first == asked
    demand = "The tool `get_weather` has not been called yet. Call it now, before anything else."
    kept: dict[str, Any] = {"role": "assistant", "content": ANNOUNCED}
    if wire == "responses":
        content: list[dict[str, Any]] = [{"type": "output_text", "text": ANNOUNCED, "annotations": [], "logprobs": []}]
        kept = {"type": "message", "role": "assistant", "content": content}
    assert second == reminded(wire, {**asked, KEY[wire]: [*asked[KEY[wire]], kept]}, demand)
    assert (got.text, got.calls) == ("", (("get_weather", PARIS),))
    assert got.outcome[2:] == ("met", "force_missed,called")
