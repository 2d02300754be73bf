"""The embedded model behind the upstream seam: `embedded:NAME` and `embedded:/path/to.gguf` answer like an endpoint.

`POST …/chat/completions` and `GET …/models` are served, with the status codes, bodies and events of the chat wire.
One engine runs for each model file, begun with its first request; what waits, waits here.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import msgspec

from mustcall.core.errors import ConfigError, UpstreamTimeout, UpstreamUnavailable
from mustcall.upstream.embedded.bodies import (
    DONE,
    Assembly,
    EndlessAnswer,
    EngineRequest,
    HttpFault,
    Stamped,
    error_body,
    fault_of,
    read_request,
)
from mustcall.upstream.embedded.engine import (
    Chunk,
    EngineBroken,
    EngineClosed,
    EngineFull,
    EngineRefused,
    Job,
    ModelEngine,
)
from mustcall.upstream.embedded.gguf import takes_tools
from mustcall.upstream.embedded.store import SCHEME, Located, locate
from mustcall.upstream.seam import UpstreamCall, UpstreamReply

__all__ = ["EmbeddedTransport"]

_JSON = {"content-type": "application/json"}
_EVENTS = {"content-type": "text/event-stream"}
_CHAT = "/chat/completions"
_MODELS = "/models"


class _Whole:
    """An answer that is there."""

    arrived = True

    def __init__(self, body: bytes, status: int = 200, headers: Mapping[str, str] = _JSON) -> None:
        self.status = status
        self.headers = headers
        self._body = body

    async def read(self) -> bytes:
        """Return the body."""
        return self._body

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the body."""
        yield self._body

    async def close(self) -> None:
        """Nothing is open."""


class _Stream:
    """An answer on its way."""

    status = 200
    headers: Mapping[str, str] = _EVENTS
    arrived = False

    def __init__(
        self, job: Job, first: bytes, writer: Stamped, watch: EndlessAnswer | None, *, idle: float, context: int
    ) -> None:
        self._watch = watch
        self._job = job
        self._first = first
        self._writer = writer
        self._idle = idle
        self._context = context

    async def read(self) -> bytes:
        """Return all events."""
        async with aclosing(self.chunks()) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield events as the model writes; given up, the model is free at once."""
        try:
            yield self._first
            while True:
                try:
                    async with asyncio.timeout(self._idle):
                        event = await self._job.next()
                except TimeoutError:
                    raise UpstreamTimeout(
                        f"the embedded model wrote nothing for {self._idle:g} s in the middle of its answer"
                    ) from None
                match event:
                    case Chunk(value=value):
                        if data := self._writer.event(value):
                            yield data
                        if self._watch is not None and self._watch.takes(value):
                            yield b"".join(map(self._writer.event, self._watch.ending(value))) + DONE
                            return
                    case EngineRefused():
                        yield b"data: " + error_body(fault_of(event, self._context)) + b"\n\n"
                        return
                    case EngineBroken(message=message):
                        raise UpstreamUnavailable(message)
                    case None:
                        yield DONE
                        return
        finally:
            self._job.cancel()

    async def close(self) -> None:
        """Give up what is left."""
        self._job.cancel()


class EmbeddedTransport:
    """Answers `embedded:` calls. `most_waiting` requests may wait for each model."""

    def __init__(self, *, most_waiting: int = 64) -> None:
        self._most_waiting = most_waiting
        self._engines: dict[str, ModelEngine] = {}
        self._closed = False

    async def send(self, call: UpstreamCall) -> UpstreamReply:
        """Answer a call once its status is known: for a stream with the first token, otherwise with the last."""
        source, path = _split(call.url)
        try:
            located = locate(source)
        except ConfigError as error:
            return _error(HttpFault(status=404, message=error.message, code="model_not_found", type="not_found_error"))
        if path == _MODELS and call.method == "GET":
            listing = {"object": "list", "data": [{"id": located.name, "object": "model", "owned_by": "mustcall"}]}
            return _Whole(msgspec.json.encode(listing))
        if path != _CHAT or call.method != "POST":
            return _error(HttpFault(status=404, message="this path is not served", code="unknown_route"))
        asked = read_request(call.body or b"")
        if isinstance(asked, HttpFault):
            return _error(asked)
        if asked.tools and not await asyncio.to_thread(takes_tools, located.path):
            message = f"{located.name} does not support tools: its chat template has no place for them"
            return _error(HttpFault(status=400, message=message, code="invalid_request", param="tools"))
        try:
            async with asyncio.timeout(call.timeouts.read):
                return await self._answer(asked, located, call)
        except TimeoutError:
            raise UpstreamTimeout(f"the embedded model did not answer within {call.timeouts.read:g} s") from None

    async def _answer(self, asked: EngineRequest, located: Located, call: UpstreamCall) -> UpstreamReply:
        if self._closed:  # a retry of what closing ended must not load the model anew
            raise UpstreamUnavailable("the embedded model is shut down")
        engine = self._engine(located)
        try:
            job = engine.submit(asked.body)
        except EngineFull:
            fault = HttpFault(
                status=503,
                message=f"{engine.under_way} requests already wait for the embedded model; try again in a moment",
                code="model_busy",
                type="overloaded_error",
            )
            return _error(fault, {"retry-after": "5"})
        except EngineClosed:
            raise UpstreamUnavailable("the embedded model is shut down") from None
        watch = EndlessAnswer() if asked.tools else None
        try:
            if asked.stream:
                writer = Stamped(located.name, usage=asked.usage)
                return await _begin(job, writer, watch, idle=call.timeouts.idle, context=engine.context)
            return await _finish(job, located.name, watch, engine.context)
        except BaseException:
            job.cancel()
            raise

    def _engine(self, located: Located) -> ModelEngine:
        key = str(located.path)
        if key not in self._engines:
            self._engines[key] = ModelEngine(located.path, most_waiting=self._most_waiting, sha256=located.sha256)
        return self._engines[key]

    async def close(self) -> None:
        """Give up what runs and free the models; nothing is taken any more."""
        self._closed = True
        engines, self._engines = list(self._engines.values()), {}
        for engine in engines:
            await asyncio.to_thread(engine.close)


def _split(url: str) -> tuple[str, str]:
    """Return the model and the path of an `embedded:` address. It names a file as it is; nothing in it is escaped."""
    rest = url.removeprefix(f"{SCHEME}:")
    for path in (_CHAT, _MODELS):
        # What the caller asked for may have a query behind it; a `?` or a `%` before that is the file's own.
        source, found, query = rest.rpartition(path)
        if found and query[:1] in ("", "?"):
            return source, path
    return rest, ""


async def _begin(job: Job, writer: Stamped, watch: EndlessAnswer | None, *, idle: float, context: int) -> UpstreamReply:
    """Wait for the first words of a stream, so that a refusal is an answer with its own status."""
    while True:
        match await job.next():
            case Chunk(value=value):
                if watch is not None:
                    watch.takes(value)
                if first := writer.event(value):
                    return _Stream(job, first, writer, watch, idle=idle, context=context)
            case EngineRefused() as refused:
                job.cancel()
                return _error(fault_of(refused, context))
            case EngineBroken(message=message):
                job.cancel()
                return _error(_unusable(message))
            case None:
                raise UpstreamUnavailable("the embedded model ended its answer before it began")


async def _finish(job: Job, model: str, watch: EndlessAnswer | None, context: int) -> UpstreamReply:
    assembly = Assembly(model)
    while True:
        match await job.next():
            case Chunk(value=value):
                assembly.add(value)
                if watch is not None and watch.takes(value):
                    job.cancel()
                    for piece in watch.ending(value):
                        assembly.add(piece)
                    return _Whole(assembly.body())
            case EngineRefused() as refused:
                job.cancel()
                return _error(fault_of(refused, context))
            case EngineBroken(message=message):
                job.cancel()
                return _error(_unusable(message))
            case None:
                return _Whole(assembly.body())


def _unusable(message: str) -> HttpFault:
    """A model that cannot be run: trying again does not help, so it is no 5xx."""
    return HttpFault(status=404, message=message, code="model_not_found", type="not_found_error")


def _error(fault: HttpFault, headers: Mapping[str, str] | None = None) -> _Whole:
    return _Whole(error_body(fault), fault.status, {**_JSON, **(headers or {})})
