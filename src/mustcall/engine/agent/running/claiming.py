"""Holds a run's answer against its calls (`policy.reply.unbacked_claims`): which of them ran, and with what result."""

from collections.abc import Iterable, Sequence

from mustcall.core.message import Message
from mustcall.engine.tooling.outcomes import CallStatus, ExecutedCall
from mustcall.engine.tooling.roster import Roster
from mustcall.policy.reply.unbacked_claims import ActedCall, Backing, UnbackedClaim, unbacked_claims

__all__ = ["claims_of"]

_BACKING = {
    CallStatus.OK: Backing.DONE,
    CallStatus.TIMED_OUT: Backing.UNKNOWN,
    CallStatus.CANCELLED: Backing.UNKNOWN,
    CallStatus.UNKNOWN: Backing.UNKNOWN,
}


def claims_of(
    text: str, calls: Iterable[ExecutedCall], messages: Sequence[Message], roster: Roster
) -> tuple[UnbackedClaim, ...]:
    """Return what an answer claims and no call did, in this run or before it in the conversation."""
    here = list(calls)
    known = {each.call.id for each in here}
    acted = [_acted(each.name, _BACKING.get(each.status, Backing.FAILED), roster) for each in here]
    results = {result.call_id: result for message in messages for result in message.results}
    for message in messages:
        for call in message.calls:
            result = results.get(call.id)
            if call.id not in known and result is not None and not result.is_error:
                acted.append(_acted(call.name, Backing.DONE, roster))
    offered = [_acted(name, Backing.NOTHING, roster) for name in roster.tools]
    return unbacked_claims(text, acted, offered)


def _acted(name: str, backing: Backing, roster: Roster) -> ActedCall:
    tool = roster.tools.get(name)
    if tool is None:
        return ActedCall(name=name, backing=backing)
    return ActedCall(name=name, description=tool.description or "", backing=backing, acts=tool.settings.side_effect)
