"""systemd's notification protocol, read by a manager made for the test."""

import os
import socket
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from mustcall.gateway.config.settings import ServerSettings
from mustcall.gateway.process import notify
from mustcall.gateway.process.server import say_stopping


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Generator[socket.socket]:
    """A manager that waits for datagrams. Its path is short: systems bound the length of these."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        path = Path(folder, "notify")
        listening.bind(str(path))
        listening.settimeout(180)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        yield listening


def test_each_change_is_one_datagram(manager: socket.socket) -> None:
    """Ready, reloading and stopping are said in systemd's words, each with what a person reads in `status`."""
    notify.notify_ready("listens on http://127.0.0.1:1")
    assert manager.recv(4096) == b"READY=1\nSTATUS=listens on http://127.0.0.1:1"
    notify.notify_reloading()
    first, second = manager.recv(4096).decode().splitlines()
    assert first == "RELOADING=1"
    assert int(second.removeprefix("MONOTONIC_USEC=")) > 0
    notify.notify_stopping("stopping")
    assert manager.recv(4096) == b"STOPPING=1\nSTATUS=stopping"


def test_stopping_is_said_also_when_nothing_runs(manager: socket.socket, capsys: pytest.CaptureFixture[str]) -> None:
    """The manager hears of every stop, the terminal only of one that takes time."""
    say_stopping(0, ServerSettings())
    assert manager.recv(4096) == b"STOPPING=1\nSTATUS=stopping"
    assert capsys.readouterr().out == ""
    say_stopping(2, ServerSettings())
    assert b"2 running requests have up to 10 s" in manager.recv(4096)
    assert "Ctrl-C again stops now" in capsys.readouterr().out


@pytest.mark.parametrize("address", ["", "/nowhere/at/all", "@mustcall-nobody-listens"])
def test_no_manager_is_no_fault(address: str, manager: socket.socket) -> None:
    """Without a manager, or with one that is gone, nothing is raised, and no other manager hears of it."""
    notify.notify("READY=1", environment={"NOTIFY_SOCKET": address})
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(4096)


@pytest.mark.skipif(not hasattr(socket, "SO_PASSCRED"), reason="abstract names are Linux's")
def test_abstract_names() -> None:
    """An address that begins with @ is one of Linux's names that are no files."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        name = f"mustcall-test-notify-{os.getpid()}"  # such names are the machine's, and another run may be under way
        listening.bind(f"\0{name}")
        listening.settimeout(180)
        notify.notify("READY=1", environment={"NOTIFY_SOCKET": f"@{name}"})
        assert listening.recv(100) == b"READY=1"
