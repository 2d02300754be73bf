"""What a connection may do before any key is known: size and number of headers, time, connections for each address.

uvicorn parses HTTP and has no such limits. One `Front` holds the counters of a process; its protocol counts bytes
while a head is being read, and once a second all connections are looked at for heads and bodies that do not come.
Refusals are answered in HTTP, the connection is closed, and the log has one line for each kind in ten seconds.
"""

import asyncio
import errno
import os
import socket
from collections import Counter
from time import monotonic
from typing import Any, NoReturn, cast

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from mustcall.core.limits import GatewayLimits
from mustcall.gateway.connections.accepting import Acceptor
from mustcall.gateway.connections.write_coalescing import JoiningProtocol, declared_size
from mustcall.telemetry.logs import log_of

try:
    import resource
except ImportError:  # not a POSIX system
    resource = None

__all__ = ["Front", "FrontProtocol", "RareLog"]

_log = log_of("mustcall.gateway")

_SWEEP_SECONDS = 1.0
_QUIET_SECONDS = 10.0
#: Bytes that are parsed before headers are counted. It bounds the headers of one step of the loop: counting each one
#: as it comes would cost every request more than all its other limits.
_SLICE = 64 * 1024
_HEAD_END = b"\r\n\r\n"
_MANY_FILES = 65_536
_STATUS = {
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
#: Called by name: `super()` would look each of them up for every request.
_take = JoiningProtocol.data_received
_take_head = JoiningProtocol.on_headers_complete
_take_end = JoiningProtocol.on_message_complete
_CODES = {408: "request_timeout", 431: "headers_too_large", 503: "gateway_busy"}


class RareLog:
    """A log of refusals that an attacker cannot fill: one line for each kind in ten seconds, with a count."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._kept: Counter[str] = Counter()

    def note(self, kind: str, words: str, now: float) -> bool:
        """Write a line, or only count it; return which."""
        last = self._last.get(kind)
        if last is not None and now - last < _QUIET_SECONDS:
            self._kept[kind] += 1
            return False
        kept = self._kept.pop(kind, 0)
        self._last[kind] = now
        _log.warning("%s%s", words, f" ({kept} more since the last such line)" if kept else "")
        return True


class Front:
    """Counts the connections of one process."""

    def __init__(self, limits: GatewayLimits, listener: socket.socket | None = None) -> None:
        self.limits = limits
        self.most = limits.connections or max(8, _open_files() * 3 // 4)
        self.most_each = limits.connections_per_address or max(4, self.most // 2)
        self.addresses: Counter[str] = Counter()
        self.open: set[FrontProtocol] = set()
        self.log = RareLog()
        #: Takes connections that wait, where the listening socket is known.
        self.acceptor = Acceptor(listener) if listener is not None and os.name == "posix" else None
        self._sweeper: asyncio.TimerHandle | None = None

    def protocol(self) -> type["FrontProtocol"]:
        """Return the protocol for uvicorn to make connections of."""
        return cast("type[FrontProtocol]", type("FrontProtocol", (FrontProtocol,), {"front": self}))

    def admit(self, connection: "FrontProtocol", address: str) -> str | None:
        """Count a new connection; return why it is refused, None if it is not."""
        if len(self.open) >= self.most:
            return f"{self.most} connections are open ([limits] connections)"
        if self.addresses[address] >= self.most_each:
            return f"one address has {self.most_each} connections open ([limits] connections_per_address)"
        self.open.add(connection)
        self.addresses[address] += 1
        if self._sweeper is None:
            self._sweeper = connection.loop.call_later(_SWEEP_SECONDS, self._sweep, connection.loop)
        return None

    def leave(self, connection: "FrontProtocol", address: str) -> None:
        """Count a connection no more."""
        self.open.discard(connection)
        self.addresses[address] -= 1
        if self.addresses[address] <= 0:
            del self.addresses[address]

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Refuse what does not come; the timer runs only while there are connections."""
        self._sweeper = None
        self.sweep(loop.time())
        if self.open:
            self._sweeper = loop.call_later(_SWEEP_SECONDS, self._sweep, loop)

    def sweep(self, now: float) -> None:
        """Refuse the connections whose head or body is overdue; say so when no more can be had."""
        for connection in tuple(self.open):
            connection.check_progress(now)
        if not has_file_left():
            # The loop closes such connections by itself and tells nobody.
            words = "the process has as many files open as it may (ulimit -n): new connections are closed unanswered"
            self.log.note("no files", words, now)


class FrontProtocol(JoiningProtocol):
    """uvicorn's protocol with bounds on what comes before an answer."""

    front: Front

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._address: str | None = None
        #: Whether a head is being read or waited for; a body otherwise.
        self._in_head = True
        #: When what is being read began, 0 if that is not known yet, and how many bytes of it came.
        self._began = 0.0
        self._size = 0
        #: How many of them are the head's, where that is known.
        self._head = 0
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a new connection, or refuse it."""
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        self._began = self.loop.time()
        reason = self.front.admit(self, address)
        if reason is None:
            self._address = address
        else:
            self.refuse(503, "connections", reason)
        acceptor = self.front.acceptor
        if acceptor is None:
            return
        if acceptor.stopped:
            self.shutdown()
        else:
            acceptor.look(self.loop, self._another)

    def _another(self) -> "FrontProtocol":
        """Return a protocol for another connection of the same server."""
        return type(self)(config=self.config, server_state=self.server_state, app_state=self.app_state)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection no more."""
        super().connection_lost(exc)
        if self._address is not None:
            self.front.leave(self, self._address)
            self._address = None

    def data_received(self, data: bytes) -> None:
        """Take bytes; those of a head are counted. A request that comes whole, as most do, needs no time taken."""
        if self._refused:
            return
        if len(data) > _SLICE:
            self._take_in_slices(data)
            return
        self._size += len(data)
        _take(self, data)
        # The next head can begin behind a request that came whole.
        if self._size or len(self.headers) > self.front.limits.header_count:
            self._check_begun()

    def _take_in_slices(self, data: bytes) -> None:
        """Take many bytes: headers are counted after each slice, wherever in it a head begins."""
        start, whole = 0, len(data)
        view: Any = memoryview(data)  # a slice of bytes would be a copy, and the parser takes any buffer
        # A slice that ends with the head leaves the body to come in one piece: nobody has to join it. It is looked for
        # once only: a flood of empty lines would be cut into very many slices.
        end = data.find(_HEAD_END, 0, _SLICE) if self._in_head else -1
        while start < whole:
            if not self._in_head:
                # No head can begin before the body has ended: all of it may be taken at once.
                size = max(_SLICE, declared_size(self.headers) - (self._size - self._head))
            elif start == 0 and end >= 0:
                size = end + len(_HEAD_END)
            else:
                size = _SLICE
            piece = view[start : start + size]
            self._size += len(piece)
            _take(self, piece)
            if start == 0 and end >= 0 and not self._in_head:
                self._head = self._size
            start += size
            if self._size or len(self.headers) > self.front.limits.header_count:
                self._check_begun()
            if self._refused or self.transport.is_closing():
                return

    def _check_begun(self) -> None:
        """Check the size of what is not complete, and take the time of its beginning."""
        if not self._began:
            self._began = self.loop.time()
        limits = self.front.limits
        headers: Any = self.headers  # None before the first request
        if headers is not None and len(headers) > limits.header_count:
            self._refuse_head(f"more than {limits.header_count} headers ([limits] header_count)")
        elif self._in_head and self._size > limits.header_bytes:
            self._refuse_head(f"more than {limits.header_bytes} bytes ([limits] header_bytes)")

    def on_headers_complete(self) -> None:
        """Go on to the body."""
        limits = self.front.limits
        if len(self.headers) > limits.header_count:
            self._end_parsing(f"more than {limits.header_count} headers ([limits] header_count)")
        if self._size > limits.header_bytes and sum(map(_size_of, self.headers)) + len(self.url) > limits.header_bytes:
            self._end_parsing(f"more than {limits.header_bytes} bytes ([limits] header_bytes)")
        self._in_head = False
        _take_head(self)

    def on_message_complete(self) -> None:
        """Wait for the next head."""
        if len(self.headers) > self.front.limits.header_count:  # with those after a body in chunks
            self._end_parsing(f"more than {self.front.limits.header_count} headers ([limits] header_count)")
        _take_end(self)
        self._in_head = True
        self._began = 0.0
        self._size = self._head = 0

    def _end_parsing(self, reason: str) -> NoReturn:
        """Refuse a head; the parser makes its own error of what is raised, and that is not answered again."""
        self._refuse_head(reason)
        raise ValueError

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, unless it was answered as something else."""
        if not self._refused:
            super().send_400_response(msg)

    @property
    def _answering(self) -> bool:
        """Whether a request is being answered; before the first there is no cycle, whatever its annotation says."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    def check_progress(self, now: float) -> None:
        """Refuse a head or body that is overdue."""
        limits = self.front.limits
        if self._in_head:
            if self._answering:
                self._began = 0.0  # what comes after a request is read when it is answered
            elif self._began and now - self._began > limits.head_seconds:
                self.refuse(
                    408,
                    "slow head",
                    f"the head was not complete within {limits.head_seconds:g} s ([limits] head_seconds)",
                )
        elif now - self._began > limits.body_seconds + self._size / max(1, limits.body_bytes_per_second):
            # The task that waits for the body hears of a closed connection, and ends.
            self.refuse(408, "slow body", "the body came too slowly ([limits] body_seconds)")

    def _refuse_head(self, reason: str) -> None:
        self.refuse(431, "large head", f"the head has {reason}")

    def refuse(self, status: int, kind: str, reason: str) -> None:
        """Answer with a status and close the connection."""
        if self._refused:
            return
        self._refused = True
        self.front.log.note(kind, f"request refused before it was read: {reason}", monotonic())
        body = b'{"error":{"message":"%b","type":"invalid_request_error","code":"%b"}}' % (
            reason.encode(),
            _CODES[status].encode(),
        )
        if not self._answering or not self.cycle.response_started:
            self.transport.write(
                b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
                % (status, _STATUS[status].encode(), len(body), body)
            )
        self.transport.close()


def has_file_left() -> bool:
    """Tell whether the process can open one more file."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    return True


def _open_files() -> int:
    """Return how many files the process may have open."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if resource is not None else 0
    return files if 0 < files < _MANY_FILES else _MANY_FILES


def _size_of(header: tuple[bytes, bytes]) -> int:
    return len(header[0]) + len(header[1]) + 4
