"""The scripted upstream: a bare asyncio protocol that copies pre-rendered bytes. Run as its own process.

It reads no JSON: the path tells the wire and the model name tells the reply. Streams are written in one of three ways:

- `groups`: the events in writes of ten, one pass of the event loop apart, so that they arrive in several reads;
- `paced`: one event per write, 1 ms apart, so that nothing can coalesce and each event costs what it costs;
- `burst`: everything in one write;
- `held-MS`: one event per write, that many milliseconds apart: a stream that stays open;
- `native-SIZE`, `text-SIZE`: a call with a long argument, as deltas of a call or of a text, in writes of ten;
- `flow-SIZE-TAG`: the native call at the pace of a model, one event per write, 50 in a second; not streamed, a short
  call at once. `GET /flow/flow-SIZE-TAG` returns when each of its writes was made.
"""

import asyncio
import re
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import cast

import msgspec
import uvloop

from mustcall.bench.bodies import (
    DELTAS,
    LONG_FORMS,
    PATHS,
    TEXT,
    WIRES,
    LongForm,
    Wire,
    long_events,
    stream_events,
    whole_body,
)

__all__ = ["GROUP", "main"]

GROUP = 10
_PACE_SECONDS = 0.001
#: Between two tokens of a model that writes 50 in a second.
_FLOW_SECONDS = 0.02
_FLOW_PATH = b"/flow/"
_STREAMS = frozenset({b"groups", b"paced", b"burst"})
_STREAM_FLAG = re.compile(rb'"stream":\s*true')
#: The reply that would have been streamed, in one piece.
_UNSTREAMED = b"unstreamed"

_HEADERS: dict[Wire, bytes] = {
    "chat": (
        b"openai-organization: bench\r\nopenai-processing-ms: 12\r\nopenai-version: 2020-10-01\r\n"
        b"x-request-id: req_5d1f0c2ab3e94c7f8a9b0c1d2e3f4a5b\r\n"
        b"x-ratelimit-limit-requests: 10000\r\nx-ratelimit-limit-tokens: 2000000\r\n"
        b"x-ratelimit-remaining-requests: 9999\r\nx-ratelimit-remaining-tokens: 1999588\r\n"
    ),
    "messages": (
        b"request-id: req_011CSHoEeqs5C35K2UUqR7Fy\r\nanthropic-organization-id: bench\r\n"
        b"anthropic-ratelimit-requests-limit: 4000\r\nanthropic-ratelimit-requests-remaining: 3999\r\n"
        b"anthropic-ratelimit-tokens-limit: 480000\r\nanthropic-ratelimit-tokens-remaining: 479000\r\n"
    ),
    "responses": (
        b"openai-organization: bench\r\nopenai-processing-ms: 12\r\nopenai-version: 2020-10-01\r\n"
        b"x-request-id: req_5d1f0c2ab3e94c7f8a9b0c1d2e3f4a5b\r\n"
        b"x-ratelimit-limit-requests: 10000\r\nx-ratelimit-remaining-requests: 9999\r\n"
    ),
}
_DATE = b"date: Fri, 01 May 2026 12:00:00 GMT\r\n"


def _render_whole(wire: Wire, *, call: bool, text: str = TEXT) -> list[bytes]:
    body = whole_body(wire, call=call, text=text)
    head = b"HTTP/1.1 200 OK\r\n%bcontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n"
    return [head % (_DATE, _HEADERS[wire], len(body)) + body]


def _render_stream(wire: Wire, group: int, events: list[bytes] | None = None) -> list[bytes]:
    """Return the writes of a stream: each event its own HTTP chunk, as providers send them."""
    head = (
        b"HTTP/1.1 200 OK\r\n%bcontent-type: text/event-stream; charset=utf-8\r\n%btransfer-encoding: chunked\r\n\r\n"
    )
    chunks = [b"%x\r\n%b\r\n" % (len(event), event) for event in events or stream_events(wire)]
    writes = [b"".join(chunks[start : start + group]) for start in range(0, len(chunks), group)]
    return [head % (_DATE, _HEADERS[wire]) + writes[0], *writes[1:-1], writes[-1] + b"0\r\n\r\n"]


def _render() -> dict[bytes, dict[bytes, list[bytes]]]:
    """Return the writes of every reply, by path and by what the model name says."""
    scripts: dict[bytes, dict[bytes, list[bytes]]] = {}
    for wire in WIRES:
        burst = b"".join(_render_stream(wire, GROUP))
        scripts[PATHS[wire].encode()] = {
            b"text": _render_whole(wire, call=False),
            b"call": _render_whole(wire, call=True),
            b"groups": _render_stream(wire, GROUP),
            b"paced": _render_stream(wire, 1),
            b"burst": [burst],
            _UNSTREAMED: _render_whole(wire, call=False, text="".join(DELTAS)),
        }
    return scripts


_SCRIPTS = _render()
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
_LONG: dict[bytes, LongForm] = {form.encode(): form for form in LONG_FORMS}


@cache
def _long(form: bytes, size: int) -> list[bytes]:
    """Return the writes of a call with a long argument, rendered when it is asked for first."""
    return _render_stream("chat", GROUP, long_events(_LONG[form], size))


@cache
def _flow(size: int) -> list[bytes]:
    """Return the writes of the same call, one for each event."""
    return _render_stream("chat", 1, long_events("native", size))


#: When each write of a call at a model's pace was made, by what was asked: seconds of the machine's monotonic clock.
_written: dict[bytes, list[float]] = {}


def _tell_written(asked: bytes) -> list[bytes]:
    body = msgspec.json.encode(_written.get(asked, []))
    return [b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)]


def _look_up(path: bytes, asked: bytes, request: bytes) -> tuple[list[bytes], float]:
    """Return the writes of a reply and the seconds between them."""
    if path.startswith(_FLOW_PATH):
        return _tell_written(path.removeprefix(_FLOW_PATH)), 0.0
    if asked in _STREAMS and _STREAM_FLAG.search(request) is None:
        asked = _UNSTREAMED  # some gateways ask for the whole and cut it up themselves
    scripts = _SCRIPTS.get(path, {})
    name, _, number = asked.partition(b"-")
    if name in _LONG and number.isdigit():
        return _long(name, int(number)), 0.0
    size = number.partition(b"-")[0]
    if name == b"flow" and size.isdigit() and scripts:
        if _STREAM_FLAG.search(request) is None:
            return scripts[b"call"], 0.0
        return _flow(int(size)), _FLOW_SECONDS
    if name == b"held" and number.isdigit() and scripts:
        return scripts[b"paced"], int(number) / 1000
    return scripts.get(asked, [_NOT_FOUND]), _PACE_SECONDS if asked == b"paced" else 0.0


class _Upstream(asyncio.Protocol):
    """One connection: whole requests in, scripted bytes out, one after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._full = False
        self._waiting: tuple[list[bytes], int, float] | None = None
        #: Takes the time of each write, where it is wanted.
        self._times: list[float] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's signature
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._buffer = buffer = self._buffer + data if self._buffer else data
        head = buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        lower = buffer[:head].lower()
        at = lower.find(b"content-length:")
        length = int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(buffer) < head + 4 + length:
            return
        self._buffer = b""
        self._reply(buffer, head)

    def _reply(self, request: bytes, head: int) -> None:
        path = request.split(b" ", 2)[1].partition(b"?")[0]
        start = request.find(b'"bench-', head) + 7
        asked = request[start : request.find(b'"', start)]
        writes, pause = _look_up(path, asked, request)
        assert self._transport is not None
        self._times = None
        if pause == _FLOW_SECONDS:
            self._times = _written[asked] = [time.monotonic()]
        self._transport.write(writes[0])
        if len(writes) > 1:
            self._go_on(writes, 1, pause)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self._write(*waiting)

    def _go_on(self, writes: list[bytes], number: int, pause: float) -> None:
        """Schedule the next write of a stream."""
        if self._full:
            self._waiting = (writes, number, pause)
        elif pause:
            self._loop.call_later(pause, self._write, writes, number, pause)
        else:
            self._loop.call_soon(self._write, writes, number, pause)

    def _write(self, writes: list[bytes], number: int, pause: float) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._times is not None:
            self._times.append(time.monotonic())
        self._transport.write(writes[number])
        if number + 1 < len(writes):
            self._go_on(writes, number + 1, pause)


async def _serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    make: Callable[[], asyncio.Protocol] = lambda: _Upstream(loop)  # noqa: E731  one factory, named for its type
    server = await loop.create_server(make, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


def main() -> None:
    """Serve on the port given as the only argument until killed."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
