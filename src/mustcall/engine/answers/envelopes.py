"""Calls of a bounded tool phase that never ran: malformed ones, and those beyond what one reply may call.

Every malformed call costs a hop, under each protocol and whether a retry of the turn mended it or not; what is wrong is
said in one neutral sentence, by the turn's retry or by the next request (rule 85). Each is in the run's record (rule
89). Whether hops are left is the loop's.
"""

from collections.abc import Iterable

import msgspec

from mustcall.core.adaptation import AdaptationKind
from mustcall.core.errors import (
    BadArguments,
    EmptyReply,
    ModelError,
    PhantomCall,
    StructuredOutputError,
    TextToolCallError,
    ThinkingOnly,
    TruncatedReply,
    UnknownToolCalled,
)
from mustcall.core.parts import ToolCall
from mustcall.core.verdict import Verdict
from mustcall.engine.records import AttemptRecord, TurnRecord
from mustcall.engine.tooling.outcomes import CallStatus, ExecutedCall
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Profile
from mustcall.policy.facts.wording import Wording, fill
from mustcall.policy.reply.judge import SURPLUS
from mustcall.policy.turn.remedy import Remedy

__all__ = [
    "MalformedCall",
    "answer_problem",
    "answered_once",
    "bad_answer",
    "calls_at_the_end",
    "controls_before",
    "ended_without",
    "ignored_calls",
    "malformed_call",
    "mended_calls",
    "validated_once",
]


#: What a turn fails with whose last reply was a malformed call.
_OF_CALLS = (BadArguments, UnknownToolCalled, TextToolCallError, PhantomCall, TruncatedReply)
#: The limits of retries that a malformed call may cost.
_PAID = ("text_call", "bad_arguments", "unknown_tool", "truncated")


class MalformedCall(msgspec.Struct, frozen=True):
    """A call that could not be one: which tool it meant (if that is known), its status and what the model is told."""

    name: str
    status: CallStatus
    sentence: str

    def record(self, step: int) -> ExecutedCall:
        """Return it as the run's record has it."""
        return _never_ran(self.name, self.status, self.sentence, step)


def malformed_call(error: ModelError, record: TurnRecord, wording: Wording) -> MalformedCall | None:
    """Return the malformed call a turn failed with, None if it failed for another reason."""
    tried = _malformed(record.attempts[-1], wording) if record.attempts else None
    return tried if isinstance(error, _OF_CALLS) else None


def mended_calls(record: TurnRecord, wording: Wording) -> Iterable[MalformedCall]:
    """Return the malformed calls of a turn that were tried again; the reply it ended with is not among them."""
    for attempt in record.attempts:
        if attempt.remedy in (Remedy.RESAMPLE, Remedy.REMIND, Remedy.CLIMB):
            tried = _malformed(attempt, wording)
            if tried is not None:
                yield tried


def _malformed(attempt: AttemptRecord, wording: Wording) -> MalformedCall | None:
    """Return the malformed call of an attempt, None if that is not what was wrong with it."""
    name = attempt.tool
    match attempt.verdict:
        case Verdict.BAD_ARGUMENTS:
            # The problem begins with the tool's name.
            wrong = attempt.problem.partition(": ")[2] or "its arguments"
            status = CallStatus.PARSE_ERROR if attempt.unreadable else CallStatus.SCHEMA_ERROR
            told = fill(wording.tool_misfit, tool=name, problem=wrong)
            return MalformedCall(name, status, told if name else fill(wording.bad_arguments, problem=wrong))
        case Verdict.UNKNOWN_TOOL:
            return MalformedCall(name, CallStatus.UNKNOWN_TOOL, wording.unknown_tool)
        case Verdict.TEXT_CALL | Verdict.PHANTOM_CALL:
            # A text call that could be read has a problem only where its arguments do not fit.
            status = CallStatus.SCHEMA_ERROR if attempt.problem else CallStatus.PARSE_ERROR
            return MalformedCall(name, status, wording.format_correction)
        case Verdict.TRUNCATED if attempt.cut_call:
            return MalformedCall(name, CallStatus.PARSE_ERROR, wording.truncated)
        case _:
            return None


def controls_before(controls: Controls, profile: Profile, hops: int) -> Controls:
    """Return the controls of a turn before the last.

    A malformed call is tried again as long as there are hops to pay for it (rule 85), and an answer is asked for once
    more where the schema need not have held it (rule 84).
    """
    limits = controls.limits
    paid = {name: hops for name in _PAID if getattr(limits, name) > hops}
    if paid:
        limits = msgspec.structs.replace(limits, **paid)
    if profile.schema_output is None:
        limits = msgspec.structs.replace(limits, bad_answer=min(limits.bad_answer, 1))
    return controls if limits is controls.limits else msgspec.structs.replace(controls, limits=limits)


def answered_once(controls: Controls) -> Controls:
    """Return the controls of a turn whose answer the run itself asks for once more (rule 84)."""
    return msgspec.structs.replace(controls, limits=msgspec.structs.replace(controls.limits, bad_answer=0))


def validated_once(controls: Controls) -> Controls:
    """Return the controls of the one final round: whatever is wrong with its reply, it is not asked again (rule 83)."""
    none = dict.fromkeys(("text_call", "empty", "thinking_only", "bad_arguments", "unknown_tool", "bad_answer"), 0)
    return msgspec.structs.replace(controls, limits=msgspec.structs.replace(controls.limits, **none, truncated=0))


def answer_problem(error: ModelError) -> str | None:
    """Return what was wrong with the answer a turn failed with, None if it failed for another reason."""
    match error:
        case StructuredOutputError():
            return str((error.details or {}).get("problem") or "it is no JSON")
        case TruncatedReply():
            return "it ended before it was complete"
        case _:
            return "an answer, not a tool call, was expected" if isinstance(error, _OF_CALLS) else None


def ended_without(error: ModelError, record: TurnRecord, count: int) -> ModelError:
    """Return the error of a final round that brought no answer at all, and any other as it is."""
    match error:
        case EmptyReply() | ThinkingOnly():
            called = any(ignored_calls(record, 0))
        case TextToolCallError() | PhantomCall() | UnknownToolCalled() | BadArguments():
            called = True
        case StructuredOutputError():  # the turn's own check, which knows of no round before this one
            return bad_answer(str(answer_problem(error)), record, count)
        case _:
            return error
    what = "a call was made where nothing may be called" if called else "nothing was said"
    return bad_answer(what, record, count)


def bad_answer(what: str, record: TurnRecord, count: int) -> StructuredOutputError:
    """Return the error of an answer that is none, or does not fit; `count` are the times it was asked for."""
    return StructuredOutputError(
        f"StructuredOutputError: the model's answer does not fit the schema asked for ({what}); {count} "
        f"attempt{'s' if count > 1 else ''} made",
        details={"attempts": [attempt.summary() for attempt in record.attempts]},
    )


def ignored_calls(record: TurnRecord, step: int) -> Iterable[ExecutedCall]:
    """Return the calls of a reply that were left out because it made more than it may, or might make none."""
    for note in record.adaptations:
        if note.kind is AdaptationKind.CALL_DROPPED and note.detail in SURPLUS:
            yield _never_ran(note.subject, CallStatus.IGNORED_EXTRA, note.detail, step)


def calls_at_the_end(error: ModelError, record: TurnRecord, wording: Wording, step: int) -> Iterable[ExecutedCall]:
    """Return the calls of a final round that failed; none of them could run any more."""
    yield from ignored_calls(record, step)
    malformed = malformed_call(error, record, wording)
    if malformed is not None:
        yield msgspec.structs.replace(malformed, status=CallStatus.IGNORED_EXTRA).record(step)


def _never_ran(name: str, status: CallStatus, result: str, step: int) -> ExecutedCall:
    call = ToolCall(id="", name=name, arguments_json="")
    return ExecutedCall(call=call, result=result, status=status, tries=0, step=step)
