"""The answer after the last hop where a server enforces a schema only without tools: how often it is asked for."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest

from mustcall import Agent, RunResult, Stopped, Upstream
from mustcall.core.errors import MustcallError
from mustcall.policy.facts.wording import Wording, fill
from mustcall.profiles import read_overrides
from mustcall.testing import Answer, Call, Say, ScriptedUpstream, Turn
from support.agents import ask_body, collect, get_weather, offer, results, said, user, wrapped

WORDS = Wording()
SCHEMA = {"type": "object", "properties": {"degrees": {"type": "integer"}}, "required": ["degrees"]}
ASKED = fill(WORDS.answer_as_json, schema=msgspec.json.encode(SCHEMA, order="deterministic").decode())
FORM = {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}}

CALL = Turn(Call("get_weather", {"city": "Oslo"}))
GOOD, BAD, EMPTY = (Turn(Say(text)) for text in ('{"degrees":21}', '{"degrees":"warm"}', ""))
PROSE, CUT = Turn(Say("It is 21 degrees.")), Turn(Say('{"degrees":2'), finish="length")
WRITTEN = Turn(Say('<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>'))
MISFIT, NO_JSON, CUT_OFF = "degrees: integer", "top level: valid JSON", "it ended before it was complete"

streaming = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
#: Before that answer it can be given to a tool, or it is asked for in words.
ways = pytest.mark.parametrize("way", ["tool", "last"])
FACTS: dict[str, dict[str, Any]] = {
    "tool": {
        "schema_output": True,
        "schema_with_tools": False,
        "protocol": "native",
        "forced": "ignored",
        "reasoning": "never",
    },
    "last": {"schema_output": True, "protocol": "hybrid"},
}


async def run(way: str, script: list[Answer], *, stream: bool) -> tuple[RunResult[Any], list[Any]]:
    """Ask for the weather with one hop; return the result, also of a run that failed, and the bodies."""
    with ScriptedUpstream(script, strict=True) as upstream:
        overrides = read_overrides([FACTS[way]])
        where = Upstream(f"chat={upstream.base_url}", model="m", api_key="k", overrides=overrides)
        agent = Agent(where, tools=[get_weather])
        if stream:
            events = agent.stream("Weather?", output=SCHEMA, hops=1)
            with suppress(MustcallError):
                await collect(events)
            result = events.result
        else:
            result = await agent.run("Weather?", output=SCHEMA, hops=1, check=False)
        return result, [one.body for one in upstream.requests]


def sent(way: str, *reminders: str | None, stream: bool) -> list[Any]:
    """The request with a tool, then one for the answer for each reminder; None stands for one without any."""
    in_words = [{"role": "system", "content": ASKED}] if way == "last" else []
    asked = [*in_words, user("chat", "Weather?")]
    tools = [offer("chat"), *([offer("chat", "answer", WORDS.answer_tool, SCHEMA)] if way == "tool" else [])]
    notice = WORDS.step_cap if way == "last" else f"{WORDS.step_cap}\n\n{ASKED}"
    hop = [*said("chat", 0, ("get_weather", {"city": "Oslo"})), *results("chat", 0, wrapped("Sunny in Oslo"))]
    after = [*asked, *hop, user("chat", notice)]
    turns = [after if words is None else [*after, user("chat", words)] for words in reminders]
    later = [ask_body("chat", each, tools=[], stream=stream, **FORM) for each in turns]
    return [ask_body("chat", asked, tools=tools, stream=stream), *later]


def again(problem: str) -> str:
    """The sentence that asks once more."""
    return fill(WORDS.bad_answer, problem=problem)


@ways
@streaming
@pytest.mark.parametrize(
    ("wrong", "problem", "code"),
    [(BAD, MISFIT, "bad_answer"), (PROSE, NO_JSON, "bad_answer"), (CUT, CUT_OFF, "truncated")],
    ids=["misfit", "prose", "cut"],
)
async def test_it_is_asked_for_once_more(wrong: Turn, problem: str, code: str, way: str, stream: bool) -> None:
    """Rule 84: whole or streamed, an answer that cannot be used is asked for once more, and no further."""
    expected = sent(way, None, again(problem), stream=stream)
    result, bodies = await run(way, [CALL, wrong, GOOD], stream=stream)
    assert bodies == expected
    assert (result.output, result.stopped, result.text) == ({"degrees": 21}, Stopped.ANSWERED, '{"degrees":21}')
    failed, bodies = await run(way, [CALL, wrong, wrong], stream=stream)
    assert bodies == expected
    assert failed.error is not None
    assert (failed.stopped, failed.error.code) == (Stopped.FAILED, code)


@ways
@streaming
async def test_a_call_in_its_place(way: str, stream: bool) -> None:
    """Rules 82, 84: a call in the text after the last hop is not run; the answer is asked for once more."""
    result, bodies = await run(way, [CALL, WRITTEN, GOOD], stream=stream)
    assert bodies == sent(way, None, again(NO_JSON), stream=stream)
    assert (result.output, result.stopped) == ({"degrees": 21}, Stopped.ANSWERED)
    assert [call.call.arguments_json for call in result.calls if call.ok] == ['{"city":"Oslo"}']


@ways
@streaming
@pytest.mark.parametrize(
    ("script", "reminders"),
    [
        ([BAD, BAD], [None, again(MISFIT)]),
        ([EMPTY, BAD, BAD], [None, WORDS.empty, again(MISFIT)]),
        ([EMPTY, EMPTY, EMPTY], [None, WORDS.empty, WORDS.empty]),
    ],
    ids=["misfits", "after an empty one", "empty"],
)
async def test_the_error_counts_all_attempts(
    script: list[Answer], reminders: list[str | None], way: str, stream: bool
) -> None:
    """Rule 91: the typed error names the real count, also where the turn itself has asked again."""
    result, bodies = await run(way, [CALL, *script], stream=stream)
    assert bodies == sent(way, *reminders, stream=stream)
    assert result.error is not None
    assert f"; {len(script)} attempts made" in result.error.message
