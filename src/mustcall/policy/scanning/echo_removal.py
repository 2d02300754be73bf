"""Replies without echoes of ours (`policy.scanning.echoes`): whole ones, and as they stream."""

from mustcall.core.parts import Part, Text
from mustcall.core.reply import Reply
from mustcall.core.streams.events import Event, PartEnded, PartStarted, PartTextDelta
from mustcall.policy.scanning.echoes import EchoEraser, Echoes, erase
from mustcall.policy.scanning.reply_scanner import ReplyScanner, ScanFindings, ScanTargets

__all__ = ["EchoFreeScanner", "cleared"]


def cleared(reply: Reply, echoes: Echoes) -> Reply:
    """Return a reply without echoes in its texts; the same object if there are none."""
    if not echoes:
        return reply
    parts: list[Part] = []
    changed = False
    for part in reply.parts:
        if isinstance(part, Text) and (text := erase(part.text, echoes)) is not part.text:
            changed = True
            parts.append(part.evolve(text=text))
        else:
            parts.append(part)
    return reply.evolve(parts=tuple(parts)) if changed else reply


class EchoFreeScanner(ReplyScanner):
    """A lens that sees, and shows, a reply's text without echoes. The reply that it is asked about must be cleared."""

    __slots__ = ("_echoes", "_erasers")

    def __init__(self, lookout: ScanTargets | None, token: str, echoes: Echoes) -> None:
        super().__init__(lookout, token)
        self._echoes = echoes
        self._erasers: dict[int, EchoEraser] = {}

    @property
    def pending(self) -> bool:
        """Whether something went in that has not come out."""
        return super().pending or any(eraser.holds for eraser in self._erasers.values())

    def feed(self, event: Event) -> list[Event]:
        """Take one event and return what may be shown."""
        match event:
            case PartTextDelta(index=index, text=text) if (eraser := self._erasers.get(index)) is not None:
                shown = self._erased(eraser, text)
                return super().feed(event if shown is text else PartTextDelta(index, shown)) if shown else []
            case PartStarted(index=index, part=Text(text=text) as part) if self._echoes:
                eraser = self._erasers[index] = EchoEraser(self._echoes)
                shown = self._erased(eraser, text)
                return super().feed(event if shown is text else PartStarted(index, part.evolve(text=shown)))
            case PartEnded(index=index, part=part) if (eraser := self._erasers.pop(index, None)) is not None:
                return self._end_text(eraser, event, part)
            case _:
                return super().feed(event)

    def fresh(self) -> "EchoFreeScanner":
        """Return a lens that has seen nothing yet."""
        return EchoFreeScanner(self._lookout, self._token, self._echoes)

    def found(self, reply: Reply) -> ScanFindings:
        """Return what was found in a reply whose events were fed."""
        return ScanFindings() if self._lookout is None else super().found(reply)

    def _end_text(self, eraser: EchoEraser, event: PartEnded, final: Part | None) -> list[Event]:
        """End a text: what waited comes out, and what the final word has beyond the deltas."""
        beyond = final.text[eraser.fed :] if isinstance(final, Text) else ""
        rest = (self._erased(eraser, beyond) if beyond else "") + eraser.close()
        self.touched = self.touched or eraser.erased
        out = super().feed(PartTextDelta(event.index, rest)) if rest else []
        return [*out, *super().feed(PartEnded(event.index) if eraser.erased else event)]

    def _erased(self, eraser: EchoEraser, text: str) -> str:
        shown = eraser.feed(text) if text else text
        self.touched = self.touched or eraser.erased
        return shown
