"""A tool's output as the model sees it: text, cut to a length, wrapped as data that is not to be obeyed (rule 92).

The wrapper is a pair of tags. Whatever in the output looks like one of them, in any case and with invisible characters
in between, loses its `<`, so that only our own tag ends the data. The same output is always the same text.

Cost: linear in the output that is kept.
"""

import re
from typing import Any

import msgspec

from mustcall.core.parts import Audio, File, Image, Text
from mustcall.engine.tooling.definition import ToolReturn
from mustcall.policy.echoes import TAG

__all__ = ["Output", "as_line", "cut", "neutralised", "read_output", "wrapped"]

#: Characters that show nothing; a tag with some of them in it still reads as the tag.
_INVISIBLE = (
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]*"
)
_LOOKALIKE = re.compile(
    "<(?=" + r"[^\w<>]*" + _INVISIBLE.join("untrusted") + r"[^a-zA-Z<>]*" + _INVISIBLE.join("data") + ")", re.IGNORECASE
)
_LONGEST_LINE = 300

Media = Image | File | Audio


class Output(msgspec.Struct, frozen=True):
    """What a tool gave: its text, whole, and what is not text."""

    text: str
    media: tuple[Media, ...] = ()
    is_error: bool = False


def read_output(value: Any) -> Output:
    """Read what a tool returned. Text stays; what JSON can say is JSON; anything else is what `str` makes of it."""
    match value:
        case str():
            return Output(value)
        case None:
            return Output("(no output)")
        case ToolReturn():
            texts = [part.text for part in value.content if isinstance(part, Text)]
            media = tuple(part for part in value.content if not isinstance(part, Text))
            return Output("\n".join(texts) or ("" if media else "(no output)"), media, value.is_error)
        case Text():
            return Output(value.text)
        case Image() | File() | Audio():
            return Output("", (value,))
        case bytes() | bytearray():
            return Output(f"({len(value)} bytes of binary data)")
        case _:
            return Output(_written(value))


def _written(value: Any) -> str:
    dump = getattr(value, "model_dump_json", None)
    if callable(dump) and not isinstance(value, type):
        return str(dump())
    try:
        return msgspec.json.encode(value, enc_hook=_plain).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return str(value)


def _plain(value: Any) -> Any:
    """Return what JSON can say of an object inside an output."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)


def cut(text: str, cap: int) -> str:
    """Return the text, or its beginning and a mark that says how much there was."""
    if len(text) <= cap:
        return text
    return f"{text[:cap]}\n[cut: the first {cap} of {len(text)} characters]"


def wrapped(tool: str, text: str) -> str:
    """Return an output's text between the tags that mark it as data."""
    name = re.sub(r"[^\w.:/-]", "_", tool)
    return f'<{TAG} from="{name}">\n{neutralised(text)}\n</{TAG}>'


def neutralised(text: str) -> str:
    """Return a text that holds neither of the wrapper's tags."""
    return _LOOKALIKE.sub("&lt;", text)


def as_line(text: str) -> str:
    """Return a text as one short line (rule 110)."""
    line = neutralised(" ".join(text[: 4 * _LONGEST_LINE].split()))
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"
