"""Masks the operator's own secrets in what an upstream answers to a failed request.

Some servers quote the key they were sent ("Incorrect API key provided: …"). This transport around the real one is the
one place through which such an answer passes before it is judged, forwarded and kept. It reads error statuses, and
short whole answers of known length that are errors; every other reply is handed on as the object it came as.
"""

import json
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing

from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.seam import Transport, UpstreamCall, UpstreamReply
from mustcall.wire.outline import is_error_body

__all__ = ["MASK", "Masking", "secrets_of"]

#: What stands in place of a secret.
MASK = "[hidden key]"
#: Shorter values are no keys but stand-ins (`none`, `ollama`), which are words of other messages.
_SHORTEST = 8
#: Bodies of a success up to this announced length are looked at: errors are short.
_LONGEST_ERROR = 4096
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|passw|credential", re.IGNORECASE)


def secrets_of(endpoints: Iterable[Endpoint]) -> tuple[bytes, ...]:
    """Return the keys and secret headers of endpoints in every way JSON may write them, the longest first."""
    values: set[str] = set()
    for endpoint in endpoints:
        given = [endpoint.api_key or ""]
        given += [value for name, value in endpoint.headers.items() if _SECRET_HEADER.search(name)]
        for value in given:
            values |= {value.strip(), value.strip().rpartition(" ")[2]}  # with and without `Bearer`
    written: set[bytes] = set()
    for value in values:
        if len(value) >= _SHORTEST:
            quoted = json.dumps(value)[1:-1].encode()
            written |= {_bytes(value), quoted, quoted.replace(b"/", b"\\/")}
    return tuple(sorted(written, key=len, reverse=True))


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


class Masking:
    """A transport whose errors hold none of these secrets."""

    def __init__(self, transport: Transport, secrets: Sequence[bytes]) -> None:
        self._transport = transport
        self._secrets = secrets

    async def send(self, call: UpstreamCall) -> UpstreamReply:
        """Send a request; the body of an error is masked when it is read."""
        reply = await self._transport.send(call)
        if reply.status < 400:
            length = reply.headers.get("content-length", "")
            if not length.isdecimal() or int(length) > _LONGEST_ERROR:
                return reply
        return _Masked(reply, self._secrets)

    async def close(self) -> None:
        """Free everything."""
        await self._transport.close()


class _Masked:
    __slots__ = ("_reply", "_secrets")

    def __init__(self, reply: UpstreamReply, secrets: Sequence[bytes]) -> None:
        self._reply = reply
        self._secrets = secrets

    @property
    def status(self) -> int:
        return self._reply.status

    @property
    def headers(self) -> Mapping[str, str]:
        headers = self._reply.headers
        if self.status < 400:
            return headers
        return {
            name: self._without(_bytes(value)).decode("utf-8", "surrogateescape") for name, value in headers.items()
        }

    @property
    def arrived(self) -> bool:
        return self._reply.arrived

    async def read(self) -> bytes:
        body = await self._reply.read()
        hidden = self._without(body)
        return hidden if hidden is body or self.status >= 400 or is_error_body(body) else body

    async def chunks(self) -> AsyncGenerator[bytes]:
        if self.status >= 400:
            yield await self.read()
            return
        async with aclosing(self._reply.chunks()) as pieces:
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        await self._reply.close()

    def _without(self, text: bytes) -> bytes:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MASK.encode())
        return text
