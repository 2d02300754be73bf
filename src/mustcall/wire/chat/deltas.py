"""The words of a chunk's delta in both directions: read as the wire has them or as odd servers write them, and written.

Beside the grammar (`shape`), no other module of the stream's codec names the fields that hold text.
"""

from collections.abc import Iterator
from typing import Any, Protocol

from mustcall.core.origin import JsonObject
from mustcall.core.parts import Reasoning, Refusal, Text
from mustcall.core.streams.events import Event, PartReasoningDelta, PartTextDelta
from mustcall.wire.chat.parts import thinking_text
from mustcall.wire.chat.shape import ChatDelta
from mustcall.wire.reading import ShapeError, as_list, maybe_object, opt_list, opt_str

__all__ = ["FIRST", "REFUSAL", "TEXT", "THOUGHT", "Spoken", "odd_words_in", "read_words", "says_words"]

#: What a delta can hold text of.
Spoken = type[Text | Refusal | Reasoning]

#: The delta that begins a reply.
FIRST: JsonObject = {"role": "assistant", "content": ""}
#: How a delta of nothing but text begins: the text itself follows, and a brace.
TEXT, REFUSAL, THOUGHT = b'{"content":', b'{"refusal":', b'{"reasoning_content":'


class Placing(Protocol):
    """Gives the index of the part that a text belongs to, and begins it if need be."""

    def __call__(self, kind: Spoken, out: list[Event], field: str = "", /) -> int:
        """Take what the text is of, and the field that held it where that may differ."""
        ...


def read_words(delta: ChatDelta, place: Placing, out: list[Event]) -> None:
    """Add what a delta says, in its order."""
    thinking = delta.reasoning_content or delta.reasoning
    if thinking:
        field = "reasoning_content" if delta.reasoning_content else "reasoning"
        out.append(PartReasoningDelta(place(Reasoning, out, field), thinking))
    if delta.content:
        out.append(PartTextDelta(place(Text, out), delta.content))
    if delta.refusal:
        out.append(PartTextDelta(place(Refusal, out), delta.refusal))


def says_words(delta: ChatDelta) -> bool:
    """Tell whether a delta says anything."""
    return bool(delta.content or delta.refusal or delta.reasoning or delta.reasoning_content)


def odd_words_in(delta: JsonObject) -> Iterator[ChatDelta]:
    """Yield what a delta of another shape says, as deltas that fit; raise `ShapeError` at what cannot be read."""
    thinking = opt_str(delta, "reasoning_content")
    yield ChatDelta(reasoning_content=thinking) if thinking else ChatDelta(reasoning=opt_str(delta, "reasoning"))
    details = opt_list(delta, "reasoning_details")
    if details:
        yield ChatDelta(reasoning_details=details)
    content = delta.get("content")
    if isinstance(content, list):
        for part in as_list(content):
            yield _content(part)
    elif content is not None and not isinstance(content, str):
        raise ShapeError("a string", content, "content")
    elif content:
        yield ChatDelta(content=content)
    refusal = opt_str(delta, "refusal")
    if refusal:
        yield ChatDelta(refusal=refusal)


def _content(value: Any) -> ChatDelta:
    """Read a content part: text, or thinking as Mistral streams it; others have no place in a reply's text."""
    part = maybe_object(value) or {}
    thinking = thinking_text(part)
    return ChatDelta(content=opt_str(part, "text")) if thinking is None else ChatDelta(reasoning_content=thinking)
