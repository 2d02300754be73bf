"""Rows, facts and summaries of `mustcall eval`, made without a model; two questions of mustcall's own suite."""

import json
from typing import Any

from mustcall.core.origin import Wire
from mustcall.evals.asking.client_requests import Sampling
from mustcall.evals.asking.journal import RunFacts
from mustcall.evals.asking.rows import Arm, EvalRow, Form, MadeCall, ReplyError
from mustcall.evals.builtin import BuiltinSuite
from mustcall.evals.prompts import EvalPrompt
from mustcall.evals.questions import AskedCall
from mustcall.evals.report.summary import EvalSummary, summarise
from support.evaluating import PROMPTS, right_arguments, right_call

__all__ = ["LIST", "OSLO", "facts", "failed", "fenced", "row", "small_summary"]

OSLO, LIST = PROMPTS["weather-oslo"], PROMPTS["list-tmp"]


def facts(**changes: Any) -> RunFacts:
    """The circumstances of a small run."""
    given: dict[str, Any] = {
        "suite": "builtin",
        "data": BuiltinSuite().version,
        "sets": ("required", "named"),
        "limit": None,
        "seed": 0,
        "choice": None,
        "model": "tiny",
        "upstream": "chat",
        "address": "http://127.0.0.1:9000/v1",
        "upstream_wire": Wire.CHAT,
        "wire": Wire.CHAT,
        "stream": False,
        "via": "engine",
        "form": Form.NATIVE,
        "sampling": Sampling(max_tokens=64),
        "planned": 2,
        "version": "0.1.0",
        "started": "2026-11-16T09:48:49+00:00",
    }
    return RunFacts(**{**given, **changes})


def row(prompt: EvalPrompt, arm: Arm, *, right: bool = False, **fields: Any) -> EvalRow:
    """A reply to a prompt: its right call, or words."""
    calls: tuple[MadeCall, ...] = (right_call(prompt),) if right else ()
    given: dict[str, Any] = {
        "calls": calls,
        "text": "" if right else "Look it up.",
        "sends": 1,
        "seconds": 1.0,
        **fields,
    }
    return EvalRow(
        id=prompt.id,
        set=str(prompt.demand),
        arm=arm,
        wire=Wire.CHAT,
        choice=prompt.demand,
        request_id=f"req_{prompt.id}",
        **given,
    )


def fenced(prompt: EvalPrompt) -> str:
    """The right call as small models write it into their text."""
    written = json.dumps({"name": prompt.wants, "arguments": right_arguments(prompt)}, indent=1)
    return f"```json\n{written}\n```"


def failed(prompt: EvalPrompt, arm: Arm, *, upstream: bool = False, **fields: Any) -> EvalRow:
    """A reply that is an error."""
    fault = ReplyError(
        code="upstream_unavailable" if upstream else "force_unmet", message="no <call>", upstream=upstream
    )
    return row(prompt, arm, text="", fault=fault, **fields)


def small_summary(**changes: Any) -> EvalSummary:
    """Two questions: one that bare writes into its text and mustcall calls, one that both fail."""
    assert OSLO.demand is AskedCall.REQUIRED
    assert LIST.demand is AskedCall.NAMED
    rows = [
        row(OSLO, Arm.BARE, text=fenced(OSLO), seconds=3.0, input_tokens=50, output_tokens=9),
        row(OSLO, Arm.MUSTCALL, right=True, sends=2, verdicts=("force_missed", "called"), rungs=("native", "schema")),
        failed(LIST, Arm.MUSTCALL, sends=4, turn=2, seconds=9.0),
        row(LIST, Arm.BARE, text="<b>No</b> & never", turn=2),
    ]
    return summarise(facts(**changes), rows, BuiltinSuite())
