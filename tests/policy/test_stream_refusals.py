"""Refusals that are about a stream, and those that only say the word; what they teach, and what they do not."""

import pytest

from mustcall.core.errors import ErrorInfo
from mustcall.core.message import Message, Role
from mustcall.core.parts import Text, ToolCall
from mustcall.core.request import ReasoningConfig, ReasoningMode, Request
from mustcall.policy.failures.rejection import Rejection
from mustcall.policy.turn.refusal_mends import is_about_streams, meant_by, stream_words


def refusal(status: int, message: str) -> ErrorInfo:
    """An upstream's error."""
    return ErrorInfo(status=status, code="x", message=message)


def streamed(*, stream: bool = True) -> Request:
    """A request."""
    return Request(model="m", messages=(Message(role=Role.USER, parts=(Text(text="Hi"),)),), stream=stream)


@pytest.mark.parametrize(
    ("status", "message", "breaks", "wished", "about"),
    [
        (400, "streaming is not supported", False, True, True),
        (422, "Stream mode is off", False, False, True),
        (429, "too many concurrent streams", True, True, False),
        (504, "stream timeout", True, False, False),
        (401, "this key may not open a stream", True, True, False),
        (400, "Unrecognized request argument supplied: stream_options", False, True, False),
        (400, "Unrecognized request argument supplied: stream_options", False, False, True),
        (400, "the upstream refused", True, True, False),
        (500, "Internal Server Error", True, True, True),
        (500, "Internal Server Error", False, True, False),
        (502, "Bad gateway", True, True, False),
    ],
)
def test_what_is_about_the_stream(status: int, message: str, breaks: bool, wished: bool, about: bool) -> None:
    """Words count under statuses that are about the request; a field of ours is not the caller's stream."""
    error = refusal(status, message)
    assert is_about_streams(error, streamed(), breaks=breaks, wished=wished) is about
    assert not is_about_streams(error, streamed(stream=False), breaks=breaks, wished=wished)


def test_the_words_are_compared_in_one_case() -> None:
    """What a caller wrote is searched in lower case: so are the words of the refusal, all of them."""
    assert stream_words(refusal(400, "Streaming services: STREAM is off")) == ("streaming", "stream")
    assert stream_words(refusal(500, "broken")) == ("stream",)


@pytest.mark.parametrize(
    ("message", "meaning"),
    [
        ("Expected thinking before tool_use", Rejection.REASONING_MISSING),
        ("The reasoning_content of earlier turns must be passed back", Rejection.REASONING_MISSING),
        ("`max_tokens` must be greater than `thinking.budget_tokens`", Rejection.OTHER),
        ("reasoning_effort: unexpected value 'huge'", Rejection.OTHER),
        ("budget_tokens is fine. messages.1: expected a thinking block", Rejection.REASONING_MISSING),
        ("image too large in message 'I thought this picture...'", Rejection.OTHER),
    ],
)
def test_what_is_about_reasoning_that_is_missed(message: str, meaning: Rejection) -> None:
    """Settings of this turn, and the word alone, are no reason to leave reasoning out."""
    call = Message(role=Role.ASSISTANT, parts=(ToolCall(id="c", name="f", arguments_json="{}"),))
    request = Request(model="m", messages=(call,), reasoning=ReasoningConfig(mode=ReasoningMode.ENABLED))
    assert meant_by(Rejection.OTHER, refusal(400, message), request) is meaning
