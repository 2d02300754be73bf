"""What an attack is, and how it reaches the gateway: bytes over sockets, nothing else."""

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

__all__ = ["Attack", "Place", "answer_of", "ask", "head_of", "request_of", "turn"]

Place = tuple[str, int]

#: Seconds an attack waits for its answer: reading 64 MiB token by token takes half a minute of processor time.
PATIENCE = 240.0
KEY = b"attacker"


@dataclass(frozen=True)
class Attack:
    """One attack: what it is called, what it does, and which answers are in order (0: the connection was closed)."""

    name: str
    run: Callable[[Place], set[int]]
    expected: frozenset[int]
    #: Whether it belongs to the set that every test run makes.
    quick: bool = False


def head_of(length: int | None, *more: bytes, path: bytes = b"/v1/chat/completions", key: bytes = KEY) -> bytes:
    """Return the head of a POST."""
    lines = [b"POST %b HTTP/1.1" % path, b"host: 127.0.0.1", b"authorization: Bearer %b" % key, *more]
    if length is not None:
        lines.append(b"content-length: %d" % length)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def request_of(body: bytes, path: bytes = b"/v1/chat/completions") -> bytes:
    """Return a whole POST."""
    return head_of(len(body), path=path) + body


def ask(place: Place, data: bytes, patience: float = PATIENCE) -> int:
    """Send bytes and return the status of the answer, 0 if there is none and the connection is closed."""
    with socket.create_connection(place, timeout=patience) as connection:
        with suppress(ConnectionError):
            connection.sendall(data)
        return answer_of(connection)


def answer_of(connection: socket.socket) -> int:
    """Read an answer to its end; return its status, an error at the end of a stream as 599."""
    answer = b""
    tail = b""
    try:
        while piece := connection.recv(65_536):
            if len(answer) < 65_536:
                answer += piece
            tail = (tail + piece)[-65_536:]
            if _is_complete(answer, tail):
                break
    except ConnectionError:
        pass
    if not answer.startswith(b"HTTP/1.1 "):
        return 0
    status = int(answer[9:12])
    return 599 if status == 200 and b'"error"' in tail else status


def _is_complete(answer: bytes, tail: bytes) -> bool:
    head, border, rest = answer.partition(b"\r\n\r\n")
    if not border:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(rest) >= int(line.partition(b":")[2])
    return tail.endswith(b"0\r\n\r\n")


def turn(
    place: Place, model: str, *, stream: bool = False, path: bytes = b"/v1/chat/completions", **fields: Any
) -> int:
    """Ask for a turn whose upstream does what the model's name says."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 99,
        "stream": stream,
        **fields,
    }
    return ask(place, request_of(json.dumps(body).encode(), path))
