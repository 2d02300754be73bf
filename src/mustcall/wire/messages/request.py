"""Messages requests, both ways.

Decides how a canonical request is spelled for a Messages upstream and what a Messages request means. A request of
this wire that nobody changed goes out as it came. Server-held threads are refused with the answer that makes the
SDK resend its whole history; a missing `max_tokens` is left to whoever encodes the request.
"""

from functools import reduce
from typing import Any

import msgspec

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.errors import UnsupportedFeature
from mustcall.core.message import Message, Role
from mustcall.core.origin import JsonObject, Origin, Wire
from mustcall.core.parts import ToolResult
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode
from mustcall.wire.caching.decode_cache import RepeatedReader, Tools
from mustcall.wire.caching.encode_cache import WrittenSettings, WrittenTools
from mustcall.wire.caching.written_history import Pieces
from mustcall.wire.codec import Peek, Target
from mustcall.wire.crossing.offer import ToolOffer, offer_for
from mustcall.wire.messages.blocks import read_content
from mustcall.wire.messages.prompt import PromptWriter, answers_bare_call, carries_foreign_state, in_pieces
from mustcall.wire.messages.settings import (
    Thinking,
    plan_thinking,
    read_choice,
    read_output,
    read_reasoning,
    read_tool,
    unknown_settings,
    write_choice,
    write_output_config,
    write_tool,
)
from mustcall.wire.opening import Fields
from mustcall.wire.reading import (
    ShapeError,
    as_list,
    as_object,
    as_str,
    at,
    each,
    list_field,
    opt_bool,
    opt_float,
    opt_int,
    opt_list,
    read_outline,
    reading_request,
    rest,
    str_field,
)

__all__ = ["decode_request", "encode_request", "peek"]

_WIRE = Wire.MESSAGES

_KNOWN = frozenset(
    {
        "model",
        "messages",
        "system",
        "tools",
        "tool_choice",
        "max_tokens",
        "temperature",
        "top_p",
        "stop_sequences",
        "thinking",
        "output_config",
        "stream",
    }
)
#: Known fields whose spelling (null, absent, empty) is kept while their meaning is unchanged.
_SPELLED = ("tool_choice", "temperature", "top_p", "stop_sequences", "thinking", "output_config", "stream")
_MESSAGE_KEYS = frozenset({"role", "content"})
_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}

#: Fields of other wires that mean the same here.
_SHARED = frozenset({"top_k"})
#: Fields of other wires that name the end user, in the order they are looked for; here it is `metadata.user_id`.
_USER_FIELDS = ("safety_identifier", "user")
#: Values that ask for what this wire does anyway.
_INERT: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "store": (False,),
    "background": (False,),
    "modalities": (["text"],),
    "logprobs": (False,),
}
#: Fields of other wires whose loss would change what the caller gets, and what to do about it.
_REFUSED = {
    "n": "ask for one reply at a time",
    "background": "send the request in the foreground",
    "conversation": "send the whole history in the request",
    "prompt": "send the prompt itself instead of a stored template",
    "modalities": "ask for text only",
    "audio": "ask for text only",
    "tool_choice": "choose a function tool, or `auto`",
    "functions": "offer them as `tools`",
    "function_call": "choose by `tool_choice`",
}

_LOWEST_TOP_P_WHILE_THINKING = 0.95


class _BlockOutline(msgspec.Struct):
    type: str


class _MessageOutline(msgspec.Struct):
    role: str
    content: str | list[_BlockOutline]


class _ToolOutline(msgspec.Struct):
    type: str | None = None
    name: str | None = None


class _Outline(msgspec.Struct):
    model: str
    messages: list[_MessageOutline]
    stream: bool | None = None
    system: str | list[_BlockOutline] | None = None
    tools: list[_ToolOutline] | None = None
    tool_choice: _ToolOutline | None = None
    max_tokens: int | float | None = None
    thread: Any = None


_outline = msgspec.json.Decoder(_Outline)


def peek(body: bytes) -> Peek:
    """Check the outline of a request and return its model and whether it streams."""
    outline = read_outline(_outline, body)
    _refuse_thread(outline.thread)
    return Peek(outline.model, outline.stream or False)


def _refuse_thread(thread: Any) -> None:
    """Refuse server-held threads in the words that make the SDK fall back to sending its whole history."""
    if thread is not None:
        raise UnsupportedFeature(
            "`thread` is not supported: this server keeps no conversation state; send the whole history in `messages`",
            param="thread",
            details={"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
        )


def decode_request(body: bytes, fields: Fields | None = None) -> Request:
    """Read a caller's request; one without `max_tokens` (count_tokens has none) is read too."""
    with reading_request():
        return _repeated.decode(body, fields)


def _read_frame(value: JsonObject) -> Request:
    _refuse_thread(value.get("thread"))
    choice, parallel = read_choice(value)
    stops = opt_list(value, "stop_sequences") or []
    return Request(
        model=str_field(value, "model"),
        messages=(),
        system=_read_system(value.get("system")),
        tool_choice=choice,
        parallel_tool_calls=parallel,
        max_tokens=opt_int(value, "max_tokens"),
        temperature=opt_float(value, "temperature"),
        top_p=opt_float(value, "top_p"),
        stop=tuple(each(stops, as_str, "stop_sequences")),
        reasoning=read_reasoning(value),
        output=read_output(value),
        stream=opt_bool(value, "stream") or False,
        stream_usage=True,
        origin=Origin(_WIRE, {**rest(value, _KNOWN), **unknown_settings(value)}, spelling=_spelling(value)),
    )


def _read_messages(value: JsonObject) -> tuple[Message, ...]:
    return tuple(each(list_field(value, "messages"), _read_message, "messages"))


def _spelling(value: JsonObject) -> JsonObject:
    spelled = {key: value[key] for key in _SPELLED if key in value}
    return spelled | {key: value[key] for key in ("system", "tools") if key in value and not value[key]}


def _read_system(value: Any) -> Message | None:
    if value is None:
        return None
    with at("system"):
        return Message(role=Role.SYSTEM, parts=read_content(value), origin=Origin(_WIRE, raw=value))


def _read_message(value: Any) -> Message:
    message = as_object(value)
    name = str_field(message, "role")
    role = _ROLES.get(name)
    if role is None:
        raise ShapeError("one of user, assistant, system", name, "role")
    if "content" not in message:
        raise ShapeError("is required", path="content")
    with at("content"):
        parts = read_content(message["content"])
    if role is Role.USER and parts and all(isinstance(part, ToolResult) for part in parts):
        role = Role.TOOL
    return Message(role=role, parts=parts, origin=Origin(_WIRE, rest(message, _MESSAGE_KEYS), message))


def _read_tools(values: Any) -> Tools:
    with at("tools"):
        return () if values is None else tuple(each(as_list(values), read_tool))


_repeated = RepeatedReader("messages", _read_message, _read_tools, _read_frame, _read_messages)


_written = WrittenTools(lambda tools, log: [write_tool(tool, log) for tool in tools])


def encode_request(request: Request, target: Target, log: AdaptationLog, *, pieces: bool = False) -> JsonObject:
    """Write a request for an upstream of this wire."""
    raw = request.raw_for(_WIRE)
    if raw is not None and not any(carries_foreign_state(message) for message in request.messages):
        return raw
    native = request.origin is not None and request.origin.wire is _WIRE
    if request.previous_response_id is not None:
        raise UnsupportedFeature(
            f"`previous_response_id` {request.previous_response_id!r} refers to state that an upstream on the messages "
            "wire does not keep; send the whole conversation in `input`",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    body: JsonObject = {"model": request.model}
    writer = PromptWriter(request, target.issuer, log)
    system = writer.system()
    if system is not None:
        body["system"] = system
    known = in_pieces(request, target.issuer, log) if pieces else None
    messages = writer.messages() if known is None else known
    body["messages"] = messages
    if native or request.reasoning is not None:  # whether thinking may be asked for depends on the conversation
        body |= _write_settings(request, target, log, bare=not native and _answers_bare_call(messages))
    else:
        body |= _settings.get(request, target, log)
    if native:
        _keep_spelling(body, request)
    return body


def _answers_bare_call(messages: list[JsonObject] | Pieces) -> bool:
    return messages.told if isinstance(messages, Pieces) else reduce(answers_bare_call, messages, False)


def _write_settings(request: Request, target: Target, log: AdaptationLog, *, bare: bool = False) -> JsonObject:
    """Write everything but `model`, `system` and `messages`; `bare` says that a call without thinking is answered."""
    body: JsonObject = {}
    native = request.origin is not None and request.origin.wire is _WIRE
    # A history of this wire without tools was legal when it came; stubs are for histories of other wires.
    offer = offer_for(request, _WIRE, log)
    if offer.tools:
        body["tools"] = _written.get(offer.tools, log)
    choice = write_choice(offer, request, log)
    if choice is not None:
        body["tool_choice"] = choice
    thinking = plan_thinking(request, native=native, log=log)
    if not native and thinking.on:
        thinking = _legal_thinking(thinking, offer, log, bare=bare, forceable=target.thinks_when_forced)
    if thinking.value is not None:
        body["thinking"] = thinking.value
    output_config = write_output_config(request, thinking.effort, log)
    if output_config is not None:
        body["output_config"] = output_config
    if request.stop:
        _write_stops(body, request, log, native=native)
    fields = dict(request.fields_for(_WIRE)) if native else _foreign_fields(request, log)
    for name in ("thinking", "output_config"):
        fields.pop(name, None)
    body |= fields
    _write_limits(body, request, thinking, target, log, native=native)
    _write_sampling(body, request, thinking, log, native=native)
    if request.stream:
        body["stream"] = True
    return body


_settings = WrittenSettings(_WIRE, _write_settings)


def _keep_spelling(body: JsonObject, request: Request) -> None:
    """Write known settings as the caller did, null or absent, where they still mean the same."""
    spelled = request.spelling_for(_WIRE)
    unchanged = {
        ("thinking", "output_config"): (request.reasoning, request.output)
        == (read_reasoning(spelled), read_output(spelled)),
        ("temperature",): request.temperature == spelled.get("temperature"),
        ("top_p",): request.top_p == spelled.get("top_p"),
        ("stop_sequences",): list(request.stop) == (spelled.get("stop_sequences") or []),
        ("stream",): request.stream == (spelled.get("stream") or False),
        ("tool_choice",): "tool_choice" not in body and spelled.get("tool_choice", ...) is None,
        ("system",): "system" not in body,
        ("tools",): "tools" not in body,
    }
    for keys, same in unchanged.items():
        if same:
            body.update({key: spelled[key] for key in keys if key in spelled})


def _legal_thinking(
    thinking: Thinking, offer: ToolOffer, log: AdaptationLog, *, bare: bool, forceable: bool
) -> Thinking:
    """Leave thinking out where asking for it would be refused: the caller of another wire could not know."""
    forced = offer.choice is not None and offer.choice.mode in (ChoiceMode.REQUIRED, ChoiceMode.NAMED)
    if forced and not forceable:
        log.add(AdaptationKind.FIELD_DROPPED, "reasoning", "thinking is refused together with a forced tool choice")
        return Thinking()
    if bare:
        log.add(AdaptationKind.FIELD_DROPPED, "reasoning", "the tool call being answered has no thinking block")
        return Thinking()
    return thinking


def _write_limits(
    body: JsonObject, request: Request, thinking: Thinking, target: Target, log: AdaptationLog, *, native: bool
) -> None:
    limit = request.max_tokens
    if limit is None:
        limit = target.default_max_tokens
        log.add(AdaptationKind.FIELD_DEFAULTED, "max_tokens", str(limit))
    if not native and thinking.on and limit <= thinking.budget:
        limit += thinking.budget
        log.add(AdaptationKind.VALUE_CLAMPED, "max_tokens", f"{limit}: above the thinking budget")
    body["max_tokens"] = limit


def _write_sampling(
    body: JsonObject, request: Request, thinking: Thinking, log: AdaptationLog, *, native: bool
) -> None:
    """Write temperature and top_p; for callers of other wires only where the upstream takes them."""
    temperature, top_p = request.temperature, request.top_p
    if not native:
        if temperature is not None and thinking.on:
            log.add(AdaptationKind.FIELD_DROPPED, "temperature", "refused while thinking")
            temperature = None
        if temperature is not None and temperature > 1:
            log.add(AdaptationKind.VALUE_CLAMPED, "temperature", "1")
            temperature = 1
        if top_p is not None and thinking.on and top_p < _LOWEST_TOP_P_WHILE_THINKING:
            log.add(AdaptationKind.FIELD_DROPPED, "top_p", "refused while thinking")
            top_p = None
        if top_p is not None and temperature is not None:
            # Newer Claude models refuse the pair (observed: docs); the temperature is the one people set on purpose.
            log.add(AdaptationKind.FIELD_DROPPED, "top_p", "refused together with temperature")
            top_p = None
        if thinking.on and "top_k" in body:
            log.add(AdaptationKind.FIELD_DROPPED, "top_k", "refused while thinking")
            del body["top_k"]
    if temperature is not None:
        body["temperature"] = temperature
    if top_p is not None:
        body["top_p"] = top_p


def _write_stops(body: JsonObject, request: Request, log: AdaptationLog, *, native: bool) -> None:
    stops = [stop for stop in request.stop if native or stop.strip()]
    if len(stops) < len(request.stop):
        log.add(AdaptationKind.VALUE_CLAMPED, "stop", "stop sequences of nothing but white space are refused")
    if stops:
        body["stop_sequences"] = stops


def _foreign_fields(request: Request, log: AdaptationLog) -> JsonObject:
    """Return what of another wire's unknown fields means the same here; refuse what must not get lost."""
    written: JsonObject = {}
    if request.origin is None:
        return written
    for name, value in request.origin.fields.items():
        if value is None or value in _INERT.get(name, ()):
            continue
        fix = _REFUSED.get(name)
        if fix is not None:
            raise UnsupportedFeature(
                f"`{name}` has no counterpart on the Messages wire that serves {request.model!r}; {fix}", param=name
            )
        if name in _SHARED:
            written[name] = value
        elif name in _USER_FIELDS and isinstance(value, str):
            log.add(AdaptationKind.FIELD_MAPPED, name, "metadata.user_id")
            if "metadata" not in written or name == _USER_FIELDS[0]:
                written["metadata"] = {"user_id": value}
        else:
            log.add(AdaptationKind.FIELD_DROPPED, name, "has no counterpart on the messages wire")
    return written
