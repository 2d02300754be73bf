"""Prove that the tests depend on nothing but the code: run all of them three times, each time in other circumstances.

`load` keeps every processor busy twice over beside them, `order` runs them in another order, `hash` changes the hashes
of strings. The seed is drawn anew each time and printed; `--seed N` runs with that one again. `--only load` runs one of
the three. What follows `--` is given to pytest (`-- tests/engine`). The last lines are the summary, and the exit status
is 1 if a test failed in any run.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_PYTEST = (sys.executable, "-m", "pytest", "--workers", "auto", "-q")
_BUSY = (sys.executable, "-c", "while True: pass")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)")
KINDS = ("load", "order", "hash")


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
        head = f"{self.kind:6}{verdict} in {self.seconds:.0f} s, {self.circumstances}: {self.last}"
        return "\n".join([head, *(f"        {name}" for name in self.failed)])


def circumstances(kind: str, seed: int, processors: int) -> tuple[str, dict[str, str], int]:
    """Return a kind's circumstances in words, as environment variables, and as a number of busy processes."""
    match kind:
        case "load":
            return f"{2 * processors} busy processes on {processors} processors", {}, 2 * processors
        case "order":
            return f"MUSTCALL_TEST_ORDER={seed}", {"MUSTCALL_TEST_ORDER": str(seed)}, 0
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
            [*_PYTEST, *arguments], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, errors="replace"
        ) as tests,
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
    asked = argparse.ArgumentParser(description="Run the tests under load, in another order, with other hashes.")
    asked.add_argument("--only", choices=KINDS, help="one of the three runs")
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
