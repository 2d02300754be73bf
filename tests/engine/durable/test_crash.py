"""Runs that are really killed: SIGKILL at random moments, at every point, and a process that sleeps past its lease.

`make soak` does the same for long.
"""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from support.crashing import Arena, Job, Seen, violations
from support.postgres import postgres_server

ROOT = Path(__file__).parents[3]


def crash(*arguments: str) -> str:
    """Run the crash test in a process without threads; return what it said."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(  # noqa: S603  our own script
        [sys.executable, str(ROOT / "tools" / "crash.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_killed_runs_lose_nothing_and_repeat_nothing_on_sqlite() -> None:
    """0 lost steps, 0 tools run twice, `unknown` exactly where the witness says so; a zombie is stopped."""
    said = crash("--runs", "6", "--points", "--zombies", "1")
    assert "6 runs" in said
    assert "0 violations" in said


def test_killed_runs_lose_nothing_and_repeat_nothing_on_postgres() -> None:
    """The same on a real PostgreSQL."""
    said = crash("--runs", "4", "--zombies", "1", "--database", postgres_server().new_database())
    assert "4 runs" in said
    assert "0 violations" in said


@pytest.mark.parametrize(
    ("status", "lines", "problem"),
    [
        ("ok", ["begin 0.0", "effect 0.0", "end 0.0"], ""),
        ("unknown", ["begin 0.0", "effect 0.0"], ""),
        ("ok", ["begin 0.0", "effect 0.0", "effect 0.0", "end 0.0"], "acted twice"),
        ("ok", [], "said to be done and was not"),
        ("ok", ["begin 0.0", "effect 0.0"], "interrupted and not unknown"),
        ("failed", ["begin 0.0", "effect 0.0", "end 0.0"], "said to be done and was not"),
        ("ok", ["model 1", "model 1", "begin 0.0", "effect 0.0", "end 0.0"], "paid again"),
    ],
)
def test_the_judge_sees_what_went_wrong(tmp_path: Path, status: str, lines: list[str], problem: str) -> None:
    """The crash test can fail: a witness that tells otherwise than the run is a violation."""
    job = Job(run_id="r", place="", folder=str(tmp_path), steps=((("pay", "0.0"),),))
    fences = (("m0/c0", 0, "intent", 1), ("m0/c0", 0, "result", 2 if status == "unknown" else 1))
    seen = Seen(text="All done.", statuses={"0.0": status}, calls=1, turns=2, events=fences)
    job.report.write_bytes(msgspec.json.encode(seen))
    job.witness.write_text("\n".join(lines))
    found = violations(job, 0)
    assert [problem in each for each in found] == [True] * len(found)
    assert bool(found) == bool(problem)


def test_a_run_that_never_ends_is_seen(tmp_path: Path) -> None:
    """No report is a violation too, and so is a step that is missing from one."""
    job = Arena("", tmp_path).job(1)
    assert "never finished" in violations(job, 0)[0]
    job.report.write_bytes(msgspec.json.encode(Seen(text="", statuses={}, calls=0, turns=0, events=())))
    assert "steps are lost" in violations(job, 0)[0]
