"""The Anthropic Messages wire: one stateless codec in both directions.

Requests are read and written in `request` (settings in `settings`, the prompt in `prompt`, blocks in `blocks`), whole
replies in `reply`, streams in `stream_decode` and `stream_encode`, error bodies in `errors`, token counts in `count`.
"""

import msgspec

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.wire.codec import Peek, Provenance, ReplyStamp, StreamDecoder, StreamEncoder, Target
from mustcall.wire.messages import errors as error_bodies
from mustcall.wire.messages import reply as replies
from mustcall.wire.messages import request as requests
from mustcall.wire.messages.count import decode_count, encode_count, estimate_tokens
from mustcall.wire.messages.shape import is_regular
from mustcall.wire.messages.stream_decode import MessagesStreamDecoder
from mustcall.wire.messages.stream_encode import PING, MessagesStreamEncoder
from mustcall.wire.opening import Fields
from mustcall.wire.reading import read
from mustcall.wire.sse import SseEvent

__all__ = ["MessagesCodec", "decode_count", "encode_count", "estimate_tokens"]

_LAST_EVENTS = frozenset({"message_stop", "error"})


class _EventType(msgspec.Struct):
    type: str = ""


_event_type = msgspec.json.Decoder(_EventType)


class MessagesCodec:
    """Anthropic Messages."""

    __slots__ = ()

    wire = Wire.MESSAGES
    path = "/messages"
    numbers = False
    keepalive = PING
    failure_status = 502  # Claude Code asks once after it with `x-should-retry: false`, 6 times in all after 400
    call_start = "toolu_"
    closing_marks = (b"message_stop", b'"error"')
    streamed_errors = frozenset[str]()

    def peek(self, body: bytes) -> Peek:
        """Check the outline of a request body; raise `InvalidRequest`, or `UnsupportedFeature` for threads."""
        return requests.peek(body)

    def decode_request(self, body: bytes, fields: Fields | None = None) -> Request:
        """Read a caller's request (of `count_tokens` too)."""
        return requests.decode_request(body, fields)

    def encode_request(
        self, request: Request, target: Target, log: AdaptationLog, *, pieces: bool = False
    ) -> JsonObject:
        """Write a request for an upstream."""
        return requests.encode_request(request, target, log, pieces=pieces)

    def decode_reply(self, body: bytes, provenance: Provenance) -> Reply:
        """Read an upstream's whole reply."""
        return replies.decode_reply(body, provenance)

    def is_regular(self, body: bytes) -> bool:
        """Tell whether a whole reply may be forwarded."""
        return is_regular(body)

    def read_regular(self, body: bytes, provenance: Provenance) -> Reply | None:
        """Return what a regular reply means."""
        return replies.regular_reply(body, provenance)

    def encode_reply(self, reply: Reply, caller: Request, stamp: ReplyStamp, log: AdaptationLog) -> JsonObject:
        """Write a reply for the caller."""
        return replies.encode_reply(reply, caller, stamp, log)

    def decode_error(self, status: int, body: bytes) -> ErrorInfo:
        """Read an upstream's error body."""
        return error_bodies.decode_error(status, body)

    def encode_error(self, error: ErrorInfo, request_id: str) -> JsonObject:
        """Write an error body."""
        return error_bodies.encode_error(error, request_id)

    def encode_stream_error(self, error: ErrorInfo, request_id: str, last: bytes = b"") -> bytes:  # noqa: ARG002  no numbers
        """Write an error as the last event of a stream."""
        return error_bodies.encode_stream_error(error, request_id)

    def stream_decoder(self, provenance: Provenance) -> StreamDecoder:
        """Return a fresh decoder for one stream."""
        return MessagesStreamDecoder(provenance)

    def stream_encoder(self, caller: Request, stamp: ReplyStamp, log: AdaptationLog) -> StreamEncoder:
        """Return a fresh encoder for one stream."""
        return MessagesStreamEncoder(caller, stamp, log)

    def closes(self, event: SseEvent) -> bool:
        """Tell whether this event is the last of a stream: `message_stop`, or the upstream's own error."""
        if event.name:
            return event.name in _LAST_EVENTS
        typed = read(_event_type, event.data)
        return typed is not None and typed.type in _LAST_EVENTS
