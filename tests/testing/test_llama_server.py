"""`LlamaServer`: a real server starts, answers and stops; what can go wrong on the way is said in a sentence."""

import asyncio
import http.client
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mustcall.core.errors import ConfigError
from mustcall.testing import LlamaServer, LlamaServerFailed, llama
from support.embedded import readied
from support.tiny import tiny_model

_SMALL = "smollm2-135m"

#: A process that stands for the server's: it does not end on SIGTERM and is "loading" for as many polls as are given.
_STUBBORN = """
import json, signal, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
signal.signal(signal.SIGTERM, signal.SIG_IGN)
states = [503, 503, 200]
class Health(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(states.pop(0))
        self.send_header("Content-Length", "0")
        self.end_headers()
        sys.stderr.write(f"{self.path} left {len(states)}\\n")
server = HTTPServer(("127.0.0.1", 0), Health)
print("a library's greeting")
print(json.dumps({"url": f"http://127.0.0.1:{server.server_port}", "version": "stub"}), flush=True)
server.serve_forever()
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], LlamaServer]:
    """Return a maker of servers whose process runs the given code instead of llama.cpp."""
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")

    def make(code: str, **options: Any) -> LlamaServer:
        script = tmp_path / "process.py"
        script.write_text(code, encoding="utf-8")
        monkeypatch.setattr(llama, "_SCRIPT", script)
        return LlamaServer(model, **options)

    return make


def ask(server: LlamaServer, **fields: Any) -> dict[str, Any]:
    """Send one chat request; return the body of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    body = {"model": server.model, "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 4, **fields}
    connection.request("POST", "/v1/chat/completions", msgspec.json.encode(body))
    response = connection.getresponse()
    answer: dict[str, Any] = msgspec.json.decode(response.read())
    connection.close()
    assert response.status == 200, answer
    return answer


def listens(port: int) -> bool:
    """Tell whether connections are taken."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.connect()
    except ConnectionRefusedError:
        return False
    finally:
        connection.close()
    return True


def test_starts_answers_and_stops() -> None:
    """The 135M model answers under its own name while the server is open, and the port is free afterwards."""
    readied()
    with LlamaServer(_SMALL, context=512, threads=1, parallel=2) as server:
        assert (server.model, server.base_url) == (_SMALL, f"http://127.0.0.1:{server.port}/v1")
        assert server.version[0].isdigit()
        answer = ask(server)
        assert (answer["model"], answer["choices"][0]["message"]["role"]) == (_SMALL, "assistant")
        with pytest.raises(RuntimeError, match="started already"):
            server.start()
    assert not listens(server.port)
    server.close()


async def test_async_and_template(tmp_path: Path) -> None:
    """The same with `async with`; a chat template of the caller's replaces the model's."""
    template = tmp_path / "template.jinja"
    template.write_text("{{ 'word ' * 20 }}", encoding="utf-8")
    async with LlamaServer(tiny_model(tmp_path), context=512, threads=1, parallel=1, chat_template=template) as server:
        answer = await asyncio.to_thread(ask, server, max_tokens=1)
    assert answer["usage"]["prompt_tokens"] > 90
    assert not listens(server.port)


def test_loading_is_waited_out(stand_in: Callable[..., LlamaServer], monkeypatch: pytest.MonkeyPatch) -> None:
    """503 on `/health` means that the model is loading; a process that ignores SIGTERM is killed."""
    monkeypatch.setattr(llama, "_STOP_SECONDS", 0.05)
    server = stand_in(_STUBBORN).start()
    assert (server.version, server.model) == ("stub", "model")
    server.close()
    assert [line for line in server.log if line.startswith("/health")] == [f"/health left {n}" for n in (2, 1, 0)]
    assert not listens(server.port)


def test_health_polls_until_the_deadline() -> None:
    """A server that only ever says 503 is given up at the deadline, and one whose process ended at once."""

    class Loading(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(503)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Loading) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(TimeoutError):
            llama.await_health(url, time.monotonic() + 0.1, lambda: True)
        with pytest.raises(ChildProcessError):
            llama.await_health(url, time.monotonic() + 60, lambda: False)
        server.shutdown()


def test_late_process_is_given_up(stand_in: Callable[..., LlamaServer]) -> None:
    """A model that is not loaded in time is an error that names model and time, and the process is gone."""
    server = stand_in("import sys; sys.stdin.read()", patience=0.1)
    with pytest.raises(LlamaServerFailed, match=r"did not load model within 0\.1 s"):
        server.start()
    assert server.pid is None


def test_last_words_are_kept(stand_in: Callable[..., LlamaServer]) -> None:
    """A process that ends by itself is an error with what it logged last."""
    with pytest.raises(LlamaServerFailed, match=r"could not serve model; its last words:\nout of memory$"):
        stand_in("raise SystemExit('out of memory')").start()


async def test_cancelled_start_leaves_nothing(stand_in: Callable[..., LlamaServer]) -> None:
    """Cancelling `async with` while the model is loading ends the process: its connection to the test is closed."""
    came: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.put_nowait((reader, writer))

    with closing(await asyncio.start_server(take, "127.0.0.1", 0)) as test:
        port = test.sockets[0].getsockname()[1]
        server = stand_in(f"import socket, sys; s = socket.create_connection(('127.0.0.1', {port})); sys.stdin.read()")
        entering = asyncio.ensure_future(server.__aenter__())
        reader, writer = await came.get()
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    assert server.pid is None


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nowhere/model.gguf", r"^there is no model file at nowhere.model\.gguf$"),
        ("no-such-model", r"^there are no weights called 'no-such-model'; there are: "),
    ],
)
def test_wrong_model_is_one_sentence(model: str, said: str) -> None:
    """A path or name that means nothing is refused before a process is started."""
    with pytest.raises(ConfigError, match=said):
        LlamaServer(model)


def test_wrong_template_is_one_sentence(tmp_path: Path) -> None:
    """So is a chat template that is not there."""
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match=r"^there is no chat template at nowhere\.jinja$"):
        LlamaServer(model, chat_template="nowhere.jinja")


def test_cut_model_file(tmp_path: Path) -> None:
    """A file that begins as a model and is cut short is named, with llama.cpp's own words."""
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny_model(tmp_path).read_bytes()[:-4096])
    with pytest.raises(LlamaServerFailed, match=r"^llama\.cpp could not serve cut; its last words:\n(.*\n)*.*fail"):
        LlamaServer(cut).start()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs process descriptors")
def test_dead_parent_leaves_no_server(tmp_path: Path) -> None:
    """`kill -9` of the process that started the server ends the server too."""
    code = (
        "from mustcall.testing import LlamaServer\n"
        f"server = LlamaServer({str(tiny_model(tmp_path))!r}, context=256, threads=1, parallel=1).start()\n"
        "print(server.pid, server.port, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(  # noqa: S603  this interpreter
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, port = map(int, parent.stdout.readline().split())
        handle = os.pidfd_open(pid)
        try:
            assert listens(port)
            parent.kill()
            assert select.select([handle], [], [], 60)[0], "the server outlived its parent"
        finally:
            os.close(handle)
    assert not listens(port)
