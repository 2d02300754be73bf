"""The way back: a reply's calls in the names and kinds the caller offered its tools under.

A tool may have gone out under another name (namespaces flattened, illegal characters mapped) or as another kind (a
custom tool as a function). Clients refuse a call that does not come back as they offered it, so each call is bound
to the caller's tool again. Calls of tools that were never offered pass unchanged.

A custom call whose stand-in arguments cannot be read is the upstream's fault, except where it is the last part of a
reply that ran into the token limit: it was cut, and half a call is none, so it is left out and the finish tells.
"""

from collections import deque
from collections.abc import Mapping

from mustcall.core.errors import UpstreamGarbage
from mustcall.core.memo import Remembered
from mustcall.core.origin import Wire
from mustcall.core.parts import CallKind, Part, ToolCall
from mustcall.core.reply import FinishReason, Reply
from mustcall.core.request import Request
from mustcall.core.streams.events import (
    ArgumentsDelta,
    Event,
    Finished,
    PartEnded,
    PartReasoningDelta,
    PartStarted,
    PartTextDelta,
    StateDelta,
)
from mustcall.core.tools import ProviderTool, Tool
from mustcall.wire.crossing.naming import flat_name
from mustcall.wire.crossing.offer import custom_input

__all__ = ["Binding", "StreamBinding"]


_NONE: Mapping[str, Tool] = {}


def _sent_otherwise(tools: tuple[Tool | ProviderTool, ...]) -> dict[str, Tool]:
    """Return the tools that go out under another name or as another kind, by the name they go out under."""
    sent = {flat_name(tool.namespace, tool.name): tool for tool in tools if isinstance(tool, Tool)}
    return {flat: tool for flat, tool in sent.items() if flat != tool.name or tool.kind is not CallKind.FUNCTION}


_renamed = Remembered(_sent_otherwise)


class Binding:
    """The caller's tools by the name they were sent under."""

    __slots__ = ("_tools",)

    def __init__(self, caller: Request, upstream: Wire) -> None:
        self._tools: Mapping[str, Tool] = _NONE
        tools = caller.tools
        if tools and not (caller.origin is not None and caller.origin.wire is upstream):
            self._tools = _renamed.of(tools)

    @property
    def trivial(self) -> bool:
        """Whether every call passes unchanged."""
        return not self._tools

    def tool(self, call: ToolCall) -> Tool | None:
        """Return the caller's tool if the call has to be rewritten for it."""
        return self._tools.get(call.name) if call.namespace is None else None

    def stands_in(self, call: ToolCall) -> bool:
        """Tell whether the call is one of the function that stands in for a custom tool."""
        tool = self.tool(call)
        return tool is not None and tool.kind is CallKind.CUSTOM and call.kind is CallKind.FUNCTION

    def unreadable(self, call: ToolCall) -> bool:
        """Tell whether `restore` would raise."""
        return self.stands_in(call) and custom_input(call.arguments_json) is None

    def restore(self, call: ToolCall) -> ToolCall:
        """Return a complete call as the caller knows it."""
        tool = self.tool(call)
        if tool is None:
            return call
        arguments = call.arguments_json
        if self.stands_in(call):
            text = custom_input(arguments)
            if text is None:
                raise UpstreamGarbage(
                    f"the model called the custom tool {tool.name!r} with arguments that are not one input string"
                )
            arguments = text
        return call.evolve(name=tool.name, namespace=tool.namespace, kind=tool.kind, arguments_json=arguments)

    def restore_readable(self, call: ToolCall) -> ToolCall:
        """Do as `restore`; a custom call whose input cannot be read keeps its stand-in form under the tool's name."""
        tool = self.tool(call)
        if tool is not None and self.unreadable(call):
            return call.evolve(name=tool.name, namespace=tool.namespace)
        return self.restore(call)

    def restore_reply(self, reply: Reply) -> Reply:
        """Return a reply whose calls the caller knows."""
        if not self._tools or not any(self.tool(call) for call in reply.calls):
            return reply
        kept = reply.parts
        if reply.finish is FinishReason.LENGTH and isinstance(kept[-1], ToolCall) and self.unreadable(kept[-1]):
            kept = kept[:-1]
        parts: list[Part] = [self.restore(part) if isinstance(part, ToolCall) else part for part in kept]
        return reply.evolve(parts=tuple(parts))


class _Waiting:
    """One part that is not passed on yet: its events, and the stand-in call it is if it is one."""

    __slots__ = ("call", "ended", "events")

    def __init__(self, call: ToolCall | None) -> None:
        self.call = call
        self.events: list[Event] = []
        self.ended = False

    def whole(self, call: ToolCall) -> ToolCall:
        """Return the call with the arguments its events brought."""
        final = self.events[-1]
        if isinstance(final, PartEnded) and isinstance(final.part, ToolCall):
            return final.part
        pieces = [event.text for event in self.events if isinstance(event, ArgumentsDelta)]
        return call.evolve(arguments_json="".join((call.arguments_json, *pieces)))


class StreamBinding:
    """The same for events.

    Clients run a call as soon as it is done, so nothing is said of a custom call until it can be read whole; parts
    that start meanwhile wait behind it, for order. Cost is linear: an event waits once.
    """

    __slots__ = ("_binding", "_order", "_waiting")

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._waiting: dict[int, _Waiting] = {}
        self._order: deque[int] = deque()

    def feed(self, event: Event) -> tuple[Event, ...]:
        """Take one event and return what can be passed on, rewritten where its call must be."""
        match event:
            case PartStarted(index=index, part=part):
                call = part if isinstance(part, ToolCall) and self._binding.stands_in(part) else None
                if call is None and not self._order:
                    return (self._bound(event),)
                self._waiting[index] = _Waiting(call)
                self._order.append(index)
                return self._wait(index, event)
            case PartTextDelta() | PartReasoningDelta() | ArgumentsDelta() | StateDelta() | PartEnded():
                if event.index in self._waiting:
                    return self._wait(event.index, event)
                return (self._bound(event),)
            case Finished(reason=reason):
                return (*self._last_call(reason), event)
            case _:
                return (event,)

    def _wait(self, index: int, event: Event) -> tuple[Event, ...]:
        """Put an event behind those of its part, then let go all parts that nothing holds back any more."""
        waiting = self._waiting[index]
        if waiting.ended:
            return ()
        waiting.events.append(event)
        waiting.ended = isinstance(event, PartEnded)
        out: list[Event] = []
        while self._order:
            first = self._waiting[self._order[0]]
            if first.call is None:
                out.extend(map(self._bound, first.events))
            elif not first.ended:
                break
            else:
                call = first.whole(first.call)
                if len(self._order) == 1 and self._binding.unreadable(call):
                    break  # cut, or garbage: the finish will tell
                out.extend(self._complete(self._order[0], call))
            del self._waiting[self._order.popleft()]
        return tuple(out)

    def _last_call(self, reason: FinishReason) -> tuple[Event, ...]:
        """Decide on a call that could not be read: cut by the token limit it is left out, else it raises."""
        if not self._order:
            return ()
        index = self._order.popleft()
        waiting = self._waiting.pop(index)
        if waiting.call is None or reason is FinishReason.LENGTH:
            return ()
        return self._complete(index, waiting.whole(waiting.call))

    def _complete(self, index: int, call: ToolCall) -> tuple[Event, ...]:
        restored = self._binding.restore(call)
        return (
            PartStarted(index, restored.evolve(arguments_json="")),
            ArgumentsDelta(index, restored.arguments_json),
            PartEnded(index, restored),
        )

    def _bound(self, event: Event) -> Event:
        match event:
            case PartStarted(index=index, part=ToolCall() as call):
                restored = self._binding.restore(call)
                return event if restored is call else PartStarted(index, restored)
            case PartEnded(index=index, part=ToolCall() as call):
                restored = self._binding.restore(call)
                return event if restored is call else PartEnded(index, restored)
            case _:
                return event
