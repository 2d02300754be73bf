"""Responses replies and stream events as the wire writes them: the only grammar of both.

What fits is regular: every client reads in it what we read, so its bytes may be forwarded, in a stream if its events
are in order, too (`repairs.ResponseOrder`). What does not fit is read with `repairs`, and written anew. Strict means
what a client needs: unknown fields, events, items and contents always fit, as long as they have a type.

Cost: one typed decode, in C. What is also kept as it came is parsed as an object, and that is fitted to its type.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.wire.chat.shape import InputDetails, OutputDetails
from mustcall.wire.reading import Count, Given, is_utf8, read
from mustcall.wire.sse import SseEvent

__all__ = [
    "ANNOUNCEMENTS",
    "ENDS",
    "ITEM_EVENTS",
    "PART_EVENTS",
    "SPOKEN",
    "TEXTS",
    "CallItem",
    "CustomCallItem",
    "ErrorEvent",
    "FailedEvent",
    "FunctionCallItem",
    "IncompleteDetails",
    "ItemEvent",
    "LifecycleEvent",
    "MessageItem",
    "OutputItem",
    "PartEvent",
    "ReasoningItem",
    "ResponsesBody",
    "ResponsesEvent",
    "ResponsesReply",
    "SummaryPartEvent",
    "TextEvent",
    "TextField",
    "are_distinct",
    "fit_content",
    "fit_item",
    "is_counted",
    "is_ended",
    "is_regular",
    "read_event",
    "read_reply",
    "read_text",
    "responses_outline",
    "speaks",
    "words_of",
]

_T = TypeVar("_T")


# --- items ----------------------------------------------------------------------------------------------------------


class _Content(msgspec.Struct, gc=False):
    """A content part: text and refusal have their words under their own names, others what they like."""

    type: Given
    text: Any = msgspec.UNSET
    refusal: Any = msgspec.UNSET


class _Words(msgspec.Struct, gc=False):
    type: Given
    text: str


class _Item(msgspec.Struct, gc=False, kw_only=True):
    #: Events have numbers, items have none: one that is no number is not trusted.
    sequence_number: Count | None = None


class MessageItem(_Item, gc=False, kw_only=True, tag_field="type", tag="message"):
    """A message."""

    id: Given
    content: list[_Content]
    role: Literal["assistant"] = "assistant"


class ReasoningItem(_Item, gc=False, kw_only=True, tag_field="type", tag="reasoning"):
    """Reasoning."""

    id: Given
    summary: list[_Words]
    content: list[_Words] | None = None
    encrypted_content: str | None = None


class CallItem(_Item, gc=False, kw_only=True):
    """A call; what the tool is given is called `arguments` for a function and `input` for a custom tool."""

    call_id: Given
    name: Given
    given: str
    id: Given | None = None
    status: str | None = None
    namespace: str | None = None


class FunctionCallItem(
    CallItem, gc=False, kw_only=True, tag_field="type", tag="function_call", rename={"given": "arguments"}
):
    """A call of a function."""

    given: str


class CustomCallItem(
    CallItem, gc=False, kw_only=True, tag_field="type", tag="custom_tool_call", rename={"given": "input"}
):
    """A call of a custom tool."""

    given: str


class _OtherItem(_Item, gc=False, kw_only=True):
    type: Given
    id: str | None = None


OutputItem = MessageItem | ReasoningItem | CallItem | _OtherItem
_ITEMS: dict[object, type[OutputItem]] = {
    "message": MessageItem,
    "reasoning": ReasoningItem,
    "function_call": FunctionCallItem,
    "custom_tool_call": CustomCallItem,
}


def _fit(fields: JsonObject, shape: type[_T]) -> _T | None:
    try:
        return msgspec.convert(fields, shape)
    except msgspec.ValidationError:
        return None


def fit_item(fields: JsonObject) -> OutputItem | None:
    """Return what an item is, None if it is not what its type says."""
    kind = fields.get("type")
    item = _fit(fields, _ITEMS.get(kind, _OtherItem) if isinstance(kind, str) else _OtherItem)
    return None if isinstance(item, MessageItem) and not all(map(_is_content, item.content)) else item


def fit_content(fields: JsonObject) -> _Content | None:
    """Return what a content part is, None if it has not what its type says."""
    part = _fit(fields, _Content)
    return part if part is not None and _is_content(part) else None


def _is_content(part: _Content) -> bool:
    kind = part.type
    return isinstance(part.text if kind == "output_text" else part.refusal if kind == "refusal" else "", str)


def words_of(part: _Content) -> object:
    """Return what a content says."""
    return part.refusal if part.type == "refusal" else part.text


def speaks(part: _Content) -> bool:
    """Tell whether a content has words."""
    return words_of(part) not in (msgspec.UNSET, "")


def are_distinct(items: Sequence[OutputItem]) -> bool:
    """Tell whether no id stands for two things."""
    ids: list[str] = []
    for item in items:
        if item.id:
            ids.append(item.id)
        if isinstance(item, CallItem):
            ids.append(item.call_id)
    return len(set(ids)) == len(ids)


# --- responses ------------------------------------------------------------------------------------------------------


class _Usage(msgspec.Struct, gc=False):
    input_tokens: Count
    output_tokens: Count
    total_tokens: Count


class _Counts(_Usage, gc=False):
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None


class IncompleteDetails(msgspec.Struct, gc=False):
    """Why a response is incomplete."""

    reason: Given


class _Head(msgspec.Struct, gc=False, kw_only=True):
    id: Given
    object: Literal["response"]
    status: Literal["completed", "incomplete", "in_progress", "queued"]
    incomplete_details: IncompleteDetails | None = None
    error: None = None
    model: str | None = None
    created_at: int | float | None = None


class ResponsesBody(_Head, gc=False, kw_only=True):
    """A response that has ended, or is announced, with items and counts as they came."""

    output: list[JsonObject]
    usage: JsonObject | None = None


class ResponsesReply(_Head, gc=False, kw_only=True):
    """A whole reply of known items, with all its counts. One with other items is regular, and read in full."""

    output: list[MessageItem | ReasoningItem | FunctionCallItem | CustomCallItem]
    usage: _Counts | None = None


class _Outline(msgspec.Struct):
    output: list[msgspec.Raw]


#: Tells whether a body is a reply at all, regular or not.
responses_outline = msgspec.json.Decoder(_Outline)
_body = msgspec.json.Decoder(ResponsesBody)
_reply = msgspec.json.Decoder(ResponsesReply)


def is_regular(body: bytes) -> bool:
    """Tell whether a whole reply is written as the wire says."""
    value = read(_body, body)
    if value is None or not is_utf8(body) or not is_ended(value) or not is_counted(value):
        return False
    items = [item for item in map(fit_item, value.output) if item is not None]
    return len(items) == len(value.output) and are_distinct(items)


def read_reply(body: bytes) -> ResponsesReply | None:
    """Read a whole reply that is written as the wire says, if all its items are known; None for any other.

    Contents are told apart by their type, and so is what they have to have, by whoever reads them.
    """
    value = read(_reply, body)
    return value if value is not None and is_utf8(body) and is_ended(value) and are_distinct(value.output) else None


def is_ended(response: _Head) -> bool:
    """Tell whether a response says why it is incomplete, and only then."""
    return (response.status == "incomplete") == (response.incomplete_details is not None)


def is_counted(response: ResponsesBody) -> bool:
    """Tell whether a response says nothing of its tokens, or counts them all."""
    return response.usage is None or _fit(response.usage, _Usage) is not None


# --- streams --------------------------------------------------------------------------------------------------------


class ResponsesEvent(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """One event of a stream; in a repaired one any field but its type may be None."""

    type: Given
    sequence_number: Count | None = None
    # The OpenAI SDKs raise an error for any event that has one here.
    error: None = None


class LifecycleEvent(ResponsesEvent, gc=False, frozen=True, kw_only=True):
    """The response: announced, or all of it at its end."""

    response: ResponsesBody


class ItemEvent(ResponsesEvent, gc=False, frozen=True, kw_only=True):
    """An item: announced, or all of it at its end."""

    output_index: Count
    item: JsonObject


class _InItem(ResponsesEvent, gc=False, frozen=True, kw_only=True):
    item_id: str
    output_index: Count


class PartEvent(_InItem, gc=False, frozen=True, kw_only=True):
    """A content part: announced, or all of it at its end."""

    part: JsonObject
    content_index: Count


class SummaryPartEvent(_InItem, gc=False, frozen=True, kw_only=True):
    """A text of a summary: announced, or all of it at its end."""

    part: _Words
    summary_index: Count


class TextEvent(_InItem, gc=False, frozen=True, kw_only=True):
    """An event about a text: which of the fields has it is in `TEXTS`."""

    content_index: Count | None = None
    summary_index: Count | None = None
    delta: str | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    input: str | None = None


class _Problem(msgspec.Struct, gc=False):
    code: Given
    message: Given


class _FailedResponse(msgspec.Struct, gc=False):
    id: Given
    status: Literal["failed"]
    error: _Problem
    output: list[msgspec.Raw] = []


class FailedEvent(ResponsesEvent, gc=False, frozen=True, kw_only=True):
    """The response ended by an error."""

    response: _FailedResponse


class ErrorEvent(ResponsesEvent, gc=False, frozen=True, kw_only=True):
    """The stream ended by an error."""

    code: Given
    message: Given


class TextField(NamedTuple):
    """Where an event has its text: the kind of item, the field, the text's number there, and the kind of content."""

    owner: str
    field: str
    number: str = ""
    content: str = ""


#: Events about a text; the last word on one is in another field than `delta`.
TEXTS = {
    "response.output_text.delta": TextField("message", "delta", "content_index", "output_text"),
    "response.output_text.done": TextField("message", "text", "content_index", "output_text"),
    "response.refusal.delta": TextField("message", "delta", "content_index", "refusal"),
    "response.refusal.done": TextField("message", "refusal", "content_index", "refusal"),
    "response.reasoning_text.delta": TextField("reasoning", "delta", "content_index"),
    "response.reasoning_text.done": TextField("reasoning", "text", "content_index"),
    "response.reasoning_summary_text.delta": TextField("reasoning", "delta", "summary_index"),
    "response.reasoning_summary_text.done": TextField("reasoning", "text", "summary_index"),
    "response.function_call_arguments.delta": TextField("function_call", "delta"),
    "response.function_call_arguments.done": TextField("function_call", "arguments"),
    "response.custom_tool_call_input.delta": TextField("custom_tool_call", "delta"),
    "response.custom_tool_call_input.done": TextField("custom_tool_call", "input"),
}


#: Contents whose words come in deltas.
SPOKEN = frozenset({where.content for where in TEXTS.values() if where.content})
#: Events with the response, with an item or with a part of one: as they are announced, and at their end.
ANNOUNCEMENTS = frozenset({"response.created", "response.in_progress", "response.queued"})
ENDS = frozenset({"response.completed", "response.incomplete"})
ITEM_EVENTS = frozenset({"response.output_item.added", "response.output_item.done"})
PART_EVENTS = frozenset({"response.content_part.added", "response.content_part.done"})
_SUMMARY_EVENTS = frozenset({"response.reasoning_summary_part.added", "response.reasoning_summary_part.done"})


def _text_shape(where: TextField) -> type[msgspec.Struct]:
    """Return a text event in which the fields are required that its row names."""
    required: list[tuple[str, Any]] = [(where.field, str), *([(where.number, Count)] if where.number else [])]
    return msgspec.defstruct("TextEvent", required, bases=(TextEvent,), gc=False, frozen=True, kw_only=True)


_SHAPES: dict[str, msgspec.json.Decoder[Any]] = {
    **{kind: msgspec.json.Decoder(_text_shape(where)) for kind, where in TEXTS.items()},
    **dict.fromkeys(ANNOUNCEMENTS | ENDS, msgspec.json.Decoder(LifecycleEvent)),
    **dict.fromkeys(ITEM_EVENTS, msgspec.json.Decoder(ItemEvent)),
    **dict.fromkeys(PART_EVENTS, msgspec.json.Decoder(PartEvent)),
    **dict.fromkeys(_SUMMARY_EVENTS, msgspec.json.Decoder(SummaryPartEvent)),
    "response.failed": msgspec.json.Decoder(FailedEvent),
    "error": msgspec.json.Decoder(ErrorEvent),
}
_typed = msgspec.json.Decoder(ResponsesEvent)
_text = _SHAPES["response.output_text.delta"]


def read_event(event: SseEvent) -> ResponsesEvent | None:
    """Read an event that is written as the wire says, one of an unknown type by its head; None for any other."""
    kind, data = event.name, event.data
    if not kind:
        typed = read(_typed, data)
        if typed is None:
            return None
        kind = typed.type
    value: ResponsesEvent | None = read(_SHAPES.get(kind, _typed), data)
    return value if value is not None and value.type == kind and (data.isascii() or is_utf8(data)) else None


def read_text(data: memoryview) -> TextEvent | None:
    """Read a delta of a message's text, whatever the bytes of its other fields are; None for any other event."""
    delta: TextEvent | None = read(_text, data)
    return delta if delta is not None and delta.type == "response.output_text.delta" else None
