"""One turn: plan, attempt, judge, remedy, until the caller can be given exactly one outcome (design, section 5).

This is the only place that drives attempts. Decisions are `policy`'s; here they are carried out over the upstream
seam, under one deadline and one ceiling of calls. A healthy turn on one wire is forwarded byte for byte. Whatever the
upstream sends, only `MustcallError` leaves this module.
"""

from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from itertools import chain
from typing import Any

from mustcall.core.adaptation import Adaptation, AdaptationKind, AdaptationLog
from mustcall.core.errors import (
    ErrorInfo,
    ModelError,
    MustcallError,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mustcall.core.origin import Wire
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.core.verdict import OutcomeKind, Verdict
from mustcall.engine.echoing import Echoing
from mustcall.engine.exchange import Inbound, drain, is_event_stream
from mustcall.engine.letting import holds, trusts
from mustcall.engine.off_loop import LARGE, Aside, heavily, heft, here, is_heavy
from mustcall.engine.outgoing import Outgoing
from mustcall.engine.outlets import Heard, Outlet, P
from mustcall.engine.records import AttemptRecord, TurnProgress, TurnRecord, spent
from mustcall.engine.refusals import UpstreamRefused, check_isolation, harvested, read_probe, told_of
from mustcall.engine.restoring import restored, without_empty_text
from mustcall.engine.spending.counting import Counting
from mustcall.engine.stream_relay import StreamRelay
from mustcall.engine.teaching import Teaching
from mustcall.engine.turn_context import TurnContext
from mustcall.policy.failures.backoff import is_transient
from mustcall.policy.failures.rejection import without_generation
from mustcall.policy.limits.budget import has_time
from mustcall.policy.reply.cut_prompt import estimate, prompt_bound
from mustcall.policy.reply.gate import Gate, Released
from mustcall.policy.reply.judge import Case, Judgement, judge
from mustcall.policy.scanning.reply_scanner import ReplyScanner, ScanFindings
from mustcall.policy.turn.remedy import ERRORS, Remedy
from mustcall.policy.turn.state import TurnState
from mustcall.telemetry.logs import log_of
from mustcall.upstream.bounds import PIECE
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.idle import IdleTimer
from mustcall.upstream.retry import Answer, Tries, send_patiently
from mustcall.upstream.seam import UpstreamReply
from mustcall.wire.binding import Binding
from mustcall.wire.codec import Provenance, StreamDecoder
from mustcall.wire.outline import is_error_of
from mustcall.wire.registry import codec_for
from mustcall.wire.regularity import is_regular_body, respelled
from mustcall.wire.skimming import skim

__all__ = ["EngineTurn"]

_logger = log_of("mustcall.engine")
_NO_TIME = "the time for this request ran out before an attempt could be made"
_TOO_LONG = "the upstream's answer did not end within the time for this request"


class EngineTurn:
    """One request up to its one outcome. `takes_bytes` says that the caller can be given the upstream's own bytes."""

    def __init__(
        self,
        inbound: Inbound,
        request: Request,
        course: TurnState,
        endpoint: Endpoint,
        *,
        model: str | None,
        setting: TurnContext,
        progress: TurnProgress,
        deadline: float,
        takes_bytes: bool,
    ) -> None:
        self.inbound = inbound
        self.request = request
        self._course = course
        self._endpoint = endpoint
        self._model = model
        self._setting = setting
        self._progress = progress
        self._deadline = deadline
        self._takes_bytes = takes_bytes
        self._theirs = codec_for(endpoint.wire)
        self._same_wire = inbound.wire is endpoint.wire
        self._shared = inbound.wire if self._same_wire else None
        self._names = course.names
        #: Whether the upstream keeps the reply under its id, for the caller to go on from.
        self.is_stateful = course.stored
        self._binding = Binding(self._names.outgoing(request), endpoint.wire)
        self.log = self._log = AdaptationLog()
        self.raw: bytes | None = None
        #: The headers of the upstream's last answer.
        self.headers: Mapping[str, str] = {}
        self._counting = Counting(course, progress, streams=inbound.stream)
        least = setting.controls.limits.least_seconds
        self._tries = Tries(self._counting.may, self._counting.note, least)
        asked = model or request.model
        self._teaching = Teaching(setting, course, endpoint.name, asked, inbound=inbound)
        self._outgoing = Outgoing(inbound, request, course, endpoint, model=model, log=self._log)
        self._skimmed: bytes | None = None
        #: Whether the reply at hand takes long to look at.
        self.heavy = False
        self._echoing = Echoing(request, course, setting.wording)
        self.record = TurnRecord(protocol=str(course.plan.protocol), attempts=[])
        progress.record = self.record

    # --- the two ways a caller waits ---------------------------------------------------------------------------------

    async def reply(self) -> Reply:
        """Return the accepted reply; `raw` holds the upstream's own bytes of it where they may be forwarded.

        Raise `UpstreamRefused` for the upstream's own refusal, and `MustcallError`.
        """
        try:
            while True:
                reply, raw = await self._whole_attempt()
                judged = await self._judge(reply)
                if self._skimmed and (judged.keeps or (self._same_wire and judged.reply is not reply)):
                    # It was only skimmed, and is to be written on its own wire.
                    reply = self._restored(self._theirs.decode_reply(self._skimmed, self._provenance))
                    judged = await self._judge(reply)
                accepted = self._settle(judged, None)
                if accepted is None:
                    continue
                self.raw = raw if raw is not None and accepted is reply and not self._setting.metadata else None
                return accepted if self.raw is not None else self._new(accepted)
        except MustcallError as error:
            raise self.failed(error) from None

    async def pieces(self, outlet: Outlet[P]) -> AsyncGenerator[P]:
        """Yield what the outlet makes of one attempt after the other until one is accepted.

        A failure is raised until something went out; then it is what the outlet makes of it.
        """
        progress = self._progress
        try:
            while True:
                answer = await self._send()
                flow: StreamRelay[P] | None = None
                if answer.error_body is not None or not is_event_stream(answer.reply.headers):
                    reply = await self._unstreamed(answer, outlet.shown)
                    if reply is None:
                        continue
                else:
                    flow, heavy = self._flow(outlet), False
                    # One generator from the upstream's bytes to the caller's: every layer would cost each event.
                    try:
                        async with aclosing(answer.reply.chunks()) as pieces:
                            async for piece in pieces:
                                data = await heavily(flow.feed, piece) if heavy else flow.feed(piece)
                                heavy = len(piece) >= PIECE and flow.strains
                                holding = flow.holding
                                if holding or flow.quiet:
                                    self._check_time(flow)
                                if data:
                                    progress.holding = False  # no sign may overtake what is on its way
                                    yield data
                                progress.holding = holding
                                if flow.ended or flow.is_enough:
                                    await self._end(flow, pieces)
                                    break
                        if not (flow.ended or flow.settled) and (data := flow.close()):
                            yield data
                    except MustcallError as error:
                        flow.fail(error)
                    finally:
                        await answer.reply.close()
                    error = flow.error
                    hidden = self._hidden(error, outlet.shown) if error is not None else None
                    if error is not None and hidden is None:
                        if await self._again_after(error.info(), outlet.shown):
                            continue
                        yield self._give_up(flow, error, outlet)
                        return
                    reply, flow = (flow.reply(), flow) if hidden is None else (hidden, None)
                data, over = await self._conclude(reply, flow, outlet)
                if data:
                    yield data
                if over:
                    return
                self._progress.holding = True
        except (MustcallError, UpstreamRefused) as error:
            self._progress.holding = False
            if not outlet.begun:
                raise (error if isinstance(error, UpstreamRefused) else self.failed(error)) from None
            yield outlet.fail(
                UpstreamRejected(error.told) if isinstance(error, UpstreamRefused) else self.failed(error)
            )

    async def first(self, pieces: AsyncGenerator[P]) -> P:
        """Return the first of `pieces`, in the time of the turn; raise `UpstreamRefused` and `MustcallError`."""
        left = max(0.0, self._deadline - self._setting.clock.monotonic())
        try:
            with IdleTimer(left):
                first = await anext(pieces, None)
        except TimeoutError:
            late = self._teaching.out_of_time("the upstream's answer did not begin within the time for this request")
            raise self.failed(late) from None
        if first is None:
            raise self.failed(UpstreamUnavailable("the upstream's stream ended before it began"))
        return first

    @property
    def adaptations(self) -> tuple[Adaptation, ...]:
        """What was changed so far."""
        course = self._course
        noted = (course.log.entries, course.isolation.notes, self._log.entries)
        lists = (course.plan.demand.notes, self._setting.notes, *noted)
        return tuple(dict.fromkeys(chain(*lists))) if any(lists) else ()

    def _check_time(self, flow: StreamRelay[Any]) -> None:
        """Raise once the time is over for what waits (rule 97); what already flows has no deadline, but must flow."""
        now, most = self._setting.clock.monotonic(), self._endpoint.timeouts.read
        if flow.holding and now >= self._deadline:
            raise self._teaching.out_of_time(_TOO_LONG)
        if flow.quiet and flow.silence.lasted(now) > most:
            raise UpstreamTimeout(f"the upstream's stream said nothing for {most:g} s (read_timeout)")

    async def _unstreamed(self, answer: Answer, shown: Released) -> Reply | None:
        """Read what came in one piece although a stream was asked for; return None to send again."""
        if answer.error_body is not None:
            return self._harvest(answer, answer.error_body)
        self._log.add(AdaptationKind.FIELD_MAPPED, "stream", "the upstream answered in one piece")
        self._progress.holding = True
        try:
            reply, _ = await self._decode_whole(answer.reply, skims=False)
        except MustcallError as error:
            hidden = self._hidden(error, shown)
            if hidden is None and not await self._again_after(error.info(), shown):
                raise
            return hidden
        return reply

    def _flow(self, outlet: Outlet[P]) -> StreamRelay[P]:
        course, request = self._course, self.request
        closed = holds(course, request, self._setting.controls) or bool(outlet.shown)
        gate = Gate(closed=closed, trusted=trusts(course, request, readable=self._same_wire or self._binding.trivial))
        self._progress.holding = gate.stopped
        raw = self._forwards and not outlet.written
        return StreamRelay(
            self._decoder(), self._shared, self._lens(), gate, outlet, raw=raw, limits=self._setting.limits
        )

    async def _conclude(self, original: Reply, flow: StreamRelay[P] | None, outlet: Outlet[P]) -> tuple[P, bool]:
        """Judge an attempt's reply; return what of it goes out now, and whether that ends the stream."""
        self._progress.holding = False
        shown = outlet.shown
        earlier = bool(shown) and not (flow is not None and flow.began)  # what is shown came from other attempts
        self.heavy = heft(original) > LARGE
        reply = await heavily(self._restored, original) if self.heavy else self._restored(original)
        found: ScanFindings | None = None
        if flow is not None:
            found = await heavily(flow.found, reply) if self.heavy else flow.found(reply)
        accepted = self._settle(await self._judge(reply, found), shown, spoke=earlier and shown.spoke)
        if accepted is None:
            return flow.last_words() if flow is not None and shown else outlet.nothing, False
        if flow is not None and flow.irregular:
            accepted = respelled(accepted, self._log)
        if flow is not None and flow.raw and accepted is original and not outlet.written:
            return flow.rest(), True
        rest = shown.more if earlier else shown.rest
        return outlet.write(await heavily(rest, accepted) if self.heavy else rest(accepted)), True

    # --- attempts ----------------------------------------------------------------------------------------------------

    @property
    def _forwards(self) -> bool:
        """Whether the upstream's bytes may go out: Responses repeats its request, which must be the caller's own."""
        own = self.inbound.wire is not Wire.RESPONSES or self._course.shaped().request is self.request
        return self._takes_bytes and own and self._same_wire and len(self.record.attempts) == 1

    @property
    def _token(self) -> str:
        count = len(self.record.attempts)
        return self.inbound.token if count <= 1 else f"{self.inbound.token}r{count - 1}"

    @property
    def _provenance(self) -> Provenance:
        return Provenance(issuer=self._course.issuer, token=self._token, crosses=not self._same_wire)

    def _decoder(self) -> StreamDecoder:
        return self._theirs.stream_decoder(self._provenance)

    def _lens(self) -> ReplyScanner:
        return self._echoing.lens(self._token)

    async def _send(self) -> Answer:
        """Make the next attempt's exchange, after those that only probe which tool is refused (rule 130)."""
        while True:
            answer = await self._exchange()
            if answer.error_body is None and self._course.isolation.probing:
                await self._pass_probe(answer.reply)
                continue
            if answer.error_body is None:
                self._teaching.began(self._log)
            return answer

    async def _exchange(self) -> Answer:
        """Send the next attempt's request."""
        clock, course = self._setting.clock, self._course
        self._skimmed = None
        self._teaching.answering = False
        if self.record.attempts:
            self._counting.note()
        if not has_time(self._deadline, clock.monotonic(), self._tries.least):
            raise self._teaching.out_of_time(_NO_TIME)
        write = self._outgoing.body
        written = Aside.ASIDE if len(self.inbound.body) > LARGE * 4 else here(write) if course.bends else write()
        body = await heavily(write) if written is Aside.ASIDE else written
        record = AttemptRecord(rung=course.rung, body=body, started=clock.monotonic())
        self.record.attempts.append(record)
        call = self._outgoing.call(body, len(self.record.attempts))
        try:
            answer = await send_patiently(
                self._setting.transport,
                call,
                self._endpoint.backoff,
                self._theirs.decode_error,
                clock=clock,
                deadline=self._deadline,
                log=self._log,
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
        self.headers = answer.reply.headers
        return answer

    async def _whole_attempt(self) -> tuple[Reply, bytes | None]:
        """Make attempts until one gives a reply that can be read: the reply, its bytes if they may be forwarded."""
        while True:
            answer = await self._send()
            if answer.error_body is not None:
                harvested = self._harvest(answer, answer.error_body)
                if harvested is None:
                    continue
                return harvested, None
            try:
                reading = self._read_whole if answer.reply.arrived else self._read_in_time
                reply, raw = await reading(answer.reply)
            except BaseException as error:
                await answer.reply.close()
                if not isinstance(error, MustcallError):
                    raise
                hidden = self._hidden(error, None)
                if hidden is not None:
                    return hidden, None
                if not await self._again_after(error.info(), None):
                    raise
                continue
            restored = await heavily(self._restored, reply) if self.heavy else self._restored(reply)
            return restored, raw if self._forwards and restored is reply else None

    async def _read_in_time(self, upstream: UpstreamReply) -> tuple[Reply, bytes | None]:
        try:
            with IdleTimer(max(0.0, self._deadline - self._setting.clock.monotonic())):
                return await self._read_whole(upstream)
        except TimeoutError:
            raise self._teaching.out_of_time(_TOO_LONG) from None

    def _read_whole(self, upstream: UpstreamReply) -> Coroutine[Any, Any, tuple[Reply, bytes | None]]:
        """Return what reads a reply; it is no coroutine itself, because every turn would pay for one more."""
        return self._read_stream(upstream) if is_event_stream(upstream.headers) else self._decode_whole(upstream)

    async def _read_stream(self, upstream: UpstreamReply) -> tuple[Reply, bytes | None]:
        lens = self._lens() if self._course.settles_early else ReplyScanner(None, "")
        limits = self._setting.limits
        flow = StreamRelay(self._decoder(), self._shared, lens, Gate(closed=True), Heard(), raw=False, limits=limits)
        heavy = False
        try:
            async with aclosing(upstream.chunks()) as pieces:
                async for piece in pieces:
                    await heavily(flow.feed, piece) if heavy else flow.feed(piece)
                    heavy = len(piece) >= PIECE and flow.strains
                    if flow.ended or flow.is_enough:
                        await self._end(flow, pieces)
                        break
            if not (flow.ended or flow.settled):
                flow.close()
        finally:
            await upstream.close()
        if flow.error is not None:
            raise flow.error
        reply = flow.reply()
        self.heavy = heft(reply) > LARGE
        return respelled(reply, self._log) if flow.irregular else reply, None

    async def _decode_whole(self, upstream: UpstreamReply, *, skims: bool = True) -> tuple[Reply, bytes | None]:
        try:
            body = await upstream.read()
        finally:
            await upstream.close()
        read = await heavily(self._decoded, body, skims) if len(body) > LARGE else self._decoded(body, skims)
        self.heavy = is_heavy(body, read[0])
        return read

    def _decoded(self, body: bytes, skims: bool) -> tuple[Reply, bytes | None]:
        """Read a whole reply; only what matters of it where its bytes may be forwarded."""
        own = self._forwards and self._names.trivial and not self._setting.metadata
        skimmed = skim(self._theirs.wire, body) if skims and (own or not self._same_wire) else None
        if skimmed is not None and self._echoing.is_clear(skimmed):
            self._skimmed = body
            return skimmed, body
        reply = self._theirs.decode_reply(body, self._provenance)
        if self._same_wire and not is_regular_body(self.inbound.wire, body):
            return respelled(reply, self._log), None
        return reply, body

    async def _end(self, flow: StreamRelay[Any], pieces: AsyncGenerator[bytes]) -> None:
        """Read what follows the end of a stream; a demanded call ends one before that (rule 137), and so do blanks."""
        if flow.ended:
            await drain(pieces)
            return
        flow.settle(estimate(self._course.shaped().request))
        self._log.add(AdaptationKind.ESTIMATED, "usage", "the reply was settled before the upstream counted")
        at = "the demanded call" if flow.lens.settled else "a run of blanks"
        self._log.add(AdaptationKind.REPORTED, "settled", f"at {at}; the rest was not waited for")

    def _restored(self, reply: Reply) -> Reply:
        """Return a reply in the caller's own names, and without what is ours (rule 146)."""
        return self._echoing.clear(restored(reply, self._binding, self._names))

    # --- verdicts ----------------------------------------------------------------------------------------------------

    def _case(self, reply: Reply) -> Case:
        bound = prompt_bound(self.request, len(self.inbound.body), reply.usage)
        return self._course.case(self._token, bound, self._outgoing.limit)

    async def _judge(self, reply: Reply, seen: ScanFindings | None = None) -> Judgement:
        """Judge a reply by what was `seen` in its text while it came, else by what is in it."""
        case = self._case(reply)

        def look() -> tuple[Judgement, ScanFindings]:
            found = self._echoing.look_through(reply, self._token) if seen is None else seen
            return judge(case, reply, found), found

        looked = Aside.ASIDE if self.heavy else here(look)
        judged, found = await heavily(look) if looked is Aside.ASIDE else looked
        judged = self._echoing.noted(judged)
        self._teaching.judged(reply, judged)
        record = self.record.attempts[-1]
        record.note(judged, found, reply.usage)
        record.reply = reply
        if self._setting.tally is not None:
            self._setting.tally.heard(reply)
        record.seconds = self._setting.clock.monotonic() - record.started
        return judged

    def _settle(self, judged: Judgement, shown: Released | None, *, spoke: bool = False) -> Reply | None:
        """Carry a verdict's remedy out as far as it needs no upstream; return the reply to deliver, if it is one.

        `spoke` says that an attempt before this one was seen to speak: this one may then only add its calls.
        """
        decision = self._course.settle(
            judged,
            released=bool(shown),
            spoke=shown is not None and shown.spoke,
            called=shown is not None and shown.called,
            stateful=self.is_stateful,
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
                first = self.record.attempts[0].verdict
                if spoke and not accepted.calls and not first is judged.verdict is Verdict.PHANTOM_CALL:
                    raise spent(self.record, judged, ERRORS.get(first, ModelError) if first is not None else ModelError)
                self._accept(judged, accepted)
                return accepted
            case Remedy.FAIL:
                raise spent(self.record, judged, decision.error or ModelError)
            case Remedy.RESAMPLE | Remedy.REMIND | Remedy.CLIMB:
                return None

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
        self._setting.issued.note(reply, self._course.issuer)
        self.record.adaptations = self.adaptations

    def failed(self, error: MustcallError) -> MustcallError:
        """Take note of the error that the turn ends in, and return it as the caller may see it."""
        error = told_of(error)
        self.record.outcome, self.record.error = OutcomeKind.FAILURE, type(error).code
        if self._course.plan.demand.forced:
            self.record.force = "unmet"
            self._teaching.failed(error, self.record.attempts[-1].verdict if self.record.attempts else None)
        self.record.adaptations = self.adaptations
        if self._progress.failed is not None:
            self._progress.failed(error, self.record)
        if isinstance(error, ModelError):
            count = len(self.record.attempts)
            _logger.warning("request %s: %s in %d attempts", self.inbound.request_id, error.code, count)
        return error

    # --- failures ----------------------------------------------------------------------------------------------------

    def _harvest(self, answer: Answer, body: bytes) -> Reply | None:
        """Read an upstream's error: a reply hidden in it, None to send again; otherwise it is the outcome."""
        info = self._theirs.decode_error(answer.reply.status, body)
        self.record.attempts[-1].note_refusal(info)
        hidden = self._hidden(UpstreamRejected(info), None)
        if hidden is not None:
            return hidden
        again, lesson = self._course.refused(info)
        if lesson is not None:
            self._teaching.suppose(lesson)
        if again:
            return None
        check_isolation(self._course)
        self.failed(UpstreamRejected(info))
        told = without_generation(info)
        same = self._same_wire and told is info and is_error_of(self.inbound.wire, body)
        raise UpstreamRefused(told, answer.reply.status, body if same else None)

    async def _pass_probe(self, upstream: UpstreamReply) -> None:
        """Take the answer of a probe, which nobody else sees; only what it cost is kept."""
        reply = await read_probe(upstream, self._theirs, self._provenance, self._setting.tally)
        self.record.attempts[-1].note_probe(reply)
        lesson = self._course.passed_probe()
        if lesson is not None:
            self._teaching.suppose(lesson)
        check_isolation(self._course, passed=True)

    def _hidden(self, error: MustcallError, shown: Released | None) -> Reply | None:
        """Return the reply inside an upstream's error, to be judged (rule 128); None if there is none to be shown.

        Behind text or calls that went out, it would be said twice.
        """
        if not isinstance(error, UpstreamRejected) or (shown is not None and (shown.spoke or shown.called)):
            return None
        reply = harvested(error.error, self._lens(), self._token, self.request.model)
        if reply is None:
            return None
        self._log.add(AdaptationKind.REPORTED, "generation", "it came inside the server's error")
        return self._restored(reply)

    async def _again_after(self, error: ErrorInfo, shown: Released | None) -> bool:
        """Wait and tell whether to try again after an answer that broke off; never once something was shown."""
        error, clock = without_generation(error), self._setting.clock
        self.record.attempts[-1].note_failure(error, clock.monotonic())
        if shown or not is_transient(error):
            return False
        wait = self._tries.wait(self._endpoint.backoff, error.retry_after, clock, self._deadline)
        if wait is None:
            return False
        self._teaching.answering = False
        self._tries.used += 1
        self._log.add(AdaptationKind.RETRIED, f"attempt {self._tries.used}", error.code)
        self._progress.holding = self.inbound.stream
        await clock.sleep(wait)
        return True

    def _give_up(self, flow: StreamRelay[P], error: MustcallError, outlet: Outlet[P]) -> P:
        """End a stream that failed: with the upstream's own words where they can be forwarded."""
        self._progress.holding = False
        if flow.raw and flow.said_so and not outlet.written:
            self.failed(error)
            return flow.rest()
        if not outlet.begun and not outlet.tells(error.info()):
            raise error
        return outlet.fail(self.failed(error))

    def _new(self, reply: Reply) -> Reply:
        """Return a reply that does not go out as it came, without empty text."""
        new = without_empty_text(reply)
        return reply.evolve() if new is reply and self._same_wire and not self._forwards else new
