"""Bytecode that several processes write before one of them collects the tests.

A fresh checkout has none. Compiling it takes two thirds of the time for collecting, in which one process works while
the other processors wait; on a busy machine it has the share of a single process. What is compiled already is left.
"""

import compileall
import os
import py_compile
import signal
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import cache_from_source, find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from _pytest.assertion.rewrite import AssertionRewritingHook

__all__ = ["compile_ahead"]

#: Packages that the tests import nearly whole, the largest first.
PACKAGES = ("anthropic", "pydantic_ai", "sqlalchemy", "agents", "langchain_core", "pydantic", "mcp", "dbos", "aiohttp")
#: So many processes get a share of a busy machine; a quiet one is not slower for them.
_PROCESSES = 8
#: Fewer files than this are compiled sooner than processes are forked.
_FEW = 20
_NUMBER = struct.Struct("H")


def compile_ahead(root: Path, processes: int = _PROCESSES, packages: Iterable[str] = PACKAGES) -> int:
    """Compile packages, and what is under `src` and `tests` of a checkout; return how many jobs there were.

    Whatever cannot be compiled is left to whoever imports it.
    """
    files = [*_stale(root / "tests")]
    if len(files) < _FEW:
        return 0
    folders = [*_uncompiled(packages), root / "src"]
    jobs: list[Callable[[], object]] = [partial(compileall.compile_dir, folder, quiet=2) for folder in folders]
    jobs += [partial(_compile, path) for path in sorted(files, key=lambda path: -path.stat().st_size)]
    _share(jobs, processes)
    return len(jobs)


def _uncompiled(packages: Iterable[str]) -> Iterator[Path]:
    for name in packages:
        spec = find_spec(name)
        if spec is not None and spec.origin is not None and not Path(cache_from_source(spec.origin)).exists():
            yield Path(spec.origin).parent


def _stale(folder: Path) -> Iterator[Path]:
    """Yield the files of the tests whose bytecode is not there or is older than they are."""
    for path in folder.rglob("*.py"):
        kept = Path(cache_from_source(str(path)))
        written = list(kept.parent.glob(f"{path.stem}.{sys.implementation.cache_tag}*.pyc"))
        if not written or max(one.stat().st_mtime for one in written) < path.stat().st_mtime:
            yield path


def _compile(path: Path) -> None:
    """Compile one file as whoever imports it would: pytest's own loader writes what it has made of a test."""
    hook = next((one for one in sys.meta_path if isinstance(one, AssertionRewritingHook)), None)
    if hook is None or not path.name.startswith(("test_", "conftest.")):
        py_compile.compile(str(path), quiet=2)
        return
    module: Any = ModuleType(path.stem)
    module.__spec__ = spec_from_file_location(path.stem, path, loader=hook)
    # The loader executes what it has compiled. Without `__import__` that ends at the first statement.
    module.__builtins__ = {}
    with suppress(ImportError):
        hook.exec_module(module)


def _share(jobs: Sequence[Callable[[], object]], processes: int) -> None:
    """Do jobs in forked processes, each of which takes the next one when it is done."""
    reading, writing = os.pipe()
    os.write(writing, b"".join(map(_NUMBER.pack, range(len(jobs)))))
    os.close(writing)
    running: list[int] = []
    try:
        for _ in range(min(processes, len(jobs))):
            child = os.fork()
            if not child:
                try:
                    while number := os.read(reading, _NUMBER.size):
                        with suppress(Exception):
                            jobs[_NUMBER.unpack(number)[0]]()
                finally:
                    os._exit(0)
            running.append(child)
        while running:
            os.waitpid(running[-1], 0)
            running.pop()
    finally:
        os.close(reading)
        for child in running:  # somebody pressed Ctrl-C
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
