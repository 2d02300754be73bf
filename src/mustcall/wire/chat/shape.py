"""Chat Completions replies and chunks as the wire writes them: the only grammar of both.

What fits is regular: every client reads in it what we read, so its bytes may be forwarded. What does not fit is read
with `repairs`, and written anew. Strict means what a client needs. Unknown fields always fit, and whole replies of
small servers leave out time, model and role, which no client minds.

Cost: one typed decode, in C.
"""

from typing import Annotated, Any, Literal, TypeVar

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.wire.reading import Anything, Count, Given, decode_json, is_utf8, maybe_object, read

__all__ = [
    "CallDelta",
    "CallPiece",
    "ChatChunk",
    "ChatDelta",
    "ChatReply",
    "ChoiceDelta",
    "InputDetails",
    "OutputDetails",
    "chat_outline",
    "is_failure",
    "is_regular",
    "read_chunk",
    "read_reply",
    "read_text",
    "read_texts",
    "usage_of",
]


class _Said(msgspec.Struct, gc=False):
    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: list[Any] | None = None
    function_call: None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count


# --- whole replies --------------------------------------------------------------------------------------------------


class _Function(msgspec.Struct, gc=False):
    name: Given
    arguments: str


class _Custom(msgspec.Struct, gc=False):
    name: Given
    input: str


class _FunctionEntry(msgspec.Struct, gc=False, tag_field="type", tag="function"):
    id: Given
    function: _Function
    custom: _Custom | None = None
    extra_content: Any = None


class _CustomEntry(msgspec.Struct, gc=False, tag_field="type", tag="custom"):
    id: Given
    custom: _Custom
    function: _Function | None = None
    extra_content: Any = None


class _Message(_Said, gc=False):
    role: Literal["assistant"] = "assistant"
    tool_calls: list[_FunctionEntry | _CustomEntry] | None = None


class _Choice(msgspec.Struct, gc=False):
    message: _Message
    index: Count = 0
    finish_reason: Given | None = None
    logprobs: Anything | None = None


class _Reply(msgspec.Struct, gc=False, frozen=True):
    id: Given
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    object: Literal["chat.completion"] = "chat.completion"
    created: int | float = 0
    model: str = ""
    usage: _Usage | None = None
    error: None = None


class _Outline(msgspec.Struct):
    choices: list[msgspec.Raw]


class InputDetails(msgspec.Struct, gc=False):
    """What is known of the prompt's tokens."""

    cached_tokens: Count = 0
    cache_write_tokens: Count = 0


class OutputDetails(msgspec.Struct, gc=False):
    """What is known of the reply's tokens."""

    reasoning_tokens: Count = 0


class _Counts(_Usage, gc=False):
    prompt_tokens_details: InputDetails | None = None
    completion_tokens_details: OutputDetails | None = None


class ChatReply(_Reply, gc=False, frozen=True):
    """A whole reply with all its counts. No client needs them: with odd details it is regular, and read in full."""

    usage: _Counts | None = None


_R = TypeVar("_R", bound=_Reply)
#: Tells whether a body is a reply at all, regular or not.
chat_outline = msgspec.json.Decoder(_Outline)
_regular = msgspec.json.Decoder(_Reply)
_reply = msgspec.json.Decoder(ChatReply)


def is_regular(body: bytes) -> bool:
    """Tell whether a whole reply is written as the wire says."""
    reply = read(_regular, body)
    return _sound(reply, body) is not None


def read_reply(body: bytes) -> ChatReply | None:
    """Read a whole reply that is written as the wire says; None for any other."""
    reply = read(_reply, body)
    return _sound(reply, body)


def _sound(reply: _R | None, body: bytes) -> _R | None:
    """Return a reply in which no id stands for two calls, and every byte is text."""
    if reply is not None:
        for choice in reply.choices:
            calls = choice.message.tool_calls
            if calls and len(calls) > 1 and len({call.id for call in calls}) != len(calls):
                return None
    return reply if is_utf8(body) else None


# --- streams --------------------------------------------------------------------------------------------------------


class CallPiece(msgspec.Struct, gc=False):
    """What a delta adds to a call."""

    name: str | None = None
    arguments: str | None = None
    input: str | None = None


class CallDelta(msgspec.Struct, gc=False):
    """A fragment of a call; only a repaired one has no index."""

    index: Count | None
    id: str | None = None
    type: str | None = None
    function: CallPiece | None = None
    custom: CallPiece | None = None
    extra_content: Any = None


class ChatDelta(_Said, gc=False):
    """What a chunk adds to the message."""

    role: str | None = None
    tool_calls: list[CallDelta] | None = None


class ChoiceDelta(msgspec.Struct, gc=False):
    """One choice of a chunk."""

    index: Count
    delta: ChatDelta
    finish_reason: Given | None = None
    logprobs: Anything | None = None


class ChatChunk(msgspec.Struct, gc=False):
    """One event of a stream."""

    choices: list[ChoiceDelta]
    id: str = ""
    # Azure's first chunk, with nothing but filter results, has an empty one; the SDK's helper skips any other.
    object: Literal["chat.completion.chunk", ""] = ""
    created: int | float | None = None
    model: str | None = None
    usage: _Usage | None = None
    error: None = None


class _TextDelta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    content: str
    role: str | None = None


class _TextChoice(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    delta: _TextDelta
    index: Literal[0]
    finish_reason: None = None
    logprobs: None = None


class _TextChunk(msgspec.Struct, gc=False):
    """A chunk of nothing but text, by far the most common one; whether it is regular depends on its head."""

    choices: tuple[_TextChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: None = None
    error: None = None


class _Error(msgspec.Struct, gc=False):
    message: Given
    type: str | None = None
    code: str | int | None = None


class _Counted(msgspec.Struct, gc=False):
    usage: msgspec.Raw


class _Failure(msgspec.Struct, gc=False):
    error: _Error


_chunk = msgspec.json.Decoder(ChatChunk)
_text = msgspec.json.Decoder(_TextChunk)
_texts = msgspec.json.Decoder(list[_TextChunk])
_counted = msgspec.json.Decoder(_Counted)
_failure = msgspec.json.Decoder(_Failure)


def read_chunk(data: bytes) -> ChatChunk | None:
    """Read an event's data that is written as the wire says; None for any other."""
    chunk = read(_chunk, data)
    return chunk if chunk is not None and (data.isascii() or is_utf8(data)) else None


def read_text(data: bytes | memoryview) -> str | None:
    """Return the text of a chunk of nothing but text, whatever the bytes of its head are; None for any other."""
    chunk = read(_text, data)
    return None if chunk is None else chunk.choices[0].delta.content


def read_texts(run: list[bytes]) -> str | None:
    """Return what a run of such chunks says together; None if there is any other in it."""
    chunks = read(_texts, b"[%b]" % b",".join(run))
    if chunks is None or len(chunks) != len(run):
        return None  # events that are JSON only when joined are not these
    return "".join([chunk.choices[0].delta.content for chunk in chunks])


def usage_of(data: bytes) -> JsonObject | None:
    """Return all that a chunk says of its tokens; None where it says nothing. The rest of the chunk is only skipped."""
    counted = read(_counted, data)
    return None if counted is None else maybe_object(decode_json(counted.usage))


def is_failure(data: bytes) -> bool:
    """Tell whether an event is an error that a client can read."""
    failure = read(_failure, data)
    return failure is not None and bool(failure.error.type or failure.error.code)
