"""The allocator keeps what it has, where it can be told to."""

import os
import platform
import subprocess
import sys

import pytest

from mustcall.gateway.process.heap import keep_heap

_TELL = "from mustcall.gateway.process.heap import keep_heap; print(keep_heap())"


def _told(**environment: str) -> str:
    """Ask in a process of its own: the setting holds for all of one."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    asked = [sys.executable, "-c", _TELL]
    done = subprocess.run(asked, env=clean | environment, capture_output=True, check=True)  # noqa: S603  our own
    return done.stdout.decode().strip()


def test_it_is_told_under_glibc() -> None:
    """All three settings are taken, where the C library is one that has them."""
    assert _told() == str(platform.libc_ver()[0] == "glibc")


def test_the_operator_has_the_last_word() -> None:
    """What was set from outside stays."""
    assert _told(MALLOC_TRIM_THRESHOLD_="131072") == "False"
    assert _told(GLIBC_TUNABLES="glibc.malloc.trim_threshold=65536") == "False"


def test_elsewhere_nothing_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other systems have other allocators."""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_heap() is False
