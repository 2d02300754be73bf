"""Every error mustcall raises on purpose, in one tree.

    MustcallError
    ├── CallerError                 the caller's fault
    │   ├── InvalidRequest          400  not JSON, wrong type, missing field
    │   ├── UnsupportedFeature      400  legal on the caller's wire, impossible on the upstream's
    │   ├── Unauthorized            401  no key, or a wrong one
    │   ├── ForcedToolMissing       400  the forced tool is not on offer, or locked off
    │   ├── ForeignOrigin           403  a web page that is not on the list
    │   ├── UnknownModel            404  no route serves the model
    │   ├── UnknownRoute            404  no such path
    │   ├── UnknownState            404  a response, item or thread that is not kept, or not for this caller
    │   ├── WrongMethod             405  the path takes another method
    │   └── BodyTooLarge            413  over the limit
    ├── GatewayBusy                 503  the concurrency limit is reached, or the gateway is stopping
    ├── ConfigError                 500  the configuration cannot be used
    ├── FetchFailed                 500  weights or benchmark data could not be fetched
    ├── ToolError                   500  a tool's own word for the model on what went wrong; stays inside a run
    │   └── ToolRefused             500  the tool will not do it: a policy says no
    ├── RoleFailed                  502  a role that a coordinated answer cannot do without gave no usable answer
    ├── QuorumMissed                502  too few critics of a coordinated answer gave a usable one
    ├── BudgetSpent                 429  a cap on cost, tokens, calls or time is reached; no upstream call was made
    ├── BreakerOpen                 503  the upstream failed repeatedly, its circuit is open; no call was made
    ├── LedgerError                 500  the store of runs, responses and traces did not do its part
    │   ├── LedgerUnavailable       503  it cannot be reached, or did not answer in time
    │   ├── LedgerFull              503  there is no room to write
    │   ├── LedgerReadOnly          503  it may not be written
    │   ├── LedgerMismatch          500  it was made by a newer version, or by another build
    │   ├── LedgerBroken            500  the file is damaged, or is no ledger
    │   ├── FenceLost               409  the run belongs to another owner now, or has ended
    │   ├── RunBusy                 409  another process is carrying the run out
    │   ├── UnknownRun              404  there is no run of that name
    │   ├── UnknownTurn             404  there is no turn of that name
    │   ├── ContentsNotKept         409  the turn is there, what was said in it is not
    │   └── AlreadyRecorded         409  the step was already written by somebody else
    ├── UpstreamError               the upstream's fault
    │   ├── UpstreamRejected        (its own status)  the upstream refused the request
    │   ├── ForcedToolRefused       400  the upstream refuses the tool that the request demands
    │   ├── UpstreamUnavailable     502  no connection, reset, cut stream
    │   ├── UpstreamTimeout         504  no answer in time
    │   └── UpstreamGarbage         502  an answer that is not the wire's
    └── ModelError                  502  the model's fault: every attempt failed the contract (chat 422, responses 400)
        ├── TextToolCallError       calls came as text
        ├── PhantomCall             the finish said calls, there were none
        ├── ForceUnmet              the demanded tool was not called
        ├── UnknownToolCalled       a tool that is not on offer was called
        ├── BadArguments            arguments that do not fit the tool's schema
        ├── StructuredOutputError   an answer that does not fit the schema asked for
        ├── TruncatedReply          cut off before it was complete
        ├── EmptyReply              nothing was said
        ├── ThinkingOnly            nothing but reasoning came
        ├── LoopBlocked             the same call again and again
        └── StarvedPrompt           the server cut the prompt silently

Each has a stable `code`, an HTTP `status`, `retryable`, and a message that names the value and the fix. Any other
exception that leaves the engine is a bug.
"""

from typing import Any, ClassVar

import msgspec

__all__ = [
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
    "UpstreamRejected",
    "UpstreamTimeout",
    "UpstreamUnavailable",
    "WrongMethod",
]


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An error as a plain value, from which the error body of every wire can be written.

    `type` is the provider's own error type (`invalid_request_error`, `overloaded_error`, …), if there was one.
    `details` contains data that clients act on.
    """

    message: str
    status: int
    code: str
    type: str | None = None
    param: str | None = None
    details: dict[str, Any] | None = None
    retry_after: float | None = None
    #: Whether the model failed the contract in every attempt: each wire tells that so that no client asks again.
    by_model: bool = False


class MustcallError(Exception):
    """The base class of all errors: a stable `code`, an HTTP status, `retryable` and a message for people."""

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        details: dict[str, Any] | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.details = details
        self.specific_code = code

    def info(self) -> ErrorInfo:
        """Return the error as a value that every wire can encode."""
        return ErrorInfo(
            message=self.message,
            status=self.status,
            code=self.specific_code or self.code,
            param=self.param,
            details=self.details,
        )


class CallerError(MustcallError):
    """The request is invalid; the caller can correct it."""

    code = "invalid_request"
    status = 400


class InvalidRequest(CallerError):
    """The request body does not match the API of its wire."""


class UnsupportedFeature(CallerError):
    """The request uses a feature that the upstream's wire does not have."""

    code = "unsupported_feature"


class Unauthorized(CallerError):
    """The gateway requires a key; the request has none or a wrong one."""

    code = "invalid_api_key"
    status = 401


class ForcedToolMissing(CallerError):
    """The forced tool is not offered, or is locked off (rule 8)."""

    code = "forced_tool_missing"


class ForeignOrigin(CallerError):
    """The request comes from a web page whose origin is not in `cors_origins`."""

    code = "origin_not_allowed"
    status = 403


class UnknownModel(CallerError):
    """No route or upstream serves the model."""

    code = "model_not_found"
    status = 404


class UnknownRoute(CallerError):
    """The gateway does not serve this path."""

    code = "unknown_route"
    status = 404


class UnknownState(CallerError):
    """The response, item or thread is not stored, has expired, or belongs to another caller."""

    code = "not_found"
    status = 404

    def info(self) -> ErrorInfo:
        """Return the error with OpenAI's own error type."""
        return msgspec.structs.replace(super().info(), type="invalid_request_error")


class WrongMethod(CallerError):
    """The path exists, but not for this HTTP method."""

    code = "method_not_allowed"
    status = 405

    def __init__(self, message: str, *, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed


class BodyTooLarge(CallerError):
    """The request body exceeds the configured limit."""

    code = "request_too_large"
    status = 413


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


class LedgerError(MustcallError):
    """An operation of the ledger failed."""

    code = "ledger_error"
    #: What callers of a gateway are told in place of the message, which names a place that is the operator's business.
    shown: ClassVar[str] = "the ledger cannot be asked"

    def info(self) -> ErrorInfo:
        """Return the error without the address of the ledger."""
        told = super().info()
        return msgspec.structs.replace(told, message=self.shown) if self.shown else told


class LedgerUnavailable(LedgerError):
    """The ledger is unreachable or did not answer in time. The last write may or may not be stored."""

    code = "ledger_unavailable"
    shown = "the ledger cannot be reached now; try again"
    status = 503
    retryable = True


class LedgerFull(LedgerError):
    """The ledger cannot grow: the disk is full, or a size limit is reached."""

    code = "ledger_full"
    shown = "the ledger has no room left"
    status = 503


class LedgerReadOnly(LedgerError):
    """The ledger can be read but not written."""

    code = "ledger_read_only"
    shown = "the ledger cannot be written"
    status = 503


class LedgerMismatch(LedgerError):
    """A newer version or another build created the ledger."""

    code = "ledger_mismatch"


class LedgerBroken(LedgerError):
    """The ledger file is damaged, or is not a ledger."""

    code = "ledger_broken"


class FenceLost(LedgerError):
    """Another process owns the run now, or the run has ended. Nothing was written; stop working on it."""

    code = "fence_lost"
    shown = ""
    status = 409


class RunBusy(LedgerError):
    """Another process executes the run, and its lease has not expired."""

    code = "run_busy"
    shown = ""
    status = 409
    retryable = True


class UnknownRun(LedgerError):
    """The ledger has no run with this id."""

    code = "unknown_run"
    shown = ""
    status = 404


class UnknownTurn(LedgerError):
    """The ledger has no turn with this id."""

    code = "unknown_turn"
    shown = ""
    status = 404


class ContentsNotKept(LedgerError):
    """The ledger has the turn but not its contents: `[ledger] contents` is `none`."""

    code = "contents_not_kept"
    shown = ""
    status = 409


class AlreadyRecorded(LedgerError):
    """Another process already wrote this step of the run. Only the process that wrote it may execute it."""

    code = "already_recorded"
    shown = ""
    status = 409


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


class UpstreamError(MustcallError):
    """The upstream failed, refused the request, or sent an invalid answer."""

    code = "upstream_error"
    status = 502


class UpstreamRejected(UpstreamError):
    """The upstream answered with an error; its status and message are kept."""

    code = "upstream_rejected"

    def __init__(self, error: ErrorInfo) -> None:
        super().__init__(error.message, param=error.param, details=error.details, code=error.code)
        self.error = error

    def info(self) -> ErrorInfo:
        """Return the upstream's error."""
        return self.error


class ForcedToolRefused(UpstreamError):
    """The upstream refuses the tool that the request demands."""

    code = "forced_tool_refused"
    status = 400


class UpstreamUnavailable(UpstreamError):
    """The connection to the upstream failed, was reset, or was cut during a stream."""

    code = "upstream_unavailable"
    retryable = True


class UpstreamTimeout(UpstreamError):
    """The upstream did not answer in time."""

    code = "upstream_timeout"
    status = 504
    retryable = True
    #: Whether the request went out: the upstream may then be at work on it, and it may cost.
    sent: bool = True


class UpstreamGarbage(UpstreamError):
    """The upstream's answer does not match its wire, or exceeds a limit."""

    code = "upstream_garbage"


class ModelError(MustcallError):
    """No attempt of the model met the contract. `details` contains the record of the attempts."""

    code = "model_error"
    status = 502

    def info(self) -> ErrorInfo:
        """Return the error, marked as not retryable."""
        return msgspec.structs.replace(super().info(), by_model=True)


class TextToolCallError(ModelError):
    """Every attempt wrote its tool calls as text (rule 48)."""

    code = "text_tool_call"


class PhantomCall(ModelError):
    """The finish reason announced tool calls, but the reply had none."""

    code = "phantom_call"


class ForceUnmet(ModelError):
    """No rung of the ladder produced a call of the demanded tool (rule 27)."""

    code = "force_unmet"


class UnknownToolCalled(ModelError):
    """The model called a tool that is not offered."""

    code = "unknown_tool"


class BadArguments(ModelError):
    """The arguments of the model's call do not match the tool's schema."""

    code = "bad_arguments"


class StructuredOutputError(ModelError):
    """The answer does not match the requested schema."""

    code = "bad_answer"


class TruncatedReply(ModelError):
    """The reply ended before it was complete."""

    code = "truncated"


class EmptyReply(ModelError):
    """The model's reply was empty in every attempt."""

    code = "empty"


class ThinkingOnly(ModelError):
    """Every reply had reasoning only, without text and calls."""

    code = "thinking_only"


class LoopBlocked(ModelError):
    """The model repeats the same call, and the tool's settings block that."""

    code = "looping"


class StarvedPrompt(ModelError):
    """The server cut the prompt without an error, so its answer is unreliable."""

    code = "starved"
