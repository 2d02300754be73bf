"""The settings of a budget, and the account that pays for one run or request.

An account belongs to one session and one turn. Gateway and library open one before a turn. The calls of the turn go
through `engine.spending.metered`, which checks the account before each call and charges it afterwards. A turn without
an account has no extra cost. Accounting never fails a request (rule 98): an exception of a meter is logged, and the
call continues.
"""

from collections.abc import Awaitable
from typing import TypeVar

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationKind
from mustcall.core.errors import BreakerOpen, BudgetSpent, ConfigError, ToolRefused
from mustcall.engine.spending.accounts import MemoryBreakers, MemoryMeter
from mustcall.engine.spending.metering import Breakers, Meter
from mustcall.policy.facts.checking import read_choices
from mustcall.policy.failures.breaker import BreakerRule
from mustcall.policy.failures.breaker_classes import FailureClass
from mustcall.policy.limits.budget import (
    CapMode,
    Caps,
    Charge,
    ChargeKey,
    CostCap,
    ModelPrice,
    NextCall,
    Price,
    Trip,
    TurnCap,
    next_call,
    trip_turn,
    weigh_turn,
)
from mustcall.profiles.prices import Prices
from mustcall.telemetry.logs import log_of
from mustcall.telemetry.stream import PROCESS, EventStream
from mustcall.upstream.retry import Clock

__all__ = [
    "BreakerOpen",
    "BreakerRule",
    "Budget",
    "BudgetAccount",
    "CapMode",
    "Caps",
    "MemoryMeter",
    "Meter",
    "Metering",
    "ModelPrice",
    "Price",
    "TurnCap",
    "check_budget",
]

_logger = log_of("mustcall.budget")

_NO_CAPS = Caps()
_T = TypeVar("_T")


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on cost, tokens, calls and time.

    `caps` apply to a session. `mode` is the effect of a reached cap: refuse the call (`enforce`), report it (`warn`),
    or nothing (`off`). `turn` limits the cost of one request at the gateway or one run of an agent. `prices` override
    the known prices. `breaker` configures the circuit breaker of an upstream; None disables it.
    """

    caps: Caps = Caps()
    mode: CapMode = CapMode.ENFORCE
    turn: TurnCap = TurnCap()
    prices: tuple[ModelPrice, ...] = ()
    breaker: BreakerRule | None = None
    #: Output tokens that are reserved for a call while it runs, beside its input.
    expected_output_tokens: int = 1000

    def __post_init__(self) -> None:
        """Take the word of a mode; raise `ConfigError` for others."""
        read_choices(self, {"mode": CapMode})


def check_budget(budget: Budget, where: str = "budget") -> None:
    """Raise `ConfigError` for what cannot be meant."""
    numbers: dict[str, float] = {
        **msgspec.structs.asdict(budget.caps),
        "turn_cost_usd": budget.turn.cost_usd,
        "expected_output_tokens": budget.expected_output_tokens,
    }
    if budget.breaker is not None:
        numbers |= {f"breaker {name}": value for name, value in msgspec.structs.asdict(budget.breaker).items()}
    for entry in budget.prices:
        for name in ("input", "output", "cached", "cache_write"):
            numbers[f"price of {entry.model!r}: {name}"] = getattr(entry.price, name) or 0.0
    for name, value in numbers.items():
        if not 0 <= value < float("inf"):
            raise ConfigError(f"{where}: {name} must be 0 or more, got {value}")
    Prices(budget.prices)  # reads the patterns


class Metering:
    """A budget and where its accounts and breakers are kept."""

    def __init__(
        self,
        budget: Budget,
        clock: Clock,
        *,
        meter: Meter | None = None,
        breakers: Breakers | None = None,
        events: EventStream = PROCESS,
    ) -> None:
        self.budget = budget
        self.clock = clock
        self.meter: Meter = meter or MemoryMeter(clock)
        self.breakers: Breakers = breakers or MemoryBreakers(clock, events)
        self.prices = Prices(budget.prices)
        #: The caps that bound calls; what tools fetched keeps no model from answering (rules 94, 99).
        self.call_caps: Caps = msgspec.structs.replace(budget.caps, egress_bytes=0, hosts=0)

    def open(self, session: str | None, turn: str, *, turn_cost_usd: float = 0.0) -> "BudgetAccount":
        """Return the account of one turn. Without a session it is temporary, and nothing is stored (rule 116).

        `turn_cost_usd` is a caller's own cap on the turn: it can lower the operator's and is enforced.
        """
        return BudgetAccount(self, session, turn, turn_cost_usd)


class BudgetAccount:
    """What one turn may spend and has spent. `notes` are for the turn's adaptations."""

    def __init__(self, metering: Metering, session: str | None, turn: str, turn_cost_usd: float = 0.0) -> None:
        budget = metering.budget
        self.metering = metering
        self.turn = turn
        self.session = session or f"turn:{turn}"
        self._meter: Meter = MemoryMeter(metering.clock) if session is None else metering.meter
        own = budget.turn
        if turn_cost_usd > 0 and not (own.mode is CapMode.ENFORCE and 0 < own.cost_usd <= turn_cost_usd):
            own = TurnCap(cost_usd=turn_cost_usd, mode=CapMode.ENFORCE)
        self._cap = own
        self._final = False
        self._fetches = 0
        self.spent = Charge()
        self.notes: dict[Adaptation, None] = {}

    # --- the turn's own cap ------------------------------------------------------------------------------------------

    @property
    def next(self) -> NextCall:
        """What the turn may do next (rule 95)."""
        return next_call(self._cap, self.spent.cost_usd, final_granted=self._final)

    @property
    def cost_cap(self) -> CostCap | None:
        """How the turn stands against its cap, None if it has none."""
        return weigh_turn(self._cap, self.spent.cost_usd) if self._cap.cost_usd > 0 else None

    # --- calls -------------------------------------------------------------------------------------------------------

    def price(self, model: str, base_url: str) -> Price | None:
        """Return what a model costs, None if that is not known."""
        return self.metering.prices.of(model, base_url)

    async def reserve(self, key: ChargeKey, expected: Charge) -> None:
        """Count a call that is about to start; raise `BudgetSpent` where a cap is reached (rules 94, 95)."""
        cap = self.cost_cap
        if self.next is NextCall.STOP and cap is not None:
            raise self._refusal(trip_turn(cap))
        if cap is not None and cap.exceeded and not cap.blocked:
            self._note("turn_cost_cap", f"{cap.observed_usd:.6g} of {cap.cap_usd:.6g} US dollars")
        budget = self.metering.budget
        if budget.mode is CapMode.OFF:
            return
        trip = await _quietly(self._meter.reserve(self.session, key, expected, self.metering.call_caps), None)
        if trip is None:
            return
        if budget.mode is CapMode.ENFORCE:
            raise self._refusal(trip)
        self._note(trip.error_code, trip.error)
        await _quietly(self._meter.reserve(self.session, key, expected, _NO_CAPS), None)

    async def settle(self, key: ChargeKey, actual: Charge, *, answered: bool) -> None:
        """End a call with what it cost; `answered` says that a reply of the model's came."""
        if answered and self.next is NextCall.FINAL_ROUND:
            self._final = True
        self.spent += actual
        if self.metering.budget.mode is not CapMode.OFF:
            await _quietly(self._meter.settle(self.session, key, actual), None)

    async def recover(self, paid: Charge) -> None:
        """Count what was paid before a run was interrupted; the accounts of a session have it already."""
        self.spent += paid
        if self._meter is not self.metering.meter:
            await _quietly(self._meter.settle(self.session, ChargeKey(self.turn, "recovered", 1), paid), None)

    async def release(self, key: ChargeKey) -> None:
        """End a call that was never made."""
        if self.metering.budget.mode is not CapMode.OFF:
            await _quietly(self._meter.release(self.session, key), None)

    def _refusal(self, trip: Trip) -> BudgetSpent:
        _logger.warning("turn %s of session %s: %s", self.turn, self.session[:40], trip.error)
        return BudgetSpent(f"{trip.error}; {trip.operator_hint}", details=trip.details())

    def _note(self, subject: str, detail: str) -> None:
        note = Adaptation(AdaptationKind.REPORTED, subject, detail)
        if all(known.subject != subject for known in self.notes):
            self.notes[note] = None
            _logger.warning("turn %s of session %s: %s", self.turn, self.session[:40], detail)

    # --- breakers ----------------------------------------------------------------------------------------------------

    async def allow(self, upstream: str, called: str) -> None:
        """Raise `BreakerOpen` where the circuit of an upstream is open; `called` is its name for people."""
        rule = self.metering.budget.breaker
        if rule is None:
            return
        open_ = await _quietly(self.metering.breakers.allow(upstream, rule), None)
        if open_ is None:
            return
        failure, left = open_
        _logger.warning("turn %s: circuit of upstream %s open for %.1f s: %s", self.turn, called, left, failure)
        raise BreakerOpen(
            f"the upstream {called!r} failed {rule.failures} times in a row ({failure}); its circuit is open for "
            f"another {left:.1f} seconds; no call was made",
            retry_after=left,
            details={"upstream": called, "failure": str(failure), "retry_after": round(left, 3), "transient": True},
        )

    async def report(self, upstream: str, failure: FailureClass | None) -> None:
        """Say how an allowed call ended for its upstream: well, or badly."""
        rule = self.metering.budget.breaker
        if rule is not None:
            await _quietly(self.metering.breakers.report(upstream, rule, failure), None)

    async def forgo(self, upstream: str) -> None:
        """Say that an allowed call told nothing of its upstream."""
        rule = self.metering.budget.breaker
        if rule is not None:
            await _quietly(self.metering.breakers.forgo(upstream, rule), None)

    # --- what tools fetch: an `Egress` -------------------------------------------------------------------------------

    async def visit(self, host: str) -> int | None:
        """Ask before a host is called; return the bytes that may still come in (rule 99)."""
        budget = self.metering.budget
        caps = budget.caps if budget.mode is CapMode.ENFORCE else _NO_CAPS
        if not await _quietly(self._meter.visit(self.session, host, caps.hosts), True):
            raise ToolRefused(f"the session may call no more than {caps.hosts} hosts, and this is a new one")
        return await self._egress_left(caps.egress_bytes)

    async def charge(self, size: int) -> None:
        """Count bytes that came in; raise `ToolRefused` once the cap is reached."""
        self._fetches += 1
        key = ChargeKey(self.turn, "egress", self._fetches)
        charge = Charge(egress_bytes=max(0, size))
        self.spent += charge
        budget = self.metering.budget
        if budget.mode is CapMode.OFF:
            return
        await _quietly(self._meter.settle(self.session, key, charge), None)
        if budget.mode is CapMode.ENFORCE:
            await self._egress_left(budget.caps.egress_bytes)

    async def _egress_left(self, most: int) -> int | None:
        if not most:
            return None
        account = await _quietly(self._meter.spending(self.session), None)
        left = most if account is None else most - account.spent.egress_bytes
        if left <= 0:
            raise ToolRefused(f"the session's egress cap of {most} bytes is reached")
        return left


async def _quietly(asked: Awaitable[_T], otherwise: _T) -> _T:
    """Await an account or a breaker; what it raises is logged and no more (rule 98)."""
    try:
        return await asked
    except Exception as error:  # a store of any make
        _logger.warning("accounting failed: %s", type(error).__name__)
        _logger.debug("accounting", exc_info=True)
        return otherwise
