"""The models an upstream lists: one request, one bounded wait. What the list is used for is decided above."""

import asyncio
from collections.abc import Mapping

import msgspec

from mustcall.core.errors import UpstreamTimeout
from mustcall.upstream import failures
from mustcall.upstream.endpoint import Endpoint, request_headers
from mustcall.upstream.seam import Transport, UpstreamCall

__all__ = ["Listing", "ask_models"]


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """What an upstream answered. `models` is None where the answer is no list of models."""

    status: int
    models: tuple[str, ...] | None = None
    #: Whom the models belong to, as the server says; servers put their own name there.
    owners: frozenset[str] = frozenset()
    headers: Mapping[str, str] = {}


class _Model(msgspec.Struct):
    id: str
    owned_by: str | None = None


class _Body(msgspec.Struct):
    data: list[_Model]


async def ask_models(
    endpoint: Endpoint,
    transport: Transport,
    *,
    seconds: float,
    caller: Mapping[str, str] | None = None,
    same_wire: bool = True,
) -> Listing:
    """Ask for the list, with the endpoint's own key or the caller's; raise `UpstreamError` where none is answered."""
    call = UpstreamCall(
        url=f"{endpoint.base_url}/models",
        method="GET",
        headers=request_headers(endpoint, caller or {}, same_wire=same_wire, stream=False),
        body=None,
        timeouts=endpoint.timeouts,
    )
    try:
        async with asyncio.timeout(seconds):
            reply = await transport.send(call)
            try:
                body = await reply.read()
            finally:
                await reply.close()
    except TimeoutError:
        raise UpstreamTimeout(f"the upstream {endpoint.name!r} did not list its models within {seconds:g} s") from None
    if 300 <= reply.status < 400:
        raise failures.redirected(call, reply.status, reply.headers.get("location"))
    try:
        listed = msgspec.json.decode(body, type=_Body).data if reply.status < 400 else None
    except (msgspec.DecodeError, ValueError, RecursionError):
        listed = None
    if listed is None:
        return Listing(status=reply.status, headers=reply.headers)
    return Listing(
        status=reply.status,
        models=tuple(model.id for model in listed),
        owners=frozenset(model.owned_by for model in listed if model.owned_by),
        headers=reply.headers,
    )
