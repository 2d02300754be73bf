"""Several processes behind one port, as an operator runs and stops them: real processes, real signals."""

import errno
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import cast

import msgspec
import pytest

from mustcall.bench.system import family
from mustcall.core.errors import ConfigError
from mustcall.gateway.config.settings import ServerSettings, Settings, settings_from_flags
from mustcall.gateway.process.server import bind
from mustcall.gateway.process.workers import check_workers, serve_workers
from mustcall.policy.facts.routing import Route
from mustcall.testing import Hang, Say, ScriptedUpstream, Turn
from support.gated import Listener
from support.http import call, post
from support.ports import listeners

HELLO = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
PATIENCE = 180.0


@contextmanager
def serving(*arguments: str) -> Generator[tuple[str, "subprocess.Popen[str]"]]:
    """Start a gateway with two workers; give its URL and its parent process, and leave nothing of it."""
    process = subprocess.Popen(  # noqa: S603  our own command
        [sys.executable, "-m", "mustcall", "serve", "--port", "0", "--workers", "2", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        bufsize=1,
        start_new_session=True,
    )
    assert process.stdout is not None
    printed = ""
    try:
        for line in process.stdout:
            printed += line
            if "Ctrl-C" in line:
                break
        found = re.search(r"http://127\.0\.0\.1:\d+(?= with 2 workers)", printed)
        assert found, printed
        yield found[0], process
    finally:
        members = family(process.pid)
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE)
        until(lambda: not any(alive(pid) for pid in members))


def alive(pid: int) -> bool:
    """Whether a process runs: one that only waits for its parent's attention does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def workers_of(parent: int) -> list[int]:
    """The processes that serve: those that are a process group of their own."""
    return [pid for pid in family(parent)[1:] if group_of(pid) == pid]


def group_of(pid: int) -> int | None:
    """The process group of a process, None if it has just ended."""
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None


def until(true: Callable[[], bool]) -> None:
    """Wait for something that is sure to come."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_killed_worker_is_replaced_and_requests_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After kill -9 of one worker every request is answered, and there are two workers again.

    Ctrl-C comes while the next one starts. That one ends with the others: the grace period outlasts the test.
    """
    (tmp_path / "mustcall.toml").write_text("[server]\nshutdown_grace = 900\n", encoding="utf-8")
    monkeypatch.setenv("MUSTCALL_CONFIG", str(tmp_path / "mustcall.toml"))
    with serving("--demo") as (url, process):
        before = workers_of(process.pid)
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        for _ in range(20):
            assert post(f"{url}/v1/chat/completions", HELLO).status == 200
        until(lambda: len(workers_of(process.pid)) == 2)
        after = workers_of(process.pid)
        assert before[1] in after
        assert before[0] not in after
        os.kill(before[1], signal.SIGKILL)  # now only the new one can answer
        until(lambda: before[1] not in workers_of(process.pid))
        assert post(f"{url}/v1/chat/completions", HELLO).status == 200
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=PATIENCE)
        assert f"worker {before[0]} exited (exit code -9); starting a replacement" in rest


def test_a_signal_leaves_nothing_behind() -> None:
    """SIGTERM ends all processes, with one process's exit code, in silence, and frees the port."""
    with serving("--demo") as (url, process):
        members, listening = family(process.pid), listeners(url)
        assert call("GET", f"{url}/healthz").status == 200
        # As a terminal does it: to the whole group at once.
        os.killpg(process.pid, signal.SIGTERM)
        rest, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGTERM
        assert rest == ""
        until(lambda: not any(alive(pid) for pid in members))
        assert listening
        assert not listening & listeners(url)


def test_workers_end_with_their_parent() -> None:
    """A parent that is killed leaves no worker behind."""
    with serving("--demo") as (_, process):
        members = family(process.pid)
        assert len(members) > 1
        process.kill()
        until(lambda: not any(alive(pid) for pid in members))
        assert [pid for pid in members if alive(pid)] == []


def test_running_requests_are_finished() -> None:
    """A stream that runs when Ctrl-C comes is told to its end, and the operator is told once what is waited for.

    After it Ctrl-C ends all processes, in silence, with the exit code 0, and frees the port.
    """
    answer = Hang(Turn(Say("one two three")), after=700)
    with (
        ScriptedUpstream(default=answer) as upstream,
        serving("--upstream", f"chat={upstream.base_url}", "--log-level", "warning") as (url, process),
        Listener(url, "chat", {**HELLO, "stream": True}) as client,
    ):
        members, listening = family(process.pid), listeners(url)
        client.wait_for(b"data:")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: to the whole group at once
        assert process.stdout is not None
        said = "stopping; 1 running requests have up to 10 s (Ctrl-C again stops now)\n"
        assert process.stdout.readline() == said
        upstream.release()
        assert client.wait_for(b"[DONE]").count(b"three") == 1
        rest, _ = process.communicate(timeout=PATIENCE)
        assert rest == ""
        assert process.returncode == 0
        until(lambda: not any(alive(pid) for pid in members))
        assert listening
        assert not listening & listeners(url)


def test_a_second_ctrl_c_stops_now() -> None:
    """A stream that would keep the gateway for its grace period is cut off by a second Ctrl-C."""
    answer = Hang(Turn(Say("one two three")), after=700)
    with (
        ScriptedUpstream(default=answer) as upstream,
        serving("--upstream", f"chat={upstream.base_url}") as (url, process),
        Listener(url, "chat", {**HELLO, "stream": True}) as client,
    ):
        client.wait_for(b"data:")
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("stopping; 1 running")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0


class Deadly:
    """Something in the settings that ends the process that reads them."""

    def __reduce__(self) -> tuple[Callable[[int], object], tuple[int]]:
        """Be written as the end of a process."""
        return os._exit, (3,)


def test_workers_that_cannot_start_are_an_error() -> None:
    """A worker that ends before it ever answered is not started again and again: that is said, and nothing is left."""
    settings = settings_from_flags("chat=http://127.0.0.1:9/v1", server=ServerSettings(port=0))
    routes = cast("tuple[Route, ...]", (Deadly(),))
    announced: list[str] = []
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with bind(settings.server) as listener, pytest.raises(ConfigError, match="exit code 3"):
        serve_workers(
            msgspec.structs.replace(settings, routes=routes), listener, lambda _: announced.append("ready"), count=2
        )
    assert announced == []
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("refusing", ["process", "descriptors"])
def test_a_start_that_fails_is_tried_again(
    refusing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A system that gives no process, or no descriptors, is asked again after a pause; the other worker serves on."""
    settings = settings_from_flags("chat=http://127.0.0.1:9/v1", server=ServerSettings(port=0))
    others = set(workers_of(os.getpid()))
    place, name = (SpawnProcess, "start") if refusing == "process" else (socket, "socketpair")
    give: Callable[..., object] = getattr(place, name)
    refused: list[object] = []

    def give_at_the_second_time(*given: object) -> object:
        if not refused:
            refused.append(given)
            raise OSError(errno.EMFILE, "there is none")
        return give(*given)

    def serving_now() -> set[int]:
        return set(workers_of(os.getpid())) - others

    def end(killed: int) -> None:
        try:
            until(lambda: bool(refused) and killed not in serving_now() and len(serving_now()) == 2)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    def announce(_keeps: bool) -> None:
        monkeypatch.setattr(place, name, give_at_the_second_time)
        killed = min(serving_now())
        os.kill(killed, signal.SIGKILL)
        ending.append(threading.Thread(target=end, args=(killed,)))
        ending[0].start()

    ending: list[threading.Thread] = []
    with bind(settings.server) as listener:
        serve_workers(settings, listener, announce, count=2)
    ending[0].join()
    assert "a worker could not be started (there is none); starting another in 0.5 s" in caplog.text
    assert multiprocessing.active_children() == []


def embedded() -> Settings:
    """Settings with a model inside the process; no weights are needed to refuse it."""
    settings = settings_from_flags("chat=http://127.0.0.1:9/v1")
    local = settings.endpoints[0].__class__(name="local", wire=settings.endpoints[0].wire, base_url="embedded:tiny")
    return Settings(server=settings.server, endpoints=(local,))


def test_an_embedded_model_is_served_by_one_process() -> None:
    """Several workers with an embedded model are refused, and the error says why and what to do."""
    check_workers(embedded(), 1)
    with pytest.raises(ConfigError, match=r"one model per process.*--workers.*--upstream") as caught:
        check_workers(embedded(), 2)
    assert "local" in caught.value.message
