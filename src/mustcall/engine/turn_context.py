"""What one turn is about, in one value: the caller's request, where it goes, and what turns of a process share."""

from itertools import chain
from typing import Protocol

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationLog
from mustcall.core.limits import DEFAULTS, GatewayLimits
from mustcall.core.origin import Wire
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.engine.exchange import Inbound
from mustcall.engine.records import TurnProgress, TurnRecord
from mustcall.engine.replies.issuing import IssuedStates
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.wording import Wording
from mustcall.policy.turn.state import TurnState
from mustcall.profiles import Learnt
from mustcall.telemetry.stream import PROCESS, EventStream
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.retry import Clock
from mustcall.upstream.seam import Transport
from mustcall.wire.codec import Codec, Provenance
from mustcall.wire.crossing.binding import Binding

__all__ = ["CallTally", "TurnContext", "TurnServices"]


class CallTally(Protocol):
    """Hears what came of each call of a turn, to count what it cost: `engine.spending.metered`."""

    def heard(self, reply: Reply) -> None:
        """Take note of the reply that the call under way gave."""
        ...


class TurnServices(msgspec.Struct, frozen=True, kw_only=True):
    """What turns share: the seams they run on and the settings they keep to."""

    transport: Transport
    clock: Clock
    learnt: Learnt
    issued: IssuedStates = msgspec.field(default_factory=IssuedStates)
    controls: Controls = Controls()
    wording: Wording = Wording()
    limits: GatewayLimits = DEFAULTS
    tally: CallTally | None = None
    events: EventStream = PROCESS


class TurnContext(msgspec.Struct, frozen=True, kw_only=True):
    """One turn's request, destination, state and record.

    `model` is the name to send if it is not the caller's; `takes_bytes` says that the caller can be given the
    upstream's own bytes; `deadline` is in the clock's monotonic seconds.
    """

    services: TurnServices
    inbound: Inbound
    request: Request
    turn_state: TurnState
    endpoint: Endpoint
    #: The upstream's codec, and the kinds its wire carries tools in.
    theirs: Codec
    binding: Binding
    #: Whether caller and upstream speak the same wire.
    same_wire: bool
    progress: TurnProgress
    record: TurnRecord
    deadline: float
    model: str | None = None
    takes_bytes: bool = False
    #: What attempts and the edge changed.
    log: AdaptationLog = msgspec.field(default_factory=AdaptationLog)

    @property
    def token(self) -> str:
        """What makes the ids of the last attempt's reply unique."""
        count = len(self.record.attempts)
        return self.inbound.token if count <= 1 else f"{self.inbound.token}r{count - 1}"

    @property
    def provenance(self) -> Provenance:
        """Where the last attempt's reply comes from."""
        return Provenance(issuer=self.turn_state.issuer, token=self.token, crosses=not self.same_wire)

    @property
    def forwards(self) -> bool:
        """Whether the upstream's bytes may go out: Responses repeats its request, which must be the caller's own."""
        own = self.inbound.wire is not Wire.RESPONSES or self.turn_state.shaped().request is self.request
        return self.takes_bytes and own and self.same_wire and len(self.record.attempts) == 1

    @property
    def adaptations(self) -> tuple[Adaptation, ...]:
        """What was changed so far."""
        turn_state = self.turn_state
        lists = (turn_state.plan.demand.notes, turn_state.log.entries, turn_state.isolation.notes, self.log.entries)
        return tuple(dict.fromkeys(chain(*lists))) if any(lists) else ()
