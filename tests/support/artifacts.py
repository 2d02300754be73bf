"""What artifacts are fetched from in tests: a loopback server with files, and a package index made of small wheels."""

import hashlib
import threading
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Self

from mustcall.upstream.artifacts.values import Artifact, Piece, RegistrySource, Source

__all__ = [
    "CONTENT",
    "FileServer",
    "artifact",
    "from_pieces",
    "index_environment",
    "install_quick_pip",
    "joined",
    "publish",
    "serving",
]

CONTENT = bytes(range(256)) * 4096


class FileServer:
    """A loopback server with files by path. What it was asked for and how it answers are plain attributes."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        #: After how many bytes each of the first answers ends.
        self.breaks: list[int] = []
        #: Every request for a file: its path, and where it should begin.
        self.asked: list[tuple[str, str | None]] = []
        self.honours_ranges = True
        self.status = 200
        #: Paths whose answer waits until `release` is set, and what is set once one of them is asked for.
        self.held: set[str] = set()
        self.release = threading.Event()
        self.reached = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server._answer(self)

            def log_message(self, *_: object) -> None:  # pyrefly: ignore[bad-override]
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def holding(self, path: str) -> Self:
        """Let the answer for a path wait."""
        self.held.add(path)
        return self

    def paths(self) -> list[str]:
        """Return what was asked for, without the pages of the index."""
        return [path for path, _ in self.asked if not path.endswith("/")]

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = handler.headers.get("range")
        path = handler.path.partition("#")[0]
        self.asked.append((path, asked))
        if path in self.held:
            self.reached.set()
            self.release.wait(180)
        if self.status != 200 or path not in self.files:
            handler.send_error(self.status if self.status != 200 else 404)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.honours_ranges else 0
        body = self.files[path][start:]
        if start and not body:
            handler.send_error(416)
            return
        handler.send_response(206 if start else 200)
        handler.send_header("content-type", "text/html" if path.endswith("/") else "application/octet-stream")
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        try:
            handler.wfile.write(body[: self.breaks.pop(0)] if self.breaks else body)
        except ConnectionError:
            handler.close_connection = True  # whoever asked is gone


@contextmanager
def serving() -> Generator[FileServer]:
    """A server that is stopped at the end."""
    made = FileServer()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.release.set()
        made.server.shutdown()
        made.server.server_close()
        thread.join()


def artifact(*sources: Source, content: bytes = CONTENT) -> Artifact:
    """Return an artifact with this content."""
    return Artifact(
        name="tiny",
        file="tiny.gguf",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        sources=sources,
    )


def _wheel(name: str, content: bytes) -> bytes:
    """Return a wheel that holds `data.bin` and depends on a package nobody has."""
    info = f"{name}-1.0.dist-info"
    members: dict[str, str | bytes] = {
        f"{name}/__init__.py": "raise RuntimeError('only opened, never imported')",
        f"{name}/data.bin": content,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: no-such-package\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    members[f"{info}/RECORD"] = "".join(f"{member},,\n" for member in [*members, f"{info}/RECORD"])
    written = BytesIO()
    with zipfile.ZipFile(written, "w") as wheel:
        for member, text in members.items():
            wheel.writestr(member, text)
    return written.getvalue()


def publish(server: FileServer, name: str, content: bytes) -> str:
    """Put a package with this content on the server's index; return the path of its wheel."""
    path = f"/files/{name}-1.0-py3-none-any.whl"
    server.files[path] = _wheel(name, content)
    server.files[f"/simple/{name}/"] = (
        f'<html><body><a href="{path}">{path.rpartition("/")[2]}</a></body></html>'.encode()
    )
    return path


def from_pieces(*names: str, sizes: tuple[int, ...]) -> RegistrySource:
    """Return the source that joins the pieces of these packages."""
    pieces = zip(names, sizes, strict=True)
    return RegistrySource(
        pieces=tuple(Piece(requirement=f"{name}==1.0", member=f"{name}/data.bin", size=size) for name, size in pieces)
    )


def joined(server: FileServer, content: bytes = CONTENT, count: int = 3) -> tuple[RegistrySource, list[str]]:
    """Publish content as so many packages; return the source that joins them, and the paths of the wheels."""
    each = -(-len(content) // count)
    pieces = [content[start : start + each] for start in range(0, len(content), each)]
    names = [f"tinypiece{n}" for n in range(1, count + 1)]
    paths = [publish(server, name, piece) for name, piece in zip(names, pieces, strict=True)]
    return from_pieces(*names, sizes=tuple(len(piece) for piece in pieces)), paths


def index_environment(server: FileServer) -> dict[str, str]:
    """Return the variables with which installers know this index and no other."""
    index = f"{server.url}/simple"
    return {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_INDEX_URL": index,
        "PIP_RETRIES": "0",
        "UV_NO_CONFIG": "1",
        "UV_DEFAULT_INDEX": index,
        "UV_HTTP_RETRIES": "0",
        "NO_PROXY": "127.0.0.1",
    }


#: Does what `pip download --no-deps` does with these indexes, without the second that pip takes to start.
_QUICK_PIP = """
import os, pathlib, re, sys, urllib.error, urllib.request
directory, requirement = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1]), sys.argv[-1]
index = os.environ["PIP_INDEX_URL"]
try:
    page = urllib.request.urlopen(f"{index}/{requirement.partition('==')[0]}/").read().decode()
    path = re.search('href="([^"]*)"', page)[1]
    wheel = urllib.request.urlopen(index.removesuffix("/simple") + path).read()
except urllib.error.HTTPError as error:
    sys.exit(f"ERROR: {error}")
(directory / path.rpartition("/")[2]).write_bytes(wheel)
"""


def install_quick_pip(folder: Path) -> dict[str, str]:
    """Write a quick pip into a folder; return the variables with which Python finds it and no other installer."""
    (folder / "pip").mkdir(parents=True)
    (folder / "pip" / "__init__.py").write_text("")
    (folder / "pip" / "__main__.py").write_text(_QUICK_PIP)
    return {"PYTHONPATH": str(folder), "PATH": str(folder)}
