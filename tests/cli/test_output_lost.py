"""Output that cannot be written: one line, an exit code that says so, and no part of a file."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

import msgspec
import pytest

from mustcall.ledger import ContentsKept, TurnTrace, open_ledger
from support.warm import PATIENCE

FULL = Path("/dev/full")
CLI = (sys.executable, "-m", "mustcall")
TURN = TurnTrace(
    id="req_1",
    at=1.0,
    wire="chat",
    model="m",
    upstream="a",
    protocol="off",
    force="none",
    outcome="answer",
    status=200,
    seconds=1.0,
)

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A ledger with one turn of a megabyte."""
    made = tmp_path / "l.db"

    async def fill() -> None:
        async with open_ledger(made, contents=ContentsKept.FULL) as ledger:
            request = b'{"a":"%b"}' % (b"x" * 1_000_000)
            await ledger.put_turns([msgspec.structs.replace(TURN, request=request)])

    asyncio.run(fill())
    return str(made)


def run(*arguments: str, stdout: IO[bytes] | int | None, folder: Path) -> tuple[int, str]:
    """Return the exit code of a process and what it said on standard error."""
    done = subprocess.run(  # noqa: S603  ours
        [*CLI, *arguments], stdout=stdout, stderr=subprocess.PIPE, cwd=folder, timeout=PATIENCE, check=False, text=True
    )
    return done.returncode, done.stderr


def in_shell(line: str, *arguments: str, folder: Path) -> "subprocess.Popen[str]":
    """Start a line of the shell, in which MUSTCALL stands for the command line."""
    given = ["/bin/sh", "-c", line.replace("MUSTCALL", f'exec "{sys.executable}" -m mustcall'), "sh", *arguments]
    notified = {**os.environ, "NOTIFY_SOCKET": str(folder / "n")}
    return subprocess.Popen(given, cwd=folder, env=notified, stderr=subprocess.PIPE, text=True)  # noqa: S603  ours


@pytest.mark.parametrize(
    "words",
    [
        *(("--help",), ("dialects",), ("completion", "bash"), ("ledger", "check"), ("ledger", "export")),
        *(("turns", "list"), ("turns", "list", "--json"), ("turns", "show", "req_1")),
    ],
    ids=" ".join,
)
def test_a_full_standard_output(words: tuple[str, ...], place: str, tmp_path: Path) -> None:
    """Whatever the command, there is one line and exit code 2; a traceback tells nobody what to do."""
    at = ("--ledger", place) if words[0] in ("ledger", "turns") else ()
    with FULL.open("wb") as full:
        code, said = run(*words, *at, stdout=full, folder=tmp_path)
    assert (code, said) == (2, "mustcall: cannot write the output: No space left on device\n")


def test_standard_error_is_full_too(tmp_path: Path) -> None:
    """The exit code stays."""
    with FULL.open("wb") as full:
        done = subprocess.run(  # noqa: S603  ours
            [*CLI, "dialects"], stdout=full, stderr=full, cwd=tmp_path, timeout=PATIENCE, check=False
        )
    assert done.returncode == 2


def test_a_reader_that_has_gone(place: str, tmp_path: Path) -> None:
    """A closed pipe (`| head`) is no mistake to tell of."""
    reads, writes = os.pipe()
    os.close(reads)
    try:
        code, said = run("turns", "list", "--json", "--ledger", place, stdout=writes, folder=tmp_path)
    finally:
        os.close(writes)
    assert (code, said) == (1, "")


def test_an_export_to_a_full_disk_leaves_no_part(place: str, tmp_path: Path) -> None:
    """One line and exit code 2; neither the file nor a part of it is there, and an older one is untouched."""
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "old.jsonl").write_text("old")
    for name in ("new.jsonl", "old.jsonl"):
        line = 'ulimit -f 400; MUSTCALL ledger export --contents full --ledger "$1" "$2"'
        with in_shell(line, place, str(folder / name), folder=tmp_path) as process:
            _, said = process.communicate(timeout=PATIENCE)
        assert (process.returncode, said) == (2, f"mustcall: cannot write {folder / name}: File too large\n")
    assert [file.name for file in folder.iterdir()] == ["old.jsonl"]
    assert (folder / "old.jsonl").read_text() == "old"
    code, said = run("ledger", "export", "--ledger", place, str(FULL), stdout=None, folder=tmp_path)
    assert (code, said) == (2, "mustcall: cannot write /dev/full: No space left on device\n")


def test_an_export_is_whole_and_private(place: str, tmp_path: Path) -> None:
    """The file is there with all lines, for its owner only."""
    file = tmp_path / "all.jsonl"
    words = ("ledger", "export", "--contents", "full", "--ledger", place, str(file))
    code, said = run(*words, stdout=None, folder=tmp_path)
    assert (code, said) == (0, f"{len(file.read_bytes().splitlines())} rows\n")
    assert b"x" * 1_000_000 in file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("closed", [">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_a_gateway_without_standard_streams(closed: str, tmp_path: Path) -> None:
    """A gateway whose standard streams are closed serves, and no socket is taken for one of them."""
    upstream = '[[upstream]]\nname = "a"\nwire = "chat"\nbase_url = "http://127.0.0.1:9/v1"\n'
    (tmp_path / "mustcall.toml").write_text(upstream)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "n"))
        manager.settimeout(PATIENCE)
        with in_shell(f"MUSTCALL serve --port 0 --ledger off {closed}", folder=tmp_path) as process:
            try:
                assert b"READY=1\nSTATUS=listens on http://" in manager.recv(4096)
                streams = [Path(f"/proc/{process.pid}/fd/{number}").readlink() for number in range(3)]
                assert not [stream for stream in streams if str(stream).startswith("socket:")]
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(PATIENCE)


@pytest.mark.parametrize("words", [("dialects",), ("--version",)])
def test_a_closed_standard_output(words: tuple[str, ...], tmp_path: Path) -> None:
    """Who closes it wants no output: the command succeeds."""
    with in_shell(f"MUSTCALL {' '.join(words)} >&-", folder=tmp_path) as process:
        _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (0, "")
