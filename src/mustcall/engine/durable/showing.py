"""A run as people and programs look at it: where it stands, and what its journal says, line by line."""

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.core.parts import Text
from mustcall.engine.durable.documents import Intent, RunOutcome, decode
from mustcall.engine.durable.folding import INTENT, MODEL, RESULT
from mustcall.engine.run_records.checkpoints import Checkpoint
from mustcall.engine.tooling.running import Executed
from mustcall.ledger import JournalEvent, StoredRun

__all__ = ["Line", "describe_event", "event_as_json", "run_as_json"]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a journal. `status` is that of a call's result."""

    step: str
    kind: str
    attempt: int
    fence: int
    at: float
    said: str
    status: str = ""


def describe_event(event: JournalEvent) -> Line:
    """Return what an event says; one whose contents were not kept says nothing."""
    said, status = _said(event) if event.data else ("(not kept)", "")
    return Line(
        step=event.step,
        kind=event.kind,
        attempt=event.attempt,
        fence=event.fence,
        at=event.at,
        said=said,
        status=status,
    )


def _said(event: JournalEvent) -> tuple[str, str]:
    match event.kind:
        case kind if kind == MODEL:
            moment: Checkpoint = decode(event.data, Checkpoint, event.run)
            if moment.pending:
                return "calls " + ", ".join(f"{call.name}({call.arguments_json})" for call in moment.pending), ""
            texts = [part.text for message in moment.messages for part in message.parts if isinstance(part, Text)]
            return texts[-1] if texts else "", ""
        case kind if kind == INTENT:
            intent: Intent = decode(event.data, Intent, event.run)
            return f"{intent.name} is about to run", ""
        case kind if kind == RESULT:
            executed: Executed = decode(event.data, Executed, event.run)
            return f"{executed.record.name}: {executed.record.result}", str(executed.record.status)
        case _:
            return "", ""


def run_as_json(run: StoredRun) -> JsonObject:
    """Return where a run stands."""
    shown: JsonObject = {
        "id": run.id,
        "kind": run.kind,
        "status": str(run.status),
        "created": run.created,
        "updated": run.updated,
        "owner": run.owner,
        "fence": run.fence,
        "lease_until": run.lease_until,
    }
    if run.outcome:
        result = decode(run.outcome, RunOutcome, run.id).result
        shown["stopped"] = str(result.stopped)
        shown["answer"] = result.text
        shown["unknown"] = [call.name for call in result.unknown]
        if result.error is not None:
            shown["error"] = {"code": result.error.code, "message": result.error.message}
    return shown


def event_as_json(line: Line) -> JsonObject:
    """Return a line of a journal."""
    return msgspec.structs.asdict(line)
