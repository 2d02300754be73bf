"""The scripted model's server: one per cell, on loopback, all three wires.

It counts the requests of the first step and the requests at all, keeps their bodies, and refuses to be a proxy: a
client that tries to leave loopback is seen in `outside`.
"""

import json
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Self

from clientmatrix.cases import Case, Task, Turn, script
from clientmatrix.reading import Asked, Wire, choose_reader, read_request
from clientmatrix.telling import tell_body, tell_stream

_PATHS: dict[str, Wire] = {"/chat/completions": "chat", "/responses": "responses", "/messages": "messages"}


@dataclass
class Seen:
    """What the model was asked in one cell."""

    first: int = 0
    calls: int = 0
    asides: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    other: list[str] = field(default_factory=list[str])
    outside: list[str] = field(default_factory=list[str])


class Model:
    """A server that plays one case."""

    def __init__(self, case: Case, task: Task) -> None:
        self.case, self.task, self.seen, self._lock = case, task, Seen(), Lock()
        handler = type("Handler", (_Handler,), {"model": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def turn(self, asked: Asked, body: dict[str, Any]) -> tuple[Turn, int]:
        """Count the request and number it."""
        with self._lock:
            seen = self.seen
            seen.bodies.append(body)
            attempt = seen.first
            if choose_reader(asked.tools) is None:
                seen.asides += 1
            else:
                seen.calls += 1
                seen.first += not asked.results
            return Turn(asked, self.task, attempt), len(seen.bodies)


class _Handler(BaseHTTPRequestHandler):
    model: Model
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a completion in the script, anything else with an empty object."""
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        if not path.startswith("/"):
            self.do_CONNECT()
            return
        wire = next((wire for end, wire in _PATHS.items() if path.endswith(end)), None)
        if wire is None:
            self._note()
            self._send(200, {"input_tokens": 1000} if path.endswith("count_tokens") else {})
            return
        body = json.loads(raw)
        asked = read_request(wire, body)
        turn, serial = self.model.turn(asked, body)
        reply = script(self.model.case, turn)
        if reply.status != 200:
            self._send(reply.status, {"error": {"type": "overloaded_error", "message": "try again later"}})
            return
        if not asked.stream:
            time.sleep(reply.seconds)
            self._send(200, tell_body(asked, reply, serial))
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for pause, data in tell_stream(asked, reply, serial):
            time.sleep(pause)
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def do_GET(self) -> None:
        """List the model, else an empty object."""
        if not self.path.startswith("/"):
            self.do_CONNECT()
            return
        self._note()
        listed = {"object": "list", "data": [{"id": "scripted-1", "object": "model", "created": 1, "owned_by": "x"}]}
        self._send(200, listed if self.path.partition("?")[0].endswith("/models") else {})

    def do_HEAD(self) -> None:
        """Say that the server is there."""
        self._note()
        self._send(200, {})

    def do_CONNECT(self) -> None:
        """Refuse to carry a request out of loopback, and note whereto."""
        self.model.seen.outside.append(self.path)
        self._send(403, {"error": "only loopback"})

    def _note(self) -> None:
        self.model.seen.other.append(f"{self.command} {self.path}")

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def handle(self) -> None:
        """Serve a connection; a client that hangs up is no fault of the server."""
        try:
            super().handle()
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""
