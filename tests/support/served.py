"""Answers of llama.cpp's server, kept: an exchange it has had before is told from a file, byte by byte.

As in `answered.py`: an answer is kept under its whole request, the weights, the context and the version of the engine,
and `MUSTCALL_TEST_MODEL` says `real` or `record`. The server is started when something new is asked, and not before.
"""

import gzip
import json
import os
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from mustcall.testing import LlamaServer
from support import misses
from support.embedded import NAME, readied

__all__ = ["FILE", "KeptServer", "ServedAnswer"]

FILE = Path(__file__).parent / "server_answers.jsonl"
_MODE = "MUSTCALL_TEST_MODEL"


@dataclass(frozen=True)
class ServedAnswer:
    """An answer as it came: the pieces are those of the connection."""

    status: int
    headers: dict[str, str]
    pieces: tuple[bytes, ...]


class KeptServer:
    """The 135M on llama.cpp's own server with its own defaults, and what it has answered before.

    The context bounds what a reply without end can cost.
    """

    def __init__(self, context: int = 4096, file: Path = FILE) -> None:
        mode = os.environ.get(_MODE, "")
        self._missed: Callable[[], None] = lambda: None if mode == "real" else misses.count(file.name)
        self.model = NAME
        self._context = context
        self._known = {} if mode == "real" else _known(file)
        self._keep = file if mode == "record" else None
        self._lock = threading.Lock()
        self._server: LlamaServer | None = None

    def started(self) -> LlamaServer:
        """Return the server itself, started."""
        with self._lock:
            if self._server is None:
                readied()
                self._server = LlamaServer(self.model, context=self._context).start()
            return self._server

    def close(self) -> None:
        """Stop the server if it was started."""
        if self._server is not None:
            self._server.close()

    def known(self, method: str, path: str, body: bytes) -> ServedAnswer | None:
        """Return what the server answered to this before."""
        answer = self._known.get(self._key(method, path, body))
        if answer is None:
            self._missed()
        return answer

    def keep(self, method: str, path: str, body: bytes, answer: ServedAnswer) -> None:
        """Keep an answer, if this run records."""
        if self._keep is None:
            return
        key = self._key(method, path, body)
        self._known[key] = answer
        with self._keep.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "answer": _packed(answer)}) + "\n")

    def _key(self, method: str, path: str, body: bytes) -> str:
        identity = f"{self.model} {self._context} {version('xllamacpp')} {method} {path}"
        return sha256(identity.encode() + b"\0" + body).hexdigest()


def _packed(answer: ServedAnswer) -> str:
    said = {"status": answer.status, "headers": answer.headers, "pieces": [piece.decode() for piece in answer.pieces]}
    return b64encode(gzip.compress(json.dumps(said).encode(), 9, mtime=0)).decode()


def _unpacked(packed: str) -> ServedAnswer:
    said = json.loads(gzip.decompress(b64decode(packed)))
    return ServedAnswer(said["status"], said["headers"], tuple(piece.encode() for piece in said["pieces"]))


@cache
def _known(file: Path) -> dict[str, ServedAnswer]:
    if not file.exists():
        return {}
    lines = file.read_text(encoding="utf-8").splitlines()
    return {kept["key"]: _unpacked(kept["answer"]) for kept in map(json.loads, lines)}
