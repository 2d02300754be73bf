"""Calls, run: checked, approved, within limits, each ending in exactly one result for the model.

Whatever a tool does (raise, hang, exit, return megabytes), a call ends in an `ExecutedCall` and a `ToolResult`; only
cancelling the run itself leaves this module as an exception. What the model reads of a failure is one neutral line;
the details go to the log (rule 110). Nothing here decides what happens next.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import Any

import msgspec

from mustcall.core.errors import ToolError, ToolRefused
from mustcall.core.parts import Text, ToolCall, ToolResult
from mustcall.engine.spending.metering import Egress
from mustcall.engine.tooling.definition import Approve, FunctionTool, ToolContext, is_async
from mustcall.engine.tooling.injecting import asked_with
from mustcall.engine.tooling.ordering import unmet
from mustcall.engine.tooling.outcomes import CallStatus, ExecutedCall
from mustcall.engine.tooling.reading import Unfit
from mustcall.engine.tooling.roster import Roster
from mustcall.engine.tooling.threads import in_thread
from mustcall.engine.tooling.wrapping import Output, as_line, cut, read_output, wrapped
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.wording import Wording, fill
from mustcall.policy.schema.arguments import check_arguments
from mustcall.policy.schema.validation import describe_problems
from mustcall.telemetry.logs import log_of
from mustcall.upstream.retry import Clock

__all__ = ["Begin", "Executed", "Runner"]

_logger = log_of("mustcall.tools")

Begin = Callable[[ToolCall], Awaitable[None]]
"""Told of a call when it has been checked and approved, just before its tool is begun."""

#: How long a cancelled tool may take to clean up before it is left behind.
_GRACE_SECONDS = 1.0


class Executed(msgspec.Struct, frozen=True):
    """A call's outcome for people, and its result for the history."""

    record: ExecutedCall
    result: ToolResult


class _Ended(Exception):
    """A try is over without an output: its status, the line for the model, and whether another could end otherwise."""

    def __init__(
        self, status: CallStatus, line: str, *, final: bool = True, raised: BaseException | None = None
    ) -> None:
        super().__init__(line)
        self.status = status
        self.line = line
        self.final = final
        #: What the tool raised.
        self.raised = raised


class Runner:
    """Runs the calls of one run."""

    def __init__(
        self,
        roster: Roster,
        *,
        concurrency: int,
        approve: Approve | None,
        wording: Wording,
        clock: Clock,
        egress: Egress | None = None,
        controls: Controls | None = None,
        deps: Any = None,
    ) -> None:
        self._roster = roster
        self._controls = controls or Controls()
        self._approve = approve
        self._wording = wording
        self._clock = clock
        self._egress = egress
        self._deps = deps
        #: The tools that have succeeded in the steps before this one.
        self.succeeded: frozenset[str] = frozenset()
        self._asking = asyncio.Lock()
        self._concurrency = concurrency
        self._slots = asyncio.Semaphore(concurrency)
        self._own_slots = {
            name: asyncio.Semaphore(tool.settings.concurrency)
            for name, tool in roster.tools.items()
            if tool.settings.concurrency
        }

    async def run_all(
        self,
        calls: Sequence[ToolCall],
        step: int,
        started: Callable[[ToolCall], Awaitable[None]],
        finished: Callable[[Executed], Awaitable[None]],
        begin: Begin | None = None,
    ) -> tuple[Executed, ...]:
        """Run the calls of one reply side by side; return their outcomes in the order of the calls."""

        async def one(call: ToolCall) -> Executed:
            executed = await self._run(call, step, begin)
            await finished(executed)
            return executed

        for call in calls:
            await started(call)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(call)) for call in calls]
        except BaseExceptionGroup as errors:  # who writes down what happens could not: the others were stopped
            raise errors.exceptions[0] from None
        return tuple(task.result() for task in tasks)

    def begin_at_once(self, calls: Sequence[ToolCall]) -> list[int]:
        """Return which calls of a reply have nothing between them and their tools.

        They fit, nobody has to approve them, and none of them waits for one before it to end.
        """
        free = self._concurrency
        own: dict[str, int] = {}
        at_once: list[int] = []
        for index, call in enumerate(calls):
            tool = self._roster.tools.get(call.name)
            if tool is None or self._early(call) or not check_arguments(tool.offer, call.arguments_json).valid:
                continue
            most = tool.settings.concurrency
            own[call.name] = own.get(call.name, 0) + 1
            if most and own[call.name] > most:  # waits for its tool, and takes nobody's place meanwhile
                continue
            free -= 1  # also one that is asked about: if it is approved at once, it is before those behind it
            if free >= 0 and (tool.settings.approve or self._approve) is None:
                at_once.append(index)
        return at_once

    def _early(self, call: ToolCall) -> tuple[str, ...]:
        """Return what has to succeed before a call: it is not run, nor asked about, before that."""
        return unmet(call.name, self._roster, self.succeeded)

    async def settled(self, call: ToolCall, step: int) -> Executed | None:
        """Return what becomes of a call that a run was interrupted in; None for one that is to be made (again)."""
        tool = self._roster.tools.get(call.name)
        if tool is None:
            return _line(call, CallStatus.UNKNOWN, fill(self._wording.tool_unknown, tool=call.name), step)
        if tool.settings.repeatable:
            return None
        match await self._asked(tool, call, step):
            case False:
                return None
            case None:
                line = fill(self._wording.tool_unknown, tool=call.name)
                return _line(call, CallStatus.UNKNOWN, line, step, tries=1)
            case True:
                return self._said(tool, call, Output(fill(self._wording.tool_happened, tool=call.name)), step)
            case result:
                return self._said(tool, call, Output(result), step)

    async def _asked(self, tool: FunctionTool, call: ToolCall, step: int) -> bool | str | None:
        """Ask a tool's check whether a call took effect; None where that cannot be told."""
        check = tool.settings.check
        if check is None:
            return None
        try:
            ask = asked_with(check, call, self._context(call, step))
            answer = ask() if is_async(check) else await in_thread(ask)
            said: Any = await answer if inspect.isawaitable(answer) else answer
        except Exception as error:  # the user's own code
            _logger.warning("tool %s: the check failed: %s", call.name, type(error).__name__)
            _logger.debug("the check of %s", call.id, exc_info=True)
            return None
        return said if isinstance(said, bool | str) else None

    def refused(self, call: ToolCall, step: int) -> Executed:
        """Return the outcome of a call that comes when the hops are spent (rule 83)."""
        line = fill(self._wording.hops_spent, tool=call.name)
        return _line(call, CallStatus.HOP_BUDGET_EXHAUSTED, line, step)

    def unaffordable(self, call: ToolCall, step: int) -> Executed:
        """Return the outcome of a call that comes when the run has spent its money (rules 89, 95)."""
        line = fill(self._wording.money_spent, tool=call.name)
        return _line(call, CallStatus.COST_CAP_EXCEEDED, line, step)

    async def _run(self, call: ToolCall, step: int, begin: Begin | None) -> Executed:
        tool = self._roster.tools.get(call.name)
        if tool is None:
            return _line(call, CallStatus.UNKNOWN_TOOL, self._wording.unknown_tool, step)
        if before := self._early(call):
            named = " and ".join(f"`{name}`" for name in before)
            problem = f"{named} must succeed first"
            return _line(
                call, CallStatus.REFUSED, fill(self._wording.tool_refused, tool=call.name, problem=problem), step
            )
        try:
            attempt = await self._ready(tool, call, step)
        except _Ended as ended:
            return _line(call, ended.status, ended.line, step)
        own = self._own_slots.get(call.name)
        async with own or nullcontext(), self._slots:
            if begin is not None:
                await begin(call)
            return await self._try(tool, call, attempt, step)

    async def _ready(self, tool: FunctionTool, call: ToolCall, step: int) -> Callable[[], Any]:
        """Check and approve a call; return it ready to be made (rule 90)."""
        checked = check_arguments(tool.offer, call.arguments_json)
        if not checked.valid:
            status = CallStatus.PARSE_ERROR if checked.unreadable else CallStatus.SCHEMA_ERROR
            raise self._misfit(call, describe_problems(checked.problems), status)
        known = call if checked.arguments == call.arguments_json else call.evolve(arguments_json=checked.arguments)
        try:
            context = self._context(known, step)
            attempt = tool.prepare(checked.arguments, context)
        except Unfit as unfit:
            raise self._misfit(call, str(unfit)) from None
        except Exception as error:  # noqa: BLE001  a type's own code
            _logger.warning("tool %s: arguments cannot be read: %s", call.name, type(error).__name__)
            raise self._misfit(call, type(error).__name__) from None
        approve = tool.settings.approve or self._approve
        if approve is not None and not await self._approved(approve, known, context):
            raise _Ended(
                CallStatus.REFUSED, fill(self._wording.tool_refused, tool=call.name, problem="it was not approved")
            )
        return attempt

    def _misfit(self, call: ToolCall, problem: str, status: CallStatus = CallStatus.SCHEMA_ERROR) -> _Ended:
        line = fill(self._wording.tool_misfit, tool=call.name, problem=as_line(problem).rstrip("."))
        return _Ended(status, line)

    def _context(self, call: ToolCall, step: int) -> ToolContext[Any]:
        return ToolContext(call=call, step=step, egress=self._egress, deps=self._deps)

    async def _approved(self, approve: Approve, call: ToolCall, context: ToolContext[Any]) -> bool:
        """Ask, one call at a time: people answer one question at a time. What cannot be asked is not approved."""
        async with self._asking:
            try:
                ask = asked_with(approve, call, context)
                answer = ask() if is_async(approve) else await in_thread(ask)
                answer = await answer if inspect.isawaitable(answer) else answer
            except Exception as error:  # the user's own code
                _logger.warning("tool %s: the approval failed: %s", call.name, type(error).__name__)
                _logger.debug("the approval of %s", call.id, exc_info=True)
                return False
        if not isinstance(answer, bool):  # "no" is as true as "yes"
            kind = type(answer).__name__
            _logger.warning("tool %s: not approved: the approval returned a %s, not True or False", call.name, kind)
        return answer is True

    async def _try(self, tool: FunctionTool, call: ToolCall, attempt: Callable[[], Any], step: int) -> Executed:
        """Run a call, again after a failure where its settings allow it."""
        settings = tool.settings
        began = self._clock.monotonic()
        allowed = 1 + (settings.retries if settings.repeatable else 0)
        tries = 0
        while True:
            tries += 1
            try:
                output = await self._once(tool, attempt)
                break
            except _Ended as ended:
                if tries < allowed and not ended.final:
                    continue
                seconds = self._clock.monotonic() - began
                over = _line(call, ended.status, ended.line, step, seconds=seconds, tries=tries)
                return over if ended.raised is None else Executed(over.record.raising(ended.raised), over.result)
        return self._said(tool, call, output, step, seconds=self._clock.monotonic() - began, tries=tries)

    async def _once(self, tool: FunctionTool, attempt: Callable[[], Any]) -> Output:
        """Make one try; raise `_Ended` for one that gave nothing."""
        task = asyncio.create_task(_invoke(tool, attempt))
        task.add_done_callback(_read_quietly)
        try:
            done, _ = await asyncio.wait({task}, timeout=tool.settings.timeout)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task}, timeout=_GRACE_SECONDS)
            raise
        words = self._wording
        if not done:
            task.cancel()
            await asyncio.wait({task}, timeout=_GRACE_SECONDS)  # one that will not stop is left behind
            _logger.warning("tool %s did not finish within %g s", tool.name, tool.settings.timeout)
            raise _Ended(CallStatus.TIMED_OUT, fill(words.tool_timed_out, tool=tool.name), final=False)
        if task.cancelled():
            line = fill(words.tool_failed, tool=tool.name, problem="it was cancelled")
            raise _Ended(CallStatus.FAILED, line, final=False)
        output, error = task.result()
        if isinstance(error, ToolRefused):
            line = fill(words.tool_refused, tool=tool.name, problem=as_line(error.message).rstrip("."))
            raise _Ended(CallStatus.REFUSED, line, raised=error)
        if error is not None:
            # A tool's own word needs no traceback: it was meant.
            shown = None if isinstance(error, ToolError) else error
            _logger.warning("tool %s failed: %s", tool.name, type(error).__name__, exc_info=shown)
            said = as_line(error.message) if isinstance(error, ToolError) else type(error).__name__
            line = fill(words.tool_failed, tool=tool.name, problem=said.rstrip("."))
            raise _Ended(CallStatus.FAILED, line, final=isinstance(error, ToolError), raised=error)
        assert output is not None, "a try gives an output or an error"
        return output

    def _said(
        self, tool: FunctionTool, call: ToolCall, output: Output, step: int, *, seconds: float = 0.0, tries: int = 1
    ) -> Executed:
        """Return the outcome of a call that gave an output."""
        shown = self._controls.shown_of_result(tool.name, tool.settings.result_cap)
        text = cut(output.text, shown, self._wording)
        record = ExecutedCall(
            call=call,
            result=text,
            status=CallStatus.FAILED if output.is_error else CallStatus.OK,
            seconds=seconds,
            tries=tries,
            step=step,
        )
        said = (Text(text=wrapped(tool.name, text)),) if text or not output.media else ()
        result = ToolResult(call_id=call.id, content=(*said, *output.media), is_error=output.is_error, kind=call.kind)
        return Executed(record, result)


async def _invoke(tool: FunctionTool, attempt: Callable[[], Any]) -> tuple[Output | None, BaseException | None]:
    """Call a tool and read what it returns; an error is a value, so that none can pass for one of the loop's own."""
    try:
        value = attempt() if tool.is_async else await in_thread(attempt)
        if inspect.isawaitable(value):
            value = await value
        if inspect.isgenerator(value) or inspect.isasyncgen(value):  # nothing of its body has run
            return None, ToolError("it gave a generator, of which nothing was run")
        return await in_thread(lambda: read_output(value)) if _takes_time(value) else read_output(value), None
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001  a tool's own code, and its own classes
        return None, error


def _takes_time(value: Any) -> bool:
    """Tell whether writing an output down could hold the event loop up."""
    return not isinstance(value, str | bytes | int | float | None)


def _read_quietly(task: "asyncio.Task[Any]") -> None:
    """Read a left-behind task's failure, so that nobody complains that it was not read."""
    if not task.cancelled():
        task.exception()


def _line(
    call: ToolCall, status: CallStatus, line: str, step: int, *, seconds: float = 0.0, tries: int = 0
) -> Executed:
    record = ExecutedCall(call=call, result=line, status=status, seconds=seconds, tries=tries, step=step)
    result = ToolResult(call_id=call.id, content=(Text(text=line),), is_error=True, kind=call.kind)
    return Executed(record, result)
