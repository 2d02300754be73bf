"""A client that reads a stream piece by piece, so that a test can say what has arrived while the upstream still waits.

Plain HTTP and bytes; nothing is interpreted. Reads end with a timeout if what a test waits for does not come.
"""

import http.client
import json
import socket
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

__all__ = ["KEYS", "PATHS", "Listener", "events_of"]

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
#: What a client of any wire sends beside its body.
KEYS = {"authorization": "Bearer sk-test", "x-api-key": "sk-test", "anthropic-version": "2023-06-01"}

_PATIENCE = 120


class Listener:
    """One request under way. `received` is the body as far as it has arrived."""

    def __init__(self, url: str, wire: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_PATIENCE)
        data = json.dumps(body).encode()
        self._connection.request(
            "POST", PATHS[wire], data, {"content-type": "application/json", **KEYS, **(headers or {})}
        )
        self._response: http.client.HTTPResponse | None = None
        self.received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    @property
    def response(self) -> http.client.HTTPResponse:
        """The head of the answer; waits for it."""
        if self._response is None:
            self._response = self._connection.getresponse()
        return self._response

    def wait_for(self, mark: bytes, count: int = 1) -> bytes:
        """Read until a mark has come so often; return everything that has arrived."""
        while self.received.count(mark) < count:
            self._read(f"{mark!r} did not come")
        return self.received

    def wait_for_bytes(self, count: int) -> bytes:
        """Read until so many bytes have come; return everything that has arrived."""
        while len(self.received) < count:
            self._read(f"{count} bytes did not come")
        return self.received

    def read_rest(self) -> bytes:
        """Read to the end; return everything that has arrived."""
        self.received += self.response.read()
        return self.received

    def leave(self) -> None:
        """Go away without a word, as a closed laptop does."""
        sock: socket.socket | None = self._connection.sock
        assert sock is not None
        sock.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _read(self, why: str) -> None:
        piece = self.response.read1(65536)
        assert piece, f"{why}: {self.received!r}"
        self.received += piece


def events_of(stream: bytes) -> list[Any]:
    """The data of every event of a stream, comments left out."""
    lines = (line[6:] for line in stream.split(b"\n") if line.startswith(b"data: "))
    return [line.decode() if line == b"[DONE]" else json.loads(line) for line in lines]
