"""The tools and the choice among them, as an upstream of another wire can take them.

Decides per tool what survives the crossing: functions always; custom tools as a function with one `input` string
where the wire has no custom tools; provider tools never, dropped or refused by their type; deferred tools only once
a tool result has referred to them. Knows nothing of how a wire writes a tool.
"""

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationKind, AdaptationLog
from mustcall.core.errors import UnsupportedFeature
from mustcall.core.memo import Remembered
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.parts import CallKind, ToolCall, ToolReference, ToolResult
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, ProviderTool, Tool, ToolChoice
from mustcall.wire.crossing.naming import flat_name

__all__ = ["DROPPABLE_TOOLS", "ToolOffer", "custom_arguments", "custom_input", "offer_for", "stands_alone"]

#: Provider tools an agent can do without: by the start of their type, versions and previews included. Any other
#: provider tool is something the agent was told it has (a shell, a sandbox, files), so its loss must not be silent.
DROPPABLE_TOOLS = (
    "web_search",
    "web_fetch",
    "image_generation",
    "tool_search",
    "programmatic_tool_calling",
    "namespace",  # one without any tool in it
)

_CUSTOM_WIRES = frozenset({Wire.RESPONSES})
_ALLOWED_SET_WIRES = frozenset({Wire.CHAT, Wire.RESPONSES})
_NEEDS_TOOLS_FOR_HISTORY = frozenset({Wire.MESSAGES})


_Tools = tuple[Tool | ProviderTool, ...]


class ToolOffer(msgspec.Struct, frozen=True):
    """What is put on offer: tools in order, and the choice among them (None if the caller made none)."""

    tools: _Tools
    choice: ToolChoice | None


def offer_for(request: Request, wire: Wire, log: AdaptationLog) -> ToolOffer:
    """Return the tools and choice to send on `wire`; tools that came from that wire are kept as they are."""
    kept = _crossed(request, wire, log)
    choice = request.tool_choice
    native = request.origin is not None and request.origin.wire is wire
    if not kept and not native and wire in _NEEDS_TOOLS_FOR_HISTORY:
        kept = _stubs_for_history(request, wire, log)
        if kept:
            choice = ToolChoice(mode=ChoiceMode.NONE)
    if choice is not None and choice.allowed is not None and wire not in _ALLOWED_SET_WIRES:
        allowed = choice.allowed
        kept = tuple(tool for tool in kept if isinstance(tool, ProviderTool) or tool.name in allowed)
        log.add(AdaptationKind.FIELD_MAPPED, "tool_choice", "the allowed set became the tool list")
        choice = choice.evolve(allowed=None)
    if choice is not None and not native:
        _refuse_lost_choice(choice, kept, request, wire)
        choice = _choice_across(choice, kept, wire)
    return ToolOffer(kept, choice if kept else None)


def stands_alone(tools: _Tools, wire: Wire) -> bool:
    """Tell whether what is offered on `wire` depends on nothing in the conversation."""
    kept, _ = _settled.of(tools, wire) if tools else ((), ())
    return bool(kept) or (kept is not None and wire not in _NEEDS_TOOLS_FOR_HISTORY)


def _crossed(request: Request, wire: Wire, log: AdaptationLog) -> _Tools:
    """Return the tools that cross. What depends on nothing but the tools themselves is settled once for an agent."""
    tools = request.tools
    if not tools:
        return ()
    kept, notes = _settled.of(tools, wire)
    if kept is None:
        return _cross(request, wire, log)
    log.extend(notes)
    return kept


def _cross_alone(tools: _Tools, wire: Wire) -> tuple[_Tools | None, tuple[Adaptation, ...]]:
    """Return what becomes of tools whatever the request says beside them; None where that matters."""
    for tool in tools:
        native = tool.origin is not None and tool.origin.wire is wire
        if not native and (isinstance(tool, ProviderTool) or tool.deferred):
            return None, ()
    log = AdaptationLog()
    return _cross(Request(model="", messages=(), tools=tools), wire, log), log.entries


_settled = Remembered(_cross_alone)


def _cross(request: Request, wire: Wire, log: AdaptationLog) -> _Tools:
    referenced: frozenset[str] | None = None
    kept: list[Tool | ProviderTool] = []
    for tool in request.tools:
        if tool.origin is not None and tool.origin.wire is wire:
            kept.append(tool)
            continue
        if isinstance(tool, ProviderTool):
            _drop_or_refuse(tool, request, wire, log)
            continue
        if tool.deferred:
            if referenced is None:
                referenced = _referenced_tools(request)
            if tool.name not in referenced:
                log.add(AdaptationKind.TOOL_DROPPED, tool.name, "deferred, and no tool result has referred to it yet")
                continue
        kept.append(_reshape(tool, wire, log))
    if wire is not Wire.RESPONSES:  # which has namespaces of its own
        _refuse_doubles(kept)
    return tuple(kept)


def custom_arguments(text: str) -> str:
    """Write a custom call's free text as the arguments of the function that stands in for it."""
    return msgspec.json.encode({"input": text}).decode()


def custom_input(arguments: str) -> str | None:
    """Read the free text out of the stand-in function's arguments; None if they are not `{"input": "…"}`."""
    try:
        value = msgspec.json.decode(arguments, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    return value["input"] if value.keys() == {"input"} else None


def _refuse_lost_choice(choice: ToolChoice, kept: _Tools, request: Request, wire: Wire) -> None:
    """A demand whose tool did not cross would vanish, or point at nothing: in no case is a force lost silently."""
    if choice.mode not in (ChoiceMode.NAMED, ChoiceMode.REQUIRED):
        return
    names = {tool.name for tool in kept if isinstance(tool, Tool)}
    offered = {tool.name for tool in request.tools if isinstance(tool, Tool)}
    named = choice.mode is ChoiceMode.NAMED and choice.name in offered - names
    empty = choice.mode is ChoiceMode.REQUIRED and not names and bool(request.tools)
    if named or empty:
        what = f"the tool {choice.name!r}" if named else "a tool"
        raise UnsupportedFeature(
            f"`tool_choice` demands {what}, which cannot be offered to an upstream on the {wire} wire; "
            "choose another, or `auto`",
            param="tool_choice",
        )


def _refuse_doubles(kept: list[Tool | ProviderTool]) -> None:
    """Two tools under one name could not be told apart when they are called."""
    seen: dict[str, Tool] = {}
    for tool in kept:
        if isinstance(tool, Tool):
            flat = flat_name(tool.namespace, tool.name)
            other = seen.setdefault(flat, tool)
            if other is not tool and other.namespace != tool.namespace:
                raise UnsupportedFeature(
                    f"two tools would both be called {flat!r} on this upstream's wire; rename one of them",
                    param="tools",
                )


def _choice_across(choice: ToolChoice, kept: _Tools, wire: Wire) -> ToolChoice:
    """Return the choice in the names and kinds under which the tools cross."""
    if choice.kind is CallKind.CUSTOM and wire not in _CUSTOM_WIRES:
        choice = choice.evolve(kind=CallKind.FUNCTION)
    if choice.mode is ChoiceMode.NAMED and choice.namespace is None:
        named = [tool for tool in kept if isinstance(tool, Tool) and tool.name == choice.name]
        if named and all(tool.namespace is not None for tool in named):
            choice = choice.evolve(namespace=named[0].namespace)
    if choice.allowed is not None and wire is not Wire.RESPONSES:
        allowed = [tool for tool in kept if isinstance(tool, Tool) and tool.name in choice.allowed]
        choice = choice.evolve(allowed=tuple(flat_name(tool.namespace, tool.name) for tool in allowed))
    return choice


def _drop_or_refuse(tool: ProviderTool, request: Request, wire: Wire, log: AdaptationLog) -> None:
    if not tool.type.startswith(DROPPABLE_TOOLS):
        raise UnsupportedFeature(
            f"the tool type {tool.type!r} is of the provider's own form and cannot be offered to an upstream on the "
            f"{wire} wire; remove it from `tools`, or route the model {request.model!r} to an upstream that has it",
            param="tools",
        )
    log.add(AdaptationKind.TOOL_DROPPED, tool.type, f"provider tool without a form on the {wire} wire")


def _reshape(tool: Tool, wire: Wire, log: AdaptationLog) -> Tool:
    if wire is not Wire.RESPONSES or tool.namespace is None:
        flat = flat_name(tool.namespace, tool.name)
        if flat != tool.name:
            log.add(AdaptationKind.NAME_MAPPED, tool.name, flat)
    if tool.kind is CallKind.FUNCTION or wire in _CUSTOM_WIRES:
        return tool
    log.add(AdaptationKind.TOOL_RESHAPED, tool.name, "custom tool offered as a function with one input string")
    hint = _grammar_hint(tool.format)
    return tool.evolve(
        kind=CallKind.FUNCTION,
        description="\n\n".join(part for part in (tool.description, hint) if part) or None,
        parameters={
            "type": "object",
            "properties": {"input": {"type": "string", "description": "The whole input of the tool, as plain text."}},
            "required": ["input"],
            "additionalProperties": False,
        },
        format=None,
    )


def _grammar_hint(form: JsonObject | None) -> str | None:
    if form is None:
        return None
    grammar = form.get("grammar")
    if isinstance(grammar, dict):  # the chat wire nests it once more
        form = {**form, **grammar}
    definition = form.get("definition")
    if not isinstance(definition, str):
        return None
    return f"The input must follow this {form.get('syntax', 'lark')} grammar:\n{definition}"


def _referenced_tools(request: Request) -> frozenset[str]:
    return frozenset(
        item.name
        for message in request.messages
        for part in message.parts
        if isinstance(part, ToolResult)
        for item in part.content
        if isinstance(item, ToolReference)
    )


def _stubs_for_history(request: Request, wire: Wire, log: AdaptationLog) -> _Tools:
    """Offer what the history calls, unusable, because the wire refuses tool history without tools (rule 104).

    What an upstream refuses whatever the wire, `policy.history.mended` has given it already.
    """
    names: dict[str, None] = {}
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                names[flat_name(part.namespace, part.name)] = None
    if names:
        log.add(AdaptationKind.TOOL_ADDED, ", ".join(names), f"the {wire} wire refuses tool history without tools")
    return tuple(Tool(name=name, parameters={"type": "object", "properties": {}}) for name in names)
