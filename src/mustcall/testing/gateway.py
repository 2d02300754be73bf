"""A real gateway on loopback for the length of a test, in a thread with its own event loop."""

import socket
import threading
from types import TracebackType
from typing import Any, Self

import msgspec
import uvicorn

from mustcall.engine.turns import House
from mustcall.gateway.app import Gateway
from mustcall.gateway.server import bind, server_config
from mustcall.gateway.settings import ServerSettings, Settings, settings_from_flags
from mustcall.upstream.retry import Clock
from mustcall.upstream.seam import Transport

__all__ = ["RunningGateway"]

_PATIENCE = 10.0


class RunningGateway:
    """`with RunningGateway("chat=http://127.0.0.1:9000/v1") as gateway:` and point a client at `gateway.base_url`.

    Upstreams are given as on the command line, or as whole `settings`; `house` is what the operator says about turns;
    keyword arguments are `[server]` settings.
    """

    def __init__(
        self,
        *upstreams: str,
        settings: Settings | None = None,
        house: House | None = None,
        clock: Clock | None = None,
        transport: Transport | None = None,
        **server: Any,
    ) -> None:
        given = settings or settings_from_flags(*upstreams, house=house)
        changed: ServerSettings = msgspec.structs.replace(
            given.server, **{"port": 0, "shutdown_grace": _PATIENCE / 5, **server}
        )
        self.app = Gateway(msgspec.structs.replace(given, server=changed), transport, clock)
        self._listener: socket.socket = bind(changed)
        self._server = uvicorn.Server(server_config(self.app, changed))
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
        self._server.should_exit = True
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
