"""Attacks on the front: what needs no key. Findings 4 and 9 of the attack that began this, and variants."""

import socket
import time
from contextlib import suppress

from attacks.sending import Attack, Place, answer_of, ask, head_of

__all__ = ["ATTACKS"]

_REFUSED = frozenset({0, 400, 408, 413, 414, 431, 503})
_BODY = b'{"model":"good","messages":[{"role":"user","content":"hi"}]}'


def _headers(line: bytes, count: int) -> Attack:
    def run(place: Place) -> set[int]:
        request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n" + line * count + b"\r\n"
        return {ask(place, request)}

    return Attack(f"{count} headers of {len(line)} bytes", run, frozenset({431, 0}), quick=count == 200_000)


def _half_heads(count: int, sent: bytes) -> Attack:
    def run(place: Place) -> set[int]:
        held: list[socket.socket] = []
        with suppress(OSError):
            for _ in range(count):
                connection = socket.create_connection(place, timeout=30)
                held.append(connection)
                with suppress(OSError):
                    connection.sendall(sent)
        time.sleep(2)
        found: set[int] = set()
        for connection in held:
            with suppress(OSError):
                found.add(answer_of(connection))
            connection.close()
        return found or {0}

    return Attack(f"{count} connections that send {len(sent)} bytes", run, _REFUSED)


def _slow(total: int, pause: float) -> Attack:
    def run(place: Place) -> set[int]:
        with socket.create_connection(place, timeout=60) as connection:
            connection.sendall(head_of(total))
            until = time.monotonic() + 45
            with suppress(OSError):
                while time.monotonic() < until:
                    connection.sendall(b" ")
                    time.sleep(pause)
            return {answer_of(connection)}

    return Attack(f"a body of {total} bytes at one byte in {pause} s", run, _REFUSED)


def _host(name: bytes, path: bytes) -> Attack:
    def run(place: Place) -> set[int]:
        return {ask(place, b"GET %b HTTP/1.1\r\nhost: %b\r\nconnection: close\r\n\r\n" % (path, name))}

    return Attack(f"GET {path.decode()} by the name {name.decode()}", run, frozenset({403, 400}), quick=True)


def _garbage(data: bytes, name: str) -> Attack:
    return Attack(name, lambda place: {ask(place, data)}, frozenset({0, 400, 401, 405, 408, 413, 414, 431}), quick=True)


def _pipelined(count: int) -> Attack:
    def run(place: Place) -> set[int]:
        request = head_of(len(_BODY)) + _BODY
        return {ask(place, request * count + head_of(0, b"connection: close"))}

    return Attack(f"{count} requests at once on one connection", run, frozenset({0, 200, 400, 503, 599}))


ATTACKS: tuple[Attack, ...] = (
    *(_headers(b"x: y\r\n", count) for count in (129, 1_000, 20_000, 200_000, 1_000_000)),
    *(_headers(b"x-%b: y\r\n" % (b"n" * size), 2_000) for size in (1, 100, 1_000)),
    *(_headers(b"x: %b\r\n" % (b"y" * size), 1) for size in (70_000, 1_000_000, 32_000_000)),
    _half_heads(1_100, b"POST /v1/chat"),
    _half_heads(1_100, b""),
    _half_heads(1_000, head_of(1_000) + b"{"),
    _half_heads(1_000, head_of(60_000_000)),
    _slow(1_000, 0.1),
    _slow(10_000_000, 0.001),
    *(_host(name, path) for name in (b"evil.example", b"127.0.0.1.evil.example:80") for path in (b"/v1/models", b"/")),
    _garbage(b"\x16\x03\x01" + bytes(200), "TLS on a plain port"),
    _garbage(b"\r\n" * 100_000, "empty lines"),
    _garbage(b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n", "a long path"),
    _garbage(b"GET /v1/models?" + b"a=b&" * 50_000 + b" HTTP/1.1\r\n\r\n", "a long query"),
    _garbage(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + b"f" * 5_000, "a chunk without end"),
    _garbage(head_of(None, b"content-length: 5", b"content-length: 6") + b"hello!", "two lengths"),
    _garbage(head_of(5, b"transfer-encoding: chunked") + b"0\r\n\r\n", "a length and chunks"),
    _garbage(head_of(99_999_999_999_999_999_999), "a length beyond all numbers"),
    _pipelined(20),
    _pipelined(200),
)
