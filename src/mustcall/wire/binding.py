"""The way back: a reply's calls in the names and kinds the caller offered its tools under.

A tool may have gone out under another name (namespaces flattened, illegal characters mapped) or as another kind (a
custom tool as a function). Clients refuse a call that does not come back as they offered it, so each call is bound
to the caller's tool again. Calls of tools that were never offered pass unchanged.
"""

from mustcall.core.errors import UpstreamGarbage
from mustcall.core.events import ArgumentsDelta, Event, PartEnded, PartStarted
from mustcall.core.origin import Wire
from mustcall.core.parts import CallKind, Part, ToolCall
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.core.tools import Tool
from mustcall.wire.naming import flat_name
from mustcall.wire.offer import custom_input

__all__ = ["Binding", "StreamBinding"]


class Binding:
    """The caller's tools by the name they were sent under."""

    __slots__ = ("_tools",)

    def __init__(self, caller: Request, upstream: Wire) -> None:
        self._tools: dict[str, Tool] = {}
        if caller.origin is not None and caller.origin.wire is upstream:
            return
        for tool in caller.tools:
            if isinstance(tool, Tool):
                flat = flat_name(tool.namespace, tool.name)
                if flat != tool.name or tool.kind is not CallKind.FUNCTION:
                    self._tools[flat] = tool

    @property
    def trivial(self) -> bool:
        """Whether every call passes unchanged."""
        return not self._tools

    def tool(self, call: ToolCall) -> Tool | None:
        """Return the caller's tool if the call has to be rewritten for it."""
        return self._tools.get(call.name) if call.namespace is None else None

    def restore(self, call: ToolCall) -> ToolCall:
        """Return a complete call as the caller knows it."""
        tool = self.tool(call)
        if tool is None:
            return call
        arguments = call.arguments
        if tool.kind is CallKind.CUSTOM and call.kind is CallKind.FUNCTION:
            text = custom_input(arguments)
            if text is None:
                raise UpstreamGarbage(
                    f"the model called the custom tool {tool.name!r} with arguments that are not one input string"
                )
            arguments = text
        return call.evolve(name=tool.name, namespace=tool.namespace, kind=tool.kind, arguments=arguments)

    def restore_reply(self, reply: Reply) -> Reply:
        """Return a reply whose calls the caller knows."""
        if not self._tools or not any(self.tool(call) for call in reply.calls):
            return reply
        parts: list[Part] = [self.restore(part) if isinstance(part, ToolCall) else part for part in reply.parts]
        return reply.evolve(parts=tuple(parts))


class StreamBinding:
    """The same for events. Only a custom call's arguments are held, until they are whole."""

    __slots__ = ("_binding", "_held")

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._held: dict[int, tuple[ToolCall, list[str]]] = {}

    def feed(self, event: Event) -> tuple[Event, ...]:
        """Take one event and return it, rewritten where its call must be."""
        match event:
            case PartStarted(index=index, part=ToolCall() as call):
                tool = self._binding.tool(call)
                if tool is None:
                    return (event,)
                if tool.kind is CallKind.CUSTOM and call.kind is CallKind.FUNCTION:
                    self._held[index] = (call, [call.arguments])
                    bound = call.evolve(name=tool.name, namespace=tool.namespace, kind=tool.kind, arguments="")
                    return (PartStarted(index, bound),)
                return (PartStarted(index, self._binding.restore(call)),)
            case ArgumentsDelta(index=index, text=text) if index in self._held:
                self._held[index][1].append(text)
                return ()
            case PartEnded(index=index, part=part):
                if index in self._held:
                    call, pieces = self._held.pop(index)
                    whole = part if isinstance(part, ToolCall) else call.evolve(arguments="".join(pieces))
                    restored = self._binding.restore(whole)
                    return (ArgumentsDelta(index, restored.arguments), PartEnded(index, restored))
                if isinstance(part, ToolCall):
                    return (PartEnded(index, self._binding.restore(part)),)
                return (event,)
            case _:
                return (event,)
