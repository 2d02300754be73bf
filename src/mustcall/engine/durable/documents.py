"""What is written of a durable run, and reading it back: JSON of our own values, and nothing else.

The bodies of requests are left out: each holds the whole conversation once more, and the journal has it.
"""

from typing import Any, cast

import msgspec

from mustcall.core.errors import ErrorInfo, LedgerBroken, MustcallError, UpstreamRejected
from mustcall.core.message import Message
from mustcall.engine.answers.answering import Answering
from mustcall.engine.records import TurnRecord
from mustcall.engine.run_records.checkpoints import Checkpoint, ModelTurn
from mustcall.engine.run_records.results import RunResult
from mustcall.engine.tooling.reading import Unfit
from mustcall.engine.tooling.running import Executed

__all__ = [
    "Intent",
    "RunOutcome",
    "Start",
    "decode",
    "encode",
    "error_from",
    "lean_moment",
    "lean_taken",
    "outcome_of",
    "result_from",
]


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was started with, save what the agent itself brings."""

    messages: tuple[Message, ...]
    force: bool | str | None = None
    #: The JSON schema of a structured answer, and the tool executions before it.
    schema: dict[str, Any] | None = None
    hops: int = 2
    #: Where a stateful upstream keeps what came before.
    response_id: str | None = None
    kept: int = 0


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is about to be made."""

    name: str
    call_id: str


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended. `asked` is a digest of its start: the name of a run stands for one question."""

    asked: str
    result: RunResult[Any]
    #: The structured answer as JSON, for the type that it is asked for in.
    answer: str | None = None


Document = Start | Intent | RunOutcome | Checkpoint | ModelTurn | Executed


def encode(value: Document) -> bytes:
    """Return a value as JSON. Half a character, as in a file name that is no UTF-8, is replaced."""
    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except UnicodeEncodeError:
        return msgspec.json.encode(_whole(msgspec.to_builtins(value, enc_hook=_plain)))


def decode(data: bytes, kind: type[Any], run_id: str) -> Any:
    """Read a value back; raise `LedgerBroken` for what is none."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise LedgerBroken(f"the run {run_id!r} holds what this version cannot read: {error}") from None


def lean_record(record: TurnRecord) -> TurnRecord:
    """Return a record without the bodies that were sent."""
    return msgspec.structs.replace(record, attempts=[attempt.lean() for attempt in record.attempts])


def lean_moment(moment: Checkpoint) -> Checkpoint:
    """Return a moment without bodies."""
    return msgspec.structs.replace(moment, steps=tuple(map(lean_record, moment.steps)))


def lean_taken(taken: ModelTurn) -> ModelTurn:
    """Return a model's turn without bodies."""
    return taken if taken.record is None else msgspec.structs.replace(taken, record=lean_record(taken.record))


def lean_result(result: RunResult[Any]) -> RunResult[Any]:
    """Return a result without bodies."""
    return msgspec.structs.replace(result, steps=tuple(map(lean_record, result.steps)))


def outcome_of(asked: str, result: RunResult[Any], answering: Answering | None = None) -> bytes:
    """Return what is stored of a result."""
    write = _written if answering is None else answering.shape.asked.write or _written
    answer = write(result.answer) if result.structured and result.answered else None
    bare = msgspec.structs.replace(lean_result(result), answer=None)
    return encode(RunOutcome(asked=asked, result=bare, answer=answer))


def result_from(data: bytes, answering: Answering | None, run_id: str) -> RunResult[Any]:
    """Return a stored result, its structured answer as a value of the type that is asked for now."""
    outcome: RunOutcome = decode(data, RunOutcome, run_id)
    if outcome.answer is None:
        return msgspec.structs.replace(outcome.result, structured=outcome.result.structured or answering is not None)
    try:
        value = _value(outcome.answer, answering)
    except (Unfit, msgspec.MsgspecError) as error:
        raise LedgerBroken(f"the answer of the run {run_id!r} is not of the type asked for: {error}") from None
    return msgspec.structs.replace(outcome.result, answer=value, structured=True)


def error_from(info: ErrorInfo) -> MustcallError:
    """Return a stored error as what it was."""
    kinds: list[type[MustcallError]] = [MustcallError]
    for kind in kinds:  # grows on the way
        kinds += kind.__subclasses__()
        if kind.code == info.code and kind.status == info.status and kind is not UpstreamRejected:
            return kind(info.message, param=info.param, details=info.details)
    return UpstreamRejected(info)


def _written(value: Any) -> str:
    dump = getattr(value, "model_dump_json", None)
    return str(dump(by_alias=True)) if callable(dump) else msgspec.json.encode(value, enc_hook=_plain).decode()


def _value(text: str, answering: Answering | None) -> Any:
    return msgspec.json.decode(text) if answering is None else answering.shape.asked.read(text)


def _plain(value: Any) -> Any:
    """Return what JSON can say of a value of somebody else's type."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json", by_alias=True) if callable(dump) else str(value)


def _whole(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {_whole(name): _whole(item) for name, item in cast("dict[str, Any]", value).items()}
        case list() | tuple():
            return [_whole(item) for item in cast("list[Any]", value)]
        case _:
            return value
