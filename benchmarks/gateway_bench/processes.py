"""Starts the processes of a run (upstream, floor, gateways, load generator), and stops them whatever happens."""

import http.client
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from gateway_bench.bodies import Wire
from gateway_bench.check import Broken
from gateway_bench.load import Order, Report

__all__ = ["Fleet", "Server"]

_HERE = Path(__file__).resolve().parent.parent
_START_SECONDS = 30.0
_STOP_SECONDS = 5.0


class Server(msgspec.Struct):
    """A process that listens: where, and how long it took to answer first."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    start_seconds: float = 0.0

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    @property
    def memory_mb(self) -> float:
        """Resident memory now."""
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _environment(source: Path | None = None) -> dict[str, str]:
    """Return our environment without what would change a contender: proxies and the gateway's own settings.

    `source` is a folder of packages that go before the installed ones: another version of the gateway.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.lower().endswith("_proxy") and not name.startswith("MUSTCALL_")
    }
    first = () if source is None else (str(source.resolve()),)
    return kept | {"PYTHONPATH": os.pathsep.join((*first, str(_HERE)))}


class Fleet:
    """All processes of one run; a context manager."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mustcall-bench-")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._generator: subprocess.Popen[bytes] | None = None
        self.servers: list[Server] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        self._folder.cleanup()

    def start_upstream(self) -> Server:
        """Start the scripted upstream."""
        port = _free_port()
        return self._serve("upstream", port, ["-m", "gateway_bench.upstream", str(port)], "/")

    def start_floor(self, upstream: Server) -> Server:
        """Start the pass-through floor."""
        port = _free_port()
        origin = f"http://127.0.0.1:{upstream.port}"
        return self._serve("floor", port, ["-m", "gateway_bench.floor", str(port), origin], "/healthz")

    def start_gateway(self, upstream: Server, wire: Wire, source: Path | None = None) -> Server:
        """Start the gateway as a user would, on an upstream of one wire; from another checkout's `source` if given."""
        port = _free_port()
        flag = f"{wire}=http://127.0.0.1:{upstream.port}/v1"
        arguments = ["-m", "mustcall", "serve", "--port", str(port), "--upstream", flag]
        name = f"gateway-{wire}" if source is None else f"before-{wire}"
        return self._serve(name, port, arguments, "/healthz", source)

    def start_generator(self) -> None:
        """Start the load generator."""
        self._generator = self._spawn("load", ["-m", "gateway_bench.load"], piped=True)

    def carry_out(self, order: Order) -> Report:
        """Have the load generator make one run; raise `Broken` if anything in it was wrong."""
        process = self._generator
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise Broken(f"the load generator died: {self._log('load')}")
        report = msgspec.json.decode(line, type=Report)
        if report.broken is not None:
            raise Broken(report.broken)
        return report

    def _spawn(
        self, name: str, arguments: Sequence[str], source: Path | None = None, *, piped: bool = False
    ) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE if piped else None
        with Path(self._folder.name, f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or log,
                stderr=log,
                cwd=self._folder.name,
                env=_environment(source),
            )
        self._processes.append(process)
        return process

    def _serve(self, name: str, port: int, arguments: Sequence[str], path: str, source: Path | None = None) -> Server:
        began = time.perf_counter()
        server = Server(name, port, self._spawn(name, arguments, source))
        while not _answers(port, path):
            if server.process.poll() is not None or time.perf_counter() - began > _START_SECONDS:
                raise Broken(f"{name} did not start: {self._log(name)}")
            time.sleep(0.02)
        server.start_seconds = time.perf_counter() - began
        self.servers.append(server)
        return server

    def _log(self, name: str) -> str:
        return Path(self._folder.name, f"{name}.log").read_text(encoding="utf-8", errors="replace")[-1500:]


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True
