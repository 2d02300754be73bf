"""How a canonical request is spelled for a Chat Completions server.

A message or tool that came on this wire and was not changed goes out as it came; everything else is written from its
canonical parts, and what has no form here is noted or refused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.errors import UnsupportedFeature
from mustcall.core.message import Message, Role
from mustcall.core.origin import JsonObject, Value, Wire
from mustcall.core.parts import (
    CallKind,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolReference,
    ToolResult,
    Unknown,
)
from mustcall.core.request import OutputFormat, OutputKind, ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import ChoiceMode, ProviderTool, Tool, ToolChoice
from mustcall.wire.caching.encode_cache import WrittenSettings, WrittenTools, WrittenTurns
from mustcall.wire.caching.written_history import Pieces, WrittenHistory
from mustcall.wire.chat.parts import (
    EXTRA_CONTENT,
    encode_call,
    encode_content,
    encode_reasoning,
    join_reasoning,
    state_of_call,
)
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
from mustcall.wire.crossing.naming import flat_name, legal_id
from mustcall.wire.crossing.offer import custom_arguments, offer_for
from mustcall.wire.crossing.sealing import open_state
from mustcall.wire.crossing.turns import drop_foreign_item, is_billing_header, result_text
from mustcall.wire.reading import maybe_object

__all__ = ["encode_request"]

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


def encode_request(request: Request, target: Target, log: AdaptationLog, *, pieces: bool = False) -> JsonObject:
    """Write a request for a chat upstream."""
    raw = request.raw_for(_CHAT)
    if raw is not None:
        return raw
    messages: object = _in_pieces(request, target.issuer, log) if pieces else None
    if messages is None:
        messages = _Conversation(target.issuer, log).encode(request)
    return {"model": request.model, "messages": messages, **_settings.get(request, target, log)}


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


_settings = WrittenSettings(_CHAT, _encode_settings)


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


def _note_fields(value: Value, log: AdaptationLog) -> None:
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
    _note_fields(tool, log)
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


def _kind_of(part: Part) -> str:
    return part.type if isinstance(part, Unknown | ProviderItem) else str(part.__struct_config__.tag)


_turns = WrittenTurns(_CHAT)


def _in_pieces(request: Request, issuer: str, log: AdaptationLog) -> Pieces | None:
    """Write the `messages` of a conversation that is kept; what was written before is found."""
    system = request.system
    return _history.get(request, issuer, log, None if system is None else lambda: _prompt(system, issuer, log))


def _prompt(system: Message, issuer: str, log: AdaptationLog) -> list[JsonObject]:
    return _Conversation(issuer, log).prompt(system)


def _passage(_: Request, messages: Sequence[Message], issuer: str, log: AdaptationLog) -> tuple[list[JsonObject], bool]:
    return _Conversation(issuer, log, kept=False).write(messages), False


_history = WrittenHistory(_passage)


class _Conversation:
    """Writes messages in order: assistant neighbours of finer wires joined, results split, their media after them.

    `kept` says that how each turn was written is remembered with it.
    """

    def __init__(self, issuer: str, log: AdaptationLog, *, kept: bool = True) -> None:
        self._issuer = issuer
        self._log = log
        self._kept = kept
        self._out: list[JsonObject] = []
        self._assistant: list[Message] = []
        self._media: list[Part] = []

    def encode(self, request: Request) -> list[JsonObject]:
        """Return the `messages` array."""
        if request.system is not None:
            self._repeat(request.system, _Conversation._system)
        return self.write(request.messages)

    def prompt(self, system: Message) -> list[JsonObject]:
        """Return the system prompt that stands outside the messages."""
        self._repeat(system, _Conversation._system)
        return self._out

    def write(self, messages: Iterable[Message]) -> list[JsonObject]:
        """Return neighbouring messages, behind what was written before."""
        for message in messages:
            raw = message.raw_for(_CHAT)
            if raw is not None:
                self._flush_assistant()
                if message.role is not Role.TOOL:  # media wait until the turn's last result
                    self._flush_media()
                self._out.append(raw)
            elif message.role is Role.ASSISTANT:
                self._flush_media()
                self._assistant.append(message)
            else:
                self._flush_assistant()
                self._repeat(message, _Conversation._other)
        self._flush()
        return self._out

    def _flush(self) -> None:
        self._flush_assistant()
        self._flush_media()

    def _flush_media(self) -> None:
        if self._media:
            self._out.append({"role": "user", "content": encode_content(self._media, self._log)})
            self._media = []

    def _flush_assistant(self) -> None:
        run = self._assistant
        if run:
            written = _turns.find(run, self._issuer, self._log) if self._kept else None
            if written is None:
                alone = _Conversation(self._issuer, AdaptationLog())
                encoded = alone._encode_assistant(run)
                written = [encoded] if encoded is not None else []
                self._log.extend(alone._log.entries)
                if self._kept:
                    _turns.keep(run, self._issuer, written, alone._log)
            self._out += written
            self._assistant = []

    def _repeat(self, message: Message, write: "Callable[[_Conversation, Message], None]") -> None:
        """Write a message, or find how it was written before; media beside results wait for what comes next."""
        if self._media or not self._kept:
            write(self, message)
            return
        written = _turns.find((message,), self._issuer, self._log)
        if written is None:
            alone = _Conversation(self._issuer, AdaptationLog())
            write(alone, message)
            written, self._media = alone._out, alone._media
            self._log.extend(alone._log.entries)
            if not alone._media:
                _turns.keep((message,), self._issuer, written, alone._log)
        self._out += written

    def _system(self, message: Message) -> None:
        system = message.evolve(parts=self._system_parts(message))
        if system.parts:
            self._other(system)

    def _system_parts(self, message: Message) -> tuple[Part, ...]:
        kept: list[Part] = []
        for part in message.parts:
            if is_billing_header(part):
                self._log.add(AdaptationKind.PART_DROPPED, "system", "a billing header means nothing here, and varies")
            else:
                kept.append(part)
        return tuple(kept)

    def _other(self, message: Message) -> None:
        _note_fields(message, self._log)
        others: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                self._result(part, message)
            else:
                _note_fields(part, self._log)
                others.append(part)
        role = message.role
        if role is Role.TOOL:
            self._media.extend(others)
            return
        if role is not Role.USER:
            self._flush_media()
        media, self._media = self._media, []
        foreign = message.origin is not None and message.origin.wire is not _CHAT
        if foreign and role is not Role.USER and others and all(isinstance(part, Text) for part in others):
            # Many chat servers take instructions only as one string.
            content = "\n\n".join(part.text for part in others if isinstance(part, Text))
        else:
            content = encode_content([*media, *others], self._log)
        if role is Role.DEVELOPER and (message.origin is None or message.origin.wire is not _CHAT):
            # OpenAI reads `system` as `developer`; most other chat servers know only `system`.
            role = Role.SYSTEM
        if content or not message.results:
            self._out.append({"role": str(role), "content": content, **message.fields_for(_CHAT)})

    def _result(self, result: ToolResult, message: Message) -> None:
        _note_fields(result, self._log)
        written = result_text(result)
        if result.is_error:
            self._log.add(AdaptationKind.PART_RESHAPED, "tool_result", "the error flag became a word")
        for item in result.content:
            _note_fields(item, self._log)
            if isinstance(item, ToolReference | Unknown):
                self._log.add(AdaptationKind.PART_RESHAPED, "tool_result", f"{_kind_of(item)} became text")
        if written.media:
            self._log.add(AdaptationKind.PART_RESHAPED, "tool_result", "media moved to a user message")
            self._media.extend(written.media)
        self._out.append(
            {
                "role": "tool",
                "tool_call_id": self._id(result.call_id, message),
                "content": written.text or ("The result is attached below." if written.media else ""),
                **(message.fields_for(_CHAT) if message.role is Role.TOOL else {}),
            }
        )

    def _id(self, identifier: str, message: Message) -> str:
        if message.origin is not None and message.origin.wire is _CHAT:
            return identifier
        legal = legal_id(identifier)
        if legal != identifier:
            self._log.add(AdaptationKind.ID_MAPPED, identifier, legal)
        return legal

    def _encode_assistant(self, run: list[Message]) -> JsonObject | None:
        texts: list[str] = []
        refusals: list[str] = []
        calls: list[JsonObject] = []
        extra: JsonObject = {}
        thinking: JsonObject = {}
        signed: dict[str, Any] = {}  # what belongs to calls, by their ids, and which of them came last
        latest = ""
        for message in run:
            _note_fields(message, self._log)
            extra.update(message.fields_for(_CHAT))
            text = "".join(part.text for part in message.parts if isinstance(part, Text))
            if text:
                texts.append(text)
            for part in message.parts:
                _note_fields(part, self._log)
                match part:
                    case Text():
                        pass
                    case Refusal(text=words):
                        refusals.append(words)
                    case Reasoning():
                        state = open_state(part.state, _CHAT, self._issuer)
                        if state is None:
                            self._log.add(AdaptationKind.STATE_DROPPED, "reasoning", "not issued by this upstream")
                        elif (of_call := state_of_call(state)) is not None:
                            latest = of_call[0]
                            signed[latest] = of_call[1]
                        else:
                            join_reasoning(thinking, encode_reasoning(part, state))
                    case ToolCall():
                        written = self._call(part, message)
                        extra_content = signed.pop(part.id if part.id in signed else latest, None)
                        calls.append(written if extra_content is None else {**written, EXTRA_CONTENT: extra_content})
                        latest = ""
                    case ProviderItem() | Unknown():
                        drop_foreign_item(part, _CHAT, self._log)
                    case _:
                        self._log.add(AdaptationKind.PART_DROPPED, _kind_of(part), "no form on the chat wire")
        extra.update(thinking)
        if not texts and not calls and not refusals and not extra:
            return None
        encoded: JsonObject = {"role": "assistant", "content": "\n\n".join(texts) if texts or not calls else None}
        if refusals:
            encoded["refusal"] = "\n\n".join(refusals)
        encoded.update(extra)
        if calls:
            encoded["tool_calls"] = calls
        return encoded

    def _call(self, call: ToolCall, message: Message) -> JsonObject:
        if call.kind is CallKind.CUSTOM and (call.origin is None or call.origin.wire is not _CHAT):
            call = call.evolve(kind=CallKind.FUNCTION, arguments_json=custom_arguments(call.arguments_json))
        return encode_call(call, flat_name(call.namespace, call.name), self._id(call.id, message))
