"""A hostile upstream on the chat wire: what it sends is said by the name of the model that is asked for."""

import asyncio
import gzip
import json
import struct
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import cache, reduce
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["serve_upstream"]

_EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n%b\r\n"
_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n%b\r\n"
#: Where streams without end are ended all the same, so that a run ends.
_MOST = 700 * 1024 * 1024
#: What inflates one member takes 7 kB: a gateway that kept them all would take more memory than it may.
_MEMBERS = 100_000
#: How a gzip member begins: deflated, without a name or a time.
_MEMBER = b"\x1f\x8b\x08" + bytes(6) + b"\xff"


def _chunk(**delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return (
        b"data: %b\n\n"
        % json.dumps(
            {"id": "c", "object": "chat.completion.chunk", "model": "m", "created": 1, "choices": [choice]}
        ).encode()
    )


def _call(index: int, arguments: str) -> dict[str, Any]:
    return {
        "index": index,
        "id": f"call_{index}",
        "type": "function",
        "function": {"name": "f", "arguments": arguments},
    }


def _reply(message: dict[str, Any], finish: str = "stop") -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    return json.dumps(
        {"id": "c", "object": "chat.completion", "model": "m", "created": 1, "choices": [choice], "usage": usage}
    ).encode()


def _forever(*pieces: bytes) -> Iterator[bytes]:
    yield pieces[0]
    block = b"".join(pieces[1:])
    block *= max(1, 65_536 // len(block))
    for _ in range(_MOST // len(block)):
        yield block


def _each(first: bytes, make: Callable[[int], bytes], count: int) -> Iterator[bytes]:
    yield first
    for start in range(0, count, 200):
        yield b"".join(make(index) for index in range(start, start + 200))
    yield b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'


@cache
def _compressed(plain: bytes, times: int) -> bytes:
    """Return a gzip member of `plain`, 1,000 times `times` over; compressing all of it would take seconds."""
    block = plain * 1_000
    maker = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    piece = maker.compress(block) + maker.flush(zlib.Z_FULL_FLUSH)  # stands by itself: it refers to nothing before it
    check = reduce(lambda check, _: zlib.crc32(block, check), range(times), 0)
    size = len(block) * times % 2**32
    return _MEMBER + piece * times + maker.flush() + struct.pack("<II", check, size)


@cache
def _blank(size: int) -> bytes:
    """Return a zlib stream of this many spaces."""
    return zlib.compress(b" " * size, 1)


_ROLE = _chunk(role="assistant", content="")
_SCRIPTS: dict[str, Callable[[], Iterator[bytes]]] = {
    "endless-text": lambda: _forever(_EVENTS % b"" + _ROLE, _chunk(content="word " * 20)),
    "endless-markup": lambda: _forever(_EVENTS % b"" + _ROLE, _chunk(content="<tool_call>{ [")),
    "endless-reasoning": lambda: _forever(_EVENTS % b"" + _ROLE, _chunk(reasoning_content="hm " * 30)),
    "endless-arguments": lambda: _forever(
        _EVENTS % b"" + _ROLE + _chunk(tool_calls=[_call(0, '{"a":"')]),
        _chunk(tool_calls=[{"index": 0, "function": {"arguments": "x" * 100}}]),
    ),
    "endless-names": lambda: _forever(
        _EVENTS % b"" + _ROLE, _chunk(tool_calls=[{"index": 0, "function": {"name": "n" * 100}}])
    ),
    "endless-calls": lambda: _each(
        _EVENTS % b"" + _ROLE, lambda index: _chunk(tool_calls=[_call(index, "{}")]), 3_000_000
    ),
    "many-calls": lambda: _each(_EVENTS % b"" + _ROLE, lambda index: _chunk(tool_calls=[_call(index, "{}")]), 100_000),
    "endless-comments": lambda: _forever(_EVENTS % b"" + _ROLE, b": still here\n\n"),
    "endless-lines": lambda: _forever(_EVENTS % b"" + _ROLE, b"\n"),
    "endless-empty": lambda: _forever(_EVENTS % b"" + _ROLE, b"data:\n\n"),
    "endless-event": lambda: _forever(_EVENTS % b"" + _ROLE + b"data: ", b"x" * 1_000),
    "event-of-lists": lambda: iter([_EVENTS % b"" + b'data: {"choices":[' + b"[]," * 10_000_000 + b"0]}\n\n"]),
    "gzip": lambda: iter([_EVENTS % b"content-encoding: gzip\r\n" + _compressed(b"\n" * 1_000, 600)]),
    "gzip-stream": lambda: iter([_EVENTS % b"content-encoding: gzip\r\n" + _compressed(_chunk(content="a"), 500)]),
    "gzip-gzip": lambda: iter(
        [_EVENTS % b"content-encoding: gzip, gzip\r\n" + gzip.compress(_compressed(b"\n" * 1_000, 600))]
    ),
    "gzip-empty-members": lambda: iter([_EVENTS % b"content-encoding: gzip\r\n" + gzip.compress(b"") * _MEMBERS]),
    "deflate": lambda: iter([_JSON % b"content-encoding: deflate\r\n" + _blank(300_000_000)]),
    "whole-lists": lambda: iter([_JSON % b"" + b'{"choices":[' + b"[]," * 20_000_000 + b"0]}"]),
    "whole-deep": lambda: iter([_JSON % b"" + b"[" * 5_000_000]),
    "whole-text": lambda: iter([_JSON % b"" + _reply({"content": "<tool_call>" * 4_000_000})]),
    "whole-calls": lambda: iter(
        [_JSON % b"" + _reply({"tool_calls": [_call(n, "{}") for n in range(100_000)]}, "tool_calls")]
    ),
    "whole-endless": lambda: _forever(_JSON % b"" + b'{"choices":"', b"x" * 1_000),
}


def _script(model: str) -> Iterator[bytes]:
    if model.startswith("call:"):
        return iter([_JSON % b"" + _reply({"tool_calls": [_call(0, model[5:])]}, "tool_calls")])
    return _SCRIPTS.get(model, lambda: iter([_JSON % b"" + _reply({"content": "ok"})]))()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0)
        body = await reader.readexactly(length)
        model = json.loads(body).get("model", "") if body else ""
        async for piece in _steps(_script(model)):
            writer.write(piece)
            await writer.drain()
    with suppress(Exception):
        writer.close()


async def _steps(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)


def serve_upstream(line: Connection) -> None:
    """Serve until killed; say the port first."""

    async def serve() -> None:
        server = await asyncio.start_server(_answer, "127.0.0.1", 0, limit=2**20)
        line.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())
