"""Accounts of sessions: what is spent, and what is held for calls that still run, however many replicas make them.

A reservation is refused by the same statement that would make it, so no cap is passed by more than the calls in
flight. A charge is counted once by its key: a replay changes nothing. Cost is kept in billionths of a dollar, because
sums of fractions drift. What a cap means is `policy.limits.budget`'s.
"""

from typing import Any

from mustcall.core.errors import LedgerUnavailable
from mustcall.ledger.stores import statements as sql
from mustcall.ledger.stores.migrations import TABLES
from mustcall.ledger.stores.program import LedgerStatement, Program, Row, ask
from mustcall.policy.limits.budget import Caps, Charge, ChargeKey, Spending, Trip, check

__all__ = ["CapReached", "get_spending", "list_spending", "release", "reserve", "settle", "visit", "write_off"]

_BILLION = 1_000_000_000
#: How often a refusal that the account then does not show is asked again.
_TRIES = 5


class CapReached(Exception):
    """A cap is reached: it undoes the charge and never leaves the ledger."""

    def __init__(self, trip: Trip) -> None:
        super().__init__(trip.error)
        self.trip = trip


def reserve(session: str, key: ChargeKey, expected: Charge, caps: Caps) -> Program[None]:
    """Count a call that is about to start; raise `CapReached` where a cap is reached. A known key changes nothing."""
    rows = yield from ask(sql.CHARGE_PUT, **_key(session, key), **_amounts(expected), settled=0)
    if not rows:
        return
    limits = {
        "cap_cost": _billionths(caps.cost_usd),
        "cap_tokens": caps.tokens,
        "cap_calls": caps.calls,
        "cap_egress": caps.egress_bytes,
        "cap_seconds": float(caps.seconds),
    }
    for _ in range(_TRIES):
        rows = yield from ask(sql.ACCOUNT_RESERVE, session=session, **_amounts(expected), **limits)
        if rows:
            return
        rows = yield from ask(sql.ACCOUNT_GET, session=session)
        if rows:
            trip = check(caps, _spending(rows[0]), rows[0][-1])
            if trip is not None:
                raise CapReached(trip)
    raise LedgerUnavailable("the account of a session changed too fast to be read")


def settle(session: str, key: ChargeKey, actual: Charge) -> Program[None]:
    """End a call with what it cost. One that was never reserved is spent all the same, a settled one stays."""
    rows = yield from ask(sql.CHARGE_SETTLE, **_key(session, key))
    if rows:
        yield from _move(session, actual, rows[0])
        return
    rows = yield from ask(sql.CHARGE_PUT, **_key(session, key), **_amounts(actual), settled=1)
    if rows:
        yield from _move(session, actual, None)


def release(session: str, key: ChargeKey) -> Program[None]:
    """End a reserved call that cost nothing."""
    rows = yield from ask(sql.CHARGE_DROP, **_key(session, key))
    if rows:
        yield from _move(session, Charge(), rows[0])


def write_off(age: float) -> Program[int]:
    """Count as spent what was reserved longer ago than `age` seconds by calls that never came back."""
    rows = yield from ask(sql.CHARGE_STALE, age=age)
    for row in sorted(rows, key=lambda row: row[0]):  # one order for all, so that no two wait for each other
        held = row[1:]
        lost = Charge(cost_usd=held[0] / _BILLION, tokens=held[1], calls=held[2], egress_bytes=held[3], estimated=True)
        yield from _move(row[0], lost, held)
    return len(rows)


def visit(session: str, host: str, most: int) -> Program[bool]:
    """Tell whether a host is the session's own, or may become it."""
    _, rows = yield [
        LedgerStatement(sql.HOST_PUT, {"session": session, "host": host, "most": most}),
        LedgerStatement(sql.HOST_GET, {"session": session, "host": host}),
    ]
    return bool(rows)


def get_spending(session: str) -> Program[Spending]:
    """Return a session's account; one nobody has heard of has spent nothing and starts now."""
    rows = yield from ask(sql.ACCOUNT_GET, session=session)
    if rows:
        return _spending(rows[0])
    rows = yield from ask(sql.NOW)
    return Spending(started=rows[0][0])


def list_spending(most: int) -> Program[list[tuple[str, Spending, float]]]:
    """Return the accounts that were used last, each with the time by the database's clock."""
    rows = yield from ask(sql.ACCOUNT_LIST, most=most)
    return [(row[0], _spending(row), float(row[-1])) for row in rows]


def _move(session: str, spent: Charge, held: Row | None) -> Program[None]:
    """Add what was spent and free what was held for it."""
    freed = held if held is not None else (0, 0, 0, 0)
    names = ("held_cost", "held_tokens", "held_calls", "held_egress")
    yield from ask(
        sql.ACCOUNT_MOVE,
        session=session,
        **_amounts(spent),
        estimated=int(spent.estimated),
        ended=int(held is not None),
        **dict(zip(names, freed, strict=True)),
    )


def _key(session: str, key: ChargeKey) -> dict[str, Any]:
    return {"session": session, "turn": key.turn, "step": key.step, "attempt": key.attempt}


def _amounts(charge: Charge) -> dict[str, int]:
    return {
        "cost": _billionths(charge.cost_usd),
        "tokens": charge.tokens,
        "calls": charge.calls,
        "egress": charge.egress_bytes,
    }


def _billionths(dollars: float) -> int:
    return round(dollars * _BILLION)


def _spending(row: Row) -> Spending:
    read: dict[str, Any] = dict(zip(TABLES["account"], row, strict=False))

    def charge(before: str) -> Charge:
        return Charge(
            cost_usd=read[f"{before}cost"] / _BILLION,
            tokens=read[f"{before}tokens"],
            calls=read[f"{before}calls"],
            egress_bytes=read[f"{before}egress"],
            estimated=bool(read["estimated"]) and not before,
        )

    return Spending(started=read["started"], spent=charge(""), in_flight=charge("held_"), running=read["running"])
