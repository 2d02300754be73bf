"""Small servers on loopback that do one thing, and a transport to reach them."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager

import msgspec
import pytest

from mustcall.core.errors import MustcallError, UpstreamTimeout
from mustcall.upstream.http import HttpTransport
from mustcall.upstream.seam import Timeouts, UpstreamCall

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
PATIENT = Timeouts(connect=180, read=180, idle=180)
# In each, one time is short, for what never comes; the others never run out, however busy the machine is.
BRIEF_CONNECT = msgspec.structs.replace(PATIENT, connect=0.1)
BRIEF_READ = msgspec.structs.replace(PATIENT, read=0.1)
BRIEF_IDLE = msgspec.structs.replace(PATIENT, idle=0.1)
SECRETS = ("sekret-path", "sekret-query", "sekret-key", "sekret-body")
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


class Listener:
    """A loopback server that answers each request with the next bytes, and then waits for the client to leave."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self.connections: list[list[bytes]] = []
        self.asked = asyncio.Event()
        self.left = asyncio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        """The address without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> list[bytes]:
        """Every request, in the order of connections."""
        return [request for requests in self.connections for request in requests]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection; an empty answer hangs up."""
        requests: list[bytes] = []
        self.connections.append(requests)
        try:
            while request := await _read_request(reader):
                requests.append(request)
                self.asked.set()
                if not self._answers:
                    continue  # silence
                answer = self._answers.pop(0)
                writer.write(answer)
                if not answer.startswith(b"HTTP/1.1") or b"connection: close" in answer:
                    break
        finally:
            self.left.set()
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
    return head + await reader.readexactly(int(length.partition(b":")[2]))


@asynccontextmanager
async def listening(*answers: bytes) -> AsyncGenerator[Listener]:
    """Listen for the length of a test."""
    listener = Listener(*answers)
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    listener.port = server.sockets[0].getsockname()[1]
    with closing(server):  # `async with` waits until every connection is closed, since Python 3.12
        yield listener


@contextmanager
def full_backlog() -> Generator[int]:
    """A port whose connections are never accepted: the kernel's queue is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = server.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(address)
        try:
            yield address[1]
        finally:
            for client in waiting:
                client.close()


def call_to(url: str, *, timeouts: Timeouts = PATIENT, body: bytes = b'{"say":"sekret-body"}') -> UpstreamCall:
    """A request that holds a secret in every place."""
    return UpstreamCall(
        url=f"{url}/sekret-path?token=sekret-query",
        headers={"authorization": "Bearer sekret-key", "content-type": "application/json"},
        body=body,
        timeouts=timeouts,
    )


async def read_all(transport: HttpTransport, call: UpstreamCall) -> tuple[int, bytes]:
    """Make one exchange to its end."""
    reply = await transport.send(call)
    try:
        return reply.status, await reply.read()
    finally:
        await reply.close()


async def stream_all(transport: HttpTransport, call: UpstreamCall) -> bytes:
    """Make one exchange to its end, piece by piece."""
    reply = await transport.send(call)
    try:
        return b"".join([piece async for piece in reply.chunks()])
    finally:
        await reply.close()


async def failure_of(transport: HttpTransport, call: UpstreamCall, *, stream: bool = False) -> MustcallError:
    """Return what an exchange fails with; its message gives nothing away."""
    with pytest.raises(MustcallError) as caught:
        await (stream_all if stream else read_all)(transport, call)
    for secret in SECRETS:
        assert secret not in caught.value.message
    return caught.value


async def failure_after(transport: HttpTransport, sign: asyncio.Event, call: Callable[[float], UpstreamCall]) -> str:
    """Return the words of the timeout of a call with a short time, once a sign of that call was seen.

    A short time also covers what comes before the wait that is meant. Where a busy machine used it up with that, a
    longer one is tried.
    """
    words = ""
    for seconds in (0.1, 2.0, 20.0):
        error = await failure_of(transport, call(seconds))
        assert type(error) is UpstreamTimeout
        words = error.message.replace(f" within {seconds:g} s", " within the time")
        if sign.is_set():
            break
    return words


async def within_reason(event: asyncio.Event) -> None:
    """Wait for something that is going to happen."""
    async with asyncio.timeout(180):
        await event.wait()
