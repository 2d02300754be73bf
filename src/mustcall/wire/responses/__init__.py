"""OpenAI Responses."""

import msgspec

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.wire.codec import Peek, Provenance, ReplyStamp, StreamDecoder, StreamEncoder, Target
from mustcall.wire.openai_errors import decode_error_body, encode_error_body
from mustcall.wire.opening import Fields
from mustcall.wire.overflow import OVERFLOW_CODE
from mustcall.wire.reading import ShapeError, as_object, decode_json
from mustcall.wire.responses.reply import decode_reply, encode_reply, regular_reply
from mustcall.wire.responses.request_decode import decode_request, peek
from mustcall.wire.responses.request_encode import encode_request
from mustcall.wire.responses.shape import is_regular
from mustcall.wire.responses.stream_decode import TERMINAL, ResponsesStreamDecoder, event_type
from mustcall.wire.responses.stream_encode import ResponsesStreamEncoder
from mustcall.wire.responses.stream_failures import next_number
from mustcall.wire.sse import SseEvent, encode_event

__all__ = ["ResponsesCodec"]


class ResponsesCodec:
    """The responses wire; see `wire.codec.Codec` for what each method promises."""

    wire = Wire.RESPONSES
    path = "/responses"
    numbers = True
    keepalive = b": keepalive\n\n"
    failure_status = 400  # Codex asks once after it, 6 times in all after 422 and 30 times after 502
    call_start = "call_"
    closing_marks = (b"response.completed", b"response.incomplete", b"response.failed")
    streamed_errors = frozenset({OVERFLOW_CODE})

    def peek(self, body: bytes) -> Peek:
        """Check the outline of a request."""
        return peek(body)

    def decode_request(self, body: bytes, fields: Fields | None = None) -> Request:
        """Read a caller's request."""
        return decode_request(body, fields)

    def encode_request(
        self, request: Request, target: Target, log: AdaptationLog, *, pieces: bool = False
    ) -> JsonObject:
        """Write a request for an upstream."""
        return encode_request(request, target, log, pieces=pieces)

    def decode_reply(self, body: bytes, provenance: Provenance) -> Reply:
        """Read a whole reply."""
        return decode_reply(body, provenance)

    def is_regular(self, body: bytes) -> bool:
        """Tell whether a whole reply may be forwarded."""
        return is_regular(body)

    def read_regular(self, body: bytes, provenance: Provenance) -> Reply | None:
        """Return what a regular reply means."""
        return regular_reply(body, provenance)

    def encode_reply(self, reply: Reply, caller: Request, stamp: ReplyStamp, log: AdaptationLog) -> JsonObject:
        """Write a whole reply."""
        return encode_reply(reply, caller, stamp, log)

    def decode_error(self, status: int, body: bytes) -> ErrorInfo:
        """Read an error body."""
        return decode_error_body(status, body)

    def encode_error(self, error: ErrorInfo, request_id: str) -> JsonObject:
        """Write an error body."""
        return encode_error_body(error, request_id)

    def encode_stream_error(self, error: ErrorInfo, request_id: str, last: bytes = b"") -> bytes:
        """Write an error as the last event of a forwarded stream."""
        body = encode_error_body(error, request_id)["error"]
        event = {
            "type": "error",
            "sequence_number": next_number(last) or 0,
            "code": body["code"],
            "message": body["message"],
        }
        return encode_event(msgspec.json.encode({**event, "param": body["param"], "request_id": request_id}), "error")

    def stream_decoder(self, provenance: Provenance) -> StreamDecoder:
        """Return a decoder for one stream."""
        return ResponsesStreamDecoder(provenance)

    def stream_encoder(self, caller: Request, stamp: ReplyStamp, log: AdaptationLog) -> StreamEncoder:
        """Return an encoder for one stream."""
        return ResponsesStreamEncoder(caller, stamp, log)

    def closes(self, event: SseEvent) -> bool:
        """Tell whether this event completes a stream, or ends it with the upstream's error."""
        if event.name:
            return event.name in TERMINAL
        try:
            return event_type(as_object(decode_json(event.data)), event.name) in TERMINAL
        except ShapeError:
            return False
