"""Tells the service manager how the gateway stands: systemd's notification protocol, one datagram for each change.

Without a manager that asks for it (`NOTIFY_SOCKET`) nothing is sent. A manager that cannot be reached is no reason to
fail: it finds out by itself that nothing was said.
"""

import contextlib
import os
import socket
import time
from collections.abc import Mapping

__all__ = ["notify", "notify_ready", "notify_reloading", "notify_stopping"]


def notify(*lines: str, environment: Mapping[str, str] = os.environ) -> None:
    """Send lines like `READY=1` to the manager, if there is one."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address or not hasattr(socket, "AF_UNIX"):
        return
    if address.startswith("@"):  # Linux's abstract names begin with a zero byte
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.connect(address)
        line.send("\n".join(lines).encode())


def notify_ready(status: str) -> None:
    """Say that requests are answered, after a start or a reload."""
    notify("READY=1", f"STATUS={status}")


def notify_reloading() -> None:
    """Say that the configuration is read again; the time stamp is what tells a manager which reload is meant."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def notify_stopping(status: str) -> None:
    """Say that no more requests are taken."""
    notify("STOPPING=1", f"STATUS={status}")
