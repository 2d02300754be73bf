"""Starts the processes of a run (upstream, floor, gateways, load generator), and stops them whatever happens."""

import contextlib
import http.client
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from mustcall.bench.bodies import Wire
from mustcall.bench.check import WrongAnswer
from mustcall.bench.load import LoadOrder, Report, cpu_seconds
from mustcall.bench.report.results import TimeTaken
from mustcall.bench.system import family, resident_mb

__all__ = ["Fleet", "Server", "Variant", "serve_knows"]

#: The folder that has our package: processes of ours get the very code that is running.
_SOURCE = Path(__file__).resolve().parents[2]
_FLOOR = Path(__file__).with_name("floor.py")
_START_SECONDS = 60.0
_STOP_SECONDS = 5.0
_LOOPBACK = "127.0.0.1"


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A process that listens: where, under which path its API begins, and how long it took to answer first."""

    name: str
    port: int
    pid: int
    host: str = _LOOPBACK
    base: str = "/v1"
    start_seconds: float | None = None

    @property
    def memory_mb(self) -> float:
        """Resident memory now, of the process and its children."""
        return sum(map(resident_mb, family(self.pid)))


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway's settings: its name in the table ("" for the usual ones), lines of TOML, flags of `serve`.

    `{wire}` in a flag becomes the upstream's wire, so that two gateways need not share a file.
    """

    name: str = ""
    settings: str = ""
    flags: tuple[str, ...] = ()


#: Below what any system gives to sockets that ask for no port of their own.
_PORTS = range(20_000, 32_000)


def _free_port() -> int:
    """Return a port that nobody listens on; none that the system may give to another program before it is used."""
    for port in random.sample(_PORTS, 100):
        with contextlib.suppress(OSError), socket.create_server((_LOOPBACK, port)):
            return port
    raise WrongAnswer(f"no port from {_PORTS.start} to {_PORTS.stop - 1} is free")


#: A call of a megabyte in deltas of four characters is 90 MB on its wire, which is more than a model ever writes. What
#: is measured is not written into the ledger of whoever runs it; a flag of a variant stands over this.
_OWN_SETTINGS = {"MUSTCALL_LIMITS_REPLY_BYTES": str(256 * 1024 * 1024), "MUSTCALL_LEDGER": "off"}


def _environment(source: Path) -> dict[str, str]:
    """Return our environment without what would change a contender: proxies and the gateway's own settings.

    `source` is a folder of packages that go before the installed ones: a version of the gateway.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.lower().endswith("_proxy") and not name.startswith("MUSTCALL_")
    }
    return kept | {"PYTHONPATH": str(source.resolve()), **_OWN_SETTINGS}


@cache
def serve_knows(flag: str, source: Path | None = None) -> bool:
    """Tell whether `mustcall serve` has a flag."""
    return flag in _serve_help(source or _SOURCE)


@cache
def _serve_help(source: Path) -> str:
    return subprocess.run(
        [sys.executable, "-m", "mustcall", "serve", "--help"],
        capture_output=True,
        text=True,
        check=False,
        env=_environment(source),
    ).stdout


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
            _stop(process)
        self._folder.cleanup()

    @property
    def folder(self) -> Path:
        """Where the processes run and write; gone at the end."""
        return Path(self._folder.name)

    def start_upstream(self, port: int | None = None) -> Server:
        """Start the scripted upstream, on a port of the caller's choice if peers must know it beforehand."""
        port = port or _free_port()
        return self._serve("upstream", port, ["-m", "mustcall.bench.upstream", str(port)], "/")

    def start_floor(self, upstream: Server) -> Server:
        """Start the pass-through floor."""
        port = _free_port()
        # By its file, so that nothing of mustcall is imported on the way.
        return self._serve(
            "floor", port, ["-P", str(_FLOOR), str(port), f"http://{_LOOPBACK}:{upstream.port}"], "/healthz"
        )

    def start_gateway(
        self, upstream: Server, wire: Wire, variant: Variant | None = None, source: Path | None = None
    ) -> Server:
        """Start the gateway as a user would, on an upstream of one wire; from another checkout's `source` if given."""
        variant = variant or Variant()
        name = " ".join(["before" if source else "gateway", wire, variant.name]).strip()
        port = _free_port()
        flags = [flag.replace("{wire}", wire) for flag in variant.flags]
        arguments = ["-m", "mustcall", "serve", "--port", str(port), *flags]
        arguments += ["--upstream", f"{wire}=http://{_LOOPBACK}:{upstream.port}/v1"]
        if variant.settings:
            file = self.folder / f"{name}.toml"
            file.write_text(variant.settings, encoding="utf-8")
            arguments += ["--config", str(file)]
        return self._serve(name, port, arguments, "/healthz", source)

    def attach(self, server: Server) -> None:
        """Take a server that others started into the list."""
        self.servers.append(server)

    def start_generator(self) -> None:
        """Start the load generator."""
        self._generator = self._spawn("load", ["-m", "mustcall.bench.load"], piped=True)

    def carry_out(self, order: LoadOrder) -> Report:
        """Have the load generator make one run; raise `WrongAnswer` if anything in it was wrong."""
        process = self._generator
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        line = b""
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(order) + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        if not line:
            raise WrongAnswer(f"the load generator died: {self._log('load')}")
        report = msgspec.json.decode(line, type=Report)
        if report.broken is not None:
            raise WrongAnswer(report.broken)
        return report

    def time_command(self, arguments: Sequence[str]) -> TimeTaken:
        """Run a `mustcall` command to its end and return what it took."""
        began, before = time.perf_counter(), os.times()
        self._spawn("command", ["-m", "mustcall", *arguments]).wait(_START_SECONDS)
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        return TimeTaken(seconds=time.perf_counter() - began, cpu_seconds=cpu)

    def time_first_answer(self, upstream: Server, answers: Callable[[int], bool]) -> TimeTaken:
        """Start a gateway, ask until a turn is answered, stop it, and return what it took from start to answer."""
        port = _free_port()
        flag = f"chat=http://{_LOOPBACK}:{upstream.port}/v1"
        began = time.perf_counter()
        process = self._spawn("first", ["-m", "mustcall", "serve", "--port", str(port), "--upstream", flag])
        self._until(lambda: answers(port), process, "first", began)
        taken = TimeTaken(seconds=time.perf_counter() - began, cpu_seconds=cpu_seconds(process.pid))
        _stop(process)
        return taken

    def _spawn(
        self, name: str, arguments: Sequence[str], source: Path | None = None, *, piped: bool = False
    ) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE if piped else None
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603  our own commands
                [sys.executable, *arguments],
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or log,
                stderr=log,
                cwd=self._folder.name,
                env=_environment(source or _SOURCE),
            )
        self._processes.append(process)
        return process

    def _serve(self, name: str, port: int, arguments: Sequence[str], path: str, source: Path | None = None) -> Server:
        began = time.perf_counter()
        process = self._spawn(name, arguments, source)
        self._until(lambda: _answers(port, path), process, name, began)
        server = Server(name=name, port=port, pid=process.pid, start_seconds=time.perf_counter() - began)
        self.servers.append(server)
        return server

    def _until(self, ready: Callable[[], bool], process: subprocess.Popen[bytes], name: str, began: float) -> None:
        """Wait for a server; raise `WrongAnswer` with the end of its log if it does not come."""
        answered = False
        while not answered:
            answered = ready()
            late = not answered and time.perf_counter() - began > _START_SECONDS
            if late or process.poll() is not None:  # another program may answer there
                raise WrongAnswer(f"{name} did not start: {self._log(name)}")
            time.sleep(0.01)

    def _log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-1500:]


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(_LOOPBACK, port, timeout=2)
    try:
        connection.request("GET", path)
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True
