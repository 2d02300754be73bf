"""Runs a gateway under uvicorn: binds the port, says where it listens, reads its settings again, stops gracefully."""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from mustcall.core.errors import ConfigError
from mustcall.gateway.app import Gateway
from mustcall.gateway.config.reloading import Reloader
from mustcall.gateway.config.settings import ServerSettings, Settings
from mustcall.gateway.connections.connection_limits import Front
from mustcall.gateway.process.heap import keep_heap
from mustcall.gateway.process.notify import notify_stopping
from mustcall.telemetry.console import request_log, tell

__all__ = ["bind", "say_stopping", "serve", "server_config"]

#: Seconds for which a connection is kept without a request. Longer than clients keep theirs (httpx 5 s, most load
#: balancers 60 s): who closes first must be the client, or its next request runs into the end of the connection.
_IDLE = 75


def say_stopping(running: int, server: ServerSettings) -> None:
    """Tell the operator and the service manager what is waited for, if anything is."""
    said = f"stopping; {running} running requests have up to {_grace(server)} s" if running else "stopping"
    notify_stopping(said)
    if running:
        tell(f"{said} (Ctrl-C again stops now)")


def _grace(server: ServerSettings) -> int:
    return max(1, int(server.shutdown_grace))


class _Server(uvicorn.Server):
    """uvicorn's server, with a word when it is ready to answer, and an ear for SIGHUP."""

    def __init__(
        self,
        config: uvicorn.Config,
        announce: Callable[[], None],
        stopping: Callable[[], None],
        reload: Callable[[], None] | None,
    ) -> None:
        super().__init__(config)
        self._announce = announce
        self._stopping = stopping
        self._reload = reload

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Say what happens: a first signal waits for running requests, a second one does not."""
        if self.should_exit:
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)  # what it cuts off is not news
        else:
            self._stopping()
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if not self.should_exit:
            # What the start made stays for good: keep the collector from walking it on every request.
            gc.collect()
            gc.freeze()
            gc.set_threshold(40_000, 20, 20)
            keep_heap()
            if self._reload is not None:
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)
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
    raise ConfigError(f"cannot listen on {server.host}:{server.port}: {reason}; choose another with --port or --host")


def server_config(gateway: Gateway, server: ServerSettings, listener: socket.socket | None = None) -> uvicorn.Config:
    """Return how uvicorn runs a gateway; from `listener` waiting connections are taken in batches."""
    return uvicorn.Config(
        gateway,
        loop="auto",
        http=Front(gateway.settings.limits, listener).protocol(),
        ws="none",
        lifespan="on",
        proxy_headers=False,
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
        log_config=None,
        timeout_graceful_shutdown=_grace(server),
        timeout_keep_alive=_IDLE,
        backlog=2048,
    )


def serve(
    settings: Settings,
    listener: socket.socket,
    announce: Callable[[bool], None],
    stopping: Callable[[int, ServerSettings], None] = say_stopping,
    reloader: Reloader | None = None,
) -> None:
    """Serve until told to stop (SIGINT, SIGTERM); running requests get the grace period.

    `announce` is told whether there is an open ledger, once requests are answered. `stopping` is told how many of them
    there are, with the settings, at the first signal. SIGHUP takes over what `reloader` reads; without it the signal
    means what it means to every program.
    """
    gateway = Gateway(settings, requests=request_log(settings.server.log_level, settings.server.log_format))
    config = server_config(gateway, settings.server, listener)

    def reload() -> None:
        assert reloader is not None, "there is no handler without one"
        if reloader.hung_up:
            server.handle_exit(signal.SIGTERM, None)
            return
        new = reloader.read(gateway.settings)
        gateway.reload(new)
        config.timeout_graceful_shutdown = _grace(gateway.settings.server)

    # Not uvicorn's tasks: one whose answer is out may not have ended yet.
    server = _Server(
        config,
        lambda: announce(gateway.keeps),
        lambda: stopping(gateway.under_way, gateway.settings.server),
        reload if reloader is not None else None,
    )
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises the signal again once everything is closed
        server.run(sockets=[listener])
