"""Attack a gateway of its own and report whether it lives, stays small and serves another client meanwhile.

The gateway runs in a process with a limit on its memory, behind it a hostile upstream, beside it a client that behaves.
Each attack must get a typed answer or a closed connection. `--only WORD` chooses attacks by name, `--quick` the short
set. The exit status is 1 if any attack did what it should not. Nothing of the product is imported.
"""

import argparse
import http.client
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from attacks import ALL
from attacks.sending import Attack, Place
from attacks.upstream import serve_upstream

__all__ = ["Finding", "attack", "main"]

#: What has to hold: bytes of memory, and seconds the other client may wait.
MOST_MEMORY = 400 * 1024 * 1024
SLOWEST = 1.0
_CAP = 1024 * 1024 * 1024
_BODY = json.dumps({"model": "good", "messages": [{"role": "user", "content": "hi"}]}).encode()


@dataclass
class Finding:
    """What one attack came to."""

    name: str
    statuses: set[int]
    seconds: float
    memory: int
    slowest: float
    served: int
    refused: int
    faults: list[str] = field(default_factory=list[str])


@contextmanager
def running_gateway(upstream: int, folder: Path, port: int = 0) -> Generator[tuple[subprocess.Popen[str], Place]]:
    """Start a gateway with two keys in a process of limited memory; yield it and its address."""
    environment = {**os.environ, "MUSTCALL_CLIENT_KEYS": "attacker,honest", "HOME": str(folder)}
    command = [
        sys.executable,
        "-m",
        "mustcall",
        "serve",
        "--upstream",
        f"chat=http://127.0.0.1:{upstream}/v1",
        "--port",
        str(port),
    ]
    with (folder / "gateway.log").open("w") as log:
        process = subprocess.Popen(  # noqa: S603
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            preexec_fn=_limit,  # noqa: PLW1509  nothing runs in this process but this function
        )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "listens on http://" in line:
                host, _, number = line.strip().rpartition("http://")[2].partition(":")
                yield process, (host, int(number))
                return
        raise SystemExit(f"the gateway did not start: {(folder / 'gateway.log').read_text()}")
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_CAP, _CAP))
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))


def memory_of(pid: int) -> int:
    """Return the most memory a process has had since it was last forgotten."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def forget_memory(pid: int) -> None:
    """Let the most memory be counted anew, where the system allows it."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def behave(place: Place, line: Connection, stop: Event) -> None:
    """Be a client that asks for a short turn again and again; tell the slowest, how many were served and refused."""
    slowest, served, refused = 0.0, 0, 0
    while not stop.is_set():
        began = time.monotonic()
        # Another address, as other people have.
        connection = http.client.HTTPConnection(*place, timeout=120, source_address=("127.0.0.2", 0))
        try:
            connection.request("POST", "/v1/chat/completions", _BODY, {"authorization": "Bearer honest"})
            status = connection.getresponse().status
        except OSError:
            status = 0
        finally:
            connection.close()
        if not served and status == 200:
            line.send("ready")
        slowest = max(slowest, time.monotonic() - began)
        served, refused = served + (status == 200), refused + (status != 200)
        stop.wait(0.02)
    line.send((slowest, served, refused))


def attack(one: Attack, process: "subprocess.Popen[str]", place: Place) -> Finding:
    """Make one attack beside a client that behaves."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    stop = context.Event()
    client = context.Process(target=behave, args=(place, theirs, stop), daemon=True)
    client.start()
    if not ours.poll(60) or ours.recv() != "ready":
        raise SystemExit("the gateway does not serve a client that behaves, before any attack")
    forget_memory(process.pid)
    began = time.monotonic()
    try:
        statuses = one.run(place)
    except TimeoutError:
        statuses = {-1}
    except OSError:
        statuses = {0}
    seconds = time.monotonic() - began
    stop.set()
    slowest, served, refused = ours.recv() if ours.poll(130) else (130.0, 0, 0)
    client.join(5)
    finding = Finding(one.name, statuses, seconds, memory_of(process.pid), slowest, served, refused)
    if process.poll() is not None:
        finding.faults.append(f"the gateway ended with {process.returncode}")
    if not statuses <= one.expected:
        finding.faults.append(f"answered {sorted(statuses)}, not {sorted(one.expected)}")
    if finding.memory > MOST_MEMORY:
        finding.faults.append(f"{finding.memory // 2**20} MiB")
    if slowest > SLOWEST:
        finding.faults.append(f"another client waited {slowest:.1f} s")
    if refused:
        finding.faults.append(f"another client was refused {refused} times")
    return finding


def run_all(attacks: Sequence[Attack], folder: Path) -> list[Finding]:
    """Make the attacks one after the other; a gateway that ended is started again."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    upstream = context.Process(target=serve_upstream, args=(theirs,), daemon=True)
    upstream.start()
    port: int = ours.recv()
    found: list[Finding] = []
    waiting = list(attacks)
    try:
        while waiting:
            with running_gateway(port, folder) as (process, place):
                while waiting and process.poll() is None:
                    finding = attack(waiting.pop(0), process, place)
                    found.append(finding)
                    print(shown(finding), flush=True)
    finally:
        upstream.kill()
    return found


def shown(finding: Finding) -> str:
    """Return a finding as a line."""
    verdict = "FAULT" if finding.faults else "ok"
    figures = f"{finding.seconds:6.1f} s {finding.memory // 2**20:4d} MiB, other client {finding.slowest:5.2f} s"
    return f"{verdict:5} {figures}  {finding.name}: {sorted(finding.statuses)}" + "".join(
        f"\n        {fault}" for fault in finding.faults
    )


def main(words: Sequence[str] | None = None) -> int:
    """Run the command."""
    import tempfile  # noqa: PLC0415  only a run needs it

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="attacks whose name holds this")
    parser.add_argument("--quick", action="store_true", help="the short set")
    options = parser.parse_args(words)
    chosen = [one for one in ALL if options.only in one.name and (one.quick or not options.quick)]
    with tempfile.TemporaryDirectory() as folder:
        found = run_all(chosen, Path(folder))
    bad = [finding for finding in found if finding.faults]
    print(f"{len(found)} attacks, {len(bad)} with faults")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
