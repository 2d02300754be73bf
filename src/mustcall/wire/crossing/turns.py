"""Messages joined into the turns a wire with strict alternation or whole assistant messages needs.

Canonical messages may be finer than a wire's (each Responses item is one) or mixed (a Messages user turn with tool
results). `turns` joins neighbours of one side; order is kept, nothing is dropped.
"""

from collections.abc import Iterable

import msgspec

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.errors import UnsupportedFeature
from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.parts import Audio, File, Image, Part, ProviderItem, Text, ToolReference, ToolResult, Unknown

__all__ = ["MessageGroup", "ResultText", "drop_foreign_item", "is_billing_header", "result_text", "turns"]


class MessageGroup(msgspec.Struct):
    """Neighbouring messages of one side: `user` also stands for tool results."""

    role: Role
    messages: list[Message]


def is_billing_header(part: Part) -> bool:
    """Tell Claude Code's first system block: it means nothing to another provider and varies (wires.md 1.3)."""
    return isinstance(part, Text) and part.text.startswith("x-anthropic-billing-header:")


def drop_foreign_item(part: ProviderItem | Unknown, wire: Wire, log: AdaptationLog) -> None:
    """Note an item only its own wire can carry; refuse a reference to a call, without which its result is an orphan.

    The AI SDK refers to earlier items by id unless told `store: false` (observed: version 5 refers to calls too).
    """
    if part.type == "item_reference":
        referred = part.value.get("id")
        if isinstance(referred, str) and referred.startswith(("fc_", "ctc_")):
            raise UnsupportedFeature(
                f"the item reference {referred!r} points to state that is not kept for an upstream on the {wire} wire; "
                "send items whole (`store: false` makes clients do so)",
                param="input",
            )
    log.add(AdaptationKind.PART_DROPPED, part.type, f"no form on the {wire} wire")


def turns(messages: Iterable[Message]) -> list[MessageGroup]:
    """Join neighbours: assistant with assistant, user and tool with each other, system and developer each alone."""
    joined: list[MessageGroup] = []
    for message in messages:
        side = Role.USER if message.role is Role.TOOL else message.role
        if joined and joined[-1].role is side and side in (Role.USER, Role.ASSISTANT):
            joined[-1].messages.append(message)
        else:
            joined.append(MessageGroup(side, [message]))
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
