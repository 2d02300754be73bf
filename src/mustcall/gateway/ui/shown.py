"""Turns as the page gets them: JSON without bytes, and what the caller got in the same words as what the model said."""

import json
from typing import Any

import msgspec

from mustcall.core.origin import Wire
from mustcall.gateway.state.turn_traces import said
from mustcall.gateway.state.whole_replies import read_back
from mustcall.ledger import AttemptTrace, TurnTrace
from mustcall.ledger.traces import is_mended

__all__ = ["summary", "whole"]

_CONTENTS = ("request", "reply", "raw")


def summary(turn: TurnTrace) -> dict[str, Any]:
    """Return a turn for a list: no contents."""
    shown = _plain(turn)
    shown["attempts"] = [_plain(attempt) for attempt in turn.attempts]
    shown["mended"] = is_mended(turn.adaptations)
    shown["ended"] = turn.ended
    return shown


def whole(turn: TurnTrace) -> dict[str, Any]:
    """Return a turn with all that is kept of it."""
    shown = summary(turn)
    shown["request"], shown["reply"] = _text(turn.request), _text(turn.reply)
    shown["delivered"] = _parts(turn)
    shown["no_reply"] = _no_reply(turn)
    for told, attempt in zip(shown["attempts"], turn.attempts, strict=True):
        told["request"], told["raw"] = _text(attempt.request), _text(attempt.raw)
        told["reply"] = _json(attempt.reply)
    return shown


def _no_reply(turn: TurnTrace) -> str | None:
    """Return why the caller's reply is not shown; None where it is, or where contents are not kept at all."""
    if turn.reply or not turn.request:
        return None
    return "The client left before a reply." if turn.ended == "gone" else "Nothing came, or it was not kept."


def _plain(value: TurnTrace | AttemptTrace) -> dict[str, Any]:
    return {name: held for name, held in msgspec.structs.asdict(value).items() if name not in _CONTENTS}


def _text(contents: bytes) -> str | None:
    return contents.decode("utf-8", "replace") if contents else None


def _json(contents: bytes) -> Any:
    if not contents:
        return None
    try:
        return json.loads(contents)
    except (ValueError, RecursionError):
        return None


def _parts(turn: TurnTrace) -> Any:
    """Return what the caller got, read as its wire has it; None for an error, or where it cannot be read."""
    if not turn.reply or turn.status != 200 or turn.wire not in set(Wire):
        return None
    reply = read_back(turn.reply, Wire(turn.wire))
    return None if reply is None else _json(said(reply))
