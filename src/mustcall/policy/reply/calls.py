"""The calls of one reply, checked in order: which tool each means, whether its arguments fit, and its id.

Names are read by `dialects.names` (rules 106, 142, 147), arguments by `arguments` (rules 131, 141). Calls that share an
id, or have one that the conversation knows, get another (rules 67, 143). What each repair did is noted by the name of
its row. What is made of the reply is `judge`'s.
"""

from typing import Any

from mustcall.core.adaptation import Adaptation, AdaptationKind
from mustcall.core.memo import Remembered
from mustcall.core.origin import JsonObject
from mustcall.core.parts import CallKind, ProviderItem, ToolCall
from mustcall.core.tools import ProviderTool, Tool, functions_of
from mustcall.core.verdict import Verdict
from mustcall.dialects.names import Offered
from mustcall.policy.facts.controls import OtherTool
from mustcall.policy.history.in_order import ids_called
from mustcall.policy.reply.judgement import Case
from mustcall.policy.reply.provider_calls import is_offered_item
from mustcall.policy.schema.arguments import Checked, check_arguments, describe_problems
from mustcall.policy.schema.repairs import KINDS
from mustcall.wire.crossing.offer import custom_input

__all__ = ["ONE_AT_A_TIME", "UNCHECKED", "Calls"]

ONE_AT_A_TIME = "one call at a time was asked for"
_NOT_DEMANDED = "not the tool that was demanded"
UNCHECKED = "not all of its schema could be checked"

_Tools = tuple[Tool | ProviderTool, ...]
_Named = dict[tuple[str | None, str], Tool]
#: What the function takes that stands in for a custom tool.
_INPUT: JsonObject = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


def _by_name(tools: _Tools) -> _Named:
    return {(tool.namespace, tool.name): tool for tool in functions_of(tools)}


def _by_likeness(tools: _Tools) -> Offered:
    return Offered(functions_of(tools))


_named = Remembered(_by_name)
_offered = Remembered(_by_likeness)


class Calls:
    """Checks the calls of one reply in order. `salvaged` says that one of them fits only after a lossy repair."""

    def __init__(self, case: Case, notes: tuple[Adaptation, ...]) -> None:
        self._case = case
        self._tools = _named.of(case.request.tools)
        self._ids: set[str] = set()
        self._made = 0
        self._delivered = 0
        self._notes = list(notes)
        self.others: list[ToolCall] = []
        self.problem = ""
        self.unreadable = False
        self.touched = False
        self.salvaged = False

    @property
    def notes(self) -> tuple[Adaptation, ...]:
        """What is said about the reply."""
        return tuple(self._notes)

    def note(self, kind: AdaptationKind, subject: str, detail: str) -> None:
        """Say something about the reply."""
        self._notes.append(Adaptation(kind, subject, detail))

    def check(self, call: ToolCall) -> tuple[ToolCall | None, Verdict | None]:
        """Return the call to deliver (None if it is dropped), or the verdict that spoils the reply."""
        tool, reading = self._find(call)
        if self._is_surplus(call.name if tool is None else tool.name):
            return None, None
        if tool is None:
            if not self._is_defined(call.name):
                return None, Verdict.UNKNOWN_TOOL
            return self._permit(call, call, Checked(arguments=call.arguments_json), "")
        checked = self._check_arguments(tool, call)
        if checked.problems or checked.truncated:
            self.problem = self.problem or f"{tool.name}: {describe_problems(checked.problems)}"
            self.unreadable = self.unreadable or checked.unreadable
            if checked.salvage is None or not self._case.controls.salvage_arguments:
                return None, Verdict.TRUNCATED if checked.truncated else Verdict.BAD_ARGUMENTS
            self.salvaged = True
            checked = checked.salvage
        if checked.unchecked:
            self.note(AdaptationKind.REPORTED, tool.name, UNCHECKED)
        meant = call
        if reading or call.kind is not tool.kind or checked.arguments != call.arguments_json:
            meant = call.evolve(
                name=tool.name, namespace=tool.namespace, kind=tool.kind, arguments_json=checked.arguments
            )
        return self._permit(call, meant, checked, reading)

    def check_item(self, item: ProviderItem) -> tuple[ProviderItem | None, Verdict | None]:
        """Do as `check` with a call in the provider's own form: it has no schema to be held against."""
        demand = self._case.demand
        if self._is_surplus(item.type):
            return None, None
        if not is_offered_item(item, self._case.request):
            return None, Verdict.UNKNOWN_TOOL
        if not demand.permits_item(item):
            if not demand.forced:
                return None, Verdict.UNKNOWN_TOOL
            if self._case.controls.other_tool is OtherTool.RETRY:
                self.note(AdaptationKind.CALL_DROPPED, item.type, _NOT_DEMANDED)
                return None, None
            self.note(AdaptationKind.REPORTED, item.type, _NOT_DEMANDED)
        self._delivered += 1
        return item, None

    def _is_surplus(self, name: str) -> bool:
        """Tell whether a call comes beyond the one that is wanted (rule 126): it need not be sound to be dropped."""
        if self._case.request.parallel_tool_calls is not False or not self._delivered:
            return False
        self.note(AdaptationKind.CALL_DROPPED, name, ONE_AT_A_TIME)
        return True

    def _permit(
        self, call: ToolCall, meant: ToolCall, checked: Checked, reading: str
    ) -> tuple[ToolCall | None, Verdict | None]:
        """Return a call that is sound in itself, if the caller wants it (rule 29)."""
        demand = self._case.demand
        if not demand.permits(meant):
            if not demand.forced:
                return None, Verdict.UNKNOWN_TOOL
            if self._case.controls.other_tool is OtherTool.RETRY:
                self.note(AdaptationKind.CALL_DROPPED, meant.name, _NOT_DEMANDED)
                self.others.append(meant.evolve(id=self._unique(call.id)))
                return None, None
            self.note(AdaptationKind.REPORTED, meant.name, _NOT_DEMANDED)
        changes = self._changes(call, meant, checked, reading)
        self._delivered += 1
        if changes:
            self.touched = True
            return call.evolve(**changes), None
        return call, None

    def _changes(self, call: ToolCall, meant: ToolCall, checked: Checked, reading: str) -> dict[str, Any]:
        """Return what of a call is delivered otherwise than it came, and say so."""
        changes: dict[str, Any] = {}
        if meant is not call:
            changes = {"name": meant.name, "namespace": meant.namespace, "kind": meant.kind}
            changes["arguments_json"] = meant.arguments_json
        for change in checked.changes:
            self.note(KINDS[change.repair], f"{meant.name}:{change.repair}", change.words)
        if reading:
            self.note(AdaptationKind.NAME_MAPPED, meant.name, f"the only tool that fits ({reading})")
        identifier = self._unique(call.id)
        if identifier != call.id:
            changes["id"] = identifier
            self.note(AdaptationKind.ID_MAPPED, "call id", "it was taken")
        return changes

    def _check_arguments(self, tool: Tool, call: ToolCall) -> Checked:
        # Models write null where they leave an optional field out; clients refuse that (observed: code of agents).
        if call.kind is tool.kind:
            return check_arguments(tool, call.arguments_json, null_is_absent=True)
        if tool.kind is not CallKind.CUSTOM:
            return check_arguments(tool.evolve(kind=CallKind.FUNCTION), call.arguments_json, null_is_absent=True)
        checked = check_arguments(Tool(name=tool.name, parameters=_INPUT), call.arguments_json)
        text = custom_input(checked.arguments) if checked.valid else None
        if text is None:
            return checked
        return Checked(arguments=text, changes=checked.changes)

    def _find(self, call: ToolCall) -> tuple[Tool | None, str]:
        """Return the tool a call means and how its name was read: exactly, else as `dialects.names` has it."""
        exact = self._tools.get((call.namespace, call.name))
        if exact is not None or not self._tools:
            return exact, ""
        return _offered.of(self._case.request.tools).find(call.name, call.namespace) or (None, "")

    def _is_defined(self, name: str) -> bool:
        """Tell whether the provider defined this tool and the client runs it (`bash_20250124`); it has no schema."""
        offered = self._case.request.tools
        return any(isinstance(tool, ProviderTool) and tool.value.get("name") == name for tool in offered)

    def _unique(self, identifier: str) -> str:
        """Return an id that no other call of the conversation has (rules 67, 143)."""
        earlier = ids_called(self._case.request)
        made = identifier
        while not made or made in self._ids or any(made in ids for ids in earlier):
            made = f"{self._case.call_start}{self._case.token}_{self._made}"
            self._made += 1
        self._ids.add(made)
        return made
