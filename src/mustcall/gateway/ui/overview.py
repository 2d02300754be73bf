"""The start page in numbers: rates per model, what was repaired, what was learnt, breakers, budgets."""

from time import time
from typing import Any, NamedTuple

import msgspec

from mustcall.core.verdict import GONE, OutcomeKind
from mustcall.engine.spending.accounts import MemoryBreakers, MemoryMeter
from mustcall.engine.spending.budget_account import Metering
from mustcall.evals.report.statistics import Share, share_of
from mustcall.gateway.state.trace_keeper import TraceKeeper
from mustcall.ledger import TurnGroup, TurnSums
from mustcall.policy.limits.budget import Spending
from mustcall.policy.turn.remedy import ACCEPTED
from mustcall.profiles import Learnt

__all__ = ["breakers_of", "budget_of", "learnt_of", "rates_of", "repairs_of"]

_MOST_MODELS = 50
_MOST_REPAIRS = 12
_MOST_FACTS = 200
_DELIVERED = frozenset({str(OutcomeKind.CALLS), str(OutcomeKind.ANSWER)})
_GOOD = frozenset(str(verdict) for verdict in ACCEPTED)


class _Model(NamedTuple):
    turns: int
    #: Turns whose first attempt was already what was asked for; turns that ended well; those among the others.
    first: Share
    delivered: Share
    repaired: Share


def rates_of(sums: TurnSums) -> list[dict[str, Any]]:
    """Return a row for each model, the busiest first. Turns without a verdict were passed through and count nowhere."""
    models: dict[tuple[str, str], list[TurnGroup]] = {}
    for group in sums.groups:
        models.setdefault((group.upstream, group.model), []).append(group)
    rows: list[dict[str, Any]] = []
    for (upstream, model), groups in models.items():
        rates = _rates(groups)
        rows.append(
            {
                "upstream": upstream,
                "model": model,
                "turns": rates.turns,
                "first": _share(rates.first),
                "delivered": _share(rates.delivered),
                "repaired": _share(rates.repaired),
                "input_tokens": sum(group.input_tokens for group in groups),
                "output_tokens": sum(group.output_tokens for group in groups),
                "cost_usd": sum(group.cost_usd for group in groups),
                "seconds": sum(group.seconds for group in groups) / max(1, rates.turns),
            }
        )
    rows.sort(key=lambda row: (-row["turns"], row["upstream"], row["model"]))
    return rows[:_MOST_MODELS]


def _rates(groups: list[TurnGroup]) -> _Model:
    judged = [group for group in groups if group.outcome not in (None, GONE)]
    total = sum(group.count for group in judged)
    good = sum(group.count for group in judged if _was_good(group))
    ended = sum(group.count for group in judged if group.outcome in _DELIVERED)
    mended = sum(group.count for group in judged if group.outcome in _DELIVERED and not _was_good(group))
    turns = sum(group.count for group in groups)
    return _Model(turns, share_of(good, total), share_of(ended, total), share_of(mended, total - good))


def _was_good(group: TurnGroup) -> bool:
    """Tell whether the model's first reply was what was asked for, as it came."""
    return group.first in _GOOD and not group.mended


def _share(share: Share) -> dict[str, Any]:
    return {**msgspec.structs.asdict(share), "rate": share.rate}


def repairs_of(sums: TurnSums) -> dict[str, Any]:
    """Return what was wrong with attempts and what was done about it, and what was changed on the way."""
    wrong = [
        {"verdict": verdict, "remedy": remedy, "count": count}
        for verdict, remedy, count in sums.attempts
        if verdict and verdict not in _GOOD
    ]
    return {
        "attempts": wrong[:_MOST_REPAIRS],
        "changes": [{"kind": kind, "count": count} for kind, count in sums.changes[:_MOST_REPAIRS]],
    }


def learnt_of(learnt: Learnt, tenant: str) -> list[dict[str, Any]]:
    """Return what turns taught, the latest first; a tenant sees its own."""
    facts = sorted((one for one in learnt.facts() if tenant in ("", one.tenant)), key=lambda one: -one.at)
    return [
        {
            "upstream": one.endpoint,
            "model": one.model,
            "field": one.field,
            "value": msgspec.to_builtins(one.fact.value),
            "note": one.fact.note or "",
            "seen": one.seen,
            "at": one.at,
            "expired": one.is_expired(time()),
        }
        for one in facts[:_MOST_FACTS]
    ]


async def breakers_of(metering: Metering | None, keeper: TraceKeeper | None) -> list[dict[str, Any]]:
    """Return the breakers that have ever counted a failure."""
    if metering is None:
        return []
    if keeper is not None and keeper.is_open:
        rows = await keeper.ledger.breakers()
        return [
            {"name": row.name, "state": row.state, "failures": row.failures, "ago": max(0.0, row.now - row.since)}
            for row in rows
        ]
    breakers = metering.breakers
    return breakers.states() if isinstance(breakers, MemoryBreakers) else []


async def budget_of(metering: Metering | None, keeper: TraceKeeper | None, *, sessions: bool) -> dict[str, Any] | None:
    """Return the caps and what sessions have used of them; None where there is no budget."""
    if metering is None:
        return None
    budget = metering.budget
    accounts: list[tuple[str, Spending, float]] = []
    if sessions and keeper is not None and keeper.is_open:
        accounts = await keeper.ledger.accounts(most=20)
    elif sessions and isinstance(metering.meter, MemoryMeter):
        accounts = metering.meter.accounts(20)
    return {
        "mode": str(budget.mode),
        "caps": {name: value for name, value in msgspec.structs.asdict(budget.caps).items() if value},
        "turn": {"cost_usd": budget.turn.cost_usd, "mode": str(budget.turn.mode)} if budget.turn.cost_usd else None,
        "sessions": [_account(*account) for account in accounts],
    }


def _account(session: str, spending: Spending, now: float) -> dict[str, Any]:
    return {
        "session": session,
        "cost_usd": spending.spent.cost_usd,
        "estimated": spending.spent.estimated,
        "tokens": spending.spent.tokens,
        "calls": spending.spent.calls,
        "egress_bytes": spending.spent.egress_bytes,
        "seconds": max(0.0, now - spending.started),
        "running": spending.running,
    }
