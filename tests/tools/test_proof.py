"""`make test-proof`: four runs in other circumstances, and a summary that names what failed."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

import proof
import pytest


def test_each_run_has_its_own_circumstances() -> None:
    """Twice as many busy processes as processors, a seed for the order, a seed for the hashes; nothing else differs."""
    told = {kind: proof.circumstances(kind, 7, 3)[1:] for kind in proof.KINDS}
    assert told == {
        "load": ({}, 6),
        "order": ({"MUSTCALL_TEST_ORDER": "7"}, 0),
        "hash": ({"PYTHONHASHSEED": "7"}, 0),
        "stalls": ({}, 0),
    }


def test_busy_processes_end_with_the_run() -> None:
    """They are there for so long as the tests run, also if that ends in an error."""
    with suppress(ZeroDivisionError), proof.busy(1) as processes:
        assert [process.poll() for process in processes] == [None]
        raise ZeroDivisionError
    assert [process.poll() for process in processes] == [-9]


def test_processes_are_stopped_and_run_on() -> None:
    """They run at the end, whatever the moment; an error, as Ctrl-C is one, ends them."""
    program = "import sys, time\nwhile True: print('on', flush=True); time.sleep(0.001)"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, process_group=0) as process:  # noqa: S603  this interpreter
        assert process.stdout is not None
        with proof.stalled(process.pid, runs=0.01, stops=0.01):
            while not os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT):
                pass
        os.waitid(os.P_PID, process.pid, os.WCONTINUED)
        assert process.stdout.readline() == b"on\n"
        with suppress(ZeroDivisionError), proof.stalled(process.pid):
            raise ZeroDivisionError
        assert process.wait() == -signal.SIGINT


@pytest.mark.parametrize(("failing", "status"), [((), 0), (("order",), 1)])
def test_the_summary_names_what_failed(
    failing: tuple[str, ...],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line for each run with its circumstances; the names of its failed tests; a status for CI."""

    def prove(kind: str, seed: int, arguments: list[str]) -> proof.Proof:
        assert arguments == ["tests/core"]
        words = proof.circumstances(kind, seed, 2)[0]
        bad = kind in failing
        return proof.Proof(kind, words, 61.0, int(bad), "3 passed", ("tests/a.py::test_b",) if bad else ())

    monkeypatch.setattr(proof, "prove", prove)
    monkeypatch.setattr("sys.argv", ["proof.py", "--seed", "9", "--", "tests/core"])
    assert proof.main() == status
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[0] == "== summary, seed 9"
    assert lines[1] == "load   passed in 61 s, 4 busy processes on 2 processors: 3 passed"
    if failing:
        assert lines[2:4] == [
            "order  FAILED (status 1) in 61 s, MUSTCALL_TEST_ORDER=9: 3 passed",
            "        tests/a.py::test_b",
        ]
    assert len(lines) == 5 + len(failing)
