"""Errors of the upstream: refused, unreachable, late, or not what its wire says."""

from mustcall.core.errors.root import ErrorInfo, MustcallError

__all__ = [
    "ForcedToolRefused",
    "UpstreamError",
    "UpstreamGarbage",
    "UpstreamRejected",
    "UpstreamTimeout",
    "UpstreamUnavailable",
]


class UpstreamError(MustcallError):
    """The upstream did not do its part."""

    code = "upstream_error"
    status = 502


class UpstreamRejected(UpstreamError):
    """The upstream answered with an error of its own; its status and words are kept."""

    code = "upstream_rejected"

    def __init__(self, error: ErrorInfo) -> None:
        super().__init__(error.message, param=error.param, details=error.details, code=error.code)
        self.error = error

    def info(self) -> ErrorInfo:
        """Return the upstream's error."""
        return self.error


class ForcedToolRefused(UpstreamError):
    """The upstream refuses the tool that the request demands; without it the demand cannot be met."""

    code = "forced_tool_refused"
    status = 400


class UpstreamUnavailable(UpstreamError):
    """No connection, a reset, or a stream that was cut."""

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
    """The upstream's answer is not what its wire says it must be."""

    code = "upstream_garbage"
