"""Runs a gateway under uvicorn: binds the port, says where it listens, stops gracefully."""

import contextlib
import socket
from collections.abc import Callable

import uvicorn

from mustcall.core.errors import ConfigError
from mustcall.gateway.app import Gateway
from mustcall.gateway.settings import ServerSettings, Settings

__all__ = ["bind", "serve"]


class _Server(uvicorn.Server):
    """uvicorn's server, with a word when it is ready to answer."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if not self.should_exit:
            self._announce()


def bind(server: ServerSettings, *, or_any_port: bool = False) -> socket.socket:
    """Return a listening socket; with `or_any_port` a free port is taken where the wanted one is in use."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    reason = ""
    for port in (server.port, 0) if or_any_port else (server.port,):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((server.host, port))
            listener.listen(2048)
        except OSError as error:
            listener.close()
            reason = error.strerror or str(error)
        else:
            return listener
    raise ConfigError(f"cannot listen on {server.host}:{server.port}: {reason}; choose another with --port")


def serve(settings: Settings, listener: socket.socket, announce: Callable[[], None]) -> None:
    """Serve until told to stop (SIGINT, SIGTERM); running requests get the grace period."""
    config = uvicorn.Config(
        Gateway(settings),
        loop="auto",
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=max(1, int(settings.server.shutdown_grace)),
        backlog=2048,
    )
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises the signal again once everything is closed
        _Server(config, announce).run(sockets=[listener])
