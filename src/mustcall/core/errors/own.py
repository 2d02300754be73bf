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
    """The gateway takes no more work right now."""

    code = "gateway_busy"
    status = 503
    retryable = True


class ConfigError(MustcallError):
    """The configuration cannot be used as it is."""

    code = "config_error"


class FetchFailed(MustcallError):
    """Weights or benchmark data could not be fetched; it ends a command, never a request."""

    code = "fetch_failed"


class ToolError(MustcallError):
    """What a tool raises to tell the model in one line what went wrong. The run goes on."""

    code = "tool_failed"


class ToolRefused(ToolError):
    """What a tool raises for a call it will not carry out: a policy denies it (rule 89)."""

    code = "tool_refused"


class RoleFailed(MustcallError):
    """The proposer or the synthesizer of a coordinated answer failed. `details` says which, and with what."""

    code = "role_failed"
    status = 502


class QuorumMissed(MustcallError):
    """Fewer critics than the quorum gave a usable answer. `details` says what each failed with."""

    code = "quorum_missed"
    status = 502


class BudgetSpent(MustcallError):
    """A cap is reached. `details` says which, in the words of rule 94."""

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
