"""The gateway's turns without its HTTP: a request of a wire in, an answer of that wire out, inside one process.

This is the same service the gateway's routes call, so there is one loop, one classifier and one set of settings. Who
asks decides over what each request is sent.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

import msgspec

from mustcall.core.adaptation import Adaptation
from mustcall.core.errors import MustcallError, UpstreamTimeout
from mustcall.core.memo import Caches, owned
from mustcall.core.origin import Wire
from mustcall.engine.exchange import WholeReply
from mustcall.engine.records import TurnProgress, TurnRecord
from mustcall.engine.turn_events import turn_ended
from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.config.settings import ServerSettings, Settings
from mustcall.gateway.connections.repeated_failures import without_frames
from mustcall.gateway.replies import Header, error_body, retry_advice, status_of, turn_headers
from mustcall.gateway.service import Service
from mustcall.profiles import Learnt
from mustcall.telemetry.stream import PROCESS
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.retry import Clock, SystemClock
from mustcall.upstream.seam import Transport, UpstreamCall, UpstreamReply
from mustcall.wire.registry import codec_for

__all__ = ["Chunks", "Contract", "ContractAnswer", "ContractRequest"]

#: Headers of the upstream's answer that are about bytes which the engine has read and may have written anew.
_FRAMING = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "keep-alive",
        "set-cookie",
        "transfer-encoding",
    }
)
_JSON: Header = (b"content-type", b"application/json")
_EVENTS: Header = (b"content-type", b"text/event-stream; charset=utf-8")


class ContractRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request for one reply. Names of headers are in lower case.

    `timeout` is how many seconds the caller waits until the answer begins, retries included; None sets no limit.
    """

    wire: Wire
    body: bytes
    headers: Mapping[str, str] = {}
    query: str = ""
    timeout: float | None = None


class Chunks:
    """What follows the first bytes of a stream; what became of the turn is told when it is over or closed.

    It is no generator: closing one that was never begun would not close what it reads.
    """

    def __init__(self, chunks: AsyncGenerator[bytes], told: "_Told", caches: Caches) -> None:
        self._chunks = chunks
        self._caches = caches
        self._told: _Told | None = told
        #: The error that the stream ends in, which its last event tells of, too.
        self.error: MustcallError | None = None
        told.on_failure(self._fail)

    async def next(self) -> bytes | None:
        """Return the next piece, None at the end."""
        with owned(self._caches):
            piece = await anext(self._chunks, None)
        if piece is None:
            self._end()
        return piece

    async def close(self) -> None:
        """Give up what is left. Closing twice is fine."""
        await self._chunks.aclose()
        self._end()

    def _end(self) -> None:
        told, self._told = self._told, None
        if told is not None:
            told.end(self.error)

    def _fail(self, error: MustcallError) -> None:
        self.error = error


class ContractAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole body, or the first bytes of a stream and `chunks`, which must be closed. `error` is what it tells of.

    `late` means that the caller's own timeout was over before the answer began.
    """

    status: int
    headers: list[Header]
    body: bytes
    chunks: Chunks | None = None
    error: MustcallError | None = None
    late: bool = False


class Contract:
    """Serves turns on endpoints. What they teach each other is kept here, or in `learnt`."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        operator: OperatorSettings,
        *,
        clock: Clock | None = None,
        learnt: Learnt | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        settings = Settings(server=ServerSettings(), endpoints=tuple(endpoints), operator=operator)
        self._service = Service(settings, _Nowhere(), self._clock, learnt=learnt)

    async def answer(self, asked: ContractRequest, transport: Transport) -> ContractAnswer:
        """Take the turn over this transport. A failure is an answer, too: the wire's own error, with our code."""
        with owned(self._service.caches):
            return await self._answer(asked, transport)

    async def _answer(self, asked: ContractRequest, transport: Transport) -> ContractAnswer:
        turn = _Told(asked, self._clock)
        codec = codec_for(asked.wire)
        try:
            async with asyncio.timeout(asked.timeout):
                reply = await self._service.over(transport).turn(
                    asked.wire, asked.body, asked.headers, asked.query, turn.token, progress=turn.progress
                )
        except (MustcallError, TimeoutError) as raised:
            late = isinstance(raised, TimeoutError)  # the engine raises only its own errors
            error = UpstreamTimeout(f"no answer within the caller's timeout of {asked.timeout:g} s") if late else raised
            turn.end(error)
            return ContractAnswer(
                status=status_of(error, codec),
                headers=[_JSON, *turn.headers(turn.adaptations), *retry_advice(error)],
                body=error_body(error, codec, turn.request_id),
                error=without_frames(error),
                late=late,
            )
        kept = [(name, value) for name, value in reply.upstream_headers.items() if name not in _FRAMING]
        headers = [*((name.encode(), _bytes(value)) for name, value in kept), *turn.headers(reply.adaptations)]
        if isinstance(reply, WholeReply):
            turn.end()
            return ContractAnswer(status=reply.status, headers=[_JSON, *headers], body=reply.body)
        chunks = Chunks(reply.chunks, turn, self._service.caches)
        return ContractAnswer(status=reply.status, headers=[_EVENTS, *headers], body=reply.first, chunks=chunks)


class _Told:
    """One turn, and what is told of it."""

    def __init__(self, asked: ContractRequest, clock: Clock) -> None:
        self.token = os.urandom(12).hex()
        self.request_id = f"req_{self.token}"
        self.progress = TurnProgress()
        self._wire = asked.wire
        self._clock = clock
        self._began = clock.monotonic()

    @property
    def adaptations(self) -> tuple[Adaptation, ...]:
        """What was changed, as far as it is known."""
        record = self.progress.record
        return record.adaptations if record is not None else ()

    def headers(self, adaptations: Iterable[Adaptation]) -> list[Header]:
        """Return the headers that say what the turn came to."""
        return turn_headers(self.request_id.encode(), adaptations, self.progress.record)

    def on_failure(self, heard: Callable[[MustcallError], None]) -> None:
        """Call with the error of a turn that fails from here on; whoever heard of it before still does."""
        before = self.progress.failed

        def failed(error: MustcallError, record: TurnRecord | None) -> None:
            heard(error)
            if before is not None:
                before(error, record)

        self.progress.failed = failed

    def end(self, error: MustcallError | None = None) -> None:
        """Tell that the turn is over."""
        if PROCESS.listening:
            ended = turn_ended(
                self.progress,
                at=self._clock.now(),
                request_id=self.request_id,
                wire=self._wire,
                seconds=self._clock.monotonic() - self._began,
                error="" if error is None else type(error).code,
            )
            PROCESS.emit(ended)


class _Nowhere:
    """The transport of a service that is only ever used over another one."""

    async def send(self, call: UpstreamCall) -> UpstreamReply:
        raise AssertionError(f"a turn is taken over a transport of its own, not sent to {call.url}")

    async def close(self) -> None:
        """Nothing is open."""


def _bytes(value: str) -> bytes:
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode()
