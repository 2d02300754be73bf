"""Sends the attempts of one turn: each request written, sent within the turn's time, and repeated where it broke off.

It judges nothing: what an answer means is the turn's. All calls of a turn are counted here, under one ceiling
(rule 96), and none begins with too little time left (rule 97).
"""

from mustcall.core.adaptation import AdaptationKind
from mustcall.core.errors import ErrorInfo, MustcallError
from mustcall.core.verdict import Verdict
from mustcall.engine.attempts.outgoing import Outgoing
from mustcall.engine.attempts.teaching import Teaching
from mustcall.engine.off_loop import LARGE, Aside, heavily, here
from mustcall.engine.records import AttemptRecord
from mustcall.engine.spending.counting import Counting
from mustcall.engine.turn_context import TurnContext
from mustcall.policy.failures.backoff import is_transient
from mustcall.policy.failures.rejection import without_generation
from mustcall.policy.limits.budget import has_time
from mustcall.upstream.retry import Answer, Tries, send_patiently

__all__ = ["Sending"]

_NO_TIME = "the time for this request ran out before an attempt could be made"


class Sending:
    """The exchanges of one turn."""

    __slots__ = ("_context", "_counting", "_outgoing", "_teaching", "_tries", "limit")

    def __init__(self, context: TurnContext, teaching: Teaching) -> None:
        self._context = context
        self._teaching = teaching
        self._outgoing = Outgoing(context)
        counting = self._counting = Counting(context)
        self._tries = Tries(counting.may, counting.note, context.services.controls.limits.least_seconds)
        #: The cap on the reply's tokens that was sent last.
        self.limit: int | None = None

    async def send(self) -> Answer:
        """Send the next attempt's request, and note the attempt."""
        context, clock, turn_state = self._context, self._context.services.clock, self._context.turn_state
        attempts = context.record.attempts
        self._teaching.answering = False
        if attempts:
            self._counting.note()
        if not has_time(context.deadline, clock.monotonic(), self._tries.least):
            raise self._teaching.out_of_time(_NO_TIME)
        write = self._outgoing.body
        written = Aside.ASIDE if len(context.inbound.body) > LARGE * 4 else here(write) if turn_state.bends else write()
        body = await heavily(write) if written is Aside.ASIDE else written
        self.limit = self._outgoing.limit
        record = AttemptRecord(rung=turn_state.rung, body=body, started=clock.monotonic())
        attempts.append(record)
        call = self._outgoing.call(body, len(attempts))
        if context.inbound.stream and not turn_state.shaped().request.stream:
            context.progress.holding = True  # nothing comes before all of it is there: the caller needs signs of life
        try:
            answer = await send_patiently(
                context.services.transport,
                call,
                context.endpoint.backoff,
                context.theirs.decode_error,
                clock=clock,
                deadline=context.deadline,
                log=context.log,
                tries=self._tries,
            )
        except MustcallError as error:
            record.verdict, record.error = Verdict.UNAVAILABLE, error.code
            raise
        finally:
            record.retries = self._tries.take()
            record.sends = 1 + len(record.retries)
            record.seconds = clock.monotonic() - record.started
        record.first_byte = record.seconds
        return answer

    async def again_after(self, error: ErrorInfo, *, shown: bool) -> bool:
        """Wait and tell whether to try again after an answer that broke off; never once something was shown."""
        context, clock = self._context, self._context.services.clock
        error = without_generation(error)
        context.record.attempts[-1].note_failure(error, clock.monotonic())
        if shown or not is_transient(error):
            return False
        wait = self._tries.wait(context.endpoint.backoff, error.retry_after, clock, context.deadline)
        if wait is None:
            return False
        self._teaching.answering = False
        self._tries.used += 1
        context.log.add(AdaptationKind.RETRIED, f"attempt {self._tries.used}", error.code)
        context.progress.holding = context.inbound.stream
        await clock.sleep(wait)
        return True
