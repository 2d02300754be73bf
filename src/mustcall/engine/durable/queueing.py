"""Tasks on DBOS, in the PostgreSQL that the ledger is in: one workflow for each task, without steps of its own.

DBOS has no way to find out that a process of its died: what such a process had under way stays with it for ever. So
whoever serves looks at what other processes have under way, asks which of it nobody works on any more, and puts that
back into the queue through DBOS's own interface. dbos is imported when it is needed and not before.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from mustcall.core.errors import ConfigError
from mustcall.engine.durable.engines import Resume
from mustcall.telemetry.logs import log_of

if TYPE_CHECKING:
    from dbos import DBOSClient

__all__ = ["DbosEngine", "Deserted", "Task"]

_logger = log_of("mustcall.runs")

_APPLICATION = "mustcall"
_QUEUE = "mustcall"
_WORKFLOW = "mustcall.run"
#: Pinned: DBOS hands a task only to the version that it was submitted for, and a task is a name in every version.
_VERSION = "mustcall-1"
_POLL = 0.1
_LISTED = 200
_OVER = frozenset({"SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"})
#: How often one task is carried out at most.
_AGAIN = 1000

Task = tuple[str, float]
"""A task that another process has under way, and the seconds since it took it."""

Deserted = Callable[[Sequence[Task]], Awaitable[Sequence[str]]]
"""Says which of these tasks nobody works on any more."""


_T = TypeVar("_T")


class DbosEngine:
    """Tasks in one database (`Engine`). A process serves at most one: DBOS is one for each process."""

    def __init__(self, url: str, *, name: str, deserted: Deserted, beat: float = 1.0) -> None:
        self._url = url
        self._name = name
        self._deserted = deserted
        self._beat = beat
        self._client: DBOSClient | None = None
        self._connecting = threading.Lock()
        self._launched = False
        self._calls: set[asyncio.Future[Any]] = set()

    async def submit(self, task: str) -> None:
        """Put a task into the queue; one that waits or is under way is left as it is.

        One that is over, and was to no avail because it is submitted again, is carried out once more: DBOS knows a
        task by its name, so it gets another one.
        """
        for number in range(_AGAIN):
            if await self._call(self._enqueue, task, f"{task}#{number}" if number else task):
                return
        _logger.warning("task %s did not finish in %s executions; giving up", task, _AGAIN)

    async def cancel(self, task: str) -> None:
        """Take a task out of the queue."""
        await self._call(lambda: self._connected().cancel_workflow(task))

    async def serve(self, resume: Resume, concurrency: int) -> None:
        """Carry tasks out until cancelled; what dead processes left is put back into the queue all the while."""
        await self._call(self._launch, resume, concurrency, asyncio.get_running_loop())
        while True:
            await asyncio.sleep(self._beat)
            try:
                await self._hand_over()
            except Exception as error:  # noqa: BLE001  the database is away for a moment; it is asked again
                _logger.warning("reading the tasks of other processes failed: %s", type(error).__name__)

    async def close(self) -> None:
        """Stop DBOS and close every connection, after the calls that are still under way in threads.

        Whoever asked for such a call may be cancelled; its thread goes on, and a connection that it holds while the
        others are closed would stay open.
        """
        while self._calls:
            await asyncio.wait(self._calls)
        client, self._client = self._client, None
        if client is not None:
            await asyncio.to_thread(client.destroy)
        if self._launched:
            from dbos import DBOS  # noqa: PLC0415  loaded by now

            self._launched = False
            await asyncio.to_thread(DBOS.destroy, destroy_registry=True, workflow_completion_timeout_sec=5)

    async def _call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call a function that waits for the database, in a thread; `close` waits for it even if nobody else does."""
        call = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
        self._calls.add(call)
        call.add_done_callback(self._over)
        return await asyncio.shield(call)

    def _over(self, call: "asyncio.Future[Any]") -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # read, for whoever asked may be gone

    async def _hand_over(self) -> None:
        """Put back what processes had under way that nobody works on any more."""
        listed = await self._call(
            lambda: self._connected().list_workflows(
                status="PENDING", name=_WORKFLOW, limit=_LISTED, load_input=False, load_output=False
            )
        )
        now = time.time()
        others = [
            (each.workflow_id, now - (each.updated_at or 0) / 1000) for each in listed if each.executor_id != self._name
        ]
        for task in await self._deserted(others) if others else ():
            _logger.info("task %s taken over from a dead process", task)
            await self._call(self._resume, task)

    def _resume(self, task: str) -> None:
        self._connected().resume_workflow(task, queue_name=_QUEUE)

    def _enqueue(self, task: str, name: str) -> bool:
        """Submit a task under a name; False if what has this name is over."""
        options: Any = {
            "workflow_name": _WORKFLOW,
            "queue_name": _QUEUE,
            "workflow_id": name,
            "app_version": _VERSION,
        }
        client: Any = self._connected()
        return client.enqueue(options, task).get_status().status not in _OVER

    def _connected(self) -> "DBOSClient":
        with self._connecting:
            if self._client is None:
                from dbos import DBOSClient  # noqa: PLC0415  an extra, imported only if it is used

                self._client = DBOSClient(
                    system_database_url=self._url, application_name=_APPLICATION, retry_connection_errors=False
                )
            return self._client

    def _launch(self, resume: Resume, concurrency: int, loop: asyncio.AbstractEventLoop) -> None:
        """Start DBOS; its threads wait while a task is carried out on our loop."""
        try:
            from dbos import DBOS  # noqa: PLC0415  an extra, imported only if it is used
        except ImportError:
            raise ConfigError("a worker needs DBOS: pip install 'mustcall[worker]'") from None
        DBOS(
            config={
                "name": _APPLICATION,
                "system_database_url": self._url,
                "application_version": _VERSION,
                "executor_id": self._name,
                "enable_otlp": False,
                "log_level": "ERROR",
            }
        )

        @DBOS.workflow(name=_WORKFLOW, max_recovery_attempts=None)
        def carry_out(task: str) -> None:
            # The worker stops; the run is back in the ledger's queue.
            with contextlib.suppress(asyncio.CancelledError, concurrent.futures.CancelledError):
                asyncio.run_coroutine_threadsafe(resume(task), loop).result()

        del carry_out  # DBOS knows it by its name
        try:
            DBOS.launch()
        finally:
            self._launched = DBOS.executor_id == self._name
        if not self._launched:
            raise ConfigError("this process has a DBOS of its own already; run `mustcall worker` in one that has none")
        DBOS.register_queue(_QUEUE, worker_concurrency=concurrency, polling_interval_sec=_POLL)
