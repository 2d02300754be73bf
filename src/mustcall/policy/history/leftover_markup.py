"""Leftover call markup in the assistant's earlier texts, taken out before they are sent again (rules 102, 122).

One leaked call in the history makes a model leak again. Only complete calls of tools that are on offer, or that the
history called before that text, are taken out, and only from the assistant's own text: code, quotations, and whatever
the user, a tool or the system wrote stay as they are. A text without a call comes back as the same object.

Cost: most texts fail two cheap tests (a character that opens markup, a tool's name) and are not read any further.
"""

from collections.abc import Iterable

import msgspec

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.history import Folded, beginning_of
from mustcall.core.memo import Remembered
from mustcall.core.message import Message, Role
from mustcall.core.parts import Part, Text, ToolCall
from mustcall.core.request import Request
from mustcall.core.tools import ProviderTool, Tool
from mustcall.dialects import Dialect, parse
from mustcall.dialects.catalogue import active, find_dialect
from mustcall.dialects.names import fold
from mustcall.policy.facts.profile import Profile
from mustcall.policy.history.in_order import OPENS_MARKUP, may_hold_markup
from mustcall.wire.crossing.naming import flat_name

__all__ = ["MarkupEraser", "is_unmarked", "strip_markup"]

#: Text can fold into new calls when calls are taken out of it; one that still does after so many rounds is nothing
#: but markup, and goes as a whole. So the cost stays linear and a second reading finds nothing.
_MOST_ROUNDS = 4


class MarkupEraser:
    """Takes the calls of known tools out of text; the tools that the history calls are known too."""

    __slots__ = ("_by_fold", "_dialects", "_known", "_tools")

    def __init__(self, tools: Iterable[Tool | ProviderTool], dialects: tuple[Dialect, ...]) -> None:
        self._dialects = dialects
        self._tools = tuple(tool for tool in tools if isinstance(tool, Tool))
        self._known: set[str] = set()
        self._by_fold: dict[str, list[Tool]] = {}
        for tool in self._tools:
            self._add(tool)

    @classmethod
    def of(cls, tools: Iterable[Tool | ProviderTool], dialects: tuple[str, ...]) -> "MarkupEraser":
        """Return one for the tools on offer to a model whose profile names these dialects."""
        # A history may come from any model, so all dialects that need no special trust are looked for.
        auto = active()
        always = {dialect.name for dialect in auto}
        named = [find_dialect(name) for name in dialects if name != "auto" and name not in always]
        return cls(tools, (*auto, *named))

    def knowing(self, calls: Iterable[ToolCall]) -> "MarkupEraser":
        """Return one that takes the tools of these calls for known too; the same object if it does already."""
        new: dict[str, Tool] = {}
        for call in calls:
            if call.name not in self._known:
                new.setdefault(call.name, Tool(name=call.name, namespace=call.namespace))
        return MarkupEraser((*self._tools, *new.values()), self._dialects) if new else self

    def unknown(self, calls: Iterable[ToolCall]) -> list[str]:
        """Return the names of these calls that are not known."""
        return [call.name for call in calls if call.name not in self._known]

    def _add(self, tool: Tool) -> None:
        for name in (tool.name, flat_name(tool.namespace, tool.name)):
            if name and name not in self._known:
                self._known.add(name)
                known = tool if name == tool.name else tool.evolve(name=name, namespace=None)
                self._by_fold.setdefault(fold(name), []).append(known)

    def erase(self, text: str) -> str:
        """Return the text without complete calls; the same object if it holds none."""
        for _ in range(_MOST_ROUNDS):
            tools = self._mentioned(text)
            if not tools:
                return text
            # A call in a fence or bare JSON may be the example a user asked for, long ago: it stays (rule 122).
            parsed = parse((text,), dialects=self._dialects, tools=tools, alone="never")
            if not parsed.calls:
                return text
            # What the text says of reasoning goes along: it led to a call that was never made.
            text = parsed.text.strip()
        return ""

    def finds(self, text: str) -> bool:
        """Tell whether a text holds calls of known tools, complete or not, in markup or as JSON."""
        tools = self._mentioned(text)
        if not tools:
            return False
        parsed = parse((text,), dialects=self._dialects, tools=tools, alone="anywhere")
        return bool(parsed.calls or parsed.reasoned or parsed.malformed)

    def _mentioned(self, text: str) -> list[Tool]:
        """Return the tools a text could call: those it names, as loosely as names are read, if it has any markup."""
        if OPENS_MARKUP.search(text) is None:
            return []
        folded = fold(text)
        return [tool for name, tools in self._by_fold.items() if name in folded for tool in tools]


_Tools = tuple[Tool | ProviderTool, ...]


class _Sought(msgspec.Struct, frozen=True):
    """What leftover markup depends on beside the history."""

    tools: _Tools
    profile: Profile

    def mark(self) -> object:
        """Return what stands for these very tools and dialects, and holds neither."""
        return _marks.of(self.tools, self.profile.dialects)

    def eraser(self, names: frozenset[str]) -> MarkupEraser:
        """Return one that knows these names beside the tools on offer."""
        return _erasers.of(self.tools, self.profile.dialects, names)


def _eraser(tools: _Tools, dialects: tuple[str, ...], names: frozenset[str]) -> MarkupEraser:
    called = [ToolCall(id="", name=name, arguments_json="") for name in sorted(names)]
    return MarkupEraser.of(tools, dialects).knowing(called)


def _mark(_tools: _Tools, _dialects: tuple[str, ...]) -> object:
    return object()


_marks = Remembered(_mark)
_erasers = Remembered(_eraser, most=64)


def is_unmarked(request: Request, profile: Profile) -> bool:
    """Tell whether a history that is in order holds no leftover markup."""
    return _unmarked.of(beginning_of(request), _Sought(request.tools, profile)) is not None


def _still_unmarked(names: frozenset[str] | None, message: Message, sought: _Sought) -> frozenset[str] | None:
    """Return the tools that were called up to a message and are not on offer; None if there is markup up to here."""
    if names is None or message.role is not Role.ASSISTANT:
        return names
    eraser = sought.eraser(names)
    new = eraser.unknown(message.calls)
    if new:
        names = names.union(new)
        eraser = sought.eraser(names)
    return names if not may_hold_markup(message) or _strip_message(message, eraser) is message else None


_unmarked: Folded[frozenset[str] | None, _Sought] = Folded(lambda _: frozenset(), _still_unmarked, _Sought.mark)


def strip_markup(
    messages: tuple[Message, ...],
    tools: Iterable[Tool | ProviderTool],
    profile: Profile,
    bound: int,
    log: AdaptationLog,
) -> tuple[Message, ...]:
    """Return the messages without leftover markup; the same tuple if there is none. The first `bound` stay."""
    if not any(map(_may_hold_markup, messages)):
        return messages
    eraser = MarkupEraser.of(tools, profile.dialects)
    out: list[Message] = []
    stripped = left = 0
    for index, message in enumerate(messages):
        if message.role is not Role.ASSISTANT:
            out.append(message)
            continue
        eraser = eraser.knowing(message.calls)
        clean = _strip_message(message, eraser)
        if clean is not message and index < bound:
            left += 1
            clean = message
        stripped += clean is not message
        out.append(clean)
    if left:
        log.add(AdaptationKind.REPORTED, "history", f"call markup left in {left} turns that reasoning is bound to")
    if not stripped:
        return messages
    log.add(AdaptationKind.MARKUP_STRIPPED, "history", f"leftover calls taken out of {stripped} assistant turns")
    return tuple(out)


def _may_hold_markup(message: Message) -> bool:
    return message.role is Role.ASSISTANT and any(
        isinstance(part, Text) and OPENS_MARKUP.search(part.text) is not None for part in message.parts
    )


def _strip_message(message: Message, eraser: MarkupEraser) -> Message:
    parts: list[Part] = []
    changed = False
    for part in message.parts:
        if isinstance(part, Text):
            text = eraser.erase(part.text)
            if text is not part.text:
                changed = True
                if text:
                    parts.append(part.evolve(text=text))
                continue
        parts.append(part)
    return message.evolve(parts=tuple(parts)) if changed else message
