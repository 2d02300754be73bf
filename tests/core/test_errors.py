"""The error tree: codes, statuses, and errors as values."""

import copy
import inspect
import pickle
import re

import pytest

import mustcall.core.errors as module
from mustcall.core.errors import (
    BodyTooLarge,
    ErrorInfo,
    InvalidRequest,
    MustcallError,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)


def test_every_error_is_exported_and_drawn() -> None:
    """Style 9: one tree, drawn in the docstring, nothing outside it."""
    classes = [value for _, value in inspect.getmembers(module, inspect.isclass) if issubclass(value, MustcallError)]
    names = {error.__name__ for error in classes}
    drawn = re.findall(r"^    (?:[│├└─ ]*)([A-Z]\w+)", module.__doc__ or "", re.MULTILINE)
    assert sorted(drawn) == sorted(names)
    assert names < set(module.__all__)


@pytest.mark.parametrize(
    ("error", "status", "code", "retryable"),
    [
        (InvalidRequest("m"), 400, "invalid_request", False),
        (BodyTooLarge("m"), 413, "request_too_large", False),
        (UpstreamTimeout("m"), 504, "upstream_timeout", True),
        (UpstreamUnavailable("m"), 502, "upstream_unavailable", True),
    ],
)
def test_error_as_value(error: MustcallError, status: int, code: str, retryable: bool) -> None:
    """An error's value carries its class's status and code."""
    assert error.info() == ErrorInfo(message="m", status=status, code=code)
    assert error.retryable is retryable


def test_specific_code_wins() -> None:
    """A code given on the spot stands in the value; param and details are carried."""
    error = InvalidRequest("m", param="messages[0]", details={"a": 1}, code="special")
    assert error.info() == ErrorInfo(message="m", status=400, code="special", param="messages[0]", details={"a": 1})


def test_rejection_keeps_the_upstreams_words() -> None:
    """The upstream's own error comes out unchanged."""
    info = ErrorInfo(message="slow down", status=429, code="rate", type="rate_limit_error", retry_after=2.0)
    error = UpstreamRejected(info)
    assert error.info() is info
    assert str(error) == "slow down"


@pytest.mark.parametrize("kind", [value for _, value in inspect.getmembers(module, inspect.isclass)], ids=str)
def test_errors_are_pickled_and_copied(kind: type[object]) -> None:
    """A process pool sends them to its parent; one that cannot be read there breaks the whole pool."""
    if not issubclass(kind, MustcallError):
        return
    error = MustcallError.__new__(kind, "said")
    MustcallError.__init__(error, "said", param="p", details={"a": [1]}, code="c")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301  what this line has written
        assert type(again) is kind
        assert (again.args, vars(again)) == (error.args, vars(error))


def test_an_upstreams_error_survives() -> None:
    """It is made from a value rather than a text."""
    error = UpstreamRejected(ErrorInfo(message="m", status=418, code="teapot"))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  as above
    assert (again.info(), str(again)) == (error.info(), "m")
