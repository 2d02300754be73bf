"""What replicas share: budgets that hold together, breakers, and facts learnt of models.

A budget is one row, and a reservation is refused by the same statement that would make it. Reservations are keyed by
their holder, so a replay never charges twice. Breakers change by compare-and-swap. Amounts are whole numbers of the
budget's smallest unit, because sums of fractions drift.
"""

from collections.abc import Sequence

import msgspec

from mustcall.ledger import statements as sql
from mustcall.ledger.program import Ask, Program, Row, ask
from mustcall.ledger.values import BreakerRow, BudgetRow, FactRow, Hold, Settlement

__all__ = [
    "get_breaker",
    "get_budget",
    "list_breakers",
    "list_facts",
    "move_breaker",
    "put_facts",
    "release",
    "reserve",
    "settle",
    "write_off",
]


class Refused(Exception):
    """A budget has no room; it undoes what the others already gave, and never leaves the ledger."""

    def __init__(self, budget: str) -> None:
        super().__init__(budget)
        self.budget = budget


def reserve(holder: str, holds: Sequence[Hold]) -> Program[None]:
    """Reserve from every budget or from none; raise `Refused` naming the one that has no room.

    A holder that has reserved before, settled or not, is given what it has: nothing is taken twice.
    """
    ordered = sorted(holds, key=lambda hold: hold.budget)  # one order for all, so that no two wait for each other
    taken = yield [
        Ask(sql.RESERVATION_PUT, {"holder": holder, "budget": hold.budget, "amount": hold.amount}) for hold in ordered
    ]
    fresh = [hold for hold, rows in zip(ordered, taken, strict=True) if rows]
    for hold in fresh:
        values = {"budget": hold.budget, "amount": hold.amount, "lim": hold.limit}
        rows = yield from ask(sql.BUDGET_RESERVE, **values)
        if not rows:
            yield from ask(sql.BUDGET_MAKE, budget=hold.budget, lim=hold.limit)
            rows = yield from ask(sql.BUDGET_RESERVE, **values)
        if not rows:
            raise Refused(hold.budget)


def settle(holder: str, settlements: Sequence[Settlement]) -> Program[None]:
    """Say what reservations cost; one that is settled already stays as it is."""
    for settlement in sorted(settlements, key=lambda one: one.budget):
        values = {"holder": holder, "budget": settlement.budget, "settled": settlement.amount}
        rows = yield from ask(sql.RESERVATION_SETTLE, **values)
        if rows:
            yield from ask(sql.BUDGET_MOVE, budget=settlement.budget, amount=rows[0][0], settled=settlement.amount)


def release(holder: str) -> Program[None]:
    """Give back what a holder still has reserved."""
    rows = yield from ask(sql.RESERVATION_OF, holder=holder)
    yield from settle(holder, [Settlement(budget=row[0], amount=0) for row in rows])


def write_off(age: float) -> Program[int]:
    """Count as spent what was reserved longer ago than `age` seconds by holders that never came back."""
    rows = yield from ask(sql.RESERVATION_STALE, age=age)
    if rows:
        yield [
            Ask(sql.BUDGET_MOVE, {"budget": row[0], "amount": row[1], "settled": row[1]})
            for row in sorted(rows, key=lambda row: row[0])
        ]
    return len(rows)


def get_budget(budget: str) -> Program[BudgetRow | None]:
    """Return a budget's state."""
    rows = yield from ask(sql.BUDGET_GET, budget=budget)
    return BudgetRow(budget=rows[0][0], limit=rows[0][1], spent=rows[0][2], reserved=rows[0][3]) if rows else None


def _breaker(row: Row) -> BreakerRow:
    names = BreakerRow.__struct_fields__
    return msgspec.convert(dict(zip(names, row, strict=True)), BreakerRow, strict=False)


def get_breaker(name: str) -> Program[BreakerRow]:
    """Return a breaker; one that nobody wrote is closed, with version 0."""
    rows = yield from ask(sql.BREAKER_GET, name=name)
    if rows:
        return _breaker(rows[0])
    rows = yield from ask(sql.NOW)
    return BreakerRow(name=name, state="closed", failures=0, since=0.0, probing=False, version=0, now=rows[0][0])


def list_breakers() -> Program[list[BreakerRow]]:
    """Return every breaker that was ever written."""
    rows = yield from ask(sql.BREAKER_ALL)
    return list(map(_breaker, rows))


def move_breaker(breaker: BreakerRow) -> Program[bool]:
    """Write a breaker over the version it was read with; False if somebody was faster."""
    values = {
        "name": breaker.name,
        "state": breaker.state,
        "failures": breaker.failures,
        "since": breaker.since,
        "probing": int(breaker.probing),
    }
    if breaker.version == 0:
        rows = yield from ask(sql.BREAKER_MAKE, **values)
    else:
        rows = yield from ask(sql.BREAKER_MOVE, version=breaker.version, **values)
    return bool(rows)


def put_facts(facts: Sequence[FactRow]) -> Program[None]:
    """Write facts over what was known."""
    if facts:
        yield [
            Ask(
                sql.FACT_PUT,
                {
                    "upstream": fact.upstream,
                    "model": fact.model,
                    "field": fact.field,
                    "value": fact.value,
                    "note": fact.note,
                },
            )
            for fact in facts
        ]


def list_facts(since: float) -> Program[list[FactRow]]:
    """Return the facts learnt since a time."""
    rows = yield from ask(sql.FACT_LIST, since=since)
    return [
        FactRow(upstream=row[0], model=row[1], field=row[2], value=bytes(row[3]), note=row[4], at=row[5])
        for row in rows
    ]
