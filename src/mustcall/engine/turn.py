"""One turn: plan, attempt, judge, remedy, until the caller can be given exactly one outcome (design, section 5).

This is the only place that drives attempts. `Sending` sends each as the turn's state plans it, `Attempt` reads and
scans what came, `Judging` judges it and carries its remedy out. A healthy turn on one wire is forwarded byte for byte.
Whatever the upstream sends, only `MustcallError` leaves this module, and `UpstreamRefused` for its own refusal.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from mustcall.core.adaptation import AdaptationKind
from mustcall.core.errors import MustcallError, UpstreamRejected, UpstreamUnavailable
from mustcall.core.reply import Reply
from mustcall.engine.attempts.attempt import Attempt
from mustcall.engine.attempts.echoing import Echoing
from mustcall.engine.attempts.judging import Judging
from mustcall.engine.attempts.refusals import UpstreamRefused, pass_probe, take_refusal
from mustcall.engine.attempts.sending import Sending
from mustcall.engine.attempts.teaching import Teaching
from mustcall.engine.off_loop import HEAVY_PIECE, LARGE, heavily
from mustcall.engine.records import request_digest
from mustcall.engine.replies.outlets import WHOLE, Outlet, P
from mustcall.engine.replies.respelling import respelled
from mustcall.engine.replies.stream_relay import StreamRelay
from mustcall.engine.turn_context import TurnContext
from mustcall.policy.scanning.reply_scanner import ScanFindings
from mustcall.policy.turn.remedy import ACCEPTED
from mustcall.upstream.http1.idle import IdleTimer

__all__ = ["EngineTurn"]


class EngineTurn:
    """One request up to its one outcome."""

    def __init__(self, context: TurnContext) -> None:
        self.context = context
        self._teaching = Teaching(context)
        self._echoing = Echoing(context)
        self._sending = Sending(context, self._teaching)
        self._judging = Judging(context, self._echoing, self._teaching)
        self._accepted: Reply | None = None
        #: The headers of the upstream's last answer.
        self.headers: Mapping[str, str] = {}
        #: The upstream's own bytes of a whole reply, where they may be forwarded.
        self.raw: bytes | None = None
        #: Whether the reply at hand takes long to look at.
        self.heavy = False

    # --- the two ways a caller waits ---------------------------------------------------------------------------------

    async def reply(self) -> Reply:
        """Return the accepted reply; `raw` holds the upstream's own bytes of it where they may be forwarded.

        Raise `UpstreamRefused` for the upstream's own refusal, and `MustcallError`.
        """
        try:
            while self._accepted is None:
                attempt = await self._attempt(WHOLE)
                self.raw = await self._conclude(attempt, WHOLE) or None
        except (MustcallError, UpstreamRefused) as error:
            raise self._raised(error) from None
        return self._accepted

    async def pieces(self, outlet: Outlet[P]) -> AsyncGenerator[P]:
        """Yield what the outlet makes of one attempt after the other until one is accepted.

        A failure is raised until something went out; then it is what the outlet makes of it.
        """
        progress = self.context.progress
        try:
            while self._accepted is None:
                attempt = await self._attempt(outlet)
                relay, heavy = attempt.relay, False
                if relay is not None:
                    # One generator from the upstream's bytes to the caller's: every layer would cost each event.
                    try:
                        async with aclosing(attempt.answer.reply.chunks()) as pieces:
                            async for piece in pieces:
                                data = await heavily(relay.feed, piece) if heavy else relay.feed(piece)
                                heavy = len(piece) >= HEAVY_PIECE and relay.strains
                                if heavy:
                                    progress.waiting = False  # what is written aside must not meet a sign
                                holding = relay.holding
                                if holding or relay.quiet:
                                    attempt.check_time(relay)
                                if data:
                                    # No sign may overtake what is on its way.
                                    progress.holding = progress.waiting = False
                                    yield data
                                progress.holding = holding
                                if relay.ended or relay.is_enough:
                                    await attempt.end(relay, pieces)
                                    break
                        if not (relay.ended or relay.settled) and (data := relay.close()):
                            progress.holding = progress.waiting = False
                            yield data
                    except MustcallError as error:
                        relay.fail(error)
                    finally:
                        await attempt.answer.reply.close()
                    attempt.take_stream(relay)
                    if not attempt.gave_reply():
                        if await self._sending.again_after(attempt.failure.info(), shown=bool(outlet.shown)):
                            continue
                        yield await self._give_up(relay, attempt.take_failure(), outlet)
                        return
                data = await self._conclude(attempt, outlet)
                if data:
                    yield data
                progress.holding = self._accepted is None
                # The next attempt may wait for its first byte as the first one did.
                progress.waiting = progress.holding and not outlet.shown
        except (MustcallError, UpstreamRefused) as error:
            progress.holding = progress.waiting = False
            if not outlet.begun:
                raise self._raised(error) from None
            yield outlet.fail(self._told(error))

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

    # --- attempt, judge, remedy --------------------------------------------------------------------------------------

    async def _attempt(self, outlet: Outlet[P]) -> Attempt[P]:
        """Make attempts until one streams, or gives a reply that can be judged."""
        context, teaching, sending = self.context, self._teaching, self._sending
        while True:
            answer = await sending.send()
            refusal, self.headers = answer.error, answer.reply.headers
            if 200 <= answer.reply.status < 300:
                context.turn_state.answered()
            if refusal is None and context.turn_state.isolation.probing:
                await pass_probe(context, teaching, answer.reply)
                continue
            if refusal is None:
                teaching.began(context.log)
            attempt = Attempt(context, answer, outlet, self._echoing, teaching)
            if refusal is not None:
                context.record.attempts[-1].note_refusal(refusal)
                if attempt.uncover(refusal):
                    return attempt
                take_refusal(context, teaching, refusal, answer)
                continue
            if attempt.relay is not None:
                return attempt
            await attempt.read()
            if attempt.error is None or attempt.gave_reply():
                return attempt
            if not await sending.again_after(attempt.failure.info(), shown=bool(outlet.shown)):
                raise attempt.take_failure()

    async def _conclude(self, attempt: Attempt[P], outlet: Outlet[P]) -> P:
        """Judge an attempt's reply and return what of it goes out now; the turn is over where it is accepted."""
        self.context.progress.holding = self.context.progress.waiting = False
        judging, limit, shown, relay = self._judging, self._sending.limit, outlet.shown, attempt.relay
        original = attempt.reply
        assert original is not None, "what failed is not judged"
        released = bool(shown)
        earlier = released and not (relay is not None and relay.began)  # what is shown came from other attempts
        heavy = self.heavy = attempt.heavy
        reply = await heavily(judging.restored, original) if heavy else judging.restored(original)
        found: ScanFindings | None = None
        if relay is not None:
            found = await heavily(relay.found, reply) if heavy else relay.found(reply)
        judged = await judging.judge(reply, found, sent_limit=limit, heavy=heavy)
        if attempt.skimmed and (judged.keeps or (self.context.same_wire and judged.reply is not reply)):
            # It was only skimmed, and is to be written on its own wire.
            judged = await judging.judge(judging.restored(attempt.read_fully()), sent_limit=limit, heavy=heavy)
        if judged.verdict not in ACCEPTED:
            await self._name_request()
        accepted = judging.settle(judged, shown if released else None, earlier=earlier)
        if accepted is None:
            return relay.last_words() if relay is not None and released else outlet.nothing
        if relay is not None and relay.irregular:
            accepted = respelled(accepted, self.context.log)
        self._accepted = accepted
        data = attempt.as_it_came(accepted)
        if data is not None:
            return data
        if accepted.others:
            left = f"{len(accepted.others)} further choices: only the first is written again"
            self.context.log.add(AdaptationKind.PART_DROPPED, "choices", left)
        if outlet.waits:
            self._accepted = attempt.anew(accepted)
            return outlet.nothing
        rest = shown.more if earlier else shown.rest
        return outlet.write(await heavily(rest, accepted) if heavy else rest(accepted))

    # --- failures ----------------------------------------------------------------------------------------------------

    async def _name_request(self) -> None:
        """Name the request of an attempt that is told of; hashing megabytes would keep the loop."""
        attempt = self.context.record.attempts[-1]
        if len(attempt.body) > LARGE:
            attempt.sent = await heavily(request_digest, attempt.body)

    def failed(self, error: MustcallError) -> MustcallError:
        """Take note of the error that the turn ends in, and return it as the caller may see it."""
        return self._judging.failed(error)

    def _told(self, error: MustcallError | UpstreamRefused) -> MustcallError:
        """Take note of how the turn ends, and return what the caller may be told."""
        return self.failed(UpstreamRejected(error.told) if isinstance(error, UpstreamRefused) else error)

    def _raised(self, error: MustcallError | UpstreamRefused) -> MustcallError | UpstreamRefused:
        """Take note of how the turn ends, and return what is raised: a refusal as it is, for its own bytes."""
        told = self._told(error)
        return error if isinstance(error, UpstreamRefused) else told

    async def _give_up(self, relay: StreamRelay[P], error: MustcallError, outlet: Outlet[P]) -> P:
        """End a stream that failed: with the upstream's own words where they can be forwarded."""
        self.context.progress.holding = self.context.progress.waiting = False
        if relay.raw and relay.said_so and not outlet.written:
            self.failed(error)
            return relay.rest()
        if not outlet.begun and not outlet.tells(error.info()):
            raise error
        await outlet.ready()
        return outlet.fail(self.failed(error))
