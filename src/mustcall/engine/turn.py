"""One turn: plan, attempt, judge, remedy, until the caller can be given exactly one outcome (design, section 5).

This is the only place that drives attempts. Decisions are `policy`'s; here they are carried out over the upstream
seam, under one deadline and one ceiling of calls. A healthy turn on one wire is forwarded byte for byte. Whatever the
upstream sends, only `MustcallError` leaves this module.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from itertools import chain

from mustcall.core.adaptation import Adaptation, AdaptationKind
from mustcall.core.errors import ModelError, MustcallError, UpstreamRejected, UpstreamUnavailable
from mustcall.core.reply import Reply
from mustcall.core.verdict import OutcomeKind, Verdict
from mustcall.engine.attempt import TOO_LONG, Attempt
from mustcall.engine.echoing import Echoing
from mustcall.engine.off_loop import Aside, heavily, here
from mustcall.engine.outlets import Outlet, P, Whole
from mustcall.engine.records import spent
from mustcall.engine.refusals import UpstreamRefused, check_isolation, harvested, read_probe, told_of
from mustcall.engine.restoring import restored
from mustcall.engine.sending import Sending
from mustcall.engine.teaching import Teaching
from mustcall.engine.turn_context import TurnContext
from mustcall.policy.failures.rejection import without_generation
from mustcall.policy.reply.cut_prompt import prompt_bound
from mustcall.policy.reply.gate import Released
from mustcall.policy.reply.judge import Judgement, judge
from mustcall.policy.scanning.reply_scanner import ScanFindings
from mustcall.policy.turn.remedy import ERRORS, Remedy
from mustcall.telemetry.logs import log_of
from mustcall.upstream.bounds import PIECE
from mustcall.upstream.idle import IdleTimer
from mustcall.upstream.seam import UpstreamReply
from mustcall.wire.binding import Binding
from mustcall.wire.outline import is_error_of
from mustcall.wire.regularity import respelled

__all__ = ["EngineTurn"]

_logger = log_of("mustcall.engine")


class EngineTurn:
    """One request up to its one outcome."""

    def __init__(self, context: TurnContext) -> None:
        self.context = context
        self.record = context.record
        self._course = context.course
        self._log = context.log
        self._binding = Binding(context.course.names.outgoing(context.request), context.endpoint.wire)
        self._readable = context.same_wire or self._binding.trivial
        self._teaching = Teaching(context)
        self._sending = Sending(context, self._teaching)
        self._echoing = Echoing(context)
        self._accepted: Reply | None = None
        #: The upstream's own bytes of a whole reply, where they may be forwarded.
        self.raw: bytes | None = None
        #: Whether the reply at hand takes long to look at.
        self.heavy = False

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the upstream's last answer."""
        return self._sending.headers

    @property
    def adaptations(self) -> tuple[Adaptation, ...]:
        """What was changed so far."""
        course = self._course
        lists = (course.plan.demand.notes, course.log.entries, course.isolation.notes, self._log.entries)
        return tuple(dict.fromkeys(chain(*lists))) if any(lists) else ()

    # --- the two ways a caller waits ---------------------------------------------------------------------------------

    async def reply(self) -> Reply:
        """Return the accepted reply; `raw` holds the upstream's own bytes of it where they may be forwarded.

        Raise `UpstreamRefused` for the upstream's own refusal, and `MustcallError`.
        """
        async for raw in self.pieces(Whole()):
            self.raw = raw
        assert self._accepted is not None, "a turn ends in a reply or raises"
        return self._accepted

    async def first(self, pieces: AsyncGenerator[P]) -> P:
        """Return the first of `pieces`, in the time of the turn; raise `UpstreamRefused` and `MustcallError`."""
        left = max(0.0, self.context.deadline - self.context.services.clock.monotonic())
        try:
            with IdleTimer(left):
                first = await anext(pieces, None)
        except TimeoutError:
            late = self._teaching.out_of_time("the upstream's answer did not begin within the time for this request")
            raise self.failed(late) from None
        if first is None:
            raise self.failed(UpstreamUnavailable("the upstream's stream ended before it began"))
        return first

    async def pieces(self, outlet: Outlet[P]) -> AsyncGenerator[P]:
        """Yield what the outlet makes of one attempt after the other until one is accepted.

        A failure is raised until something went out; then it is what the outlet makes of it.
        """
        progress, shown = self.context.progress, outlet.shown
        try:
            while True:
                attempt = await self._attempt(outlet)
                upstream, relay = attempt.answer.reply, attempt.relay
                if attempt.answer.error_body is not None:
                    if not self._harvest(attempt, attempt.answer.error_body):
                        continue
                else:
                    body, heavy = b"", False
                    # One generator from the upstream's bytes to the caller's: every layer would cost each event.
                    try:
                        with attempt.time():
                            if relay is None:
                                body = await upstream.read()
                            else:
                                async with aclosing(upstream.chunks()) as pieces:
                                    async for piece in pieces:
                                        data = await heavily(relay.feed, piece) if heavy else relay.feed(piece)
                                        heavy = len(piece) >= PIECE and relay.strains
                                        holding = relay.holding
                                        if holding or relay.quiet:
                                            attempt.check_time(relay, self._teaching)
                                        if data:
                                            progress.holding = False  # no sign may overtake what is on its way
                                            yield data
                                        progress.holding = holding
                                        if relay.ended or relay.is_enough:
                                            await attempt.end(relay, pieces)
                                            break
                                if not (relay.ended or relay.settled) and (data := relay.close()):
                                    yield data
                    except MustcallError as error:
                        attempt.error = error
                    except TimeoutError:
                        attempt.error = self._teaching.out_of_time(TOO_LONG)
                    finally:
                        await upstream.close()
                    if relay is not None:
                        attempt.take_stream(relay)
                    elif attempt.error is None:
                        await attempt.take_whole(body)
                    if attempt.error is not None and not self._uncover(attempt, attempt.error, shown):
                        if await self._sending.again_after(attempt.error.info(), shown=bool(shown)):
                            continue
                        yield self._give_up(attempt, attempt.error, outlet)
                        return
                data, over = await self._conclude(attempt, outlet)
                if data:
                    yield data
                if over:
                    return
                progress.holding = True
        except (MustcallError, UpstreamRefused) as error:
            progress.holding = False
            if not outlet.begun:
                raise (error if isinstance(error, UpstreamRefused) else self.failed(error)) from None
            yield outlet.fail(
                UpstreamRejected(error.told) if isinstance(error, UpstreamRefused) else self.failed(error)
            )

    # --- attempt, judge, remedy --------------------------------------------------------------------------------------

    async def _attempt(self, outlet: Outlet[P]) -> Attempt[P]:
        """Send the next attempt, after those that only probe which tool is refused (rule 130)."""
        while True:
            answer = await self._sending.send()
            if answer.error_body is None:
                if self._course.isolation.probing:
                    await self._pass_probe(answer.reply)
                    continue
                self._teaching.began(self._log)
            return Attempt(self.context, answer, outlet, self._echoing, readable=self._readable)

    async def _conclude(self, attempt: Attempt[P], outlet: Outlet[P]) -> tuple[P, bool]:
        """Judge an attempt's reply; return what of it goes out now, and whether that ends the turn."""
        self.context.progress.holding = False
        shown = outlet.shown
        earlier = bool(shown) and not attempt.began  # what is shown came from other attempts
        original = attempt.reply
        assert original is not None, "what failed is not judged"
        heavy = self.heavy = attempt.heavy
        reply = await heavily(self._restored, original) if heavy else self._restored(original)
        judged = await self._judge(reply, await attempt.found(reply))
        if attempt.skimmed and (judged.keeps or (self.context.same_wire and judged.reply is not reply)):
            # It was only skimmed, and is to be written on its own wire.
            judged = await self._judge(self._restored(attempt.read_fully()), None)
        accepted = self._settle(judged, shown, spoke=earlier and shown.spoke)
        if accepted is None:
            return attempt.last_words(), False
        if attempt.irregular:
            accepted = respelled(accepted, self._log)
        if attempt.goes_out_as_it_came(accepted):
            self._accepted = accepted
            return attempt.rest(), True
        if outlet.waits:
            self._accepted = attempt.anew(accepted)
            return outlet.nothing, True
        rest = shown.more if earlier else shown.rest
        return outlet.write(await heavily(rest, accepted) if heavy else rest(accepted)), True

    def _restored(self, reply: Reply) -> Reply:
        """Return a reply in the caller's own names, and without what is ours (rule 146)."""
        return self._echoing.clear(restored(reply, self._binding, self._course.names))

    async def _judge(self, reply: Reply, seen: ScanFindings | None) -> Judgement:
        """Judge a reply by what was `seen` in its text while it came, else by what is in it."""
        context, token = self.context, self.context.token
        bound = prompt_bound(context.request, len(context.inbound.body), reply.usage)
        case = self._course.case(token, bound, self._sending.limit)

        def look() -> tuple[Judgement, ScanFindings]:
            found = self._echoing.look_through(reply, token) if seen is None else seen
            return judge(case, reply, found), found

        looked = Aside.ASIDE if self.heavy else here(look)
        judged, found = await heavily(look) if looked is Aside.ASIDE else looked
        judged = self._echoing.noted(judged)
        self._teaching.judged(reply, judged)
        record = self.record.attempts[-1]
        record.note(judged, found, reply.usage)
        record.reply = reply
        if context.services.tally is not None:
            context.services.tally.heard(reply)
        record.seconds = context.services.clock.monotonic() - record.started
        return judged

    def _settle(self, judged: Judgement, shown: Released, *, spoke: bool) -> Reply | None:
        """Carry a verdict's remedy out as far as it needs no upstream; return the reply to deliver, if it is one.

        `spoke` says that an attempt before this one was seen to speak: this one may then only add its calls.
        """
        released = bool(shown)
        decision = self._course.settle(
            judged,
            released=released,
            spoke=released and shown.spoke,
            called=released and shown.called,
            stateful=self._course.stored,
        )
        self.record.attempts[-1].remedy = decision.remedy
        for note in judged.notes:
            kept = (Remedy.FAIL,) if note.kind is AdaptationKind.CALL_DROPPED else ()
            if note.kind is AdaptationKind.REPORTED or decision.remedy in (Remedy.ACCEPT, Remedy.SALVAGE, *kept):
                self._log.add(note.kind, note.subject, note.detail)
        accepted = judged.salvage if decision.remedy is Remedy.SALVAGE else judged.reply
        match decision.remedy:
            case Remedy.ACCEPT | Remedy.SALVAGE:
                assert accepted is not None, "only what can be salvaged is"
                if spoke and not accepted.calls:
                    first = self.record.attempts[0].verdict
                    raise spent(self.record, judged, ERRORS.get(first, ModelError) if first is not None else ModelError)
                self._accept(judged, accepted)
                return accepted
            case Remedy.FAIL:
                raise spent(self.record, judged, decision.error or ModelError)
            case Remedy.RESAMPLE | Remedy.REMIND | Remedy.CLIMB:
                return None

    # --- outcomes ----------------------------------------------------------------------------------------------------

    def _accept(self, judged: Judgement, reply: Reply) -> None:
        demand = self._course.plan.demand
        if demand.forced:
            made = judged.verdict is Verdict.CALLED or reply is judged.salvage
            met = made and any(map(demand.permits, reply.calls))
            self.record.force = "met" if met else "unmet"
            if met:
                self._teaching.met(judged.dialect)
            elif not reply.calls:
                self._teaching.unmet(judged.verdict)
        elif demand.notes and any(note.kind is AdaptationKind.FORCE_DROPPED for note in demand.notes):
            self.record.force = "dropped"
        self.record.outcome = OutcomeKind.CALLS if reply.calls else OutcomeKind.ANSWER
        self.context.services.issued.note(reply, self._course.issuer)
        self.record.adaptations = self.adaptations

    def failed(self, error: MustcallError) -> MustcallError:
        """Take note of the error that the turn ends in, and return it as the caller may see it."""
        error = told_of(error)
        self.record.outcome, self.record.error = OutcomeKind.FAILURE, type(error).code
        if self._course.plan.demand.forced:
            self.record.force = "unmet"
            self._teaching.failed(error, self.record.attempts[-1].verdict if self.record.attempts else None)
        self.record.adaptations = self.adaptations
        if self.context.progress.failed is not None:
            self.context.progress.failed(error, self.record)
        if isinstance(error, ModelError):
            count = len(self.record.attempts)
            _logger.warning("request %s: %s in %d attempts", self.context.inbound.request_id, error.code, count)
        return error

    def _give_up(self, attempt: Attempt[P], error: MustcallError, outlet: Outlet[P]) -> P:
        """End a turn whose answer broke off: with the upstream's own words where they can be forwarded."""
        relay = attempt.relay
        self.context.progress.holding = False
        if relay is None:
            raise error
        if relay.raw and relay.said_so and not outlet.written:
            self.failed(error)
            return relay.rest()
        if not outlet.begun and not outlet.tells(error.info()):
            raise error
        return outlet.fail(self.failed(error))

    # --- refusals ----------------------------------------------------------------------------------------------------

    def _harvest(self, attempt: Attempt[P], body: bytes) -> bool:
        """Read an upstream's error: tell whether a reply is hidden in it, or raise it as the outcome.

        Otherwise the request is to be sent again, without what was refused.
        """
        context, status = self.context, attempt.answer.reply.status
        info = context.theirs.decode_error(status, body)
        self.record.attempts[-1].note_refusal(info)
        if self._uncover(attempt, UpstreamRejected(info), None):
            return True
        again, lesson = self._course.refused(info)
        if lesson is not None:
            self._teaching.suppose(lesson)
        if again:
            return False
        check_isolation(self._course)
        self.failed(UpstreamRejected(info))
        told = without_generation(info)
        same = context.same_wire and told is info and is_error_of(context.inbound.wire, body)
        raise UpstreamRefused(told, status, body if same else None)

    async def _pass_probe(self, upstream: UpstreamReply) -> None:
        """Take the answer of a probe, which nobody else sees; only what it cost is kept."""
        context = self.context
        reply = await read_probe(upstream, context.theirs, context.provenance, context.services.tally)
        self.record.attempts[-1].note_probe(reply)
        lesson = self._course.passed_probe()
        if lesson is not None:
            self._teaching.suppose(lesson)
        check_isolation(self._course, passed=True)

    def _uncover(self, attempt: Attempt[P], error: MustcallError, shown: Released | None) -> bool:
        """Take the reply inside an upstream's error, to be judged (rule 128); tell whether there is one to be shown.

        Behind text or calls that went out, it would be said twice.
        """
        if not isinstance(error, UpstreamRejected) or (shown is not None and (shown.spoke or shown.called)):
            return False
        token = self.context.token
        reply = harvested(error.error, self._echoing.lens(token), token, self.context.request.model)
        if reply is None:
            return False
        self._log.add(AdaptationKind.REPORTED, "generation", "it came inside the server's error")
        attempt.take_hidden(reply)
        return True
