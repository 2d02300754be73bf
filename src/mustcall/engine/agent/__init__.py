"""The agent loop: a model that may use tools, until it has answered."""

from mustcall.engine.agent.agent import Agent
from mustcall.engine.agent.events import (
    CallFinished,
    CallStarted,
    ReasoningDelta,
    RunEvent,
    RunFinished,
    StepFinished,
    TextDelta,
)
from mustcall.engine.agent.options import Options
from mustcall.engine.agent.prompts import Prompt
from mustcall.engine.agent.running.plan import Hook
from mustcall.engine.agent.running.streams import RunStream
from mustcall.engine.agent.upstream import Upstream
from mustcall.engine.run_records.results import RunResult, Stopped

__all__ = [
    "Agent",
    "CallFinished",
    "CallStarted",
    "Hook",
    "Options",
    "Prompt",
    "ReasoningDelta",
    "RunEvent",
    "RunFinished",
    "RunResult",
    "RunStream",
    "StepFinished",
    "Stopped",
    "TextDelta",
    "Upstream",
]
