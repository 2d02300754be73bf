"""What a turn must come to as far as tools go: the one demand, out of all that may ask for one (rules 1, 8 to 11).

Precedence, first to last: the step cap, the caller's own choice (`force_tools` before `tool_choice`), the answer phase,
a grounding rule, the default. How the demand is put to a model is `policy.request.plan`'s; nothing here knows an
upstream.

Decisions a reader would ask about:

- The caller's `auto` is the default spelt out (agents send it with every request), not a choice against a grounding
  rule. `none`, `required` and a named tool are choices.
- A caller's choice in a form only its provider knows (a hosted tool) is left alone and outranks what comes after it.
- The answer phase follows tool results by its nature, so rule 11 does not touch it.
- A force that is dropped leaves `auto`; it does not make room for a weaker one, except that `force_tools` gives way to
  the caller's own `tool_choice`.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import assert_never

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationKind
from mustcall.core.errors import ForcedToolMissing
from mustcall.core.origin import Wire
from mustcall.core.parts import CallKind, ProviderItem, ToolCall
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, ProviderTool, Tool, ToolChoice
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.wording import Wording
from mustcall.policy.words.grounding import GroundingRule, is_offered, latest_input, matching_rules, offered_tool
from mustcall.wire.crossing.naming import flat_name

__all__ = [
    "OWN_CHOICES",
    "STEP_CAP_NOTICE",
    "Demand",
    "DemandSource",
    "has_tools_elsewhere",
    "offers_nothing",
    "renamed_locks",
    "settle_demand",
]

#: What the model is told with the last request before the step cap (rule 109).
STEP_CAP_NOTICE = Wording().step_cap

_FORCED = frozenset({ChoiceMode.REQUIRED, ChoiceMode.NAMED})

#: Unknown request fields that hold a choice in the provider's own form.
OWN_CHOICES = ("tool_choice", "function_call")
#: Unknown request fields behind which tools may be that the request does not show.
_TOOLS_ELSEWHERE = ("prompt",)


class DemandSource(StrEnum):
    """Who asked, in order of precedence (rule 10)."""

    STEP_CAP = "step_cap"
    FORCE_TOOLS = "force_tools"
    CALLER = "caller"
    ANSWER_PHASE = "answer_phase"
    GROUNDING = "grounding"
    DEFAULT = "default"


_ASKERS = {
    DemandSource.FORCE_TOOLS: "force_tools",
    DemandSource.CALLER: "tool_choice",
    DemandSource.ANSWER_PHASE: "the answer phase",
}


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """The intent a turn is judged by, whatever form it takes on the way.

    `choice` is the caller's own object where nothing changed it, and None where nobody chose.
    """

    choice: ToolChoice | None = None
    source: DemandSource = DemandSource.DEFAULT
    #: A sentence that goes with the demand: a grounding rule's own, or the notice of the step cap.
    directive: str | None = None
    notes: tuple[Adaptation, ...] = ()
    #: Whether the provider runs every tool on offer by itself: then its own forced choice is all there is to do.
    hosted: bool = False
    #: The tools on offer that are locked off: no way of asking may come down to one of them (rule 8).
    locked: frozenset[str] = frozenset()

    @property
    def forced(self) -> bool:
        """Whether a call is demanded that the caller would run."""
        return self.choice is not None and self.choice.mode in _FORCED and not self.hosted

    @property
    def forbids(self) -> bool:
        """Whether calls are forbidden (rules 109, 125)."""
        return self.choice is not None and self.choice.mode is ChoiceMode.NONE

    @property
    def names(self) -> frozenset[str] | None:
        """The bare names of the tools that satisfy the demand; None if any does."""
        choice = self.choice
        if choice is None:
            return None
        match choice.mode:
            case ChoiceMode.AUTO | ChoiceMode.REQUIRED:
                return None if choice.allowed is None else frozenset(choice.allowed)
            case ChoiceMode.NAMED:
                return frozenset({choice.name or ""})
            case ChoiceMode.NONE:
                return frozenset()
            case _:
                assert_never(choice.mode)

    def may_force(self, tool: Tool) -> bool:
        """Tell whether a way of asking may come down to this tool: its call would do, and it is not locked off.

        Every form of asking keeps a demanded tool (rule 19).
        """
        if self.locked and _aliases(tool)[0] in self.locked:
            return False
        names = self.names
        return names is None or tool.name in names

    def permits(self, call: ToolCall) -> bool:
        """Tell whether a call is one of those the demand is after, namespaces included.

        A force is met by no tool that is locked off, also where the model chose it among others (rule 8).
        """
        if self.locked and self.forced:
            called = call.name if call.namespace is None else flat_name(call.namespace, call.name)
            if called in self.locked:
                return False
        names, choice = self.names, self.choice
        if names is None or choice is None:
            return True
        if call.name not in names and flat_name(call.namespace, call.name) not in names:
            return False
        return choice.namespace is None or call.namespace is None or call.namespace == choice.namespace

    def permits_item(self, item: ProviderItem) -> bool:
        """Tell the same of a call in the provider's own form, by the type of its tool."""
        if self.locked and self.forced and _is_of(item, self.locked):
            return False
        names = self.names
        return names is None or _is_of(item, names)


def _is_of(item: ProviderItem, names: frozenset[str]) -> bool:
    return any(name.startswith(item.client_tools) for name in names)


_NO_DEMAND = Demand()


def settle_demand(
    request: Request,
    controls: Controls,
    rules: Sequence[GroundingRule] = (),
    *,
    answer_phase: ToolChoice | None = None,
    notice: str = STEP_CAP_NOTICE,
) -> Demand:
    """Return the demand of a turn; raise `ForcedToolMissing` where strictness wants it (rule 8).

    `answer_phase` is the choice of a structured answer's last step. The messages are only looked at where something
    is forced, capped or grounded.
    """
    asked = request.tool_choice or controls.step_cap > 0 or controls.force_tools or answer_phase or rules
    if not asked and not _has_field(request, OWN_CHOICES):
        demand = _NO_DEMAND  # most requests
    else:
        demand = _settled(request, controls, rules, answer_phase, notice)
    if not controls.tools:
        return demand
    locked = frozenset(_aliases(tool)[0] for tool in request.tools if _is_locked(_aliases(tool), controls))
    return msgspec.structs.replace(demand, locked=locked) if locked else demand


def _settled(
    request: Request,
    controls: Controls,
    rules: Sequence[GroundingRule],
    answer_phase: ToolChoice | None,
    notice: str,
) -> Demand:
    choice = request.tool_choice
    notes: list[Adaptation] = []
    if controls.step_cap > 0 and request.tools and latest_input(request).rounds >= controls.step_cap:
        return _capped(choice, controls, notice)
    if controls.force_tools:
        wanted = _choice_of(controls.force_tools, request)
        demand = _settle(wanted, DemandSource.FORCE_TOOLS, request, controls, notes)
        if demand is not None:
            return demand
    if choice is not None and (choice.mode is not ChoiceMode.AUTO or not request.tools):
        demand = _settle(choice, DemandSource.CALLER, request, controls, notes)
        return demand or _let_go(choice, request, notes)
    if choice is None and _has_field(request, OWN_CHOICES):
        if offers_nothing(request):
            notes.append(Adaptation(AdaptationKind.FIELD_DROPPED, "tool_choice", "no tools are on offer"))
        return Demand(source=DemandSource.CALLER, notes=tuple(notes))
    if answer_phase is not None:
        demand = _settle(answer_phase, DemandSource.ANSWER_PHASE, request, controls, notes)
        if demand is not None:
            return demand
    elif rules and not notes:
        demand = _grounded(request, controls, rules, notes)
        if demand is not None:
            return demand
    if choice is None and not notes:
        return _NO_DEMAND
    source = DemandSource.DEFAULT if choice is None else DemandSource.CALLER
    return Demand(choice=choice, source=source, notes=tuple(notes))


def _settle(
    choice: ToolChoice, source: DemandSource, request: Request, controls: Controls, notes: list[Adaptation]
) -> Demand | None:
    """Return the demand this choice makes, None if it is dropped; why is noted, or raised where strict."""
    if choice.mode not in _FORCED:
        if not offers_nothing(request):
            return Demand(choice=choice, source=source, notes=tuple(notes))
        notes.append(Adaptation(AdaptationKind.FIELD_DROPPED, "tool_choice", "no tools are on offer"))
        return None
    subject = _subject(choice)
    lasts = controls.force_after_results or source is DemandSource.ANSWER_PHASE
    if not lasts and latest_input(request).answered:
        notes.append(Adaptation(AdaptationKind.FORCE_DROPPED, subject, "a tool result is already there"))
        return None
    asker = _ASKERS[source]
    reason = _obstacle(choice, request, controls)
    if reason is not None:
        if controls.strict_force:
            offered = ", ".join(aliases[0] for aliases in _offered(request)) or "nothing"
            raise ForcedToolMissing(
                f"{asker} demands {subject}, but {reason}; on offer: {offered}",
                param="force_tools" if source is DemandSource.FORCE_TOOLS else "tool_choice",
            )
        notes.append(Adaptation(AdaptationKind.FORCE_DROPPED, subject, reason))
        return None
    if source is not DemandSource.CALLER:
        notes.append(Adaptation(AdaptationKind.FORCE_ADDED, subject, f"by {asker}"))
    hosted = bool(request.tools) and not any(isinstance(t, Tool) or t.value.get("name") for t in request.tools)
    return Demand(choice=choice, source=source, notes=tuple(notes), hosted=hosted)


def renamed_locks(demand: Demand, own: Sequence[Tool | ProviderTool], sent: Sequence[Tool | ProviderTool]) -> Demand:
    """Return the demand with locked tools known by the names they are sent under, too; the same object if none is."""
    if not demand.locked:
        return demand
    pairs = zip(own, sent, strict=True)
    return msgspec.structs.replace(
        demand,
        locked=demand.locked | {_aliases(there)[0] for here, there in pairs if _aliases(here)[0] in demand.locked},
    )


def _capped(choice: ToolChoice | None, controls: Controls, notice: str) -> Demand:
    """Return the demand at the step cap: no calls, and a notice (rule 109)."""
    mode = choice.mode if choice is not None else None
    forced = bool(controls.force_tools) or mode in _FORCED
    kind = AdaptationKind.FORCE_DROPPED if forced else AdaptationKind.REPORTED
    note = Adaptation(kind, "tool_choice", f"none: the cap of {controls.step_cap} tool rounds is reached")
    none = choice if mode is ChoiceMode.NONE else ToolChoice(mode=ChoiceMode.NONE)
    return Demand(choice=none, source=DemandSource.STEP_CAP, directive=notice, notes=(note,))


def _grounded(
    request: Request, controls: Controls, rules: Sequence[GroundingRule], notes: list[Adaptation]
) -> Demand | None:
    """Return the demand of the first rule that matches and can be met; those before it are noted (rule 13)."""
    allowed = request.tool_choice.allowed if request.tool_choice is not None else None
    for found in matching_rules(rules, request):
        rule = found.rule
        wanted = _choice_of(rule.tool, request)
        reason = _obstacle(wanted, request, controls)
        if reason is None and allowed is not None and wanted.name not in allowed:
            reason = "the caller's tool_choice does not allow it"
        why = f"grounding rule {rule.name}"
        if reason is None:
            notes.append(Adaptation(AdaptationKind.FORCE_ADDED, _subject(wanted), why))
            return Demand(choice=wanted, source=DemandSource.GROUNDING, directive=rule.directive, notes=tuple(notes))
        notes.append(Adaptation(AdaptationKind.FORCE_DROPPED, _subject(wanted), f"{why}: {reason}"))
    return None


def _let_go(choice: ToolChoice, request: Request, notes: list[Adaptation]) -> Demand:
    """Return what is left of a dropped choice: `auto` among the same tools, nothing where there are none (rule 4)."""
    if not request.tools:
        return Demand(notes=tuple(notes))
    auto = choice.evolve(mode=ChoiceMode.AUTO, name=None, namespace=None, kind=CallKind.FUNCTION)
    return Demand(choice=auto, source=DemandSource.CALLER, notes=tuple(notes))


def _choice_of(wanted: bool | str, request: Request) -> ToolChoice:
    """Return the choice a setting stands for: any tool, or the tool of that name in the words of the offer."""
    if isinstance(wanted, bool):
        return ToolChoice(mode=ChoiceMode.REQUIRED)
    tool = offered_tool(request, wanted)
    if tool is None:
        return ToolChoice(mode=ChoiceMode.NAMED, name=wanted)
    return ToolChoice(mode=ChoiceMode.NAMED, name=tool.name, namespace=tool.namespace, kind=tool.kind)


def _obstacle(choice: ToolChoice, request: Request, controls: Controls) -> str | None:
    """Return why a forced choice cannot be met, None if it can (rule 8)."""
    if not request.tools:
        return None if has_tools_elsewhere(request) else "no tools are on offer"
    if choice.mode is ChoiceMode.NAMED:
        name = choice.name or ""
        if not is_offered(request, name, choice.namespace):
            return _why_not_offered(name, request)
        meant = offered_tool(request, name, choice.namespace)
        return "it is locked off" if _is_locked((name,) if meant is None else _aliases(meant), controls) else None
    allowed = None if choice.allowed is None else frozenset(choice.allowed)
    able = [names for names in _offered(request) if allowed is None or not allowed.isdisjoint(names)]
    if not able:
        return "none of the tools it allows is on offer"
    if all(_is_locked(names, controls) for names in able):
        return "every tool that could meet it is locked off"
    return None


def _why_not_offered(name: str, request: Request) -> str:
    """Return why no tool can be called by this name, for people who may see it among those on offer."""
    if not any(isinstance(tool, ProviderTool) and tool.type == name for tool in request.tools):
        return "it is not on offer"
    reason = "a tool of the provider's own form cannot be forced by name"
    if request.origin is not None and request.origin.wire is Wire.RESPONSES:
        reason += f'; send tool_choice {{"type": "{name}"}} without another demand'
    return reason


def _is_locked(names: Sequence[str], controls: Controls) -> bool:
    return any(name in controls.tools and controls.tools[name].locked_off for name in names)


def _offered(request: Request) -> list[tuple[str, ...]]:
    """Return the names of each tool on offer, the first of them for people."""
    return [_aliases(tool) for tool in request.tools]


def _aliases(tool: Tool | ProviderTool) -> tuple[str, ...]:
    if isinstance(tool, Tool):
        return (tool.name,) if tool.namespace is None else (flat_name(tool.namespace, tool.name), tool.name)
    name = tool.value.get("name")
    return (name,) if isinstance(name, str) else (tool.type,)


def offers_nothing(request: Request) -> bool:
    """Tell whether a request offers no tools, nor names a place where it may (rule 4)."""
    return not request.tools and not has_tools_elsewhere(request)


def has_tools_elsewhere(request: Request) -> bool:
    """Tell whether a request names a place that may hold tools which it does not show."""
    return _has_field(request, _TOOLS_ELSEWHERE)


def _has_field(request: Request, names: Sequence[str]) -> bool:
    fields = request.origin.fields if request.origin is not None else None
    return bool(fields) and any(fields.get(name) is not None for name in names)


def _subject(choice: ToolChoice) -> str:
    if not choice.name:
        return "any tool"
    return choice.name if choice.namespace is None else f"{choice.namespace}__{choice.name}"
