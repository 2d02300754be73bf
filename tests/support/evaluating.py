"""Prompts, their right calls, and runs made of them without a model."""

import json
from typing import Any

from mustcall.core.origin import Wire
from mustcall.evals.asking.client_requests import Sampling
from mustcall.evals.asking.rows import Ending, MadeCall, ReplyError
from mustcall.evals.prompts import (
    EvalPrompt,
    Expected,
    Items,
    OneOf,
    Same,
    SameText,
    Words,
    describe_wanted,
    load_prompts,
)
from mustcall.evals.questions import AskedCall
from mustcall.evals.report.results import EvalConditions, EvalResults, Pair, Trial
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


def right_arguments(prompt: EvalPrompt) -> dict[str, Any]:
    """The arguments a prompt wants."""
    return {name: fitting(expected) for name, expected in prompt.arguments.items()}


def right_call(prompt: EvalPrompt) -> MadeCall:
    """The call a prompt wants."""
    return MadeCall(prompt.wants, json.dumps(right_arguments(prompt)))


def called(prompt: EvalPrompt, **numbers: Any) -> Trial:
    """A trial that ended in the right call."""
    call = right_call(prompt)
    return Trial(ending=Ending.CALLED, score=score(prompt, [call]), calls=(call,), **numbers)


def answered(text: str = "Look it up.", **numbers: Any) -> Trial:
    """A trial that ended in text."""
    return Trial(ending=Ending.ANSWERED, score=Score(), text=text, **numbers)


def failed(message: str = "no call came", **numbers: Any) -> Trial:
    """A trial that ended in an error."""
    fault = ReplyError(code="force_unmet", message=message, upstream=False)
    return Trial(ending=Ending.FAILED, score=Score(), fault=fault, **numbers)


def pair(prompt: EvalPrompt, bare: Trial, mustcall: Trial) -> Pair:
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


def run_of(*pairs: Pair, planned: int | None = None, model: str = "tiny") -> EvalResults:
    """A run of these pairs."""
    circumstances = EvalConditions(
        model=model,
        upstream="chat",
        wire=Wire.CHAT,
        address="http://127.0.0.1:9000/v1",
        version="0.1.0",
        started="2026-11-15T09:48:49+00:00",
        planned=len(pairs) if planned is None else planned,
        sampling=SAMPLING,
    )
    return EvalResults(circumstances=circumstances, pairs=pairs)


def small_run(planned: int | None = None) -> EvalResults:
    """A run with every kind of ending, on every kind of demand."""
    prompts = {demand: [one for one in PROMPTS.values() if one.demand is demand] for demand in AskedCall}
    first, second = prompts[AskedCall.REQUIRED][:2]
    wrong = MadeCall(second.wants, json.dumps({**right_arguments(second), "expression": "1"}))
    half = Trial(ending=Ending.CALLED, score=score(second, [wrong]), calls=(wrong,), sends=3, seconds=2.5)
    return run_of(
        pair(first, answered("<b>Rain</b> & snow", seconds=1.0, output_tokens=5), called(first, sends=2, seconds=2.0)),
        pair(second, answered("<tool_call>{}</tool_call>", written=True, seconds=0.5), half),
        pair(prompts[AskedCall.NAMED][0], called(prompts[AskedCall.NAMED][0]), failed("no <call> came", sends=5)),
        pair(prompts[AskedCall.AUTO][0], failed(), called(prompts[AskedCall.AUTO][0], input_tokens=70)),
        planned=planned,
    )
