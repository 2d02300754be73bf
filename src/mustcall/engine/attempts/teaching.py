"""What one turn teaches later ones: facts from refusals, and counts of which rung made a demanded call (rules 33, 139).

Whether a turn shows anything at all is decided here: a refusal says something only if the upstream answers the mended
request, and not with words of the request itself; faults on the way, refusals and a caller who leaves say nothing
about a rung. Who believes it, and what follows from facts and counts, is decided in `profiles`.
"""

from collections.abc import Iterable
from itertools import zip_longest
from urllib.parse import unquote_plus

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.errors import ModelError, MustcallError, UpstreamTimeout
from mustcall.core.reply import Reply
from mustcall.core.verdict import Verdict
from mustcall.engine.turn_context import TurnContext
from mustcall.policy.failures.evidence import is_quoted
from mustcall.policy.reply.judge import Judgement
from mustcall.policy.turn.state import Lesson
from mustcall.profiles.learnt import SCHEMA, TOOL
from mustcall.profiles.tallies import ARGUMENTS, MISSES, subjects
from mustcall.telemetry.events import FactLearnt
from mustcall.upstream.endpoint import forwarded

__all__ = ["Teaching"]

#: Fields of which a lesson is about single schemas or tools, and how their facts begin.
_SINGLE = {"schema_target": SCHEMA, "refused_tools": TOOL}


class Teaching:
    """Notes what a turn on one endpoint's model shows."""

    __slots__ = ("_context", "_late", "_model", "_noted", "_supposed", "answering")

    def __init__(self, context: TurnContext) -> None:
        self._context = context
        self._model = context.model or context.request.model
        self._late = False
        self._noted = False
        #: What refusals seem to say, as long as no mended request was answered.
        self._supposed: list[Lesson] = []
        #: Whether the current attempt's answer has begun.
        self.answering = False

    def out_of_time(self, message: str) -> UpstreamTimeout:
        """Return the error of a turn that ran into its deadline."""
        self._late = True
        return UpstreamTimeout(message)

    def suppose(self, lesson: Lesson) -> None:
        """Take what a refusal seems to teach, unless it may only repeat the caller's own words."""
        inbound = self._context.inbound
        others = (unquote_plus(inbound.query), *forwarded(inbound.headers).values())
        if lesson.field in _SINGLE:  # what was supposed of a schema or a tool before did not help
            self._supposed = [one for one in self._supposed if one.field not in _SINGLE]
        if not is_quoted(lesson.words, inbound.body, others):
            self._supposed.append(lesson)

    def began(self, log: AdaptationLog) -> None:
        """Report what is learnt if the answer that has just begun is one."""
        self.answering = True
        for lesson in self._supposed:
            log.add(AdaptationKind.LEARNT, lesson.field, lesson.why)

    def _answered(self) -> None:
        """Note what refusals taught: the mended request was answered with a reply that could be read."""
        context, services = self._context, self._context.services
        at = services.clock.now()
        for lesson in self._supposed:
            start = _SINGLE.get(lesson.field)
            single = zip_longest(lesson.schemas, lesson.names, fillvalue="")
            fields = [(f"{start}{digest}", name) for digest, name in single if digest]
            for field, name in ((lesson.field, ""),) if start is None else fields:
                why = f"{lesson.why}: {name}" if name else lesson.why  # a digest tells people nothing
                news = services.learnt.learn(
                    context.endpoint.name, self._model, field, lesson.value, why, at=at, tenant=context.inbound.tenant
                )
                if news and services.events.listening:
                    services.events.emit(self._told(field, lesson, at))
        self._supposed.clear()

    def _told(self, field: str, lesson: Lesson, at: float) -> FactLearnt:
        inbound = self._context.inbound
        return FactLearnt(
            at=at,
            request_id=inbound.request_id,
            upstream=self._context.endpoint.name,
            model=self._model,
            wire=str(inbound.wire),
            class_=field,
            value=str(lesson.value),
        )

    def met(self, dialect: str) -> None:
        """Count a turn that ended with the demanded call; `dialect` is its format if it stood in text."""
        turn_state = self._context.turn_state
        self._count(subjects(turn_state.missed, turn_state.rung, dialect))

    def unmet(self, verdict: Verdict | None) -> None:
        """Count a turn whose last reply did not hold the demanded call."""
        if verdict in MISSES:
            turn_state = self._context.turn_state
            self._count(subjects((*turn_state.missed, turn_state.rung)))

    def failed(self, error: MustcallError, verdict: Verdict | None) -> None:
        """Count a forced turn that failed by what the model wrote (the last verdict), or by how long it wrote."""
        if self._late:
            turn_state = self._context.turn_state
            self._count(subjects(turn_state.missed, late=turn_state.rung if self.answering else None))
        elif isinstance(error, ModelError):
            self.unmet(verdict)

    def judged(self, reply: Reply, judged: Judgement) -> None:
        """Take note of a reply that could be read.

        Count the provider's own calls in it: whether they could be delivered as they came (rule 145).
        """
        if self._supposed:
            self._answered()
        calls = reply.calls
        if not calls or judged.dialect:
            return
        if judged.verdict in (Verdict.BAD_ARGUMENTS, Verdict.UNKNOWN_TOOL) or judged.cut_call:
            made = False
        elif judged.verdict is Verdict.CALLED:
            made = judged.reply is reply or all(call in calls for call in judged.reply.calls)
        else:  # it says nothing about arguments
            return
        context, now = self._context, self._context.services.clock.now()
        tallies = context.services.learnt.tallies
        if not made or not tallies.trusts(context.endpoint.name, self._model, now, context.inbound.tenant):
            self._observe([(ARGUMENTS, made)] * (len(calls) if made else 1), now)

    def _count(self, seen: Iterable[tuple[str, bool]]) -> None:
        """Count once in a turn: the failure of a stream is told twice."""
        if not self._noted:
            self._noted = True
            self._observe(seen, self._context.services.clock.now())

    def _observe(self, seen: Iterable[tuple[str, bool]], now: float) -> None:
        context = self._context
        learnt, place, tenant = context.services.learnt, context.endpoint.name, context.inbound.tenant
        for subject, made in seen:
            learnt.observe(place, self._model, subject, made=made, now=now, tenant=tenant)
