"""OpenAI Chat Completions."""

import msgspec

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.wire.chat.reply import decode_reply, encode_reply, regular_reply
from mustcall.wire.chat.request_decode import decode_request, peek
from mustcall.wire.chat.request_encode import encode_request
from mustcall.wire.chat.shape import is_regular
from mustcall.wire.chat.stream_decode import ChatStreamDecoder
from mustcall.wire.chat.stream_encode import KEEPALIVE, ChatStreamEncoder
from mustcall.wire.codec import Peek, Provenance, ReplyStamp, StreamDecoder, StreamEncoder, Target
from mustcall.wire.openai_errors import decode_error_body, encode_error_body
from mustcall.wire.opening import Fields
from mustcall.wire.reading import ShapeError, as_object, decode_json, maybe_object, opt_list
from mustcall.wire.sse import SseEvent

__all__ = ["ChatCodec"]


class ChatCodec:
    """The chat wire; see `wire.codec.Codec` for what each method promises."""

    wire = Wire.CHAT
    path = "/chat/completions"
    numbers = False
    keepalive = KEEPALIVE
    failure_status = 422  # Qwen Code, Copilot and the AI SDK ask once after it, and six times in all after 502
    call_start = "call_"
    closing_marks = (b"[DONE]",)
    streamed_errors = frozenset[str]()

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
        return encode_reply(reply, stamp, log, caller.model)

    def decode_error(self, status: int, body: bytes) -> ErrorInfo:
        """Read an error body."""
        return decode_error_body(status, body)

    def encode_error(self, error: ErrorInfo, request_id: str) -> JsonObject:
        """Write an error body."""
        return encode_error_body(error, request_id)

    def encode_stream_error(self, error: ErrorInfo, request_id: str, last: bytes = b"") -> bytes:  # noqa: ARG002  no numbers
        """Write an error as the last event of a forwarded stream."""
        return b"data: %b\n\n" % msgspec.json.encode(encode_error_body(error, request_id))

    def stream_decoder(self, provenance: Provenance) -> StreamDecoder:
        """Return a decoder for one stream."""
        return ChatStreamDecoder(provenance)

    def stream_encoder(self, caller: Request, stamp: ReplyStamp, log: AdaptationLog) -> StreamEncoder:
        """Return an encoder for one stream."""
        return ChatStreamEncoder(caller, stamp, log)

    def closes(self, event: SseEvent) -> bool:
        """Tell whether this event completes a stream: `[DONE]`, a finish reason, or the upstream's error."""
        if event.data.strip() == b"[DONE]":
            return True
        try:
            chunk = as_object(decode_json(event.data))
            if chunk.get("error") or event.name == "error":
                return True
            choices = [maybe_object(value) for value in opt_list(chunk, "choices") or ()]
        except ShapeError:
            return False
        return any(choice is not None and choice.get("finish_reason") for choice in choices)
