"""Runs the cells of a plan against an upstream: the only part of a probe that sends, waits and counts.

Cells take turns, so that a run that is stopped knows something of each. A rate limit is waited for as long as the
upstream asks; every request counts against the plan, also one that is sent again. `result` is complete at any moment,
and a later run can go on from it.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from importlib.metadata import version

import msgspec

from mustcall.core.errors import UpstreamUnavailable
from mustcall.core.origin import JsonObject
from mustcall.core.reply import Usage
from mustcall.core.request import Request
from mustcall.policy.failures.backoff import is_transient, retry_after
from mustcall.policy.limits.budget import Price
from mustcall.probe.exchanging import exchange
from mustcall.probe.planning import ProbePlan, RequestBudget, body_of, most_tokens
from mustcall.probe.results import CellResult, ProbeResult, ProbeSpending
from mustcall.probe.values import Cell, CellFinding, CellVerdict, Outcome, Owner, Seen, Send
from mustcall.probe.verdicts import count, is_settled, settle_owner, settle_verdict
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.retry import Clock
from mustcall.upstream.seam import Transport

__all__ = ["Prober", "Subject"]

#: Seconds that a rate limit is waited for at most, each time and in one request.
_LONGEST_WAIT = 120.0
_MOST_WAITS = 6
_FIRST_WAIT = 1.0
#: Exchanges in a row without a connection after which the upstream is gone.
_GONE = 3
#: Seconds after a stream in which a server may still close the connection: llama.cpp does, and does not announce it.
_CLOSING = 0.05
#: A key that is refused at first is refused always.
_DENIED = frozenset({401, 403})
_RATE_LIMITS = frozenset({429, 503, 529})


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Who is measured and by what means. `off` are the body fields that turn reasoning off, where it has such."""

    endpoint: Endpoint
    model: str
    transport: Transport
    clock: Clock
    price: Price | None = None
    off: JsonObject = {}
    limit_field: str = "max_tokens"


class _Spent(Exception):
    """The plan has no room for another request."""


class _Gone(Exception):
    """The upstream cannot be measured any more; the text says why."""


class _Tally:
    """One cell and what its tries showed so far."""

    def __init__(self, cell: Cell, planned: int, before: CellResult | None = None) -> None:
        self.cell = cell
        self.planned = planned
        self.findings: list[CellFinding] = [] if before is None else _findings(before, cell.duty)
        self.whole: CellFinding | None = None
        self.unreasoned: CellFinding | None = None
        self.explained = before is not None and before.explained
        #: What an earlier run settled, with the owner that it found.
        settled = cell.script is not None and self.is_done and not self.is_open
        self._settled = before if settled else None

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return tuple(finding.outcome for finding in self.findings)

    @property
    def is_done(self) -> bool:
        return self.cell.script is None or len(self.findings) >= self.planned or is_settled(self.outcomes)

    @property
    def fails(self) -> bool:
        return any(outcome in (Outcome.NOT_DONE, Outcome.CRASHED, Outcome.REFUSED) for outcome in self.outcomes)

    @property
    def is_open(self) -> bool:
        """Whether it failed and no reply told the owner, so that it has to be tried in other ways."""
        if self.explained or not (self.is_done and self.fails) or not (self.cell.streams or self.cell.reasons):
            return False
        return not any(finding.owner for finding in self.findings)

    def result(self) -> CellResult:
        if self._settled is not None:
            return self._settled
        cell, outcomes = self.cell, self.outcomes
        share, verdict = count(outcomes), settle_verdict(outcomes)
        owner, note = settle_owner(self.findings, cell.duty, whole=self.whole, unreasoned=self.unreasoned)
        if verdict is CellVerdict.HELD:
            owner, note = None, "" if cell.watch else next((each.note for each in self.findings if each.note), "")
        elif verdict is CellVerdict.UNMEASURED:
            note = next((finding.note for finding in self.findings), "")
        return CellResult(
            id=cell.id,
            guarantee=cell.guarantee,
            group=cell.group,
            required=cell.required,
            verdict=verdict,
            owner=owner,
            note=note,
            outcomes=outcomes,
            planned=self.planned if cell.watch is None else 0,
            fact=cell.fact,
            low=round(share.low, 4),
            high=round(share.high, 4),
            held=share.hits,
            measured=share.of,
            value=next((finding.value for finding in self.findings if finding.value is not None), None),
            explained=self.explained or any(finding.owner for finding in self.findings),
        )


class Prober:
    """One run. `run` yields the result of a cell each time it changed; `result` is what is known so far.

    With `before`, the result of a run of the same plan that was stopped, it goes on from there: tries that were made
    are not repeated, and what they took counts against the plan.
    """

    def __init__(self, subject: Subject, plan: ProbePlan, before: ProbeResult | None = None) -> None:
        self.plan = plan
        self.request_budget = RequestBudget(plan, subject.price)
        self.partial = ""
        self._subject = subject
        known = {} if before is None else {cell.id: cell for cell in before.cells}
        self._tallies = [_Tally(cell, cell.tries.at(plan.level), known.get(cell.id)) for cell in plan.cells]
        self._watchers = [tally for tally in self._tallies if tally.cell.watch is not None]
        self._began = subject.clock.monotonic()
        self._started = datetime.fromtimestamp(subject.clock.now(), UTC).isoformat(timespec="seconds")
        if before is not None:
            self.request_budget.go_on(before.spent.requests, before.spent.usage, before.spent.cost_usd or 0.0)
            self._began -= before.spent.seconds
            self._started = before.started
        self._failures = 0
        self._answered = False
        self._sent = 0

    @property
    def endpoint(self) -> Endpoint:
        """The upstream that is measured."""
        return self._subject.endpoint

    @property
    def result(self) -> ProbeResult:
        """Everything that was measured so far."""
        subject, plan = self._subject, self.plan
        return ProbeResult(
            mustcall=version("mustcall"),
            upstream=subject.endpoint.name,
            base_url=subject.endpoint.base_url,
            wire=subject.endpoint.wire,
            model=subject.model,
            level=plan.level,
            client=str(plan.client or ""),
            started=self._started,
            partial=self.partial,
            announced_requests=plan.most_requests,
            announced_usd=plan.most_usd,
            spent=ProbeSpending(
                requests=self.request_budget.requests,
                input_tokens=self.request_budget.usage.input_tokens,
                output_tokens=self.request_budget.usage.output_tokens,
                cost_usd=None if subject.price is None else round(self.request_budget.cost, 6),
                seconds=round(subject.clock.monotonic() - self._began, 1),
            ),
            cells=tuple(tally.result() for tally in self._tallies),
        )

    @property
    def is_gone(self) -> bool:
        """Whether the upstream never answered."""
        return self._failures > 0 and self._sent == self._failures

    async def run(self) -> AsyncGenerator[CellResult]:
        """Try the cells in turns until each is settled or the plan is used up."""
        self.partial = "stopped before all cells were measured"
        try:
            for tally in self._tallies:
                if tally.is_open:  # an earlier run stopped before that
                    await self._explain(tally)
                    yield tally.result()
            while open_cells := [tally for tally in self._tallies if not tally.is_done]:
                for tally in open_cells:
                    tally.findings.append(await self._try(tally.cell, len(tally.findings), lambda request: request))
                    yield tally.result()
                    if tally.is_done and tally.fails:
                        await self._explain(tally)
                        yield tally.result()
        except _Spent:
            self.partial = "the announced budget was used up before all cells were measured"
            return
        except _Gone as gone:
            self.partial = str(gone)
            return
        self.partial = ""

    async def _explain(self, tally: _Tally) -> None:
        """Try a cell that fails once more, whole and without reasoning, to find whose fault it is."""
        if not tally.is_open:
            return
        cell = tally.cell
        number = next(
            place for place, outcome in enumerate(tally.outcomes) if outcome not in (Outcome.HELD, Outcome.UNMEASURED)
        )
        if cell.streams and self.request_budget.left > 0:
            tally.whole = await self._try(cell, number, _whole)
        if cell.reasons and self.request_budget.left > 0:
            tally.unreasoned = await self._try(cell, number, _unreasoned)
        tally.explained = True

    async def _try(self, cell: Cell, number: int, change: Callable[[Request], Request]) -> CellFinding:
        """Make one try of a cell."""
        assert cell.script is not None, "a cell that watches is not tried"
        steps = cell.script(number)
        batch = next(steps)
        while True:
            sends = [_changed(send, change) for send in batch]
            if len(sends) == 1:
                seen = [await self._send(cell, sends[0])]
            else:
                seen = await self._together(cell, sends)
            try:
                batch = steps.send(tuple(seen))
            except StopIteration as end:
                return end.value

    async def _together(self, cell: Cell, sends: list[Send]) -> list[Seen]:
        if self.request_budget.left < len(sends):
            raise _Spent
        tasks = [asyncio.create_task(self._send(cell, send)) for send in sends]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, cell: Cell, send: Send) -> Seen:
        """Send a request, again after a rate limit; raise `_Spent` or `_Gone`."""
        subject, waits = self._subject, 0
        body = body_of(send, subject.endpoint.wire, subject.model, limit_field=subject.limit_field)
        if body is not None and send.request is not None and send.request.reasoning is None:
            body = subject.off | body
        most = most_tokens(body)
        while True:
            if not self.request_budget.take(most):
                raise _Spent
            took: Usage | None = Usage()
            try:
                self._sent += 1
                seen = await exchange(
                    subject.endpoint, subject.transport, subject.clock, send, body=body, token=f"probe{self._sent}"
                )
                took = _took(seen)
            finally:
                self.request_budget.settle(most, took)
            if seen.streamed:
                await subject.clock.sleep(_CLOSING)
            self._note_reach(seen)
            for watcher in self._watchers:
                self._watch(watcher, cell, send, seen)
            wait = self._wait(seen, waits)
            if wait is None:
                return seen
            waits += 1
            await subject.clock.sleep(wait)

    def _wait(self, seen: Seen, waits: int) -> float | None:
        """Return the seconds to wait before a request is sent again, None where it is not."""
        if seen.broken == UpstreamUnavailable.code and not seen.status:
            return 0.0 if waits == 0 else None  # an idle connection that the server just closed; clients try again
        if seen.status not in _RATE_LIMITS or waits >= _MOST_WAITS or seen.error is None:
            return None
        asked = retry_after(seen.headers, self._subject.clock.now())
        if seen.status == 503 and asked is None:
            return None  # a crash, as far as anybody said
        if not is_transient(seen.error):
            return None
        wait = _FIRST_WAIT * 2.0**waits if asked is None else asked
        return wait if wait <= _LONGEST_WAIT else None

    def _note_reach(self, seen: Seen) -> None:
        self._failures = self._failures + 1 if seen.status == 0 and seen.broken else 0
        if self._failures >= _GONE:
            raise _Gone("the upstream could not be reached any more")
        self._answered = self._answered or seen.answered
        if seen.status in _DENIED and not self._answered:
            raise _Gone(f"the upstream refuses the key: HTTP {seen.status}")

    def _watch(self, watcher: _Tally, cell: Cell, send: Send, seen: Seen) -> None:
        watch = watcher.cell.watch
        if watch is None or (not cell.watched and seen.status not in _RATE_LIMITS):
            return
        finding = watch(self._subject.endpoint.wire, send, seen)
        if finding is not None:
            watcher.findings.append(finding)


def _findings(before: CellResult, duty: Owner) -> list[CellFinding]:
    """Return what the tries of an earlier run showed. Only an owner that a reply told differs from the duty."""
    told = before.owner if before.owner is not duty else None
    fine = (Outcome.HELD, Outcome.UNMEASURED)
    return [
        CellFinding(outcome=outcome, note=before.note, owner=None if outcome in fine else told, value=before.value)
        for outcome in before.outcomes
    ]


def _took(seen: Seen) -> Usage | None:
    """Return what a request took: nothing where it was refused or never arrived, None where nobody counted."""
    if seen.reply is not None:
        return seen.reply.usage
    return None if seen.cancelled or (seen.broken and seen.status) else Usage()


def _changed(send: Send, change: Callable[[Request], Request]) -> Send:
    return send if send.request is None else msgspec.structs.replace(send, request=change(send.request))


def _whole(request: Request) -> Request:
    return msgspec.structs.replace(request, stream=False, stream_usage=False)


def _unreasoned(request: Request) -> Request:
    return msgspec.structs.replace(request, reasoning=None)
