"""A loopback server whose connections a test works by hand, one read and one write at a time."""

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from support.loopback import OK

__all__ = ["Served", "Serving", "serving"]


class Served:
    """The server's end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()

    async def heard(self) -> bytes:
        """Return one request without a large body; nothing if the client has left."""
        async with asyncio.timeout(180):
            data = b""
            while b"\r\n\r\n" not in data:
                try:
                    more = await self._loop.sock_recv(self._sock, 65536)
                except ConnectionError:
                    return b""
                if not more:
                    return b""
                data += more
            return data

    async def say(self, data: bytes = OK) -> None:
        """Send bytes."""
        await self._loop.sock_sendall(self._sock, data)

    async def hear_exactly(self, size: int) -> bytes:
        """Read so many bytes."""
        data = bytearray()
        async with asyncio.timeout(180):
            while len(data) < size:
                more = await self._loop.sock_recv(self._sock, min(1 << 20, size - len(data)))
                assert more, "the client left"
                data += more
        return bytes(data)

    async def client_has_left(self) -> None:
        """Read until the client closes the connection."""
        async with asyncio.timeout(180):
            with suppress(ConnectionError):
                while await self._loop.sock_recv(self._sock, 1 << 20):
                    pass

    def close(self) -> None:
        """Hang up, at once: the client's kernel knows before this returns."""
        self._sock.close()

    def reset(self) -> None:
        """Hang up with a reset."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()


class Serving:
    """A port. Each connection is taken when the test wants it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self.served: list[Served] = []
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}"

    async def accept(self) -> Served:
        """Take the next connection."""
        async with asyncio.timeout(180):
            sock, _ = await self._loop.sock_accept(self._sock)
        sock.setblocking(False)
        self.served.append(Served(sock))
        return self.served[-1]

    def has_caller(self) -> bool:
        """Whether somebody waits to be accepted, now."""
        try:
            sock, _ = self._sock.accept()
        except BlockingIOError:
            return False
        sock.close()
        return True


@asynccontextmanager
async def serving() -> AsyncGenerator[Serving]:
    """Listen for the length of a test."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as sock:
        sock.setblocking(False)
        server = Serving(sock)
        try:
            yield server
        finally:
            for served in server.served:
                served.close()
