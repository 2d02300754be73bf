"""The parts of a reply as they come out of a scan: where the characters of a text went, and what each part is."""

from collections.abc import Callable, Sequence
from enum import Enum

from mustcall.core.parts import Part, Reasoning, Text, ToolCall
from mustcall.core.reply import Reply
from mustcall.dialects import CallEnd, Malformed, ScanEvent, ScannedText, Scanner

__all__ = ["Slot", "SlotKind", "TextScan", "start_of", "without", "written"]


class SlotKind(Enum):
    """What a part is that comes out."""

    TEXT = "text"
    REASONING = "reasoning"
    CALL = "call"
    OTHER = "other"
    DROPPED = "dropped"  # a call before the demanded one, or in what turned out to be reasoning


class Slot:
    """One part as it comes out."""

    __slots__ = ("call", "fragments", "kind", "source")

    def __init__(self, kind: SlotKind, source: int) -> None:
        self.kind = kind
        self.source = source
        self.fragments: list[str] = []
        self.call: CallEnd | None = None


class TextScan:
    """One text part as it goes in: its scanner, and the slot its characters go to."""

    __slots__ = ("after_markup", "fed", "held", "part", "place", "scanner", "started")

    def __init__(self, part: Text, place: int, scanner: Scanner) -> None:
        self.part = part
        self.place = place
        self.scanner = scanner
        self.started = False
        self.after_markup = False
        #: Characters that went in, and those of them that have not come out.
        self.fed = 0
        self.held = 0


def written(slots: Sequence[Slot], reply: Reply, make_id: Callable[[int], str]) -> list[Part]:
    """Return what each slot holds, calls in text as calls under ids of ours."""
    parts: list[Part] = []
    numbered = 0
    for slot in slots:
        text = "".join(slot.fragments)
        source = reply.parts[slot.source]
        match slot.kind:
            case SlotKind.OTHER | SlotKind.DROPPED:
                parts.append(source)
            case SlotKind.CALL:
                assert slot.call is not None, "a call slot has its call"
                name, arguments = slot.call.name, slot.call.arguments
                parts.append(ToolCall(id=make_id(numbered), name=name, arguments_json=arguments))
                numbered += 1
            case SlotKind.REASONING:
                parts.append(Reasoning(text=text))
            case SlotKind.TEXT:
                parts.append(source.evolve(text=text) if isinstance(source, Text) else source)
    return parts


def without(parts: list[Part], slots: list[Slot], *kinds: SlotKind) -> tuple[Part, ...]:
    """Return the parts whose slots are of no such kind, without the empty text that a call at the end leaves."""
    kept: list[Part] = []
    called = False
    for part, slot in zip(parts, slots, strict=True):
        called = called or slot.kind is SlotKind.CALL
        left_over = called and slot.kind is SlotKind.TEXT and not slot.fragments
        if slot.kind not in kinds and not left_over:
            kept.append(part)
    return tuple(kept)


def start_of(found: list[ScanEvent], number: int) -> int:
    """Return where the span of a sign begins: a malformed one is reported behind the text it is made of."""
    event = found[number]
    if isinstance(event, Malformed):
        left = len(event.raw)
        while left > 0 and number:
            before = found[number - 1]
            if not isinstance(before, ScannedText):
                break
            number -= 1
            left -= len(before.text)
    return number
