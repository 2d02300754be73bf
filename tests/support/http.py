"""Plain HTTP for tests: bytes in, bytes out, nothing interpreted."""

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Response", "call", "post"]


@dataclass(frozen=True)
class Response:
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def call(
    method: str, url: str, body: bytes | None = None, headers: dict[str, str] | None = None, timeout: float = 120
) -> Response:
    """Make one request on a connection of its own."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target, body, {"content-type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return Response(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def post(url: str, body: Any, headers: dict[str, str] | None = None) -> Response:
    """Post a JSON value, or bytes as they are."""
    return call("POST", url, body if isinstance(body, bytes) else json.dumps(body).encode(), headers)
