"""A real model on a real server: llama.cpp's own HTTP server on loopback, in a process of its own.

The server is the one that the `local` extra installs, with the settings an unmodified `llama-server` has. It is not
scripted: what it answers is the model's. The process ends with `close`, and also when its parent dies.
"""

import asyncio
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.upstream.embedded.engine import engine_problem
from mustcall.upstream.embedded.store import locate

__all__ = ["LlamaServer", "LlamaServerFailed"]

_SCRIPT = Path(__file__).with_name("llama_process.py")
#: Without these, two threads on a busy machine fall from 20 tokens a second to 2; they change no answer.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
#: A model of some gigabytes is read from a slow disk within this time.
_LOAD_SECONDS = 600.0
_STOP_SECONDS = 5.0
_POLL_SECONDS = 0.05
_LINES_KEPT = 40


class LlamaServerFailed(RuntimeError):
    """The server did not come up; the message ends with the last lines it logged."""


class _Started(msgspec.Struct, frozen=True):
    """What the process says of itself once the model is loaded."""

    url: str
    version: str


class LlamaServer:
    """A llama.cpp server for the length of a `with` or `async with`; or use `start` and `close`.

    `model` is a name of the catalogue (`mustcall models list`) or the path of a GGUF file. `context` is the number of
    tokens of all slots together, `parallel` the number of slots; None leaves both, and `threads`, to llama.cpp.
    `chat_template` is the path of a Jinja file that replaces the model's own. `patience` bounds the time, in seconds,
    until the model is loaded.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        context: int | None = None,
        threads: int | None = None,
        parallel: int | None = None,
        jinja: bool = True,
        chat_template: str | Path | None = None,
        patience: float = _LOAD_SECONDS,
    ) -> None:
        located = locate(str(model.absolute()) if isinstance(model, Path) else model)
        if chat_template is not None and not Path(chat_template).is_file():
            raise ConfigError(f"there is no chat template at {chat_template}")
        problem = engine_problem()
        if problem is not None:
            raise ConfigError(problem)
        self.model = located.name
        self.version = ""
        self._options = {
            "path": str(located.path),
            "model": located.name,
            "context": context,
            "threads": threads,
            "parallel": parallel,
            "jinja": jinja,
            "chat_template": None if chat_template is None else str(chat_template),
        }
        self._patience = patience
        self._url = ""
        self._process: subprocess.Popen[str] | None = None
        self._log: deque[str] = deque(maxlen=_LINES_KEPT)
        self._reader: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address without a path, as the Anthropic SDK wants it."""
        return self._url

    @property
    def base_url(self) -> str:
        """The address that ends in `/v1`, as the OpenAI SDK wants it."""
        return f"{self._url}/v1"

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        return int(self._url.rpartition(":")[2])

    @property
    def pid(self) -> int | None:
        """The number of the process, None if none is running."""
        return None if self._process is None else self._process.pid

    @property
    def log(self) -> tuple[str, ...]:
        """The last lines that llama.cpp logged."""
        return tuple(self._log)

    def start(self) -> Self:
        """Start the process; return when the model is loaded and requests are answered."""
        if self._process is not None:
            raise RuntimeError("this server has been started already")
        process = self._process = subprocess.Popen(  # noqa: S603  this interpreter, a file of ours
            # -P: the script's own folder has modules of ours that must not stand for others of the same name.
            [sys.executable, "-P", str(_SCRIPT), json.dumps(self._options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_ENVIRONMENT | os.environ,
            encoding="utf-8",
            errors="replace",
        )
        assert process.stdout is not None
        assert process.stderr is not None
        self._reader = threading.Thread(target=self._keep_log, args=(process.stderr,), name="llama-log", daemon=True)
        self._reader.start()
        deadline = time.monotonic() + self._patience
        try:
            started = self._await_start(process, process.stdout)
            await_health(started.url, deadline, lambda: process.poll() is None)
        except TimeoutError:
            raise self._failed(f"did not load {self.model} within {self._patience:g} s") from None
        except ChildProcessError:
            raise self._failed(f"could not serve {self.model}") from None
        except BaseException:
            self.close()
            raise
        self._url, self.version = started.url, started.version
        return self

    def close(self) -> None:
        """Stop the process and wait until it is gone. Closing twice is fine."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._reader is not None:
            self._reader.join()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        try:
            return await asyncio.to_thread(self.start)
        except asyncio.CancelledError:
            self.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def _await_start(self, process: subprocess.Popen[str], output: IO[str]) -> _Started:
        """Return what the process says of itself; raise `ChildProcessError` if it ended, `TimeoutError` if it is late.

        Reading ends when the process does, so the time is bounded by ending the process.
        """
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(self._patience, end)
        timer.start()
        try:
            for line in output:
                if line.startswith("{"):  # whatever a library prints before is not ours
                    return msgspec.json.decode(line, type=_Started)
        finally:
            timer.cancel()
        raise TimeoutError if late.is_set() else ChildProcessError

    def _keep_log(self, errors: IO[str]) -> None:
        for line in errors:
            self._log.append(line.rstrip())

    def _failed(self, what: str) -> LlamaServerFailed:
        self.close()
        return LlamaServerFailed("\n".join([f"llama.cpp {what}; its last words:", *self._log]))


def await_health(url: str, deadline: float, alive: Callable[[], bool]) -> None:
    """Return when the server says that its model is loaded: 200 on `/health`, 503 before that.

    Raise `TimeoutError` at the deadline (monotonic), `ChildProcessError` when the process is no longer alive.
    """
    host = url.partition("://")[2]
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if not alive():
            raise ChildProcessError
        connection = http.client.HTTPConnection(host, timeout=max(left, _POLL_SECONDS))
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except (OSError, http.client.HTTPException):  # it does not listen yet
            pass
        finally:
            connection.close()
        time.sleep(_POLL_SECONDS)
