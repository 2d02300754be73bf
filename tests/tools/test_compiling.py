"""Bytecode that several processes write before the tests are collected."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from support import compiling
from support.compiling import compile_ahead
from support.forking import can_fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="processes are not forked here")

MANY = 24
EXECUTED = "import pathlib\npathlib.Path(__file__).with_suffix('.run').touch()\n"


def write(root: Path, count: int, extra: Mapping[str, str] = {}) -> list[Path]:
    """Write a checkout with so many files of tests, and return those."""
    files = {f"tests/test_{number}.py": f"{EXECUTED}def test_a(): assert {number} < 99\n" for number in range(count)}
    for name, text in {"src/package/__init__.py": EXECUTED, **files, **extra}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return [root / name for name in files]


def written(path: Path) -> dict[str, tuple[int, int]]:
    """Return what identifies the bytecode files of a source file."""
    folder = Path(cache_from_source(str(path))).parent
    return {one.name: (one.stat().st_ino, one.stat().st_mtime_ns) for one in folder.glob(f"{path.stem}.*.pyc")}


def test_the_bytecode_of_a_checkout(tmp_path: Path) -> None:
    """Everything is compiled as whoever imports it would, nothing is executed, and a second time nothing is done."""
    tests = write(tmp_path, MANY, {"tests/support/tool.py": EXECUTED})
    assert compile_ahead(tmp_path, 3, ()) == MANY + 2  # with `src` and the tool
    assert all("-pytest-" in name for test in tests for name in written(test))
    assert all(written(test) for test in tests)
    for plain in ("src/package/__init__.py", "tests/support/tool.py"):
        assert list(written(tmp_path / plain)) == [Path(cache_from_source(plain)).name]
    assert not [*tmp_path.rglob("*.run")]
    assert compile_ahead(tmp_path, 3, ()) == 0


def test_pytest_takes_it(tmp_path: Path) -> None:
    """What is written here is what pytest reads: it writes none of it again."""
    tests = write(tmp_path, MANY)
    compile_ahead(tmp_path, 2, ())
    before = [written(test) for test in tests]
    command = [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", "-p", "no:cacheprovider", "tests"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    ran = subprocess.run(  # noqa: S603  this interpreter
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert f"{MANY} passed" in ran.stdout, ran.stdout + ran.stderr
    assert [written(test) for test in tests] == before


def test_what_cannot_be_compiled_is_left(tmp_path: Path) -> None:
    """A file that is no Python is for whoever imports it; the others are compiled."""
    tests = write(tmp_path, MANY, {"tests/test_0.py": "def test_a(: ...\n", "tests/tool.py": "\0"})
    compile_ahead(tmp_path, 2, ())
    assert [bool(written(test)) for test in tests] == [False] + [True] * (MANY - 1)


def test_few_files_are_left(tmp_path: Path) -> None:
    """Processes would take longer to start."""
    assert compile_ahead(tmp_path, 2, ()) == 0
    (test,) = write(tmp_path, 1)
    assert compile_ahead(tmp_path, 2, ()) == 0
    assert not written(test)


def test_changed_files_are_compiled_again(tmp_path: Path) -> None:
    """Bytecode that is older than its source is of no use."""
    tests = write(tmp_path, MANY)
    compile_ahead(tmp_path, 2, ())
    later = time.time() + 9
    for test in tests[1:]:
        os.utime(test, (later, later))
    assert compile_ahead(tmp_path, 2, ()) == MANY  # one is as it was; `src` is looked at


def test_packages_that_are_compiled_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first run in a fresh environment compiles installed packages; one that is not there is no error."""
    write(tmp_path, MANY)
    package = tmp_path / "installed" / "fresh_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(EXECUTED)
    monkeypatch.syspath_prepend(package.parent)
    names = ("fresh_package", "no_such_package")
    assert compile_ahead(tmp_path, 2, names) == MANY + 2
    assert written(package / "__init__.py")
    for test in tmp_path.rglob("test_*.pyc"):
        test.unlink()
    assert compile_ahead(tmp_path, 2, names) == MANY + 1
    assert not [*tmp_path.rglob("*.run")]


def test_an_interruption_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends those that compile."""
    children: list[int] = []
    fork, waitpid = os.fork, os.waitpid

    def recorded() -> int:
        child = fork()
        children.append(child)
        return child

    def interrupted(*_: int) -> tuple[int, int]:
        monkeypatch.setattr(compiling.os, "waitpid", waitpid)
        raise KeyboardInterrupt

    monkeypatch.setattr(compiling.os, "fork", recorded)
    monkeypatch.setattr(compiling.os, "waitpid", interrupted)
    jobs: list[Callable[[], object]] = [partial(time.sleep, 600)] * 2
    with pytest.raises(KeyboardInterrupt):
        compiling._share(jobs, 2)
    assert len(children) == 2
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
