"""The public API as users' type checkers see it: this file is checked by pyright in strict mode, and runs."""

from typing import Any, assert_type

from mustcall import (
    Agent,
    CallFinished,
    CallStatus,
    Controls,
    CoordinateResult,
    ExecutedCall,
    FunctionTool,
    GroundingRule,
    Limits,
    Message,
    MustcallError,
    OnUnmet,
    Options,
    ReasoningConfig,
    RunEvent,
    RunFinished,
    RunResult,
    RunStream,
    Stopped,
    TextDelta,
    ToolCall,
    ToolContext,
    Upstream,
    Usage,
    coordinate,
    coordinate_sync,
    tool,
)
from mustcall.core.errors import ErrorInfo
from mustcall.testing import Call, Recorded, Say, ScriptedModel, ScriptedUpstream, Turn


@tool
def double(n: int) -> int:
    """Double a number."""
    return 2 * n


@tool(timeout=5, side_effect=False)
async def later(n: int, context: ToolContext) -> str:
    """Say a number later."""
    return f"{n} {context.call.id}"


def plain(text: str) -> str:
    """Return a text."""
    return text


def see(event: RunEvent) -> None:
    """Read an event by its type."""
    match event:
        case TextDelta(text):
            assert_type(text, str)
        case CallFinished(call, result, ok):
            assert_type((call.name, result, ok), tuple[str, str, bool])
        case RunFinished(result):
            assert_type(result, RunResult[Any])
        case _:
            pass


def test_types() -> None:
    """A decorated function keeps its types; an agent takes tools of every kind; results are typed."""
    assert_type(double(2), int)
    schema = FunctionTool("schema", None, {"type": "object"}, lambda arguments: f"{len(arguments)} given")
    with ScriptedUpstream(default=Turn(Say("Hi."))) as upstream:
        agent = Agent(
            Upstream(f"chat={upstream.base_url}", model="m"), tools=[double, later, plain, schema], hooks=[see]
        )
        result = agent.run_sync("Hello")
        agent.run_sync([*result.messages, {"role": "user", "content": "Again"}], after=None)
    assert_type(result.text, str)
    assert_type(result.messages, tuple[Message, ...])
    assert_type(result.stopped, Stopped)
    assert_type(result.usage, Usage)
    assert_type(result, RunResult[None])
    assert_type(result.output, None)
    assert result.text == "Hi."


def test_types_of_calls_and_of_two_models() -> None:
    """What was called has its name, status and result; two models take the same tools, and tell what each cost."""
    model = ScriptedModel([Call("double", {"n": 2}), "Four."])
    result = Agent(model, tools=[double]).run_sync("Twice two?", force="double", output=None)
    call = result.calls[0]
    assert_type(call, ExecutedCall)
    assert_type((call.name, call.status, call.result, call.ok), tuple[str, CallStatus, str, bool])
    assert_type(model.requests, list[Recorded])
    assert (call.name, call.status, call.result) == ("double", CallStatus.OK, "4")
    pair = Agent(planner=ScriptedModel(["Answer: four."]), caller=ScriptedModel(), tools=[double])
    planned = pair.run_sync("Twice two?", output=None)
    assert_type(planned.usage_by_model, dict[str, Usage])
    assert_type(planned.force_satisfied, bool | None)
    assert planned.text == "four."


async def test_settings_types() -> None:
    """Settings are typed values; an approval is a function, a source is whatever has its four methods."""

    async def approve(call: ToolCall) -> bool:
        return call.name == "double"

    controls = Controls(limits=Limits(extra_calls=2), on_unmet=OnUnmet.ERROR)
    rule = GroundingRule(name="sums", triggers="twice", tool="double")
    options = Options(temperature=0.0, reasoning=ReasoningConfig(effort="low"))
    agent = Agent(
        ScriptedModel([Call("double", {"n": 2}), "Four."]),
        tools=[double],
        controls=controls,
        rules=[rule],
        options=options,
        approve=approve,
    )
    assert_type(agent.upstream, Upstream)
    assert_type(agent.planner, Upstream | None)
    try:
        result = await agent.run("Twice two?", output={"type": "object"}, check=False)
    except MustcallError as error:
        assert_type(error.code, str)
        raise
    assert_type(result.error, ErrorInfo | None)
    assert result.calls[0].ok


async def test_stream_types() -> None:
    """A stream is an iterator over events."""
    with ScriptedUpstream(default=Turn(Say("Hi."))) as upstream:
        stream = Agent(Upstream(f"chat={upstream.base_url}", model="m")).stream("Hello")
        assert_type(stream, RunStream[None])
        async for event in stream:
            assert_type(event, RunEvent)
        assert_type(stream.result, RunResult[None])
    assert stream.result.text == "Hi."


async def test_coordinate_types() -> None:
    """A coordinated answer is typed, also where it is waited for."""
    with ScriptedUpstream(default=Turn(Say('{"answer": "a", "stance": "agree"}'))) as upstream:
        where = Upstream(f"chat={upstream.base_url}", model="m")
        result = await coordinate("Hello", proposer=where, critics=[where], synthesizer=where, worker_tools=[double])
    assert_type(result, CoordinateResult)
    assert_type(result.answer, str | None)
    assert_type([role.usage for role in result.roles], list[Usage])
    assert callable(coordinate_sync)
    assert result.answer == "a"


def wait(where: Upstream) -> CoordinateResult:
    """Call the one that waits as a checker sees it."""
    return coordinate_sync("Hello", proposer=where, critics=[where], synthesizer=where, rounds=2)
