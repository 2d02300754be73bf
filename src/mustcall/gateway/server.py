"""Runs a gateway under uvicorn: binds the port, says where it listens, stops gracefully."""

import contextlib
import gc
import socket
from collections.abc import Callable

import uvicorn

from mustcall.core.errors import ConfigError
from mustcall.gateway.app import Gateway
from mustcall.gateway.joining import JoiningProtocol
from mustcall.gateway.settings import ServerSettings, Settings

__all__ = ["bind", "serve", "server_config"]


class _Server(uvicorn.Server):
    """uvicorn's server, with a word when it is ready to answer."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if not self.should_exit:
            # What the start made stays for good: keep the collector from walking it on every request.
            gc.collect()
            gc.freeze()
            gc.set_threshold(20_000, 20, 20)
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


def server_config(gateway: Gateway, server: ServerSettings) -> uvicorn.Config:
    """Return how uvicorn runs a gateway."""
    return uvicorn.Config(
        gateway,
        loop="auto",
        http=JoiningProtocol,
        ws="none",
        lifespan="on",
        proxy_headers=False,
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=max(1, int(server.shutdown_grace)),
        backlog=2048,
    )


def serve(settings: Settings, listener: socket.socket, announce: Callable[[], None]) -> None:
    """Serve until told to stop (SIGINT, SIGTERM); running requests get the grace period."""
    server = _Server(server_config(Gateway(settings), settings.server), announce)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises the signal again once everything is closed
        server.run(sockets=[listener])
