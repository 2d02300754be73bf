"""Reads the path and headers of one request, and its body within a size, a time and a rate. No refused body is kept."""

import asyncio
from collections.abc import MutableMapping
from time import monotonic
from typing import Any

from mustcall.core.errors import BodyTooLarge, InvalidRequest
from mustcall.core.http_headers import read_headers
from mustcall.gateway.config.settings import Settings
from mustcall.gateway.connections.admission import HeldBytes
from mustcall.gateway.replies import Receive, Scope
from mustcall.upstream.bounds import joined

__all__ = ["Gone", "headers_of", "path_of", "read_body", "refuse_empty"]


class Gone(Exception):
    """The client went away; there is nobody to answer."""


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the request's headers by name."""
    return read_headers(scope["headers"])


def refuse_empty(body: bytes) -> None:
    """Raise `InvalidRequest` for a body that holds nothing: a JSON parser would speak of data that was cut."""
    if not body or body.isspace():
        raise InvalidRequest("the body is empty; a JSON object is expected")


async def read_body(receive: Receive, declared: str, settings: Settings, held: HeldBytes) -> bytes:
    """Return the body; raise `BodyTooLarge`, `InvalidRequest` for one too slow, `GatewayBusy`, or `Gone`."""
    limit = settings.server.max_body_bytes
    if declared.isdecimal() and int(declared) > limit:
        raise BodyTooLarge(f"the body has {declared} bytes; this gateway takes at most {limit} (max_body_bytes)")
    # A body that does not begin is noticed where connections are watched: a timer here would cost every request.
    first = await receive()
    if first["type"] == "http.request" and not first.get("more_body"):
        body = bytes(first.get("body", b""))  # some servers hand over a bytearray; `bytes` of bytes is no copy
        held.take(len(body))
        if len(body) > limit:
            raise _too_large(limit)
        return body
    return await _rest_of_body(receive, first, settings, held)


async def _rest_of_body(
    receive: Receive, message: MutableMapping[str, Any], settings: Settings, held: HeldBytes
) -> bytes:
    """Read a body that comes in pieces. Each byte that comes allows a little more time."""
    limit, limits = settings.server.max_body_bytes, settings.limits
    pieces: list[bytes] = []
    size = 0
    began = monotonic()
    while True:
        if message["type"] == "http.disconnect":
            raise Gone
        piece = bytes(message.get("body", b""))
        size += len(piece)
        held.take(len(piece))
        pieces.append(piece)
        if size > limit:
            raise _too_large(limit)
        if not message.get("more_body"):
            return await joined(pieces, size)
        most, setting = settings.server.request_timeout, "request_timeout"
        allowed = limits.body_seconds + size / limits.body_bytes_per_second
        if allowed < most:
            most, setting = allowed, "[limits] body_seconds, body_bytes_per_second"
        try:
            async with asyncio.timeout(max(0.0, began + most - monotonic())):
                message = await receive()
        except TimeoutError:
            raise InvalidRequest(f"the body did not arrive within {most:g} s ({setting})") from None


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body is larger than this gateway takes: {limit} bytes (max_body_bytes)")


def path_of(asked: str) -> str:
    """Return a path below `/v1`, whichever way it was written."""
    path = asked.rstrip("/")
    for prefix in ("/v1/", "/api/v1/"):
        if path.startswith(prefix):
            return path[len(prefix) - 1 :]
    return path
