"""One attempt's stream on its way to the caller: decoded, looked through, and let out as far as the gate allows.

While nothing has to change on a shared wire, what goes out are the upstream's own bytes: an event's bytes follow as
soon as all it means may be seen. The first change ends that, and so do the first bytes that are not strictly the
wire's (`StreamDecoder.takes`): what follows is written anew.

Cost: each event is decoded and scanned once, runs of text deltas by their stencil. Bytes that must wait are kept as
they came.
"""

from typing import Generic

from mustcall.core.errors import MustcallError, UpstreamGarbage, UpstreamRejected
from mustcall.core.limits import DEFAULTS, GatewayLimits
from mustcall.core.parts import ToolCall
from mustcall.core.reply import FinishReason, Reply, Usage
from mustcall.core.streams.assembler import Assembler
from mustcall.core.streams.events import (
    Ended,
    Event,
    Failed,
    Finished,
    PartReasoningDelta,
    PartStarted,
    PartTextDelta,
    Started,
)
from mustcall.engine.off_loop import LARGE
from mustcall.engine.replies.kept_errors import without_frames
from mustcall.engine.replies.outlets import Outlet, P
from mustcall.policy.failures.rejection import without_generation
from mustcall.policy.reply.gate import Gate
from mustcall.policy.scanning.reply_scanner import ReplyScanner, ScanFindings
from mustcall.wire.codec import StreamDecoder
from mustcall.wire.delta_template import DeltaTemplate, TextRun
from mustcall.wire.reading import is_utf8
from mustcall.wire.sse import Silence, SseDecoder, SseEvent

__all__ = ["StreamRelay"]

#: Events of one piece that are read together while it is not known what its text deltas look like, and how often.
_GROUP = 2
_GROUPS = 8
#: Stencils made for one stream at most: one whose deltas always differ is not tried for ever.
_STENCILS = 16
#: What the model says, as far as its tokens can be counted by it.
_SAID = frozenset({PartTextDelta, PartReasoningDelta})
#: How a reply ends whose calls may not be whole.
_CUT = frozenset({FinishReason.LENGTH, FinishReason.CONTENT_FILTER})
_TOO_DEEP = "the upstream's stream is nested too deeply"
#: What a text delta comes behind.
_TEXT = frozenset({PartTextDelta, PartStarted, Started})


class StreamRelay(Generic[P]):
    """The stream of one attempt. At its end either `error` is set or `reply` can be taken.

    `shared` says that both sides have one wire.
    """

    def __init__(
        self,
        decoder: StreamDecoder,
        shared: bool,
        lens: ReplyScanner,
        gate: Gate,
        outlet: Outlet[P],
        *,
        raw: bool,
        limits: GatewayLimits = DEFAULTS,
    ) -> None:
        self._sse = SseDecoder(limits)
        self._decoder = decoder
        self._shared = shared
        self._regular = True
        self._gate = gate
        self._outlet = outlet
        self._nothing = outlet.nothing
        self._assembler = Assembler()
        self._held: list[bytes] = []
        self._released: list[Event] = []
        #: Whether the reply is complete, or has failed in its own words.
        self.ended = False
        self._settled_reply: Reply | None = None
        self._stencil: DeltaTemplate | None = None
        self._part = -1
        self._patience = _STENCILS
        #: What was decoded last: behind some of it a text delta may come.
        self._last: type[Event] = Started
        self.lens = lens
        self._settles = lens.settles
        #: What came without saying anything.
        self.silence = Silence(limits)
        #: Whether the last of it said nothing.
        self.quiet = False
        #: Whether the caller gets the upstream's own bytes.
        self.raw = raw and shared
        if self.raw:
            outlet.named_by(lambda: decoder.names)
        #: What the stream failed with; the upstream's own word may have the model's generation in it (rule 128).
        self.error: MustcallError | None = None
        self._deltas = 0
        #: Whether the error is the upstream's own word, in the bytes that came.
        self.said_so = False

    @property
    def began(self) -> bool:
        """Whether this attempt itself let something out; after others did, it lets nothing out before its verdict."""
        return self._gate.begun

    @property
    def holding(self) -> bool:
        """Whether what comes now waits for the verdict."""
        return self._gate.stopped

    @property
    def finished(self) -> bool:
        """Whether what flowed has come to its end."""
        return self._gate.finished

    @property
    def strains(self) -> bool:
        """Whether reading the next piece may take long: it belongs to an event that is large already."""
        return self._sse.size > LARGE

    def feed(self, piece: bytes) -> P:
        """Take the next bytes and return what may go out; raise `UpstreamGarbage` for what cannot be read."""
        stencil, run = self._stencil, None
        if stencil is not None and not self._sse.holds:
            # Most pieces of most replies: deltas like the one before, and nothing else.
            run = stencil.run(piece, 0)
            if run is not None and run.end == len(piece):
                return self._feed_text(piece, run)
        block = self._sse.frame(piece)
        if not block:
            return self._nothing
        try:
            if b"\r" not in block:
                return self._feed_runs(block, run)
            self._stencil = None  # the part it was made for may end here
            return self._feed(block, self._sse.read(block))
        except RecursionError:
            raise UpstreamGarbage(_TOO_DEEP) from None

    def _feed_runs(self, block: bytes, run: TextRun | None = None) -> P:
        """Take the events of one piece: text deltas in runs, a few others at a time where text may come behind them.

        `run` is the one that the block begins with, where that is known.
        """
        out: list[P] = []
        start, size, groups = 0, len(block), _GROUPS
        while start < size:
            if run is None and self._stencil is not None:
                run = self._stencil.run(block, start)
            if run is not None:
                end = run.end
                out.append(self._feed_text(block[start:end], run))
                groups, run = 0, None  # what follows a run in the same piece is mostly the end
            else:
                end = _behind(block, start, _GROUP) if groups and self._patience and self._last in _TEXT else size
                groups -= 1
                try:
                    out.append(self._feed_group(block if end - start == size else block[start:end]))
                except (MustcallError, RecursionError) as error:
                    if not out:
                        raise
                    if not self.ended:  # what came before it is on its way
                        self.fail(error if isinstance(error, MustcallError) else UpstreamGarbage(_TOO_DEEP))
                        self.ended = True
                    break
            start = end
        return out[0] if len(out) == 1 else self._outlet.joined(out)

    def _feed_group(self, block: bytes) -> P:
        """Take a few events; if the last is nothing but text, it shows what those that follow will look like."""
        self._stencil = None
        data = self._feed(block, self._sse.read(block))
        if self._patience and self._last is PartTextDelta:
            self._patience -= 1
            last = block[block.rfind(b"\n\n", 0, -2) + 2 :] if block.count(b"\n\n") > 1 else block
            peeled = self._decoder.peel(last) if is_utf8(last) else None
            if peeled is not None:
                self._part, text = peeled
                self._stencil = DeltaTemplate.of(last, text, self._read_text)
        return data

    def _read_text(self, event: bytes) -> str | None:
        peeled = self._decoder.peel(event)
        return None if peeled is None else peeled[1]

    def _feed_text(self, block: bytes, run: TextRun) -> P:
        """Take bytes that are nothing but text of one part: most of most replies."""
        only = self._decoder.take_text(self._part, run.text, run.number)
        if self._stencil is not None:
            self._stencil.number = run.number
        self._deltas += run.deltas
        self._assembler.feed(only)
        shown = self.lens.feed(only)
        gate = self._gate
        if self.raw and gate.begun and not gate.stopped and not self._held and len(shown) == 1 and shown[0] is only:
            return self._outlet.forward_one(block, only)  # nothing has to wait, and nothing waits before it
        self._show(shown)
        return self._let_out(block) if self.raw else self._write()

    def fail(self, error: MustcallError) -> None:
        """End the stream with a failure that is not the upstream's own word."""
        self.error = without_frames(error)

    def reply(self) -> Reply:
        """Return the reply as a whole, or what is wanted of it."""
        return self._settled_reply or self._assembler.reply()

    @property
    def is_enough(self) -> bool:
        """Whether nothing more needs to come: a demanded call is there, or the text goes on in blanks."""
        return self._settles and (self.lens.settled or self.lens.runs_dry)

    @property
    def settled(self) -> bool:
        """Whether the reply so far is all that is wanted of it."""
        return self._settled_reply is not None

    def settle(self, input_tokens: int) -> None:
        """Take the reply as if it ended here.

        A server counts tokens at the end of a reply, which does not come: what was written is counted by its pieces,
        most servers sending one for each token, and `input_tokens` stands for the prompt.
        """
        self._settled_reply = self._assembler.so_far(Usage(input_tokens=input_tokens, output_tokens=self._deltas))

    def found(self, reply: Reply) -> ScanFindings:
        """Return what was found in the reply's text; one that was not what was streamed is looked through again.

        Raise `UpstreamGarbage` if the caller has seen what the reply's end takes back.
        """
        if self.settled and not self.lens.settled:
            return self.lens.fresh().read(reply)  # its scanners have not seen the end
        if not self._assembler.contradicted:
            return self.lens.found(reply)
        if self.began:
            raise UpstreamGarbage("the upstream contradicted at its end what it had streamed before")
        return self.lens.fresh().read(reply)

    @property
    def irregular(self) -> bool:
        """Whether the bytes were not strictly the caller's wire: what they mean must not be said in their form."""
        return self._shared and not (self._regular and self._decoder.complete)

    def rest(self) -> P:
        """Return the bytes that waited, as they came."""
        held, self._held = b"".join(self._held), []
        return self._outlet.forward(held, [])

    def last_words(self) -> P:
        """Return the text that may be seen and waited only because it came in one piece with what may not.

        Another attempt follows: of a trusted call that began in that piece nothing goes out.
        """
        self.raw = False
        self._held.clear()
        began = [isinstance(event, PartStarted) and isinstance(event.part, ToolCall) for event in self._released]
        if any(began):
            del self._released[began.index(True) :]
        return self._write()

    def close(self) -> P:
        """Take the end of the bytes and return what may go out; raise `UpstreamGarbage` for what cannot be read."""
        block, events = self._sse.close_block()
        # A server may hang up right after its last line, without the blank one that ends the event.
        whole = block + b"\n\n" if block and not block.endswith((b"\n\n", b"\r\r")) else block
        try:
            data = self._feed(whole, events)
            if not self.ended:
                self._take(self._decoder.close())
                self.said_so = False  # the decoder's word: no byte of it came
        except RecursionError:
            raise UpstreamGarbage(_TOO_DEEP) from None
        return data

    def _feed(self, block: bytes, events: list[SseEvent]) -> P:
        """Take the events of one piece and return what may go out."""
        if not block:
            return self._nothing
        if self._shared and self._regular and not self._decoder.takes(block, events):
            # Bytes that wait are void: what they mean is written anew.
            self._regular = self.raw = False
            self._held.clear()
        decoded = self._decoder.feed_all(events)
        if not decoded:
            if not self.ended:  # what comes behind the end says nothing, and nobody waits for more
                self.quiet = True
                self.silence.note(block)
        else:
            self._last = type(decoded[-1])
            if self.quiet:
                self.quiet = False
                self.silence.end()
        if not _SAID.isdisjoint(map(type, decoded)):
            self._deltas += len(events)  # those of a run are decoded as one
        self._take(decoded)
        return self._let_out(block) if self.raw else self._write()

    def _let_out(self, block: bytes) -> P:
        """Return what may go out after a piece: its bytes if all they mean may be seen, else they wait."""
        gate, lens = self._gate, self.lens
        if lens.touched and not gate.stopped:
            # What follows is not what came: bytes that wait are void, what they mean is written anew.
            self.raw = False
            self._held.clear()
            return self._write()
        self._held.append(block)
        if not gate.begun or gate.stopped or lens.pending or not self._decoder.settled:
            return self._nothing
        released, self._released = self._released, []
        held, self._held = b"".join(self._held), []
        return self._outlet.forward(held, released)

    def _write(self) -> P:
        if not self._released:
            return self._nothing
        released, self._released = self._released, []
        return self._outlet.write(released)

    def _take(self, events: list[Event]) -> None:
        """Fold events into the reply and let out what may be seen."""
        if any(type(event) is Finished and event.reason in _CUT for event in events):
            self._gate.expect_cut()  # a wire without ends of parts ends its calls here
        for event in events:
            self._assembler.feed(event)
            if type(event) is Ended:
                self.ended = True
            elif isinstance(event, Failed):
                self.ended = True
                self.error = UpstreamRejected(event.error)
                self.said_so = without_generation(event.error) is event.error
            self._show(self.lens.feed(event))

    def _show(self, events: list[Event]) -> None:
        gate = self._gate
        if gate.stopped:
            return
        for event in events:
            self._released += gate.feed(event)
        if self.lens.marked:
            gate.stop()


def _behind(block: bytes, start: int, count: int) -> int:
    """Return where so many events end, or the block."""
    for _ in range(count):
        start = block.find(b"\n\n", start) + 2
        if start == 1:
            return len(block)
    return start
