"""Prove that the tests depend on nothing but the code: run all of them four times, each time in other circumstances.

`load` keeps every processor busy twice over beside them, `order` runs them in another order, `hash` changes the hashes
of strings, `stalls` stops their processes for seconds again and again, as a machine with too many guests does. The seed
is drawn anew each time and printed; `--seed N` runs with that one again. `--only load` runs one of the four. What
follows `--` is given to pytest (`-- tests/engine`). The last lines are the summary, and the exit status is 1 if a test
failed in any run.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_PYTEST = (sys.executable, "-m", "pytest", "--workers", "auto", "-q")
_BUSY = (sys.executable, "-c", "while True: pass")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)")
KINDS = ("load", "order", "hash", "stalls")

#: Seconds that the processes run, and that they are stopped.
_RUNS, _STOPS = 14.0, 6.0


@dataclass(frozen=True)
class Proof:
    """One run of the tests."""

    kind: str
    circumstances: str
    seconds: float
    status: int
    last: str
    failed: tuple[str, ...]

    def told(self) -> str:
        """Return one line about it, and one for each test that failed."""
        verdict = "passed" if self.status == 0 else f"FAILED (status {self.status})"
        head = f"{self.kind:7}{verdict} in {self.seconds:.0f} s, {self.circumstances}: {self.last}"
        return "\n".join([head, *(f"        {name}" for name in self.failed)])


def circumstances(kind: str, seed: int, processors: int) -> tuple[str, dict[str, str], int]:
    """Return a kind's circumstances in words, as environment variables, and as a number of busy processes."""
    match kind:
        case "load":
            return f"{2 * processors} busy processes on {processors} processors", {}, 2 * processors
        case "order":
            return f"MUSTCALL_TEST_ORDER={seed}", {"MUSTCALL_TEST_ORDER": str(seed)}, 0
        case "stalls":
            return f"stopped for {_STOPS:g} s after every {_RUNS:g} s", {}, 0
        case _:
            return f"PYTHONHASHSEED={seed}", {"PYTHONHASHSEED": str(seed)}, 0


@contextmanager
def busy(count: int) -> Generator[list[subprocess.Popen[bytes]]]:
    """Keep so many processes busy, and yield them."""
    processes = [subprocess.Popen(_BUSY) for _ in range(count)]  # noqa: S603  this interpreter
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def stalled(group: int, runs: float = _RUNS, stops: float = _STOPS) -> Generator[None]:
    """Stop the processes of a group again and again; they run at the end, and have ended if there was an error."""
    over = threading.Event()

    def stall() -> None:
        while not over.wait(runs):
            os.killpg(group, signal.SIGSTOP)
            over.wait(stops)
            os.killpg(group, signal.SIGCONT)

    thread = threading.Thread(target=stall)
    thread.start()
    failed = True
    try:
        yield
        failed = False
    finally:
        over.set()
        thread.join()
        if failed:  # Ctrl-C reaches the group of the terminal, which is not theirs
            os.killpg(group, signal.SIGINT)


def prove(kind: str, seed: int, arguments: list[str]) -> Proof:
    """Run the tests once; what they print is passed on as it comes."""
    words, variables, count = circumstances(kind, seed, os.cpu_count() or 1)
    print(f"== {kind}: {words}", flush=True)
    began = time.monotonic()
    failed: list[str] = []
    last = "no summary"
    environment = {**os.environ, "CI": "true", **variables}
    with (
        busy(count),
        subprocess.Popen(  # noqa: S603  this interpreter
            [*_PYTEST, *arguments],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0 if kind == "stalls" else None,
        ) as tests,
        stalled(tests.pid) if kind == "stalls" else nullcontext(),
    ):
        assert tests.stdout is not None
        for line in tests.stdout:
            print(line, end="", flush=True)
            if found := _FAILED.match(line):
                failed.append(found[1])
            last = line.strip() or last
    return Proof(kind, words, time.monotonic() - began, tests.returncode, last, tuple(failed))


def main() -> int:
    """Run the proofs that were asked for, print the summary, return whether one failed."""
    asked = argparse.ArgumentParser(
        description="Run the tests under load, in another order, with other hashes, stopped again and again."
    )
    asked.add_argument("--only", choices=KINDS, help="one of the four runs")
    asked.add_argument("--seed", type=int, help="the seed of the order and of the hashes (default: another each time)")
    asked.add_argument("arguments", nargs="*", help="for pytest, behind --")
    given = asked.parse_args()
    seed = random.randrange(1, 2**32) if given.seed is None else given.seed  # noqa: S311  an order is no secret
    kinds = (given.only,) if given.only else KINDS
    proofs = [prove(kind, seed, given.arguments) for kind in kinds]
    print(f"\n== summary, seed {seed}")
    for proof in proofs:
        print(proof.told())
    return int(any(proof.status for proof in proofs))


if __name__ == "__main__":
    sys.exit(main())
