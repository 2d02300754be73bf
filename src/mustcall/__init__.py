"""mustcall: tool calls you can rely on, from any model.

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mustcall.adapters.wrapping import wrap
    from mustcall.core.errors import AlreadyRecorded as AlreadyRecorded
    from mustcall.core.errors import BadArguments as BadArguments
    from mustcall.core.errors import BodyTooLarge as BodyTooLarge
    from mustcall.core.errors import BreakerOpen as BreakerOpen
    from mustcall.core.errors import BudgetSpent as BudgetSpent
    from mustcall.core.errors import CallerError as CallerError
    from mustcall.core.errors import ConfigError as ConfigError
    from mustcall.core.errors import ContentsNotKept as ContentsNotKept
    from mustcall.core.errors import EmptyReply as EmptyReply
    from mustcall.core.errors import ErrorInfo as ErrorInfo
    from mustcall.core.errors import FenceLost as FenceLost
    from mustcall.core.errors import FetchFailed as FetchFailed
    from mustcall.core.errors import ForcedToolMissing as ForcedToolMissing
    from mustcall.core.errors import ForcedToolRefused as ForcedToolRefused
    from mustcall.core.errors import ForceUnmet as ForceUnmet
    from mustcall.core.errors import ForeignOrigin as ForeignOrigin
    from mustcall.core.errors import GatewayBusy as GatewayBusy
    from mustcall.core.errors import InvalidRequest as InvalidRequest
    from mustcall.core.errors import LedgerBroken as LedgerBroken
    from mustcall.core.errors import LedgerError as LedgerError
    from mustcall.core.errors import LedgerFull as LedgerFull
    from mustcall.core.errors import LedgerMismatch as LedgerMismatch
    from mustcall.core.errors import LedgerReadOnly as LedgerReadOnly
    from mustcall.core.errors import LedgerUnavailable as LedgerUnavailable
    from mustcall.core.errors import LoopBlocked as LoopBlocked
    from mustcall.core.errors import ModelError as ModelError
    from mustcall.core.errors import MustcallError, ToolError, ToolRefused
    from mustcall.core.errors import PhantomCall as PhantomCall
    from mustcall.core.errors import QuorumMissed as QuorumMissed
    from mustcall.core.errors import RoleFailed as RoleFailed
    from mustcall.core.errors import RunBusy as RunBusy
    from mustcall.core.errors import StarvedPrompt as StarvedPrompt
    from mustcall.core.errors import StructuredOutputError as StructuredOutputError
    from mustcall.core.errors import TextToolCallError as TextToolCallError
    from mustcall.core.errors import ThinkingOnly as ThinkingOnly
    from mustcall.core.errors import TruncatedReply as TruncatedReply
    from mustcall.core.errors import Unauthorized as Unauthorized
    from mustcall.core.errors import UnknownModel as UnknownModel
    from mustcall.core.errors import UnknownRoute as UnknownRoute
    from mustcall.core.errors import UnknownRun as UnknownRun
    from mustcall.core.errors import UnknownState as UnknownState
    from mustcall.core.errors import UnknownToolCalled as UnknownToolCalled
    from mustcall.core.errors import UnknownTurn as UnknownTurn
    from mustcall.core.errors import UnsupportedFeature as UnsupportedFeature
    from mustcall.core.errors import UpstreamError as UpstreamError
    from mustcall.core.errors import UpstreamGarbage as UpstreamGarbage
    from mustcall.core.errors import UpstreamRedirected as UpstreamRedirected
    from mustcall.core.errors import UpstreamRejected as UpstreamRejected
    from mustcall.core.errors import UpstreamTimeout as UpstreamTimeout
    from mustcall.core.errors import UpstreamUnavailable as UpstreamUnavailable
    from mustcall.core.errors import WrongMethod as WrongMethod
    from mustcall.core.message import Message
    from mustcall.core.message import Role as Role
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
    from mustcall.engine.agent.events import PartialOutput as PartialOutput
    from mustcall.engine.agent.hooking import StepChange as StepChange
    from mustcall.engine.agent.hooking import StepView as StepView
    from mustcall.engine.agent.options import Options
    from mustcall.engine.agent.running.streams import RunStream
    from mustcall.engine.agent.upstream import Upstream
    from mustcall.engine.coordinating.coordinate import coordinate, coordinate_sync
    from mustcall.engine.coordinating.results import CoordinateResult
    from mustcall.engine.run_records.results import RunResult, Stopped
    from mustcall.engine.run_records.tracing import Trace as Trace
    from mustcall.engine.spending.accounts import MemoryMeter as MemoryMeter
    from mustcall.engine.spending.budget_account import Budget
    from mustcall.engine.tooling.definition import FunctionTool, ToolContext, ToolReturn, ToolSettings, ToolSource
    from mustcall.engine.tooling.definition import SourcedTool as SourcedTool
    from mustcall.engine.tooling.functions import tool
    from mustcall.engine.tooling.outcomes import CallStatus, ExecutedCall
    from mustcall.policy.facts.controls import Controls, Limits
    from mustcall.policy.facts.controls import OnUnmet as OnUnmet
    from mustcall.policy.failures.breaker import BreakerRule as BreakerRule
    from mustcall.policy.history.compaction import Compaction as Compaction
    from mustcall.policy.limits.budget import Caps
    from mustcall.policy.limits.budget import ModelPrice as ModelPrice
    from mustcall.policy.limits.budget import Price as Price
    from mustcall.policy.limits.budget import TurnCap as TurnCap
    from mustcall.policy.words.grounding import GroundingRule

__version__ = "0.1.0"

_HOMES = {
    "mustcall.adapters.wrapping": ("wrap",),
    # Every error can be imported from here; `__all__` lists the few that code of one's own mostly names.
    "mustcall.core.errors": (
        "AlreadyRecorded",
        "BadArguments",
        "BodyTooLarge",
        "BreakerOpen",
        "BudgetSpent",
        "CallerError",
        "ConfigError",
        "ContentsNotKept",
        "EmptyReply",
        "ErrorInfo",
        "FenceLost",
        "FetchFailed",
        "ForceUnmet",
        "ForcedToolMissing",
        "ForcedToolRefused",
        "ForeignOrigin",
        "GatewayBusy",
        "InvalidRequest",
        "LedgerBroken",
        "LedgerError",
        "LedgerFull",
        "LedgerMismatch",
        "LedgerReadOnly",
        "LedgerUnavailable",
        "LoopBlocked",
        "ModelError",
        "MustcallError",
        "PhantomCall",
        "QuorumMissed",
        "RoleFailed",
        "RunBusy",
        "StarvedPrompt",
        "StructuredOutputError",
        "TextToolCallError",
        "ThinkingOnly",
        "ToolError",
        "ToolRefused",
        "TruncatedReply",
        "Unauthorized",
        "UnknownModel",
        "UnknownRoute",
        "UnknownRun",
        "UnknownState",
        "UnknownToolCalled",
        "UnknownTurn",
        "UnsupportedFeature",
        "UpstreamError",
        "UpstreamGarbage",
        "UpstreamRedirected",
        "UpstreamRejected",
        "UpstreamTimeout",
        "UpstreamUnavailable",
        "WrongMethod",
    ),
    "mustcall.core.message": ("Message", "Role"),
    "mustcall.core.parts": ("Image", "Text", "ToolCall"),
    "mustcall.core.reply": ("Usage",),
    "mustcall.core.request": ("ReasoningConfig",),
    "mustcall.engine.agent.agent": ("Agent",),
    "mustcall.engine.agent.events": (
        "CallFinished",
        "CallStarted",
        "PartialOutput",
        "ReasoningDelta",
        "RunEvent",
        "RunFinished",
        "StepFinished",
        "TextDelta",
    ),
    "mustcall.engine.agent.hooking": ("StepChange", "StepView"),
    "mustcall.engine.agent.options": ("Options",),
    "mustcall.engine.run_records.results": ("RunResult", "Stopped"),
    "mustcall.engine.agent.running.streams": ("RunStream",),
    "mustcall.engine.run_records.tracing": ("Trace",),
    "mustcall.engine.agent.upstream": ("Upstream",),
    "mustcall.engine.coordinating.coordinate": ("coordinate", "coordinate_sync"),
    "mustcall.engine.coordinating.results": ("CoordinateResult",),
    "mustcall.engine.spending.accounts": ("MemoryMeter",),
    "mustcall.engine.spending.budget_account": ("Budget",),
    "mustcall.engine.tooling.definition": (
        "FunctionTool",
        "SourcedTool",
        "ToolContext",
        "ToolReturn",
        "ToolSettings",
        "ToolSource",
    ),
    "mustcall.engine.tooling.functions": ("tool",),
    "mustcall.engine.tooling.outcomes": ("CallStatus", "ExecutedCall"),
    "mustcall.policy.failures.breaker": ("BreakerRule",),
    "mustcall.policy.history.compaction": ("Compaction",),
    "mustcall.policy.limits.budget": ("Caps", "ModelPrice", "Price", "TurnCap"),
    "mustcall.policy.facts.controls": ("Controls", "Limits", "OnUnmet"),
    "mustcall.policy.words.grounding": ("GroundingRule",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Agent",
    "Budget",
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
    "Options",
    "ReasoningConfig",
    "ReasoningDelta",
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
    "wrap",
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
