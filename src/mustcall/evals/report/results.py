"""What a run measured, as values: one trial for each arm of each prompt, and the circumstances. JSON both ways.

Holds what was seen and judges nothing; `figures` adds it up.
"""

import msgspec

from mustcall.core.origin import Wire
from mustcall.evals.asking.client_requests import Sampling
from mustcall.evals.asking.rows import Arm, Ending, Form, MadeCall, ReplyError
from mustcall.evals.questions import AskedCall
from mustcall.evals.scoring import Score

__all__ = ["EvalConditions", "EvalResults", "Pair", "Trial"]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt asked one way.

    `written` says that the text holds a call nobody delivered as one. `sends` are upstream calls, transport retries
    included. `verdicts` and `rungs` are mustcall's own record of its attempts.
    """

    ending: Ending
    score: Score
    calls: tuple[MadeCall, ...] = ()
    text: str = ""
    written: bool = False
    fault: ReplyError | None = None
    sends: int = 1
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    verdicts: tuple[str, ...] = ()
    rungs: tuple[str, ...] = ()


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt asked both ways. `wanted` is the right call in words, `characters` the length of words and tools."""

    prompt: str
    says: str
    demand: AskedCall
    wanted: str
    characters: int
    bare: Trial
    mustcall: Trial

    def arm(self, arm: Arm) -> Trial:
        """Return the trial of one arm."""
        return self.bare if arm is Arm.BARE else self.mustcall


class EvalConditions(msgspec.Struct, frozen=True, kw_only=True):
    """Who was measured, when and how. `started` is ISO 8601; `form` is how the bare arm got its tools."""

    model: str
    upstream: str
    wire: Wire
    address: str
    version: str
    started: str
    planned: int
    sampling: Sampling
    form: Form = Form.NATIVE
    seed: int | None = None


class EvalResults(msgspec.Struct, frozen=True, kw_only=True):
    """A run as far as it came."""

    circumstances: EvalConditions
    pairs: tuple[Pair, ...]

    @property
    def partial(self) -> bool:
        """Whether it ended before the last prompt."""
        return len(self.pairs) < self.circumstances.planned
