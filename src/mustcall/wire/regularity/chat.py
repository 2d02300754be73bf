"""What a strict client of Chat Completions reads: chunks with one delta after the other, calls joined by their index.

Codecs read what servers really send: one index for several calls, no index, an id or a name in every delta, arguments
as an object, content as a list, text after the finish (rule 127). Such bytes are not forwarded: clients that join by
index make one call of two. Nor are choices without a role, which openai-node refuses, and chunks without id, model or
time, which its typed models promise. Whole replies of small servers leave those out, and no client minds.

Cost: one typed decode for each event.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from mustcall.wire.regularity.contract import Anything, Count, Given, is_utf8, read
from mustcall.wire.regularity.framing import Framing
from mustcall.wire.sse import SseEvent

__all__ = ["ChatRegularity", "is_regular_body"]


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count


class _Error(msgspec.Struct, gc=False):
    message: Given
    type: str | None = None
    code: str | int | None = None


# --- whole replies --------------------------------------------------------------------------------------------------


class _Function(msgspec.Struct, gc=False):
    name: Given
    arguments: str


class _Custom(msgspec.Struct, gc=False):
    name: Given
    input: str


class _Call(msgspec.Struct, gc=False):
    id: Given
    type: Literal["function", "custom"]
    function: _Function | None = None
    custom: _Custom | None = None


class _Message(msgspec.Struct, gc=False):
    role: Literal["assistant"] = "assistant"
    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    function_call: None = None


class _Choice(msgspec.Struct, gc=False):
    message: _Message
    index: Count = 0
    finish_reason: Given | None = None
    logprobs: Anything | None = None


class _Body(msgspec.Struct, gc=False):
    id: Given
    choices: list[_Choice]
    object: Literal["chat.completion"] = "chat.completion"
    created: int | float = 0
    model: str = ""
    usage: _Usage | None = None
    error: None = None


_body = msgspec.json.Decoder(_Body)


def is_regular_body(body: bytes) -> bool:
    """Tell whether a whole reply is written as the wire says."""
    reply = read(_body, body)
    if reply is None or not reply.choices or not is_utf8(body):
        return False
    for choice in reply.choices:
        calls = choice.message.tool_calls or ()
        if any((call.function if call.type == "function" else call.custom) is None for call in calls):
            return False
        if len({call.id for call in calls}) != len(calls):
            return False
    return True


# --- streams --------------------------------------------------------------------------------------------------------


class _Piece(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None
    input: str | None = None


class _CallDelta(msgspec.Struct, gc=False):
    index: Count
    id: str | None = None
    type: str | None = None
    function: _Piece | None = None
    custom: _Piece | None = None


class _Delta(msgspec.Struct, gc=False):
    role: str | None = None
    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_CallDelta] | None = None
    function_call: None = None


class _ChunkChoice(msgspec.Struct, gc=False):
    index: Count
    delta: _Delta
    finish_reason: Given | None = None
    logprobs: Anything | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_ChunkChoice]
    id: str = ""
    # Azure's first chunk, with nothing but filter results, has an empty one; the SDK's helper skips any other.
    object: Literal["chat.completion.chunk", ""] = ""
    created: int | float | None = None
    model: str | None = None
    usage: _Usage | None = None
    error: None = None


class _Failed(msgspec.Struct, gc=False):
    error: _Error


_chunk = msgspec.json.Decoder(_Chunk)
_failed = msgspec.json.Decoder(_Failed)


class _Progress:
    """One choice: the calls that have begun, and whether it has finished."""

    __slots__ = ("calls", "finished", "ids")

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.ids: set[str] = set()
        self.finished = False


class ChatRegularity:
    """One stream."""

    __slots__ = ("_choices", "_ended", "_finished", "_framing")

    def __init__(self) -> None:
        self._framing = Framing()
        self._choices: dict[int, _Progress] = {}
        self._finished = False
        self._ended = False

    @property
    def names(self) -> Sequence[str]:
        """Nothing: parts have their place alone."""
        return ()

    @property
    def settled(self) -> bool:
        """Whether no finish was announced that a later writer would have to repeat."""
        return not self._finished

    @property
    def complete(self) -> bool:
        """Whether a finish and `[DONE]` came."""
        return self._ended and self._finished

    def takes(self, block: bytes, events: list[SseEvent]) -> bool:
        """Tell whether these bytes can be forwarded after all before."""
        return self._framing.takes(block) and all(map(self._takes, events))

    def _takes(self, event: SseEvent) -> bool:
        if self._ended or event.name:
            return False
        if event.data == b"[DONE]":
            self._ended = True
            return True
        chunk = read(_chunk, event.data)
        if chunk is None:
            failed = read(_failed, event.data)
            self._ended = True
            return failed is not None and bool(failed.error.type or failed.error.code)
        if chunk.choices and not (chunk.object and chunk.id and chunk.created is not None and chunk.model is not None):
            return False
        return all(map(self._takes_choice, chunk.choices))

    def _takes_choice(self, choice: _ChunkChoice) -> bool:
        progress = self._choices.get(choice.index)
        delta = choice.delta
        if progress is None:
            progress = self._choices[choice.index] = _Progress()
            if delta.role != "assistant":
                return False
        calls = delta.tool_calls or ()
        if progress.finished and (
            calls or delta.content or delta.refusal or delta.reasoning or delta.reasoning_content
        ):
            return False
        if choice.finish_reason is not None:
            progress.finished = True
            self._finished = self._finished or choice.index == 0
        return all(_follows(call, progress) for call in calls)


def _follows(call: _CallDelta, progress: _Progress) -> bool:
    """Tell whether a delta begins the next call with all that belongs there, or goes on with the last one."""
    begun = len(progress.calls)
    if call.index == begun:
        part = call.function if call.type == "function" else call.custom if call.type == "custom" else None
        if part is None or not part.name or not call.id or call.id in progress.ids or call.type is None:
            return False
        progress.calls.append(call.type)
        progress.ids.add(call.id)
        return True
    if call.index != begun - 1 or call.id:
        return False
    kind = progress.calls[-1]
    part, other = (call.function, call.custom) if kind == "function" else (call.custom, call.function)
    return other is None and call.type in (None, kind) and part is not None and not part.name
