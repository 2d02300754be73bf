"""Turns as they are kept: one row each, one for each attempt, with as much of their contents as the operator wants."""

from collections.abc import Sequence

import msgspec

from mustcall.ledger import statements as sql
from mustcall.ledger.migrations import TABLES
from mustcall.ledger.program import Ask, Program, Row, ask
from mustcall.ledger.redacting import keep
from mustcall.ledger.values import AttemptTrace, Contents, TurnTrace

__all__ = ["get_turn", "list_turns", "put_turns"]

_ATTEMPT = AttemptTrace.__struct_fields__


def put_turns(turns: Sequence[TurnTrace], contents: Contents) -> Program[None]:
    """Write turns with their attempts; one that is there already stays as it is."""
    batch: list[Ask] = []
    for turn in turns:
        values = {
            "id": turn.id,
            "at": turn.at,
            "wire": turn.wire,
            "model": turn.model,
            "upstream": turn.upstream,
            "protocol": turn.protocol,
            "force": turn.force,
            "outcome": turn.outcome,
            "status": turn.status,
            "seconds": turn.seconds,
            "tenant": turn.tenant,
            "response": turn.response,
            "input_tokens": turn.input_tokens,
            "output_tokens": turn.output_tokens,
            "adaptations": "\n".join(turn.adaptations),
            "request": keep(turn.request, contents),
            "reply": keep(turn.reply, contents),
        }
        batch.append(Ask(sql.TURN_PUT, values))
        for attempt in turn.attempts:
            row = {name: getattr(attempt, name) for name in _ATTEMPT}
            batch.append(Ask(sql.ATTEMPT_PUT, row | {"turn": turn.id}))
    if batch:
        yield batch


def list_turns(before: float, most: int) -> Program[list[TurnTrace]]:
    """Return turns, the newest first, without their attempts."""
    rows = yield from ask(sql.TURN_LIST, before=before, most=most)
    return [_turn(row) for row in rows]


def get_turn(turn: str) -> Program[TurnTrace | None]:
    """Return one turn with its attempts."""
    turns, attempts = yield [Ask(sql.TURN_GET, {"id": turn}), Ask(sql.ATTEMPT_LIST, {"turn": turn})]
    if not turns:
        return None
    names = TABLES["attempt"][1:]
    read = tuple(msgspec.convert(dict(zip(names, row[1:], strict=True)), AttemptTrace) for row in attempts)
    return msgspec.structs.replace(_turn(turns[0]), attempts=read)


def _turn(row: Row) -> TurnTrace:
    named = dict(zip(TABLES["turn"], row, strict=True))
    named["adaptations"] = tuple(named["adaptations"].split("\n")) if named["adaptations"] else ()
    named["request"], named["reply"] = bytes(named["request"]), bytes(named["reply"])
    return msgspec.convert(named, TurnTrace)
