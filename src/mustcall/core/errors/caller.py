"""Errors of the caller: the request can be mended and sent again."""

import msgspec

from mustcall.core.errors.root import ErrorInfo, MustcallError

__all__ = [
    "BodyTooLarge",
    "CallerError",
    "ForcedToolMissing",
    "ForeignOrigin",
    "InvalidRequest",
    "Unauthorized",
    "UnknownModel",
    "UnknownRoute",
    "UnknownState",
    "UnsupportedFeature",
    "WrongMethod",
]


class CallerError(MustcallError):
    """The caller can mend it."""

    code = "invalid_request"
    status = 400


class InvalidRequest(CallerError):
    """The body is not what the wire says it must be."""


class UnsupportedFeature(CallerError):
    """The request uses something the upstream's wire has no form for."""

    code = "unsupported_feature"


class Unauthorized(CallerError):
    """The gateway wants a key and got none, or a wrong one."""

    code = "invalid_api_key"
    status = 401


class ForcedToolMissing(CallerError):
    """The request forces a tool that is not on offer, or that is locked off (rule 8)."""

    code = "forced_tool_missing"


class ForeignOrigin(CallerError):
    """A web page calls that nobody listed; its visitors must not spend the operator's keys."""

    code = "origin_not_allowed"
    status = 403


class UnknownModel(CallerError):
    """No route serves the model."""

    code = "model_not_found"
    status = 404


class UnknownRoute(CallerError):
    """The path is not served."""

    code = "unknown_route"
    status = 404


class UnknownState(CallerError):
    """A response, item or thread is not kept: it never was, it expired, or it is another caller's."""

    code = "not_found"
    status = 404

    def info(self) -> ErrorInfo:
        """Return the error with the class word that OpenAI has for it."""
        return msgspec.structs.replace(super().info(), type="invalid_request_error")


class WrongMethod(CallerError):
    """The path is served for another method."""

    code = "method_not_allowed"
    status = 405

    def __init__(self, message: str, *, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed


class BodyTooLarge(CallerError):
    """The body is over the configured limit."""

    code = "request_too_large"
    status = 413
