"""The root of the tree of errors, and an error as a value."""

from typing import Any, ClassVar

import msgspec

__all__ = ["ErrorInfo", "MustcallError"]


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

    def __reduce__(self) -> tuple[Any, ...]:
        """Be copied and pickled whatever the class takes: process pools send errors to their parent."""
        return _restored, (type(self), self.args, dict(vars(self)))

    def info(self) -> ErrorInfo:
        """Return the error as a value that every wire can encode."""
        return ErrorInfo(
            message=self.message,
            status=self.status,
            code=self.specific_code or self.code,
            param=self.param,
            details=self.details,
        )


def _restored(kind: type[MustcallError], args: tuple[Any, ...], attributes: dict[str, Any]) -> MustcallError:
    error = kind.__new__(kind, *args)
    vars(error).update(attributes)
    return error
