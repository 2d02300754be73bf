"""Run one cell: a scripted model, a gateway of its own unless it is the direct arm, and the client in a fresh home.

Everything is on loopback and in one temporary folder; the client and the gateway are ended with their process groups.
"""

import os
import re
import secrets
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from clientmatrix.adapters import Client, Place
from clientmatrix.cases import Task, say_words
from clientmatrix.installing import InstallError, install
from clientmatrix.model import Model
from clientmatrix.scoring import Cell, End, Planned, find_end, is_right

_TAIL = 1500
_START_LIMIT = 40
_STORM = 6
_REPLIES = re.compile(r'route="(?:chat|responses|messages)"')
# Set when the run is stopped: cells under way are ended at once.
STOPPING = Event()


class GatewayError(Exception):
    """The gateway did not start; the text is what it printed."""


def run_cell(planned: Planned, cache: Path, python: str, patience: float) -> Cell:
    """Run the cell; a cell that cannot be run is `broken` and says why."""
    try:
        return _run(planned, cache, python, patience)
    except (InstallError, GatewayError, OSError) as error:
        return Cell(*planned.key, wire=planned.wire, end=End.BROKEN, right=False, tail=str(error)[-_TAIL:])


def _run(planned: Planned, cache: Path, python: str, patience: float) -> Cell:
    client, case = planned.client, planned.case
    work_root = cache / "work"
    work_root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work_root, ignore_cleanup_errors=True) as name:
        root = Path(name)
        home, work = root / "home", root / "task"
        home.mkdir()
        words = [f"KEY-{secrets.token_hex(4)}" for _ in range(case.words)]
        task = _write_task(work, words or ["none"])
        with Model(case, task) as model, _open_gateway(planned, model.port, root, python) as base:
            place = Place(base, cache / client.folder, home, work, _prompt(task, case.words), case.name)
            began = time.monotonic()
            output, status = _run_client(client, place, model, case.limit * patience)
            seconds = time.monotonic() - began
            asked = None if planned.arm == "direct" else _count_requests(base)
            calls, outside = model.seen.calls, sorted(set(model.seen.outside))
    end = find_end(case, output, say_words(words), status)
    figure = client.figure(output)
    right = is_right(case, end, calls, figure, asked)
    return Cell(
        *planned.key,
        wire=planned.wire,
        end=end,
        right=right,
        calls=calls,
        asked=asked,
        figure=figure,
        seconds=round(seconds, 1),
        outside=outside,
        tail=output[-_TAIL:] if not right else "",
    )


def _write_task(work: Path, words: list[str]) -> Task:
    odd = work / "line\nbreak"
    odd.mkdir(parents=True)
    paths = [work / "first.txt", work / "second.txt", odd / "first.txt"]
    for path, word in zip(paths, [words[0], words[-1], words[0]], strict=True):
        path.write_text(f"word: {word}\n")
    return Task(*map(str, paths))


def _prompt(task: Task, words: int) -> str:
    if words == 2:
        return f"Read the files {task.first} and {task.second} with your tool and say the word of each."
    return f"Read the file {task.first} with your tool and say the word in it."


@contextmanager
def _open_gateway(planned: Planned, port: int, root: Path, python: str) -> Iterator[str]:
    upstream = f"http://127.0.0.1:{port}"
    if planned.arm == "direct":
        yield upstream
        return
    env = _environment(root / "gateway")
    argv = [python, "-m", "mustcall", "serve", "--upstream", f"{planned.wire}={upstream}/v1", "--port", "0"]
    log = root / "gateway.log"
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603 - the interpreter the user named
            [*argv, "--ledger", str(root / "ledger.db")],
            env=env,
            cwd=root,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield _wait_address(process, log)
    finally:
        _end(process)


def _wait_address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    until = time.monotonic() + _START_LIMIT
    while time.monotonic() < until and process.poll() is None:
        found = re.search(r"listens on (http://\S+)", log.read_text())
        if found:
            return found[1]
        time.sleep(0.05)
    raise GatewayError(f"the gateway did not start: {log.read_text()[-400:]}")


def _count_requests(base: str) -> int | None:
    """How many replies the gateway was asked for, by its own metrics."""
    try:
        with urllib.request.urlopen(f"{base}/metrics", timeout=5) as answer:  # noqa: S310 - the gateway on loopback
            lines = answer.read().decode().splitlines()
    except OSError:
        return None
    counted = [line for line in lines if line.startswith("mustcall_requests_total{") and _REPLIES.search(line)]
    return sum(int(float(line.rpartition(" ")[2])) for line in counted)


def _run_client(client: Client, place: Place, model: Model, limit: float) -> tuple[str, int | End]:
    """Run it to its end; what it printed, and its exit status or how it was ended."""
    start = client.start(place)
    for path, text in start.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    cached = {"NODE_COMPILE_CACHE": str(place.folder / "compiled")}  # a third of some clients' start
    env = _environment(place.home, place.folder.parent) | _fence(model.port) | cached | start.env
    log = place.home.parent / "client.log"
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603 - a command of the table of clients
            start.argv,
            env=env,
            cwd=place.work,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        status = _watch(process, model, time.monotonic() + limit)
    finally:
        _end(process)
    return log.read_text(errors="replace"), status


def _watch(process: "subprocess.Popen[bytes]", model: Model, until: float) -> int | End:
    """Wait for the end. The fault is the same at every attempt: a client that repeats for long gains nothing."""
    while time.monotonic() < until and not STOPPING.is_set():
        if (status := process.poll()) is not None:
            return status
        if model.case.goal not in {"bounded", "single"} and model.seen.first > _STORM:
            return End.STORM
        time.sleep(0.05)
    return End.HUNG


def _environment(home: Path, cache: Path | None = None) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    (home / "tmp").mkdir(exist_ok=True)
    node = f"{cache / 'node' / 'node_modules' / '.bin'}{os.pathsep}" if cache else ""
    return {
        "PATH": node + os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "LANG": "C.UTF-8",
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "NO_COLOR": "1",
        "DO_NOT_TRACK": "1",
    }


def _fence(port: int) -> dict[str, str]:
    """Send what would leave loopback to the scripted model, which refuses and notes it."""
    proxy, inside = f"http://127.0.0.1:{port}", "127.0.0.1,localhost,::1"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    return {n: proxy for name in names for n in (name, name.lower())} | {"NO_PROXY": inside, "no_proxy": inside}


def _end(process: "subprocess.Popen[bytes]") -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue


def prepare(clients: list[Client], cache: Path) -> dict[str, str]:
    """Install each client once; return what could not be installed, and why."""
    failed: dict[str, str] = {}
    for client in clients:
        try:
            install(cache, client)
        except InstallError as error:
            failed[client.name] = str(error)
    return failed
