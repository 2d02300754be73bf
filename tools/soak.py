"""Run the adversarial contract for long: 100,000 turns, or with `--seed N` one turn again, told in full.

Turns are the numbers from `--first` on, in shards that each start an upstream and a gateway of their own. With `--warm`
a gateway serves ten times as many turns, and trusts the arguments of every model from the first one on, as after a long
clean record: calls flow while they arrive, until the liar is caught. Ctrl-C ends the run after the shards under way.
The exit status is 1 if any turn violated the contract.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from contract.running import Report, open_arena, run_turns

_SHARD = 180
_WARM_SHARD = 1_800
_SHOWN = 2000


@dataclass
class Tally:
    """What a shard, or the whole run, came to."""

    turns: int = 0
    requests: int = 0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    violations: list[str] = field(default_factory=list[str])

    def add(self, report: Report) -> None:
        """Count one turn."""
        self.turns += 1
        self.requests += len(report.requests)
        self.outcomes["calls" if report.outcome.calls else report.outcome.kind] += 1
        if report.violations:
            self.violations.append(report.explain())

    def merge(self, other: "Tally") -> None:
        """Add a shard."""
        self.turns += other.turns
        self.requests += other.requests
        self.outcomes += other.outcomes
        self.violations += other.violations


def run_shard(first: int, count: int, *, warm: bool = False) -> Tally:
    """Run so many turns on a fresh gateway."""
    tally = Tally()
    with open_arena(trusting=warm) as arena:
        asyncio.run(run_turns(arena, range(first, first + count), tally.add))
    return tally


def replay(seed: int, *, warm: bool = False) -> int:
    """Run one turn and print everything about it: what was asked, answered, and handed on."""
    reports: list[Report] = []
    with open_arena(trusting=warm) as arena:
        asyncio.run(run_turns(arena, [seed], reports.append))
    report = reports[0]
    print(report.explain())
    for number, request in enumerate(report.requests):
        print(f"\nupstream request {number}:\n{request.raw.decode('utf-8', 'replace')[:_SHOWN]}")
        print(f"answered with:\n{str(request.answer)[:_SHOWN]}")
    print(f"\nthe caller got:\n{bytes(report.outcome.capture.body).decode('utf-8', 'replace')[:_SHOWN]}")
    return 1 if report.violations else 0


def soak(turns: int, first: int, jobs: int, *, warm: bool = False) -> int:
    """Run the turns on several processes, with a line of progress; return the exit status."""
    total, started = Tally(), time.monotonic()
    size = _WARM_SHARD if warm else _SHARD
    shards = iter((at, min(size, first + turns - at)) for at in range(first, first + turns, size))
    run = partial(run_shard, warm=warm)
    stopped = False
    with ProcessPoolExecutor(jobs, initializer=_ignore_interrupts) as pool:
        waiting = {pool.submit(run, *shard) for shard in islice(shards, jobs)}
        while waiting:
            try:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            except KeyboardInterrupt:
                stopped = True
                _tell("\nstopping after the turns under way …\n")
                continue
            for future in done:
                _take(future, total)
            if not stopped:
                waiting |= {pool.submit(run, *shard) for shard in islice(shards, len(done))}
            _show(total, turns, time.monotonic() - started)
    _tell("\n")
    print(f"{total.turns:,} turns, {total.requests:,} upstream requests, outcomes {dict(total.outcomes)}")
    print(f"{len(total.violations)} turns violated the contract")
    return 1 if total.violations else 0


def _take(future: Future[Tally], total: Tally) -> None:
    tally = future.result()
    total.merge(tally)
    for violation in tally.violations:
        _tell("\r\033[K" if sys.stderr.isatty() else "")
        print(violation, flush=True)


def _show(total: Tally, turns: int, seconds: float) -> None:
    rate = total.turns / max(seconds, 0.001)
    left = (turns - total.turns) / max(rate, 0.001)
    part = int(30 * total.turns / max(turns, 1))
    bar = "#" * part + "." * (30 - part)
    _tell(
        f"\r[{bar}] {total.turns:,}/{turns:,} turns, {rate:.0f}/s, {left / 60:.0f} min left, "
        f"{len(total.violations)} violations "
    )


def _tell(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the parent, which lets the shards under way end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Run the adversarial contract test for long, or one turn of it again.")
    parser.add_argument("--turns", type=int, default=100_000, help="how many turns (default 100000)")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first turn (default 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    parser.add_argument("--seed", type=int, help="replay this one turn and print everything about it")
    parser.add_argument("--warm", action="store_true", help="gateways that serve for longer and trust every model")
    options = parser.parse_args()
    if options.seed is not None:
        return replay(options.seed, warm=options.warm)
    return soak(options.turns, options.first, options.jobs, warm=options.warm)


if __name__ == "__main__":
    sys.exit(main())
