"""`GET` and `DELETE /v1/responses/{id}`, and a response's input items: from the ledger, else from who keeps it.

An id that is not the ledger's is asked of the upstreams that keep responses themselves, one after the other; the
first that knows it answers. Nobody learns whether another caller's id exists.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from mustcall.core.errors import LedgerError, MustcallError, UnknownRoute, UnknownState, WrongMethod
from mustcall.engine.exchange import WholeReply
from mustcall.gateway.state.conversation_state import Memory
from mustcall.gateway.state.response_owners import Holders
from mustcall.ledger import StoredResponse
from mustcall.upstream.endpoint import Endpoint, request_headers
from mustcall.upstream.seam import Transport, UpstreamCall

__all__ = ["PREFIX", "serve_stored"]

PREFIX = "/responses/"
_PATH = re.compile(r"/responses/(?P<id>[A-Za-z0-9_-]{1,200})(?P<rest>/input_items)?")


async def serve_stored(
    method: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    tenant: str,
    *,
    memory: Memory | None,
    holders: Holders | None,
    endpoints: Sequence[Endpoint],
    transport: Transport,
) -> WholeReply:
    """Answer for one stored response; raise `UnknownState` for one that nobody has, or not this caller.

    `holders` know whose the responses are that upstreams keep; None where each caller has a key of its own there.
    """
    found = _PATH.fullmatch(path)
    if found is None:
        raise UnknownRoute(f"nothing is served at {path!r}; stored responses are at /v1/responses/ID")
    allowed = "GET" if found["rest"] else "GET, DELETE"
    if method not in ("GET", "HEAD", "DELETE") or (found["rest"] and method == "DELETE"):
        raise WrongMethod(f"{path} takes {allowed}, not {method}", allowed=allowed)
    identifier = found["id"]
    away: LedgerError | None = None
    if memory is not None:
        try:
            kept = await memory.get(identifier, tenant)
        except LedgerError as error:  # it may be an upstream's
            kept, away = None, error
        if kept is not None:
            if method == "DELETE":
                await memory.ledger.delete_response(identifier, tenant)
                return _whole({"id": identifier, "object": "response", "deleted": True})
            return _whole(_input_items(kept)) if found["rest"] else _raw(kept.body)
    keepers = [endpoint for endpoint in endpoints if endpoint.keeps_responses]
    if keepers and holders is not None:
        await holders.check(identifier, tenant)
    for endpoint in keepers:
        reply = await _ask(endpoint, method, path + (f"?{query}" if query else ""), headers, transport)
        if reply is not None:
            return reply
    if away is not None:
        raise away
    raise UnknownState(f"Response with id '{identifier}' not found.")


async def _ask(
    endpoint: Endpoint, method: str, path: str, headers: Mapping[str, str], transport: Transport
) -> WholeReply | None:
    """Ask an upstream that keeps responses; None if it does not know this one or does not answer."""
    call = UpstreamCall(
        url=endpoint.base_url + path,
        method="GET" if method == "HEAD" else method,
        headers=request_headers(endpoint, headers, same_wire=True, stream=False),
        body=None,
        timeouts=endpoint.timeouts,
    )
    try:
        reply = await transport.send(call)
        try:
            body = await reply.read()
        finally:
            await reply.close()
    except MustcallError:
        return None
    return None if reply.status == 404 else WholeReply(status=reply.status, body=body, upstream_headers=reply.headers)


def _input_items(response: StoredResponse) -> dict[str, Any]:
    """Return what the caller sent with this response, each item under an id, the newest first."""
    items = cast("list[dict[str, Any]]", msgspec.json.decode(response.input))
    data = [
        {"id": f"in_{response.id.removeprefix('resp_')}_{number}", **_typed(item)} for number, item in enumerate(items)
    ]
    data.reverse()
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": False,
    }


def _typed(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as the API lists it: a message says that it is one, and its text is a part."""
    if "role" not in item or item.get("type", "message") != "message":
        return item
    content = item.get("content")
    kind = "output_text" if item["role"] == "assistant" else "input_text"
    if isinstance(content, str):
        content = [{"type": kind, "text": content}]
    return {**item, "type": "message", "content": content, "status": item.get("status", "completed")}


def _whole(value: dict[str, Any]) -> WholeReply:
    return _raw(msgspec.json.encode(value))


def _raw(body: bytes) -> WholeReply:
    return WholeReply(status=200, body=body, upstream_headers={})
