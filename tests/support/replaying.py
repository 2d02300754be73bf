"""A recorded reply through the engine: one turn on the chat wire without a network, the text cut as a test wants.

What came back is read here from the public API alone, so that it says what a client would understand.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from mustcall.core.errors import MustcallError
from mustcall.core.origin import Wire
from mustcall.engine.exchange import Inbound, StreamedReply, WholeReply
from mustcall.engine.records import TurnProgress
from mustcall.engine.turns import Turns
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Protocol
from mustcall.testing import Line, RawStream, Recorded, Say, ScriptedModel, Turn

__all__ = ["CHUNKINGS", "Chunking", "Outcome", "ReplyText", "assert_none", "chat_body", "replay"]

_FAR = 2_000_000.0
_SHOWN = 10

Chunking = Callable[[str], Iterator[str]]
"""How a model's text is cut into deltas."""


def _by(size: int) -> Chunking:
    def cut(text: str) -> Iterator[str]:
        return (text[at : at + size] for at in range(0, len(text), size))

    return cut


def _by_line(text: str) -> Iterator[str]:
    yield from text.splitlines(keepends=True)


def _at_once(text: str) -> Iterator[str]:
    yield text


CHUNKINGS: dict[str, Chunking] = {"1": _by(1), "3": _by(3), "16": _by(16), "lines": _by_line, "once": _at_once}


@dataclass(frozen=True)
class ReplyText:
    """What a model wrote, and why it stopped."""

    text: str
    finish: str = "stop"


@dataclass(frozen=True)
class Outcome:
    """What a client got: calls, text or the code of an error; and how many upstream requests it took."""

    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    text: str = ""
    finish: str = ""
    error: str = ""
    requests: int = 0


def assert_none(violations: Iterable[str | None]) -> None:
    """Fail with the ids of all violations and the sentences of the first ones; each sentence begins with its id."""
    wrong = [violation for violation in violations if violation is not None]
    ids = " ".join(violation.partition(": ")[0].replace(" ", "_") for violation in wrong)
    if wrong:
        pytest.fail(f"{len(wrong)} failed: {ids}\n" + "\n".join(wrong[:_SHOWN]), pytrace=False)


def chat_body(
    messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], choice: str = "auto"
) -> dict[str, Any]:
    """Return a chat request; tools are `{name, description, parameters}`, the choice a mode or a tool's name."""
    named = {"type": "function", "function": {"name": choice}}
    return {
        "model": "a-model-nobody-knows",
        "messages": list(messages),
        "tools": [{"type": "function", "function": tool} for tool in tools],
        "tool_choice": choice if choice in ("auto", "required", "none") else named,
        "temperature": 0,
    }


async def replay(
    body: dict[str, Any],
    reply: ReplyText,
    *later: Line,
    chunking: Chunking | None = None,
    protocol: Protocol | None = None,
) -> Outcome:
    """Take one turn in which the model writes `reply` and then, if it is asked again, what comes `later`.

    With a `chunking` the caller streams, and the text arrives in these pieces.
    """
    stream = chunking is not None
    script = _Script(reply, later, chunking or _at_once)
    model = ScriptedModel(script)
    progress = TurnProgress()
    request = Inbound(
        wire=Wire.CHAT,
        body=json.dumps(body | ({"stream": True} if stream else {})).encode(),
        headers={},
        query="",
        stream=stream,
        token="token",
        request_id="req_1",
    )
    async with model.connected() as transport:
        turns = Turns(transport, model.clock)
        try:
            got = await turns.take(
                request,
                model.endpoint,
                None,
                asked=body["model"],
                controls=Controls(protocol=protocol),
                progress=progress,
                deadline=_FAR,
            )
            match got:
                case WholeReply():
                    read = _read_whole(got.body)
                case StreamedReply():
                    read = _read_stream(b"".join([got.first, *[piece async for piece in got.chunks]]))
        except MustcallError as error:
            read = Outcome(error=error.code)
    return replace(read, requests=len(model.requests))


class _Script:
    """Writes the reply as the request wants it, streamed or whole; then goes on with the later lines."""

    def __init__(self, reply: ReplyText, later: Sequence[Line], chunking: Chunking) -> None:
        self._reply = reply
        self._later = iter(later)
        self._chunking = chunking

    def __call__(self, recorded: Recorded) -> Line:
        if recorded.number:
            return next(self._later, "I have nothing more to say.")
        body: Any = recorded.body
        if body.get("stream"):
            return RawStream(tuple(self._events()))
        return Turn(Say(self._reply.text), finish=self._reply.finish)

    def _events(self) -> Iterator[bytes]:
        yield _event({"role": "assistant", "content": ""}, None)
        for piece in self._chunking(self._reply.text):
            yield _event({"content": piece}, None)
        yield _event({}, self._reply.finish)
        yield b"data: [DONE]\n\n"


def _event(delta: dict[str, Any], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _read_whole(raw: bytes) -> Outcome:
    choice = json.loads(raw)["choices"][0]
    message = choice["message"]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return Outcome(
        tuple((call["name"], json.loads(call["arguments"])) for call in calls),
        message.get("content") or "",
        choice["finish_reason"],
    )


def _read_stream(raw: bytes) -> Outcome:
    text, finish = "", ""
    calls: dict[int, list[str]] = {}
    for line in raw.decode().splitlines():
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        chunk = json.loads(line[6:])
        if "error" in chunk:
            return Outcome(text=text, error=chunk["error"]["code"])
        for choice in chunk["choices"]:
            delta = choice["delta"]
            text += delta.get("content") or ""
            for piece in delta.get("tool_calls") or ():
                call = calls.setdefault(piece["index"], ["", ""])
                call[0] += piece["function"].get("name") or ""
                call[1] += piece["function"].get("arguments") or ""
            finish = choice.get("finish_reason") or finish
    return Outcome(tuple((name, json.loads(arguments)) for name, arguments in calls.values()), text, finish)
