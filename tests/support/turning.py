"""Whole turns without a network: a request, the answers an upstream gives, and what came of the turn."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mustcall.core.errors import (
    MustcallError,
)
from mustcall.core.origin import Wire
from mustcall.core.reply import Reply
from mustcall.engine.exchange import Inbound, StreamedReply, WholeReply
from mustcall.engine.records import TurnProgress, TurnRecord
from mustcall.engine.turns import OperatorSettings, Turns
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.facts.wording import Wording
from mustcall.testing import Call, Fail, Say, Think, Turn
from mustcall.testing.render import Stamp, build_error, build_reply, stream_reply
from mustcall.testing.transport import FakeClock, FakeReply, FakeTransport
from mustcall.upstream.seam import UpstreamCall
from support.compared import leave, read_raw
from support.exchanging import SSE, asked, assembled, endpoint, inbound

DEADLINE = 2_000_000.0
WORDS = Wording()
TEXT = Turn(Say("It is going to rain."))
CALL = Turn(Call("weather", {"city": "Bern"}))
MIXED = Turn(Think("Ünd?"), Say("Es regnet."), Call("weather", {"city": "Bern"}))
MARKUP = Turn(Say('<tool_call>{"name": "weather", "arguments": {"city": "Bern"}}</tool_call>'))
CUT = Turn(Say("Hm."), Call("weather", '{"city": "Be'), finish="tool_calls")
WRITTEN = Turn(Say('{"name": "weather", "arguments": {"city": "Bern"}}'))
NATIVE = Controls(protocol=Protocol.NATIVE)
#: The tool as the system prompt tells of it where calls are made in text.
TOLD = """You can call tools. To call one, write exactly this, with the tool's name and its arguments:

<tool_call>
{"name": "TOOL_NAME", "arguments": {"PARAMETER": "VALUE"}}
</tool_call>

Write nothing after a call; its result will be given to you. These are the tools:

## weather
Parameters:
- city (string, optional)"""


def body_of(wire: Wire, *, stream: bool = False, **fields: Any) -> dict[str, Any]:
    """A request with tools on offer and room for an answer."""
    room = {"max_tokens": 500} if wire is Wire.MESSAGES else {}
    return {**asked(wire, stream=stream, tools=True), **room, **fields}


def force(wire: Wire, name: str = "weather") -> Any:
    """The named choice of a wire."""
    return {
        Wire.CHAT: {"type": "function", "function": {"name": name}},
        Wire.RESPONSES: {"type": "function", "name": name},
        Wire.MESSAGES: {"type": "tool", "name": name},
    }[wire]


def answer(wire: Wire, turn: Turn, *, stream: bool, number: int = 0, **fields: Any) -> FakeReply:
    """A turn as an upstream of this wire sends it."""
    if stream:
        pieces = stream_reply(turn, wire, body_of(wire, stream=True, **fields), Stamp(number))
        return FakeReply(*pieces, headers=SSE)
    return FakeReply(json.dumps(build_reply(turn, wire, body_of(wire), Stamp(number))).encode())


def refusal(wire: Wire, fail: Fail) -> FakeReply:
    """An error status in a wire's shape."""
    return FakeReply(json.dumps(build_error(fail, wire, Stamp(0))).encode(), status=fail.status)


class Taken(msgspec.Struct):
    """What came of a turn."""

    status: int
    pieces: list[bytes]
    streamed: bool
    sent: list[dict[str, Any]]
    raw: list[bytes]
    record: TurnRecord
    kinds: set[str]

    @property
    def body(self) -> bytes:
        """The answer's bytes."""
        return b"".join(self.pieces)

    def reply(self, wire: Wire) -> Reply:
        """The answer as a client of this wire reads it."""
        return assembled(wire, self.body)


def raw_bodies(calls: Sequence[UpstreamCall]) -> list[bytes]:
    """The bodies that were sent."""
    return [call.body for call in calls if call.body is not None]


async def take(
    request: Inbound,
    theirs: Wire,
    *answers: FakeReply | MustcallError,
    controls: Controls | None = None,
    retries: int = 0,
    turns: Turns | None = None,
    progress: TurnProgress | None = None,
    model: str = "m",
    sends: Sequence[dict[str, Any]] | None = None,
    left: str | None = None,
) -> Taken:
    """Take one turn and read its answer to the end; every reply that was used is closed, however it ends.

    `sends` are the bodies that the upstream must get, `left` says why a test does not look at them.
    """
    transport = FakeTransport(answers)
    if left is not None:
        leave(transport, left)
    turns = turns or Turns(transport, FakeClock(), OperatorSettings())
    turns._transport = transport
    progress = progress or TurnProgress()
    try:
        got = await turns.take(
            request,
            endpoint(theirs, retries=retries),
            None,
            asked=model,
            controls=controls or Controls(),
            progress=progress,
            deadline=DEADLINE,
        )
        match got:
            case WholeReply():
                pieces = [got.body]
            case StreamedReply():
                pieces = [got.first, *[piece async for piece in got.chunks]]
    finally:
        used = answers[: len(transport.calls)]
        assert all(reply.closed for reply in used if isinstance(reply, FakeReply))
        if sends is not None:
            assert [read_raw(body) for body in raw_bodies(transport.calls)] == sends
    assert progress.record is not None
    raw = raw_bodies(transport.calls)
    return Taken(
        status=got.status,
        pieces=pieces,
        streamed=isinstance(got, StreamedReply),
        sent=[read_raw(body) for body in raw],
        raw=raw,
        record=progress.record,
        kinds={str(entry.kind) for entry in got.adaptations},
    )


def request_of(wire: Wire, *, stream: bool = False, headers: Mapping[str, str] | None = None, **fields: Any) -> Inbound:
    """A caller's request, spelt in a way that only its own bytes have."""
    written = json.dumps(body_of(wire, stream=stream, **fields), indent=1).encode()
    return inbound(wire, written, stream=stream, headers=headers)
