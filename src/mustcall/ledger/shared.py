"""What replicas share: breakers, facts learnt of models, counts of what worked with them, and what was measured.

Breakers change by compare-and-swap: who read an older version changes nothing.
"""

from collections.abc import Sequence

import msgspec

from mustcall.ledger.stores import statements as sql
from mustcall.ledger.stores.migrations import TABLES
from mustcall.ledger.stores.program import LedgerStatement, Program, Row, ask
from mustcall.ledger.values import BreakerRow, FactRow, MeasuredRow, TallyRow

__all__ = [
    "add_tallies",
    "claim_measuring",
    "expire_learnt",
    "forget_learnt",
    "forget_measured",
    "get_breaker",
    "list_breakers",
    "list_facts",
    "list_measured",
    "list_tallies",
    "move_breaker",
    "put_facts",
    "put_measured",
]


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
            LedgerStatement(
                sql.FACT_PUT, {name: value for name, value in msgspec.structs.asdict(fact).items() if name != "at"}
            )
            for fact in facts
        ]


def list_facts(since: float) -> Program[list[FactRow]]:
    """Return the facts learnt since a time."""
    rows = yield from ask(sql.FACT_LIST, since=since)
    facts = [FactRow(**dict(zip(TABLES["fact"], row, strict=True))) for row in rows]
    return [msgspec.structs.replace(fact, value=bytes(fact.value)) for fact in facts]  # one driver gives memory views


def add_tallies(tallies: Sequence[TallyRow], before: float) -> Program[None]:
    """Add counts to what was counted before; a count that nothing was added to since `before` starts anew."""
    if tallies:
        yield [LedgerStatement(sql.TALLY_ADD, {**msgspec.structs.asdict(tally), "before": before}) for tally in tallies]


def list_tallies(since: float) -> Program[list[TallyRow]]:
    """Return the counts that were added to since a time."""
    rows = yield from ask(sql.TALLY_LIST, since=since)
    return [TallyRow(**dict(zip(TABLES["tally"], row, strict=True))) for row in rows]


def forget_learnt(upstream: str, model: str, tenant: str) -> Program[int]:
    """Remove what a tenant's turns taught of an upstream's model, all where a name is empty; return how much."""
    values = {"upstream": upstream, "model": model, "tenant": tenant}
    facts, tallies = yield [LedgerStatement(sql.FACT_FORGET, values), LedgerStatement(sql.TALLY_FORGET, values)]
    return len(facts) + len(tallies)


def expire_learnt(before: float) -> Program[None]:
    """Remove what was learnt before a time."""
    yield [LedgerStatement(sql.FACT_EXPIRE, {"before": before}), LedgerStatement(sql.TALLY_EXPIRE, {"before": before})]


def put_measured(row: MeasuredRow) -> Program[None]:
    """Write what was measured of a model at an endpoint over what was known."""
    values = {name: value for name, value in msgspec.structs.asdict(row).items() if name not in ("at", "tried")}
    yield from ask(sql.MEASURED_PUT, **values)


def list_measured() -> Program[list[MeasuredRow]]:
    """Return everything that was measured, or is being measured."""
    rows = yield from ask(sql.MEASURED_LIST)
    found = [MeasuredRow(**dict(zip(TABLES["measured"], row, strict=True))) for row in rows]
    return [msgspec.structs.replace(one, profile=bytes(one.profile), report=bytes(one.report)) for one in found]


def claim_measuring(row: MeasuredRow, every: float) -> Program[bool]:
    """Take on the next measurement of a model, unless somebody did within `every` seconds; tell whether it is ours."""
    about = {"endpoint": row.endpoint, "wire": row.wire, "model": row.model, "upstream": row.upstream}
    rows = yield from ask(sql.MEASURED_CLAIM, **about, empty=b"", every=every)
    return bool(rows)


def forget_measured(upstream: str, model: str) -> Program[int]:
    """Remove what was measured of an upstream's model, all where a name is empty; return how much."""
    rows = yield from ask(sql.MEASURED_FORGET, upstream=upstream, model=model)
    return len(rows)
