"""Answers that are no replies: errors of every known family, bodies of other things, broken connections.

Each is an `Answer` of the script. Waits are a few milliseconds at most: the adversary is malicious, not slow.
"""

import json
import random
from collections.abc import Callable

from mustcall.core.origin import JsonObject, Wire
from mustcall.testing.render import Stamp, build_error, stream_reply
from mustcall.testing.render.stamp import to_json
from mustcall.testing.script import (
    Answer,
    Cut,
    Delayed,
    Fail,
    Hang,
    Raw,
    RawStream,
    Reset,
    Say,
    StreamError,
    Turn,
)

__all__ = ["break_connection", "fail", "harvestable"]

_HTML = b"<!doctype html><html><title>Just a moment</title><body>Checking your browser</body></html>"

#: Status, message, type, code and headers of errors as providers write them.
_ERRORS: tuple[tuple[int, str, str | None, str | None, dict[str, str]], ...] = (
    (400, "Invalid request", "invalid_request_error", None, {}),
    (400, "Thinking may not be enabled when tool_choice forces tool use.", "invalid_request_error", None, {}),
    (400, "tool_choice: this model does not support forced tool use", "invalid_request_error", None, {}),
    (400, "Invalid tool_choice type: 'object'. Supported string values: none, auto, required", None, None, {}),
    (400, "model does not support tools", "invalid_request_error", None, {}),
    (400, "This model does not support assistant message prefill.", "invalid_request_error", None, {}),
    (400, "messages.1.content.0: Invalid `signature` in `thinking` block", "invalid_request_error", None, {}),
    (400, "This model's maximum context length is 8192 tokens.", None, "context_length_exceeded", {}),
    (400, "prompt is too long: 250000 tokens > 200000 maximum", "invalid_request_error", None, {}),
    (400, "Invalid schema for function: 'minimum' is not permitted", None, "invalid_function_parameters", {}),
    (400, "parallel_tool_calls is not supported", "invalid_request_error", None, {}),
    (400, "response_format: json_schema is not supported", "invalid_request_error", None, {}),
    (400, "Unrecognized request argument supplied: guided_json", "invalid_request_error", None, {}),
    (400, "stream: true is not supported together with tools", "invalid_request_error", None, {}),
    (401, "Incorrect API key provided", "authentication_error", "invalid_api_key", {}),
    (402, "Your credit balance is too low", "billing_error", None, {}),
    (403, "Not allowed in your region", "permission_error", None, {}),
    (404, "The model does not exist", "not_found_error", "model_not_found", {}),
    (408, "Request timed out", None, None, {}),
    (409, "Conflict", None, None, {}),
    (413, "Request too large", "request_too_large", None, {}),
    (422, "Unprocessable", None, None, {}),
    (429, "Rate limit reached", "rate_limit_error", "rate_limit_exceeded", {"retry-after": "0"}),
    (429, "Rate limit reached", "rate_limit_error", None, {"retry-after-ms": "3"}),
    (429, "Rate limit reached", None, None, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}),
    (429, "Rate limit reached", None, None, {"retry-after": "soon"}),
    (429, "You exceeded your current quota", None, "insufficient_quota", {}),
    (500, "The server had an error", "server_error", None, {}),
    (502, "Bad gateway", None, None, {}),
    (503, "Service unavailable", "overloaded_error", None, {"retry-after": "0.001"}),
    (504, "Gateway timeout", "timeout_error", None, {}),
    (529, "Overloaded", "overloaded_error", None, {}),
    (599, "Odd", None, None, {}),
)


def fail(wire: Wire, request: JsonObject, mark: str, stamp: Stamp, source: random.Random) -> tuple[str, Answer]:
    """Return an answer that is not a reply, and what it is."""
    return source.choice(_WAYS)(wire, request, mark, stamp, source)


def harvestable(text: str, mark: str, source: random.Random) -> tuple[str, Answer]:
    """Return an error that carries the model's generation, as Groq's and llama.cpp's do (rule 128)."""
    if source.random() < 0.5:
        error: JsonObject = {
            "message": f"Failed to call a function ({mark}). Please adjust your prompt.",
            "type": "invalid_request_error",
            "code": "tool_use_failed",
            "failed_generation": text,
        }
        return "error with its generation (400)", Raw(400, to_json({"error": error}))
    message = f"Failed to parse input at pos 0: {text}"
    return "error with its generation (500)", Raw(500, to_json({"error": {"code": 500, "message": message}}))


def break_connection(
    answer: Answer, size: int, source: random.Random, *, hangs: bool = False
) -> tuple[str, Answer, int]:
    """Return the answer on a connection that breaks or `hangs`, how, and after how many of its `size` bytes."""
    after = source.randint(0, size)
    head = source.random() < 0.5
    if hangs:
        return f"hangs after {after}", Hang(answer, after, head), after
    if source.random() < 2 / 3:
        return f"cut after {after}", Cut(answer, after, head), after
    return f"reset after {after}", Reset(answer, after, head), after


_Way = Callable[[Wire, JsonObject, str, Stamp, random.Random], tuple[str, Answer]]


def _status(_wire: Wire, _request: JsonObject, mark: str, _stamp: Stamp, source: random.Random) -> tuple[str, Answer]:
    status, message, kind, code, headers = source.choice(_ERRORS)
    answer = Fail(status, f"{message} ({mark})", kind, code, headers)
    return f"HTTP {status} {message[:24]!r}", answer if source.random() < 0.9 else Delayed(answer, 0.003)


def _in_stream(
    _wire: Wire, _request: JsonObject, mark: str, _stamp: Stamp, source: random.Random
) -> tuple[str, Answer]:
    kinds = ["overloaded_error", "server_error", "rate_limit_error", "invalid_request_error", None]
    error = StreamError(
        Turn(Say("So far so good, and then")),
        after=source.randint(0, 6),
        message=f"Overloaded ({mark})",
        type=source.choice(kinds),
        form=source.choice(["failed", "error"]),
    )
    return "error event", error


def _other_error(
    wire: Wire, _request: JsonObject, mark: str, stamp: Stamp, source: random.Random
) -> tuple[str, Answer]:
    """An error under status 200, in the wire's shape or another."""
    shapes = [
        build_error(Fail(500, f"It broke ({mark})"), wire, stamp),
        {"error": f"It broke ({mark})"},
        {"detail": [{"msg": mark}]},
        {"error": {"message": f"Provider returned error ({mark})", "code": 502}, "choices": None},
        {"message": mark},
    ]
    body = to_json(source.choice(shapes))
    if source.random() < 0.5:
        return "error in a 200", Raw(200, body)
    return "error in a 200 stream", RawStream([b"data: " + body + b"\n\n", b"data: [DONE]\n\n"])


def _junk(_wire: Wire, _request: JsonObject, mark: str, _stamp: Stamp, source: random.Random) -> tuple[str, Answer]:
    bodies = [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'"text"',
        b"{",
        _HTML,
        mark.encode(),
        bytes(source.randrange(256) for _ in range(40)),
        b"[" * 300 + b"]" * 300,
        b"data: \n\n",
        b"\n" * 20,
        json.dumps({"choices": [], "output": [], "content": []}).encode(),
    ]
    types = ["application/json", "text/html; charset=utf-8", "text/event-stream", "text/plain", ""]
    headers = {"content-type": source.choice(types)}
    status = source.choice([200, 200, 200, 201, 204, 302, 404, 500, 503])
    body = b"" if status == 204 else source.choice(bodies)
    return f"HTTP {status} of junk", Raw(status, body, {key: value for key, value in headers.items() if value})


def _wrong_form(wire: Wire, request: JsonObject, mark: str, stamp: Stamp, source: random.Random) -> tuple[str, Answer]:
    """A stream of another wire."""
    other = source.choice([one for one in Wire if one is not wire])
    return f"a {other} stream", RawStream(stream_reply(Turn(Say(f"Hello {mark}")), other, request, stamp))


_WAYS: tuple[_Way, ...] = (_status, _status, _status, _in_stream, _other_error, _junk, _wrong_form)
