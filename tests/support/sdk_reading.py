"""What the official SDKs make of bytes that somebody else received: every reply is parsed in strict validation.

A `TakingTransport` keeps the exchanges that pass it. `read_by_sdk` hands one of them to the SDK of its wire, as the
answer to a request of its own: whole replies to `create`, streams to the SDK's own accumulator. Nothing of mustcall
decides what is right here.
"""

import contextlib
import json
import re
from collections.abc import AsyncGenerator, Callable, Generator, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import anthropic
import httpx2
import openai

from mustcall.upstream.seam import Transport, UpstreamCall, UpstreamReply

__all__ = ["Taken", "TakingTransport", "class_for", "read_by_sdk", "read_once_by_sdk"]

#: Headers of the connection; the SDK gets the bytes as they are.
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding"}
#: The last event of a stream, by the end of its path.
_LAST = {
    "/chat/completions": (b"data: [DONE]", b'data: {"error"'),
    "/responses": (b'"response.completed"', b'"response.incomplete"', b'"response.failed"', b"event: error"),
    "/messages": (b'"message_stop"', b"event: error"),
}
#: The exceptions that both SDKs document for a status, and those that only Anthropic's has.
_CLASSES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    409: "ConflictError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
}
_ANTHROPIC = {
    413: "RequestTooLargeError",
    503: "ServiceUnavailableError",
    504: "DeadlineExceededError",
    529: "OverloadedError",
}


@dataclass
class Taken:
    """One exchange as it was received."""

    method: str
    path: str
    body: dict[str, Any]
    status: int
    headers: dict[str, str]
    raw: bytearray = field(default_factory=bytearray)

    @property
    def streamed(self) -> bool:
        """Whether the answer is a stream."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def complete(self) -> bool:
        """Whether the answer came to its end; a client may leave one."""
        if not self.streamed:
            return True
        marks = next(marks for end, marks in _LAST.items() if self.path.endswith(end))
        return any(mark in self.raw for mark in marks)


class TakingTransport:
    """Passes exchanges on to a transport and keeps them."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.taken: list[Taken] = []

    async def send(self, call: UpstreamCall) -> UpstreamReply:
        """Pass a request on."""
        reply = await self._inner.send(call)
        headers = {name.lower(): value for name, value in reply.headers.items()}
        body: dict[str, Any] = json.loads(call.body) if call.body else {}
        taken = Taken(call.method, urlsplit(call.url).path, body, reply.status, headers)
        self.taken.append(taken)
        return _Listened(reply, taken)

    async def close(self) -> None:
        """Free everything."""
        await self._inner.close()


class _Listened:
    """An answer whose bytes are kept as they are read."""

    def __init__(self, reply: UpstreamReply, taken: Taken) -> None:
        self._reply = reply
        self._taken = taken
        self.status = reply.status
        self.headers: Mapping[str, str] = reply.headers

    @property
    def arrived(self) -> bool:
        return self._reply.arrived

    async def read(self) -> bytes:
        whole = await self._reply.read()
        self._taken.raw[:] = whole
        return whole

    async def chunks(self) -> AsyncGenerator[bytes]:
        async with contextlib.aclosing(self._reply.chunks()) as pieces:
            async for piece in pieces:
                self._taken.raw += piece
                yield piece

    async def close(self) -> None:
        await self._reply.close()


def class_for(sdk: Any, status: int) -> type[Exception]:
    """Return the class of an SDK's exceptions for a status, by the SDKs' own documentation."""
    name = _CLASSES.get(status) or ("InternalServerError" if status >= 500 else "APIStatusError")
    # Anthropic has classes of its own for what OpenAI calls by its family.
    name = _ANTHROPIC.get(status, name) if sdk is anthropic else name
    return getattr(sdk, name)


def read_by_sdk(taken: Taken) -> Exception | None:
    """Let the SDK of the wire parse an exchange; return the exception it raises for an error, None for a reply.

    Raise what the SDK raises for a reply that is not as its types say.
    """
    reading: Callable[[Taken], object]
    if taken.path.endswith("/chat/completions"):
        reading, sdk = _read_chat, openai
    elif "/responses" in taken.path:
        reading, sdk = _read_responses, openai
    else:
        reading, sdk = _read_messages, anthropic
    raised: Exception | None = None
    try:
        reading(taken)
    except sdk.APIResponseValidationError:
        raise
    except sdk.APIError as error:
        raised = error
    if isinstance(raised, sdk.APIStatusError):
        assert type(raised) is class_for(sdk, taken.status), f"{type(raised).__name__} for {taken.status}"
    else:
        assert taken.status < 400, f"the SDK took {taken.status} for a reply"
        assert raised is None or taken.streamed, "only a stream ends in an error without a status"
    assert raised is None or _message(raised), "an error says what is wrong"
    return raised


#: What names things and says when: the SDKs take any text and any number.
_NAMES = re.compile(
    rb'("(?:id|item_id|call_id|tool_call_id|tool_use_id|response_id|previous_response_id|request_id)" ?: ?)"[^"\\]*"'
    rb'|("(?:created|created_at|completed_at)" ?: ?)\d+(?:\.\d+)?'
)
#: Exchanges that an SDK has taken.
_read: set[tuple[Hashable, ...]] = set()


def read_once_by_sdk(taken: Taken) -> None:
    """Let the SDK of the wire parse an exchange unless it has parsed one that differs in ids and times alone.

    A probe asks the same several times, and a grid of probes asks it of many servers.
    """
    known = (taken.method, taken.path, taken.status, bool(taken.body.get("stream")), taken.headers.get("content-type"))
    key = (*known, _NAMES.sub(rb'\1\2""', taken.raw))
    if key not in _read:
        read_by_sdk(taken)
        _read.add(key)


def _message(error: Any) -> str:
    """Return what an error says: of its body where it has one, else what the SDK made of a stream's last event."""
    body: Any = error.body
    while isinstance(body, dict):
        said = cast("dict[str, Any]", body)
        if said.get("message"):
            return str(said["message"])
        body = said.get("error")
    return str(error.message)


def _http(taken: Taken) -> httpx2.Client:
    """Return a client that answers whatever it is asked with these bytes."""
    headers = {name: value for name, value in taken.headers.items() if name not in _HOP}

    def answer(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(taken.status, headers=headers, content=bytes(taken.raw))

    return httpx2.Client(transport=httpx2.MockTransport(answer))


@contextlib.contextmanager
def _openai(taken: Taken) -> Generator[Any]:
    with (
        _http(taken) as http,
        openai.OpenAI(
            base_url="http://sdk.invalid/v1",
            api_key="sk-test",
            max_retries=0,
            http_client=http,
            _strict_response_validation=True,
        ) as client,
    ):
        yield client


def _read_chat(taken: Taken) -> None:
    with _openai(taken) as client:
        said: dict[str, Any] = {"model": "m", "messages": [], "extra_body": taken.body}
        if not taken.body.get("stream"):
            client.chat.completions.create(**said)
            return
        with client.chat.completions.stream(**said) as stream:
            for _ in stream:
                pass
            whole = stream.get_final_completion()
        assert whole.choices[0].finish_reason, "a stream says why it ended"


def _read_responses(taken: Taken) -> None:
    with _openai(taken) as client:
        if taken.method == "GET":
            client.responses.retrieve(taken.path.rpartition("/")[2])
            return
        said: dict[str, Any] = {"model": "m", "input": "", "extra_body": taken.body}
        if not taken.body.get("stream"):
            client.responses.create(**said)
            return
        last = ""
        with client.responses.stream(**said) as stream:
            for event in stream:
                last = event.type
            if last == "response.completed":
                stream.get_final_response()
        assert last in ("response.completed", "response.incomplete", "response.failed", "error")


def _read_messages(taken: Taken) -> None:
    with (
        _http(taken) as http,
        anthropic.Anthropic(
            base_url="http://sdk.invalid",
            api_key="sk-test",
            max_retries=0,
            http_client=http,
            _strict_response_validation=True,
        ) as made,
    ):
        client: Any = made
        said: dict[str, Any] = {"model": "m", "messages": [], "extra_body": taken.body}
        if taken.path.endswith("/count_tokens"):
            assert client.messages.count_tokens(**said).input_tokens >= 0
            return
        said["max_tokens"] = 1
        if not taken.body.get("stream"):
            client.messages.create(**said)
            return
        with client.messages.stream(**said) as stream:
            for _ in stream:
                pass
            whole = stream.get_final_message()
        assert whole.stop_reason, "a stream says why it ended"
