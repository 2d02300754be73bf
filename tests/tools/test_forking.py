"""Tests in forked workers: each test runs once and is reported as it would be in one process."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import forking
from support.forking import can_fork, runnable, shares, usual_workers

SUPPORT = Path(__file__).parents[1]
#: The plugin in a project of its own, without the other plugins and the settings of this one.
CONFTEST = """
    import pytest
    from support.forking import Forking

    def pytest_addoption(parser):
        parser.addoption("--workers", type=int, default=3)

    def pytest_configure(config):
        config.pluginmanager.register(Forking(config.getoption("--workers")), "forking")

    def pytest_sessionfinish(session):
        if hasattr(session.config, "workerinput"):
            with open("finished", "a") as file:
                file.write("worker\\n")
"""
#: No test depends on speed; this only ends one that hangs.
PATIENCE = 180

pytestmark = pytest.mark.skipif(not can_fork(), reason="--workers starts pytest-xdist here")

Project = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Start pytest on these modules, with these arguments."""
    (tmp_path / "conftest.py").write_text(dedent(CONFTEST), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")

    def start(*arguments: str, **modules: str) -> "subprocess.Popen[str]":
        for name, text in modules.items():
            (tmp_path / f"test_{name}.py").write_text(dedent(text), encoding="utf-8")
        return subprocess.Popen(  # noqa: S603  this interpreter
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "t"), *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(SUPPORT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )

    return start


def ended(started: "subprocess.Popen[str]") -> str:
    """Wait for its end and return what it printed."""
    output, _ = started.communicate(timeout=PATIENCE)
    return output


def counts(output: str) -> dict[str, int]:
    """Return what the last line counts."""
    last = output.rsplit("\n", 2)[1].partition(" in ")[0]
    return {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", last)}


def until(path: Path) -> str:
    """Wait for a file with a line in it; return the line."""
    for _ in range(PATIENCE * 100):
        if path.exists() and (text := path.read_text()).endswith("\n"):
            return text.strip()
        time.sleep(0.01)
    raise AssertionError(f"{path.name} was not written")


@given(st.integers(0, 500), st.integers(1, 20), st.sets(st.integers(1, 500)))
def test_shares_are_all_tests_once(count: int, workers: int, borders: set[int]) -> None:
    """They follow each other without a gap, none is empty, and the last ones are single tests."""
    found = list(shares(count, workers, borders))
    assert [at for share in found for at in share] == list(range(count))
    assert all(found)
    assert all(len(share) == 1 for share in found[-min(workers, len(found)) :])
    for share, following in pairwise(found):
        longest = max(1, (count - share.start) // (workers * 4))
        assert len(share) <= longest
        inside = {at for at in borders if share.start + longest // 2 < at <= share.start + longest}
        assert not inside or following.start == max(inside)


def test_long_tests_begin_first() -> None:
    """Each file of them is a run of its own; what follows is shared out as if it were all."""
    borders = {3, 5, 9, 20, 40}
    found = list(shares(40, 2, borders, 9))
    assert found[:3] == [range(3), range(3, 5), range(5, 9)]
    rest = shares(31, 2, {at - 9 for at in borders})
    assert [range(share.start - 9, share.stop - 9) for share in found[3:]] == list(rest)
    assert list(shares(9, 2, {3, 5, 9}, 9)) == found[:3]


def test_every_outcome_is_reported(project: Project, tmp_path: Path) -> None:
    """Passed, failed with its traceback and output, in error, skipped, expected to fail: once each."""
    started = project(
        "-rA",
        "--durations=1",
        "-vv",
        outcomes="""
            import os, sys, warnings
            import pytest

            @pytest.mark.parametrize("number", range(40))
            def test_passes(number, record_property):
                with open("pids", "a") as file:
                    file.write(f"{number} {os.getpid()}\\n")

            def test_fails():
                print("said before")
                assert [1, 2] == [1, 3]

            @pytest.fixture
            def broken():
                raise OSError("no disk")

            def test_in_error(broken): ...

            @pytest.fixture
            def ends_badly():
                yield
                raise OSError("end of disk")

            def test_passes_and_ends_badly(ends_badly): ...

            @pytest.mark.skip(reason="not here")
            def test_skipped(): ...

            @pytest.mark.xfail(reason="known")
            def test_expected():
                assert False

            def test_warns():
                warnings.warn("old thing", DeprecationWarning)

            def test_has_a_property(record_property):
                record_property("colour", "green")
        """,
    )
    output = ended(started)
    assert started.returncode == 1
    assert counts(output) == {"failed": 1, "passed": 43, "skipped": 1, "xfailed": 1, "warning": 1, "errors": 2}, output
    for words in ("said before", "assert [1, 2] == [1, 3]", "OSError: no disk", "OSError: end of disk", "old thing"):
        assert words in output
    lines = [line.split() for line in (tmp_path / "pids").read_text().splitlines()]
    assert sorted(int(number) for number, _ in lines) == list(range(40))
    processes = {int(pid) for _, pid in lines}
    assert len(processes) > 1
    assert started.pid not in processes
    assert (tmp_path / "finished").read_text().splitlines() == ["worker"] * 3


def test_fixtures_of_a_module_are_kept_between_its_tests(project: Project, tmp_path: Path) -> None:
    """One is made once in a worker for tests that follow each other, and ended before the worker ends."""
    module = """
        import os
        import pytest

        @pytest.fixture(scope="module")
        def server(tmp_path_factory):
            folder = tmp_path_factory.mktemp("server")
            with open("log", "a") as file:
                file.write(f"made {os.getpid()} {folder}\\n")
            yield folder
            with open("log", "a") as file:
                file.write(f"ended {os.getpid()} {folder}\\n")

        @pytest.mark.parametrize("number", range(30))
        def test_uses(server, number):
            assert server.exists()
    """
    output = ended(project("--workers", "2", one=module, two=module))
    assert counts(output) == {"passed": 60}
    lines = (tmp_path / "log").read_text().splitlines()
    made = [line.removeprefix("made ") for line in lines if line.startswith("made ")]
    gone = [line.removeprefix("ended ") for line in lines if line.startswith("ended ")]
    assert sorted(made) == sorted(gone)
    assert len(set(made)) == len(made)  # no two workers have one folder
    assert 2 <= len(made) < 60


def test_a_worker_that_dies_fails_its_test_only(project: Project, tmp_path: Path) -> None:
    """What it was handed besides is run by another one, and the run ends."""
    output = ended(
        project(
            "-rN",
            dies="""
                import os, signal
                import pytest

                @pytest.mark.parametrize("number", range(40))
                def test_all(number):
                    with open("ran", "a") as file:
                        file.write(f"{number}\\n")
                    if number in (0, 7, 39):
                        os.kill(os.getpid(), signal.SIGKILL)
            """,
        )
    )
    assert counts(output) == {"failed": 3, "passed": 37}
    assert output.count("the worker ended with signal SIGKILL in this test") == 3
    assert sorted(map(int, (tmp_path / "ran").read_text().split())) == list(range(40))


def test_the_first_failure_can_end_the_run(project: Project, tmp_path: Path) -> None:
    """With `-x` nothing more is begun, and what was set up is ended."""
    output = ended(
        project(
            "-x",
            stops="""
                import time
                import pytest

                @pytest.fixture(scope="module")
                def held():
                    yield
                    with open("ended", "a") as file:
                        file.write("ended\\n")

                @pytest.mark.parametrize("number", range(200))
                def test_all(number, held):
                    time.sleep(0.01)
                    assert number
            """,
        )
    )
    found = counts(output)
    assert found["failed"] == 1
    assert found.get("passed", 0) < 199
    assert "stopping after 1 failures" in output
    assert (tmp_path / "ended").read_text().splitlines() == ["ended"] * 3
    assert (tmp_path / "finished").read_text().splitlines() == ["worker"] * 3


TWO = "def test_a(): ...\ndef test_b(): ...\n"
WAITS = """
    import os, time
    import pytest

    @pytest.fixture(scope="session")
    def held():
        yield
        with open("ended", "a") as file:
            file.write("ended\\n")

    @pytest.mark.parametrize("number", range(2))
    def test_waits(number, held):
        with open(f"began{number}", "a") as file:
            file.write(f"{os.getpid()}\\n")
        while True:
            time.sleep(0.01)
            if os.path.exists("gone"):
                break
"""


@pytest.mark.parametrize("terminal", [True, False])
def test_ctrl_c_ends_workers_and_their_fixtures(project: Project, tmp_path: Path, terminal: bool) -> None:
    """Whether a terminal tells the whole process group or somebody tells only the first process."""
    started = project("--workers", "2", waits=WAITS)
    workers = [int(until(tmp_path / f"began{number}")) for number in (0, 1)]
    (os.killpg if terminal else os.kill)(started.pid, signal.SIGINT)
    output = ended(started)
    assert started.returncode == 2
    assert "KeyboardInterrupt" in output
    assert "Traceback" not in output
    assert (tmp_path / "ended").read_text().splitlines() == ["ended"] * 2
    assert (tmp_path / "finished").read_text().splitlines() == ["worker"] * 2
    for pid in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_test_that_takes_ctrl_c_for_itself_is_the_last_one(project: Project, tmp_path: Path) -> None:
    """The worker begins no other, and ends what it has set up."""
    started = project(
        "--workers",
        "2",
        deaf="""
            import os, signal, time
            import pytest

            @pytest.mark.parametrize("number", range(40))
            def test_all(number):
                signal.signal(signal.SIGINT, lambda *_: open("gone", "w").close())
                with open("began", "a") as file:
                    file.write(f"{number}\\n")
                while not os.path.exists("gone"):
                    time.sleep(0.01)
        """,
    )
    while len(until(tmp_path / "began").split()) < 2:
        time.sleep(0.01)
    started.send_signal(signal.SIGINT)
    ended(started)
    assert len((tmp_path / "began").read_text().split()) == 2
    assert (tmp_path / "finished").read_text().splitlines() == ["worker"] * 2


def test_workers_end_with_their_killed_parent(project: Project, tmp_path: Path) -> None:
    """They notice it at the end of a test, and end what they have set up."""
    started = project("--workers", "2", waits=WAITS)
    for number in (0, 1):
        until(tmp_path / f"began{number}")
    started.kill()
    (tmp_path / "gone").touch()
    ended(started)  # its output ends with the last process that has it
    assert (tmp_path / "ended").read_text().splitlines() == ["ended"] * 2
    assert (tmp_path / "finished").read_text().splitlines() == ["worker"] * 2


@pytest.mark.parametrize(
    ("stops", "status", "words"),
    [
        ("request.session.shouldstop = 'enough'", 2, "enough"),
        ("raise KeyboardInterrupt", 2, "KeyboardInterrupt"),
        ("pytest.exit('no licence', returncode=7)", 7, "no licence"),
    ],
    ids=["stop", "interrupt", "exit"],
)
def test_a_test_can_end_the_run(project: Project, tmp_path: Path, stops: str, status: int, words: str) -> None:
    """The status says so, as it does in one process; every worker ends what it has set up."""
    started = project(
        stopping=f"""
            import time
            import pytest

            @pytest.mark.parametrize("number", range(100))
            def test_all(request, number):
                time.sleep(0.01)
                if number == 20:
                    {stops}
        """
    )
    output = ended(started)
    assert started.returncode == status, output
    assert words in output
    assert "Traceback" not in output
    assert (tmp_path / "finished").read_text().splitlines() == ["worker"] * 3


def test_a_child_of_a_test_holds_nothing_up(project: Project, tmp_path: Path) -> None:
    """A process that a test has forked, and that lives on, has the worker's pipe; its end is noticed all the same."""
    started = project(
        lasting="""
            import os, time
            import pytest

            @pytest.mark.parametrize("number", range(6))
            def test_all(number):
                if os.fork() == 0:
                    os.close(1)
                    os.close(2)
                    while not os.path.exists("gone"):
                        time.sleep(0.01)
                    os._exit(0)
                assert number != 3 or os.kill(os.getpid(), 9)
        """
    )
    assert started.wait(PATIENCE) == 1
    (tmp_path / "gone").touch()
    assert counts(ended(started)) == {"failed": 1, "passed": 5}


def test_what_fails_after_the_last_test_is_an_error(project: Project, tmp_path: Path) -> None:
    """A test that passed stays so; what follows the end of a fixture or a plugin that fails is done all the same."""
    conftest = (tmp_path / "conftest.py").read_text()
    (tmp_path / "conftest.py").write_text(conftest + "        raise OSError('disk is full')\n")
    started = project("--workers", "2", late=TWO)
    output = ended(started)
    assert started.returncode == 1
    assert counts(output) == {"passed": 2, "errors": 2}
    assert "OSError: disk is full" in output
    assert (tmp_path / "finished").read_text().splitlines() == ["worker"] * 2


def test_what_cannot_be_pickled_is_told_by_its_text(project: Project, tmp_path: Path) -> None:
    """A property, a warning whose class takes two words, one whose class is a test's own."""
    output = ended(
        project(
            "--junitxml=report.xml",
            "-ojunit_family=xunit1",
            odd="""
                import warnings

                class Two(UserWarning):
                    def __init__(self, a, b):
                        super().__init__(f"{a} and {b}")

                def test_property(record_property):
                    record_property("kept", lambda: 0)

                def test_two():
                    warnings.warn(Two("salt", "pepper"))

                def test_local():
                    class Local(UserWarning): ...
                    warnings.warn(Local("at home"))
            """,
        )
    )
    assert counts(output) == {"passed": 3, "warnings": 2}
    assert "salt and pepper" in output
    assert "at home" in output
    assert "&lt;lambda&gt;" in (tmp_path / "report.xml").read_text()


def test_what_plugins_add_to_a_report_arrives(project: Project, tmp_path: Path) -> None:
    """Also where the test passed and said nothing."""
    hooks = """
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_makereport(item):
            report = yield
            report.colour = "green"
            return report

        def pytest_terminal_summary(terminalreporter):
            print("colours", len([r for r in terminalreporter.stats["passed"] if getattr(r, "colour", "") == "green"]))
    """
    (tmp_path / "conftest.py").write_text(dedent(CONFTEST) + dedent(hooks))
    assert "colours 5" in ended(project(plain="\n".join(f"def test_{n}(): ..." for n in range(5))))


@pytest.mark.parametrize("option", ["-s", "--setup-show", "--trace", "--pdb"])
def test_who_watches_has_one_process(project: Project, tmp_path: Path, option: str) -> None:
    """What needs the terminal runs in the process that has it."""
    tests = "import os\ndef test_a(): open('pid', 'w').write(f'{os.getpid()}\\n')\ndef test_b(): ...\n"
    started = project(option, watched=tests)
    started.communicate("c\nc\n", timeout=PATIENCE)
    assert int(until(tmp_path / "pid")) == started.pid


def test_threads_are_refused(project: Project) -> None:
    """A forked process would not have them, and what they hold would be held for ever."""
    started = project(threads="import threading, time\nthreading.Thread(target=time.sleep, args=(1,)).start()\n" + TWO)
    assert "has started threads" in ended(started)
    assert started.returncode == 4


@pytest.mark.parametrize(
    ("forks", "others", "workers"),
    [(True, 3, 4), (True, 4, 12), (True, 8, 16), (True, 50, 20), (False, 99, 4)],
)
def test_there_are_more_workers_where_other_programs_run(
    monkeypatch: pytest.MonkeyPatch, forks: bool, others: int, workers: int
) -> None:
    """Two more than processors; twelve to twenty where those are busy, as processes cost little that are forked."""
    monkeypatch.setattr(forking, "processors", lambda: 2)
    monkeypatch.setattr(forking, "can_fork", lambda: forks)
    monkeypatch.setattr(forking, "runnable", lambda: others)
    assert usual_workers() == workers


def test_programs_that_run_are_counted() -> None:
    """Those that run while they are counted, whatever the average of the last minute is."""
    command = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(command) for _ in range(9)]  # noqa: S603  this interpreter
    until = time.monotonic() + PATIENCE
    try:
        while (seen := runnable()) < 9:
            assert time.monotonic() < until, f"{seen} of 9 are seen"
    finally:
        for one in busy:
            one.kill()
            one.wait()
