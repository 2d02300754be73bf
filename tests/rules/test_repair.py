"""Rules 106 to 110 through a real gateway: arguments that are mended, arguments that are not, calls made over and over.

Advice to the model and the running of tools belong to the agent loop, which comes later: here is what a gateway, which
sees one request at a time, does about loops, step caps and failures.
"""

from typing import Any

import pytest

from mustcall.engine.turns import OperatorSettings
from mustcall.policy.facts.controls import Controls, ToolControls
from mustcall.testing import Call, RawStream, Say, Turn
from support.forcing import FAILED, TIME, WAYS, WEATHER, WIRES, Called, Result, Rig, Step, Tool, write_body

MODELS = {"chat": "gpt-4o", "responses": "gpt-4o", "messages": "claude-sonnet-4-6"}
KEY = {"chat": "messages", "responses": "input", "messages": "messages"}
PARIS = {"city": "Paris"}
FINE = Turn(Say("Fine."))
#: Another tool of the same name, apart from case and separators.
TWIN = Tool("getWeather", "city")
MISFIT = "The tool call did not fit its schema: get_weather: {}. Make the call again."
NOTICE = "No more tools can be called for this. Answer now with what you have."

ways = pytest.mark.parametrize(("wire", "stream"), WAYS)
wires = pytest.mark.parametrize("wire", WIRES)


def request(wire: str, *steps: Step | str, **options: Any) -> dict[str, Any]:
    """A request to the wire's usual model that offers one tool."""
    given: dict[str, Any] = {"model": MODELS[wire], "tools": (WEATHER,)} | options
    return write_body(wire, *(steps or ("Weather?",)), **given)


def reminded(wire: str, body: dict[str, Any], text: str, **fields: Any) -> dict[str, Any]:
    """The body with a user turn of ours at its tail."""
    turn: dict[str, Any] = {"role": "user", "content": text}
    if wire == "responses":
        turn = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return {**body, KEY[wire]: [*body[KEY[wire]], turn], **fields}


# --- rule 106 ---------------------------------------------------------------------------------------------------------


@ways
@pytest.mark.parametrize("name", ["get-weather", "GetWeather", "GET_WEATHER"])
def test_names_and_keys_map_to_the_only_one_they_can_mean(wire: str, stream: bool, name: str) -> None:
    """Rule 106: a name and a key that differ in case or separators only are those of the schema, and it is said."""
    asked = request(wire, stream=stream)
    with Rig(Turn(Call(name, {"City": "Paris"})), upstream=wire) as rig:
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked]
    assert (got.calls, got.finish) == ((("get_weather", PARIS),), "tool_calls")
    assert got.adaptations == ["arguments_coerced:get_weather:key_spelling", "name_mapped:get_weather"]


@wires
def test_exact_names_win(wire: str) -> None:
    """Rule 106: of two tools that differ in case only, the one that is named exactly is called."""
    asked = request(wire, tools=(WEATHER, TWIN))
    with Rig(Turn(Call("getWeather", PARIS)), Turn(Call("get_weather", PARIS)), upstream=wire) as rig:
        made = [rig.ask(wire, asked) for _ in range(2)]
        assert rig.bodies == [asked] * 2
    assert [(got.calls, got.adaptations) for got in made] == [
        ((("getWeather", PARIS),), []),
        ((("get_weather", PARIS),), []),
    ]


@ways
def test_ambiguous_names_are_not_repaired(wire: str, stream: bool) -> None:
    """Rule 106: a name that two tools could mean is none; the call is discarded, and asked for again without it."""
    asked = request(wire, tools=(WEATHER, TWIN), stream=stream)
    with Rig(*[Turn(Call("GetWeather", PARIS))] * 3, upstream=wire) as rig:
        got = rig.ask(wire, asked)
        reminder = "That tool does not exist. Use one of the tools on offer."
        assert rig.bodies == [asked, asked, reminded(wire, asked, reminder)]
    assert (got.status, got.calls) == (FAILED[wire], ())
    assert got.error["message"].startswith("UnknownToolCalled: ")
    assert got.outcome == ("failure", "3", "none", "unknown_tool,unknown_tool,unknown_tool")


@wires
def test_snapshots_of_arguments_give_the_last_one(wire: str) -> None:
    """Rule 106: a server that streams ever fuller complete objects means the last of them."""
    tool = Tool("get_weather", "city")
    asked = request(wire, tools=(tool,), stream=True)
    snapshots = '{"city":"Paris"}{"city":"Paris","days":2}{"city":"Paris","days":2}'
    with Rig(Turn(Call("get_weather", snapshots)), upstream=wire) as rig:
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked]
    assert got.calls == (("get_weather", {"city": "Paris", "days": 2}),)
    assert "arguments_read:get_weather:snapshots" in got.adaptations


@wires
def test_contradicting_snapshots_are_no_call(wire: str) -> None:
    """Rule 106: objects that contradict each other are a misfit; to pick one would be a guess."""
    asked = request(wire, stream=True)
    with Rig(Turn(Call("get_weather", '{"city":"Paris"}{"city":"Rome"}')), FINE, upstream=wire) as rig:
        got = rig.ask(wire, asked)
        problem = MISFIT.format("top level: one JSON object, not several")
        assert rig.bodies == [asked, reminded(wire, asked, problem)]
    assert (got.text, got.calls) == ("Fine.", ())


# --- rule 107 ---------------------------------------------------------------------------------------------------------


@ways
def test_unreadable_arguments_never_become_an_empty_object(wire: str, stream: bool) -> None:
    """Rule 107: arguments that cannot be read are asked for once more, then an error; nothing is invented."""
    asked = request(wire, stream=stream, tools=(Tool("get_weather", "city"),))
    for tool in asked["tools"]:
        schema = tool.get("parameters") or tool.get("input_schema") or tool["function"]["parameters"]
        del schema["required"]  # so that an invented `{}` would fit
    with Rig(*[Turn(Call("get_weather", "city=Paris"))] * 2, upstream=wire) as rig:
        got = rig.ask(wire, asked)
        problem = MISFIT.format("top level: valid JSON")
        assert rig.bodies == [asked, reminded(wire, asked, problem)]
    assert (got.status, got.calls) == (FAILED[wire], ())
    assert got.error["message"].startswith("BadArguments: ")
    assert got.outcome == ("failure", "2", "none", "bad_arguments,bad_arguments")


@ways
def test_an_empty_object_of_the_models_own_is_valid(wire: str, stream: bool) -> None:
    """Rule 107: `{}` is delivered as it is where the schema requires nothing, and only there."""
    asked = request(wire, stream=stream)
    strict = request(wire, stream=stream)
    for tool in asked["tools"]:
        schema = tool.get("parameters") or tool.get("input_schema") or tool["function"]["parameters"]
        schema.update(properties={}, required=[])
    with Rig(*[Turn(Call("get_weather", {}))] * 2, Turn(Call("get_weather", PARIS)), upstream=wire) as rig:
        free, bound = rig.ask(wire, asked), rig.ask(wire, strict)
        problem = MISFIT.format("city: string, required")
        assert rig.bodies == [asked, strict, reminded(wire, strict, problem)]
    assert (free.calls, free.adaptations) == ((("get_weather", {}),), [])
    assert bound.calls == (("get_weather", PARIS),)


# --- rule 108 ---------------------------------------------------------------------------------------------------------


def rounds(count: int, *, output: str = "Rain {}.") -> list[Step]:
    """So many rounds of one call, its keys in another order each time."""
    steps: list[Step] = []
    for number in range(count):
        pairs = [("city", "Paris"), ("days", 2)]
        arguments = dict(pairs if number % 2 else reversed(pairs))
        call = Called(f"c{number}", "get_weather", arguments)
        steps += [call, Result(f"c{number}", output.format(number))]
    return steps


AGAIN = Call("get_weather", {"city": "Paris", "days": 2})


def blocking(times: int, name: str = "get_weather") -> OperatorSettings:
    """An operator who blocks a tool's loop."""
    return OperatorSettings(controls=Controls(tools={name: ToolControls(loop_block=times)}))


@wires
def test_the_third_same_call_in_a_row_is_reported(wire: str) -> None:
    """Rule 108: the third round of a call is reported, whatever the order of its keys, and delivered all the same.

    The advice to the model is the agent loop's, which comes later.
    """
    bodies = [request(wire, "Weather?", *rounds(count)) for count in range(4)]
    with Rig(*[Turn(AGAIN)] * 4, upstream=wire) as rig:
        seen = [rig.ask(wire, body) for body in bodies]
        assert rig.bodies == bodies
    assert [got.adaptations for got in seen] == [[], [], ["reported:looping"], ["reported:looping"]]
    assert [got.calls for got in seen] == [(("get_weather", {"city": "Paris", "days": 2}),)] * 4


@ways
def test_a_blocked_loop_is_an_error(wire: str, stream: bool) -> None:
    """Rule 108: past the tool's own limit the call is not delivered, and nothing more is tried."""
    below, above = (request(wire, "Weather?", *rounds(count), stream=stream) for count in (2, 3))
    with Rig(Turn(AGAIN), Turn(AGAIN), upstream=wire, operator=blocking(4)) as rig:
        free, blocked = rig.ask(wire, below), rig.ask(wire, above)
        assert rig.bodies == [below, above]
    assert len(free.calls) == 1
    assert (blocked.status, blocked.calls) == (FAILED[wire], ())
    assert blocked.error["message"].startswith("LoopBlocked: ")
    assert blocked.outcome == ("failure", "1", "none", "looping")


@wires
def test_the_same_output_twice_can_block(wire: str) -> None:
    """Rule 108: two rounds with the same output are reported at once, and blocked where the tool says so."""
    same, other = (request(wire, "Weather?", *rounds(2, output=output)) for output in ("Rain.", "Rain {}."))
    quiet = OperatorSettings(controls=Controls(tools={"get_weather": ToolControls(loop_advice=0)}))
    told = OperatorSettings(controls=Controls(tools={"get_weather": ToolControls(loop_advice=0, loop_block_same=True)}))
    with Rig(Turn(AGAIN), upstream=wire, operator=quiet) as rig:
        reported = rig.ask(wire, same)
        assert rig.bodies == [same]
    with Rig(Turn(AGAIN), Turn(AGAIN), upstream=wire, operator=told) as rig:
        blocked, free = rig.ask(wire, same), rig.ask(wire, other)
        assert rig.bodies == [same, other]
    assert (len(reported.calls), reported.adaptations) == (1, ["reported:looping"])
    assert (blocked.status, blocked.calls, blocked.outcome[3]) == (FAILED[wire], (), "looping")
    assert blocked.error["message"].startswith("LoopBlocked: ")
    assert (len(free.calls), free.adaptations) == (1, [])


@wires
def test_settings_are_per_tool_and_rounds_count_once(wire: str) -> None:
    """Rule 108: another tool's block is not this one's, and the same call twice in one round is one round of it."""
    asked = request(wire, "Weather?", *rounds(1), tools=(WEATHER, TIME))
    with Rig(Turn(AGAIN, AGAIN), upstream=wire, operator=blocking(2, "get_time")) as rig:
        other = rig.ask(wire, asked)
        assert rig.bodies == [asked]
    with Rig(Turn(AGAIN, AGAIN), upstream=wire, operator=blocking(3)) as rig:
        once = rig.ask(wire, asked)
    with Rig(Turn(AGAIN, AGAIN), upstream=wire, operator=blocking(2)) as rig:
        own = rig.ask(wire, asked)
        assert rig.bodies == [asked]
    assert [(len(got.calls), got.adaptations) for got in (other, once)] == [(2, []), (2, [])]
    assert (own.status, own.calls, own.outcome[3]) == (FAILED[wire], (), "looping")


@wires
def test_a_new_user_message_starts_the_count_anew(wire: str) -> None:
    """Rule 108: in a row means since the user last spoke."""
    asked = request(wire, "Weather?", *rounds(3), "And now?")
    with Rig(Turn(AGAIN), upstream=wire, operator=blocking(2)) as rig:
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked]
    assert (len(got.calls), got.adaptations) == (1, [])


# --- rule 109 ---------------------------------------------------------------------------------------------------------


@ways
def test_at_the_step_cap_nothing_may_be_called(wire: str, stream: bool) -> None:
    """Rule 109: the last request carries `none` and a notice; a call made anyway is not delivered.

    Who counts the steps of a whole run is the agent loop, which comes later; a gateway counts the rounds it is shown.
    """
    below, at_cap = (request(wire, "Weather?", *rounds(count), stream=stream) for count in (1, 2))
    none = {"type": "none"} if wire == "messages" else "none"
    capped = OperatorSettings(controls=Controls(step_cap=2))
    with Rig(Turn(AGAIN), Turn(Say("It rains."), AGAIN), upstream=wire, operator=capped) as rig:
        free, last = rig.ask(wire, below), rig.ask(wire, at_cap)
        assert rig.bodies == [below, reminded(wire, at_cap, NOTICE, tool_choice=none)]
    assert len(free.calls) == 1
    assert (last.text, last.calls, last.finish) == ("It rains.", (), "stop")
    assert last.adaptations[:2] == ["reported:tool_choice", "directive_added:messages"]


def test_the_step_cap_outranks_a_force() -> None:
    """Rules 10, 109: at the cap the caller's own force is dropped, and said to be."""
    asked = request("chat", "Weather?", *rounds(2), choice="get_weather")
    with Rig(FINE, upstream="chat", operator=OperatorSettings(controls=Controls(step_cap=2))) as rig:
        got = rig.ask("chat", asked)
        assert rig.bodies == [reminded("chat", asked, NOTICE, tool_choice="none")]
    assert got.adaptations[0] == "force_dropped:tool_choice"


def test_a_call_and_nothing_else_at_the_cap_is_no_answer() -> None:
    """Rules 38, 109: a reply that is empty without its call is asked for again, in bounds."""
    asked = request("chat", "Weather?", *rounds(2))
    capped = reminded("chat", asked, NOTICE, tool_choice="none")
    with Rig(Turn(AGAIN), FINE, upstream="chat", operator=OperatorSettings(controls=Controls(step_cap=2))) as rig:
        got = rig.ask("chat", asked)
        assert rig.bodies == [capped, reminded("chat", capped, "The reply was empty. Please answer.")]
    assert (got.text, got.calls) == ("Fine.", ())


# --- rule 110 ---------------------------------------------------------------------------------------------------------


@wires
def test_feedback_is_one_neutral_line(wire: str) -> None:
    """Rule 110: what the model is told about a misfit is one line that names the field and quotes nothing.

    Failures inside tools are the agent loop's, which comes later.
    """
    asked = request(wire)
    bad = Turn(Say("Sure, secret plan."), Call("get_weather", {"city": {"secret": "value"}}))
    with Rig(bad, Turn(Call("get_weather", PARIS)), upstream=wire) as rig:
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked, reminded(wire, asked, MISFIT.format("city: string"))]
        assert b"secret" not in rig.requests[1].raw
    assert got.calls == (("get_weather", PARIS),)
    assert got.text == ""


def test_arguments_that_arrive_only_at_the_end_count() -> None:
    """Rules 106, 127: a server that sends a call's arguments in its last event makes a whole call."""
    start = b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"gpt-4o","choices":[{"index":0,'
    chunks = [
        start + b'"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"c1","type":"function",'
        b'"function":{"name":"get_weather"}}]},"finish_reason":null}]}\n\n',
        start + b'"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"city\\":\\"Paris\\"}"}}]},'
        b'"finish_reason":"tool_calls"}]}\n\n',
        b"data: [DONE]\n\n",
    ]
    asked = request("chat", stream=True)
    with Rig(RawStream(chunks), upstream="chat") as rig:
        got = rig.ask("chat", asked)
        assert rig.bodies == [asked]
    assert (got.calls, got.finish) == ((("get_weather", PARIS),), "tool_calls")
