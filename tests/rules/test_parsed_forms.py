"""The three forms of rule 56 and the arguments of rule 60, read through real gateways under the prompt protocol."""

from collections.abc import Iterator
from typing import Any

import pytest

from mustcall.testing import Say, Turn
from rules.driving import WAYS, WORDS, Stage, arriving, as_schema, prompted, request, stranger
from rules.forms import HERMES

CALLED = (("get_weather", {"city": "Paris"}),)

#: Written out as the rule has them: nothing here is taken from the product's own table of dialects.
FORMS = {
    "TOOL_REQUEST": '[TOOL_REQUEST]\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n[END_TOOL_REQUEST]',
    "tool_call": '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>',
    "Tool:": 'Tool: get_weather(city="Paris")',
}

#: The arguments of a text call, and whether they are an object.
ARGUMENTS = {
    "an object": ('{"city": "Paris"}', True),
    "a string that holds one": (r'"{\"city\": \"Paris\"}"', True),
    "a string in a string": (r'"\"{\\\"city\\\": \\\"Paris\\\"}\""', False),
    "a string that holds a list": (r'"[\"Paris\"]"', False),
    "a list": ('["Paris"]', False),
    "a list of an object": ('[{"city": "Paris"}]', False),
    "a number": ("7", False),
    "true": ("true", False),
    "null": ("null", False),
    "words": ('"Paris"', False),
}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One upstream behind three gateways."""
    with Stage(compares=True) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _untaught(stage: Stage) -> None:
    """In any order a test meets gateways that have learnt nothing."""
    stage.forget()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_the_forms_of_the_rule(stage: Stage, wire: str, stream: bool, form: str) -> None:
    """Rule 56: each of the three forms is read as the same call, in one upstream call, however it is cut."""
    body = request(wire, stream=stream, mustcall={"protocol": "prompt"})
    for chunking in (None, 1, 7):
        outcome = stage.play(Turn(Say(FORMS[form])), chunking=chunking).ask(wire, body)
        assert stage.bodies == [prompted(wire, stream=stream)]
        assert (outcome.error, outcome.text, outcome.calls, outcome.finish) == ({}, "", CALLED, "calls")


@pytest.mark.parametrize("kind", ARGUMENTS)
@pytest.mark.parametrize("form", ["TOOL_REQUEST", "tool_call"])
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_the_arguments_of_a_text_call(stage: Stage, wire: str, stream: bool, form: str, kind: str) -> None:
    """Rule 60: an object, or a string that holds one, is read; anything else is a malformed call, never a fault."""
    written, fine = ARGUMENTS[kind]
    text = FORMS[form].replace('{"city": "Paris"}', written)
    body = request(wire, stream=stream, mustcall={"protocol": "prompt"})
    outcome = stage.play(Turn(Say(text)), Turn(Say(HERMES))).ask(wire, body)
    sent: list[dict[str, Any]] = [prompted(wire, stream=stream)]
    if not fine:
        sent.append(prompted(wire, WORDS.format_correction, stream=stream))
    assert stage.bodies == sent
    assert (outcome.error, outcome.text, outcome.calls, outcome.finish) == ({}, "", CALLED, "calls")
    assert outcome.verdicts == ("called" if fine else "text_call,called")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
def test_the_arguments_of_a_constrained_answer(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 60: on the schema rung, too, arguments that came as a string are read: no attempt is spent on them."""
    model = stranger()
    body = request(wire, stream=stream, model=model, choice="get_weather")
    written = r'{"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}'
    refused = Turn(Say("It is sunny."))
    outcome = stage.play(refused, Turn(Say(written))).ask(wire, body)
    assert stage.bodies == [
        arriving(wire, wire, stream=True, model=model, choice="get_weather"),
        as_schema(wire, wire, "get_weather", stream=stream, model=model),
    ]
    assert (outcome.error, outcome.calls, outcome.verdicts) == ({}, CALLED, "force_missed,called")
