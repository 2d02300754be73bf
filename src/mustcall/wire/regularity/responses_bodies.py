"""A whole response as a server of the Responses wire must have written it: its items, their parts, and its end."""

from typing import Literal

import msgspec

from mustcall.wire.reading import Count, Given, is_utf8, read

__all__ = [
    "MESSAGE",
    "REASONING",
    "TYPED",
    "CustomCallItem",
    "FunctionCallItem",
    "MessageItem",
    "ReasoningItem",
    "ResponsesBody",
    "ResponsesContent",
    "ResponsesSummary",
    "identity_of",
    "input_of",
    "is_content",
    "is_ended",
    "is_regular_body",
    "read_item",
    "read_output",
    "speaks",
]


MESSAGE = "message"
REASONING = "reasoning"


class _Typed(msgspec.Struct, gc=False):
    type: Given
    sequence_number: Count | None = None


class ResponsesContent(msgspec.Struct, gc=False):
    """A content part: text and refusal have their words under their own names."""

    type: Given
    text: msgspec.Raw = msgspec.Raw()
    refusal: msgspec.Raw = msgspec.Raw()


class MessageItem(msgspec.Struct, gc=False):
    """A message."""

    id: Given
    content: list[ResponsesContent]
    role: Literal["assistant"] = "assistant"


class ResponsesSummary(msgspec.Struct, gc=False):
    """One text of a summary."""

    type: Given
    text: str


class ReasoningItem(msgspec.Struct, gc=False):
    """Reasoning."""

    id: Given
    summary: list[ResponsesSummary]
    content: list[ResponsesSummary] | None = None
    encrypted_content: str | None = None


class FunctionCallItem(msgspec.Struct, gc=False):
    """A call of a function."""

    call_id: Given
    name: Given
    arguments: str
    id: Given | None = None
    status: str | None = None


class CustomCallItem(msgspec.Struct, gc=False):
    """A call of a custom tool."""

    call_id: Given
    name: Given
    input: str
    id: Given | None = None
    status: str | None = None


class _Other(msgspec.Struct, gc=False):
    id: str | None = None


_AnyItem = MessageItem | ReasoningItem | FunctionCallItem | CustomCallItem | _Other

TYPED = msgspec.json.Decoder(_Typed)
_text = msgspec.json.Decoder(str)
_message = msgspec.json.Decoder(MessageItem)
_reasoning = msgspec.json.Decoder(ReasoningItem)
_function_call = msgspec.json.Decoder(FunctionCallItem)
_custom_call = msgspec.json.Decoder(CustomCallItem)
_other = msgspec.json.Decoder(_Other)


def read_item(data: msgspec.Raw) -> tuple[str, _AnyItem] | None:
    """Return an item's type and the item; None if it is not what its type says."""
    typed = read(TYPED, data)
    if typed is None:
        return None
    match typed.type:
        case "message":
            item: _AnyItem | None = read(_message, data)
            if isinstance(item, MessageItem) and not all(map(is_content, item.content)):
                return None
        case "reasoning":
            item = read(_reasoning, data)
        case "function_call":
            item = read(_function_call, data)
        case "custom_tool_call":
            item = read(_custom_call, data)
        case _:
            item = read(_other, data)
    return None if item is None else (typed.type, item)


def is_content(part: ResponsesContent) -> bool:
    """Tell whether a part has what its type says."""
    match part.type:
        case "output_text":
            return read(_text, part.text) is not None
        case "refusal":
            return read(_text, part.refusal) is not None
        case _:
            return True


def speaks(part: ResponsesContent) -> bool:
    """Tell whether a content has words."""
    return bytes(part.refusal if part.type == "refusal" else part.text) not in (b"", b'""')


def identity_of(kind: str, item: _AnyItem) -> tuple[str, str | None, str, str]:
    """Return what an item may not change: its kind, ids and name."""
    if isinstance(item, FunctionCallItem | CustomCallItem):
        return kind, item.id, item.call_id, item.name
    return kind, item.id, "", ""


class _Usage(msgspec.Struct, gc=False):
    input_tokens: Count
    output_tokens: Count
    total_tokens: Count


class _Details(msgspec.Struct, gc=False):
    reason: Given


class ResponsesBody(msgspec.Struct, gc=False):
    """A response that has ended, or is announced."""

    id: Given
    object: Literal["response"]
    status: Literal["completed", "incomplete", "in_progress", "queued"]
    output: list[msgspec.Raw]
    usage: _Usage | None = None
    incomplete_details: _Details | None = None
    error: None = None
    model: str | None = None
    created_at: int | float | None = None


_response = msgspec.json.Decoder(ResponsesBody)


def is_regular_body(body: bytes) -> bool:
    """Tell whether a whole reply is written as the wire says."""
    response = read(_response, body)
    return response is not None and is_utf8(body) and is_ended(response) and read_output(response) is not None


def is_ended(response: ResponsesBody) -> bool:
    """Tell whether a response says why it is incomplete, and only then."""
    return (response.status == "incomplete") == (response.incomplete_details is not None)


def read_output(response: ResponsesBody) -> list[tuple[str, _AnyItem]] | None:
    """Return the items of a response; None if one is not what its type says, or two have one id."""
    items = [item for item in map(read_item, response.output) if item is not None]
    ids = [item.call_id for _, item in items if isinstance(item, FunctionCallItem | CustomCallItem)]
    ids += [item.id for _, item in items if item.id]
    return items if len(items) == len(response.output) and len(set(ids)) == len(ids) else None


def input_of(item: _AnyItem) -> str | None:
    """Return what a call is given; None for what is no call."""
    match item:
        case FunctionCallItem(arguments=text) | CustomCallItem(input=text):
            return text
        case _:
            return None
