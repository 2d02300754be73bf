"""Rows of mustcall's own prompts as scored pairs: what the demo's report is made of."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

import msgspec

from mustcall.core.tools import Tool
from mustcall.dialects import parse
from mustcall.evals.asking.arms import Asker
from mustcall.evals.asking.rows import Arm, EvalRow
from mustcall.evals.asking.runner import ask_all
from mustcall.evals.prompts import EvalPrompt, as_question, describe_wanted
from mustcall.evals.report.results import Pair, Trial
from mustcall.evals.scoring import Score, score

__all__ = ["compare", "trial_of"]

#: How much of a reply's text is kept for the report.
_LONGEST = 400


async def compare(
    prompts: Sequence[EvalPrompt],
    askers: Mapping[Arm, Asker],
    *,
    name: str,
    note: Callable[[Arm, Trial], None] | None = None,
) -> AsyncGenerator[Pair]:
    """Yield each prompt's pair as soon as both its arms are there; `note` is told of each arm."""
    known = {prompt.id: prompt for prompt in prompts}
    questions = [as_question(prompt) for prompt in prompts]
    trials: dict[Arm, Trial] = {}
    async with aclosing(ask_all(questions, askers, name=name)) as rows:
        async for row in rows:
            prompt = known[row.id]
            trials[row.arm] = trial_of(prompt, row)
            if note is not None:
                note(row.arm, trials[row.arm])
            if len(trials) == len(askers):
                yield _pair(prompt, trials)
                trials = {}


def trial_of(prompt: EvalPrompt, row: EvalRow) -> Trial:
    """Score a reply."""
    return Trial(
        ending=row.ending,
        score=score(prompt, row.calls) if row.fault is None else Score(),
        calls=row.calls,
        text=row.text if len(row.text) <= _LONGEST else row.text[:_LONGEST] + "…",
        written=not row.calls and bool(parse([row.text], tools=prompt.tools, loose=True).calls),
        fault=row.fault,
        sends=row.sends,
        seconds=row.seconds,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        verdicts=row.verdicts,
        rungs=row.rungs,
    )


def _pair(prompt: EvalPrompt, trials: Mapping[Arm, Trial]) -> Pair:
    return Pair(
        prompt=prompt.id,
        says=prompt.says,
        demand=prompt.demand,
        wanted=describe_wanted(prompt),
        characters=len(prompt.says) + sum(map(_length, prompt.tools)),
        bare=trials[Arm.BARE],
        mustcall=trials[Arm.MUSTCALL],
    )


def _length(tool: Tool) -> int:
    """Return the characters a tool takes, however it is laid out."""
    return len(tool.name) + len(tool.description or "") + len(msgspec.json.encode(tool.parameters))
