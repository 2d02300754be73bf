"""The words of a chunk's delta in both directions: read as the wire has them or as odd servers write them, and written.

Beside the grammar (`shape`), no other module of the stream's codec names the fields that hold text.
"""

from collections.abc import Iterator
from typing import Any

from mustcall.core.origin import JsonObject
from mustcall.core.parts import Reasoning, Refusal, Text
from mustcall.wire.chat.parts import thinking_text
from mustcall.wire.chat.shape import ChatDelta
from mustcall.wire.reading import ShapeError, as_list, maybe_object, opt_list, opt_str

__all__ = ["BEGIN", "FIRST", "Spoken", "odd_words_in", "words_in"]

#: What a delta can hold text of.
Spoken = type[Text | Refusal | Reasoning]

#: The delta that begins a reply.
FIRST: JsonObject = {"role": "assistant", "content": ""}
#: How a delta of nothing but text begins: the text itself follows, and a brace.
BEGIN: dict[Spoken, bytes] = {Text: b'{"content":', Refusal: b'{"refusal":', Reasoning: b'{"reasoning_content":'}


def words_in(delta: ChatDelta) -> list[tuple[Spoken, str, str]]:
    """Return what a delta says, in its order: what each text is of, the name of its field, and the text."""
    said: list[tuple[Spoken, str, str]] = []
    if delta.reasoning_content:
        said.append((Reasoning, "reasoning_content", delta.reasoning_content))
    elif delta.reasoning:
        said.append((Reasoning, "reasoning", delta.reasoning))
    if delta.content:
        said.append((Text, "content", delta.content))
    if delta.refusal:
        said.append((Refusal, "refusal", delta.refusal))
    return said


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
