"""One attempt of a turn: the upstream's answer read and scanned, up to its reply or its failure.

A whole reply is the degenerate stream: one piece, of which nothing is seen before its end. What an attempt gives is
the reply as the upstream's codec read it, what was found in its text on the way, and the upstream's own bytes where
they may go out as they came. It decides nothing about the reply.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Generic

from mustcall.core.adaptation import AdaptationKind
from mustcall.core.errors import ErrorInfo, MustcallError, UpstreamRejected, UpstreamTimeout
from mustcall.core.reply import Reply
from mustcall.engine.attempts.echoing import Echoing
from mustcall.engine.attempts.refusals import harvested
from mustcall.engine.attempts.teaching import Teaching
from mustcall.engine.exchange import drain, is_event_stream
from mustcall.engine.off_loop import HEAVY_PIECE, LARGE, heavily, heft, is_heavy
from mustcall.engine.replies.early_release import holds, trusts
from mustcall.engine.replies.kept_errors import without_frames
from mustcall.engine.replies.outlets import Outlet, P
from mustcall.engine.replies.respelling import respelled
from mustcall.engine.replies.restoring import without_empty_text
from mustcall.engine.replies.stream_relay import StreamRelay
from mustcall.engine.turn_context import TurnContext
from mustcall.policy.reply.cut_prompt import estimate
from mustcall.policy.reply.gate import Gate
from mustcall.policy.reply.provider_calls import passing_items
from mustcall.policy.scanning.reply_scanner import ReplyScanner
from mustcall.upstream.http1.idle import IdleTimer
from mustcall.upstream.retry import Answer

__all__ = ["Attempt"]

_TOO_LONG = "the upstream's answer did not end within the time for this request"


class Attempt(Generic[P]):
    """What one exchange came to. After it was read either `error` is set or `reply` is.

    `relay` is a stream that goes out as it comes: the turn feeds it, and then `take_stream` is called. Any other answer
    is read here, by `read`.
    """

    relay: StreamRelay[P] | None = None
    error: MustcallError | None = None
    #: The reply as it was decoded.
    reply: Reply | None = None
    #: Whether it takes long to look at.
    heavy = False
    #: Whether only what matters of it was read.
    skimmed = False
    _body = b""
    _raw = False

    def __init__(
        self, context: TurnContext, answer: Answer, outlet: Outlet[P], echoing: Echoing, teaching: Teaching
    ) -> None:
        self._context = context
        self._outlet = outlet
        self._echoing = echoing
        self._teaching = teaching
        self.answer = answer
        #: Whether the upstream's own bytes may go out.
        self.forwards = context.forwards
        self._streams = answer.error is None and is_event_stream(answer.reply.headers)
        if outlet.waits or answer.error is not None:
            return
        if self._streams:
            self.relay = self._flowing_relay()
        else:
            context.log.add(AdaptationKind.FIELD_MAPPED, "stream", "the upstream answered in one piece")
            context.progress.holding = True

    # --- a stream ----------------------------------------------------------------------------------------------------

    def _flowing_relay(self) -> StreamRelay[P]:
        """Return what lets a stream out as far as the gate allows."""
        context, outlet = self._context, self._outlet
        turn_state, request = context.turn_state, context.request
        closed = holds(turn_state, request, context.services.controls) or bool(outlet.shown)
        readable = context.same_wire or context.binding.trivial
        trusted = trusts(turn_state, request, readable=readable)
        items = passing_items(request, trusted=trusted is not None)
        gate = Gate(closed=closed, trusted=trusted, items=items, request=request)
        context.progress.holding = gate.stopped
        scanner = self._echoing.lens(context.token)
        return self._relayed(scanner, gate, raw=self.forwards and not outlet.written)

    def _waiting_relay(self) -> StreamRelay[P]:
        """Return what reads a stream for a caller who waits for the whole reply: its text is looked at in the end."""
        settles = self._context.turn_state.settles_early
        scanner = self._echoing.lens(self._context.token) if settles else ReplyScanner(None, "")
        return self._relayed(scanner, Gate(closed=True), raw=False)

    def _relayed(self, scanner: ReplyScanner, gate: Gate, *, raw: bool) -> StreamRelay[P]:
        context = self._context
        decoder, limits = context.theirs.stream_decoder(context.provenance), context.services.limits
        return StreamRelay(decoder, context.same_wire, scanner, gate, self._outlet, raw=raw, limits=limits)

    def check_time(self, relay: StreamRelay[P]) -> None:
        """Raise once the time is over for what waits (rule 97); what already flows has no deadline, but must flow."""
        context = self._context
        now, most = context.services.clock.monotonic(), context.endpoint.timeouts.read
        if relay.holding and not relay.finished and now >= context.deadline:
            raise self._teaching.out_of_time(_TOO_LONG)
        if relay.quiet and relay.silence.lasted(now) > most:
            raise UpstreamTimeout(f"the upstream's stream said nothing for {most:g} s (read_timeout)")

    async def end(self, relay: StreamRelay[P], pieces: AsyncGenerator[bytes]) -> None:
        """Read what follows the end of a stream; a demanded call ends one before that (rule 137), and so do blanks."""
        if relay.ended:
            await drain(pieces)
            return
        context = self._context
        relay.settle(estimate(context.turn_state.shaped().request))
        context.log.add(AdaptationKind.ESTIMATED, "usage", "the reply was settled before the upstream counted")
        at = "the demanded call" if relay.lens.settled else "a run of blanks"
        context.log.add(AdaptationKind.REPORTED, "settled", f"at {at}; the rest was not waited for")

    def take_stream(self, relay: StreamRelay[P]) -> None:
        """Take the reply, or the failure, that a stream came to."""
        self.error = relay.error
        if self.error is None:
            self.reply = relay.reply()
            self.heavy = heft(self.reply) > LARGE

    # --- all of it at once -------------------------------------------------------------------------------------------

    async def read(self) -> None:
        """Read an answer of which nothing is seen before its end, up to its reply or its failure."""
        upstream, context = self.answer.reply, self._context
        relay = self._waiting_relay() if self._streams else None
        reading = upstream.read() if relay is None else self._drain(relay)
        try:
            if upstream.arrived or not self._outlet.waits:
                body = await reading
            else:
                with IdleTimer(max(0.0, context.deadline - context.services.clock.monotonic())):
                    body = await reading
        except MustcallError as error:
            self.error = without_frames(error)
            return
        except TimeoutError:
            self.error = self._teaching.out_of_time(_TOO_LONG)
            return
        finally:
            await upstream.close()
        if relay is not None:
            self.take_stream(relay)
            if self.reply is not None and relay.irregular:
                self.reply = respelled(self.reply, context.log)
            return
        try:
            reply = self.reply = await heavily(self._decoded, body) if len(body) > LARGE else self._decoded(body)
        except MustcallError as error:
            self.error = without_frames(error)
        else:
            self.heavy = is_heavy(body, reply)

    async def _drain(self, relay: StreamRelay[P]) -> bytes:
        """Read a stream that a caller of a whole reply does not see; no byte of it goes out."""
        heavy = False
        async with aclosing(self.answer.reply.chunks()) as pieces:
            async for piece in pieces:
                await heavily(relay.feed, piece) if heavy else relay.feed(piece)
                heavy = len(piece) >= HEAVY_PIECE and relay.strains
                if relay.ended or relay.is_enough:
                    await self.end(relay, pieces)
                    break
        if not (relay.ended or relay.settled):
            relay.close()
        return b""

    def _decoded(self, body: bytes) -> Reply:
        """Read a whole reply; only what matters of it where its bytes may be forwarded."""
        context, waits, same_wire = self._context, self._outlet.waits, self._context.same_wire
        raw = waits and self.forwards and not context.services.controls.metadata
        skims = context.turn_state.names.trivial if raw else waits and not same_wire
        skimmed = context.theirs.read_regular(body, context.provenance) if skims else None
        if skimmed is not None and self._echoing.is_clear(skimmed):
            self._body, self._raw, self.skimmed = body, raw, True
            return skimmed
        reply = context.theirs.decode_reply(body, context.provenance)
        if same_wire and not context.theirs.is_regular(body):
            return respelled(reply, context.log)
        self._body, self._raw = body, raw
        return reply

    def read_fully(self) -> Reply:
        """Return all of a reply that was only skimmed."""
        self.skimmed = False
        self.reply = reply = self._context.theirs.decode_reply(self._body, self._context.provenance)
        return reply

    # --- what it came to ---------------------------------------------------------------------------------------------

    def gave_reply(self) -> bool:
        """Tell whether there is a reply to judge, be it inside the upstream's error (rule 128).

        Behind text or calls that went out, one of those would be said twice.
        """
        error, shown = self.error, self._outlet.shown
        if error is None:
            return True
        return isinstance(error, UpstreamRejected) and not (shown.spoke or shown.called) and self.uncover(error.error)

    @property
    def failure(self) -> MustcallError:
        """What it failed with, where it gave no reply."""
        assert self.error is not None, "it failed"
        return self.error

    def take_failure(self) -> MustcallError:
        """Return what it failed with and forget it: raised, it would hold this attempt as long as this held it."""
        failure, self.error = self.failure, None
        if self.relay is not None:
            self.relay.error = None
        return failure

    def uncover(self, error: ErrorInfo) -> bool:
        """Take the reply inside an upstream's error, if there is one."""
        context, token = self._context, self._context.token
        reply = harvested(error, self._echoing.lens(token), token, context.request.model)
        if reply is None:
            return False
        context.log.add(AdaptationKind.REPORTED, "generation", "it came inside the server's error")
        self.relay, self.error, self.reply = None, None, reply
        self.heavy = heft(reply) > LARGE
        return True

    def as_it_came(self, accepted: Reply) -> P | None:
        """Return the bytes that waited, as they came; None where they are not what is to go out."""
        relay, outlet = self.relay, self._outlet
        raw = self._raw if relay is None else relay.raw
        if not raw or accepted is not self.reply or outlet.written:
            return None
        return outlet.forward(self._body, []) if relay is None else relay.rest()

    def anew(self, reply: Reply) -> Reply:
        """Return a reply that does not go out as it came, without empty text."""
        new = without_empty_text(reply)
        return reply.evolve() if new is reply and self._context.same_wire and not self.forwards else new
