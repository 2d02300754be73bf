"""The OpenAPI document: a table of routes, the types of `shapes`, and the headers of both directions.

It is served at `/openapi.json` and shown at `/docs`. docs/reference/http.md is printed from it.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

import msgspec

from mustcall.core import errors
from mustcall.core.errors import ModelError, MustcallError
from mustcall.core.origin import Wire
from mustcall.gateway.openapi import shapes
from mustcall.gateway.request_controls import CALLERS_HEADERS, PREFIX
from mustcall.wire.registry import codec_for

__all__ = ["REPLY_HEADERS", "document", "written"]

_RULE = re.compile(r"\s*\(rules? [\d, and]+\)")
_REFERENCE = "#/components/schemas/{name}"
_ABOUT = (
    "Every turn gives valid calls, a clean answer, or a typed error. Objects may have more fields than are listed: on "
    "the same wire they are passed on as they are."
)
_JSON, _EVENTS, _TEXT = "application/json", "text/event-stream", "text/plain"

#: The headers of a reply, and what each says.
REPLY_HEADERS = {
    "x-mustcall-request-id": "The gateway's id of the request.",
    "x-mustcall-outcome": "`calls`, `answer` or `failure`; `streaming` where a stream began before its verdict.",
    "x-mustcall-attempts": "Upstream calls made for this reply.",
    "x-mustcall-verdicts": "What each attempt was, in order: `force_missed,called`.",
    "x-mustcall-force": "What became of a demanded call: `none`, `met`, `unmet` or `dropped`.",
    "x-mustcall-protocol": "How tools are used with the upstream: `native`, `hybrid`, `prompt` or `off`.",
    "x-mustcall-trace": "The id of the turn, for `mustcall turns show` and the page.",
    "x-mustcall-adaptations": "What was changed on the way, as `kind:subject`.",
    "x-mustcall-usage-total": "The tokens of all attempts: `input=220, output=27`.",
    "x-mustcall-cost-usd": "With a budget: what the reply cost in US dollars, all attempts.",
    "x-mustcall-cost-estimated": "`true` where a price or a count was not known.",
}

#: Errors that no request is answered with: of a start, a command, a run, or a tool.
_ELSEWHERE = frozenset(
    {
        *(errors.ConfigError, errors.FetchFailed, errors.ToolError, errors.ToolRefused, errors.RoleFailed),
        *(errors.QuorumMissed, errors.LedgerMismatch, errors.UnknownTurn, errors.ContentsNotKept, errors.FenceLost),
        *(errors.AlreadyRecorded, errors.RunBusy, errors.UnknownRun, errors.UpstreamRejected),
    }
)


class _Route(NamedTuple):
    path: str
    method: str
    name: str
    summary: str
    reply: Any
    request: Any = None
    event: Any = None
    wire: Wire | None = None
    #: Whether it makes a turn: such a request may have our headers, and its reply has them.
    turn: bool = False
    #: Whether a key is asked for, where the gateway has keys.
    key: bool = True


_ROUTES = (
    _Route(
        "/v1/chat/completions",
        "post",
        "chat",
        "A turn on OpenAI Chat Completions",
        shapes.ChatCompletion,
        shapes.ChatRequest,
        shapes.ChatCompletionChunk,
        Wire.CHAT,
        turn=True,
    ),
    _Route(
        "/v1/responses",
        "post",
        "responses",
        "A turn on OpenAI Responses",
        shapes.Response,
        shapes.ResponsesRequest,
        shapes.ResponseEvent,
        Wire.RESPONSES,
        turn=True,
    ),
    _Route(
        "/v1/messages",
        "post",
        "messages",
        "A turn on Anthropic Messages",
        shapes.MessagesReply,
        shapes.MessagesRequest,
        shapes.MessageEvent,
        Wire.MESSAGES,
        turn=True,
    ),
    _Route(
        "/v1/messages/count_tokens",
        "post",
        "count_tokens",
        "Count the tokens of a Messages request; estimated where the upstream cannot count",
        shapes.TokenCount,
        shapes.MessagesRequest,
        wire=Wire.MESSAGES,
    ),
    _Route("/v1/responses/{id}", "get", "get_response", "Read a stored response", shapes.Response, wire=Wire.RESPONSES),
    _Route(
        "/v1/responses/{id}",
        "delete",
        "delete_response",
        "Delete a stored response",
        shapes.Deleted,
        wire=Wire.RESPONSES,
    ),
    _Route(
        "/v1/responses/{id}/input_items",
        "get",
        "list_input_items",
        "List the input of a stored response",
        shapes.InputItems,
        wire=Wire.RESPONSES,
    ),
    _Route("/v1/models", "get", "models", "List the models that can be asked for", shapes.Models),
    _Route(
        "/health",
        "get",
        "health",
        "Tell that the gateway answers; also /healthz, /readyz",
        shapes.HealthReply,
        key=False,
    ),
    _Route("/metrics", "get", "metrics", "Counts for Prometheus", None),
)


@cache
def document() -> dict[str, Any]:
    """Return the document."""
    kinds = [getattr(shapes, name) for name in shapes.__all__]
    _, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    for schema in components.values():
        if "description" in schema:  # the numbers of rules are for those who work on the code
            schema["description"] = _RULE.sub("", schema["description"])
    paths: dict[str, dict[str, Any]] = {}
    for route in _ROUTES:
        paths.setdefault(route.path, {})[route.method] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mustcall",
            "version": version("mustcall"),
            "description": _ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}, {"key": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


@cache
def written() -> bytes:
    """Return the document as JSON."""
    return msgspec.json.encode(document())


def _operation(route: _Route) -> dict[str, Any]:
    said: dict[str, Any] = {"operationId": route.name, "summary": route.summary}
    if not route.key:
        said["security"] = [{}]
    parameters = _parameters(route)
    if parameters:
        said["parameters"] = parameters
    if route.request is not None:
        said["requestBody"] = {"required": True, "content": {_JSON: {"schema": _reference(route.request)}}}
    content: dict[str, Any] = {_TEXT: {"schema": {"type": "string"}}}
    if route.reply is not None:
        content = {_JSON: {"schema": _reference(route.reply)}}
    if route.event is not None:
        # OpenAPI 3.1 has no word for the items of a stream: the schema of each event's data stands beside it.
        content[_EVENTS] = {"schema": {"type": "string"}, "x-event-data": _reference(route.event)}
    answer: dict[str, Any] = {"description": "The answer", "content": content}
    if route.turn:
        answer["headers"] = {
            name: {"description": meaning, "schema": {"type": "string"}} for name, meaning in REPLY_HEADERS.items()
        }
    said["responses"] = {"200": answer}
    if route.key:
        said["responses"] |= dict(_failures(route))
    return said


def _parameters(route: _Route) -> list[dict[str, Any]]:
    named = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    if route.turn:
        named += [
            {
                "name": PREFIX + name,
                "in": "header",
                "description": f"As `mustcall.{'limits.' if setting == 'extra_calls' else ''}{setting}` in the body.",
                "schema": {"type": "string"},
            }
            for name, (setting, _) in CALLERS_HEADERS.items()
        ]
    return named


def _failures(route: _Route) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield an answer for each status that an error may have, with its codes."""
    wire = route.wire or Wire.CHAT
    shape = shapes.MessagesError if wire is Wire.MESSAGES else shapes.OpenAIError
    codes: dict[int, set[str]] = {}
    for kind in _leaves(MustcallError):
        if issubclass(kind, ModelError) and not route.turn:
            continue
        status = codec_for(wire).failure_status if issubclass(kind, ModelError) else kind.status
        codes.setdefault(status, set()).add(kind.code)
    for status, found in sorted(codes.items()):
        told = ", ".join(f"`{code}`" for code in sorted(found))
        yield str(status), {"description": told, "content": {_JSON: {"schema": _reference(shape)}}}
    if route.turn:
        yield "default", {"description": "An error of the upstream: its own on the same wire"}


def _leaves(kind: type[MustcallError]) -> Iterator[type[MustcallError]]:
    below = kind.__subclasses__()
    if not below and kind not in _ELSEWHERE:
        yield kind
    for one in below:
        yield from _leaves(one)


def _reference(kind: Any) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=kind.__name__)}
