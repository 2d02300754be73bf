"""Errors of the upstream: refused, unreachable, late, or not what its wire says."""

from mustcall.core.errors.root import ErrorInfo, MustcallError

__all__ = [
    "ForcedToolRefused",
    "UpstreamError",
    "UpstreamGarbage",
    "UpstreamRedirected",
    "UpstreamRejected",
    "UpstreamTimeout",
    "UpstreamUnavailable",
]


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


class UpstreamRedirected(UpstreamError):
    """The upstream answers elsewhere. Redirects are not followed: a key would go to an address nobody named."""

    code = "upstream_redirected"


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
