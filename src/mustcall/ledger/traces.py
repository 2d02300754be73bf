"""Turns as they are kept: one row each, one for each attempt, with as much of their contents as the operator wants."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from mustcall.core.adaptation import REPAIRS, AdaptationKind
from mustcall.ledger.redacting import keep
from mustcall.ledger.stores import statements as sql
from mustcall.ledger.stores.migrations import TABLES
from mustcall.ledger.stores.program import AskRows, LedgerStatement, Program, Row
from mustcall.ledger.values import AttemptTrace, ContentsKept, TurnFilter, TurnGroup, TurnSums, TurnTrace

__all__ = ["count_changes", "get_turn", "is_mended", "list_turns", "put_turns", "sum_turns"]

#: The most models and groups that are told; what callers name is without end, what is told is not.
_MOST_MODELS = 50
_MOST_GROUPS = 1000
#: Columns that rows from earlier versions lack, with what is meant by that.
_TURN_LATER: dict[str, Any] = {"session": "", "client": "", "error": "", "cost_usd": 0.0, "estimated": 0}
_ATTEMPT_LATER: dict[str, Any] = {"tool": "", "problem": "", "begun": 0.0}


def put_turns(turns: Sequence[TurnTrace], contents: ContentsKept) -> Program[None]:
    """Write turns with their attempts; one that is there already stays as it is."""
    if not turns:
        return
    rows = [_turn_row(turn, contents) for turn in turns]
    attempts = [_attempt_row(turn.id, attempt, contents) for turn in turns for attempt in turn.attempts]
    put: list[AskRows] = [AskRows(sql.TURN_PUT, TABLES["turn"], rows)]
    if attempts:
        put.append(AskRows(sql.ATTEMPT_PUT, TABLES["attempt"], attempts))
    yield put


def _turn_row(turn: TurnTrace, contents: ContentsKept) -> tuple[Any, ...]:
    """Return a turn as its table has it. Written for every turn, so out in full: in the order of the columns."""
    return (
        turn.id,
        turn.at,
        turn.wire,
        _storable(turn.model),
        turn.upstream,
        turn.protocol,
        turn.force,
        turn.outcome,
        turn.status,
        turn.seconds,
        turn.tenant,
        turn.response,
        turn.input_tokens,
        turn.output_tokens,
        _storable("\n".join(turn.adaptations)) if turn.adaptations else "",
        keep(turn.request, contents) if turn.request else b"",
        keep(turn.reply, contents) if turn.reply else b"",
        turn.session,
        turn.client,
        turn.error,
        turn.cost_usd,
        int(turn.estimated),
    )


def _attempt_row(turn: str, attempt: AttemptTrace, contents: ContentsKept) -> tuple[Any, ...]:
    """Return an attempt as its table has it."""
    problem, retries = attempt.problem, attempt.retries
    return (
        turn,
        attempt.number,
        attempt.rung,
        attempt.verdict,
        attempt.remedy,
        attempt.digest,
        attempt.seconds,
        attempt.sends,
        attempt.error,
        attempt.input_tokens,
        attempt.output_tokens,
        _storable(attempt.tool),
        keep(_storable(problem).encode(), contents).decode("utf-8", "replace") if problem else "",
        keep(attempt.request, contents) if attempt.request else b"",
        keep(attempt.reply, contents) if attempt.reply else b"",
        attempt.begun,
        _kept_raw(attempt.raw, contents) if attempt.raw else b"",
        msgspec.json.encode(retries).decode() if retries else None,
    )


def _storable(text: str) -> str:
    """Return a text without what PostgreSQL's text cannot hold."""
    return text.replace("\0", "")


def _kept_raw(raw: bytes, contents: ContentsKept) -> bytes:
    """Return what may be kept of a raw reply: a secret that is spread over the events of a stream cannot be masked."""
    if contents is ContentsKept.REDACTED and raw.lstrip()[:1] not in (b"{", b"["):
        return b""
    return keep(raw, contents)


def list_turns(wanted: TurnFilter, before: float, before_id: str, most: int) -> Program[list[TurnTrace]]:
    """Return turns, the newest first, with their attempts; no contents are read."""
    named = {**msgspec.structs.asdict(wanted), "before": before, "before_id": before_id, "most": most}
    rows, attempts = yield [LedgerStatement(sql.TURN_LIST, named), LedgerStatement(sql.TURN_LIST_ATTEMPTS, named)]
    found: dict[str, list[AttemptTrace]] = {}
    for row in attempts:
        found.setdefault(row[0], []).append(_attempt(row))
    turns = map(_turn, rows)
    return [msgspec.structs.replace(turn, attempts=tuple(found.get(turn.id, ()))) for turn in turns]


def get_turn(turn: str) -> Program[TurnTrace | None]:
    """Return one turn with its attempts."""
    turns, attempts = yield [
        LedgerStatement(sql.TURN_GET, {"id": turn}),
        LedgerStatement(sql.ATTEMPT_LIST, {"turn": turn}),
    ]
    if not turns:
        return None
    return msgspec.structs.replace(_turn(turns[0]), attempts=tuple(map(_attempt, attempts)))


def sum_turns(since: float, tenant: str) -> Program[TurnSums]:
    """Return what the turns since a time came to; those of one tenant where one is named."""
    named = {"since": since, "tenant": tenant, "most": _MOST_GROUPS}
    turns, attempts, changes = yield [
        LedgerStatement(sql.TURN_GROUPS, {"since": since, "tenant": tenant, "most_models": _MOST_MODELS, **sql.MENDED}),
        LedgerStatement(sql.ATTEMPT_GROUPS, named),
        LedgerStatement(sql.CHANGE_GROUPS, {"since": since, "tenant": tenant, "line": "\n", **sql.CHANGES}),
    ]
    return TurnSums(
        groups=tuple(_group(row[1:]) for row in turns),
        models=int(turns[0][0]) if turns else 0,
        attempts=tuple((verdict or "", remedy or "", int(count)) for verdict, remedy, count in attempts),
        changes=_by_count({kind: int(count or 0) for kind, count in zip(AdaptationKind, changes[0], strict=True)}),
    )


def count_changes(turns: Iterable[tuple[Iterable[str], int]]) -> tuple[tuple[str, int], ...]:
    """Count turns by the kinds of their adaptations, each kind once for a turn; the most frequent first."""
    counted: Counter[str] = Counter()
    for adaptations, count in turns:
        for kind in {entry.partition(":")[0] for entry in adaptations}:
            counted[kind] += count
    return _by_count(counted)


def _by_count(counted: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(
        sorted(((str(kind), count) for kind, count in counted.items() if count), key=lambda one: (-one[1], one[0]))
    )


def is_mended(adaptations: Iterable[str]) -> bool:
    """Tell whether one of a turn's adaptations mended a reply."""
    return any(entry.partition(":")[0] in REPAIRS for entry in adaptations)


def _group(row: Row) -> TurnGroup:
    """Return a group; PostgreSQL adds integers up to numerics."""
    named = dict(zip(TurnGroup.__struct_fields__, row, strict=True))
    for name in ("count", "input_tokens", "output_tokens"):
        named[name] = int(named[name])
    named["mended"] = bool(named["mended"])
    return msgspec.convert(named, TurnGroup)


def _attempt(row: Row) -> AttemptTrace:
    named = dict(zip(TABLES["attempt"][1:], row[1:], strict=True))
    for column, usual in _ATTEMPT_LATER.items():
        named[column] = named[column] or usual
    for column in ("request", "reply", "raw"):
        named[column] = bytes(named[column] or b"")
    named["retries"] = msgspec.json.decode(named["retries"] or b"[]")
    return msgspec.convert(named, AttemptTrace)


def _turn(row: Row) -> TurnTrace:
    named = dict(zip(TABLES["turn"], row, strict=True))
    named["adaptations"] = tuple(named["adaptations"].split("\n")) if named["adaptations"] else ()
    for column, usual in _TURN_LATER.items():
        named[column] = named[column] or usual
    named["estimated"] = bool(named["estimated"])
    named["request"], named["reply"] = bytes(named["request"] or b""), bytes(named["reply"] or b"")
    return msgspec.convert(named, TurnTrace)
