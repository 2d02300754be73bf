"""What of a reply may go out before its verdict, and what its upstream keeps: from the request and the plan alone."""

from collections.abc import Mapping

from mustcall.core.memo import Remembered
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.request import Request
from mustcall.core.tools import ProviderTool, Tool, functions_of
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.history.odd_names import odd_tools
from mustcall.policy.reply.gate import EVERY
from mustcall.policy.schema.validation import schema_fault, validator_for
from mustcall.policy.turn.state import TurnState
from mustcall.upstream.endpoint import Endpoint

__all__ = ["appends_reply", "holds", "keeps_reply", "trusts"]


def holds(turn_state: TurnState, request: Request, controls: Controls) -> bool:
    """Tell whether nothing may go out before the verdict: a force is unmet, or the caller asked for it."""
    if turn_state.plan.protocol is Protocol.OFF:
        return False
    unsure = turn_state.holds_answer or odd_tools(request.tools)
    return turn_state.plan.demand.forced or turn_state.rung.constrains or controls.hold or bool(unsure)


def trusts(turn_state: TurnState, request: Request, *, readable: bool) -> Mapping[str, JsonObject | None] | None:
    """Return the tools whose calls go out as they come, with their schemas; None where some may not be delivered."""
    if turn_state.plan.protocol is Protocol.OFF:
        return EVERY
    restricted = turn_state.plan.demand.forbids or request.parallel_tool_calls is False
    if restricted or not readable or not turn_state.profile.trusted_arguments:
        return None
    return _schemas.of(request.tools)


def _schemas_of(tools: tuple[Tool | ProviderTool, ...]) -> Mapping[str, JsonObject | None]:
    return {one.name: _certain(one.parameters) for one in functions_of(tools)}


def _certain(schema: JsonObject | None) -> JsonObject | None:
    """Return what of a schema arguments are checked by: faulty parts of it refuse nothing."""
    if schema is None or schema_fault(schema) is None:
        return schema
    checker = validator_for(schema)
    return None if checker is None else checker.schema


_schemas = Remembered(_schemas_of)


def keeps_reply(caller: Wire, endpoint: Endpoint, request: Request) -> bool:
    """Tell whether the upstream keeps the reply under its id, for the caller to go on from (rule 78)."""
    both = caller is endpoint.wire is Wire.RESPONSES
    return both and request.fields_for(Wire.RESPONSES).get("store") is not False


def appends_reply(caller: Wire, endpoint: Endpoint, request: Request) -> bool:
    """Tell whether the upstream adds the reply to a conversation of the caller's, stored or not."""
    keeps = caller is Wire.RESPONSES and endpoint.keeps_responses
    return keeps and request.fields_for(Wire.RESPONSES).get("conversation") is not None
