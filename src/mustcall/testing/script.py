"""What a scripted upstream can answer: frozen values that say what happens, not how a wire writes it.

A `Turn` is a healthy (or lying) reply made of parts; `Fail`, `StreamError`, `Raw` and `RawStream` are the other things
a server sends; `Delayed`, `Hang`, `Cut` and `Reset` wrap any answer in a fault of the connection. Nothing here knows
a wire: `mustcall.testing.render` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from mustcall.core.reply import Usage

__all__ = [
    "USAGE",
    "Answer",
    "Call",
    "Cut",
    "Delayed",
    "Fail",
    "Hang",
    "Line",
    "Raw",
    "RawStream",
    "Refuse",
    "Reset",
    "Say",
    "StreamError",
    "Think",
    "Turn",
    "TurnPart",
]

USAGE = Usage(input_tokens=25, output_tokens=12)
"""The usage of a turn that names none."""


_JSON: Mapping[str, str] = MappingProxyType({"content-type": "application/json"})
_SSE: Mapping[str, str] = MappingProxyType({"content-type": "text/event-stream; charset=utf-8"})


class Say(msgspec.Struct, frozen=True):
    """Text."""

    text: str


class Think(msgspec.Struct, frozen=True):
    """Reasoning, with the opaque state a provider wants back.

    `signature` is sent on Messages, `encrypted` on Responses; both are made up (and remembered) when not given, the
    latter only if the request includes `reasoning.encrypted_content`. `redacted` makes a Messages `redacted_thinking`
    block. `shown="full"` writes Responses reasoning as `reasoning_text`, the way open-weight servers do.
    """

    text: str = ""
    signature: str | None = None
    encrypted: str | None = None
    redacted: bool = False
    shown: Literal["summary", "full"] = "summary"


class Call(msgspec.Struct, frozen=True):
    """A tool call. A `str` of arguments is sent as it is, valid or not; an object is written as compact JSON.

    Kind (function or custom) and namespace are those of the tool the request offers under this name; `namespace`
    overrides the latter, an empty one leaves it out. Custom tools take their text as a `str`.
    """

    name: str
    arguments: dict[str, Any] | str = {}
    id: str | None = None
    namespace: str | None = None


class Refuse(msgspec.Struct, frozen=True):
    """The model's own words for declining."""

    text: str


TurnPart = Say | Think | Call | Refuse


@dataclass(frozen=True, init=False)  # a msgspec struct takes no `*parts`
class Turn:
    """A reply of the model, written on whichever wire the request came on, streamed if it asked for a stream.

    `finish` is one of stop, tool_calls, length, content_filter, refusal, pause (translated per wire), or any other
    word, sent as it is; None derives it from the parts. `extra` are fields added to the reply's top level.
    """

    parts: tuple[TurnPart, ...]
    finish: str | None
    stop_sequence: str | None
    usage: Usage | None
    id: str | None
    model: str | None
    extra: Mapping[str, Any]
    headers: Mapping[str, str]

    def __init__(
        self,
        *parts: TurnPart,
        finish: str | None = None,
        stop_sequence: str | None = None,
        usage: Usage | None = USAGE,
        id: str | None = None,  # noqa: A002  the wire's own word
        model: str | None = None,
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        values = {
            "parts": parts,
            "finish": finish,
            "stop_sequence": stop_sequence,
            "usage": usage,
            "id": id,
            "model": model,
            "extra": extra or {},
            "headers": headers or {},
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls this turn makes."""
        return tuple(part for part in self.parts if isinstance(part, Call))

    @property
    def finish_word(self) -> str:
        """Why the turn ends: the scripted word, else what its parts say."""
        if self.finish is not None:
            return self.finish
        if any(isinstance(part, Refuse) for part in self.parts):
            return "refusal"
        return "tool_calls" if self.calls else "stop"


class Fail(msgspec.Struct, frozen=True):
    """An HTTP error in the wire's own shape; `type` defaults to the provider's word for the status."""

    status: int
    message: str
    type: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = {}
    details: dict[str, Any] | None = None
    param: str | None = None


class StreamError(msgspec.Struct, frozen=True):
    """A stream of `turn` that breaks with the wire's error event after so many events; no terminator follows.

    On Responses `form` picks between `response.failed` and the bare `error` event. A request that did not ask for a
    stream gets the error as an HTTP 500.
    """

    turn: Turn
    after: int = 2
    message: str = "The server had an error while processing your request."
    type: str | None = None
    code: str | None = None
    form: Literal["failed", "error"] = "failed"


class Raw(msgspec.Struct, frozen=True):
    """A whole response, byte for byte."""

    status: int
    body: bytes
    headers: Mapping[str, str] = _JSON


class RawStream(msgspec.Struct, frozen=True):
    """A chunked body, one write per chunk, whatever the upstream's chunking says."""

    chunks: tuple[bytes, ...] | list[bytes]
    status: int = 200
    headers: Mapping[str, str] = _SSE


class Delayed(msgspec.Struct, frozen=True):
    """The answer, later: nothing is sent for so many seconds.

    A client whose read timeout is shorter gives up after that; `ScriptedModel` does so on its clock.
    """

    answer: "Line"
    seconds: float


class Hang(msgspec.Struct, frozen=True):
    """The answer, stuck: after so many body bytes nothing comes until `ScriptedUpstream.release()` is called.

    `after=0` sends nothing at all, or the headers alone with `head=True`. A `ScriptedModel` has no `release`: there the
    call times out on the model's clock.
    """

    answer: "Line"
    after: int = 0
    head: bool = False


class Cut(msgspec.Struct, frozen=True):
    """The answer, cut: after so many body bytes the sending side closes cleanly (FIN), the body unfinished."""

    answer: "Line"
    after: int = 0
    head: bool = False


class Reset(msgspec.Struct, frozen=True):
    """The answer, broken: after so many body bytes the connection is reset (RST)."""

    answer: "Line"
    after: int = 0
    head: bool = False


Answer = Turn | Fail | StreamError | Raw | RawStream | Delayed | Hang | Cut | Reset

Line = Answer | TurnPart | str
"""One reply as a script writes it: a text, a part of a turn by itself, or anything an upstream can answer."""
