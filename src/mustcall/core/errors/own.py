"""Errors of mustcall itself and of what runs in it: its configuration, its limits, tools, coordinated answers."""

from typing import Any

import msgspec

from mustcall.core.errors.root import ErrorInfo, MustcallError

__all__ = [
    "BreakerOpen",
    "BudgetSpent",
    "ConfigError",
    "FetchFailed",
    "GatewayBusy",
    "QuorumMissed",
    "RoleFailed",
    "ToolError",
    "ToolRefused",
]


class GatewayBusy(MustcallError):
    """The gateway has reached its limit of concurrent requests, or is stopping."""

    code = "gateway_busy"
    status = 503
    retryable = True


class ConfigError(MustcallError):
    """The configuration is invalid."""

    code = "config_error"


class FetchFailed(MustcallError):
    """Downloading weights or benchmark data failed. Raised by commands, never for a request."""

    code = "fetch_failed"


class ToolError(MustcallError):
    """Raise this in a tool to tell the model the problem in one line. The run continues."""

    code = "tool_failed"


class ToolRefused(ToolError):
    """Raise this in a tool to refuse a call, for example because a policy denies it (rule 89)."""

    code = "tool_refused"


class RoleFailed(MustcallError):
    """The proposer or the synthesizer of a coordinated answer failed. `details` has the role and its error."""

    code = "role_failed"
    status = 502


class QuorumMissed(MustcallError):
    """Fewer critics than the quorum gave a usable answer. `details` lists the error of each critic."""

    code = "quorum_missed"
    status = 502


class BudgetSpent(MustcallError):
    """A cap of the budget is reached; no upstream call was made. `details` names the cap (rule 94)."""

    code = "budget_spent"
    status = 429


class BreakerOpen(MustcallError):
    """The circuit breaker of the upstream is open for `retry_after` seconds, after repeated failures."""

    code = "breaker_open"
    status = 503

    def __init__(self, message: str, *, retry_after: float = 0.0, details: dict[str, Any] | None = None) -> None:
        super().__init__(message, details=details)
        self.retry_after = retry_after

    def info(self) -> ErrorInfo:
        """Return the error with the time to wait."""
        return msgspec.structs.replace(super().info(), retry_after=self.retry_after)
