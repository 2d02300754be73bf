"""Run one cell: a scripted model, a gateway of its own unless it is the direct arm, and the client in a fresh home.

Everything is on loopback and in one temporary folder; the client and the gateway are ended with their process groups.
"""

import os
import re
import secrets
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clientmatrix.adapters import Client, Place
from clientmatrix.cases import Task, say_words
from clientmatrix.installing import InstallError, install
from clientmatrix.model import Model
from clientmatrix.processes import end_group, wait_until
from clientmatrix.scoring import Cell, End, Planned, find_end, is_right

_TAIL = 1500
_START_LIMIT = 40
_STORM = 6
_ADDRESS = re.compile(r"listens on (http://\S+)")
_REPLIES = re.compile(r'route="(?:chat|responses|messages)"')


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
        end_group(process)


def _wait_address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    wait_until(lambda: process.poll() is not None or _ADDRESS.search(log.read_text()) is not None, _START_LIMIT)
    found = _ADDRESS.search(log.read_text())
    if found is None:
        raise GatewayError(f"the gateway did not start: {log.read_text()[-400:]}")
    return found[1]


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
        status = _watch(process, model, limit)
    finally:
        end_group(process)
    return log.read_text(errors="replace"), status


def _watch(process: "subprocess.Popen[bytes]", model: Model, limit: float) -> int | End:
    """Wait for the end. The fault is the same at every attempt: a client that repeats for long gains nothing."""
    most = None if model.case.goal in {"bounded", "single"} else _STORM

    def storms() -> bool:
        return most is not None and model.seen.first > most

    if not wait_until(lambda: process.poll() is not None or storms(), limit):
        return End.HUNG
    return process.returncode if process.returncode is not None else End.STORM


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


def prepare(clients: list[Client], cache: Path) -> dict[str, str]:
    """Install each client once; return what could not be installed, and why."""
    failed: dict[str, str] = {}
    for client in clients:
        try:
            install(cache, client)
        except InstallError as error:
            failed[client.name] = str(error)
    return failed
