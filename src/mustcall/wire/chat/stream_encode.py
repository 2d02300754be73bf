"""Canonical events to Chat Completions chunks: the complete sequence, role first, finish and usage last.

Chat lets parts interleave, so nothing is held back. The constant part of a chunk is written once per stream.
"""

from collections.abc import Sequence
from typing import Any, assert_never

import msgspec

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import ErrorInfo, UpstreamGarbage
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.parts import CallKind, OpaqueState, Part, Reasoning, Refusal, Text, ToolCall
from mustcall.core.reply import Usage, derive_finish
from mustcall.core.request import Request
from mustcall.core.streams.events import (
    ArgumentsDelta,
    Ended,
    Event,
    Failed,
    Finished,
    PartEnded,
    PartReasoningDelta,
    PartStarted,
    PartTextDelta,
    Started,
    StateDelta,
    UsageUpdated,
)
from mustcall.wire.chat.deltas import FIRST, REFUSAL, TEXT, THOUGHT
from mustcall.wire.chat.reply import caller_name, encode_finish, encode_usage, note_dropped, reasoning_fields
from mustcall.wire.codec import ReplyStamp
from mustcall.wire.openai_errors import encode_error_body

__all__ = ["KEEPALIVE", "ChatStreamEncoder"]

#: The wire has no event for it; its clients count every byte.
KEEPALIVE = b": keepalive\n\n"

_dump = msgspec.json.encode


class ChatStreamEncoder:
    """One stream's state: what each part is to a chat client."""

    __slots__ = (
        "_caller",
        "_failed",
        "_finish",
        "_head",
        "_log",
        "_model",
        "_numbers",
        "_parts",
        "_sent",
        "_stamp",
        "_stated",
        "_streamed",
        "_thought",
        "_usage",
    )

    _TAIL = b',"logprobs":null,"finish_reason":null}]}\n\n'

    def __init__(self, caller: Request, stamp: ReplyStamp, log: AdaptationLog) -> None:
        self._caller = caller
        self._stamp = stamp
        self._log = log
        self._head = b""
        self._model = caller.model
        self._parts: dict[int, Part] = {}
        self._numbers: dict[int, int] = {}
        self._sent: dict[int, int] = {}
        self._streamed: dict[int, list[str]] = {}
        self._stated: set[int] = set()
        self._failed = False
        self._thought: tuple[int, int | None] | None = None
        self._usage: Usage | None = None
        self._finish: Finished | None = None

    def resume(self, events: list[Event], names: Sequence[str], last: bytes) -> None:  # noqa: ARG002  no ids, no numbers
        """Take what went out as the upstream's own bytes."""
        for event in events:
            self.feed(event)

    def sign(self) -> bytes:
        """Return a sign of life."""
        return KEEPALIVE

    def feed(self, event: Event) -> bytes:
        """Take one event; nothing comes out after a failure."""
        if self._failed:
            return b""
        match event:
            case PartTextDelta(index=index, text=text):
                return self._text(index, text)
            case ArgumentsDelta(index=index, text=text):
                return self._arguments(index, text)
            case PartReasoningDelta(index=index, text=text, summary=summary):
                return self._thinking(index, text, summary)
            case PartStarted(index=index, part=part):
                self._parts[index] = part
                return self._begin(index, part)
            case StateDelta(index=index, state=state):
                return self._state(index, state)
            case PartEnded(index=index, part=part):
                return self._complete(index, part)
            case UsageUpdated(usage=usage):
                self._usage = usage
                return b""
            case Started(model=model):
                return self._start(model)
            case Finished():
                self._finish = event
                return b""
            case Ended():
                return self._end()
            case Failed(error=error):
                return self._error(error)
            case _:
                assert_never(event)

    def _error(self, error: ErrorInfo) -> bytes:
        return b"data: %b\n\n" % _dump(encode_error_body(error, self._stamp.request_id))

    def _start(self, model: str) -> bytes:
        self._head = (
            b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"choices":[{"index":0,"delta":'
            % (_dump(self._id), self._stamp.created, _dump(model or self._model))
        )
        self._model = model or self._model
        return self._delta(FIRST)

    @property
    def _id(self) -> str:
        return self._stamp.id or f"chatcmpl-{self._stamp.token}"

    def _delta(self, delta: JsonObject) -> bytes:
        return self._head + _dump(delta) + self._TAIL

    def _begin(self, index: int, part: Part) -> bytes:
        match part:
            case Text(text=text) | Refusal(text=text):
                return self._text(index, text)
            case Reasoning():
                return self._whole_thought(index, part)
            case ToolCall():
                number = self._numbers[index] = len(self._numbers)
                call: dict[str, Any] = {"index": number, "id": part.id, "type": str(part.kind)}
                name = caller_name(part)
                self._streamed[index] = [part.arguments_json]
                if part.kind is CallKind.CUSTOM:
                    call["custom"] = {"name": name, "input": part.arguments_json}
                else:
                    call["function"] = {"name": name, "arguments": part.arguments_json}
                return self._delta({"tool_calls": [{**call, **part.fields_for(Wire.CHAT)}]})
            case _:
                note_dropped(part, self._log)
                return b""

    def _complete(self, index: int, final: Part | None) -> bytes:
        """Send what the upstream's final word on a part has beyond its deltas; what was sent cannot be taken back."""
        match final, self._parts.get(index):
            case (Text(text=text), Text()) | (Refusal(text=text), Refusal()):
                return self._text(index, text[self._sent.get(index, 0) :])
            case ToolCall(arguments_json=arguments, name=name), ToolCall():
                sent = "".join(self._streamed[index])
                if not arguments.startswith(sent):
                    self._failed = True
                    error = UpstreamGarbage(f"the upstream contradicted itself about the arguments of {name!r}")
                    return self._error(error.info())
                return self._arguments(index, arguments[len(sent) :])
            case (Reasoning() as thought, Reasoning()):
                return self._whole_thought(index, thought)
            case _:
                return b""

    def _text(self, index: int, text: str) -> bytes:
        if not text:
            return b""
        self._sent[index] = self._sent.get(index, 0) + len(text)
        begin = REFUSAL if isinstance(self._parts.get(index), Refusal) else TEXT
        return b"%b%b%b}%b" % (self._head, begin, _dump(text), self._TAIL)

    def _arguments(self, index: int, text: str) -> bytes:
        if not text:
            return b""
        part = self._parts[index]
        assert isinstance(part, ToolCall), "arguments belong to calls"
        self._streamed[index].append(text)
        number = self._numbers[index]
        if part.kind is CallKind.CUSTOM:
            return self._delta({"tool_calls": [{"index": number, "custom": {"input": text}}]})
        return self._delta({"tool_calls": [{"index": number, "function": {"arguments": text}}]})

    def _whole_thought(self, index: int, part: Reasoning) -> bytes:
        out = b"" if index in self._sent else self._thinking(index, part.text or "\n\n".join(part.summary), None)
        return out + self._state(index, part.state) if part.state is not None else out

    def _thinking(self, index: int, text: str, summary: int | None) -> bytes:
        if not text:
            return b""
        self._sent[index] = self._sent.get(index, 0) + len(text)
        # Summaries and thoughts are paragraphs; a chat client sees one text.
        last, self._thought = self._thought, (index, summary)
        if last is not None and last != self._thought:
            text = f"\n\n{text}"
        return b"%b%b%b}%b" % (self._head, THOUGHT, _dump(text), self._TAIL)

    def _state(self, index: int, state: OpaqueState) -> bytes:
        """Send state once; a chat client gets it as an entry of `reasoning_details`."""
        fields = {} if index in self._stated else reasoning_fields(Reasoning(state=state))
        self._stated.add(index)
        return self._delta(fields) if fields else b""

    def _end(self) -> bytes:
        assert self._finish is not None, "a stream ends after it finished"
        parts = self._parts.values()
        finish = derive_finish(self._finish.reason, parts)
        word = encode_finish(finish, any(isinstance(part, Refusal) for part in parts))
        out = self._head + b'{},"logprobs":null,"finish_reason":%b}]}\n\n' % _dump(word)
        if self._usage is not None and self._caller.stream_usage:
            chunk: JsonObject = {
                "id": self._id,
                "object": "chat.completion.chunk",
                "created": self._stamp.created,
                "model": self._model,
                "choices": [],
                "usage": encode_usage(self._usage),
            }
            out += b"data: %b\n\n" % _dump(chunk)
        return out + b"data: [DONE]\n\n"
