"""Ports where nobody listens, and where nobody begins to."""

import atexit
import socket
from functools import cache


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
