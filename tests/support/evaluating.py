"""Prompts, their right calls, and runs made of them without a model."""

import json
from typing import Any

from mustcall.core.origin import Wire
from mustcall.evals.asking import Sampling
from mustcall.evals.prompts import Expected, Items, OneOf, Prompt, Same, SameText, Words, describe_wanted, load_prompts
from mustcall.evals.questions import Demand
from mustcall.evals.results import Circumstances, Pair, Run, Trial
from mustcall.evals.rows import Ending, Fault, MadeCall
from mustcall.evals.scoring import Score, score

SAMPLING = Sampling(max_tokens=200)
PROMPTS = {prompt.id: prompt for prompt in load_prompts()}
OSLO = PROMPTS["weather-oslo"]


def fitting(expected: Expected) -> Any:
    """A value that an expectation takes."""
    match expected:
        case SameText() | Same():
            return expected.value
        case OneOf():
            return expected.values[0]
        case Words():
            return " ".join(expected.values)
        case Items():
            return list(expected.values)


def right_arguments(prompt: Prompt) -> dict[str, Any]:
    """The arguments a prompt wants."""
    return {name: fitting(expected) for name, expected in prompt.arguments.items()}


def right_call(prompt: Prompt) -> MadeCall:
    """The call a prompt wants."""
    return MadeCall(prompt.wants, json.dumps(right_arguments(prompt)))


def called(prompt: Prompt, **numbers: Any) -> Trial:
    """A trial that ended in the right call."""
    call = right_call(prompt)
    return Trial(ending=Ending.CALLED, score=score(prompt, [call]), calls=(call,), **numbers)


def answered(text: str = "Look it up.", **numbers: Any) -> Trial:
    """A trial that ended in text."""
    return Trial(ending=Ending.ANSWERED, score=Score(), text=text, **numbers)


def failed(message: str = "no call came", **numbers: Any) -> Trial:
    """A trial that ended in an error."""
    fault = Fault(code="force_unmet", message=message, upstream=False)
    return Trial(ending=Ending.FAILED, score=Score(), fault=fault, **numbers)


def pair(prompt: Prompt, bare: Trial, mustcall: Trial) -> Pair:
    """A prompt asked both ways."""
    return Pair(
        prompt=prompt.id,
        says=prompt.says,
        demand=prompt.demand,
        wanted=describe_wanted(prompt),
        characters=400,
        bare=bare,
        mustcall=mustcall,
    )


def run_of(*pairs: Pair, planned: int | None = None, model: str = "tiny") -> Run:
    """A run of these pairs."""
    circumstances = Circumstances(
        model=model,
        upstream="chat",
        wire=Wire.CHAT,
        address="http://127.0.0.1:9000/v1",
        version="0.1.0",
        started="2026-11-15T09:48:49+00:00",
        planned=len(pairs) if planned is None else planned,
        sampling=SAMPLING,
    )
    return Run(circumstances=circumstances, pairs=pairs)


def small_run(planned: int | None = None) -> Run:
    """A run with every kind of ending, on every kind of demand."""
    prompts = {demand: [one for one in PROMPTS.values() if one.demand is demand] for demand in Demand}
    first, second = prompts[Demand.REQUIRED][:2]
    wrong = MadeCall(second.wants, json.dumps({**right_arguments(second), "expression": "1"}))
    half = Trial(ending=Ending.CALLED, score=score(second, [wrong]), calls=(wrong,), sends=3, seconds=2.5)
    return run_of(
        pair(first, answered("<b>Rain</b> & snow", seconds=1.0, output_tokens=5), called(first, sends=2, seconds=2.0)),
        pair(second, answered("<tool_call>{}</tool_call>", written=True, seconds=0.5), half),
        pair(prompts[Demand.NAMED][0], called(prompts[Demand.NAMED][0]), failed("no <call> came", sends=5)),
        pair(prompts[Demand.AUTO][0], failed(), called(prompts[Demand.AUTO][0], input_tokens=70)),
        planned=planned,
    )
