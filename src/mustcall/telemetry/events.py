"""What is told of the work, as one closed set of typed values (rule 117). No contents, no keys.

A finished turn is one `TurnEnded` with its attempts inside. What happened on its way (a detection, a repair, a retry, a
refusal, a dropped force) is in it; `unfold` makes an event of each, for whoever wants them one by one. What does not
belong to the end of a turn (breakers, learnt facts, budgets, tools) is told when it happens.

    Event
    ├── TurnEnded        a request is over: its outcome, attempts, tokens, cost, times
    ├── Detected         an attempt's reply was not what was asked for; class: the verdict
    ├── Retried          another upstream call followed; class: the remedy, or `transport`
    ├── Repaired         a request or reply was changed; class: the kind of adaptation
    ├── ForceDropped     a demanded call was not demanded from the model; class: `force_dropped`
    ├── Refused          a request ended in an error before a reply was judged; class: the error's code
    ├── BudgetTripped    a cap was reached; class: the cap's code
    ├── BreakerChanged   a breaker opened, closed, or lets one call through; class: the new state
    ├── FactLearnt       a turn taught something about a model; class: the profile's field
    ├── EndpointMeasured a probe in the background is over; class: `measured` or `failed`
    ├── EndpointDrifted  a guarantee of an endpoint is not what it was; class: the probe's cell
    ├── ToolEnded        a tool of an agent was run; class: the call's status
    └── RunEnded         a run of an agent is over; class: what stopped it
"""

from collections.abc import Iterator

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationKind
from mustcall.core.reply import Reply
from mustcall.core.verdict import TOOL_PROBE, Verdict

__all__ = [
    "HEALTHY",
    "REPAIRS",
    "AttemptEnd",
    "BreakerChanged",
    "BudgetTripped",
    "Contents",
    "Detected",
    "EndpointDrifted",
    "EndpointMeasured",
    "Event",
    "FactLearnt",
    "ForceDropped",
    "Refused",
    "Repaired",
    "Retried",
    "RunEnded",
    "ToolEnded",
    "TurnEnded",
    "unfold",
]

#: Verdicts that are nothing to detect.
HEALTHY = frozenset({Verdict.ANSWERED, Verdict.CALLED, TOOL_PROBE})
#: Words of attempts whose reply was not judged.
_UNJUDGED = frozenset({"", TOOL_PROBE, Verdict.REJECTED, Verdict.UNAVAILABLE})
#: Adaptations that change a request or a reply. The others say what was noticed, and have events of their own.
REPAIRS = frozenset(AdaptationKind) - {
    AdaptationKind.ESTIMATED,
    AdaptationKind.FORCE_DROPPED,
    AdaptationKind.LEARNT,
    AdaptationKind.REPORTED,
    AdaptationKind.RETRIED,
}


class Event(msgspec.Struct, frozen=True, gc=False, tag_field="event", tag=str.lower):
    """What every event says: when, of which request, where it went, and which class it is of.

    `attempt` counts from 1; 0 is the whole turn. Fields that do not apply are empty.
    """

    at: float
    request_id: str = ""
    session: str = ""
    upstream: str = ""
    model: str = ""
    wire: str = ""
    attempt: int = 0
    class_: str = msgspec.field(default="", name="class")


class AttemptEnd(msgspec.Struct, frozen=True, gc=False):
    """One attempt of a finished turn. Times are in seconds; `after` counts from the beginning of the turn."""

    after: float
    seconds: float
    #: Until the upstream's status and headers were there; 0 if they never were.
    first_byte: float
    rung: str
    #: Empty if it ended before a verdict.
    verdict: str
    remedy: str
    #: Upstream calls, transport retries included.
    sends: int
    error: str
    tool: str
    input_tokens: int
    output_tokens: int


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked and said, for those who asked to be told: the caller's body, and the reply it came to."""

    request: bytes
    reply: Reply | None


class TurnEnded(Event, frozen=True, tag="turn_ended"):
    """A request is over; class: its outcome.

    `passed` if nothing was judged, `gone` if the client left before that, empty if it never became a turn.
    """

    route: str = ""
    #: 0 is a client that went away before its answer began, or a turn without HTTP.
    status: int = 0
    seconds: float = 0.0
    #: From the upstream's first byte to the first piece for the caller; None for replies in one piece.
    held: float | None = None
    protocol: str = ""
    force: str = "none"
    #: The code of the error that the caller got.
    error: str = ""
    attempts: tuple[AttemptEnd, ...] = ()
    adaptations: tuple[Adaptation, ...] = ()
    #: Upstream calls of all attempts.
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    estimated: bool = False
    #: Where somebody traces: the model as it was sent, the endpoint's address and wire (empty where it is the
    #: caller's), and why the reply ended.
    sent_model: str = ""
    place: str = ""
    sent_wire: str = ""
    finish: str = ""
    #: The trace that the request belongs to, as W3C Trace Context writes it; empty where nobody traces.
    trace: str = ""
    parent: str = ""
    contents: Contents | None = None


class Detected(Event, frozen=True, kw_only=True, tag="detected"):
    """An attempt's reply was not what was asked for."""

    tool: str = ""


class Retried(Event, frozen=True, kw_only=True, tag="retried"):
    """`attempt` was followed by another one, or sent again `times` times."""

    times: int = 1


class Repaired(Event, frozen=True, kw_only=True, tag="repaired"):
    """A request or a reply was changed."""

    subject: str = ""


class ForceDropped(Event, frozen=True, kw_only=True, tag="force_dropped"):
    """A demanded call was not demanded from the model."""

    subject: str = ""


class Refused(Event, frozen=True, kw_only=True, tag="refused"):
    """A request ended in an error before a reply was judged: the gateway's own, or the upstream's."""

    status: int = 0


class BudgetTripped(Event, frozen=True, kw_only=True, tag="budget_tripped"):
    """A cap was reached. `enforced` says that the call was not made."""

    enforced: bool = True


class BreakerChanged(Event, frozen=True, kw_only=True, tag="breaker_changed"):
    """A breaker of an upstream changed its state; each class of failures has one."""

    failure: str = ""


class FactLearnt(Event, frozen=True, kw_only=True, tag="fact_learnt"):
    """A turn taught something about a model at an endpoint."""

    value: str = ""


class EndpointMeasured(Event, frozen=True, kw_only=True, tag="endpoint_measured"):
    """A probe in the background is over: how many requests it made, and what they cost as far as prices are known."""

    requests: int = 0
    cost_usd: float = 0.0


class EndpointDrifted(Event, frozen=True, kw_only=True, tag="endpoint_drifted"):
    """A guarantee of a model at an endpoint has another verdict than before, seen twice."""

    before: str = ""
    now: str = ""
    worse: bool = False


class ToolEnded(Event, frozen=True, kw_only=True, tag="tool_ended"):
    """A tool of an agent was run."""

    tool: str = ""
    call_id: str = ""
    seconds: float = 0.0
    step: int = 0
    tries: int = 1
    trace: str = ""
    parent: str = ""


class RunEnded(Event, frozen=True, kw_only=True, tag="run_ended"):
    """A run of an agent is over."""

    seconds: float = 0.0
    steps: int = 0
    trace: str = ""
    parent: str = ""


def unfold(ended: TurnEnded) -> Iterator[Event]:
    """Yield what happened on the way of a finished turn, in order, and the turn itself last."""
    known = {name: getattr(ended, name) for name in ("at", "request_id", "session", "upstream", "model", "wire")}
    judged = False
    for number, attempt in enumerate(ended.attempts, 1):
        if attempt.verdict and attempt.verdict not in HEALTHY:
            yield Detected(**known, attempt=number, class_=attempt.verdict, tool=attempt.tool)
        judged = judged or attempt.verdict not in _UNJUDGED
        if attempt.sends > 1:
            yield Retried(**known, attempt=number, class_="transport", times=attempt.sends - 1)
        if number < len(ended.attempts):
            yield Retried(**known, attempt=number, class_=attempt.remedy or "transport")
    for entry in ended.adaptations:
        if entry.kind is AdaptationKind.FORCE_DROPPED:
            yield ForceDropped(**known, class_=str(entry.kind), subject=entry.subject)
        elif entry.kind in REPAIRS:
            yield Repaired(**known, class_=str(entry.kind), subject=entry.subject)
    if ended.error and not judged:
        yield Refused(**known, class_=ended.error, status=ended.status)
    yield ended
