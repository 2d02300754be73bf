"""Turns as they are kept: one row each, one for each attempt, with as much of their contents as the operator wants."""

from collections.abc import Sequence
from typing import Any

import msgspec

from mustcall.ledger import statements as sql
from mustcall.ledger.migrations import TABLES
from mustcall.ledger.program import Ask, AskMany, Program, Row
from mustcall.ledger.redacting import keep
from mustcall.ledger.values import AttemptTrace, Contents, TurnFilter, TurnTrace

__all__ = ["get_turn", "list_turns", "put_turns"]

_TURN = tuple(name for name in TurnTrace.__struct_fields__ if name != "attempts")
_ATTEMPT = AttemptTrace.__struct_fields__


def put_turns(turns: Sequence[TurnTrace], contents: Contents) -> Program[None]:
    """Write turns with their attempts; one that is there already stays as it is."""
    if not turns:
        return
    rows: list[dict[str, Any]] = []
    attempts: list[dict[str, Any]] = []
    for turn in turns:
        row = {name: getattr(turn, name) for name in _TURN}
        row["model"] = turn.model.replace("\0", "")  # which PostgreSQL's text cannot hold
        row["adaptations"] = "\n".join(turn.adaptations).replace("\0", "")
        if turn.request or turn.reply:
            row["request"], row["reply"] = keep(turn.request, contents), keep(turn.reply, contents)
        rows.append(row)
        for attempt in turn.attempts:
            named = {name: getattr(attempt, name) for name in _ATTEMPT}
            named["turn"] = turn.id
            for column in ("request", "reply"):
                named[column] = keep(named[column], contents)
            named["tool"] = attempt.tool.replace("\0", "")
            named["problem"] = keep(attempt.problem.replace("\0", "").encode(), contents).decode("utf-8", "replace")
            attempts.append(named)
    yield [AskMany(sql.TURN_PUT, rows), *([AskMany(sql.ATTEMPT_PUT, attempts)] if attempts else [])]


def list_turns(wanted: TurnFilter, before: float, most: int) -> Program[list[TurnTrace]]:
    """Return turns, the newest first, with their attempts; no contents are read."""
    named = {**msgspec.structs.asdict(wanted), "before": before, "most": most}
    rows, attempts = yield [Ask(sql.TURN_LIST, named), Ask(sql.TURN_LIST_ATTEMPTS, named)]
    found: dict[str, list[AttemptTrace]] = {}
    for row in attempts:
        found.setdefault(row[0], []).append(_attempt(row))
    turns = map(_turn, rows)
    return [msgspec.structs.replace(turn, attempts=tuple(found.get(turn.id, ()))) for turn in turns]


def get_turn(turn: str) -> Program[TurnTrace | None]:
    """Return one turn with its attempts."""
    turns, attempts = yield [Ask(sql.TURN_GET, {"id": turn}), Ask(sql.ATTEMPT_LIST, {"turn": turn})]
    if not turns:
        return None
    return msgspec.structs.replace(_turn(turns[0]), attempts=tuple(map(_attempt, attempts)))


def _attempt(row: Row) -> AttemptTrace:
    named = dict(zip(TABLES["attempt"][1:], row[1:], strict=True))
    for column in ("tool", "problem"):
        named[column] = named[column] or ""
    for column in ("request", "reply"):
        named[column] = bytes(named[column] or b"")
    return msgspec.convert(named, AttemptTrace)


def _turn(row: Row) -> TurnTrace:
    named = dict(zip(TABLES["turn"], row, strict=True))
    named["adaptations"] = tuple(named["adaptations"].split("\n")) if named["adaptations"] else ()
    named["request"], named["reply"] = bytes(named["request"]), bytes(named["reply"])
    return msgspec.convert(named, TurnTrace)
