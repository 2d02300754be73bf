"""The HTTP front as a fuzz target: bytes of one connection into a whole gateway, over a transport that is a list."""

import asyncio
import json
import logging
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from mustcall.gateway.app import Gateway
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.connections.connection_limits import Front
from mustcall.gateway.process.server import server_config
from mustcall.testing.transport import FakeReply
from mustcall.upstream.seam import UpstreamCall

__all__ = ["feed_front"]

_REPLY = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
    }
).encode()


class _Upstream:
    """Answers every call."""

    async def send(self, call: UpstreamCall) -> FakeReply:
        assert call.url
        return FakeReply(_REPLY)

    async def close(self) -> None:
        """Nothing is open."""


class _Client(asyncio.Transport):
    """A connection that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2), "socket": None})
        self.written = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None: ...


class _Findings(logging.Handler):
    """Errors that were logged with a traceback: exceptions that are not ours."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and record.exc_info[1] is not None:
            _found.append(record.exc_info[1])


_found: list[BaseException] = []
_loop = asyncio.new_event_loop()
_settings = settings_from_flags("chat=http://127.0.0.1:1/v1")
_gateway = Gateway(_settings, cast("Any", _Upstream()))
_config: uvicorn.Config = server_config(_gateway, _settings.server)
_config.load()
_front = Front(_settings.limits).protocol()
_findings = _Findings()
_LOGGERS = tuple(map(logging.getLogger, ("mustcall", "uvicorn")))


async def _connection(data: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: _found.append(context.get("exception") or Exception(str(context))))
    state = ServerState()
    protocol = cast("Any", _front)(config=_config, server_state=state, app_state={}, _loop=loop)
    client = _Client()
    protocol.connection_made(client)
    step = data[-1] * 8 + 1 if data else 1
    for start in range(0, len(data), step):
        if client.closed:
            break
        protocol.data_received(data[start : start + step])
        await asyncio.sleep(0)
    for _ in range(200):
        if not state.tasks:
            break
        await asyncio.sleep(0)
    protocol.connection_lost(None)
    for task in tuple(state.tasks):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return client.written


def feed_front(data: bytes) -> None:
    """Send bytes as one connection."""
    _found.clear()
    for logger in _LOGGERS:
        logger.addHandler(_findings)
    try:
        written = _loop.run_until_complete(_connection(data))
    finally:
        for logger in _LOGGERS:
            logger.removeHandler(_findings)
    if _found:
        raise _found[0]
    assert not written or written.startswith(b"HTTP/1.1 "), "the answer is no HTTP"
    assert b"HTTP/1.1 500" not in written, "the gateway failed"
