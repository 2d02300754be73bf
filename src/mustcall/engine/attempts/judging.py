"""Judges the replies of one turn and carries their remedies out, as far as that needs no upstream.

Verdicts and remedies are `policy`'s. Here a reply is brought into the caller's names, judged off the loop where that
takes long, and what follows is noted: in the record, in the log, and for the turns to come.
"""

import msgspec

from mustcall.core.adaptation import AdaptationKind
from mustcall.core.errors import ModelError, MustcallError
from mustcall.core.reply import Reply
from mustcall.core.verdict import OutcomeKind, Verdict
from mustcall.engine.attempts.echoing import Echoing
from mustcall.engine.attempts.refusals import told_of
from mustcall.engine.attempts.teaching import Teaching
from mustcall.engine.off_loop import Aside, heavily, here
from mustcall.engine.records import spent
from mustcall.engine.replies.restoring import restored
from mustcall.engine.turn_context import TurnContext
from mustcall.policy.reply.cut_prompt import prompt_bound
from mustcall.policy.reply.gate import Released
from mustcall.policy.reply.judge import Judgement, judge
from mustcall.policy.reply.provider_calls import client_calls, met_by_provider
from mustcall.policy.scanning.reply_scanner import ScanFindings
from mustcall.policy.turn.remedy import ACCEPTED, ERRORS, Remedy
from mustcall.telemetry.logs import log_of

__all__ = ["Judging"]

_logger = log_of("mustcall.engine")


class Judging:
    """The verdicts of one turn."""

    __slots__ = ("_context", "_echoing", "_teaching", "_turn_state")

    def __init__(self, context: TurnContext, echoing: Echoing, teaching: Teaching) -> None:
        self._context = context
        self._turn_state = context.turn_state
        self._echoing = echoing
        self._teaching = teaching

    def restored(self, reply: Reply) -> Reply:
        """Return a reply in the caller's own names, and without what is ours (rule 146)."""
        return self._echoing.clear(restored(reply, self._context.binding, self._turn_state.names))

    async def judge(
        self, reply: Reply, seen: ScanFindings | None = None, *, sent_limit: int | None, heavy: bool
    ) -> Judgement:
        """Judge a reply by what was `seen` in its text while it came, else by what is in it."""
        context, token = self._context, self._context.token
        bound = prompt_bound(context.request, len(context.inbound.body), reply.usage)
        case = self._turn_state.case(token, bound, sent_limit)

        def look() -> tuple[Judgement, ScanFindings]:
            found = self._echoing.look_through(reply, token) if seen is None else seen
            judged = judge(case, reply, found)
            if reply.others and judged.reply is reply and not all(map(is_sound, reply.others)):
                judged = msgspec.structs.replace(judged, reply=reply.evolve())  # written again, with its first choice
            return judged, found

        def is_sound(choice: Reply) -> bool:
            if not self._echoing.is_clear(choice):
                return False
            judged = judge(case, choice, self._echoing.look_through(choice, token))
            return judged.verdict in ACCEPTED and judged.reply is choice

        looked = Aside.ASIDE if heavy else here(look)
        judged, found = await heavily(look) if looked is Aside.ASIDE else looked
        judged = self._echoing.noted(judged)
        self._teaching.judged(reply, judged)
        record, services = context.record.attempts[-1], context.services
        record.note(judged, found, reply.usage)
        record.reply = reply
        if services.tally is not None:
            services.tally.heard(reply)
        record.seconds = services.clock.monotonic() - record.started
        return judged

    def settle(self, judged: Judgement, shown: Released | None, *, earlier: bool) -> Reply | None:
        """Carry a verdict's remedy out; return the reply to deliver, None for another attempt, or raise.

        `shown` is what the caller has seen of the turn, None if that is nothing. `earlier` says that it came from
        attempts before this one: if one of them was seen to speak, this one may only add its calls.
        """
        spoke = shown is not None and shown.spoke
        decision = self._turn_state.settle(
            judged,
            released=shown is not None,
            spoke=spoke,
            called=shown is not None and shown.called,
            stateful=self._turn_state.stored,
        )
        record = self._context.record
        record.attempts[-1].remedy = decision.remedy
        for note in judged.notes:
            kept = (Remedy.FAIL,) if note.kind is AdaptationKind.CALL_DROPPED else ()
            if note.kind is AdaptationKind.REPORTED or decision.remedy in (Remedy.ACCEPT, Remedy.SALVAGE, *kept):
                self._context.log.add(note.kind, note.subject, note.detail)
        accepted = judged.salvage if decision.remedy is Remedy.SALVAGE else judged.reply
        match decision.remedy:
            case Remedy.ACCEPT | Remedy.SALVAGE:
                assert accepted is not None, "only what can be salvaged is"
                first = record.attempts[0].verdict
                stands = first is judged.verdict is Verdict.PHANTOM_CALL  # an answer that is said to be calls
                calls = accepted.calls or client_calls(accepted, self._context.request)
                if earlier and spoke and not calls and not stands:
                    raise spent(record, judged, ERRORS.get(first, ModelError) if first is not None else ModelError)
                self._accept(judged, accepted)
                return accepted
            case Remedy.FAIL:
                raise spent(record, judged, decision.error or ModelError, appended=self._turn_state.appended)
            case Remedy.RESAMPLE | Remedy.REMIND | Remedy.CLIMB:
                return None

    def _accept(self, judged: Judgement, reply: Reply) -> None:
        context, record, demand = self._context, self._context.record, self._turn_state.plan.demand
        items = client_calls(reply, context.request)
        if demand.forced:
            made = judged.verdict is Verdict.CALLED or reply is judged.salvage
            met = made and (any(map(demand.permits, reply.calls)) or any(map(demand.permits_item, items)))
            met = met or (judged.verdict is Verdict.ANSWERED and met_by_provider(demand, context.request, reply))
            record.force = "met" if met else "unmet"
            if met:
                self._teaching.met(judged.dialect)
            elif not (reply.calls or items):
                self._teaching.unmet(judged.verdict)
        elif demand.notes and any(note.kind is AdaptationKind.FORCE_DROPPED for note in demand.notes):
            record.force = "dropped"
        record.outcome = OutcomeKind.CALLS if reply.calls or items else OutcomeKind.ANSWER
        context.services.issued.note(reply, self._turn_state.issuer)
        record.adaptations = context.adaptations

    def failed(self, error: MustcallError) -> MustcallError:
        """Take note of the error that the turn ends in, and return it as the caller may see it."""
        context, record = self._context, self._context.record
        error = told_of(error)
        record.outcome, record.error = OutcomeKind.FAILURE, type(error).code
        if self._turn_state.plan.demand.forced:
            record.force = "unmet"
            self._teaching.failed(error, record.attempts[-1].verdict if record.attempts else None)
        record.adaptations = context.adaptations
        if context.progress.failed is not None:
            context.progress.failed(error, record)
        if isinstance(error, ModelError):
            # A run may ask in several turns, and its error counts the attempts of all of them.
            count = len(record.attempts)
            made = f"{count} attempt{'' if count == 1 else 's'}"
            _logger.warning("request %s: %s after %s of this turn", context.inbound.request_id, error.code, made)
        return error
