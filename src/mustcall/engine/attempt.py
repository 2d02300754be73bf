"""One attempt of a turn: the upstream's answer read and scanned, up to its reply or its failure.

A whole reply is the degenerate stream: one piece, of which nothing is seen before its end. What an attempt gives is
the reply as the upstream's codec read it, what was found in its text on the way, and the upstream's own bytes where
they may go out as they came. It decides nothing about the reply.
"""

from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, nullcontext
from typing import Generic

from mustcall.core.adaptation import AdaptationKind
from mustcall.core.errors import MustcallError, UpstreamTimeout
from mustcall.core.reply import Reply
from mustcall.engine.echoing import Echoing
from mustcall.engine.exchange import drain, is_event_stream
from mustcall.engine.letting import holds, trusts
from mustcall.engine.off_loop import LARGE, heavily, heft, is_heavy
from mustcall.engine.outlets import Outlet, P
from mustcall.engine.restoring import without_empty_text
from mustcall.engine.stream_relay import StreamRelay
from mustcall.engine.teaching import Teaching
from mustcall.engine.turn_context import TurnContext
from mustcall.policy.reply.cut_prompt import estimate
from mustcall.policy.reply.gate import Gate
from mustcall.policy.scanning.reply_scanner import ReplyScanner, ScanFindings
from mustcall.upstream.idle import IdleTimer
from mustcall.upstream.retry import Answer
from mustcall.wire.regularity import is_regular_body, respelled
from mustcall.wire.skimming import skim

__all__ = ["TOO_LONG", "Attempt"]

TOO_LONG = "the upstream's answer did not end within the time for this request"

_UNTIMED = nullcontext()


class Attempt(Generic[P]):
    """What one exchange came to. After it was read either `error` is set or `reply` is.

    `relay` is its stream, None where it came in one piece. `readable` says that calls are in the caller's names as
    they come.
    """

    __slots__ = (
        "_body",
        "_context",
        "_echoing",
        "_outlet",
        "_raw",
        "answer",
        "error",
        "forwards",
        "heavy",
        "relay",
        "reply",
        "skimmed",
    )

    def __init__(
        self, context: TurnContext, answer: Answer, outlet: Outlet[P], echoing: Echoing, *, readable: bool
    ) -> None:
        self._context = context
        self._outlet = outlet
        self._echoing = echoing
        self.answer = answer
        self.forwards = context.forwards
        self.error: MustcallError | None = None
        #: The reply as it was decoded.
        self.reply: Reply | None = None
        #: Whether it takes long to look at.
        self.heavy = False
        #: Whether only what matters of it was read.
        self.skimmed = False
        self._body = b""
        self._raw = False
        self.relay: StreamRelay[P] | None = None
        if answer.error_body is not None:
            pass
        elif is_event_stream(answer.reply.headers):
            self.relay = self._waiting_relay() if outlet.waits else self._flowing_relay(readable)
        elif not outlet.waits:
            context.log.add(AdaptationKind.FIELD_MAPPED, "stream", "the upstream answered in one piece")
            context.progress.holding = True

    # --- a stream ----------------------------------------------------------------------------------------------------

    def _flowing_relay(self, readable: bool) -> StreamRelay[P]:
        """Return what lets a stream out as far as the gate allows."""
        context, outlet = self._context, self._outlet
        course, request = context.course, context.request
        closed = holds(course, request, context.services.controls) or bool(outlet.shown)
        gate = Gate(closed=closed, trusted=trusts(course, request, readable=readable))
        context.progress.holding = gate.stopped
        scanner = self._echoing.lens(context.token)
        return self._relayed(scanner, gate, raw=self.forwards and not outlet.written)

    def _waiting_relay(self) -> StreamRelay[P]:
        """Return what reads a stream for a caller who waits for the whole reply: its text is looked at in the end."""
        context = self._context
        settles = context.course.settles_early
        scanner = self._echoing.lens(context.token) if settles else ReplyScanner(None, "")
        return self._relayed(scanner, Gate(closed=True), raw=False)

    def _relayed(self, scanner: ReplyScanner, gate: Gate, *, raw: bool) -> StreamRelay[P]:
        context = self._context
        decoder, limits = context.theirs.stream_decoder(context.provenance), context.services.limits
        return StreamRelay(decoder, context.shared_wire, scanner, gate, self._outlet, raw=raw, limits=limits)

    def time(self) -> AbstractContextManager[object]:
        """Return what raises `TimeoutError` where a caller waits for all of an answer that is not here yet."""
        if not self._outlet.waits or self.answer.reply.arrived:
            return _UNTIMED
        return IdleTimer(max(0.0, self._context.deadline - self._context.services.clock.monotonic()))

    def check_time(self, relay: StreamRelay[P], teaching: Teaching) -> None:
        """Raise once the time is over for what waits (rule 97); what already flows has no deadline, but must flow."""
        context = self._context
        now, most = context.services.clock.monotonic(), context.endpoint.timeouts.read
        if relay.holding and now >= context.deadline:
            raise teaching.out_of_time(TOO_LONG)
        if relay.quiet and not self._outlet.waits and relay.silence.lasted(now) > most:
            raise UpstreamTimeout(f"the upstream's stream said nothing for {most:g} s (read_timeout)")

    async def end(self, relay: StreamRelay[P], pieces: AsyncGenerator[bytes]) -> None:
        """Read what follows the end of a stream; a demanded call ends one before that (rule 137), and so do blanks."""
        if relay.ended:
            await drain(pieces)
            return
        context = self._context
        relay.settle(estimate(context.course.shaped().request))
        context.log.add(AdaptationKind.ESTIMATED, "usage", "the reply was settled before the upstream counted")
        at = "the demanded call" if relay.lens.settled else "a run of blanks"
        context.log.add(AdaptationKind.REPORTED, "settled", f"at {at}; the rest was not waited for")

    def take_stream(self, relay: StreamRelay[P]) -> None:
        """Take the reply, or the failure, that a stream came to."""
        self.error = self.error or relay.error
        if self.error is None:
            reply = relay.reply()
            self.heavy = heft(reply) > LARGE
            respells = self._outlet.waits and relay.irregular
            self.reply = respelled(reply, self._context.log) if respells else reply

    # --- one piece ---------------------------------------------------------------------------------------------------

    async def take_whole(self, body: bytes) -> None:
        """Take a reply that came in one piece, or its failure."""
        try:
            reply = await heavily(self._decoded, body) if len(body) > LARGE else self._decoded(body)
        except MustcallError as error:
            self.error = error
        else:
            self.reply, self.heavy = reply, is_heavy(body, reply)

    def _decoded(self, body: bytes) -> Reply:
        """Read a whole reply; only what matters of it where its bytes may be forwarded."""
        context, waits = self._context, self._outlet.waits
        raw = waits and self.forwards and not context.services.controls.metadata
        own = raw and context.course.names.trivial
        skimmed = skim(context.theirs.wire, body) if own or (waits and not context.same_wire) else None
        if skimmed is not None and self._echoing.is_clear(skimmed):
            self._body, self._raw, self.skimmed = body, raw, True
            return skimmed
        reply = context.theirs.decode_reply(body, context.provenance)
        if context.same_wire and not is_regular_body(context.inbound.wire, body):
            return respelled(reply, context.log)
        self._body, self._raw = body, raw
        return reply

    def read_fully(self) -> Reply:
        """Return all of a reply that was only skimmed."""
        self.skimmed = False
        self.reply = reply = self._context.theirs.decode_reply(self._body, self._context.provenance)
        return reply

    # --- what it came to ---------------------------------------------------------------------------------------------

    def take_hidden(self, reply: Reply) -> None:
        """Take the reply that was inside the upstream's error: no byte of it came as a reply."""
        self.relay, self.error, self.reply = None, None, reply
        self.heavy = heft(reply) > LARGE

    async def found(self, reply: Reply) -> ScanFindings | None:
        """Return what was seen in the text while it came, None where it was not looked at."""
        if self.relay is None or self._outlet.waits:
            return None
        return await heavily(self.relay.found, reply) if self.heavy else self.relay.found(reply)

    @property
    def began(self) -> bool:
        """Whether this attempt itself let something out."""
        return self.relay is not None and self.relay.began

    @property
    def irregular(self) -> bool:
        """Whether what went in is to be respelled before it goes out."""
        return self.relay is not None and self.relay.irregular and not self._outlet.waits

    def goes_out_as_it_came(self, accepted: Reply) -> bool:
        """Tell whether the upstream's own bytes are what is to go out."""
        raw = self._raw if self.relay is None else self.relay.raw
        return raw and accepted is self.reply and not self._outlet.written

    def rest(self) -> P:
        """Return the bytes that waited, as they came."""
        return self._outlet.forward(self._body, []) if self.relay is None else self.relay.rest()

    def last_words(self) -> P:
        """Return the text that may be seen and waited only because it came in one piece with what may not."""
        return self.relay.last_words() if self.relay is not None and self._outlet.shown else self._outlet.nothing

    def anew(self, reply: Reply) -> Reply:
        """Return a reply that does not go out as it came, without empty text."""
        new = without_empty_text(reply)
        return reply.evolve() if new is reply and self._context.same_wire and not self.forwards else new
