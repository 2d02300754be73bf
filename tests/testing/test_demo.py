"""The demo script: it calls what is offered, quotes what came back, and says what it is."""

import json
from typing import Any

import pytest
from openai import OpenAI

from mustcall.core.origin import Wire
from mustcall.testing import Call, Recorded, Say, ScriptedUpstream, Turn, demo_turn

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUESTION = "What is the weather in Paris today?"
RESULT = "22 degrees"

TOOLS: dict[Wire, list[Any]] = {
    Wire.CHAT: [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("a", "b")],
    Wire.RESPONSES: [{"type": "function", "name": name, "parameters": SCHEMA} for name in ("a", "b")],
    Wire.MESSAGES: [{"name": name, "input_schema": SCHEMA} for name in ("a", "b")],
}
ASKED: dict[Wire, dict[str, Any]] = {
    Wire.CHAT: {"messages": [{"role": "system", "content": "Be"}, {"role": "user", "content": QUESTION}]},
    Wire.RESPONSES: {"input": [{"role": "user", "content": [{"type": "input_text", "text": QUESTION}]}]},
    Wire.MESSAGES: {"messages": [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]},
}
ANSWERED: dict[Wire, list[Any]] = {
    Wire.CHAT: [
        {"role": "assistant", "tool_calls": [{"id": "c"}]},
        {"role": "tool", "tool_call_id": "c", "content": RESULT},
    ],
    Wire.RESPONSES: [
        {"type": "function_call", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": RESULT}]},
    ],
    Wire.MESSAGES: [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": RESULT}]},
    ],
}
NAMED: dict[Wire, Any] = {
    Wire.CHAT: {"type": "function", "function": {"name": "b"}},
    Wire.RESPONSES: {"type": "function", "name": "b"},
    Wire.MESSAGES: {"type": "tool", "name": "b"},
}
NONE: dict[Wire, Any] = {Wire.CHAT: "none", Wire.RESPONSES: "none", Wire.MESSAGES: {"type": "none"}}


def play(wire: Wire, body: Any) -> Turn:
    """Return the demo's turn for a body on a wire."""
    return demo_turn(Recorded("POST", "/", {}, wire, {}, body, b""))


def text_of(turn: Turn) -> str:
    """Return what a turn says."""
    return "".join(part.text for part in turn.parts if isinstance(part, Say))


@pytest.mark.parametrize("wire", list(Wire))
def test_it_calls_the_first_tool_with_words_of_the_user(wire: Wire) -> None:
    """An offered tool is called, its string taken from the user's message."""
    assert play(wire, ASKED[wire] | {"tools": TOOLS[wire]}).parts == (Call("a", {"city": "Paris"}),)


@pytest.mark.parametrize("wire", list(Wire))
def test_it_calls_the_forced_tool(wire: Wire) -> None:
    """A named choice decides which tool is called."""
    body = ASKED[wire] | {"tools": TOOLS[wire], "tool_choice": NAMED[wire]}
    assert play(wire, body).calls[0].name == "b"


@pytest.mark.parametrize("wire", list(Wire))
def test_it_quotes_the_result(wire: Wire) -> None:
    """After a tool result it answers with the result, and calls again only for a new question."""
    field = "input" if wire is Wire.RESPONSES else "messages"
    history = [*ASKED[wire][field], *ANSWERED[wire]]
    answer = play(wire, {field: history, "tools": TOOLS[wire]})
    assert RESULT in text_of(answer)
    assert not answer.calls
    again = play(wire, {field: [*history, {"role": "user", "content": "And in Rome?"}], "tools": TOOLS[wire]})
    assert again.calls[0].arguments == {"city": "Rome"}


@pytest.mark.parametrize("wire", list(Wire))
def test_it_says_what_it_is(wire: Wire) -> None:
    """Without tools, or with none wanted, it speaks, and does not pretend to be a model."""
    for more in ({}, {"tools": TOOLS[wire], "tool_choice": NONE[wire]}):
        turn = play(wire, ASKED[wire] | more)
        assert not turn.calls
        assert "scripted demo, not a language model" in text_of(turn)
        assert QUESTION in text_of(turn)


REPORT: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
}
WANTED: dict[Wire, dict[str, Any]] = {
    Wire.CHAT: {"response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": REPORT}}},
    Wire.RESPONSES: {"text": {"format": {"type": "json_schema", "name": "r", "schema": REPORT}}},
    Wire.MESSAGES: {"output_config": {"format": {"type": "json_schema", "schema": REPORT}}},
}


@pytest.mark.parametrize("wire", Wire)
def test_it_answers_by_a_schema(wire: Wire) -> None:
    """Rule 81: a structured answer fits its schema; a tool that is offered is called before."""
    wanted = ASKED[wire] | WANTED[wire]
    report = Turn(Say('{"city": "Paris", "degrees": 1}'))
    assert play(wire, wanted) == report
    offered = wanted | {"tools": TOOLS[wire]}
    assert play(wire, offered) == Turn(Call("a", {"city": "Paris"}))
    key = "input" if wire is Wire.RESPONSES else "messages"
    assert play(wire, offered | {key: [*offered[key], *ANSWERED[wire]]}) == report


def test_it_answers_with_any_json() -> None:
    """Rule 81: where any JSON object is asked for, one is given."""
    body = ASKED[Wire.CHAT] | {"response_format": {"type": "json_object"}}
    assert play(Wire.CHAT, body) == Turn(Say("{}"))
    text = ASKED[Wire.CHAT] | {"response_format": {"type": "text"}}
    assert "scripted demo" in text_of(play(Wire.CHAT, text))


def test_custom_tools_get_text_and_plain_input_is_read() -> None:
    """A custom tool is given the user's message; Responses input may be a plain string."""
    turn = play(Wire.RESPONSES, {"input": "patch it", "tools": [{"type": "custom", "name": "patch"}]})
    assert turn.parts == (Call("patch", "patch it"),)


def test_odd_requests_get_an_answer() -> None:
    """Nothing in a request makes the demo fail."""
    bodies: list[Any] = [None, [], {}, {"messages": [1]}, {"tools": [{}, 5], "messages": 7}]
    for body in bodies:
        assert play(Wire.CHAT, body).parts


def test_demo_over_http_passes_the_strict_rules() -> None:
    """A whole loop with the official SDK against the demo, with the providers' rules enforced."""
    with (
        ScriptedUpstream(demo_turn, strict=True) as upstream,
        OpenAI(base_url=upstream.base_url, api_key="k") as client,
    ):
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        tools: Any = TOOLS[Wire.CHAT]
        first = client.chat.completions.create(model="demo", messages=messages, tools=tools).choices[0].message
        call: Any = first.model_dump()["tool_calls"][0]
        assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}
        messages += [first.to_dict(), {"role": "tool", "tool_call_id": call["id"], "content": RESULT}]
        last = client.chat.completions.create(model="demo", messages=messages, tools=tools)
    assert RESULT in (last.choices[0].message.content or "")
