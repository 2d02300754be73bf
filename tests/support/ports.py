"""Ports where nobody listens and nobody begins to, and who listens at a port."""

import atexit
import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

_LISTEN = "0A"


@cache
def closed_port(_number: int = 0) -> int:
    """A port that refuses connections; another for each number.

    It stays bound until the process ends: a port that is given back may be the upstream of another test a moment later,
    which then counts a request that is not its own.
    """
    bound = socket.socket()
    atexit.register(bound.close)
    bound.bind(("127.0.0.1", 0))
    port: int = bound.getsockname()[1]
    return port


def quiet_port() -> int:
    """A free port that is not among those given to whoever asks for any: it is still free a moment later."""
    first = 20_000 + os.getpid() % 10_000  # several runs on one machine begin at different ones
    for port in range(first, 32_000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no port from {first} to 32,000 is free")


def listeners(url: str) -> set[str]:
    """The sockets that listen at the port of a URL, by their numbers; none where the system does not tell.

    A port that was given back may at once be that of another test: whether it is refused says nothing. The number of a
    socket is not given again.
    """
    port, table = int(url.rpartition(":")[2]), Path("/proc/net/tcp")
    lines = table.read_text(encoding="ascii").splitlines()[1:] if table.exists() else []
    sockets = (line.split() for line in lines)
    return {one[9] for one in sockets if one[3] == _LISTEN and int(one[1].rpartition(":")[2], 16) == port}
