"""A whole reply read only for what it means, which is all that judging it, or telling it on another wire, needs.

Strict: what is skimmed is regular (`wire.regularity`), and means what the codec reads in it; a reply with anything
unusual is left to the codec. A skimmed reply has no exact form and nothing that only its own wire has a word for, so
it may be judged, counted and told on another wire, but never written on its own: where anything has to change there,
the codec reads it in full.

Cost: one typed decode, in C.
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from mustcall.core.origin import Wire
from mustcall.core.parts import Part, Text, ToolCall
from mustcall.core.reply import FinishReason, Reply, derive_finish
from mustcall.wire.chat.reply import detailed_usage, regular_reply
from mustcall.wire.chat.shape import InputDetails, OutputDetails
from mustcall.wire.messages.reply import regular_reply as messages_reply
from mustcall.wire.reading import Count, Given, is_utf8, read

__all__ = ["skim"]


def skim(wire: Wire, body: bytes, issuer: str = "", crosses: bool = False) -> Reply | None:
    """Return what a strictly regular reply means, on Responses one of nothing but text and calls."""
    return _READERS[wire](body, issuer, crosses)


# --- responses ------------------------------------------------------------------------------------------------------


class _OutputText(msgspec.Struct, gc=False):
    type: Literal["output_text"]
    text: str


class _OutputMessage(msgspec.Struct, gc=False, tag="message"):
    id: Given
    content: tuple[_OutputText, ...]
    role: Literal["assistant"] = "assistant"
    status: str | None = None
    phase: None = None


class _OutputCall(msgspec.Struct, gc=False, tag="function_call"):
    call_id: Given
    name: Given
    arguments: str
    id: Given | None = None
    status: str | None = None
    namespace: None = None


class _ResponsesUsage(msgspec.Struct, gc=False):
    input_tokens: Count
    output_tokens: Count
    total_tokens: Count
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None


class _Response(msgspec.Struct, gc=False):
    id: Given
    object: Literal["response"]
    status: Literal["completed"]
    output: tuple[_OutputMessage | _OutputCall, ...]
    usage: _ResponsesUsage | None = None
    incomplete_details: None = None
    error: None = None
    model: str = ""
    created_at: int | float | None = None


_response = msgspec.json.Decoder(_Response)


def _skim_responses(body: bytes, *_: object) -> Reply | None:
    value = read(_response, body)
    if value is None or not is_utf8(body):
        return None
    parts: list[Part] = []
    ids: list[str] = []
    for item in value.output:
        if item.id:
            ids.append(item.id)
        if isinstance(item, _OutputMessage):
            parts += [Text(text=part.text) for part in item.content]
            continue
        ids.append(item.call_id)
        parts.append(ToolCall(id=item.call_id, name=item.name, arguments_json=item.arguments, item_id=item.id))
    if len(set(ids)) != len(ids):
        return None
    counted = value.usage
    usage = None
    if counted is not None:
        given, made = counted.input_tokens_details, counted.output_tokens_details
        usage = detailed_usage(counted.input_tokens, counted.output_tokens, given, made)
    return Reply(
        id=value.id,
        model=value.model,
        parts=tuple(parts),
        finish=derive_finish(FinishReason.STOP, parts),
        reported_finish=value.status,
        usage=usage,
    )


_READERS: dict[Wire, Callable[[bytes, str, bool], Reply | None]] = {
    Wire.CHAT: regular_reply,
    Wire.MESSAGES: messages_reply,
    Wire.RESPONSES: _skim_responses,
}
