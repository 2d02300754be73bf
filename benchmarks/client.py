"""What one exchange with an upstream costs in CPU time: the client of the gateway, and the same seam on aiohttp.

Both run in this process, in turn, against a server in another one. `python benchmarks/client.py`
"""

import asyncio
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator

import aiohttp
import uvloop

from mustcall.upstream.http import HttpTransport
from mustcall.upstream.seam import UpstreamCall

_ROUNDS = 7
_EVENT = b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'
_WHOLE = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ndate: today\r\nserver: uvicorn\r\n"
    b"x-request-id: 1\r\ncontent-length: 1000\r\n\r\n" + b"x" * 1000
)
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_HEADERS = {
    "content-type": "application/json",
    "accept": "application/json",
    "accept-encoding": "identity",
    "user-agent": "mustcall",
    "authorization": "Bearer key",
}


class _AiohttpReply:
    """One answer on its way."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def read(self) -> bytes:
        """Return the whole body."""
        return await self._response.read()

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the body as it arrives."""
        while piece := await self._response.content.readany():
            yield piece

    async def close(self) -> None:
        """Return the connection to the pool."""
        self._response.release()


class _AiohttpTransport:
    """The same exchanges on aiohttp, with nothing that it need not do."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            auto_decompress=False,
        )

    async def send(self, call: UpstreamCall) -> _AiohttpReply:
        """Send a request and return when its headers have arrived."""
        return _AiohttpReply(await self._session.request(call.method, call.url, data=call.body, headers=call.headers))

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests with a body of 1000 bytes: whole, or as 200 events, each in a write of its own."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(1000)
            if head.startswith(b"POST /whole"):
                writer.write(_WHOLE)
                continue
            writer.write(_STREAM)
            for _ in range(200):
                writer.write(b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT))
                await asyncio.sleep(0)
            writer.write(b"0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _microseconds(client: str, url: str, number: int, concurrency: int) -> float:
    """Return the CPU time of one exchange."""
    transport = HttpTransport() if client == "ours" else _AiohttpTransport()
    call = UpstreamCall(url=url, headers=_HEADERS, body=b"y" * 1000)

    async def work(times: int) -> None:
        for _ in range(times):
            reply = await transport.send(call)
            if url.endswith("stream"):
                async for _ in reply.chunks():
                    pass
            else:
                await reply.read()
            await reply.close()

    await asyncio.gather(*[work(3) for _ in range(concurrency)])
    gc.collect()
    gc.disable()
    begun = time.process_time()
    await asyncio.gather(*[work(number // concurrency) for _ in range(concurrency)])
    spent = time.process_time() - begun
    gc.enable()
    await transport.close()
    return spent / number * 1e6


def main() -> None:
    """Print a line for each kind of answer."""
    with subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        base = f"http://127.0.0.1:{int(server.stdout.readline())}"
        for path, number, concurrency in (("whole", 4000, 1), ("whole", 4000, 32), ("stream", 200, 8)):
            spent: dict[str, list[float]] = {"ours": [], "aiohttp": []}
            for _ in range(_ROUNDS):
                for client, results in spent.items():
                    results.append(uvloop.run(_microseconds(client, f"{base}/{path}", number, concurrency)))
            ours, theirs = min(spent["ours"]), min(spent["aiohttp"])
            medians = " ".join(f"{name} {statistics.median(results):.0f}" for name, results in spent.items())
            ratio = f"{ours:.0f} of {theirs:.0f} µs, {ours / theirs:.2f}"
            print(f"{path:6} x{concurrency:<3} ours of aiohttp's: {ratio} (medians: {medians})")
        server.terminate()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        uvloop.run(_serve())
    else:
        main()
