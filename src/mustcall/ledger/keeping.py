"""How long things are kept: removal by age and by size, counting, and the way out and in as JSON lines.

A conversation is as old as its last response and goes as a whole; a run goes only when it has ended. Removal by size
removes by age until enough is gone, so what is newest stays. Accounts are no history, they are what caps are held
against: they have an age of their own, and no size and no age of anything else removes them. All removal is in batches,
so that nobody waits long for the writer or a lock.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from mustcall.core.errors import InvalidRequest
from mustcall.ledger.redacting import keep
from mustcall.ledger.stores import statements as sql
from mustcall.ledger.stores.migrations import TABLES
from mustcall.ledger.stores.program import AskMany, LedgerStatement, Program, ask
from mustcall.ledger.values import ContentsKept, Pruned

__all__ = [
    "count_rows",
    "export_page",
    "measure",
    "oldest_age",
    "prune_accounts",
    "prune_older",
    "put_rows",
    "read_lines",
    "write_line",
]

#: The most rows of a table that one transaction reads or removes.
_BATCH = 1000
#: Seconds for which a charge that is in its account is known by its key, should it come again.
_REPLAYED = 30 * 86_400.0

#: The columns that hold contents, and are bytes.
_CONTENTS = {
    "run": ("data", "outcome"),
    "event": ("data",),
    "response": ("input", "body", "settings"),
    "turn": ("request", "reply"),
    "attempt": ("request", "reply", "raw"),
    "fact": ("value",),
}
#: The columns that hold contents, and are text.
_TEXTS = {"attempt": ("problem",)}
#: The columns that rows of earlier versions lack.
_LATER = {
    "turn": ("session", "client", "error", "cost_usd", "estimated"),
    "attempt": ("tool", "problem", "request", "reply", "begun", "raw", "retries"),
}


def prune_older(age: float) -> Program[tuple[Pruned, bool]]:
    """Remove some of what is older than `age` seconds; tell whether there is more."""
    now = yield from ask(sql.NOW)
    given = {"before": now[0][0] - age, "most": _BATCH}
    turns, conversations, runs, holders = yield [
        LedgerStatement(sql.PRUNE_TURNS, given),
        LedgerStatement(sql.PRUNE_CONVERSATIONS, given),
        LedgerStatement(sql.PRUNE_RUNS, given),
        LedgerStatement(sql.PRUNE_HOLDERS, given),
    ]
    answers = yield [LedgerStatement(sql.PRUNE_RESPONSES, {"id": row[0]}) for row in conversations]
    responses = [row for rows in answers for row in rows]
    yield [
        AskMany(statement, [{"id": row[0]} for row in rows])
        for statement, rows in (
            (sql.PRUNE_ATTEMPTS, turns),
            (sql.PRUNE_ITEMS, responses),
            (sql.PRUNE_EVENTS, runs),
        )
        if rows
    ]
    more = any(len(rows) == _BATCH for rows in (turns, conversations, runs, holders))
    return Pruned(turns=len(turns), responses=len(responses), runs=len(runs)), more


def prune_accounts(age: float) -> Program[bool]:
    """Remove some of the accounts that nobody has used for `age` seconds; tell whether there is more."""
    now = yield from ask(sql.NOW)
    charges, accounts = yield [
        LedgerStatement(sql.PRUNE_CHARGES, {"before": now[0][0] - min(age, _REPLAYED), "most": _BATCH}),
        LedgerStatement(sql.PRUNE_ACCOUNTS, {"before": now[0][0] - age, "most": _BATCH}),
    ]
    if accounts:
        yield [AskMany(sql.PRUNE_HOSTS, [{"id": row[0]} for row in accounts])]
    return _BATCH in (len(charges), len(accounts))


def measure() -> Program[int]:
    """Return about how many bytes are stored."""
    rows = yield from ask(sql.STORED_BYTES)
    return int(rows[0][0])


def oldest_age() -> Program[float | None]:
    """Return the age in seconds of the oldest thing that may be removed."""
    rows = yield from ask(sql.OLDEST)
    return None if rows[0][0] is None else float(rows[0][0])


def count_rows() -> Program[dict[str, int]]:
    """Return the number of rows of each table."""
    answers = yield [LedgerStatement(statement, {}) for statement in sql.COUNT.values()]
    return {table: int(rows[0][0]) for table, rows in zip(sql.COUNT, answers, strict=True)}


def export_page(table: str, after: Sequence[Any] | None) -> Program[tuple[list[Sequence[Any]], Sequence[Any] | None]]:
    """Return some rows of a table behind a key, and the key behind which there may be more."""
    first, further = sql.EXPORT[table]
    keys = sql.KEYS[table]
    if after is None:
        rows = yield from ask(first, most=_BATCH)
    else:
        rows = yield from ask(further, most=_BATCH, **dict(zip(keys, after, strict=True)))
    last = rows[-1][-len(keys) :] if len(rows) == _BATCH else None
    return [row[: -len(keys)] for row in rows], last


def write_line(table: str, row: Sequence[Any], contents: ContentsKept) -> bytes:
    """Return a row as a line of JSON, with as much of its contents as is wanted."""
    named: dict[str, Any] = dict(zip(TABLES[table], row, strict=True))
    for column in _CONTENTS.get(table, ()):
        held = named[column]
        if held is not None:
            kept = bytes(held) if table == "fact" else keep(bytes(held), contents)
            try:
                named[column] = kept.decode()
            except UnicodeDecodeError:
                named[column] = {"base64": b64encode(kept).decode()}
    for column in _TEXTS.get(table, ()):
        if named[column]:
            named[column] = keep(named[column].encode(), contents).decode("utf-8", "replace")
    return msgspec.json.encode({"table": table, "row": named}) + b"\n"


def read_lines(lines: Iterable[bytes]) -> Iterable[LedgerStatement]:
    """Read exported lines back; raise `InvalidRequest` naming the line that is none."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            read = msgspec.json.decode(line, type=_Line)
            contents = _CONTENTS.get(read.table, ())
            row = {
                column: _content(_value(read, column)) if column in contents else _scalar(_value(read, column))
                for column in TABLES[read.table]
            }
        except (msgspec.MsgspecError, KeyError, ValueError) as error:
            raise InvalidRequest(f"line {number} is no line of an exported ledger: {error}") from None
        if read.table == "event":
            # Numbers of another ledger may be taken here; the order of the lines is the order of the journal.
            yield LedgerStatement(sql.EVENT_IMPORT, {name: value for name, value in row.items() if name != "seq"})
        else:
            yield LedgerStatement(sql.IMPORT[read.table], row)


def _content(held: object) -> bytes | None:
    """Return the bytes that a column holds; they were written as text where they are text."""
    if held is None:
        return None
    if isinstance(held, str):
        return held.encode()
    return b64decode(msgspec.convert(held, _Encoded).base64, validate=True)


def _scalar(value: object) -> str | float | None:
    """Return a value as every store can hold it."""
    if value is None or isinstance(value, str | float):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    raise ValueError("a value is no text and no number that a ledger holds")


def put_rows(batch: Sequence[LedgerStatement]) -> Program[None]:
    """Write rows that were read back; one that is there already stays as it is."""
    if batch:
        yield batch


class _Encoded(msgspec.Struct):
    base64: str


class _Line(msgspec.Struct):
    table: str
    row: dict[str, Any]


def _value(line: _Line, column: str) -> Any:
    """Return a value of an exported row; raise `KeyError` unless it is one that rows of earlier versions lack."""
    return line.row.get(column) if column in _LATER.get(line.table, ()) else line.row[column]
