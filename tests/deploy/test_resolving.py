"""The locks can be installed from wheels alone, on every system and Python that is promised; gaps stand in a table."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from functools import cache
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN, DEV, IMAGE = "requirements.lock", "requirements-dev.lock", "requirements-image.lock"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LINUX, LINUX_ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
MAC_ARM, MAC_INTEL = "aarch64-apple-darwin", "x86_64-apple-darwin"
WINDOWS, WINDOWS_ARM = "x86_64-pc-windows-msvc", "aarch64-pc-windows-msvc"
PLATFORMS = (LINUX, LINUX_ARM, MAC_ARM, MAC_INTEL, WINDOWS, WINDOWS_ARM)

#: Where a lock cannot be installed, on any Python: the package without a wheel, what brings it. `tools/setup`
#: leaves out the engine of the embedded model where it has none, and names any other; docs/install.md has the same.
MISSING = {
    (DEV, MAC_INTEL): "cryptography",  # of mcp, for the tests: running does not need it
    (DEV, WINDOWS_ARM): "cryptography",
    (RUN, WINDOWS_ARM): "xllamacpp",  # the extra `local`
}
#: The lock of the image is for Linux; the lock for running is part of the one for the tests, and is asked for by itself
#: only where that one has a gap.
CASES = [
    *product((DEV,), PLATFORMS, PYTHONS),
    *product((RUN,), (MAC_INTEL, WINDOWS_ARM), PYTHONS),
    *product((IMAGE,), (LINUX, LINUX_ARM), ("3.13",)),
]


def pins(lock: str) -> dict[str, str]:
    """The packages of a lock with their versions."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE))


Done = subprocess.CompletedProcess[str]
Running = subprocess.Popen[str]


@cache
def uv() -> str | None:
    """The resolver, where it can be had."""
    return shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))


OFFLINE = re.compile(r"Failed to fetch|error sending request|[Nn]etwork connectivity is disabled")


@pytest.fixture(scope="module")
def resolved() -> Generator[Callable[[str, str, str], Done]]:
    """What resolving each case came to. The first asks the index, the others what the first has learnt from it."""
    asked = cache(lambda: ended(started(*CASES[0])))
    ahead: dict[int, Running] = {}

    @cache
    def result(*case: str) -> Done:
        if case == CASES[0] or OFFLINE.search(asked().stderr):
            return asked()
        number = CASES.index(case)  # pyrefly: ignore[bad-argument-type]
        for later in range(number, min(number + 4, len(CASES))):
            if later not in ahead:
                ahead[later] = started(*CASES[later], "--offline")
        done = ended(ahead.pop(number))
        # No two systems need the same packages, and one that was never asked for has no versions offline. What the
        # table names is in the first lock: the index was just asked for its wheels.
        return done if done.returncode == 0 or tells_gap(done, case) else ended(started(*case))

    yield result
    for running in ahead.values():  # of tests that were not run
        running.kill()
        ended(running)


def started(lock: str, platform: str, python: str, *more: str) -> Running:
    """Begin to resolve a lock for a system and a Python that need not be here, from wheels only."""
    return subprocess.Popen(  # noqa: S603  the resolver that set this environment up
        [
            *(str(uv()), "pip", "compile", "--quiet", "--no-deps", "--no-header", "--no-annotate"),
            *("--python", sys.executable, "--python-platform", platform, "--python-version", python),
            *("--only-binary", ":all:", *more, lock),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(running: Running) -> Done:
    """Wait for the end of a resolution."""
    out, err = running.communicate()
    return Done(running.args, running.returncode, out, err)


def tells_gap(done: Done, case: tuple[str, ...]) -> bool:
    """Whether resolving failed for want of a wheel of the package that the table names for this system."""
    missing = MISSING.get((case[0], case[1]))
    told = rf"Because (?:only )?{re.escape(missing or '')}\b.*no (?:usable )?wheels"
    return missing is not None and re.search(told, done.stderr, re.DOTALL) is not None


@pytest.mark.skipif(uv() is None, reason="uv cannot be had here; pip resolves for the system it runs on only")
@pytest.mark.parametrize(("lock", "platform", "python"), CASES)
def test_a_lock_resolves_from_wheels(
    resolved: Callable[[str, str, str], Done], lock: str, platform: str, python: str
) -> None:
    """Every package of the lock has a wheel there, or the table says which has none."""
    done = resolved(lock, platform, python)
    if OFFLINE.search(done.stderr):
        pytest.skip(f"the package index cannot be reached: {done.stderr.strip().splitlines()[-1]}")
    missing = MISSING.get((lock, platform))
    if missing is None:
        assert done.returncode == 0, done.stderr
        assert f"\naiohttp=={pins(lock)['aiohttp']}\n" in done.stdout
    else:
        assert done.returncode != 0, f"{missing} has a wheel for {platform} now: take it out of the table"
        assert tells_gap(done, (lock, platform)), done.stderr


def test_the_locks_agree() -> None:
    """What runs, what is tested and what is in the image are the same versions."""
    dev = pins(DEV)
    for lock in (RUN, IMAGE):
        assert pins(lock).items() <= dev.items()
