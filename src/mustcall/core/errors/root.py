"""The root of the tree of errors, and an error as a value."""

from typing import Any, ClassVar

import msgspec

__all__ = ["ErrorInfo", "MustcallError"]


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An error as a value: what every wire's error body can be made from and read into.

    `type` is the provider's own class word (`invalid_request_error`, `overloaded_error`, …) where there was one;
    `details` is carried where a client acts on it.
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
    """The root: an error with a stable code, an HTTP status and a message made for people."""

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
        """Return the error as a value that any wire can encode."""
        return ErrorInfo(
            message=self.message,
            status=self.status,
            code=self.specific_code or self.code,
            param=self.param,
            details=self.details,
        )
