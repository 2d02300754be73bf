"""What the gateway does for a caller, apart from HTTP: serve a turn, count tokens, list models."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationKind
from mustcall.core.errors import MustcallError
from mustcall.core.origin import JsonObject, Wire
from mustcall.engine.exchange import Inbound, StreamedReply, WholeReply, exchange
from mustcall.gateway.settings import Settings
from mustcall.policy.routing import choose
from mustcall.upstream.endpoint import Endpoint, request_headers
from mustcall.upstream.retry import Clock
from mustcall.upstream.seam import Transport, UpstreamCall
from mustcall.wire.messages import estimate_tokens
from mustcall.wire.outline import is_error_body, rename_model
from mustcall.wire.registry import codec_for

__all__ = ["Service"]

_MODELS_TIMEOUT = 5.0


class Service:
    """The operations behind the routes."""

    def __init__(self, settings: Settings, transport: Transport, clock: Clock) -> None:
        self._settings = settings
        self._transport = transport
        self._clock = clock
        self._endpoints = {endpoint.name: endpoint for endpoint in settings.endpoints}

    async def turn(
        self, wire: Wire, body: bytes, headers: Mapping[str, str], query: str, token: str
    ) -> WholeReply | StreamedReply:
        """Serve one request for one reply."""
        seen = codec_for(wire).peek(body)
        endpoint, model = self._route(seen.model, wire)
        inbound = Inbound(
            wire=wire,
            body=body,
            headers=headers,
            query=query,
            stream=seen.stream,
            token=token,
            request_id=f"req_{token}",
        )
        deadline = self._clock.monotonic() + self._settings.server.request_timeout
        return await exchange(inbound, endpoint, model, self._transport, self._clock, deadline=deadline)

    async def count_tokens(self, body: bytes, headers: Mapping[str, str], query: str, token: str) -> WholeReply:
        """Count a Messages request's tokens: by the upstream if it speaks Messages, by estimate otherwise."""
        codec = codec_for(Wire.MESSAGES)
        endpoint, model = self._route(codec.peek(body).model, Wire.MESSAGES)
        if endpoint.wire is not Wire.MESSAGES:
            request = codec.decode_request(body)
            return WholeReply(
                status=200,
                body=msgspec.json.encode({"input_tokens": estimate_tokens(request)}),
                upstream_headers={},
                adaptations=(Adaptation(AdaptationKind.ESTIMATED, "input_tokens"),),
            )
        reply = await self._transport.send(
            UpstreamCall(
                url=f"{endpoint.base_url}{codec.path}/count_tokens" + (f"?{query}" if query else ""),
                headers=request_headers(endpoint, headers, same_wire=True, stream=False),
                body=body if model is None else rename_model(body, model),
                timeouts=endpoint.timeouts,
            )
        )
        try:
            answer = await reply.read()
        finally:
            await reply.close()
        if reply.status >= 400 and not is_error_body(answer):
            info = codec.decode_error(reply.status, answer)
            answer = msgspec.json.encode(codec.encode_error(info, f"req_{token}"))
        return WholeReply(status=reply.status, body=answer, upstream_headers=reply.headers)

    async def models(self, headers: Mapping[str, str]) -> bytes:
        """List the models on offer: routed names, and what the upstreams list themselves.

        An upstream that does not answer in time is left out: the list is a convenience, not a promise.
        """
        names: dict[str, str] = {}
        for route in self._settings.routes:
            if "*" not in route.model and "?" not in route.model and "[" not in route.model:
                names[route.model] = route.upstream
        if not self._settings.routes:
            listings = await asyncio.gather(*(self._list(endpoint, headers) for endpoint in self._endpoints.values()))
            for endpoint, listing in zip(self._endpoints.values(), listings, strict=True):
                for name in listing:
                    names.setdefault(name, endpoint.name)
        if "anthropic-version" in headers:
            return msgspec.json.encode(_anthropic_list(names))
        return msgspec.json.encode(_openai_list(names))

    def _route(self, model: str, wire: Wire) -> tuple[Endpoint, str | None]:
        destination = choose(model, wire, self._settings.routes, self._settings.doors)
        return self._endpoints[destination.upstream], None if destination.model == model else destination.model

    async def _list(self, endpoint: Endpoint, headers: Mapping[str, str]) -> list[str]:
        same_wire = ("anthropic-version" in headers) == (endpoint.wire is Wire.MESSAGES)
        call = UpstreamCall(
            url=f"{endpoint.base_url}/models",
            method="GET",
            headers=request_headers(endpoint, headers, same_wire=same_wire, stream=False),
            body=None,
            timeouts=endpoint.timeouts,
        )
        try:
            async with asyncio.timeout(_MODELS_TIMEOUT):
                reply = await self._transport.send(call)
                try:
                    body = await reply.read()
                finally:
                    await reply.close()
            listing = msgspec.json.decode(body, type=_Listing)
        except (MustcallError, TimeoutError, msgspec.DecodeError, RecursionError):
            return []
        return [model.id for model in listing.data]


class _Listed(msgspec.Struct):
    id: str


class _Listing(msgspec.Struct):
    data: list[_Listed]


def _openai_list(names: Mapping[str, str]) -> JsonObject:
    data = [{"id": name, "object": "model", "created": 0, "owned_by": owner} for name, owner in names.items()]
    return {"object": "list", "data": data}


def _anthropic_list(names: Mapping[str, str]) -> JsonObject:
    data: list[dict[str, Any]] = [
        {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"} for name in names
    ]
    ids = list(names)
    return {
        "data": data,
        "has_more": False,
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
    }
