"""What is measured besides the workloads: starts, long arguments, calls that flow, open streams, memory.

Each is one question with one answer; nobody takes turns here but gateway and floor under the long argument,
and calls that flow all run at once: at 50 tokens per second nobody is in another's way.
"""

import asyncio
import contextlib
import http.client
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import msgspec

from mustcall.bench.bodies import DELTAS, LONG_FORMS, PATHS, LongForm, long_arguments, long_events, named_request
from mustcall.bench.cases import Contender, headers_of, order_for
from mustcall.bench.check import WrongAnswer, ask, fetch, read_flow, streamed_call
from mustcall.bench.load import family_seconds
from mustcall.bench.processes import Fleet, Server
from mustcall.bench.report.results import FlowingCall, Kind, Leak, LongArgument, StartFigures, Streams, Workload
from mustcall.bench.system import family
from mustcall.bench.workloads import WORKLOADS

__all__ = ["hold_streams", "measure_arguments", "measure_flows", "measure_start", "watch_memory"]

_PATH = PATHS["chat"]
_HEADERS = headers_of("chat")
#: Where resident memory is read on the way to the last request.
_MARKS = (0.1, 0.5, 1.0)
_LEAK_CONCURRENCY = 32
_SETTLE_SECONDS = 1.0
#: Valid calls of a model after which its arguments are let through as they come (`profiles/tallies.py`), and some more.
_RECORD = 55


def measure_start(fleet: Fleet, upstream: Server, times: int) -> StartFigures:
    """Time `mustcall --help`, and `mustcall serve` until its first answered turn."""
    body = named_request("chat", "bench-call", stream=False)

    def answers(port: int) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("POST", _PATH, body, _HEADERS)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    return StartFigures(
        help=tuple(fleet.time_command(["--help"]) for _ in range(times)),
        first_answer=tuple(fleet.time_first_answer(upstream, answers) for _ in range(times)),
    )


def measure_arguments(gateway: Server, floor: Server, sizes: Sequence[int], times: int) -> tuple[LongArgument, ...]:
    """Stream calls with a long argument through the whole gateway; the call that arrives must be the one sent."""
    return tuple(_argument(form, size, gateway, floor, times) for form in LONG_FORMS for size in sizes)


def _argument(form: LongForm, size: int, gateway: Server, floor: Server, times: int) -> LongArgument:
    body = named_request("chat", f"bench-{form}-{size}", stream=True)
    raw = ask((gateway.host, gateway.port), _PATH, _HEADERS, body)
    found, sent = streamed_call(raw), long_arguments(size)
    if msgspec.json.decode(found or "null") != msgspec.json.decode(sent):
        raise WrongAnswer(f"the {form} call of {size} characters came back with {len(found)} instead of {len(sent)}")
    del raw
    taken: dict[int, list[float]] = {gateway.pid: [], floor.pid: []}
    for _ in range(times):
        for server in (floor, gateway):
            pids = family(server.pid)
            before = family_seconds(pids)
            ask((server.host, server.port), _PATH, _HEADERS, body)
            taken[server.pid].append(family_seconds(pids) - before)
    return LongArgument(
        name=form,
        size=size,
        events=len(long_events(form, size)),
        cpu_seconds=tuple(taken[gateway.pid]),
        floor_cpu_seconds=tuple(taken[floor.pid]),
    )


def measure_flows(
    upstream: Server, servers: Sequence[tuple[Kind, Server]], size: int, times: int
) -> tuple[FlowingCall, ...]:
    """Stream a native call at 50 tokens per second; gateways once without a record of the model and once with one.

    Each stream has a model of its own, so that no stream makes the record of another.
    """
    cases: list[tuple[Kind, Server, bool]] = [
        (kind, server, record)
        for kind, server in servers
        for record in ((False,) if kind in ("direct", "floor") else (False, True))
    ]
    with ThreadPoolExecutor(len(cases) * times) as pool:
        waits = [
            [
                pool.submit(_flow, upstream, server, f"flow-{size}-{number}.{turn}", size, record=record)
                for turn in range(times)
            ]
            for number, (_, server, record) in enumerate(cases)
        ]
        return tuple(
            FlowingCall(
                kind=kind,
                record=record,
                size=size,
                first_seconds=tuple(one.result().first for one in wait),
                last_seconds=tuple(one.result().last for one in wait),
                silence_seconds=tuple(one.result().silence for one in wait),
                signs=tuple(one.result().signs for one in wait),
            )
            for (kind, _, record), wait in zip(cases, waits, strict=True)
        )


class _Flow(msgspec.Struct, frozen=True, kw_only=True):
    """How one stream came: seconds behind the upstream's own writes, the longest silence, keep-alives."""

    first: float
    last: float
    silence: float
    signs: int


def _flow(upstream: Server, server: Server, asked: str, size: int, *, record: bool) -> _Flow:
    address = (server.host, server.port)
    for _ in range(_RECORD if record else 0):
        ask(address, _PATH, _HEADERS, named_request("chat", f"bench-{asked}", stream=False))
    seen = read_flow(address, _PATH, _HEADERS, named_request("chat", f"bench-{asked}", stream=True))
    found, sent = "".join(piece for _, piece in seen.arguments), long_arguments(size)
    if msgspec.json.decode(found or "null") != msgspec.json.decode(sent):
        raise WrongAnswer(f"the call of {size} characters came back with {len(found)} instead of {len(sent)}")
    written = msgspec.json.decode(
        ask((upstream.host, upstream.port), f"/flow/{asked}", _HEADERS, b""), type=list[float]
    )
    # The upstream's role and name go before the arguments, the finish reason and the end behind them.
    first, last = written[2], written[-3]
    moments = [first, *(at for at in seen.moments if at > first)]
    return _Flow(
        first=seen.arguments[0][0] - first,
        last=seen.arguments[-1][0] - last,
        silence=max(late - early for early, late in pairwise(moments)),
        signs=seen.signs,
    )


async def hold_streams(gateway: Server, streams: int, seconds: float) -> Streams:
    """Keep streams open at once for so long; return what the gateway's memory did meanwhile."""
    pace = max(1, round(seconds * 1000 / (len(DELTAS) + 4)))
    body = named_request("chat", f"bench-held-{pace}", stream=True)
    lines = [
        f"POST {_PATH} HTTP/1.1",
        f"host: {gateway.host}",
        *(f"{name}: {value}" for name, value in _HEADERS.items()),
    ]
    request = "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body
    before = peak = gateway.memory_mb
    began = time.perf_counter()
    tasks = [asyncio.create_task(_read_stream(gateway, request)) for _ in range(streams)]
    try:
        while not all(task.done() for task in tasks):
            await asyncio.sleep(min(0.5, seconds / 10))
            peak = max(peak, gateway.memory_mb)
        cut = sum(not task.result() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
    if cut:
        raise WrongAnswer(f"{cut} of {streams} open streams did not come to their end")
    took = time.perf_counter() - began
    await asyncio.sleep(min(_SETTLE_SECONDS, seconds / 10))
    return Streams(streams=streams, seconds=took, before_mb=before, peak_mb=peak, after_mb=gateway.memory_mb)


async def _read_stream(gateway: Server, request: bytes) -> bool:
    """Read one stream to its end; tell whether it had one."""
    try:
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    except OSError:
        return False
    ending = b""
    try:
        writer.write(request)
        while not ending.endswith(b"0\r\n\r\n") and (piece := await reader.read(65536)):
            ending = (ending + piece)[-64:]
    except OSError:
        return False
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return b"[DONE]" in ending


def watch_memory(fleet: Fleet, gateway: Server, upstream: Server, requests: int, tell: Callable[[str], None]) -> Leak:
    """Make many requests, plain and streamed ones in turn; return the gateway's memory at the marks."""
    contender = Contender(kind="same-wire", caller="chat", upstream="chat", server=gateway)
    loads = [load for load in WORKLOADS if load.name in ("call", "burst")]
    step = max(_LEAK_CONCURRENCY, requests // 100)
    done, marks = 0, list[tuple[int, float]]()
    for share in _MARKS:
        while done < requests * share:
            for load in loads:
                # One streamed reply to nine whole ones: a stream takes several times as long.
                part = max(1, step * (1 if load.events else 9) // 10)
                _ask_often(fleet, contender, load, part, upstream)
                done += part
        marks.append((done, gateway.memory_mb))
        tell(f"{gateway.memory_mb:.1f} MB after {done:,} requests")
    return Leak(marks=tuple(marks))


def _ask_often(fleet: Fleet, contender: Contender, load: Workload, requests: int, upstream: Server) -> None:
    server = contender.server
    expected = fetch(
        (server.host, server.port), contender.path, _HEADERS, contender.body(load), wire="chat", reply=load.reply
    )
    concurrency = min(_LEAK_CONCURRENCY, requests)
    fleet.carry_out(order_for(contender, load, expected, concurrency=concurrency, requests=requests, upstream=upstream))
