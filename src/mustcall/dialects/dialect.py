"""What a dialect is: a name, the markers that open it, a parser for what follows, and how to write a call in it.

Data only. The scanner reads `openers` and `closers`; `render` and `result` serve the prompt protocol.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from mustcall.dialects.reading.reader import Parse
from mustcall.dialects.reading.span import Span
from mustcall.dialects.reasoning import Anchor

__all__ = ["A_NAME", "TOOL", "Anchor", "Dialect", "Opener", "Parser", "Renderer", "Standing", "WrittenCall"]

A_NAME = "\0"
"""In `Opener.starts`: a name; text behind it must follow the name."""

TOOL = "\1"
"""In `Opener.marker`: any offered tool's name. Such an opener exists only where tools were given."""

Parser = Callable[[Span], Parse[None]]


class WrittenCall(msgspec.Struct, frozen=True):
    """A call to be written: the tool's name and its arguments."""

    name: str
    arguments: dict[str, Any]


Renderer = Callable[[Sequence[WrittenCall]], str]


class Standing(StrEnum):
    """When a dialect is active: in `auto`; in `auto` where loose formats are allowed; or only when named.

    `REPLY` is both: where loose formats are not allowed, a call counts if it is the reply (rule 63).
    """

    AUTO = "auto"
    REPLY = "reply"
    LOOSE = "loose"
    NAMED = "named"


class Opener(msgspec.Struct, frozen=True):
    """A marker, where it counts, what may follow it (blanks aside), and the parser of what does.

    No `starts` means anything may follow. `soft` markers are ordinary text until the parser is certain. What follows
    an `alone` marker is a call only if it is the reply: nothing but blanks around it, or a short lead-in (rule 63).
    """

    marker: str
    body: Parser
    starts: tuple[str, ...] = ()
    anchor: Anchor = Anchor.ANYWHERE
    soft: bool = False
    alone: bool = False


class Dialect(msgspec.Struct, frozen=True):
    """A way to write tool calls as text. `result` shows a tool's result; it has `{name}` and `{content}` in it."""

    name: str
    family: str
    models: str
    openers: tuple[Opener, ...]
    closers: tuple[str, ...]
    render: Renderer
    standing: Standing = Standing.AUTO
    result: str = "<tool_response>\n{content}\n</tool_response>"
