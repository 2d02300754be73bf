"""Messages joined into the turns a wire with strict alternation or whole assistant messages needs.

Canonical messages may be finer than a wire's (each Responses item is one) or mixed (a Messages user turn with tool
results). `turns` joins neighbours of one side; order is kept, nothing is dropped.
"""

from collections.abc import Iterable

import msgspec

from mustcall.core.message import Message, Role
from mustcall.core.parts import Audio, File, Image, Part, Text, ToolReference, ToolResult, Unknown

__all__ = ["ResultText", "Turn", "result_text", "turns"]


class Turn(msgspec.Struct):
    """Neighbouring messages of one side: `user` also stands for tool results."""

    role: Role
    messages: list[Message]

    @property
    def parts(self) -> list[Part]:
        """All parts of the turn, in order."""
        return [part for message in self.messages for part in message.parts]


def turns(messages: Iterable[Message]) -> list[Turn]:
    """Join neighbours: assistant with assistant, user and tool with each other, system and developer each alone."""
    joined: list[Turn] = []
    for message in messages:
        side = Role.USER if message.role is Role.TOOL else message.role
        if joined and joined[-1].role is side and side in (Role.USER, Role.ASSISTANT):
            joined[-1].messages.append(message)
        else:
            joined.append(Turn(side, [message]))
    return joined


class ResultText(msgspec.Struct, frozen=True):
    """A tool result for a wire whose results are text: the text, and the media that must travel beside it."""

    text: str
    media: tuple[Image | File | Audio, ...]


def result_text(result: ToolResult) -> ResultText:
    """Write a tool result as text; an error says so, a reference to a deferred tool becomes a sentence."""
    lines: list[str] = []
    media: list[Image | File | Audio] = []
    for item in result.content:
        match item:
            case Text(text=text):
                lines.append(text)
            case ToolReference(name=name):
                lines.append(f"The tool {name} is now available.")
            case File(text=str() as text):
                lines.append(text)
            case Image() | File() | Audio():
                media.append(item)
            case Unknown(value=value):
                lines.append(msgspec.json.encode(value).decode())
    text = "\n".join(lines)
    if result.is_error and not text[:5].lower().startswith("error"):
        text = f"Error: {text}" if text else "Error"
    return ResultText(text, tuple(media))
