"""The gateway's budget: `[budget]`, `[breaker]` and `[[price]]`, the environment over them, and whose session it is.

A session is what a caller names, kept apart by the caller's key; or the key alone. Neither is kept or logged: the
account goes by a digest of both.
"""

import hashlib
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from mustcall.engine.spending.budget_account import Budget, check_budget
from mustcall.gateway.config.environment import over_some
from mustcall.policy.failures.breaker import BreakerRule
from mustcall.policy.limits.budget import CapMode, Caps, ModelPrice, Price, TurnCap

__all__ = ["BudgetSettings", "PriceSettings", "SessionBy", "describe_budget", "read_budget", "session_of"]


class SessionBy(StrEnum):
    """What a session is: what the caller names (its key where it names none), or its key whatever it names."""

    SESSION = "session"
    KEY = "key"


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[budget]`: the most a session may use; 0 is no cap. Each field is also `MUSTCALL_BUDGET_<FIELD>`."""

    #: What a reached cap of the session does: `enforce` refuses, `warn` reports, `off` counts nothing.
    mode: CapMode = CapMode.ENFORCE
    cost_usd: float = 0.0
    tokens: int = 0
    calls: int = 0
    seconds: float = 0.0
    egress_bytes: int = 0
    hosts: int = 0
    #: The most one request may cost, and what reaching it does.
    turn_cost_usd: float = 0.0
    turn_mode: CapMode = CapMode.WARN
    expected_output_tokens: int = 1000
    by: SessionBy = SessionBy.SESSION


class PriceSettings(Price, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[price]]`: what the models of a pattern cost, over what mustcall knows."""

    model: str


def read_budget(
    budget: BudgetSettings | None,
    breaker: BreakerRule | None,
    prices: Sequence[PriceSettings],
    env: Mapping[str, str],
    where: str,
) -> tuple[Budget | None, SessionBy]:
    """Return the budget of a configuration, None if there is none; raise `ConfigError` naming the place."""
    budget = over_some(budget, BudgetSettings, "MUSTCALL_BUDGET_", env)
    breaker = over_some(breaker, BreakerRule, "MUSTCALL_BREAKER_", env)
    if budget is None and breaker is None and not prices:
        return None, SessionBy.SESSION
    given = budget or BudgetSettings()
    made = Budget(
        caps=Caps(**{name: getattr(given, name) for name in Caps.__struct_fields__}),
        mode=given.mode,
        turn=TurnCap(cost_usd=given.turn_cost_usd, mode=given.turn_mode),
        prices=tuple(ModelPrice(model=price.model, price=_plain(price)) for price in prices),
        breaker=breaker,
        expected_output_tokens=given.expected_output_tokens,
    )
    check_budget(made, f"{where}: budget")
    return made, given.by


def session_of(named: str | None, key: str | None, by: SessionBy) -> str | None:
    """Return the session a request belongs to, None if it is its own and nothing of it is kept (rule 116)."""
    if by is SessionBy.KEY:
        named = ""
        key = key or ""  # callers without a key share one account
    if not named and key is None:
        return None
    return hashlib.sha256(f"{key or ''}\0{named or ''}".encode("utf-8", "surrogateescape")).hexdigest()[:32]


def describe_budget(budget: Budget, by: SessionBy) -> list[str]:
    """Return what a budget says, for people."""
    caps = [f"{value:g} {name}" for name, value in msgspec.structs.asdict(budget.caps).items() if value]
    lines = [f"{', '.join(caps) or 'no cap'} for each {by} ({budget.mode})"]
    if budget.turn.cost_usd:
        lines.append(f"{budget.turn.cost_usd:g} cost_usd for each request ({budget.turn.mode})")
    lines += [f"{entry.model} costs {entry.price.input:g} in, {entry.price.output:g} out" for entry in budget.prices]
    return lines


def _plain(price: PriceSettings) -> Price:
    return Price(**{name: getattr(price, name) for name in Price.__struct_fields__})
