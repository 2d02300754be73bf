"""mustcall's own prompts as a suite: what `mustcall demo` asks, in sets by what the caller demands."""

import hashlib
from collections.abc import Sequence

from mustcall.core.errors import ConfigError
from mustcall.evals.asking.rows import MadeCall
from mustcall.evals.prompts import EvalPrompt, as_question, describe_wanted, load_prompts, prompts_text
from mustcall.evals.questions import AskedCall, Question
from mustcall.evals.scoring import score
from mustcall.evals.suites import Grade

__all__ = ["BuiltinSuite"]


class BuiltinSuite:
    """The prompts of the data file."""

    name = "builtin"

    @property
    def version(self) -> str:
        """A short hash of the data file."""
        return hashlib.sha256(prompts_text().encode()).hexdigest()[:16]

    def sets(self, choice: AskedCall | None) -> tuple[str, ...]:
        """Return one set for each demand; with a choice, all prompts are asked with it in one."""
        return tuple(map(str, AskedCall)) if choice is None else (str(choice),)

    def questions(self, name: str, choice: AskedCall | None) -> Sequence[Question]:
        """Return the prompts that demand what the set is called after, or all of them with the choice."""
        prompts = [prompt for prompt in load_prompts() if choice is not None or prompt.demand == name]
        return [as_question(prompt, choice) for prompt in prompts]

    def words(self, question: str) -> str:
        """Return what the user says."""
        return _prompt(question).says

    def grade(self, question: str, calls: Sequence[MadeCall]) -> Grade:
        """Grade calls by the prompt's own comparisons."""
        prompt = _prompt(question)
        scored = score(prompt, calls)
        problem = "" if scored.right_arguments else f"wanted {describe_wanted(prompt)}"
        return Grade(called=bool(calls), valid=scored.valid, right=scored.right_arguments, problem=problem)


def _prompt(name: str) -> EvalPrompt:
    for prompt in load_prompts():
        if prompt.id == name:
            return prompt
    raise ConfigError(f"there is no prompt {name!r}")
