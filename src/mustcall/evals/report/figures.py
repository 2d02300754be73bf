"""Adds a run up: shares with their intervals, calls, time, tokens. Every number of a report comes from here. Pure."""

from collections.abc import Iterable
from enum import StrEnum
from statistics import median

import msgspec

from mustcall.evals.asking.rows import Arm, Ending
from mustcall.evals.questions import AskedCall
from mustcall.evals.report.results import EvalResults, Pair, Trial
from mustcall.evals.report.statistics import Share, share_of
from mustcall.evals.scoring import Score
from mustcall.policy.reply.cut_prompt import CHARACTERS_PER_TOKEN

__all__ = ["Cost", "Figures", "Measure", "add_up"]


class Measure(StrEnum):
    """What a share is a share of; the words of every report."""

    VALID = "valid call"
    RIGHT_TOOL = "right tool"
    RIGHT_ARGUMENTS = "right arguments"

    def holds(self, score: Score) -> bool:
        """Tell whether a reply counts."""
        match self:
            case Measure.VALID:
                return score.valid
            case Measure.RIGHT_TOOL:
                return score.right_tool
            case Measure.RIGHT_ARGUMENTS:
                return score.right_arguments


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What one arm took. `extra` are upstream calls beyond one for each prompt."""

    calls: int
    extra: int
    seconds: float
    median_seconds: float
    input_tokens: int
    output_tokens: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """A run, added up.

    `only` counts the prompts that just one arm got right: the bare one, then mustcall. `written` counts replies whose
    text held a call nobody delivered; `failed` those that ended in an error. `unread` says that the bare server read
    fewer tokens than the tools take: it dropped them without a word, and its model never saw them.
    """

    shares: dict[Arm, dict[Measure, Share]]
    by_demand: dict[AskedCall, dict[Arm, dict[Measure, Share]]]
    only: dict[Measure, tuple[int, int]]
    cost: dict[Arm, Cost]
    written: dict[Arm, int]
    failed: dict[Arm, int]
    unread: bool


def add_up(run: EvalResults) -> Figures:
    """Add up what was measured, whole or partial."""
    pairs = run.pairs
    kinds = [demand for demand in AskedCall if any(pair.demand is demand for pair in pairs)]
    return Figures(
        shares=_arms(pairs),
        by_demand={kind: _arms([pair for pair in pairs if pair.demand is kind]) for kind in kinds},
        only={measure: _alone(pairs, measure) for measure in Measure},
        cost={arm: _cost([pair.arm(arm) for pair in pairs]) for arm in Arm},
        written={arm: sum(pair.arm(arm).written for pair in pairs) for arm in Arm},
        failed={arm: sum(pair.arm(arm).ending is Ending.FAILED for pair in pairs) for arm in Arm},
        unread=_is_unread(pairs),
    )


def _arms(pairs: Iterable[Pair]) -> dict[Arm, dict[Measure, Share]]:
    held = tuple(pairs)
    return {arm: {measure: _share(held, arm, measure) for measure in Measure} for arm in Arm}


def _share(pairs: tuple[Pair, ...], arm: Arm, measure: Measure) -> Share:
    hits = sum(measure.holds(pair.arm(arm).score) for pair in pairs)
    return share_of(hits, len(pairs))


def _alone(pairs: Iterable[Pair], measure: Measure) -> tuple[int, int]:
    both = [(measure.holds(pair.bare.score), measure.holds(pair.mustcall.score)) for pair in pairs]
    return both.count((True, False)), both.count((False, True))


def _is_unread(pairs: Iterable[Pair]) -> bool:
    """Tell whether fewer tokens were read than there can have been; a server that reports none tells nothing."""
    told = [pair for pair in pairs if pair.bare.input_tokens]
    least = sum(pair.characters for pair in told) // CHARACTERS_PER_TOKEN
    return sum(pair.bare.input_tokens for pair in told) < least


def _cost(trials: list[Trial]) -> Cost:
    calls = sum(trial.sends for trial in trials)
    return Cost(
        calls=calls,
        extra=calls - len(trials),
        seconds=sum(trial.seconds for trial in trials),
        median_seconds=median(trial.seconds for trial in trials) if trials else 0.0,
        input_tokens=sum(trial.input_tokens for trial in trials),
        output_tokens=sum(trial.output_tokens for trial in trials),
    )
