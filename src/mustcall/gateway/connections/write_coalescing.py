"""Writes of one loop step leave in one system call, and the headers of an answer are written with one join.

An ASGI server sends the head of a response and its body as two messages; on uvloop each is a `send` of its own, and
for short replies those calls are most of what a gateway costs. The protocol below hands uvicorn a transport that
gathers what is written within one step of the loop. Back-pressure is untouched: the real transport still says when to
pause, and nothing is held for longer than the step.

uvicorn looks at every header of an answer by itself. Here they are checked and written together, and uvicorn is told
what it would have found: that the answer has begun, and how its body is framed. The pieces of a streamed body are
framed here, too. What cannot be written so is left to uvicorn. It copies a body twice on its way to the application;
one that comes in one piece is handed over as it is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

__all__ = ["JoiningProtocol", "declared_size"]

#: What uvicorn frames a body by. Of these only a length that comes last is known to be in order.
_LENGTH = b"content-length"
_FRAMING = frozenset({_LENGTH, b"transfer-encoding", b"connection"})
#: A size of more digits is no body's.
_DIGITS = 16
#: Bytes that a header cannot hold.
_CONTROLS = bytes([*range(0x09), *range(0x0A, 0x20), 0x7F])
#: Bytes of a piece that is not joined with others: to copy it costs more than one more system call.
_LARGE = 256 * 1024
_name_of = itemgetter(0)
#: Answers that have no body, whatever their headers say.
_BODILESS = frozenset({*range(100, 200), 204, 304})


class _JoiningTransport:
    """A transport whose writes are sent together at the end of the step; everything else goes straight through."""

    __slots__ = ("_call_soon", "_held", "_transport", "is_closing", "pause_reading", "resume_reading")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held: list[bytes] = []
        self._call_soon = asyncio.get_running_loop().call_soon
        #: Asked for every request: through `__getattr__` each would take four times as long.
        self.is_closing: Callable[[], bool] = transport.is_closing
        self.pause_reading: Callable[[], None] = transport.pause_reading
        self.resume_reading: Callable[[], None] = transport.resume_reading

    def write(self, data: bytes) -> None:
        """Hold data until the end of the step."""
        if not self._held:
            self._call_soon(self._flush)
        self._held.append(data)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        """Hold several pieces."""
        self.write(b"".join(pieces))

    def close(self) -> None:
        """Send what is held, then close."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        held = self._held
        if held:
            self._held = []
            if self.is_closing():
                return
            if len(held) > 1 and max(map(len, held)) < _LARGE:
                held = [b"".join(held)]
            for piece in held:
                self._transport.write(piece)


class _Answering:
    """An application whose answer to one request begins with headers written together."""

    __slots__ = ("_app", "_cycle", "_flow", "_streams", "_transport")

    def __init__(self, app: "ASGI3Application", cycle: "RequestResponseCycle", transport: _JoiningTransport) -> None:
        self._app = app
        self._cycle = cycle
        self._flow = cycle.flow
        self._transport = transport
        #: Whether the head was written here, and the body comes in pieces.
        self._streams = False

    def __call__(
        self, scope: "Scope", receive: "ASGIReceiveCallable", _send: "ASGISendCallable"
    ) -> Coroutine[Any, Any, None]:
        """Serve the request."""
        served: Any = self._app(scope, receive, self._send)  # a coroutine, though uvicorn only says `Awaitable`
        return served

    def _send(self, message: "ASGISendEvent") -> Awaitable[None]:
        if message["type"] == "http.response.start":
            if self._begins(message["status"], message.get("headers", ())):
                return _SENT
        elif self._streams:
            if not message.get("more_body"):
                self._streams = False
            elif not self._flow.write_paused:
                body: Any = message.get("body")
                if body and not self._cycle.disconnected:
                    self._transport.write(b"%x\r\n%b\r\n" % (len(body), body))
                return _SENT
        return self._cycle.send(message)

    def _begins(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Write the head of an answer; return False if it is left to uvicorn."""
        cycle = self._cycle
        if cycle.response_started or cycle.disconnected or cycle.flow.write_paused or not cycle.keep_alive:
            return False
        if cycle.default_headers or cycle.access_log or status in _BODILESS or cycle.scope["method"] == "HEAD":
            return False
        headers, size = list(headers), b""
        if headers and headers[-1][0] == _LENGTH:
            size = headers.pop()[1]
            if not size.isdigit():
                return False
        written = written_headers(headers)
        if written is None:
            return False
        # As uvicorn would leave it: the body that follows is its own to write, and to measure.
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        if size:
            framing = b"content-length: %b" % size
            cycle.chunked_encoding, cycle.expected_content_length = False, int(size)
        else:
            framing = b"transfer-encoding: chunked"
            cycle.chunked_encoding = self._streams = True
        self._transport.write(b"%b%b\r\n%b\r\n\r\n" % (STATUS_LINE[status], written, framing))
        return True


class _Sent:
    """What is waited for where nothing is left to wait for."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return _NOTHING  # an iterator that has ended: one serves everybody


_NOTHING = cast("Generator[Any, None, None]", iter(()))
_SENT = _Sent()


def written_headers(headers: list[tuple[bytes, bytes]]) -> bytes | None:
    """Return headers as they stand in a head, without the last line end; None for what has to be looked at."""
    if not headers or not _FRAMING.isdisjoint(map(_name_of, headers)):
        return None
    written = b"\r\n".join(map(b": ".join, headers))
    # The line ends between them are the only controls there may be.
    controls = len(written) - len(written.translate(None, _CONTROLS))
    return written if controls == 2 * (len(headers) - 1) else None


def declared_size(headers: list[tuple[bytes, bytes]]) -> int:
    """Return the size that a body was said to have; 0 if it was not."""
    value = next((value for name, value in headers if name == _LENGTH), b"")
    return int(value) if value.isdigit() and len(value) < _DIGITS else 0


class JoiningProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol on a transport that joins writes."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a new connection."""
        # The wrapper answers every attribute of a transport; the protocol's annotation asks for the class.
        super().connection_made(cast("asyncio.Transport", _JoiningTransport(transport)))

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body; the first one is not copied."""
        cycle, parser = self.cycle, self.parser
        held: Any = cycle.body
        if held or cycle.response_complete or parser is None or parser.should_upgrade():
            if held.__class__ is bytes:  # many pieces are put together where they need not be copied for each
                cycle.body = bytearray(held)
            super().on_body(body)
            return
        taken: Any = body
        cycle.body = taken  # it is only measured, and made `bytes` of
        if len(body) > HIGH_WATER_LIMIT and len(body) != declared_size(self.headers):  # there is more to come
            self.flow.pause_reading()
        cycle.message_event.set()

    def _start_asgi_task(self, cycle: "RequestResponseCycle", app: "ASGI3Application") -> None:
        transport: Any = self.transport  # the one of `connection_made`
        answering: Any = _Answering(app, cycle, transport)
        super()._start_asgi_task(cycle, answering)
