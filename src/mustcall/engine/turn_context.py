"""What turns share, and what one turn was told: the seams they run on and the settings they keep to."""

from typing import Protocol

import msgspec

from mustcall.core.adaptation import Adaptation
from mustcall.core.limits import DEFAULTS, GatewayLimits
from mustcall.core.reply import Reply
from mustcall.engine.issuing import IssuedStates
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.wording import Wording
from mustcall.profiles import Learnt
from mustcall.telemetry.stream import PROCESS, EventStream
from mustcall.upstream.retry import Clock
from mustcall.upstream.seam import Transport

__all__ = ["CallTally", "TurnContext"]


class CallTally(Protocol):
    """Hears what came of each call of a turn, to count what it cost: `engine.spending.metered`."""

    def heard(self, reply: Reply) -> None:
        """Take note of the reply that the call under way gave."""
        ...


class TurnContext(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings of one turn."""

    transport: Transport
    clock: Clock
    learnt: Learnt
    issued: IssuedStates = msgspec.field(default_factory=IssuedStates)
    controls: Controls = Controls()
    wording: Wording = Wording()
    limits: GatewayLimits = DEFAULTS
    notes: tuple[Adaptation, ...] = ()
    tally: CallTally | None = None
    events: EventStream = PROCESS

    @property
    def metadata(self) -> bool:
        """Whether the record of the turn is added to the body."""
        return self.controls.metadata
