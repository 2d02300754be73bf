"""What many samples of one request come to: verdicts, shares with their intervals, what differs. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from mustcall.evals.asking.rows import Arm
from mustcall.evals.report.statistics import Share, share_of
from mustcall.replay.recorded import RecordedRequest
from mustcall.replay.sampling import HEALTHY, ReplaySample

__all__ = ["ArmSummary", "ReplaySummary", "summarise"]


class ArmSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One way of asking: how often each sequence of verdicts came, how often the caller was served, what it took."""

    arm: Arm
    samples: int
    verdicts: dict[str, int]
    ok: Share
    calls: int
    seconds: float
    input_tokens: int
    output_tokens: int
    cost_usd: float
    estimated: bool
    errors: dict[str, int]


class ReplaySummary(msgspec.Struct, frozen=True, kw_only=True):
    """All samples of one request.

    `recovered` is the share of the turns through mustcall whose first attempt failed and whose caller was served all
    the same; None where no first attempt failed. `differs` are sentences about what is not as it was recorded.
    """

    source: str
    recorded: tuple[str, ...]
    arms: tuple[ArmSummary, ...]
    recovered: Share | None
    differs: tuple[str, ...]

    def arm(self, arm: Arm) -> ArmSummary | None:
        """Return the summary of one arm, None if it was not asked."""
        return next((one for one in self.arms if one.arm is arm), None)


def summarise(recorded: RecordedRequest, samples: Sequence[ReplaySample]) -> ReplaySummary:
    """Count the samples of a recorded request."""
    by_arm = {arm: [sample for sample in samples if sample.arm is arm] for arm in Arm}
    through = by_arm[Arm.MUSTCALL]
    failed_first = [sample for sample in through if sample.verdicts and sample.verdicts[0] not in HEALTHY]
    recovered = share_of(sum(sample.ok for sample in failed_first), len(failed_first)) if failed_first else None
    return ReplaySummary(
        source=recorded.source,
        recorded=recorded.verdicts,
        arms=tuple(_arm(arm, held) for arm, held in by_arm.items() if held),
        recovered=recovered,
        differs=tuple(_differences(recorded, by_arm)),
    )


def _arm(arm: Arm, samples: Sequence[ReplaySample]) -> ArmSummary:
    return ArmSummary(
        arm=arm,
        samples=len(samples),
        verdicts=_counted(" → ".join(sample.verdicts) or sample.error for sample in samples),
        ok=share_of(sum(sample.ok for sample in samples), len(samples)),
        calls=sum(sample.sends for sample in samples),
        seconds=round(sum(sample.seconds for sample in samples), 3),
        input_tokens=sum(sample.input_tokens for sample in samples),
        output_tokens=sum(sample.output_tokens for sample in samples),
        cost_usd=round(sum(sample.cost_usd for sample in samples), 9),
        estimated=any(sample.estimated for sample in samples),
        errors=_counted(sample.error for sample in samples if sample.error),
    )


def _counted(words: Iterable[str]) -> dict[str, int]:
    """Return how often each word came, the most frequent first."""
    return dict(Counter(words).most_common())


def _differences(recorded: RecordedRequest, by_arm: dict[Arm, list[ReplaySample]]) -> Iterable[str]:
    bare, through = by_arm[Arm.BARE], by_arm[Arm.MUSTCALL]
    if recorded.verdicts and through:
        same = sum(sample.verdicts == recorded.verdicts for sample in through)
        words = " → ".join(recorded.verdicts)
        if same < len(through):
            yield f"recorded: {words}; the same attempts came in {same} of {len(through)} turns"
    if recorded.outcome and through:
        others = _counted(str(sample.outcome) for sample in through if sample.outcome != recorded.outcome)
        for outcome, count in others.items():
            yield f"recorded outcome: {recorded.outcome}; {count} of {len(through)} turns ended with {outcome}"
    if bare and through:
        helped, hurt = (_rate(bare, ok=False) - _rate(through, ok=False)), _rate(through, ok=False)
        if helped > 0:
            yield f"served: {_of(bare)} bare, {_of(through)} through mustcall"
        elif helped < 0 and hurt:
            yield f"served less through mustcall: {_of(bare)} bare, {_of(through)} through mustcall"
    changes = Counter(change for sample in through for change in set(sample.adaptations))
    before = set(recorded.adaptations)
    for change, count in changes.most_common():
        if change not in before or not recorded.verdicts:
            yield f"changed by mustcall in {count} of {len(through)} turns: {change}"


def _rate(samples: Sequence[ReplaySample], *, ok: bool) -> float:
    return sum(sample.ok is ok for sample in samples) / len(samples)


def _of(samples: Sequence[ReplaySample]) -> str:
    return f"{sum(sample.ok for sample in samples)} of {len(samples)}"
