"""Leftover call markup in the assistant's earlier texts, taken out before they are sent again (rules 102, 122).

One leaked call in the history makes a model leak again. Only complete calls of tools that are on offer, or that the
history called before that text, are taken out, and only from the assistant's own text: code, quotations, and whatever
the user, a tool or the system wrote stay as they are. A text without a call comes back as the same object.

Cost: most texts fail two cheap tests (a character that opens markup, a tool's name) and are not read any further.
"""

import re
from collections.abc import Iterable

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.message import Message, Role
from mustcall.core.parts import Part, Text, ToolCall
from mustcall.core.tools import ProviderTool, Tool
from mustcall.dialects import Dialect, parse
from mustcall.dialects.catalogue import active, find_dialect
from mustcall.dialects.names import fold
from mustcall.policy.facts.profile import Profile
from mustcall.wire.naming import flat_name

__all__ = ["Eraser", "strip_markup"]

#: Every dialect has one of these in each of its calls.
_OPENS_MARKUP = re.compile(r"[<{\[(]|tool_code")
#: Text can fold into new calls when calls are taken out of it; one that still does after so many rounds is nothing
#: but markup, and goes as a whole. So the cost stays linear and a second reading finds nothing.
_MOST_ROUNDS = 4


class Eraser:
    """Takes the calls of known tools out of text. `learn` adds the tools that the history calls."""

    __slots__ = ("_by_fold", "_dialects", "_known")

    def __init__(self, tools: Iterable[Tool | ProviderTool], profile: Profile) -> None:
        # A history may come from any model, so all dialects that need no special trust are looked for.
        auto = active()
        always = {dialect.name for dialect in auto}
        named = [find_dialect(name) for name in profile.dialects if name != "auto" and name not in always]
        self._dialects: tuple[Dialect, ...] = (*auto, *named)
        self._known: set[str] = set()
        self._by_fold: dict[str, list[Tool]] = {}
        for tool in tools:
            if isinstance(tool, Tool):
                self._add(tool)

    def _add(self, tool: Tool) -> None:
        for name in (tool.name, flat_name(tool.namespace, tool.name)):
            if name and name not in self._known:
                self._known.add(name)
                known = tool if name == tool.name else tool.evolve(name=name, namespace=None)
                self._by_fold.setdefault(fold(name), []).append(known)

    def learn(self, call: ToolCall) -> None:
        """Take the tool of a call for known, with any arguments."""
        if call.name not in self._known:
            self._add(Tool(name=call.name, namespace=call.namespace))

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

    def _mentioned(self, text: str) -> list[Tool]:
        """Return the tools a text could call: those it names, as loosely as names are read, if it has any markup."""
        if _OPENS_MARKUP.search(text) is None:
            return []
        folded = fold(text)
        return [tool for name, tools in self._by_fold.items() if name in folded for tool in tools]


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
    eraser = Eraser(tools, profile)
    out: list[Message] = []
    stripped = left = 0
    for index, message in enumerate(messages):
        if message.role is not Role.ASSISTANT:
            out.append(message)
            continue
        for call in message.calls:
            eraser.learn(call)
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
        isinstance(part, Text) and _OPENS_MARKUP.search(part.text) is not None for part in message.parts
    )


def _strip_message(message: Message, eraser: Eraser) -> Message:
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
