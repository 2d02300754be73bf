"""Calls, run: checked first, approved one by one, side by side within limits."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mustcall import CallStatus, FunctionTool, Image, Text, ToolCall, ToolReturn, ToolSettings
from mustcall.engine.tooling.definition import Approve
from mustcall.engine.tooling.roster import Roster
from mustcall.engine.tooling.running import Executed, Runner
from mustcall.policy.facts.controls import Controls, ToolControls
from mustcall.policy.facts.wording import Wording, fill
from mustcall.testing.transport import FakeClock

WORDS = Wording()
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def echo(
    run: Callable[[dict[str, Any]], Any] = lambda arguments: f"got {arguments['n']}", **settings: Any
) -> FunctionTool:
    """A tool that takes a number."""
    return FunctionTool("echo", "Echo.", SCHEMA, run, settings=ToolSettings(**settings))


def call(arguments: str = '{"n": 1}', name: str = "echo", number: int = 0) -> ToolCall:
    """A call."""
    return ToolCall(id=f"c{number}", name=name, arguments_json=arguments)


async def quiet(_: object) -> None:
    """Hear of a call."""


async def run(
    tools: list[FunctionTool], *calls: ToolCall, concurrency: int = 8, approve: Approve | None = None
) -> tuple[Executed, ...]:
    """Run calls."""
    runner = Runner(Roster(tools), concurrency=concurrency, approve=approve, wording=WORDS, clock=FakeClock())
    return await runner.run_all(calls, 1, quiet, quiet)


def said(executed: Executed) -> str:
    """The text of a result."""
    return "".join(part.text for part in executed.result.content if isinstance(part, Text))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [('{"n": "x"}', "n"), ("{}", "n"), ('{"n": 1', "complete JSON"), ("[1]", "object"), ('{"n": 1}{"n": 2}', "")],
)
async def test_arguments_are_checked_first(arguments: str, problem: str) -> None:
    """Rule 90: what does not fit is not run; the line names the field and never repeats the value."""
    ran: list[object] = []
    (done,) = await run([echo(ran.append)], call(arguments))
    assert ran == []
    readable = arguments in ('{"n": "x"}', "{}")
    assert done.record.status is (CallStatus.SCHEMA_ERROR if readable else CallStatus.PARSE_ERROR)
    assert done.result.is_error
    assert problem in said(done)
    assert '"x"' not in said(done)


async def test_arguments_are_coerced_without_loss() -> None:
    """Rule 131: a number written as a string is one."""
    (done,) = await run([echo()], call('{"n": "7"}'))
    assert (done.record.result, done.record.ok) == ("got 7", True)


async def test_unknown_tool() -> None:
    """A call of a tool that is not there is answered, not run."""
    (done,) = await run([echo()], call(name="other"))
    assert (done.record.status, said(done)) == (CallStatus.UNKNOWN_TOOL, WORDS.unknown_tool)


async def _yes(_: ToolCall) -> bool:
    return True


async def _no(_: ToolCall) -> bool:
    return False


def _at_once(_: ToolCall) -> bool:
    return True


def _never(_: ToolCall) -> bool:
    return False


def _broken(_: ToolCall) -> bool:
    raise ValueError("a bug")


@pytest.mark.parametrize(
    ("approve", "allowed"),
    [(_at_once, True), (_never, False), (_yes, True), (_no, False), (_broken, False)],
    ids=["yes", "no", "async yes", "async no", "broken"],
)
async def test_approval(approve: Callable[[ToolCall], bool | Awaitable[bool]], allowed: bool) -> None:
    """What is not approved does not run, and the model is told; an approval that fails is none."""
    ran: list[object] = []
    (done,) = await run([echo(ran.append, approve=approve)], call())
    assert (len(ran) == 1) is allowed
    refused = fill(WORDS.tool_refused, tool="echo", problem="it was not approved")
    assert done.record.status is (CallStatus.OK if allowed else CallStatus.REFUSED)
    assert allowed or said(done) == refused


async def test_approvals_are_asked_one_at_a_time_after_the_check() -> None:
    """People answer one question at a time; a call that does not fit is no question."""
    asked: list[str] = []
    inside = 0

    async def approve(pending: ToolCall) -> bool:
        nonlocal inside
        inside += 1
        assert inside == 1
        await asyncio.sleep(0)
        asked.append(pending.arguments_json)
        inside -= 1
        return True

    done = await run(
        [echo()], call('{"n": 1}', number=0), call("{}", number=1), call('{"n": 2}', number=2), approve=approve
    )
    assert asked == ['{"n": 1}', '{"n": 2}']
    assert [each.record.ok for each in done] == [True, False, True]


async def test_a_tools_own_approval_stands_over_the_agents() -> None:
    """Each tool may have its own."""
    (done,) = await run([echo(approve=_at_once)], call(), approve=_never)
    assert done.record.ok


@pytest.mark.parametrize(("own", "overall", "most"), [(0, 8, 5), (2, 8, 2), (0, 3, 3), (4, 1, 1)])
async def test_concurrency(own: int, overall: int, most: int) -> None:
    """Calls run side by side, never more than the tool's and the run's limit."""
    running, highest = 0, 0

    async def work(_: dict[str, Any]) -> str:
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        for _number in range(5):
            await asyncio.sleep(0)
        running -= 1
        return "done"

    calls = [call(number=number) for number in range(5)]
    done = await run([echo(work, concurrency=own)], *calls, concurrency=overall)
    assert highest == most
    assert [each.record.call.id for each in done] == [each.id for each in calls]


async def test_sync_tools_do_not_block_each_other() -> None:
    """Synchronous functions run in threads: two that wait for each other both end."""
    meeting = threading.Barrier(2)
    done = await run([echo(lambda _: meeting.wait(180))], call(number=0), call(number=1))
    assert [each.record.status for each in done] == [CallStatus.OK] * 2


async def test_sync_functions_that_give_something_to_await() -> None:
    """A plain function may return a coroutine."""

    async def later() -> str:
        return "later"

    (done,) = await run([echo(lambda _: later())], call())
    assert done.record.result == "later"


async def test_media_is_handed_on() -> None:
    """Images stand beside the wrapped text, in the history as parts."""
    image = Image(data="aGk=", media_type="image/png")
    (done,) = await run([echo(lambda _: ToolReturn((Text(text="look"), image)))], call())
    assert done.result.content[1:] == (image,)
    assert "look" in said(done)
    (alone,) = await run([echo(lambda _: image)], call())
    assert alone.result.content == (image,)


async def test_a_tool_can_say_that_it_failed() -> None:
    """`is_error` of a result counts as a failure; its words stay wrapped."""
    (done,) = await run([echo(lambda _: ToolReturn((Text(text="no"),), is_error=True))], call())
    assert (done.record.status, done.result.is_error) == (CallStatus.FAILED, True)
    assert said(done).startswith("<untrusted-data")


async def test_result_cap() -> None:
    """Rule 92: a tool's own cap counts."""
    (done,) = await run([echo(lambda _: "x" * 50, result_cap=10)], call())
    assert done.record.result == "x" * 10 + "\n[cut: the first 10 of 50 characters]"


@pytest.mark.parametrize(
    ("own", "all_tools", "for_it", "shown"),
    [(None, 4000, None, 4000), (None, 20, None, 20), (10, 20, None, 10), (10, 20, 30, 30), (None, 20, 30, 30)],
)
async def test_which_result_cap(own: int | None, all_tools: int, for_it: int | None, shown: int) -> None:
    """Rules 92, 120: the operator's setting for a tool stands over the tool's own, and that over the one for all."""
    tools = {"echo": ToolControls(result_cap=for_it), "other": ToolControls(result_cap=1)}
    controls = Controls(result_cap=all_tools, tools=tools)
    runner = Runner(
        Roster([echo(lambda _: "x" * 5000, result_cap=own)]),
        concurrency=8,
        approve=None,
        wording=WORDS,
        clock=FakeClock(),
        controls=controls,
    )
    (done,) = await runner.run_all([call()], 1, quiet, quiet)
    assert done.record.result == "x" * shown + f"\n[cut: the first {shown} of 5000 characters]"


class _Quit(BaseException):
    """What is no `Exception`."""


def _quits(_: object) -> str:
    raise _Quit


async def _quits_later(_: object) -> str:
    raise BaseExceptionGroup("all of it", [_Quit()])


@pytest.mark.parametrize(("quits", "kind"), [(_quits, "_Quit"), (_quits_later, "BaseExceptionGroup")])
async def test_whatever_a_tool_raises_stays_here(quits: Callable[[Any], Any], kind: str) -> None:
    """Rule 110: an exception of any class is a failure of the one call; those beside it are finished."""
    other = FunctionTool("other", "Other.", SCHEMA, lambda _: "done")
    failed, done = await run([echo(quits), other], call(), call(name="other", number=1))
    assert (failed.record.status, done.record.status) == (CallStatus.FAILED, CallStatus.OK)
    assert said(failed) == fill(WORDS.tool_failed, tool="echo", problem=kind)


def _yields(_: object) -> Any:
    yield "paid"


async def _yields_later(_: object) -> Any:
    yield "paid"


@pytest.mark.parametrize("yields", [_yields, _yields_later])
async def test_a_generator_is_no_result(yields: Callable[[Any], Any]) -> None:
    """Rule 89: a call whose body never ran is not `ok`."""
    (done,) = await run([echo(yields)], call())
    assert done.record.status is CallStatus.FAILED
    assert "nothing was run" in said(done)
