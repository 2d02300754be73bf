"""Attack a gateway of its own and report whether it lives, stays small and serves another client meanwhile.

The gateway runs in a process with a limit on its memory, behind it a hostile upstream, beside it a client that behaves
and has an upstream of its own. Each attack must get a typed answer or a closed connection. `--only WORD` chooses
attacks by name, `--kind` by what they attack, `--quick` the short set, `--part 2/4` every fourth. The exit status is 1
if any attack did what it should not. Nothing of the product is imported. What is measured, and why a busy machine does
not change it, is said in `attacks/measuring.py` and `attacks/watched.py`.
"""

import argparse
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))

from attacks import ALL, KINDS
from attacks.measuring import Waiting, behave, forget_memory, memory_of
from attacks.sending import Attack, Place
from attacks.upstream import serve_upstream
from attacks.watched import Lag

__all__ = ["Finding", "attack", "main"]

#: What has to hold: bytes of memory, and seconds the other client may wait.
MOST_MEMORY = 400 * 1024 * 1024
SLOWEST = 1.0
#: What one round of the loop should take at most, in seconds of processor time. Counted, not a fault.
LONG = 0.02
_CAP = 1024 * 1024 * 1024
_WATCHED = Path(__file__).resolve().parent / "attacks" / "watched.py"


@dataclass
class Finding:
    """What one attack came to."""

    name: str
    statuses: set[int]
    seconds: float
    memory: int
    waiting: Waiting
    #: The longest time the loop served nobody else, in seconds of processor time.
    lag: float
    faults: list[str] = field(default_factory=list[str])


@contextmanager
def running_gateway(upstream: int, folder: Path, fair: int = 0) -> Generator[tuple[subprocess.Popen[str], Place]]:
    """Start a gateway with two keys in a process of limited memory; yield it and its address.

    `upstream` and `fair` are the ports of two upstreams; the second serves models named `fair/…`.
    """
    environment = {**os.environ, "MUSTCALL_CLIENT_KEYS": "attacker,honest", "HOME": str(folder)}
    command = [
        *(sys.executable, str(_WATCHED), str(folder / "lag"), "mustcall", "serve", "--port", "0"),
        *("--upstream", f"hostile:chat=http://127.0.0.1:{upstream}/v1"),
        *(("--upstream", f"fair:chat=http://127.0.0.1:{fair}/v1") if fair else ()),
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


@contextmanager
def running_upstream() -> Generator[tuple[int, int]]:
    """Start an upstream that does what the name of a model says; yield its process id and its port."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    upstream = context.Process(target=serve_upstream, args=(theirs,), daemon=True)
    upstream.start()
    try:
        yield upstream.pid or 0, ours.recv()
    finally:
        upstream.kill()
        upstream.join()


def attack(one: Attack, process: "subprocess.Popen[str]", place: Place, fair: int, lag: Lag) -> Finding:
    """Make one attack beside a client that behaves, whose upstream has the process id `fair`."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    stop = context.Event()
    words = (place, "fair/good", (process.pid, fair), theirs, stop)
    client = context.Process(target=behave, args=words, daemon=True)
    client.start()
    if not ours.poll(60) or ours.recv() != "ready":
        raise SystemExit("the gateway does not serve a client that behaves, before any attack")
    forget_memory(process.pid)
    lag.longest = 0.0
    began = time.monotonic()
    try:
        statuses = one.run(place)
    except TimeoutError:
        statuses = {-1}
    except OSError:
        statuses = {0}
    seconds = time.monotonic() - began
    stop.set()
    waiting = ours.recv() if ours.poll(130) else Waiting(130.0, 130.0, 0, 0)
    client.join(5)
    finding = Finding(one.name, statuses, seconds, memory_of(process.pid), waiting, lag.longest)
    finding.faults.extend(_faults(one, finding, process.poll()))
    return finding


def _faults(one: Attack, finding: Finding, ended: int | None) -> Generator[str]:
    if ended is not None:
        yield f"the gateway ended with {ended}"
    if not finding.statuses <= one.expected:
        yield f"answered {sorted(finding.statuses)}, not {sorted(one.expected)}"
    if finding.memory > MOST_MEMORY:
        yield f"{finding.memory // 2**20} MiB"
    if finding.waiting.slowest > SLOWEST:
        yield f"another client waited {finding.waiting.slowest:.1f} s"
    if finding.waiting.refused:
        yield f"another client was refused {finding.waiting.refused} times"


def _nothing(_place: Place) -> set[int]:
    time.sleep(3)
    return set()


#: What the figures are without an attack.
QUIET = Attack("no attack", _nothing, frozenset())


def run_all(attacks: Sequence[Attack], folder: Path) -> list[Finding]:
    """Make the attacks one after the other; a gateway that ended is started again."""
    found: list[Finding] = []
    waiting = [QUIET, *attacks]
    with running_upstream() as (_, hostile), running_upstream() as (pid, fair):
        while waiting:
            with running_gateway(hostile, folder, fair) as (process, place):
                lag = Lag(folder / "lag")
                while waiting and process.poll() is None:
                    finding = attack(waiting.pop(0), process, place, pid, lag)
                    found.append(finding)
                    print(shown(finding), flush=True)
    return found[1:]


def shown(finding: Finding) -> str:
    """Return a finding as a line."""
    verdict = "FAULT" if finding.faults else "ok"
    waited = f"other client {finding.waiting.slowest:5.2f} s (wall {finding.waiting.wall:5.2f})"
    figures = f"{finding.seconds:6.1f} s {finding.memory // 2**20:4d} MiB, {waited}, loop {finding.lag * 1000:6.0f} ms"
    return f"{verdict:5} {figures}  {finding.name}: {sorted(finding.statuses)}" + "".join(
        f"\n        {fault}" for fault in finding.faults
    )


def main(words: Sequence[str] | None = None) -> int:
    """Run the command."""
    import tempfile  # noqa: PLC0415  only a run needs it

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="attacks whose name holds this")
    parser.add_argument("--kind", choices=tuple(KINDS), help="attacks of this kind")
    parser.add_argument("--quick", action="store_true", help="the short set")
    parser.add_argument("--part", default="1/1", help="which part of how many, as 2/4")
    parser.add_argument("--folder", default="", help="keep the gateway's log and stacks here")
    options = parser.parse_args(words)
    part, parts = map(int, options.part.split("/"))
    known = KINDS[options.kind] if options.kind else ALL
    chosen = [one for one in known if options.only in one.name and (one.quick or not options.quick)][part - 1 :: parts]
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(options.folder or folder).resolve()
        kept.mkdir(parents=True, exist_ok=True)
        found = run_all(chosen, kept)
    bad = [finding for finding in found if finding.faults]
    slow = sum(finding.lag > LONG for finding in found)
    print(f"{len(found)} attacks, {len(bad)} with faults; the loop was held over {LONG * 1000:.0f} ms in {slow}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
