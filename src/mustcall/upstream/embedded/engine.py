"""One model in this process: a thread of its own that works on one request after the other.

Requests are taken in the order they come; waiting ones are bounded in number, and one that is cancelled costs nothing
more, waiting or running. It knows no HTTP and no wire beyond passing bodies on: llama.cpp's answers come out as the
JSON objects it makes. The library is imported when the first request comes.

Measured (SmolLM2 135M, two cores): with 64 tokens in a batch a long prompt is read as fast as with more, and it can be
given up every quarter of a second; llama.cpp says nothing while it works on a batch.
"""

import asyncio
import atexit
import importlib
import importlib.util
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.origin import JsonObject
from mustcall.upstream.embedded.catalogue import CONTEXT
from mustcall.upstream.embedded.fingerprint import weights_hash

__all__ = [
    "INSTALL",
    "Chunk",
    "EngineBroken",
    "EngineClosed",
    "EngineFull",
    "EngineRefused",
    "Job",
    "ModelEngine",
    "engine_problem",
]

INSTALL = "pip install 'mustcall[local]'"
_OR_UVX = ", or run it with: uvx --from 'mustcall[local]' mustcall"
_SYSTEM_LIBRARIES = "it needs the system's libgomp and libstdc++ (Debian: apt-get install libgomp1 libstdc++6)"

#: Two OpenMP settings without which two threads on a busy machine fall from 20 tokens a second to 2; they are read
#: when the library is loaded.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
_LIBRARY = "xllamacpp"
_BATCH = 64
_MOST_THREADS = 8


def engine_problem() -> str | None:
    """Return why no model can be run here, None if one can; the library is looked for, not loaded."""
    try:
        found = importlib.util.find_spec(_LIBRARY) is not None
    except ValueError:  # named among the modules, but not to be imported
        found = False
    if not found:
        return f"the embedded model needs an engine that is not installed; install it with: {INSTALL}{_OR_UVX}"
    return None


class EngineFull(Exception):
    """As many requests wait as may."""


class EngineClosed(Exception):
    """The engine takes no more requests."""


class Chunk(msgspec.Struct, frozen=True):
    """One piece of an answer, as llama.cpp made it."""

    value: JsonObject


class EngineRefused(msgspec.Struct, frozen=True):
    """The engine did not take a request, or gave up on it; `error` is llama.cpp's own object where there is one."""

    message: str
    error: JsonObject | None = None


class EngineBroken(msgspec.Struct, frozen=True):
    """The model cannot be run at all."""

    message: str


_END = None
_Event = Chunk | EngineRefused | EngineBroken | None


class _Server(Protocol):
    """What we use of `xllamacpp.Server`."""

    def handle_chat_completions(self, body: bytes, callback: Callable[[bytes], bool]) -> None: ...


class Job:
    """One request on its way through the engine. Made and read in an event loop, worked on in the engine's thread."""

    def __init__(self, body: bytes, let_go: Callable[["Job"], None]) -> None:
        self.body = body
        self.cancelled = False
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[_Event] = asyncio.Queue()
        self._let_go = let_go

    async def next(self) -> _Event:
        """Return the next thing that happened, None at the end."""
        return await self._events.get()

    def cancel(self) -> None:
        """Give the request up: a waiting one is never begun, a running one ends with its next token or batch."""
        self.cancelled = True
        self._let_go(self)

    def tell(self, event: _Event) -> None:
        """Pass on what happened, from the engine's thread."""
        if self.cancelled:
            return
        try:
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)
        except RuntimeError:  # the loop is gone, and whoever waited with it
            self.cancelled = True


class ModelEngine:
    """A model file and the thread that runs it. `most_waiting` requests may wait behind the one being worked on."""

    def __init__(self, path: Path, *, context: int = CONTEXT, most_waiting: int = 64, sha256: str = "") -> None:
        self.context = context
        self._path = path
        #: What the file must be; empty where nobody said.
        self._sha256 = sha256
        self._most = most_waiting + 1
        #: Waiting ones in their order; one that is given up leaves at once, and its body with it.
        self._waiting: dict[Job, None] = {}
        self._live: set[Job] = set()
        self._guard = threading.Lock()
        self._news = threading.Condition(self._guard)
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, body: bytes) -> Job:
        """Queue a request; raise `EngineFull` or `EngineClosed`. The job must be read to its end or cancelled."""
        with self._guard:
            if self._closed:
                raise EngineClosed
            if len(self._live) >= self._most:
                raise EngineFull
            job = Job(body, self._forget)
            self._live.add(job)
            self._waiting[job] = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="mustcall-model", daemon=True)
                self._thread.start()
                # A thread inside the library must not outlive the interpreter.
                atexit.register(self.close)
            self._news.notify()
        return job

    @property
    def under_way(self) -> int:
        """Requests waiting or being worked on."""
        with self._guard:
            return len(self._live)

    def close(self) -> None:
        """Give up everything and free the model; returns when that is done."""
        with self._guard:
            self._closed = True
            live, thread = list(self._live), self._thread
            self._news.notify()
        for job in live:
            job.tell(EngineRefused("the embedded model is being shut down", {"code": 503}))
            job.cancel()
        if thread is not None:
            thread.join()
            atexit.unregister(self.close)

    def _forget(self, job: Job) -> None:
        with self._guard:
            self._live.discard(job)
            self._waiting.pop(job, None)

    # --- the engine's own thread -------------------------------------------------------------------------------------

    def _work(self) -> None:
        server: _Server | None = None
        while (job := self._next()) is not None:
            try:
                if server is None:
                    _verify(self._path, self._sha256)
                    server = _load(self._path, self.context)
                if not job.cancelled:  # while the model was loaded
                    self._run(server, job)
            except _LoadFailed as failed:
                job.tell(EngineBroken(str(failed)))
            except (ValueError, RuntimeError) as error:  # how the library says that it does not take a body
                job.tell(EngineRefused(str(error)))
            except Exception as error:  # noqa: BLE001  whatever it is, the one who waits must hear of it
                job.tell(EngineRefused(f"the engine failed: {type(error).__name__}"))
            job.tell(_END)
            self._forget(job)

    def _next(self) -> Job | None:
        """Wait for a request and return it, None once the engine is closed."""
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            job = next(iter(self._waiting))
            del self._waiting[job]
            return job

    def _run(self, server: _Server, job: Job) -> None:
        def take(data: bytes) -> bool:
            value = msgspec.json.decode(data, type=JsonObject)
            job.tell(Chunk(value) if value.get("error") is None else _refusal(value["error"]))
            return job.cancelled

        server.handle_chat_completions(job.body, take)


class _LoadFailed(Exception):
    """The model cannot be run; the text says why and what helps."""


def _refusal(error: Any) -> EngineRefused:
    if not isinstance(error, dict):
        return EngineRefused(str(error))
    fields = cast("JsonObject", error)  # read from JSON, so its keys are strings
    return EngineRefused(str(fields.get("message")), fields)


def _verify(path: Path, sha256: str) -> None:
    """See that a file is the one its name stands for: what was put in its place since it was fetched is not run."""
    if not sha256:
        return
    try:
        found = weights_hash(path)
    except ConfigError as error:
        raise _LoadFailed(error.message) from None
    if found != sha256:
        raise _LoadFailed(
            f"the model file {path} is not the one that was fetched (its SHA-256 begins with {found[:12]}, not "
            f"{sha256[:12]}); remove it and fetch it again: mustcall models remove, then mustcall models pull"
        )


def _load(path: Path, context: int) -> _Server:
    """Load a model with bounded memory: one slot, a fixed context, no store of earlier prompts beside it."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    problem = engine_problem()
    if problem is not None:
        raise _LoadFailed(problem)
    try:
        library: Any = importlib.import_module(_LIBRARY)
    except ImportError as error:  # a slim image, mostly: libraries that every desktop has are missing
        raise _LoadFailed(f"the engine cannot be loaded: {error}; {_SYSTEM_LIBRARIES}") from None
    parameters = library.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = context
    parameters.n_parallel = 1
    parameters.n_batch = parameters.n_ubatch = _BATCH
    parameters.cache_ram_mib = 0
    parameters.n_ctx_checkpoints = 0
    parameters.warmup = False
    parameters.fit_params = False
    parameters.n_gpu_layers = 0
    parameters.verbosity = -1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = _threads()
    # The library also listens on a loopback port; nobody has the key to it.
    parameters.api_keys = [secrets.token_urlsafe(32)]
    parameters.ui = parameters.endpoint_slots = parameters.endpoint_props = False
    parameters.endpoint_metrics = True
    try:
        server = library.Server(parameters)
        # Its event loop answers this. A server that is freed before the loop runs loses the stop request, and its
        # destructor then joins the loop's thread for ever: seen on busy cores after one load in a few.
        server.handle_metrics()
    except (RuntimeError, ValueError) as error:
        raise _LoadFailed(f"the model file {path.name} could not be loaded: {error}") from None
    return server


def _threads() -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, _MOST_THREADS)
