"""A model that does what a test says, inside the process: no socket, no thread, no waiting.

It is an `Upstream`, so it goes where one goes: `Agent(ScriptedModel(["Hi."]))`. The engine cannot tell it from a
provider: what is sent is encoded, judged and recorded as on a real wire, and the script's faults happen. Its clock is a
fake one, so that back-offs, delays and hangs pass at once. For clients of your own, or for a gateway, there is
`ScriptedUpstream`.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import NoReturn

import msgspec
from msgspec import UNSET

from mustcall.core.errors import UpstreamTimeout, UpstreamUnavailable
from mustcall.core.origin import Wire
from mustcall.engine.agent.reading import read_setting
from mustcall.engine.agent.upstream import Upstream
from mustcall.profiles import ProfileOverride
from mustcall.testing.delivery import Chunking, ConnectionFault, RenderedAnswer, plan_delivery
from mustcall.testing.issued import IssuedMemory, remember
from mustcall.testing.lines import Script, ScriptLines, read_line
from mustcall.testing.offers import as_object
from mustcall.testing.recording import End, Recorded
from mustcall.testing.render import Stamp
from mustcall.testing.rules import SeenRequest, find_violation
from mustcall.testing.script import Answer, Fail, Line
from mustcall.testing.transport import FakeClock
from mustcall.upstream import failures
from mustcall.upstream.retry import Clock
from mustcall.upstream.seam import UpstreamCall
from mustcall.wire.registry import codec_for

__all__ = ["Line", "ScriptedModel"]


class ScriptedModel(Upstream):
    """A model with a script: its replies in order, or a function that makes one for each request.

    `requests` are the requests it got, each with its `body`. `default` answers once the script has run out; without one
    that is an error that says so. `strict` refuses what providers refuse. `wire` is the protocol it is asked in.
    What hangs, or is delayed for longer than the call's read timeout, is an `UpstreamTimeout` on the `clock`.

    Raise `ConfigError` for what can be no script, an unknown wire, and a reply that is none.
    """

    def __init__(
        self,
        script: Script = (),
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
        read = read_setting("wire", Wire, wire)
        self._script = _Script(script, default, read, strict=strict, waive=waive, chunking=chunking)
        super().__init__(
            f"scripted:{read}=http://scripted.invalid/v1",
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
        script: Script,
        default: Line | None,
        wire: Wire,
        *,
        strict: bool,
        waive: Collection[str],
        chunking: Chunking,
    ) -> None:
        self._lines = ScriptLines(script, default)
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
        reply = _Reply(delivery, recorded, call, self.clock)
        await reply.begin()
        return reply

    async def close(self) -> None:
        """Nothing is open."""

    def _answer(self, recorded: Recorded) -> Answer:
        if self._strict:
            asked = SeenRequest(as_object(recorded.body), recorded.headers, self._issued)
            found = find_violation(self._wire, asked, self._waive)
            if found is not None:
                recorded.refused_by, refusal = found
                return refusal
        line = self._lines.take(recorded)
        if line is UNSET:
            return Fail(400, f"the script is exhausted: no reply for request {recorded.number + 1}")
        recorded.answer = read_line(line, f"the script's reply to request {recorded.number + 1}")
        return recorded.answer


class _Reply:
    """One reply as the engine reads it. Where the script hangs, the call's timeouts run out on the model's clock."""

    arrived = False

    def __init__(self, delivery: RenderedAnswer, recorded: Recorded, call: UpstreamCall, clock: Clock) -> None:
        self._delivery = delivery
        self._recorded = recorded
        self._call = call
        self._clock = clock
        self.status = delivery.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in delivery.headers.items()}

    async def begin(self) -> None:
        """Return when the headers are there; raise what comes in their place."""
        delay, fault, patience = self._delivery.delay, self._delivery.fault, self._call.timeouts.read
        broken = fault if fault is not None and fault.after == 0 and not fault.head else None
        if delay > patience or (broken is not None and broken.kind == "hang"):
            await self._expire(patience, failures.no_answer(self._call))
        if delay:
            await self._wait(delay)
        if broken is not None:
            self._break(broken)

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
                if fault.kind == "hang":
                    await self._expire(self._call.timeouts.idle, failures.answer_stopped(self._call))
                self._break(fault)
            yield piece
            left = None if left is None else left - len(piece)
        self._recorded.ended = End.COMPLETE

    async def close(self) -> None:
        """Remember a reply that was given up."""
        if self._recorded.ended is None:
            self._recorded.ended = End.DISCONNECTED

    async def _expire(self, seconds: float, error: UpstreamTimeout) -> NoReturn:
        """Wait for as long as the call does, then give up as it would."""
        await self._wait(seconds)
        await self.close()
        raise error

    async def _wait(self, seconds: float) -> None:
        """Let time pass on the clock. Who cancels the call meanwhile is a client that left."""
        try:
            await asyncio.sleep(0)  # a fake clock never yields, and others must be able to cancel what hangs
            await self._clock.sleep(seconds)
        except BaseException:
            await self.close()
            raise

    def _break(self, fault: ConnectionFault) -> NoReturn:
        """Fail as a connection does."""
        self._recorded.ended = End.CUT if fault.kind == "cut" else End.RESET
        raise UpstreamUnavailable("the scripted model cut the connection")
