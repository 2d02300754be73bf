"""What the tries of a cell come to, and when there have been enough. Pure.

The rate behind the tries is in one of three classes: it holds (95 % and more), it does not (5 % and less), or it is
flaky. A cell is tried until Wilson's 95 % interval lies within one class, or its tries are used up; then the class of
the observed rate is the verdict. That all of 73 tries held puts the interval above 95 %. A refusal repeats itself, so
two in a row without anything else are enough.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from mustcall.evals.report.statistics import Share, share_of
from mustcall.probe.values import CellFinding, CellVerdict, Outcome, Owner

__all__ = ["FLOOR", "REPEATED", "THRESHOLD", "count", "is_settled", "settle_owner", "settle_verdict"]

#: A guarantee holds from this rate on.
THRESHOLD = 0.95
#: A guarantee is ignored up to this rate.
FLOOR = 0.05
#: Refusals or crashes that are enough where nothing else was seen.
REPEATED = 2

_FAILED = {
    Outcome.NOT_DONE: CellVerdict.IGNORED,
    Outcome.REFUSED: CellVerdict.REFUSED,
    Outcome.CRASHED: CellVerdict.CRASHED,
}


def count(outcomes: Iterable[Outcome]) -> Share:
    """Return how many of the measured tries held, with the interval of the rate."""
    measured = [outcome for outcome in outcomes if outcome is not Outcome.UNMEASURED]
    return share_of(measured.count(Outcome.HELD), len(measured))


def is_settled(outcomes: Sequence[Outcome]) -> bool:
    """Tell whether more tries would not change the verdict, as far as 95 % goes."""
    measured = [outcome for outcome in outcomes if outcome is not Outcome.UNMEASURED]
    if len(measured) >= REPEATED and len(set(measured)) == 1 and measured[0] in (Outcome.REFUSED, Outcome.CRASHED):
        return True
    share = count(measured)
    if not measured:
        return False
    return share.low >= THRESHOLD or share.high <= FLOOR or (share.low > FLOOR and share.high < THRESHOLD)


def settle_verdict(outcomes: Sequence[Outcome]) -> CellVerdict:
    """Return the class of the observed rate; among failures the most frequent kind, `ignored` where two are equal."""
    share = count(outcomes)
    if not share.of:
        return CellVerdict.UNMEASURED
    if share.rate >= THRESHOLD:
        return CellVerdict.HELD
    if share.rate > FLOOR:
        return CellVerdict.FLAKY
    kinds = Counter(outcome for outcome in outcomes if outcome in _FAILED)
    return _FAILED[max(_FAILED, key=lambda outcome: kinds[outcome])]


def settle_owner(
    findings: Sequence[CellFinding],
    duty: Owner,
    *,
    whole: CellFinding | None = None,
    unreasoned: CellFinding | None = None,
) -> tuple[Owner | None, str]:
    """Return whose fault it is that not all tries held, and why; None where all did.

    What the replies themselves tell comes first, the most frequent; only failures of the kind that the verdict is about
    count. `whole` is the same request without streaming,
    `unreasoned` without reasoning: one that holds shows where the fault is.
    """
    verdict = settle_verdict([finding.outcome for finding in findings])
    kinds = {kind for kind, word in _FAILED.items() if verdict in (word, CellVerdict.FLAKY, CellVerdict.HELD)}
    failed = [finding for finding in findings if finding.outcome in kinds]
    if not failed:
        return None, ""
    told = Counter(finding.owner for finding in failed if finding.owner is not None)
    if told:
        owner = max(told, key=lambda each: told[each])
        return owner, next(finding.note for finding in failed if finding.owner is owner)
    if whole is not None and whole.outcome is Outcome.HELD:
        return Owner.TRANSPORT, "whole it holds, streamed it does not"
    if unreasoned is not None and unreasoned.outcome is Outcome.HELD:
        return duty, "it holds without reasoning"
    return duty, failed[0].note
