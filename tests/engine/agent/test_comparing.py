"""Answers held against the results of their calls: what is replaced, what stays, and for whom."""

from contextlib import ExitStack
from typing import Any

import pytest

from mustcall import Agent, RunResult, TextDelta, tool
from mustcall.core.adaptation import AdaptationKind
from mustcall.core.errors import ConfigError, MustcallError, ToolError
from mustcall.core.parts import Text
from mustcall.engine.run_records.results import Stopped
from mustcall.policy.facts.wording import Wording
from mustcall.testing import Answer, Call, Say, ScriptedUpstream, Turn
from support.agents import WIRES, agent_on, ask_body, collect, offer, results, said, user, wrapped


def add(first: int, second: int) -> str:
    """Add two numbers."""
    if first < 0:
        raise ToolError("negative numbers are not added")
    return f"{first} + {second} = {first + second}"


CALL = Turn(Call("add", {"first": 17, "second": 25}))
FAILED = "The tool `add` failed: negative numbers are not added."
TOLD = "According to `add`: 17 + 25 = 42"


def sent(*turns: dict[str, Any]) -> dict[str, Any]:
    """A request of the small model on chat."""
    numbers = {"type": "object", "properties": {"first": {"type": "integer"}, "second": {"type": "integer"}}}
    schema = {**numbers, "required": ["first", "second"], "additionalProperties": False}
    tools = [offer("chat", "add", "Add two numbers.", schema)]
    return ask_body("chat", [user("chat", "What is 17 + 25?"), *turns], tools=tools, model="tiny-0.5b")


async def asked(
    script: list[Answer],
    wire: str = "chat",
    *,
    stream: bool = False,
    model: str = "tiny-0.5b",
    check: str = "small",
    sends: list[dict[str, Any]] | None = None,
    reads: bool = False,
) -> RunResult:
    """Run a script to its end; `sends` are the bodies that it must take, `reads` a tool that changes nothing."""
    with ExitStack() as stack:
        upstream = stack.enter_context(ScriptedUpstream(script))
        if sends is not None:
            stack.callback(lambda: compare([one.body for one in upstream.requests], sends))
        offered = tool(side_effect=False)(add) if reads else add
        agent = agent_on(upstream, wire, tools=[offered], model=model, check_answers=check)
        if stream:
            events, result = await collect(agent.stream("What is 17 + 25?"))
            assert "".join(event.text for event in events if isinstance(event, TextDelta)) == result.text
            return result
        return await agent.run("What is 17 + 25?")


def compare(bodies: list[Any], sends: list[dict[str, Any]]) -> None:
    """Compare what was sent, also where the run failed."""
    assert bodies == sends


def replaced(result: RunResult) -> list[str]:
    """Why answers were replaced."""
    kind = AdaptationKind.ANSWER_REPLACED
    return [change.detail for step in result.steps for change in step.adaptations if change.kind is kind]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", WIRES)
async def test_a_wrong_sentence_is_replaced(wire: str, *, stream: bool) -> None:
    """A small model's sentence that contradicts the result is replaced by it, seen once, kept and reported."""
    result = await asked([CALL, Turn(Say("17 + 25 is 52."))], wire, stream=stream)
    assert (result.text, result.stopped) == (TOLD, Stopped.ANSWERED)
    assert result.messages[-1].parts == (Text(text=TOLD),)
    assert replaced(result) == ["by the tool's own result: the number 52 is in no result"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_right_sentence_stays(*, stream: bool) -> None:
    """What the result bears out is the answer, word for word, and nothing is reported."""
    result = await asked([CALL, Turn(Say("17 + 25 is 42."))], stream=stream)
    assert result.text == "17 + 25 is 42."
    assert replaced(result) == []


@pytest.mark.parametrize(
    ("model", "check", "text"),
    [
        ("tiny-0.5b", "off", "It is 52."),
        ("large-70b", "small", "It is 52."),
        ("unknown", "small", "It is 52."),
        ("unknown", "always", TOLD),
    ],
)
async def test_only_small_models_unless_asked_for(model: str, check: str, text: str) -> None:
    """A model of large or unknown size is believed unless somebody wants otherwise."""
    result = await asked([CALL, Turn(Say("It is 52."))], model=model, check=check)
    assert result.text == text


async def test_the_same_call_again_ends_the_run() -> None:
    """A small model that only repeats its call has its result: it is told, and the tool is not run again."""
    result = await asked([CALL, CALL, CALL])
    assert result.text == TOLD
    assert len(result.calls) == 1
    assert replaced(result) == ["by the tool's own result: the same call was made before"]


async def test_what_failed_is_told() -> None:
    """Where every call failed and the answer does not say so, the failure itself is the answer."""
    failing = Turn(Call("add", {"first": -17, "second": 25}))
    called = said("chat", 0, ("add", {"first": -17, "second": 25}))
    failed = results("chat", 0, f"Error: {FAILED}")
    result = await asked([failing, Turn(Say("The sum is -1."))], sends=[sent(), sent(*called, *failed)])
    assert result.text == FAILED


def plain_question() -> dict[str, Any]:
    """The request that asks the question alone: no tool, and nothing of the calls that were made."""
    return ask_body("chat", [user("chat", "What is 17 + 25?")], tools=[], model="tiny-0.5b")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("then", [Say("The sum is -1."), Say("")], ids=["departs", "says nothing"])
async def test_a_failure_beside_the_point_is_no_answer(then: Say, *, stream: bool) -> None:
    """Calls about nothing the question names, all of them failed: the question is asked without tools, once."""
    failing = Turn(Call("add", {"first": -1, "second": 2}))
    called = said("chat", 0, ("add", {"first": -1, "second": 2}))
    after = sent(*called, *results("chat", 0, f"Error: {FAILED}"))
    reminded = [] if then.text else [{**after, "messages": [*after["messages"], user("chat", Wording().empty)]}] * 2
    script: list[Answer] = [failing, *[Turn(then)] * (1 + len(reminded)), Turn(Say("It is 42, and always was."))]
    sends = [sent(), after, *reminded, plain_question()]
    if stream:
        sends = [{**body, "stream": True, "stream_options": {"include_usage": True}} for body in sends]
    result = await asked(script, stream=stream, sends=sends, reads=True)
    assert (result.text, result.stopped) == ("It is 42, and always was.", Stopped.ANSWERED)
    told = [change.detail for step in result.steps for change in step.adaptations if change.subject == "tools"]
    assert told == ["asked without them: their calls failed, and were about nothing that the question names"]
    assert (replaced(result), len(result.calls)) == ([], 1)


async def test_a_failed_action_is_told() -> None:
    """A tool that may have changed something: why it failed is the answer, whatever the question names."""
    failing = Turn(Call("add", {"first": -1, "second": 2}))
    called = said("chat", 0, ("add", {"first": -1, "second": 2}))
    after = sent(*called, *results("chat", 0, f"Error: {FAILED}"))
    result = await asked([failing, Turn(Say("I have added them."))], sends=[sent(), after])
    assert result.text == FAILED


@pytest.mark.parametrize("then", [Say(""), Say('{"name": "add", "arguments": {"first": 1, "second": 2}}')])
async def test_no_answer_without_tools_either(then: Say) -> None:
    """Where the question asked alone gives nothing, or a call, the failure is told after all."""
    failing = Turn(Call("add", {"first": -1, "second": 2}))
    called = said("chat", 0, ("add", {"first": -1, "second": 2}))
    after = sent(*called, *results("chat", 0, f"Error: {FAILED}"))
    reminded = {**plain_question(), "messages": [*plain_question()["messages"], user("chat", Wording().empty)]}
    sends = [sent(), after, plain_question(), *([] if then.text else [reminded] * 2)]
    script: list[Answer] = [failing, Turn(Say("The sum is -1.")), *[Turn(then)] * 3]
    result = await asked(script, sends=sends, reads=True)
    assert (result.text, result.stopped) == (FAILED, Stopped.ANSWERED)


async def test_a_demanded_call_that_failed_is_told() -> None:
    """Where the caller demanded the call, its failure is the answer, whatever the question names."""
    failing = Turn(Call("add", {"first": -1, "second": 2}))
    with ScriptedUpstream([failing, Turn(Say("The sum is -1."))]) as upstream:
        agent = agent_on(upstream, "chat", tools=[add], model="tiny-0.5b", check_answers="small")
        result = await agent.run("What is 17 + 25?", force="add")
        first, second = (request.body for request in upstream.requests)
    assert result.text == FAILED
    choice = {"tool_choice": {"type": "function", "function": {"name": "add"}}}
    called = said("chat", 0, ("add", {"first": -1, "second": 2}))
    streamed = {
        "stream": True,
        "stream_options": {"include_usage": True},
    }  # a demanded call ends the turn as soon as it is there
    assert first == {**sent(), **choice, **streamed}
    assert second == sent(*called, *results("chat", 0, f"Error: {FAILED}"))


async def test_nothing_said_after_a_result() -> None:
    """A model that says nothing about its result, however often it is asked, does not fail the run."""
    empty = Turn(Say(""))
    called = said("chat", 0, ("add", {"first": 17, "second": 25}))
    turns = [*called, *results("chat", 0, wrapped("17 + 25 = 42", "add"))]
    reminded = sent(*turns, user("chat", Wording().empty))
    sends = [sent(), sent(*turns), reminded, reminded]
    result = await asked([CALL, empty, empty, empty, empty, empty], sends=sends)
    assert (result.text, result.stopped) == (TOLD, Stopped.ANSWERED)
    assert "the model gave no answer" in replaced(result)[0]


async def test_without_calls_nothing_is_compared() -> None:
    """A plain answer, and a plain failure, are what they were."""
    result = await asked([Turn(Say("It is 52."))])
    assert result.text == "It is 52."
    with pytest.raises(MustcallError, match="Empty"):
        await asked([Turn(Say(""))] * 6, sends=[sent(), *[sent(user("chat", Wording().empty))] * 2])


async def test_other_calls_are_made() -> None:
    """Another call after a result is a call like any other; all results are told if the answer departs."""
    second = Turn(Call("add", {"first": 1, "second": 2}))
    result = await asked([CALL, second, Turn(Say("Done: 99."))])
    assert result.text == f"{TOLD}\n\nAccording to `add`: 1 + 2 = 3"


def test_the_setting_is_checked() -> None:
    """A word that is none of the three is refused with the words there are."""
    with pytest.raises(ConfigError, match="check_answers must be one of off, small, always"):
        Agent("chat=http://127.0.0.1:1/v1#m", check_answers="sometimes")


_HELLO = '{"name": "hello", "arguments": {"message": "Hello!"}}'


async def greeted(
    script: list[Answer], question: str = "Hello!", *, model: str = "tiny-0.5b", check_answers: str = "small"
) -> tuple[RunResult, str, list[Any]]:
    """Stream a greeting; return the result, what was seen of it, and what the upstream was sent."""
    with ScriptedUpstream(script) as upstream:
        agent = agent_on(upstream, "chat", tools=[add], model=model, check_answers=check_answers)
        events, result = await collect(agent.stream(question))
        seen = "".join(event.text for event in events if isinstance(event, TextDelta))
        return result, seen, [request.body for request in upstream.requests]


@pytest.mark.parametrize("written", [_HELLO, f"```json\n{_HELLO}\n```", _HELLO.replace("arguments", "parameters")])
async def test_a_call_of_no_tool_is_asked_about_again(written: str) -> None:
    """A small model that answers with a call of no tool is asked once more without tools; only the words are seen."""
    result, seen, sent = await greeted([Turn(Say(written)), Turn(Say("Hello! How can I help?"))])
    assert (result.text, seen, result.stopped) == ("Hello! How can I help?", "Hello! How can I help?", Stopped.ANSWERED)
    assert len(sent) == 2
    assert sent[1] == {key: value for key, value in sent[0].items() if key not in ("tools", "tool_choice")}
    assert "tools" in sent[0]
    assert [message.role.value for message in result.messages] == ["user", "assistant"]


async def test_it_is_asked_for_once() -> None:
    """A second such answer is the answer: a run does not go round in circles."""
    result, seen, sent = await greeted([Turn(Say(_HELLO)), Turn(Say(_HELLO))])
    assert (result.text, seen, len(sent)) == (_HELLO, _HELLO, 2)


@pytest.mark.parametrize(
    ("question", "written", "more"),
    [
        ("Show me a tool call as JSON.", _HELLO, {}),
        ("Hello!", _HELLO, {"model": "large-70b"}),
        ("Hello!", _HELLO, {"check_answers": "off"}),
        ("Hello!", '{"name": "Anna", "age": 7}', {}),
        ("Hello!", '{"name": "hello", "arguments": {}, "note": ""}', {}),
        ("Hello!", f"Take this: {_HELLO}", {}),
        ("Hello!", '{"name": "hello", "arguments": "', {}),
    ],
)
async def test_other_json_is_an_answer(question: str, written: str, more: dict[str, str]) -> None:
    """JSON that was asked for, that is no call, or that comes from a model that is believed, stays."""
    result, seen, sent = await greeted([Turn(Say(written))], question, **more)
    assert (result.text, seen, len(sent)) == (written, written, 1)
