"""Error bodies in both directions."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ErrorInfo
from mustcall.wire.messages import MessagesCodec
from mustcall.wire.sse import SseDecoder

CODEC = MessagesCodec()


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (413, "request_too_large"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_class_words(status: int, word: str) -> None:
    """Each status has Anthropic's own class word, whatever another wire called it."""
    error = ErrorInfo(message="m", status=status, code="c", type="server_error")
    assert CODEC.encode_error(error, "req_1") == {
        "type": "error",
        "error": {"type": word, "message": "m"},
        "request_id": "req_1",
    }


def test_body_round_trip() -> None:
    """Anthropic's body is read whole: type, message and details."""
    inner = b'{"type":"not_found_error","message":"gone","details":{"error_code":"thread_not_found"}}'
    body = b'{"type":"error","error":' + inner + b',"request_id":"r"}'
    error = CODEC.decode_error(404, body)
    assert error == ErrorInfo(
        message="gone",
        status=404,
        code="thread_not_found",
        type="not_found_error",
        details={"error_code": "thread_not_found"},
    )
    assert CODEC.encode_error(error, "r") == json.loads(body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the upstream answered HTTP 500"),
        (b"<html>oops</html>", "the upstream answered HTTP 500: <html>oops</html>"),
        (b'{"error":"plain"}', "plain"),
        (b'{"message":"top"}', "top"),
        (b'{"detail":"fast"}', "fast"),
        (b'{"error":{"message":null,"code":7}}', '{"message":null,"code":7}'),
        (b"{}", "the upstream answered HTTP 500"),
        (b"null", "the upstream answered HTTP 500"),
        (b'"  "', "the upstream answered HTTP 500"),
        (b"[1]", "[1]"),
    ],
)
def test_odd_bodies(body: bytes, message: str) -> None:
    """Any bytes give an error with a message."""
    assert CODEC.decode_error(500, body).message == message


@given(st.integers(100, 599), st.binary(max_size=200))
def test_any_bytes_give_an_error(status: int, body: bytes) -> None:
    """decode_error never raises, and what it gives can be encoded with an error status."""
    error = CODEC.decode_error(status, body)
    assert error.status >= 400
    assert CODEC.encode_error(error, "")["error"]["message"]


def test_stream_error() -> None:
    """wires.md 2: an error after the first byte is an `event: error`, and it closes the stream."""
    data = CODEC.encode_stream_error(ErrorInfo(message="m", status=529, code="c"), "req_1")
    (event,) = SseDecoder().feed(data)
    assert event.name == "error"
    assert json.loads(event.data) == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "m"},
        "request_id": "req_1",
    }
    assert CODEC.closes(event)


def test_closing_events() -> None:
    """Only message_stop and error close a stream, with or without event names."""
    frames = SseDecoder().feed(
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
        b'data: {"type":"message_stop"}\n\n'
        b'data: {"type":"error","error":{}}\n\n'
        b'event: message_delta\ndata: {"type":"message_delta"}\n\n'
        b'event: ping\ndata: {"type":"ping"}\n\n'
        b"data: nonsense\n\ndata: 5\n\n"
    )
    assert [CODEC.closes(frame) for frame in frames] == [True, True, True, False, False, False, False]


def test_keepalive_is_a_ping() -> None:
    """wires.md 2 (a-pingfirst): the keep-alive is a ping event, which our own decoder ignores too."""
    (event,) = SseDecoder().feed(CODEC.keepalive)
    assert (event.name, json.loads(event.data)) == ("ping", {"type": "ping"})
    assert CODEC.path == "/messages"
