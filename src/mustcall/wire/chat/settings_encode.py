"""How the settings of a canonical request are spelled for a Chat Completions server: all but model and messages."""

from collections.abc import Callable, Mapping
from typing import Any

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.errors import UnsupportedFeature
from mustcall.core.origin import JsonObject, Value, Wire
from mustcall.core.parts import (
    CallKind,
)
from mustcall.core.request import OutputFormat, OutputKind, ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import ChoiceMode, ProviderTool, Tool, ToolChoice
from mustcall.wire.caching.encode_cache import WrittenSettings, WrittenTools
from mustcall.wire.chat.request_decode import (
    decode_choice,
    decode_max_tokens,
    decode_output,
    decode_reasoning,
    decode_stop,
    decode_stream_usage,
)
from mustcall.wire.codec import Target
from mustcall.wire.crossing.effort import effort_for_budget
from mustcall.wire.crossing.naming import flat_name
from mustcall.wire.crossing.offer import offer_for
from mustcall.wire.reading import maybe_object

__all__ = ["CHAT_SETTINGS", "note_fields"]


_CHAT = Wire.CHAT

#: Fields of other wires that mean the same here.
_SHARED = {
    Wire.RESPONSES: frozenset(
        {"user", "metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"}
    ),
    Wire.MESSAGES: frozenset[str](),
    Wire.CHAT: frozenset[str](),
}

#: Fields of other wires whose loss would change what the caller gets, and what to do about it.
_REFUSED = {
    "background": "send it without `background`",
    "conversation": "send the whole conversation in `input`",
    "prompt": "send the prompt's text in `instructions`",
    "tool_choice": "choose a function tool, or `auto`",
    "mcp_servers": "offer the server's tools as function tools",
    "container": "send it without `container`",
}


def _encode_settings(request: Request, _: Target, log: AdaptationLog) -> JsonObject:
    """Write everything but `model` and `messages`."""
    body: JsonObject = {}
    offer = offer_for(request, _CHAT, log)
    spelling = request.spelling_for(_CHAT)
    native = request.origin is not None and request.origin.wire is _CHAT
    if offer.tools:
        body["tools"] = _written.get(offer.tools, log)
    choice = offer.choice
    if native and not offer.tools and not spelling.get("tools"):
        # Never any tools: an empty list, a null and a choice without tools are the caller's own affair on this wire.
        body.update({key: spelling[key] for key in ("tools",) if key in spelling})
        choice = request.tool_choice

    parallel = request.parallel_tool_calls if offer.tools or native else None
    if native:
        _keep_spelled(body, request, choice, parallel, log)
    else:
        _write_settings(body, request, choice, parallel, log)
    # A canonical field that was written wins over an unread form of it.
    return body | {name: value for name, value in _carried_fields(request, log).items() if name not in body}


CHAT_SETTINGS = WrittenSettings(_CHAT, _encode_settings)


def _write_settings(
    body: JsonObject, request: Request, choice: ToolChoice | None, parallel: bool | None, log: AdaptationLog
) -> None:
    """Write the settings of a caller on another wire."""
    if choice is not None:
        body["tool_choice"] = _encode_choice(choice)
    if parallel is not None:
        body["parallel_tool_calls"] = parallel
    if request.max_tokens is not None:
        body["max_completion_tokens"] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.top_p is not None:
        body["top_p"] = request.top_p
    if request.stop:
        body["stop"] = list(request.stop)
    if request.reasoning is not None:
        body |= _encode_reasoning_config(request.reasoning, log)
    if request.output is not None:
        body |= _encode_output(request.output)
    if request.stream:
        body |= _encode_stream(request, {}, native=False)


def _keep_spelled(
    body: JsonObject, request: Request, choice: ToolChoice | None, parallel: bool | None, log: AdaptationLog
) -> None:
    """Write the settings of a caller on this wire: each as it was spelled while its meaning is unchanged."""
    spelling = request.spelling_for(_CHAT)

    def put(decoded: Any, meaning: Any, keys: tuple[str, ...], write: Callable[[], JsonObject]) -> None:
        if decoded == meaning:
            body.update({key: spelling[key] for key in keys if key in spelling})
        elif meaning is not None:
            body.update(write())

    put(
        decode_choice(spelling.get("tool_choice")),
        choice,
        ("tool_choice",),
        lambda: {"tool_choice": _encode_choice(choice)},
    )
    put(
        spelling.get("parallel_tool_calls"),
        parallel,
        ("parallel_tool_calls",),
        lambda: {"parallel_tool_calls": parallel},
    )
    limit_key = "max_tokens" if spelling.get("max_tokens") is not None else "max_completion_tokens"
    put(
        decode_max_tokens(spelling),
        request.max_tokens,
        ("max_tokens", "max_completion_tokens"),
        lambda: {limit_key: request.max_tokens},
    )
    put(
        spelling.get("temperature"), request.temperature, ("temperature",), lambda: {"temperature": request.temperature}
    )
    put(spelling.get("top_p"), request.top_p, ("top_p",), lambda: {"top_p": request.top_p})
    put(decode_stop(spelling), request.stop, ("stop",), lambda: {"stop": list(request.stop)} if request.stop else {})
    put(
        decode_reasoning(spelling),
        request.reasoning,
        ("reasoning_effort",),
        lambda: _encode_reasoning_config(request.reasoning, log),
    )
    put(decode_output(spelling), request.output, ("response_format",), lambda: _encode_output(request.output))
    put(
        (spelling.get("stream") or False, decode_stream_usage(spelling)),
        (request.stream, request.stream_usage),
        ("stream", "stream_options"),
        lambda: _encode_stream(request, spelling, native=True),
    )


def _encode_stream(request: Request, spelling: Mapping[str, Any], *, native: bool) -> JsonObject:
    """Write the stream settings. Usage is always asked for when the caller's wire ends its streams with it."""
    if not request.stream:
        return {}
    options = dict(spelling.get("stream_options") or {})
    options.pop("include_usage", None)
    if request.stream_usage or not native:
        options["include_usage"] = True
    return {"stream": True, "stream_options": options} if options else {"stream": True}


def _carried_fields(request: Request, log: AdaptationLog) -> JsonObject:
    """Return the top-level fields without a canonical word that may be sent here."""
    origin = request.origin
    if request.previous_response_id is not None:
        raise UnsupportedFeature(
            f"`previous_response_id` {request.previous_response_id!r} refers to state that an upstream on the chat "
            "wire does not keep; send the whole conversation in `input`",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    if origin is None:
        return {}
    if origin.wire is _CHAT:
        return dict(origin.fields)
    shared = _SHARED[origin.wire]
    carried: JsonObject = {}
    for name, value in origin.fields.items():
        verbosity = (maybe_object(value) or {}).get("verbosity") if name == "text" else None
        if name in shared:
            carried[name] = value
        elif verbosity is not None and origin.wire is Wire.RESPONSES:
            carried["verbosity"] = verbosity
        elif value and name in _REFUSED:
            raise UnsupportedFeature(
                f"`{name}` has no counterpart on an upstream of the chat wire; {_REFUSED[name]}", param=name
            )
        else:
            log.add(AdaptationKind.FIELD_DROPPED, name, "no counterpart on the chat wire")
    return carried


def note_fields(value: Value, log: AdaptationLog) -> None:
    """Note the fields of a message, part or tool of another wire that have no word here (`cache_control`, …)."""
    if value.origin is not None and value.origin.wire is not _CHAT:
        for name in value.origin.fields:
            log.add(AdaptationKind.FIELD_DROPPED, name, "no counterpart on the chat wire")


def _encode_tool(tool: Tool | ProviderTool, log: AdaptationLog) -> JsonObject:
    raw = tool.raw_for(_CHAT)
    if raw is not None:
        return raw
    if isinstance(tool, ProviderTool):
        return tool.value
    note_fields(tool, log)
    fields = dict(tool.fields_for(_CHAT))
    inner: JsonObject = {"name": flat_name(tool.namespace, tool.name)}
    if tool.description is not None:
        inner["description"] = tool.description
    if tool.kind is CallKind.CUSTOM:
        if tool.format is not None:
            inner["format"] = tool.format
    elif tool.parameters is not None:
        inner["parameters"] = tool.parameters
    if tool.strict is not None:
        inner["strict"] = tool.strict
    kind = str(tool.kind)
    inner.update(fields.pop(kind, {}))
    return {"type": kind, kind: inner, **fields}


_written = WrittenTools(lambda tools, log: [_encode_tool(tool, log) for tool in tools])


def _encode_choice(choice: ToolChoice | None) -> Any:
    assert choice is not None, "a choice is only written where there is one"
    if choice.mode is ChoiceMode.NAMED:
        name = flat_name(choice.namespace, choice.name or "")
        kind = str(choice.kind)
        return {"type": kind, kind: {"name": name}}
    if choice.allowed is not None:
        tools = [{"type": "function", "function": {"name": name}} for name in choice.allowed]
        return {"type": "allowed_tools", "allowed_tools": {"mode": str(choice.mode), "tools": tools}}
    return str(choice.mode)


def _encode_reasoning_config(config: ReasoningConfig | None, log: AdaptationLog) -> JsonObject:
    if config is None:
        return {}
    if config.summary is not None:
        log.add(AdaptationKind.FIELD_DROPPED, "reasoning.summary", "chat servers show thinking as they do")
    if config.mode is ReasoningMode.DISABLED:
        if config.effort == "none":
            return {"reasoning_effort": "none"}
        log.add(AdaptationKind.FIELD_DROPPED, "thinking", "disabled; few chat servers know a word for that")
        return {}
    effort = config.effort
    if effort is None and config.budget_tokens is not None:
        effort = effort_for_budget(config.budget_tokens)
        log.add(AdaptationKind.FIELD_MAPPED, "thinking", f"budget of {config.budget_tokens} tokens as effort {effort}")
    if effort is None:
        log.add(AdaptationKind.FIELD_DROPPED, "thinking", "no effort given; the server's own default applies")
        return {}
    return {"reasoning_effort": effort}


def _encode_output(output: OutputFormat | None) -> JsonObject:
    if output is None:
        return {}
    if output.kind is not OutputKind.SCHEMA:
        return {"response_format": {"type": str(output.kind)}}
    inner: JsonObject = {"name": output.name or "answer", "schema": output.schema or {}}
    if output.description is not None:
        inner["description"] = output.description
    if output.strict is not None:
        inner["strict"] = output.strict
    return {"response_format": {"type": "json_schema", "json_schema": inner}}
