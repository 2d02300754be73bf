"""What has been spent and whether more may be: session caps, the cap of one turn, prices (rules 93 to 98).

Every value is frozen and every function returns a new one; the time of day comes in. Where the counters are kept, and
what a spent budget looks like on a wire, is decided elsewhere. Nothing here raises, whatever an upstream reports: an
odd count is read as nothing rather than as a credit.
"""

import math
from enum import StrEnum
from typing import assert_never

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.core.reply import Usage
from mustcall.policy.facts.checking import read_choices

__all__ = [
    "BudgetKind",
    "CapMode",
    "Caps",
    "Charge",
    "ChargeKey",
    "CostCap",
    "ModelPrice",
    "NextCall",
    "Price",
    "Spending",
    "Trip",
    "TurnCap",
    "charge_for",
    "check",
    "has_time",
    "next_call",
    "release",
    "reserve",
    "settle",
    "trip_turn",
    "weigh_turn",
]

_MILLION = 1_000_000
#: Sums of floats miss round caps by less than this; 0.1 ten times over is 1.0.
_ROUNDING = 1e-9


class BudgetKind(StrEnum):
    """What can run out."""

    CALLS = "calls"
    COST = "cost"
    TOKENS = "tokens"
    TIME = "time"
    EGRESS = "egress"


class Caps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one session; 0 is no limit (rule 94).

    `calls` are upstream calls, including retries. `egress_bytes` and `hosts` limit what tools fetch (rule 99).
    """

    cost_usd: float = 0.0
    tokens: int = 0
    calls: int = 0
    seconds: float = 0.0
    egress_bytes: int = 0
    hosts: int = 0


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """What one upstream call or tool execution costs. `estimated` says that a price or a count was not known."""

    cost_usd: float = 0.0
    tokens: int = 0
    calls: int = 0
    egress_bytes: int = 0
    estimated: bool = False

    def __add__(self, other: "Charge") -> "Charge":
        return Charge(
            cost_usd=self.cost_usd + other.cost_usd,
            tokens=self.tokens + other.tokens,
            calls=self.calls + other.calls,
            egress_bytes=self.egress_bytes + other.egress_bytes,
            estimated=self.estimated or other.estimated,
        )

    def __sub__(self, other: "Charge") -> "Charge":
        """Take a charge off again, never below nothing; what was estimated stays so."""
        return Charge(
            cost_usd=max(0.0, self.cost_usd - other.cost_usd),
            tokens=max(0, self.tokens - other.tokens),
            calls=max(0, self.calls - other.calls),
            egress_bytes=max(0, self.egress_bytes - other.egress_bytes),
            estimated=self.estimated,
        )


class ChargeKey(msgspec.Struct, frozen=True):
    """What a charge is for: the turn (or run), its step, and the how-manieth call in it. One key is charged once."""

    turn: str
    step: str
    attempt: int


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """One session's account: since when, what is spent, and what is reserved for calls that still run (rule 93)."""

    started: float
    spent: Charge = Charge()
    in_flight: Charge = Charge()
    #: Calls that still run. At none the reservations are nothing, whatever rounding left of them.
    running: int = 0


class Trip(msgspec.Struct, frozen=True, kw_only=True):
    """A cap that is reached, in the words of rule 94."""

    error: str
    error_code: str
    error_kind: BudgetKind
    operator_hint: str
    transient: bool = False

    def details(self) -> JsonObject:
        """Return the trip as the fields of an error body."""
        return {
            "error": self.error,
            "error_code": self.error_code,
            "error_kind": self.error_kind.value,
            "operator_hint": self.operator_hint,
            "transient": self.transient,
        }


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars per million tokens. By default cached and newly cached input cost the same as input.

    `long` is the price of a call with more than `long_above` input tokens.
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None
    long_above: int = 0
    long: "Price | None" = None


class ModelPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model name or pattern (`gpt-*`) and its price."""

    model: str
    price: Price


class CapMode(StrEnum):
    """What a turn's cost cap does (rule 95)."""

    WARN = "warn"
    ENFORCE = "enforce"
    OFF = "off"


class TurnCap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The maximum cost of one turn; 0 is no cap."""

    cost_usd: float = 0.0
    mode: CapMode = CapMode.WARN

    def __post_init__(self) -> None:
        """Take the word of a mode; raise `ConfigError` for others."""
        read_choices(self, {"mode": CapMode})


class CostCap(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn stands against its cap: the record that is reported."""

    cap_usd: float
    observed_usd: float
    mode: CapMode
    exceeded: bool
    blocked: bool


class NextCall(StrEnum):
    """What may come next inside a turn."""

    GO = "go"
    FINAL_ROUND = "final_round"  # no further inner call; one round to answer with what there is
    STOP = "stop"


def charge_for(usage: Usage | None, price: Price | None) -> Charge:
    """Return what a reply costs; an unknown price, or no usage, gives cost 0 and says `estimated` (rule 98)."""
    if usage is None:
        return Charge(estimated=True)
    given, written = max(0, usage.input_tokens), max(0, usage.output_tokens)
    tokens = given + written
    if price is None:
        return Charge(tokens=tokens, estimated=True)
    if price.long is not None and given > price.long_above:
        price = price.long
    cached = min(max(0, usage.cached_tokens), given)
    stored = min(max(0, usage.cache_write_tokens), given - cached)
    dollars = (
        (given - cached - stored) * price.input
        + cached * (price.input if price.cached is None else price.cached)
        + stored * (price.input if price.cache_write is None else price.cache_write)
        + written * price.output
    ) / _MILLION
    if not math.isfinite(dollars):
        return Charge(tokens=tokens, estimated=True)
    return Charge(cost_usd=max(0.0, dollars), tokens=tokens)


def reserve(spending: Spending, expected: Charge) -> Spending:
    """Count a call that is about to start, with what it is expected to cost."""
    return msgspec.structs.replace(
        spending, in_flight=spending.in_flight + expected, running=max(0, spending.running) + 1
    )


def settle(spending: Spending, expected: Charge, actual: Charge) -> Spending:
    """End a call that was reserved: its real cost takes the place of the expected one."""
    return release(msgspec.structs.replace(spending, spent=spending.spent + actual), expected)


def release(spending: Spending, expected: Charge) -> Spending:
    """End a call that was reserved and cost nothing."""
    running = max(0, spending.running - 1)
    in_flight = spending.in_flight - expected if running else Charge()
    return msgspec.structs.replace(spending, in_flight=in_flight, running=running)


def check(caps: Caps, spending: Spending, now: float) -> Trip | None:
    """Return the first cap that is reached, None if an upstream call may start (rule 94).

    Asked before each upstream call, retries included. What runs counts as spent, and reaching a cap is enough.
    """
    used = spending.spent + spending.in_flight
    for kind, cap, amount in (
        (BudgetKind.COST, caps.cost_usd, used.cost_usd),
        (BudgetKind.TOKENS, caps.tokens, used.tokens),
        (BudgetKind.CALLS, caps.calls, used.calls),
        (BudgetKind.TIME, caps.seconds, now - spending.started),
        (BudgetKind.EGRESS, caps.egress_bytes, used.egress_bytes),
    ):
        if _is_reached(amount, cap):
            # What only runs may come back cheaper than reserved, so the same request can pass a little later.
            settled = spending.spent.cost_usd if kind is BudgetKind.COST else spending.spent.tokens
            transient = kind in (BudgetKind.COST, BudgetKind.TOKENS) and not _is_reached(settled, cap)
            return _trip(kind, cap, amount, transient=transient)
    return None


def weigh_turn(cap: TurnCap, observed_usd: float) -> CostCap:
    """Return how a turn stands against its cost cap (rule 95)."""
    exceeded = cap.mode is not CapMode.OFF and _is_reached(observed_usd, cap.cost_usd)
    return CostCap(
        cap_usd=cap.cost_usd,
        observed_usd=observed_usd,
        mode=cap.mode,
        exceeded=exceeded,
        blocked=exceeded and cap.mode is CapMode.ENFORCE,
    )


def trip_turn(cap: CostCap) -> Trip:
    """Return the refusal of a turn that has spent its cap and its final round (rules 89, 95)."""
    return Trip(
        error=f"the turn's cost cap is exceeded: {cap.observed_usd:.6g} of {cap.cap_usd:.6g} US dollars",
        error_code="cost_cap_exceeded",
        error_kind=BudgetKind.COST,
        operator_hint="raise the turn's cost cap, or set its mode to warn",
    )


def next_call(cap: TurnCap, observed_usd: float, *, final_granted: bool) -> NextCall:
    """Return what a turn may do next: enforcing refuses the next inner call and grants one final round (rule 95)."""
    match cap.mode:
        case CapMode.OFF | CapMode.WARN:
            return NextCall.GO
        case CapMode.ENFORCE:
            if not _is_reached(observed_usd, cap.cost_usd):
                return NextCall.GO
            return NextCall.STOP if final_granted else NextCall.FINAL_ROUND
        case _:
            assert_never(cap.mode)


def has_time(deadline: float, now: float, least_seconds: float) -> bool:
    """Tell whether an attempt may still start: at least the minimum must be left (rule 97)."""
    return deadline - now >= least_seconds


def _is_reached(amount: float, cap: float) -> bool:
    return cap > 0 and amount + _ROUNDING >= cap


_WORDS = {
    BudgetKind.COST: ("cost", "US dollars", "cost_usd"),
    BudgetKind.TOKENS: ("token", "tokens", "tokens"),
    BudgetKind.CALLS: ("call", "calls", "calls"),
    BudgetKind.TIME: ("time", "seconds", "seconds"),
    BudgetKind.EGRESS: ("egress", "bytes", "egress_bytes"),
}


def _trip(kind: BudgetKind, cap: float, amount: float, *, transient: bool) -> Trip:
    noun, unit, field = _WORDS[kind]
    wait = "wait for running calls to end, " if transient else ""
    return Trip(
        error=f"the session's {noun} cap is reached: {amount:.6g} of {cap:.6g} {unit}",
        error_code=f"session_{noun}_cap",
        error_kind=kind,
        operator_hint=f"{wait}raise {field} in the caps, or start a new session",
        transient=transient,
    )
