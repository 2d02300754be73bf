"""What sending a request again may cost, told before anything is sent: upstream calls and US dollars at most. Pure."""

import msgspec

from mustcall.core.reply import Usage
from mustcall.evals.asking.rows import Arm
from mustcall.policy.limits.budget import charge_for
from mustcall.policy.reply.cut_prompt import estimate
from mustcall.policy.request.refused_tools import calls_for
from mustcall.replay.recorded import RecordedRequest
from mustcall.replay.sampling import ReplaySubject
from mustcall.wire.registry import codec_for

__all__ = ["Announcement", "announce", "cost_of_call"]

#: Output tokens that one call is counted with where the request sets no limit and the operator no expectation.
_EXPECTED = 1_000


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """The most calls that are made, and what they cost if each is as long as expected; None for an unknown price."""

    least_calls: int
    most_calls: int
    most_usd: float | None

    @property
    def words(self) -> str:
        """The announcement as a sentence."""
        calls = f"{self.least_calls} to {self.most_calls}" if self.least_calls < self.most_calls else self.most_calls
        return f"{calls} upstream calls; {self.cost_words}"

    @property
    def cost_words(self) -> str:
        """What the most calls cost, in words."""
        if self.most_usd is None:
            return "the price of the model is not known"
        return f"about ${self.most_usd:.4f} at most" if self.most_usd else "no cost"


def cost_of_call(recorded: RecordedRequest, subject: ReplaySubject) -> float | None:
    """Return about what one upstream call costs, None where the price is not known."""
    price = subject.prices.of(subject.model, subject.endpoint.base_url)
    if price is None:
        return None
    request = codec_for(recorded.wire).decode_request(recorded.body)
    budget = subject.operator.budget
    expected = budget.expected_output_tokens if budget is not None else _EXPECTED
    output = min(request.max_tokens, expected) if request.max_tokens is not None else expected
    return charge_for(Usage(input_tokens=estimate(request), output_tokens=output), price).cost_usd


def announce(
    recorded: RecordedRequest, subject: ReplaySubject, *, times: int, arms: tuple[Arm, ...] = tuple(Arm)
) -> Announcement:
    """Return what `replay` with the same arguments may take."""
    least = times * len(arms)
    extra = subject.controls.limits.extra_calls if Arm.MUSTCALL in arms else 0
    if extra:  # a refused tool is looked for by calls of its own (rule 130)
        tools = codec_for(recorded.wire).decode_request(recorded.body).tools
        extra += min(calls_for(len(tools)), subject.controls.limits.refused_tool)
    most = least + times * extra
    each = cost_of_call(recorded, subject)
    return Announcement(least_calls=least, most_calls=most, most_usd=None if each is None else each * most)
