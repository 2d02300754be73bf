"""A client that goes away while its answer is being inflated: the upstream's connection is cut."""

import json
import random
import socket
import threading
import zlib
from collections.abc import Generator
from contextlib import contextmanager, suppress

import pytest

from mustcall.gateway.config.settings import settings_from_flags
from mustcall.testing.gateway import RunningGateway

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n"
#: Blocks that are sent at most, far below any limit on a reply: what ends before that was ended by the gateway.
_MOST = 3_000


def _event(text: str) -> bytes:
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    chunk = {"id": "c", "object": "chat.completion.chunk", "model": "m", "created": 1, "choices": [choice]}
    return b"data: %b\n\n" % json.dumps(chunk).encode()


class _Endless:
    """Answers one request with compressed events, one block in ten milliseconds, until nobody takes them."""

    def __init__(self, *, empty: bool) -> None:
        self._empty = empty
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            connection, _ = self._listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(_HEAD)
                self._send(connection)

    def _send(self, connection: socket.socket) -> None:
        maker, chance = zlib.compressobj(wbits=zlib.MAX_WBITS | 16), random.Random(1)
        for number in range(_MOST):
            plain = b": nothing\n\n" if self._empty and number else _event(chance.randbytes(40).hex())
            try:
                connection.sendall(maker.compress(plain) + maker.flush(zlib.Z_SYNC_FLUSH))
            except OSError:
                self.cut.set()
                return
            if self._stop.wait(0.01):
                return

    def close(self) -> None:
        """Stop, whether anybody asked or not."""
        self._stop.set()
        self._listener.close()
        self._thread.join(30)


@contextmanager
def _serving(*, empty: bool) -> Generator[_Endless]:
    upstream = _Endless(empty=empty)
    try:
        yield upstream
    finally:
        upstream.close()


@pytest.mark.parametrize("empty", [False, True], ids=["text", "comments"])
def test_a_departure_is_noticed_while_inflating(empty: bool) -> None:
    """Rule 68: whatever the compressed stream says, the upstream is left once its caller has gone."""
    body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )
    with (
        _serving(empty=empty) as upstream,
        RunningGateway(settings=settings_from_flags(f"chat=http://127.0.0.1:{upstream.port}/v1")) as gateway,
    ):
        host, _, port = gateway.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=180) as client:
            client.sendall(request)
            assert client.recv(65_536).startswith(b"HTTP/1.1 200")
        assert upstream.cut.wait(180)
