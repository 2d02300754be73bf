"""A whole reply read only for what it means, which is all that judging it, or telling it on another wire, needs.

Strict: what is skimmed is regular (`wire.regularity`), and means what the codec reads in it; a reply with anything
unusual is left to the codec. A skimmed reply has no exact form and nothing that only its own wire has a word for, so
it may be judged, counted and told on another wire, but never written on its own: where anything has to change there,
the codec reads it in full.

Cost: one typed decode, in C.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from mustcall.core.origin import Wire
from mustcall.core.parts import Part, Text, ToolCall
from mustcall.core.reply import Reply, Usage, derive_finish
from mustcall.wire.chat.reply import regular_reply
from mustcall.wire.messages.reply import finish_reason
from mustcall.wire.reading import Count, Given, is_utf8, read
from mustcall.wire.responses import reply as responses

__all__ = ["skim"]


def skim(wire: Wire, body: bytes, issuer: str = "", crosses: bool = False) -> Reply | None:
    """Return what a strictly regular reply means, on Messages one of nothing but text and calls."""
    return _READERS[wire](body, issuer, crosses)


# --- messages -------------------------------------------------------------------------------------------------------


class _TextBlock(msgspec.Struct, gc=False, tag="text"):
    text: str
    citations: None = None


class _ToolUse(msgspec.Struct, gc=False, tag="tool_use"):
    id: Given
    name: Given
    input: dict[str, Any]


class _Thought(msgspec.Struct, gc=False):
    thinking_tokens: Count = 0


class _Counts(msgspec.Struct, gc=False):
    input_tokens: Count
    output_tokens: Count
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    output_tokens_details: _Thought | None = None


class _Reply(msgspec.Struct, gc=False):
    id: Given
    type: Literal["message"]
    role: Literal["assistant"]
    content: tuple[_TextBlock | _ToolUse, ...]
    usage: _Counts
    model: str = ""
    stop_reason: Given | None = None
    stop_sequence: str | None = None


_reply = msgspec.json.Decoder(_Reply)


def _skim_messages(body: bytes, *_: object) -> Reply | None:
    value = read(_reply, body)
    if value is None or not is_utf8(body):
        return None
    parts: list[Part] = []
    ids: set[str] = set()
    for block in value.content:
        if isinstance(block, _TextBlock):
            parts.append(Text(text=block.text))
            continue
        if block.id in ids:
            return None
        ids.add(block.id)
        parts.append(ToolCall(id=block.id, name=block.name, arguments_json=msgspec.json.encode(block.input).decode()))
    counts = value.usage
    cached, written_anew = counts.cache_read_input_tokens or 0, counts.cache_creation_input_tokens or 0
    thought = counts.output_tokens_details
    return Reply(
        id=value.id,
        model=value.model,
        parts=tuple(parts),
        finish=derive_finish(finish_reason(value.stop_reason), parts),
        reported_finish=value.stop_reason,
        stop_sequence=value.stop_sequence,
        usage=Usage(
            input_tokens=counts.input_tokens + cached + written_anew,
            output_tokens=counts.output_tokens,
            cached_tokens=cached,
            cache_write_tokens=written_anew,
            reasoning_tokens=thought.thinking_tokens if thought is not None else 0,
        ),
    )


_READERS: dict[Wire, Callable[[bytes, str, bool], Reply | None]] = {
    Wire.CHAT: regular_reply,
    Wire.MESSAGES: _skim_messages,
    Wire.RESPONSES: responses.regular_reply,
}
