"""What sending a request again may cost, told before anything is sent: upstream calls and US dollars at most. Pure."""

import msgspec

from mustcall.core.reply import Usage
from mustcall.evals.rows import Arm
from mustcall.policy.limits.budget import charge_for
from mustcall.policy.reply.cut_prompt import estimate
from mustcall.replay.recorded import Recorded
from mustcall.replay.sampling import Subject
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
        cost = "the price of the model is not known" if self.most_usd is None else f"about ${self.most_usd:.4f} at most"
        return f"{calls} upstream calls; {cost}"


def cost_of_call(recorded: Recorded, subject: Subject) -> float | None:
    """Return about what one upstream call costs, None where the price is not known."""
    price = subject.prices.of(subject.model, subject.endpoint.base_url)
    if price is None:
        return None
    request = codec_for(recorded.wire).decode_request(recorded.body)
    budget = subject.house.budget
    expected = budget.expected_output_tokens if budget is not None else _EXPECTED
    output = min(request.max_tokens, expected) if request.max_tokens is not None else expected
    return charge_for(Usage(input_tokens=estimate(request), output_tokens=output), price).cost_usd


def announce(recorded: Recorded, subject: Subject, *, times: int, arms: tuple[Arm, ...] = tuple(Arm)) -> Announcement:
    """Return what `replay` with the same arguments may take."""
    least = times * len(arms)
    extra = subject.controls.limits.extra_calls if Arm.MUSTCALL in arms else 0
    most = least + times * extra
    each = cost_of_call(recorded, subject)
    return Announcement(least_calls=least, most_calls=most, most_usd=None if each is None else each * most)
