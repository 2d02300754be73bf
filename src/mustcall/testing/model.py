"""A model that does what a test says, inside the process: no socket, no thread, no waiting.

It is an `Upstream`, so it goes where one goes: `Agent(ScriptedModel(["Hi."]))`. The engine cannot tell it from a
provider: what is sent is encoded, judged and recorded as on a real wire, and the script's faults happen. Its clock is a
fake one, so that back-offs pass at once. For clients of your own, or for a gateway, there is `ScriptedUpstream`.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from mustcall.core.errors import UpstreamUnavailable
from mustcall.core.origin import Wire
from mustcall.engine.agent.upstream import Upstream
from mustcall.profiles import ProfileOverride
from mustcall.testing.delivery import Chunking, ConnectionFault, RenderedAnswer, plan_delivery
from mustcall.testing.issued import IssuedMemory, remember
from mustcall.testing.offers import as_object
from mustcall.testing.recording import End, Recorded
from mustcall.testing.render import Stamp
from mustcall.testing.rules import SeenRequest, find_violation
from mustcall.testing.script import Answer, Call, Fail, Say, Turn
from mustcall.testing.transport import FakeClock
from mustcall.upstream.retry import Clock
from mustcall.upstream.seam import UpstreamCall
from mustcall.wire.registry import codec_for

__all__ = ["Line", "ScriptedModel"]

Line = Answer | str | Call
"""One reply of a scripted model: a text, a call, or anything an upstream can answer."""


class ScriptedModel(Upstream):
    """A model with a script: its replies in order, or a function that makes one for each request.

    `requests` are the requests it got, each with its `body`. `default` answers once the script has run out; without one
    that is an error that says so. `strict` refuses what providers refuse. `wire` is the protocol it is asked in.
    """

    def __init__(
        self,
        script: Iterable[Line] | Callable[[Recorded], Line] = (),
        *,
        model: str = "scripted",
        wire: Wire | str = Wire.CHAT,
        default: Line | None = None,
        strict: bool = False,
        waive: Collection[str] = (),
        chunking: Chunking = None,
        overrides: Sequence[ProfileOverride] = (),
        stateful: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._script = _Script(script, default, Wire(wire), strict=strict, waive=waive, chunking=chunking)
        super().__init__(
            f"scripted:{Wire(wire)}=http://scripted.invalid/v1",
            model=model,
            api_key="scripted",
            transport=self._script,
            overrides=overrides,
            stateful=stateful,
            clock=clock or FakeClock(),
        )
        self._script.clock = self.clock

    @property
    def requests(self) -> list[Recorded]:
        """What it was asked, in order."""
        return self._script.requests


class _Script:
    """The transport of a scripted model: every request gets the next reply."""

    def __init__(
        self,
        script: Iterable[Line] | Callable[[Recorded], Line],
        default: Line | None,
        wire: Wire,
        *,
        strict: bool,
        waive: Collection[str],
        chunking: Chunking,
    ) -> None:
        self._make = script if callable(script) else None
        self._rest = iter(()) if callable(script) else iter(script)
        self._default = default
        self._wire = wire
        self._strict = strict
        self._waive = frozenset(waive)
        self._chunking: Chunking = chunking
        self._issued = IssuedMemory()
        self.clock: Clock = FakeClock()
        self.requests: list[Recorded] = []

    async def send(self, call: UpstreamCall) -> "_Reply":
        """Record a request and return the next reply."""
        raw = call.body or b""
        recorded = Recorded(
            method=call.method,
            path=f"/v1{codec_for(self._wire).path}",
            query={},
            wire=self._wire,
            headers=dict(call.headers),
            body=msgspec.json.decode(raw) if raw else None,
            raw=raw,
            number=len(self.requests),
        )
        self.requests.append(recorded)
        body, stamp = as_object(recorded.body), Stamp(recorded.number, "scripted")
        delivery = plan_delivery(self._answer(recorded), self._wire, body, stamp, self._chunking)
        if delivery.reply is not None:
            remember(self._issued, self._wire, body, delivery.reply)
        recorded.status = delivery.status
        if delivery.delay:
            await self.clock.sleep(delivery.delay)
        if delivery.fault is not None and delivery.fault.after == 0 and not delivery.fault.head:
            await _break(delivery.fault, recorded)
        return _Reply(delivery, recorded)

    async def close(self) -> None:
        """Nothing is open."""

    def _answer(self, recorded: Recorded) -> Answer:
        if self._strict:
            asked = SeenRequest(as_object(recorded.body), recorded.headers, self._issued)
            found = find_violation(self._wire, asked, self._waive)
            if found is not None:
                recorded.refused_by, refusal = found
                return refusal
        line = next(self._rest, self._default) if self._make is None else self._make(recorded)
        if line is None:
            return Fail(400, f"the script is exhausted: no reply for request {recorded.number + 1}")
        recorded.answer = _read(line)
        return recorded.answer


def _read(line: Line) -> Answer:
    match line:
        case str():
            return Turn(Say(line))
        case Call():
            return Turn(line)
        case _:
            return line


class _Reply:
    """One reply as the engine reads it. It hangs where the script says so: `read` may wait."""

    arrived = False

    def __init__(self, delivery: RenderedAnswer, recorded: Recorded) -> None:
        self._delivery = delivery
        self._recorded = recorded
        self.status = delivery.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in delivery.headers.items()}

    async def read(self) -> bytes:
        """Return the whole body."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the body as it would be written, up to the fault in it."""
        fault = self._delivery.fault
        left = fault.after if fault is not None else None
        for piece in self._delivery.writes:
            if left is not None and fault is not None and len(piece) >= left:
                if left:
                    yield piece[:left]
                await _break(fault, self._recorded)
            yield piece
            left = None if left is None else left - len(piece)
        self._recorded.ended = End.COMPLETE

    async def close(self) -> None:
        """Remember a reply that was given up."""
        if self._recorded.ended is None:
            self._recorded.ended = End.DISCONNECTED


async def _break(fault: ConnectionFault, recorded: Recorded) -> None:
    """Hang for good, or fail as a connection does."""
    if fault.kind == "hang":
        await asyncio.Event().wait()
    recorded.ended = End.CUT if fault.kind == "cut" else End.RESET
    raise UpstreamUnavailable("the scripted model cut the connection")
