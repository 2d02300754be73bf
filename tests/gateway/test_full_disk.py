"""A disk that is really full: log, ledger and metrics on it, and every request is answered all the same."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.test_workers import HELLO, PATIENCE, alive, until, workers_of
from mustcall.bench.system import family
from mustcall.ledger import open_ledger
from mustcall.testing import Say, ScriptedUpstream, Turn
from support.disks import Disk, small_disk
from support.http import call, post
from support.metrics import samples


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Disk]:
    """A disk with room for the files of two workers."""
    with small_disk(tmp_path / "disk", 16) as disk:
        yield disk


@contextmanager
def serving(log: Path, place: Path, upstream: str) -> Generator[tuple[str, int]]:
    """Start a gateway with two workers that keeps everything at this place; give its URL and its parent's id."""
    command = [sys.executable, "-m", "mustcall", "serve", "--port", "0", "--workers", "2"]
    with log.open("wb") as err:
        process = subprocess.Popen(  # noqa: S603  our own command
            [
                *command,
                "--upstream",
                f"chat={upstream}",
                "--ledger",
                str(place / "l.db"),
                "--log-format",
                "json",
                "--log-level",
                "info",
            ],
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            bufsize=1,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(place)},
        )
    assert process.stdout is not None
    printed = ""
    try:
        for line in process.stdout:
            printed += line
            if "Ctrl-C" in line:
                break
        found = re.search(r"http://127\.0\.0\.1:\d+", printed)
        assert found, printed
        yield found[0], process.pid
        assert process.poll() is None
    finally:
        members = family(process.pid)
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE)
        until(lambda: not any(alive(pid) for pid in members))


def ask(url: str) -> str:
    """Ask once; the answer must be there. Return its trace."""
    answer = post(f"{url}/v1/chat/completions", HELLO)
    assert answer.status == 200, answer.body
    return answer.headers["x-mustcall-trace"]


def counted(url: str) -> float:
    """The turns that `/metrics` tells."""
    page = call("GET", f"{url}/metrics")
    assert page.status == 200
    return sum(value for name, value in samples(page.body).items() if name.startswith("mustcall_turns_total"))


async def kept(place: Path) -> set[str]:
    """The turns that the ledger has."""
    async with open_ledger(str(place)) as ledger:
        return {turn.id for turn in await ledger.turns(most=1000)}


def test_a_full_disk_fails_no_request(disk: Disk) -> None:
    """Rule 98: with no byte free every request is answered and counted, and a worker that dies takes nobody along.

    What could not be written is lost; what comes after there is room again is written.
    """
    with (
        ScriptedUpstream(default=Turn(Say("Hello."))) as upstream,
        serving(disk.path / "log", disk.path, upstream.base_url) as (url, parent),
    ):
        before = ask(url)
        until(lambda: counted(url) == 1)
        until(lambda: before in asyncio.run(kept(disk.path / "l.db")))
        disk.fill()
        for _ in range(20):
            ask(url)
        until(lambda: counted(url) == 21)
        killed = workers_of(parent)[0]
        os.kill(killed, signal.SIGKILL)
        until(lambda: killed not in workers_of(parent) and len(workers_of(parent)) == 2)
        ask(url)
        disk.free()
        later: set[str] = set()

        def is_kept_again() -> bool:
            later.add(ask(url))
            return bool(later & asyncio.run(kept(disk.path / "l.db")))

        until(is_kept_again)
    lines = (disk.path / "log").read_bytes().splitlines()
    assert any(_read(line).get("request_id") == before for line in lines)


def test_a_worker_is_replaced_though_nothing_can_be_logged(tmp_path: Path) -> None:
    """Rule 98: with a log that takes no byte at all a dead worker is replaced, again and again."""
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    with (
        ScriptedUpstream(default=Turn(Say("Hello."))) as upstream,
        serving(full, tmp_path, upstream.base_url) as (url, parent),
    ):
        for _ in range(2):
            killed = workers_of(parent)[0]
            os.kill(killed, signal.SIGKILL)
            until(lambda killed=killed: killed not in workers_of(parent) and len(workers_of(parent)) == 2)
            ask(url)


def _read(line: bytes) -> dict[str, Any]:
    """Return a line of the log. Where the disk was full a line may be cut, and the next one begins in it."""
    try:
        return json.loads(line)
    except ValueError:
        return {}
