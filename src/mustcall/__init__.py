"""mustcall: tool calls you can rely on, from any model.

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mustcall.core.errors import BudgetSpent, MustcallError, ToolError, ToolRefused
    from mustcall.core.message import Message, Role
    from mustcall.core.parts import Image, Text, ToolCall
    from mustcall.core.reply import Usage
    from mustcall.core.request import ReasoningConfig
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
    from mustcall.engine.agent.results import RunResult, Stopped
    from mustcall.engine.agent.streams import RunStream
    from mustcall.engine.agent.upstream import Upstream
    from mustcall.engine.coordinating.coordinate import coordinate, coordinate_sync
    from mustcall.engine.coordinating.results import CoordinateResult
    from mustcall.engine.spending.purse import Budget
    from mustcall.engine.tooling.definition import FunctionTool, ToolContext, ToolReturn, ToolSettings, ToolSource
    from mustcall.engine.tooling.functions import tool
    from mustcall.engine.tooling.outcomes import CallStatus, ExecutedCall
    from mustcall.policy.facts.controls import Controls, Limits, OnUnmet
    from mustcall.policy.limits.budget import Caps
    from mustcall.policy.words.grounding import GroundingRule

__version__ = "0.1.0"

_HOMES = {
    "mustcall.core.errors": ("BudgetSpent", "MustcallError", "ToolError", "ToolRefused"),
    "mustcall.core.message": ("Message", "Role"),
    "mustcall.core.parts": ("Image", "Text", "ToolCall"),
    "mustcall.core.reply": ("Usage",),
    "mustcall.core.request": ("ReasoningConfig",),
    "mustcall.engine.agent.agent": ("Agent",),
    "mustcall.engine.agent.events": (
        "CallFinished",
        "CallStarted",
        "ReasoningDelta",
        "RunEvent",
        "RunFinished",
        "StepFinished",
        "TextDelta",
    ),
    "mustcall.engine.agent.options": ("Options",),
    "mustcall.engine.agent.results": ("RunResult", "Stopped"),
    "mustcall.engine.agent.streams": ("RunStream",),
    "mustcall.engine.agent.upstream": ("Upstream",),
    "mustcall.engine.coordinating.coordinate": ("coordinate", "coordinate_sync"),
    "mustcall.engine.coordinating.results": ("CoordinateResult",),
    "mustcall.engine.spending.purse": ("Budget",),
    "mustcall.engine.tooling.definition": ("FunctionTool", "ToolContext", "ToolReturn", "ToolSettings", "ToolSource"),
    "mustcall.engine.tooling.functions": ("tool",),
    "mustcall.engine.tooling.outcomes": ("CallStatus", "ExecutedCall"),
    "mustcall.policy.limits.budget": ("Caps",),
    "mustcall.policy.facts.controls": ("Controls", "Limits", "OnUnmet"),
    "mustcall.policy.words.grounding": ("GroundingRule",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Agent",
    "Budget",
    "BudgetSpent",
    "CallFinished",
    "CallStarted",
    "CallStatus",
    "Caps",
    "Controls",
    "CoordinateResult",
    "ExecutedCall",
    "FunctionTool",
    "GroundingRule",
    "Image",
    "Limits",
    "Message",
    "MustcallError",
    "OnUnmet",
    "Options",
    "ReasoningConfig",
    "ReasoningDelta",
    "Role",
    "RunEvent",
    "RunFinished",
    "RunResult",
    "RunStream",
    "StepFinished",
    "Stopped",
    "Text",
    "TextDelta",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolRefused",
    "ToolReturn",
    "ToolSettings",
    "ToolSource",
    "Upstream",
    "Usage",
    "__version__",
    "coordinate",
    "coordinate_sync",
    "tool",
]


def __getattr__(name: str) -> Any:
    """Load a public name from where it lives."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'mustcall' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  kept out of the way of a plain import

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
