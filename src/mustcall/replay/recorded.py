"""A request as it was recorded, and its three sources: a turn of the ledger, a request file, an exported bundle.

A bundle is one JSON object that holds what replaying and reporting need: the caller's request, its wire, and what each
attempt sent, got back and came to. Pure: values and bytes in, values and bytes out.
"""

import json
from typing import Any, cast

import msgspec

from mustcall.core.errors import ContentsNotKept, InvalidRequest
from mustcall.core.origin import JsonObject, Wire
from mustcall.engine.explaining import guess_wire
from mustcall.ledger import AttemptTrace, TurnTrace
from mustcall.wire.registry import codec_for

__all__ = ["BUNDLE", "RecordedRequest", "as_bundle", "from_file", "from_turn"]

#: The value of a bundle's `mustcall_bundle` field: the version of its form.
BUNDLE = 1
_MARK = "mustcall_bundle"
_KEEP = 'set `[ledger] contents = "full"` (or MUSTCALL_LEDGER_CONTENTS=full) to keep those of new turns'
_CONTENTS = ("request", "reply")


class RecordedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One caller's request. `source` names where it comes from; `model` and `upstream` are as the caller asked.

    `verdicts` are those of the recorded attempts and `outcome` what the turn came to; both are empty for a plain file.
    `redacted` says that secrets were masked before the request was kept.
    """

    wire: Wire
    body: bytes
    source: str
    model: str
    upstream: str = ""
    verdicts: tuple[str, ...] = ()
    outcome: str = ""
    adaptations: tuple[str, ...] = ()
    redacted: bool = False

    @property
    def streams(self) -> bool:
        """Whether the caller asked for a stream."""
        return codec_for(self.wire).peek(self.body).stream


def from_turn(turn: TurnTrace, *, source: str = "") -> RecordedRequest:
    """Return the request of a kept turn; raise `ContentsNotKept` where only its figures are kept."""
    name = source or f"turn {turn.id}"
    if not turn.request:
        raise ContentsNotKept(f"the request of {name} was not kept, so it cannot be sent again; {_KEEP}")
    return RecordedRequest(
        wire=Wire(turn.wire),
        body=turn.request,
        source=name,
        model=turn.model or codec_for(Wire(turn.wire)).peek(turn.request).model,
        upstream=turn.upstream,
        verdicts=tuple(attempt.verdict or attempt.error or "" for attempt in turn.attempts),
        outcome=turn.outcome or "",
        adaptations=turn.adaptations,
        redacted=b"[redacted " in turn.request,
    )


def from_file(contents: bytes, name: str, wire: Wire | None = None) -> RecordedRequest:
    """Return the request of a file: a bundle, or the body of a request. Raise `InvalidRequest` for anything else."""
    try:
        found: Any = msgspec.json.decode(contents)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"{name} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidRequest(f"{name} is not a request: a JSON object is expected")
    fields = cast("JsonObject", found)
    if _MARK in fields:
        return from_turn(_read_bundle(fields, name), source=name)
    chosen = wire or guess_wire(contents)
    return RecordedRequest(wire=chosen, body=contents, source=name, model=codec_for(chosen).peek(contents).model)


def as_bundle(turn: TurnTrace, version: str) -> bytes:
    """Return a turn as a bundle; `version` is mustcall's. Raise `ContentsNotKept` where there is nothing to replay."""
    from_turn(turn)
    bundle: JsonObject = {_MARK: BUNDLE, "mustcall": version, **_written(turn)}
    bundle["attempts"] = [_written(attempt) for attempt in turn.attempts]
    del bundle["tenant"]  # a digest of the caller's key: of no use to others
    return msgspec.json.format(msgspec.json.encode(bundle), indent=2) + b"\n"


def _written(value: TurnTrace | AttemptTrace) -> JsonObject:
    """Return a value's fields, contents as the JSON that they are where they are."""
    fields: JsonObject = msgspec.structs.asdict(value)
    for name in _CONTENTS:
        fields[name] = _readable(fields[name])
    return fields


def _readable(contents: bytes) -> Any:
    try:
        return json.loads(contents)
    except (ValueError, RecursionError):
        return contents.decode("utf-8", "replace")


def _read_bundle(fields: JsonObject, name: str) -> TurnTrace:
    if fields[_MARK] != BUNDLE:
        raise InvalidRequest(f"{name} is a bundle of version {fields[_MARK]!r}; this mustcall reads version {BUNDLE}")
    read = {key: value for key, value in fields.items() if key not in (_MARK, "mustcall")}
    attempts = read.get("attempts", [])
    try:
        read["attempts"] = [msgspec.convert(_as_bytes(one), AttemptTrace) for one in attempts]
        return msgspec.convert(_as_bytes(read), TurnTrace, builtin_types=(bytes,), from_attributes=True)
    except (msgspec.ValidationError, TypeError, AttributeError) as error:
        raise InvalidRequest(f"{name} is not a bundle that can be read: {error}") from None


def _as_bytes(fields: JsonObject) -> JsonObject:
    """Return fields with their contents as bytes again."""
    held = {name: fields[name] for name in _CONTENTS if name in fields}
    written = {
        name: value.encode() if isinstance(value, str) else msgspec.json.encode(value) for name, value in held.items()
    }
    return {**fields, **written}
