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
