"""The caller's end of a streamed turn: bytes as they came while nothing had to change, written anew from then on.

Both ways can follow each other in one stream: the encoder is told what went out as bytes, and goes on from there.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import ErrorInfo, MustcallError
from mustcall.core.request import Request
from mustcall.core.streams.events import Event, Failed, Started
from mustcall.engine.off_loop import LARGE, heavily
from mustcall.policy.reply.gate import Released
from mustcall.wire.codec import Codec, ReplyStamp, StreamEncoder

__all__ = ["Delivery"]


class Delivery:
    """One stream to one caller."""

    nothing = b""
    waits = False

    __slots__ = (
        "_codec",
        "_encoder",
        "_id_follows",
        "_last",
        "_log",
        "_names",
        "_request",
        "_shared",
        "_split",
        "_stamp",
        "shown",
    )

    def __init__(
        self,
        codec: Codec,
        request: Request,
        stamp: ReplyStamp,
        log: AdaptationLog,
        *,
        id_follows: bool = False,
        shared: bool = False,
    ) -> None:
        self._codec = codec
        #: Whether the upstream speaks the caller's wire: its own bytes may go out.
        self._shared = shared
        #: Whether the upstream keeps the reply under an id that is known only when it is accepted.
        self._id_follows = id_follows
        self._last = b""
        self._request = request
        self._stamp = stamp
        self._log = log
        self._encoder: StreamEncoder | None = None
        #: Whether the last bytes ended between the two characters of a line end.
        self._split = False
        self.shown = Released()
        #: The ids under which items went out as bytes, once it is asked.
        self._names: Callable[[], Sequence[str]] = tuple

    @property
    def begun(self) -> bool:
        """Whether the caller has been sent an event: a failure can then only be another one."""
        return self._encoder is not None or bool(self.shown)

    @property
    def written(self) -> bool:
        """Whether something was written here: the upstream's own bytes cannot follow, they have other numbers."""
        return self._encoder is not None

    def sign(self) -> bytes:
        """Return a sign of life that the wire's clients count (rule 145), for one who has all that went out before.

        Where a reply goes by an id that is not known yet, or that is replaced on its way, it is one without an id.
        """
        if self._id_follows or (self._stamp.stored and self.shown and not self.written):
            return self._codec.keepalive
        return self._on_a_new_line(self._writer().sign())

    def first_sign(self) -> bytes:
        """Return a sign of life for a caller to whom nothing went out yet; empty where none can be given.

        What is a comment or a `ping` may stand before an upstream's own bytes. An event with a number may not, and a
        comment is no use where clients count events: such a stream is left as it is.
        """
        if not self._codec.numbers:
            return self._codec.keepalive
        return b"" if self._shared and not self.written else self.sign()

    def named_by(self, names: Callable[[], Sequence[str]]) -> None:
        """Take where the ids are known under which items go out as bytes."""
        self._names = names

    def forward(self, block: bytes, events: list[Event]) -> bytes:
        """Send bytes as they came; `events` are what they mean."""
        self.shown.record(events)
        self._last = block
        self._split = block.endswith(b"\r")
        return block

    def forward_one(self, block: bytes, event: Event) -> bytes:
        """Do as `forward` for whole lines that mean one event."""
        shown = self.shown
        events = shown.events
        events.append(event)
        if len(events) > shown.full:
            shown.join()
        self._last = block
        self._split = False
        return block

    def write(self, events: Iterable[Event]) -> bytes:
        """Send events in the caller's wire."""
        listed = list(events)
        written = b"".join(map(self._writer().feed, listed))
        self.shown.record(listed)
        return self._on_a_new_line(written)

    def joined(self, pieces: Sequence[bytes]) -> bytes:
        """Return what went out together."""
        return b"".join(pieces)

    def tells(self, error: ErrorInfo) -> bool:
        """Tell whether the wire says this error in a stream even where nothing went out."""
        return error.code in self._codec.streamed_errors

    async def ready(self) -> None:
        """Tell the encoder what went out as bytes, beside the loop where that is long."""
        if self._encoder is None and self.shown.weight > LARGE:
            await heavily(self._writer)

    def fail(self, error: MustcallError) -> bytes:
        """End the stream with an error in the wire's own form."""
        return self._on_a_new_line(self._writer().feed(Failed(error.info())))

    def _on_a_new_line(self, written: bytes) -> bytes:
        """Return our own bytes behind forwarded ones, whose last line end may lack its second half."""
        if self._split and written:
            self._split = False
            return b"\n" + written
        return written

    def _writer(self) -> StreamEncoder:
        if self._encoder is None:
            begun = next((event for event in self.shown.events if isinstance(event, Started)), None)
            stamp = self._stamp if begun is None else msgspec.structs.replace(self._stamp, id=begun.id)
            self._encoder = self._codec.stream_encoder(self._request, stamp, self._log)
            self._encoder.resume(self.shown.events, self._names(), self._last)
        return self._encoder
