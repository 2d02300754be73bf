"""What is done about a verdict: one table, read from top to bottom (rules 42 to 54, 69, 96).

The first row whose verdict and condition fit decides. The table is data: docs/remedies.md is printed from it. It knows
how often what was tried, and carries nothing out.
"""

from collections.abc import Callable
from enum import StrEnum

import msgspec

from mustcall.core.errors import (
    BadArguments,
    EmptyReply,
    ForceUnmet,
    LoopBlocked,
    ModelError,
    PhantomCall,
    StarvedPrompt,
    StructuredOutputError,
    TextToolCallError,
    ThinkingOnly,
    TruncatedReply,
    UnknownToolCalled,
)
from mustcall.core.verdict import Verdict
from mustcall.policy.facts.controls import Limits, OnUnmet, Salvage

__all__ = [
    "ACCEPTED",
    "ERRORS",
    "TABLE",
    "Condition",
    "Decision",
    "Remedy",
    "RemedyRow",
    "Situation",
    "decide",
    "markdown",
    "row_for",
]


class Remedy(StrEnum):
    """What the engine does next."""

    ACCEPT = "accept"
    SALVAGE = "salvage"
    RESAMPLE = "resample"  # the same bytes again
    REMIND = "remind"  # a short user turn at the tail
    CLIMB = "climb"  # the next rung of the ladder
    FAIL = "fail"


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when a verdict falls.

    `tried` counts the retries this verdict has cost so far in the turn, `extra` all extra upstream calls. `released`
    says that something went out to the caller, `spoke` that it was more than reasoning, `called` that it was some of a
    call: another attempt's calls must not follow it (rule 29). `stateful` says that the upstream keeps the reply under
    an id the caller has then seen: a later attempt would have another one (rule 78). `appended` says that the upstream
    has added the reply to the caller's conversation: that of another attempt would stand behind it there.
    """

    limits: Limits
    tried: int = 0
    extra: int = 0
    rungs_left: bool = False
    forced: bool = False
    greedy: bool = False
    reads_text: bool = False
    released: bool = False
    spoke: bool = False
    called: bool = False
    stateful: bool = False
    appended: bool = False
    salvageable: bool = False
    salvage: Salvage = Salvage.RELEASED
    cut_call: bool = False
    final_thought: bool = False
    on_unmet: OnUnmet = OnUnmet.ERROR
    blocks: bool = False

    @property
    def may_call(self) -> bool:
        """Whether one more upstream call is allowed (rule 96)."""
        return not self.appended and self.extra < self.limits.extra_calls


class Condition(StrEnum):
    """When a row applies; each is one sentence of the documentation."""

    ALWAYS = "always"
    RUNGS_LEFT = "a force is unmet, nothing was released and the ladder has another rung"
    FORCED = "a call is demanded"
    SALVAGE_NOW = "text was already released, the text call is complete, on offer and valid, salvage is not `never`"
    SALVAGE_LAST = "the text call is complete, on offer and valid, salvage is `last`"
    MENDABLE = "a lossy repair makes the arguments fit, `salvage_arguments` is on, nothing of a call was released"
    FIRST_UNGREEDY = "first retry, sampling is not greedy, text is not the channel for calls"
    RETRIES_LEFT = "its retries are not spent"
    CUT_CALL = "a call was cut off and its retry is not spent"
    ANSWERS = "no call is demanded, and the text is a whole answer that announces no call"
    UNMET_ANSWERS = "`on_unmet` is `answer` and nothing but the force is wrong"
    FINAL_THOUGHT = "the family answers in reasoning"
    BLOCKED = "the tool's setting blocks the loop"


class RemedyRow(msgspec.Struct, frozen=True):
    """One line of the table."""

    verdict: Verdict
    condition: Condition
    remedy: Remedy


class Decision(msgspec.Struct, frozen=True):
    """The remedy, and the error to raise if it is `fail`."""

    remedy: Remedy
    error: type[ModelError] | None = None


def _retries(verdict: Verdict, *more: RemedyRow) -> tuple[RemedyRow, ...]:
    """The usual order: climb if a force is unmet, remind while there are retries, then fail."""
    return (
        *more,
        RemedyRow(verdict, Condition.RUNGS_LEFT, Remedy.CLIMB),
        RemedyRow(verdict, Condition.RETRIES_LEFT, Remedy.REMIND),
        RemedyRow(verdict, Condition.ALWAYS, Remedy.FAIL),
    )


TABLE: tuple[RemedyRow, ...] = (
    RemedyRow(Verdict.ANSWERED, Condition.ALWAYS, Remedy.ACCEPT),
    RemedyRow(Verdict.CALLED, Condition.ALWAYS, Remedy.ACCEPT),
    RemedyRow(Verdict.REFUSED, Condition.ALWAYS, Remedy.ACCEPT),
    RemedyRow(Verdict.FILTERED, Condition.ALWAYS, Remedy.ACCEPT),
    RemedyRow(Verdict.ANNOUNCED_ONLY, Condition.ALWAYS, Remedy.ACCEPT),
    RemedyRow(Verdict.LOOPING, Condition.BLOCKED, Remedy.FAIL),
    RemedyRow(Verdict.LOOPING, Condition.ALWAYS, Remedy.ACCEPT),
    RemedyRow(Verdict.STARVED, Condition.ALWAYS, Remedy.FAIL),
    # A forced reply with markup is discarded, and its next attempt is the next rung, charged once (rule 54).
    RemedyRow(Verdict.TEXT_CALL, Condition.SALVAGE_NOW, Remedy.SALVAGE),
    RemedyRow(Verdict.TEXT_CALL, Condition.RUNGS_LEFT, Remedy.CLIMB),
    RemedyRow(Verdict.TEXT_CALL, Condition.FIRST_UNGREEDY, Remedy.RESAMPLE),
    RemedyRow(Verdict.TEXT_CALL, Condition.RETRIES_LEFT, Remedy.REMIND),
    RemedyRow(Verdict.TEXT_CALL, Condition.SALVAGE_LAST, Remedy.SALVAGE),
    RemedyRow(Verdict.TEXT_CALL, Condition.ALWAYS, Remedy.FAIL),
    RemedyRow(Verdict.PHANTOM_CALL, Condition.RUNGS_LEFT, Remedy.CLIMB),
    RemedyRow(Verdict.PHANTOM_CALL, Condition.FIRST_UNGREEDY, Remedy.RESAMPLE),
    RemedyRow(Verdict.PHANTOM_CALL, Condition.RETRIES_LEFT, Remedy.REMIND),
    # A server may say `tool_calls` of every reply: what it answered again is an answer.
    RemedyRow(Verdict.PHANTOM_CALL, Condition.ANSWERS, Remedy.SALVAGE),
    RemedyRow(Verdict.PHANTOM_CALL, Condition.ALWAYS, Remedy.FAIL),
    RemedyRow(Verdict.FORCE_MISSED, Condition.RUNGS_LEFT, Remedy.CLIMB),
    RemedyRow(Verdict.FORCE_MISSED, Condition.UNMET_ANSWERS, Remedy.ACCEPT),
    RemedyRow(Verdict.FORCE_MISSED, Condition.ALWAYS, Remedy.FAIL),
    *_retries(Verdict.UNKNOWN_TOOL, RemedyRow(Verdict.UNKNOWN_TOOL, Condition.FIRST_UNGREEDY, Remedy.RESAMPLE)),
    RemedyRow(Verdict.BAD_ARGUMENTS, Condition.RETRIES_LEFT, Remedy.REMIND),
    RemedyRow(Verdict.BAD_ARGUMENTS, Condition.MENDABLE, Remedy.SALVAGE),
    RemedyRow(Verdict.BAD_ARGUMENTS, Condition.RUNGS_LEFT, Remedy.CLIMB),
    RemedyRow(Verdict.BAD_ARGUMENTS, Condition.ALWAYS, Remedy.FAIL),
    RemedyRow(Verdict.BAD_ANSWER, Condition.RETRIES_LEFT, Remedy.REMIND),
    RemedyRow(Verdict.BAD_ANSWER, Condition.ALWAYS, Remedy.FAIL),
    # The same request would run into the same limit: another way of asking may not (rules 26, 138).
    RemedyRow(Verdict.TRUNCATED, Condition.RUNGS_LEFT, Remedy.CLIMB),
    RemedyRow(Verdict.TRUNCATED, Condition.FORCED, Remedy.FAIL),
    RemedyRow(Verdict.TRUNCATED, Condition.CUT_CALL, Remedy.REMIND),
    RemedyRow(Verdict.TRUNCATED, Condition.ALWAYS, Remedy.FAIL),
    *_retries(Verdict.EMPTY),
    *_retries(Verdict.THINKING_ONLY, RemedyRow(Verdict.THINKING_ONLY, Condition.FINAL_THOUGHT, Remedy.ACCEPT)),
)

_LIMITS: dict[Verdict, Callable[[Limits], int]] = {
    Verdict.TEXT_CALL: lambda limits: limits.text_call,
    Verdict.PHANTOM_CALL: lambda limits: limits.text_call,
    Verdict.UNKNOWN_TOOL: lambda limits: limits.unknown_tool,
    Verdict.BAD_ARGUMENTS: lambda limits: limits.bad_arguments,
    Verdict.BAD_ANSWER: lambda limits: limits.bad_answer,
    Verdict.TRUNCATED: lambda limits: limits.truncated,
    Verdict.EMPTY: lambda limits: limits.empty,
    Verdict.THINKING_ONLY: lambda limits: limits.thinking_only,
}

#: The error a spent verdict becomes.
ERRORS: dict[Verdict, type[ModelError]] = {
    Verdict.TEXT_CALL: TextToolCallError,
    Verdict.PHANTOM_CALL: PhantomCall,
    Verdict.FORCE_MISSED: ForceUnmet,
    Verdict.UNKNOWN_TOOL: UnknownToolCalled,
    Verdict.BAD_ARGUMENTS: BadArguments,
    Verdict.BAD_ANSWER: StructuredOutputError,
    Verdict.TRUNCATED: TruncatedReply,
    Verdict.EMPTY: EmptyReply,
    Verdict.THINKING_ONLY: ThinkingOnly,
    Verdict.LOOPING: LoopBlocked,
    Verdict.STARVED: StarvedPrompt,
}

#: Verdicts that a later attempt can still mend when text has already been released: it may only add its calls.
_CONTINUABLE = frozenset(
    {Verdict.TEXT_CALL, Verdict.PHANTOM_CALL, Verdict.UNKNOWN_TOOL, Verdict.BAD_ARGUMENTS, Verdict.TRUNCATED}
)


def _left(verdict: Verdict, situation: Situation) -> bool:
    limit = _LIMITS.get(verdict)
    if situation.called or (situation.stateful and situation.released):
        return False
    possible = not situation.spoke or verdict in _CONTINUABLE
    return possible and situation.may_call and limit is not None and situation.tried < limit(situation.limits)


def _holds(row: RemedyRow, case: Situation) -> bool:
    match row.condition:
        case Condition.ALWAYS:
            return True
        case Condition.RUNGS_LEFT:
            return case.forced and case.rungs_left and not case.released and case.may_call
        case Condition.FORCED:
            return case.forced
        case Condition.SALVAGE_NOW:
            return case.salvageable and case.spoke and case.salvage is not Salvage.NEVER
        case Condition.SALVAGE_LAST:
            return case.salvageable and case.salvage is Salvage.LAST
        case Condition.MENDABLE:
            return case.salvageable and not case.called
        case Condition.FIRST_UNGREEDY:
            return not case.tried and not case.greedy and not case.reads_text and _left(row.verdict, case)
        case Condition.RETRIES_LEFT:
            return _left(row.verdict, case)
        case Condition.CUT_CALL:
            return case.cut_call and _left(row.verdict, case)
        case Condition.ANSWERS:
            return case.salvageable and not case.forced
        case Condition.UNMET_ANSWERS:
            return case.on_unmet is OnUnmet.ANSWER
        case Condition.FINAL_THOUGHT:
            return case.final_thought
        case Condition.BLOCKED:
            return case.blocks


#: Verdicts whose only row is to accept: no situation changes that.
ACCEPTED = frozenset(
    row.verdict for row in TABLE if row.remedy is Remedy.ACCEPT and row.condition is Condition.ALWAYS
) - {row.verdict for row in TABLE if row.condition is not Condition.ALWAYS}


def row_for(verdict: Verdict, situation: Situation) -> RemedyRow | None:
    """Return the row that decides; None for a verdict without one."""
    return next((row for row in TABLE if row.verdict is verdict and _holds(row, situation)), None)


def decide(verdict: Verdict, situation: Situation) -> Decision:
    """Return what is to be done; a verdict without a row (there is none) would fail."""
    row = row_for(verdict, situation)
    remedy = Remedy.FAIL if row is None else row.remedy
    return Decision(remedy, ERRORS.get(verdict, ModelError) if remedy is Remedy.FAIL else None)


def markdown() -> str:
    """Return the table as Markdown."""
    lines = ["| verdict | when | remedy | error |", "|---|---|---|---|"]
    for row in TABLE:
        error = f"`{ERRORS[row.verdict].code}`" if row.remedy is Remedy.FAIL and row.verdict in ERRORS else ""
        lines.append(f"| `{row.verdict}` | {row.condition} | {row.remedy} | {error} |")
    return "\n".join(lines) + "\n"
