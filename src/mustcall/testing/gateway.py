"""A real gateway on loopback for the length of a test, in a thread with its own event loop."""

import asyncio
import contextlib
import socket
import threading
from types import TracebackType
from typing import Any, Self

import msgspec
import uvicorn

from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.app import Gateway
from mustcall.gateway.config.settings import ServerSettings, Settings, settings_from_flags
from mustcall.gateway.process.server import bind, server_config
from mustcall.upstream.retry import Clock
from mustcall.upstream.seam import Transport

__all__ = ["RunningGateway"]

#: A gateway that does not stop is given this long; nothing waits for it otherwise.
_PATIENCE = 60.0
#: What requests that still run get when the gateway is closed: tests leave hanging ones behind.
_GRACE = 2.0
#: Seconds that a connection may be idle between two requests.
_IDLE = 600
#: Seconds between two looks at what is still open.
_LOOK = 0.002


class _Server(uvicorn.Server):
    """uvicorn's server without the tenths of a second it sleeps: a test suite stops thousands of them."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        """Stop serving; from any thread."""
        self.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has stopped already
                self._loop.call_soon_threadsafe(self._leaving.set)

    async def main_loop(self) -> None:
        """Serve until told to leave."""
        self._loop = asyncio.get_running_loop()
        if not await self.on_tick(0):
            await self._leaving.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for running requests as long as the settings say, then cancel them."""
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110  uvicorn tells nobody
                    await asyncio.sleep(_LOOK)
                for server in self.servers:
                    await server.wait_closed()
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()
        await self.lifespan.shutdown()


class RunningGateway:
    """`with RunningGateway("chat=http://127.0.0.1:9000/v1") as gateway:` and point a client at `gateway.base_url`.

    Upstreams are given as on the command line, or as whole `settings`; `operator` contains the settings of turns;
    keyword arguments are `[server]` settings. Without `settings` it sends no signs of life unless `keepalive` is given:
    when one is due depends on the speed of the machine, and it begins the answer before all headers are known.
    """

    def __init__(
        self,
        *upstreams: str,
        settings: Settings | None = None,
        operator: OperatorSettings | None = None,
        clock: Clock | None = None,
        transport: Transport | None = None,
        **server: Any,
    ) -> None:
        given = settings or settings_from_flags(*upstreams, operator=operator)
        own = {"port": 0, "shutdown_grace": _GRACE} | ({"keepalive": 0.0} if settings is None else {})
        changed: ServerSettings = msgspec.structs.replace(given.server, **{**own, **server})
        self.app = Gateway(msgspec.structs.replace(given, server=changed), transport, clock)
        self._listener: socket.socket = bind(changed)
        config = server_config(self.app, changed, self._listener)
        # A test process may be kept from its work for seconds: a connection that is closed for having been idle in the
        # meantime may be closed under the next request of its client.
        config.timeout_keep_alive = _IDLE
        self._server = _Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}, name="mustcall-gateway", daemon=True
        )

    @property
    def url(self) -> str:
        """Where it listens: the base URL of Anthropic clients."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def base_url(self) -> str:
        """The base URL of OpenAI clients."""
        return f"{self.url}/v1"

    def start(self) -> Self:
        """Serve. The socket listens already, so requests made from now on are answered."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop, and wait until everything is closed."""
        self._server.leave()
        self._thread.join(_PATIENCE)
        self._listener.close()
        if self._thread.is_alive():
            raise TimeoutError("the gateway did not stop")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
