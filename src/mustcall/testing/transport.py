"""A transport without a network, and a clock without waiting: the two seams of the upstream layer, faked."""

from collections.abc import AsyncGenerator, Iterable, Mapping

from mustcall.core.errors import MustcallError
from mustcall.upstream.seam import UpstreamCall

__all__ = ["FakeClock", "FakeReply", "FakeTransport"]


class FakeReply:
    """An answer made of chunks; an error among them is raised when it is reached."""

    arrived = False

    def __init__(
        self,
        *chunks: bytes | MustcallError,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.headers: Mapping[str, str] = {"content-type": "application/json", **(headers or {})}
        self.closed = False
        self._chunks = chunks

    async def read(self) -> bytes:
        """Return the whole body."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the chunks."""
        for chunk in self._chunks:
            if isinstance(chunk, MustcallError):
                raise chunk
            yield chunk

    async def close(self) -> None:
        """Remember that the reply was given up or done with."""
        self.closed = True


class FakeTransport:
    """Answers from a list, in order; records every call."""

    def __init__(self, answers: Iterable[FakeReply | MustcallError]) -> None:
        self._answers = iter(answers)
        self.calls: list[UpstreamCall] = []

    async def send(self, call: UpstreamCall) -> FakeReply:
        """Return or raise the next answer."""
        self.calls.append(call)
        answer = next(self._answers, None)
        if answer is None:
            raise AssertionError(f"call {len(self.calls)} was not expected: {call.url}")
        if isinstance(answer, MustcallError):
            raise answer
        return answer

    async def close(self) -> None:
        """Nothing is open."""


class FakeClock:
    """Time that passes only by sleeping, or when told to; remembers every sleep."""

    def __init__(self, *, now: float = 1_000_000.0, jitter: float = 0.0) -> None:
        self._now = now
        self._jitter = jitter
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        """Seconds that only go forward."""
        return self._now

    def now(self) -> float:
        """Unix seconds."""
        return self._now

    def jitter(self) -> float:
        """The chosen number."""
        return self._jitter

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds

    async def sleep(self, seconds: float) -> None:
        """Pass the time at once."""
        self.sleeps.append(seconds)
        self._now += seconds
