"""The benchmark itself, with next to nothing to do: every process, every section, every kind of contender."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import msgspec
import pytest

from mustcall.bench.bodies import DELTAS, PATHS, WIRES, long_arguments, long_events, named_request
from mustcall.bench.check import WrongAnswer, ask, fetch, read_flow, streamed_call
from mustcall.bench.load import LoadOrder
from mustcall.bench.peers import read_peers
from mustcall.bench.processes import Fleet, Variant, serve_knows
from mustcall.bench.report.figures import verdicts
from mustcall.bench.report.results import BenchConditions, BenchResults, BenchSample, Measured
from mustcall.bench.report.tables import plain
from mustcall.bench.running import BenchOptions, run_bench, run_memory, settings_variant
from mustcall.bench.workloads import WORKLOADS, BenchPlan
from mustcall.core.errors import ConfigError
from mustcall.testing import RunningGateway
from support.benching import knows_every_flag, knows_no_flag
from support.ports import closed_port, quiet_port

LOOPBACK = "127.0.0.1"


def silent(_line: str) -> None:
    """Progress that nobody watches."""


def test_a_whole_run() -> None:
    """Direct, floor, gateway, translation, a variant and a peer all answer rightly, and every section has figures."""
    port = quiet_port()
    with RunningGateway(f"chat=http://{LOOPBACK}:{port}/v1") as peer:
        run = run_bench(
            BenchOptions(
                plan=BenchPlan(
                    share=0.001,
                    concurrency=1,
                    rounds=1,
                    workloads=tuple(load for load in WORKLOADS if load.name in ("agent", "stream")),
                ),
                pairs={"chat": ("chat", "messages")},
                variants=(settings_variant("protocol off", protocol="off"),),
                peers=tuple(read_peers({"other": f"{peer.url}/v1"}, {}, {})),
                processes=2,
                upstream_port=port,
                starts=1,
                arguments=(2000,),
                flow=8,
            ),
            "0.1.0",
            silent,
        )
    contenders = [
        "direct chat",
        "floor chat",
        "chat -> chat",
        "messages -> chat",
        "chat -> chat, protocol off",
        "other",
    ]
    assert [one.contender for one in run.measured] == contenders * 2
    assert [one.problem for one in run.measured] == [None] * len(run.measured)
    for one in run.measured:
        assert len(one.samples) == 2  # one round in each of two processes
        assert all(sample.cpu_ms > 0 and sample.rate > 0 for sample in one.samples)
    assert run.start is not None
    assert all(0 < one.cpu_seconds <= one.seconds * (os.cpu_count() or 1) for one in run.start.first_answer)
    assert [(one.name, one.size) for one in run.arguments] == [("native", 2000), ("text", 2000)]
    assert all(seconds > 0 for one in run.arguments for seconds in one.cpu_seconds)
    assert [(one.kind, one.record) for one in run.flows] == [
        ("floor", False),
        ("same-wire", False),
        ("same-wire", True),
    ]
    # What is held cannot come before the last of its 31 tokens was written, however fast the machine is.
    assert run.flows[1].first_seconds[0] > 0.5
    assert {one.name for one in run.servers} == {
        "upstream",
        "floor",
        "gateway chat",
        "gateway chat protocol off",
        "other",
    }
    assert all(one.memory_mb > 10 for one in run.servers)
    shown = plain(run)
    assert all(words in shown for words in contenders)
    assert len(verdicts(run)) > 8


def test_calls_flow_with_a_record_only() -> None:
    """Without valid calls before it no argument comes before the upstream wrote the last one; with them it does."""
    with Fleet() as fleet:
        upstream = fleet.start_upstream()
        gateway = fleet.start_gateway(upstream, "chat")
        address, model, early = (LOOPBACK, gateway.port), "bench-flow-200-a", list[bool]()
        for calls in (0, 55):
            for _ in range(calls):
                ask(address, PATHS["chat"], {}, named_request("chat", model, stream=False))
            seen = read_flow(address, PATHS["chat"], {}, named_request("chat", model, stream=True))
            assert "".join(piece for _, piece in seen.arguments) == long_arguments(200)
            told = ask((LOOPBACK, upstream.port), "/flow/flow-200-a", {}, b"")
            written = msgspec.json.decode(told, type=list[float])
            assert written == sorted(written)
            assert len(written) == len(long_events("native", 200))
            early.append(seen.arguments[0][0] < written[-3])
    assert early == [False, True]


def test_a_call_that_never_flows() -> None:
    """A reply without a call, and a server that is not there, are wrong answers."""
    with Fleet() as fleet:
        upstream = fleet.start_upstream()
        for port, words in ((upstream.port, "no call"), (1, "no answer")):
            with pytest.raises(WrongAnswer, match=words):
                read_flow((LOOPBACK, port), PATHS["chat"], {}, named_request("chat", "bench-burst", stream=True))


def test_memory() -> None:
    """Streams are held to their end and requests are counted, with the gateway's memory at each mark."""
    run = run_memory("0.1.0", silent, streams=3, seconds=1.0, requests=60, settings=Variant())
    assert run.streams is not None
    assert run.streams.peak_mb >= run.streams.before_mb > 10
    assert run.streams.seconds >= 1.0
    assert run.leak is not None
    assert [count for count, _ in run.leak.marks] == sorted(count for count, _ in run.leak.marks)
    assert run.leak.marks[-1][0] >= 60


def test_a_peer_that_is_not_there() -> None:
    """A peer whose process cannot be seen is said before anything is measured."""
    peers = tuple(read_peers({"gone": f"http://{LOOPBACK}:{closed_port()}"}, {}, {}))
    with pytest.raises(ConfigError, match="gone"):
        run_bench(BenchOptions(plan=BenchPlan(), peers=peers), "0.1.0", silent)


def test_flags_of_serve() -> None:
    """Whether `serve` has a flag is seen from its help."""
    assert serve_knows("--workers")
    assert not serve_knows("--no-such-flag")


def test_settings_of_a_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is turned on and off with serve's own flag, where it has one; asking for one it lacks is an error."""
    monkeypatch.setattr("mustcall.bench.running.serve_knows", knows_no_flag)
    assert settings_variant() == Variant()
    assert 'protocol = "off"' in settings_variant(protocol="off").settings
    with pytest.raises(ConfigError, match="--ledger"):
        settings_variant(ledger="file.db")
    monkeypatch.setattr("mustcall.bench.running.serve_knows", knows_every_flag)
    assert settings_variant().flags == ("--ledger", "off")
    assert settings_variant("l", ledger="file.db") == Variant(name="l", flags=("--ledger", "file.db"))


def test_the_upstream() -> None:
    """Every reply it can give is the one that is checked for: on all wires, whole, streamed, long and unstreamed."""
    with Fleet() as fleet:
        upstream = fleet.start_upstream()
        address = (LOOPBACK, upstream.port)
        for wire in WIRES:
            for load in WORKLOADS:
                body = named_request(wire, f"bench-{load.reply}", stream=load.events > 0)
                assert fetch(address, PATHS[wire], {}, body, wire=wire, reply=load.reply).length > 500
        for size in (10, 3000):
            raw = ask(address, PATHS["chat"], {}, named_request("chat", f"bench-native-{size}", stream=True))
            assert streamed_call(raw) == long_arguments(size)
        raw = ask(address, PATHS["chat"], {}, named_request("chat", "bench-groups", stream=False))
        assert msgspec.json.decode(raw)["choices"][0]["message"]["content"] == "".join(DELTAS)
        with pytest.raises(WrongAnswer, match="404"):
            ask(address, PATHS["chat"], {}, named_request("chat", "bench-nonsense", stream=False))


# --- the load generator -------------------------------------------------------------------------------------------


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], None]) -> Generator[int]:
    """Serve on a port with what the test says."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            answer(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the signature of the library
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A generator that is done ends its connections, in the middle of an answer, too."""

    server = Server((LOOPBACK, 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def reply(handler: BaseHTTPRequestHandler, *, status: int = 200, body: bytes = b"{}", head: str = "keep-alive") -> None:
    """Send an answer; `head` is what is said of the connection."""
    handler.send_response(status)
    handler.send_header("content-length", str(len(body)))
    handler.send_header("Connection", head)
    handler.end_headers()
    handler.wfile.write(body)


def close_with_notice(handler: BaseHTTPRequestHandler) -> None:
    """Answer, and say that the connection ends."""
    reply(handler, head="close")


def close_without_notice(handler: BaseHTTPRequestHandler) -> None:
    """Answer as if the connection stayed, and end it."""
    reply(handler)
    handler.close_connection = True


def drop(handler: BaseHTTPRequestHandler) -> None:
    """End a connection in the middle of an answer."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{")
    handler.close_connection = True


def order(port: int, concurrency: int, requests: int) -> LoadOrder:
    """So many requests on so many connections, each answered with two bytes."""
    return LoadOrder(
        host=LOOPBACK,
        port=port,
        path="/",
        headers={"host": LOOPBACK},
        body="{}",
        warm_up="{}",
        concurrency=concurrency,
        requests=requests,
        length=2,
        ending="}",
        families=[[os.getpid()]],
        timeout=180,
    )


@pytest.mark.parametrize("answer", [reply, close_with_notice, close_without_notice])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_servers_that_keep_and_servers_that_close(
    answer: Callable[[BaseHTTPRequestHandler], None], concurrency: int
) -> None:
    """Every request is answered once, whether connections are kept, closed with notice, or without."""
    asked: list[int] = []

    def counted(handler: BaseHTTPRequestHandler) -> None:
        asked.append(1)
        answer(handler)

    with answering(counted) as port, Fleet() as fleet:
        fleet.start_generator()
        report = fleet.carry_out(order(port, concurrency, 9))
        assert report.seconds > 0
        assert report.p99 >= report.p50 > 0
        assert len(asked) == 9 + concurrency


def test_connections_that_come_at_once() -> None:
    """A storm is answered while the others are busy; its latencies alone are told, and all answers are counted."""

    def note(asked: list[str], handler: BaseHTTPRequestHandler) -> None:
        asked.append(f"{handler.client_address[1]}")
        reply(handler)

    with Fleet() as fleet:
        fleet.start_generator()
        for _ in range(2):
            # A server and a list for each run: a request under way when a run ends may be read after it.
            asked: list[str] = []
            with answering(partial(note, asked)) as port:
                wanted = order(port, 2, 7)
                wanted.storm = 5
                report = fleet.carry_out(wanted)
                # Two waves: five connections and two, each with one request, behind twice four busy ones or more.
                assert report.answers >= 7 + 2 * 4
                assert len(set(asked)) == 2 + 5 + 2
                assert report.p99 >= report.p50 > 0


@pytest.mark.parametrize("storm", [0, 3])
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (partial(reply, status=500), "status 500"),
        (partial(reply, body=b"{ }"), "3 bytes instead of 2"),
        (partial(reply, body=b"{]"), "ends in"),
        (drop, "lost in the middle"),
    ],
)
def test_wrong_answers_are_no_figures(answer: Callable[[BaseHTTPRequestHandler], None], words: str, storm: int) -> None:
    """An answer that is not what was asked for ends the run, and the generator lives on."""
    with answering(answer) as port, Fleet() as fleet:
        fleet.start_generator()
        wanted = order(port, 1, 3)
        wanted.storm = storm
        for _ in range(2):
            with pytest.raises(WrongAnswer, match=words):
                fleet.carry_out(wanted)


def test_ctrl_c_keeps_the_processes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured in whole rounds of earlier processes is kept when the next ones are stopped."""
    sample = BenchSample(rate=1.0, cpu_ms=1.0, upstream_cpu_ms=1.0, generator_cpu_ms=1.0, p50=1.0, p99=1.0, reads=1.0)
    cell = Measured(workload="w", concurrency=1, contender="c", kind="floor", caller="chat", upstream="chat")
    runs = iter([True, True])

    def run_once(_options: BenchOptions, told: BenchConditions, _tell: object) -> tuple[BenchResults, bool]:
        whole = next(runs, None)
        if whole is None:
            raise KeyboardInterrupt
        measured = (msgspec.structs.replace(cell, samples=(sample,)),)
        return BenchResults(circumstances=told, measured=measured), whole

    monkeypatch.setattr("mustcall.bench.running._run_once", run_once)
    said: list[str] = []
    run = run_bench(BenchOptions(plan=BenchPlan(), processes=5), "0.1.0", said.append)
    assert run.measured[0].samples == (sample, sample)
    assert said[-1] == "stopped: these are the figures of 2 of 5 times that all were started"
