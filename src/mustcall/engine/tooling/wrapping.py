"""A tool's output as the model sees it: text, cut to a length, wrapped as data that is not to be obeyed (rule 92).

The wrapper is a pair of tags that carry a digest of what is between them: no output can write its own digest, so none
ends its wrapper, whatever a model takes for a tag. What looks like one of the tags, or like a control token of a chat
template, is made harmless besides (`policy.history.containment`), and the opening tag says how many signs were changed.
The same output is always the same text.

Cost: linear in the output that is kept.
"""

import hashlib
import re
from typing import Any, cast

import msgspec

from mustcall.core.errors import ToolError
from mustcall.core.parts import Audio, File, Image, Text
from mustcall.engine.tooling.definition import ToolReturn
from mustcall.policy.facts.wording import Wording, fill
from mustcall.policy.history.containment import TAG, contained

__all__ = ["Output", "as_line", "cut", "read_output", "wrapped"]

_LONGEST_LINE = 300
_WORDING = Wording()

Media = Image | File | Audio


class Output(msgspec.Struct, frozen=True):
    """What a tool gave: its text, whole, and what is not text."""

    text: str
    media: tuple[Media, ...] = ()
    is_error: bool = False


def read_output(value: Any) -> Output:
    """Read what a tool returned. Text stays; what JSON can say is JSON; anything else is what `str` makes of it.

    Parts, alone or in a list, are sent as such. Raise `ToolError` for a `ToolReturn` of anything else.
    """
    match value:
        case str():
            return Output(value)
        case None:
            return Output("(no output)")
        case ToolReturn():
            if not _are_parts(value.content):
                raise ToolError("it gave a ToolReturn whose content is no tuple of parts (Text, Image, File, Audio)")
            texts = [part.text for part in value.content if isinstance(part, Text)]
            media = tuple(part for part in value.content if not isinstance(part, Text))
            return Output("\n".join(texts) or ("" if media else "(no output)"), media, value.is_error)
        case list() | tuple() if value and _are_parts(cast("Any", value)):
            return read_output(ToolReturn(tuple(cast("Any", value))))
        case Text():
            return Output(value.text)
        case Image() | File() | Audio():
            return Output("", (value,))
        case bytes() | bytearray():
            return Output(f"({len(value)} bytes of binary data)")
        case _:
            return Output(_written(value))


def _are_parts(content: Any) -> bool:
    return isinstance(content, (tuple, list)) and all(
        isinstance(part, Text | Image | File | Audio) for part in cast("list[Any]", content)
    )


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


def cut(text: str, cap: int, wording: Wording = _WORDING) -> str:
    """Return the text, or its beginning and a mark that says how much there was."""
    if len(text) <= cap:
        return text
    return f"{text[:cap]}\n{fill(wording.result_cut, shown=str(cap), whole=str(len(text)))}"


def wrapped(tool: str, text: str) -> str:
    """Return an output's text between the tags that mark it as data."""
    name = re.sub(r"[^\w.:/-]", "_", tool)
    held = contained(text)
    digest = hashlib.sha256(_sent(f"{name}\0{held.text}")).hexdigest()[:16]
    note = f' escaped="{held.escaped}"' if held.escaped else ""
    return f'<{TAG} from="{name}" id="{digest}"{note}>\n{held.text}\n</{TAG} id="{digest}">'


def _sent(text: str) -> bytes:
    """Return a text's bytes as they are sent, halves of characters replaced."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def as_line(text: str) -> str:
    """Return a text as one short line (rule 110)."""
    line = contained(" ".join(text[: 4 * _LONGEST_LINE].split())).text
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"
