"""The error body of the OpenAI wires."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ErrorInfo
from mustcall.wire.openai_errors import decode_error_body, encode_error_body, error_info, error_type


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "invalid_request_error"),
        (418, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (502, "server_error"),
        (529, "server_error"),
    ],
)
def test_type_words(status: int, word: str) -> None:
    """Must show: error bodies carry the provider's own word for the status."""
    assert error_type(status) == word


def test_body() -> None:
    """Build 6: the error body has OpenAI's four fields and our request id."""
    error = ErrorInfo(message="m", status=404, code="model_not_found", param="model")
    assert encode_error_body(error, "req_1") == {
        "error": {
            "message": "m",
            "type": "not_found_error",
            "param": "model",
            "code": "model_not_found",
            "request_id": "req_1",
        }
    }


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        (b'{"error":{"message":"m","type":"t","param":"p","code":"c"}}', "m", "c"),
        (b'{"error":{"message":"m","code":null}}', "m", "upstream_rejected"),
        (b'{"error":{"message":"m","code":429}}', "m", "upstream_rejected"),
        (b'{"error":"plain"}', "plain", "upstream_rejected"),
        (b'{"message":"bare"}', "bare", "upstream_rejected"),
        (b'{"detail":"fast"}', "fast", "upstream_rejected"),
        (b'{"detail":[{"loc":["body"]}]}', '[{"loc":["body"]}]', "upstream_rejected"),
        (b'{"error":{"weird":1}}', '{"weird":1}', "upstream_rejected"),
        (b"<html>Bad gateway</html>", "the upstream answered HTTP 500: <html>Bad gateway</html>", "upstream_rejected"),
        (b"", "the upstream answered HTTP 500", "upstream_rejected"),
        (b"null", "HTTP 500", "upstream_rejected"),
        (b"{}", "HTTP 500", "upstream_rejected"),
    ],
)
def test_bodies_in_the_wild(body: bytes, message: str, code: str) -> None:
    """An upstream's error body in any shape gives its message."""
    info = decode_error_body(500, body)
    assert (info.message, info.code, info.status) == (message, code, 500)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("overloaded", 502),
        ({"message": "overloaded"}, 502),
        ({"message": "slow down", "code": 429}, 429),
        ({"message": "odd", "code": 200}, 502),
        ({"message": "odd", "code": True}, 502),
    ],
)
def test_error_in_a_success(error: Any, status: int) -> None:
    """An error that came with HTTP 200 never keeps that status."""
    assert error_info(error, 200).status == status


def test_deeply_nested_error() -> None:
    """Design 2.8: `decode_error` never raises, however deep the body."""
    for depth in (500, 900, 950, 980, 990, 5000):
        assert decode_error_body(500, b'{"error":' + b"[" * depth + b"]" * depth + b"}").status == 500


@given(st.binary(max_size=60))
def test_any_bytes(body: bytes) -> None:
    """Design 2.8: any bytes give an error with the status it came with, and a message."""
    info = decode_error_body(503, body)
    assert info.status == 503
    assert info.message


@given(st.builds(ErrorInfo, message=st.text(min_size=1), status=st.integers(400, 599), code=st.text(min_size=1)))
def test_round_trip(error: ErrorInfo) -> None:
    """What is written is read back."""
    read = decode_error_body(error.status, msgspec.json.encode(encode_error_body(error, "")))
    assert (read.message, read.status, read.code) == (error.message, error.status, error.code)
