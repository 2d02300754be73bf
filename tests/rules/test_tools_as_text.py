"""Tools and calls as text (rules 55, 58 and 72): how they are rendered, and what a call read from text becomes.

What is rendered is compared as whole upstream bodies, written by hand.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mustcall.core.tools import Tool as CoreTool
from mustcall.dialects import Prompt
from mustcall.engine.turns import OperatorSettings
from mustcall.profiles import read_overrides
from mustcall.testing import Call, Say, Turn
from rules.driving import GRID, PROMPT, WAYS, WORDS, Stage, prompted, request
from rules.forms import HERMES
from support.forcing import WIRES, Called, Result, User

Json = dict[str, Any]

HERMES_TIME = '<tool_call>\n{"name": "get_time", "arguments": {"zone": "CET"}}\n</tool_call>'
TEXT_CALL = Turn(Say(HERMES))
GOOD = Turn(Call("get_weather", {"city": "Paris"}))
NO = Turn(Say("No."))
CALLED = (("get_weather", {"city": "Paris"}),)

OVERRIDES = [
    {"models": ["mine-native*"], "protocol": "native"},
    {"models": ["mine-prompt*"], "protocol": "prompt"},
    {"models": ["mine-hybrid*"], "protocol": "hybrid"},
    {"models": ["narrow*"], "protocol": "prompt", "prompt_limit": len(PROMPT) - 1},
]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One upstream behind three gateways."""
    with Stage(OperatorSettings(overrides=read_overrides(OVERRIDES)), compares=True) as opened:
        yield opened


# --- rule 72 ---------------------------------------------------------------------------------------------------------

_RICH: Json = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "description": "Who gets it"},
        "kind": {"enum": ["letter", "parcel"]},
        "grams": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["to", "grams"],
}
_RENDERED = """## send
Sends something.
Parameters:
- to (string, required): Who gets it
- kind (one of "letter", "parcel", optional)
- grams (integer, required)
- tags ({"type": "array", "items": {"type": "string"}}, optional)

## now
Parameters: none"""


def test_rendering_of_tools(stage: Stage) -> None:
    """Rule 72: every tool is rendered with name, description, and parameters with type and required mark."""
    body = request("chat", model="mine-prompt-1")
    body["tools"] = [
        {"type": "function", "function": {"name": "send", "description": "Sends something.", "parameters": _RICH}},
        {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
    ]
    stage.play(NO).ask("chat", body)
    listed = PROMPT[: PROMPT.index("## get_weather")] + _RENDERED
    assert stage.bodies == [prompted("chat", model="mine-prompt-1", system=listed)]


@pytest.mark.parametrize("choice", [None, "get_time"])
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_tools_that_do_not_fit_are_named(stage: Stage, wire: str, stream: bool, choice: str | None) -> None:
    """Rules 19, 72: past the profile's limit tools are only named, the text says so; a demanded one is described."""
    head, weather, time = PROMPT.partition("## get_weather")[0], "## get_weather", "## get_time"
    first, last = PROMPT[PROMPT.index(weather) : PROMPT.index(time) - 2], PROMPT[PROMPT.index(time) :]
    shown, cut = (first, "get_time") if choice is None else (last, "get_weather")
    text = f"{head}{shown}\n\nNot listed for lack of space: {cut}."
    asked = request(wire, stream=stream, model="narrow-1", choice=choice)
    outcome = stage.play(TEXT_CALL if choice is None else Turn(Say(HERMES_TIME))).ask(wire, asked)
    directive = [] if choice is None else [WORDS.call_named[0].format(tool=choice)]
    streams = stream or choice is not None  # rule 137
    assert stage.bodies == [prompted(wire, *directive, stream=streams, model="narrow-1", system=text)]
    assert len(outcome.calls) == 1
    assert f"tool_reshaped:{cut}" in outcome.adaptations or stream


def test_rendering_says_what_it_cut() -> None:
    """Rule 72: a rendering that has to leave tools out names them, in the text and in its result."""
    tools = [CoreTool(name=f"tool_{number}", description="x" * 200, parameters={}) for number in range(9)]
    whole = Prompt("hermes").system(tools)
    assert whole.cut == ()
    short = Prompt("hermes").system(tools, limit=len(whole.text) - 100)
    assert short.cut
    assert len(short.text) <= len(whole.text) - 100
    for name in short.cut:
        assert f"## {name}" not in short.text
        assert name in short.text.rpartition("Not listed for lack of space: ")[2]


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_history_in_the_same_grammar(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 72: calls and results already in the history are rendered in the grammar of the system prompt."""
    steps = (User("Weather?"), Called("call_1", "get_weather", {"city": "Rome"}), Result("call_1", "Rain."))
    stage.play(Turn(Say("Rain."))).ask(wire, request(wire, *steps, stream=stream, model="mine-prompt-1"))
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    result = "<tool_response>\nRain.\n</tool_response>"
    expected = prompted(wire, stream=stream, model="mine-prompt-1")
    if wire == "responses":
        expected["input"] = [
            {"role": "user", "content": "Weather?"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": call}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": result}]},
        ]
    else:
        expected["messages"][-1:] = [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": call},
            {"role": "user", "content": result},
        ]
    assert stage.bodies == [expected]


@pytest.mark.parametrize(
    ("model", "example", "call"),
    [
        ("claude-2.1", '<invoke name="TOOL_NAME">', '<invoke name="get_weather">'),
        ("gemma-3-27b-it", "TOOL_NAME(PARAMETER='VALUE')", "get_weather(city='Rome')"),
    ],
)
def test_one_grammar_per_model(stage: Stage, model: str, example: str, call: str) -> None:
    """Rule 72: a model with a grammar of its own sees that one, in the system prompt and in the history alike."""
    steps = (User("Weather?"), Called("call_1", "get_weather", {"city": "Rome"}), Result("call_1", "Rain."))
    stage.play(Turn(Say("Rain."))).ask("chat", request("chat", *steps, model=model))
    (body,) = stage.bodies
    assert [turn["role"] for turn in body["messages"]] == ["system", "user", "assistant", "user"]
    assert example in body["messages"][0]["content"]
    assert call in body["messages"][2]["content"]
    assert b"<tool_call>" not in stage.sent[0].raw


# --- rule 55 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["call first", "text first"])
@pytest.mark.parametrize("protocol", ["native", "prompt", "hybrid"])
@pytest.mark.parametrize(("caller", "upstream", "stream"), GRID)
def test_native_calls_win(*, stage: Stage, caller: str, upstream: str, stream: bool, protocol: str, order: str) -> None:
    """Rule 55: beside a native call a valid text call is none, under every protocol; its markup is gone."""
    call = Call("get_weather", {"city": "Paris"})
    turn = Turn(call, Say(HERMES_TIME)) if order == "call first" else Turn(Say(HERMES_TIME), call)
    model = f"mine-{protocol}"
    outcome = stage.play(turn).ask(caller, request(caller, model=model, stream=stream), upstream)
    assert len(stage.bodies) == 1
    assert (outcome.error, outcome.text, outcome.calls, outcome.finish) == ({}, "", CALLED, "calls")
    assert b"tool_call>" not in outcome.raw


@pytest.mark.parametrize("protocol", ["prompt", "hybrid"])
@pytest.mark.parametrize("wire", WIRES)
def test_text_is_read_where_there_is_no_native_call(stage: Stage, wire: str, protocol: str) -> None:
    """Rule 55: the same text alone is the call."""
    outcome = stage.play(Turn(Say(HERMES_TIME))).ask(wire, request(wire, model=f"mine-{protocol}"))
    assert len(stage.bodies) == 1
    assert outcome.calls == (("get_time", {"zone": "CET"}),)


# --- rule 58 ----------------------------------------------------------------------------------------------------------


def _call_object(wire: str, raw: bytes) -> Json:
    """The call of a reply as it stands there, with the start of its ids, and its arguments as what they mean."""
    body = json.loads(raw)
    if wire == "chat":
        (call,) = body["choices"][0]["message"]["tool_calls"]
        function = {**call["function"], "arguments": json.loads(call["function"]["arguments"])}
        return {**call, "function": function, "id": call["id"].partition("_")[0]}
    kind, listed = ("function_call", body["output"]) if wire == "responses" else ("tool_use", body["content"])
    (call,) = (item for item in listed if item["type"] == kind)
    if wire == "responses":
        call = {**call, "arguments": json.loads(call["arguments"]), "call_id": call["call_id"].partition("_")[0]}
    return {**call, "id": call["id"].partition("_")[0]}


@pytest.mark.parametrize("upstream", WIRES)
@pytest.mark.parametrize("caller", WIRES)
def test_promoted_calls_look_like_native_ones(stage: Stage, caller: str, upstream: str) -> None:
    """Rule 58: a call read from text is the object a native one is, id included: only the headers tell them apart."""
    asked = request(caller, model="mine-hybrid-58")
    native = stage.play(GOOD).ask(caller, asked, upstream)
    promoted = stage.play(TEXT_CALL).ask(caller, asked, upstream)
    assert (native.finish, promoted.finish) == ("calls", "calls")
    assert _call_object(caller, promoted.raw) == _call_object(caller, native.raw)
    told = [[entry for entry in one.adaptations if "promoted" in entry] for one in (native, promoted)]
    assert told == [[], ["call_promoted:get_weather"]]


@pytest.mark.parametrize("upstream", WIRES)
@pytest.mark.parametrize("caller", WIRES)
def test_streamed_promoted_calls_look_like_native_ones(stage: Stage, caller: str, upstream: str) -> None:
    """Rule 58: the same in a stream: the calls are the same, and their ids begin alike."""
    asked = request(caller, model="mine-hybrid-58", stream=True)
    native = stage.play(GOOD).ask(caller, asked, upstream)
    promoted = stage.play(TEXT_CALL).ask(caller, asked, upstream)
    assert (native.calls, promoted.calls, native.finish, promoted.finish) == (CALLED, CALLED, "calls", "calls")
    assert [one.partition("_")[0] for one in promoted.ids] == [one.partition("_")[0] for one in native.ids] != []
