"""What a wire codec is: pure functions in both directions, and the few facts it may be told.

A codec never logs, never reads a clock and never makes a random id. What it must know from outside comes in as
`Target` (the upstream it encodes a request for), `Provenance` (the upstream a reply came from) and `ReplyStamp` (id and
time of the reply it encodes for the caller). Whatever a codec leaves out or reshapes it notes in the
`AdaptationLog` it is given.

Laws, proved by property tests for each codec:

- `encode_request(decode_request(b))` is JSON-equal to `b`, and so for replies.
- decoding a stream does not depend on how its bytes were cut.
- assembling a decoded stream gives the reply that decoding the non-streamed body gives.
- bytes that are not the wire's raise `InvalidRequest` (requests) or `UpstreamGarbage` (replies), nothing else.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.core.streams.events import Event, PartTextDelta
from mustcall.wire.sse import SseEvent

__all__ = ["Codec", "Peek", "Provenance", "ReplyStamp", "StreamDecoder", "StreamEncoder", "Target", "WireDeviation"]


class Peek(msgspec.Struct, frozen=True):
    """The little a gateway must know of a request it will forward untouched."""

    model: str
    stream: bool = False


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The upstream a request is encoded for.

    `issuer` is the name under which its opaque reasoning state is tagged; `default_max_tokens` is sent where the
    wire demands a limit and the caller gave none. `thinks_when_forced` says that a forced choice and thinking go
    together there.
    """

    issuer: str = ""
    default_max_tokens: int = 8192
    thinks_when_forced: bool = False


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """The upstream a reply came from, and a token unique to this reply for ids the upstream left out.

    `crosses` says that the reply goes on to another wire: state beside a call is then read as a thought of its own,
    for which every wire has a slot (rule 124).
    """

    issuer: str = ""
    token: str = ""
    crosses: bool = False


class ReplyStamp(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of the reply as the caller sees it: made ids end in `token`, `created` is in Unix seconds.

    `id` is the reply's own where its first events have been forwarded under it. `stored` and `previous` say that the
    reply is kept for its caller, and after which one.
    """

    token: str
    created: int
    id: str | None = None
    stored: bool = False
    previous: str | None = None
    #: The gateway's id of the request, for errors.
    request_id: str = ""


class WireDeviation(msgspec.Struct, frozen=True):
    """What servers send that is not the wire's: what is seen, how it is read, who sends or minds it, where known."""

    seen: str
    read: str
    who: str = ""


class StreamDecoder(Protocol):
    """Server-sent events in, canonical events out, in the order `core.streams.events` promises.

    A decoder also judges whether the bytes may be forwarded: only if every client reads in them what we read. Decoders
    understand far more than a wire allows, and official SDKs crash on what is only understood, or read something else
    than was judged. Strict means what a client needs: unknown fields, and events of versions to come, always fit.
    """

    def feed(self, event: SseEvent) -> list[Event]:
        """Take one event; after `Failed` or `Ended` nothing more comes out."""
        ...

    def feed_all(self, events: list[SseEvent]) -> list[Event]:
        """Take events that arrived together: what feeding them one by one gives, with neighbouring text joined."""
        ...

    def peel(self, event: bytes) -> tuple[int, str] | None:
        """Return part and text of an event of nothing but text for a part that is being written; take nothing.

        None if it is anything else: a shortcut past `feed_all` for most events there are, and as strict as a client.
        """
        ...

    def take_text(self, index: int, text: str, number: int | None) -> PartTextDelta:
        """Take the text of one such event, or of several that follow each other; the last has this number, if any."""
        ...

    def close(self) -> list[Event]:
        """Take the end of the bytes: `Ended` if the reply was complete, `Failed` if it was cut."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """The ids of the items announced so far, where the wire has them; another writer goes on with the same."""
        ...

    @property
    def settled(self) -> bool:
        """Whether all that was announced is told, so that another writer could go on from here."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the stream came to the end its wire prescribes."""
        ...

    def takes(self, block: bytes, events: list[SseEvent]) -> bool:
        """Tell whether a strict client reads these bytes, after all before, as their events mean; never raises.

        The same events are fed next. After a no, nothing more is asked. Deltas of nothing but text, in a part that is
        open, need not be shown.
        """
        ...


class StreamEncoder(Protocol):
    """Canonical events in, bytes of server-sent events out: the complete canonical sequence of the wire."""

    def resume(self, events: list[Event], names: Sequence[str], last: bytes) -> None:
        """Take what went out as the upstream's own bytes, to go on from there under the same ids and numbers.

        `names` are the ids its items went out with, by their index, where the wire has such; `last` are the last bytes.
        """
        ...

    def sign(self) -> bytes:
        """Return an event that shows life to a client while nothing else can be said (rule 145)."""
        ...

    def feed(self, event: Event) -> bytes:
        """Take one event and return what can be sent now (often nothing)."""
        ...


class Codec(Protocol):
    """One wire, both directions."""

    @property
    def wire(self) -> Wire:
        """Which wire this is."""
        ...

    @property
    def path(self) -> str:
        """Where the wire is served below an upstream's base URL (`/chat/completions`)."""
        ...

    @property
    def numbers(self) -> bool:
        """Whether the events of a stream are numbered, and clients count nothing else as a sign of life."""
        ...

    @property
    def keepalive(self) -> bytes:
        """Bytes that keep a stream open and that every client of the wire ignores, also before its first event."""
        ...

    @property
    def failure_status(self) -> int:
        """The HTTP status of a typed model failure: one after which the wire's clients do not ask again (rule 144)."""
        ...

    @property
    def call_start(self) -> str:
        """How the ids of calls begin here: an id of ours must look like one of the upstream's (rule 58)."""
        ...

    @property
    def closing_marks(self) -> tuple[bytes, ...]:
        """Bytes one of which is in every event that ends a stream: a cheap test before `closes` is asked."""
        ...

    @property
    def streamed_errors(self) -> frozenset[str]:
        """Error codes that clients who asked for a stream act on only when they come as an event of one."""
        ...

    def peek(self, body: bytes) -> Peek:
        """Check the outline of a request body and return what routing needs; raise `InvalidRequest`."""
        ...

    def decode_request(self, body: bytes, fields: dict[str, msgspec.Raw] | None = None) -> Request:
        """Read a caller's request; raise `InvalidRequest` or `UnsupportedFeature`. `fields` are its top level."""
        ...

    def encode_request(
        self, request: Request, target: Target, log: AdaptationLog, *, pieces: bool = False
    ) -> JsonObject:
        """Write a request for an upstream; raise `UnsupportedFeature` for what must not be dropped.

        With `pieces` its messages may be `written_history.Pieces`, which only `encode_cache.write_body` can write.
        """
        ...

    def decode_reply(self, body: bytes, provenance: Provenance) -> Reply:
        """Read an upstream's whole reply; raise `UpstreamGarbage`, or `UpstreamRejected` for an error in a 200."""
        ...

    def is_regular(self, body: bytes) -> bool:
        """Tell whether a whole reply is written as the wire says, so that its bytes may be forwarded; never raises."""
        ...

    def read_regular(self, body: bytes, provenance: Provenance) -> Reply | None:
        """Return what a regular reply means, None for one of another shape, which `decode_reply` reads.

        The reply has no exact form and nothing that only its own wire has a word for: it may be judged, counted and
        written on another wire, but not on its own.
        """
        ...

    def encode_reply(self, reply: Reply, caller: Request, stamp: ReplyStamp, log: AdaptationLog) -> JsonObject:
        """Write a reply for the caller whose request was `caller`."""
        ...

    def decode_error(self, status: int, body: bytes) -> ErrorInfo:
        """Read an upstream's error body; any bytes give an `ErrorInfo`, never an exception."""
        ...

    def encode_error(self, error: ErrorInfo, request_id: str) -> JsonObject:
        """Write an error body in the wire's own shape."""
        ...

    def encode_stream_error(self, error: ErrorInfo, request_id: str, last: bytes = b"") -> bytes:
        """Write an error as the last event of a stream whose events so far were forwarded, not encoded.

        `last` are the last bytes that were: where events have numbers, the error has the next one.
        """
        ...

    def stream_decoder(self, provenance: Provenance) -> StreamDecoder:
        """Return a fresh decoder for one stream."""
        ...

    def stream_encoder(self, caller: Request, stamp: ReplyStamp, log: AdaptationLog) -> StreamEncoder:
        """Return a fresh encoder for one stream."""
        ...

    def closes(self, event: SseEvent) -> bool:
        """Tell whether this event completes a stream (or ends it with the upstream's own error)."""
        ...
