"""Kill durable runs and go on with them, until each has ended; say what was lost or done twice, and exit 1 if any was.

`--runs N` are killed with SIGKILL at random moments, up to `--kills` times each; `--points` strikes one run before and
after every write of its journal and every effect; `--zombies N` are stopped past their lease, overtaken, and woken up.
The ledger is a new SQLite file, `--database URL`, or with `--postgres` a PostgreSQL server started for this.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.crashing import (
    AGAIN,
    AWAY,
    BROKEN,
    DONE,
    LOST,
    ONCE,
    Arena,
    Job,
    count_points,
    finish,
    launch,
    told,
    violations,
    warm_up,
)

#: Seconds; a zombie sleeps for longer.
_ZOMBIE_LEASE = 0.6


def strike_at_random(job: Job, dice: random.Random, kills: int, span: float) -> tuple[int, list[str]]:
    """Kill a run up to so many times at random moments; return how often it was killed, and what is wrong."""
    killed = 0
    for number in range(kills):
        pid = launch(job)
        if number % 2:
            time.sleep(dice.random() * span)
        else:
            _follow(job, pid, dice)
        os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code == DONE:
            break
        killed += 1
    else:
        finish(job)
    return killed, violations(job, killed)


def _follow(job: Job, pid: int, dice: random.Random) -> None:
    """Wait until the witness has told so much, however fast the machine is today, and a moment longer."""
    most = 3 * len(job.keys) + len(job.steps)
    wanted = dice.randint(0, most)
    while told(job) < wanted and not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        time.sleep(0.001)
    time.sleep(dice.random() * 0.005)


def strike_everywhere(arena: Arena, seed: int) -> tuple[int, list[str]]:
    """Kill one run at each of its points, a new one for each; return how many points there were."""
    points = count_points(arena.job(seed))
    wrong = violations(arena.job(seed), 0)
    for at in range(1, points + 1):
        job = arena.job(seed)
        job = Job(
            run_id=f"{job.run_id}at{at}", place=job.place, folder=job.folder, steps=job.steps, lease=job.lease, pace=0.0
        )
        os.waitpid(launch(job, at=at), 0)
        finish(job)
        wrong += violations(job, 1)
    return points, wrong


def wake_a_zombie(job: Job, at: int, *, effects: bool) -> tuple[bool, list[str]]:
    """Stop a run somewhere, let another process take it over once its lease is over, and wake the first one up."""
    pid = launch(job, at=at, blow=signal.SIGSTOP, effects=effects)
    _, status = os.waitpid(pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        return False, violations(job, 0)
    time.sleep(job.lease * 1.2)
    while (code := finish(job)) not in (DONE, BROKEN, AWAY):
        time.sleep(0.05)
    os.kill(pid, signal.SIGCONT)
    woken = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == AWAY:  # it fell asleep with the lock of SQLite's file in its hand: nobody could overtake it
        finish(job)
    wrong = violations(job, 1)
    if woken != LOST and code != AWAY:
        wrong.append(f"{job.run_id}: the zombie ended with {woken}")
    return woken == LOST, wrong


def _usual_seconds(arena: Arena) -> float:
    """Return how long a run takes that nobody disturbs."""
    times: list[float] = []
    for seed in range(3):
        began = time.monotonic()
        count_points(arena.job(seed))
        times.append(time.monotonic() - began)
    return sorted(times)[1]


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--points", action="store_true")
    parser.add_argument("--zombies", type=int, default=0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--database", default=None)
    parser.add_argument("--postgres", action="store_true")
    asked = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    dice = random.Random(seed)  # noqa: S311  no cryptography
    folder = Path(tempfile.mkdtemp(prefix="mustcall-crash-"))
    place = asked.database or str(folder / "ledger.db")
    if asked.postgres:
        from support.postgres import postgres_server  # noqa: PLC0415  a server only where one is asked for

        place = postgres_server().new_database()
    kind = "postgres" if place.startswith("postgres") else "sqlite"
    wrong: list[str] = []
    arena = Arena(place, folder)
    warm_up()
    began = time.monotonic()
    span = _usual_seconds(arena)
    tally: Counter[str] = Counter()
    for number in range(1, asked.runs + 1):
        killed, found = strike_at_random(arena.job(seed + number), dice, asked.kills, span)
        tally += {"runs": 1, "kills": killed}
        tally["unknown"] += (folder / f"run{seed + number}.json").read_text().count('"unknown"') if not found else 0
        wrong += found
    if asked.points:
        struck, found = strike_everywhere(Arena(place, folder, pace=0.0), 10**7 + seed)
        tally["points"] = struck
        wrong += found
    for number in range(asked.zombies):
        # In the middle of an effect nothing can stop a process that sleeps: it acts when it wakes up. Calls of one step
        # run together, so that one of them may be there wherever the process is stopped. A tool that is run again
        # because it was not seen to act is therefore left out.
        job = Arena(place, folder, lease=_ZOMBIE_LEASE, tools=(*ONCE, AGAIN)).job(2 * 10**7 + seed + number)
        stopped, found = wake_a_zombie(job, dice.randint(2, 7), effects=bool(number % 2))
        tally += {"zombies": 1, "fenced": int(stopped)}
        wrong += found
    seconds = time.monotonic() - began
    said = ", ".join(f"{count} {what}" for what, count in tally.items())
    print(f"{kind}, seed {seed}: {said} in {seconds:.1f} s; {len(wrong)} violations")
    print("\n".join(wrong))
    if wrong:
        print(f"kept in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
