"""How a canonical request is spelled for a Responses server.

A message or tool that came on this wire and was not changed goes out as it came; everything else is written from its
canonical parts, and what has no form here is noted or refused. A request of another wire is sent without server
state (`store: false`) and asks for encrypted reasoning, so that its client can carry the reasoning back.
"""

from collections.abc import Callable, Sequence
from typing import Any

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.errors import UnsupportedFeature
from mustcall.core.history import Folded, beginning_of
from mustcall.core.message import Message, Role
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.parts import CallKind, File, Text, ToolCall
from mustcall.core.request import OutputFormat, OutputKind, ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import ProviderTool, Tool, ToolChoice
from mustcall.wire.caching.encode_cache import WrittenSettings, WrittenTools, WrittenTurns
from mustcall.wire.caching.written_history import WrittenHistory
from mustcall.wire.codec import Target
from mustcall.wire.crossing.effort import effort_for_budget
from mustcall.wire.crossing.offer import offer_for
from mustcall.wire.crossing.turns import is_billing_header
from mustcall.wire.reading import maybe_object
from mustcall.wire.responses.items import ItemWriter
from mustcall.wire.responses.parts import is_foreign, is_native, note_foreign, part_word
from mustcall.wire.responses.request_decode import decode_output, decode_reasoning
from mustcall.wire.responses.tools import encode_choice, encode_tools

__all__ = ["REFUSED", "SHARED", "encode_request", "encode_settings"]

_WIRE = Wire.RESPONSES

#: Fields of other wires that mean the same here.
SHARED = {
    Wire.CHAT: frozenset(
        {
            "user",
            "metadata",
            "store",
            "service_tier",
            "prompt_cache_key",
            "prompt_cache_retention",
            "prompt_cache_options",
            "safety_identifier",
            "moderation",
        }
    ),
    Wire.MESSAGES: frozenset[str](),
}

_Test = Callable[[Any], bool]


def _asks_for_audio(value: Any) -> bool:
    return isinstance(value, list) and "audio" in value


#: Fields of other wires whose loss would change what the caller gets: when it matters, and what to do about it.
REFUSED: dict[str, tuple[_Test, str]] = {
    "n": (lambda value: isinstance(value, int) and value > 1, "ask for one choice per request"),
    "audio": (bool, "ask for text"),
    "modalities": (_asks_for_audio, "ask for text"),
    "logprobs": (bool, "send it without `logprobs`"),
    "functions": (bool, "offer them in `tools`"),
    "function_call": (bool, "use `tool_choice`"),
    "tool_choice": (bool, "choose a function tool, or `auto`"),
    "thread": (bool, "send the whole conversation in `messages`"),
    "mcp_servers": (bool, "offer the server's tools as function tools"),
    "container": (bool, "send it without `container`"),
}

_SUMMARIES = frozenset({"auto", "concise", "detailed"})
_SHOWN_SUMMARIES = frozenset({"summarized", "updates"})
_MIN_OUTPUT_TOKENS = 16


def encode_request(request: Request, target: Target, log: AdaptationLog, *, pieces: bool = False) -> JsonObject:
    """Write a request for a Responses upstream."""
    raw = request.raw_for(_WIRE)
    if raw is not None:
        return raw
    items: Any = None
    if pieces and not _custom_calls.of(beginning_of(request), None):
        items = _history.get(request, target.issuer, log)
    if items is None:
        items = _encode_input(request, target.issuer, log)
    body = {"model": request.model, "input": items, **_settings.get(request, target, log)}
    if is_native(request):
        spelled = request.spelling_for(_WIRE).get("input")
        if isinstance(spelled, str) and items == [{"role": "user", "content": spelled}]:
            body["input"] = spelled
        elif not items and "input" not in request.spelling_for(_WIRE):
            del body["input"]
    return body


def _encode_input(request: Request, issuer: str, log: AdaptationLog) -> list[JsonObject]:
    custom = frozenset(
        [
            part.id
            for message in request.messages
            if message.role is Role.ASSISTANT
            for part in message.parts
            if isinstance(part, ToolCall) and part.kind is CallKind.CUSTOM
        ]
    )
    items: list[JsonObject] = []
    for message in request.messages:
        raw = message.raw_for(_WIRE)
        if raw is not None:
            items.append(raw)
            continue
        # What a result is written as depends on the kind of call it answers.
        written = None if custom else _turns.find((message,), issuer, log)
        if written is None:
            noted = AdaptationLog()
            written = ItemWriter(issuer, custom, noted).items(message)
            log.extend(noted.entries)
            if not custom:
                _turns.keep((message,), issuer, written, noted)
        items += written
    return items


_turns = WrittenTurns(_WIRE)


def _passage(_: Request, messages: Sequence[Message], issuer: str, log: AdaptationLog) -> tuple[list[JsonObject], bool]:
    """Write neighbouring messages of a history without custom calls."""
    writer = ItemWriter(issuer, frozenset(), log)
    return [item for message in messages for item in writer.items(message)], False


_history = WrittenHistory(_passage)

#: Whether a history holds a custom call: what a result is written as depends on the kind of call it answers.
_custom_calls: Folded[bool, None] = Folded(
    lambda _: False,
    lambda found, message, _: (
        found or any(isinstance(part, ToolCall) and part.kind is CallKind.CUSTOM for part in message.parts)
    ),
)


def encode_settings(request: Request, log: AdaptationLog) -> JsonObject:
    """Write everything but `model` and `input`."""
    body: JsonObject = {}
    spelling = request.spelling_for(_WIRE)
    native = is_native(request)
    fields = _carried_fields(request, log)
    inner_text = maybe_object(fields.pop("text", None)) or {}
    inner_reasoning = maybe_object(fields.pop("reasoning", None)) or {}
    hosted_choice = fields.pop("tool_choice", None)

    def put(key: str, decoded: Any, meaning: Any, written: Any) -> None:
        """Keep a field's spelling while its meaning is unchanged; write it anew otherwise."""
        if native and decoded == meaning:
            if key in spelling:
                body[key] = spelling[key]
        elif written is not None and written != {}:
            body[key] = written

    instructions = _encode_system(request.system, log)
    put("instructions", spelling.get("instructions"), instructions, instructions)
    tools, choice = _encode_offer(request, native, log)
    if tools or "tools" in spelling:
        body["tools"] = tools or spelling["tools"]
    if choice is not None:
        body["tool_choice"] = choice
    elif hosted_choice is not None:
        body["tool_choice"] = hosted_choice
    elif spelling.get("tool_choice", ...) is None:
        body["tool_choice"] = None
    parallel = request.parallel_tool_calls
    put("parallel_tool_calls", spelling.get("parallel_tool_calls"), parallel, parallel)
    limit = _limit(request, log)
    put("max_output_tokens", spelling.get("max_output_tokens"), limit, limit)
    put("temperature", spelling.get("temperature"), request.temperature, request.temperature)
    put("top_p", spelling.get("top_p"), request.top_p, request.top_p)
    reasoning = {**inner_reasoning, **_encode_reasoning(request.reasoning, native, log)}
    put("reasoning", decode_reasoning(spelling), request.reasoning, reasoning)
    put("text", decode_output(spelling), request.output, {**inner_text, **_encode_output(request.output, log)})
    put("stream", spelling.get("stream") or False, request.stream, request.stream or None)
    previous = request.previous_response_id
    put("previous_response_id", spelling.get("previous_response_id"), previous, previous)
    if request.stop:
        log.add(AdaptationKind.FIELD_DROPPED, "stop", "the responses wire has no stop sequences")
    body.update(fields)
    if not native:
        _without_server_state(body, log)
    return body


_settings = WrittenSettings(_WIRE, lambda request, _, log: encode_settings(request, log))


def _without_server_state(body: JsonObject, log: AdaptationLog) -> None:
    if body.get("store") is None:
        body["store"] = False
        log.add(AdaptationKind.FIELD_DEFAULTED, "store", "false: the conversation is in the caller's hands")
    body["include"] = ["reasoning.encrypted_content"]
    log.add(AdaptationKind.FIELD_DEFAULTED, "include", "encrypted reasoning, for the caller to carry back")


def _carried_fields(request: Request, log: AdaptationLog) -> JsonObject:
    """Return the top-level fields without a canonical word that may be sent here."""
    origin = request.origin
    if origin is None:
        return {}
    if origin.wire is _WIRE:
        return dict(origin.fields)
    shared = SHARED[origin.wire]
    carried: JsonObject = {}
    for name, value in origin.fields.items():
        refused = REFUSED.get(name)
        if name in shared:
            carried[name] = value
        elif refused is not None and refused[0](value):
            raise UnsupportedFeature(
                f"`{name}` has no counterpart on an upstream of the responses wire; {refused[1]}", param=name
            )
        elif name == "verbosity" and origin.wire is Wire.CHAT and value is not None:
            carried["text"] = {"verbosity": value}
            log.add(AdaptationKind.FIELD_MAPPED, "verbosity", "text.verbosity")
        else:
            log.add(AdaptationKind.FIELD_DROPPED, name, "no counterpart on the responses wire")
    return carried


_written = WrittenTools(encode_tools)


def _encode_offer(request: Request, native: bool, log: AdaptationLog) -> tuple[list[JsonObject], Any]:
    offer = offer_for(request, _WIRE, log)
    tools: tuple[Tool | ProviderTool, ...] = offer.tools
    choice: ToolChoice | None = request.tool_choice if native else offer.choice
    return _written.get(tools, log), encode_choice(choice, tools, is_foreign(request)) if choice is not None else None


def _encode_system(system: Message | None, log: AdaptationLog) -> str | None:
    if system is None:
        return None
    raw = system.raw_for(_WIRE)
    if isinstance(raw, str):
        return raw
    note_foreign(system, log)
    texts: list[str] = []
    for part in system.parts:
        note_foreign(part, log)
        match part:
            case Text() if is_billing_header(part) and is_foreign(system, part):
                log.add(AdaptationKind.PART_DROPPED, "system", "a billing header means nothing to another provider")
            case Text(text=text):
                texts.append(text)
            case File(text=str() as text):
                texts.append(text)
            case _:
                log.add(AdaptationKind.PART_DROPPED, part_word(part), "instructions are text on the responses wire")
    return "\n\n".join(texts) if texts else None


def _limit(request: Request, log: AdaptationLog) -> int | None:
    limit = request.max_tokens
    if limit is None or limit >= _MIN_OUTPUT_TOKENS or not is_foreign(request):
        return limit
    log.add(AdaptationKind.VALUE_CLAMPED, "max_output_tokens", f"{limit} is below the wire's {_MIN_OUTPUT_TOKENS}")
    return _MIN_OUTPUT_TOKENS


def _encode_reasoning(config: ReasoningConfig | None, native: bool, log: AdaptationLog) -> JsonObject:
    if config is None:
        return {}
    written: JsonObject = {}
    effort = config.effort
    if effort is None and config.mode is ReasoningMode.DISABLED:
        # Which word turns reasoning off differs by model, and a wrong one is a 400; thinking only costs tokens.
        log.add(AdaptationKind.FIELD_DROPPED, "thinking", "no word for disabled that every responses model takes")
    elif effort is None and config.budget_tokens is not None:
        effort = effort_for_budget(config.budget_tokens)
        log.add(AdaptationKind.FIELD_MAPPED, "thinking", f"budget of {config.budget_tokens} tokens as effort {effort}")
    if effort is not None:
        written["effort"] = effort
    summary = config.summary
    if summary is None or native or summary in _SUMMARIES:
        pass
    elif summary in _SHOWN_SUMMARIES:
        summary = "auto"
        log.add(AdaptationKind.FIELD_MAPPED, "thinking.display", "reasoning.summary auto")
    else:
        log.add(AdaptationKind.FIELD_DROPPED, "thinking.display", "no counterpart on the responses wire")
        summary = None
    if summary is not None:
        written["summary"] = summary
    return written


def _encode_output(output: OutputFormat | None, log: AdaptationLog) -> JsonObject:
    if output is None:
        return {}
    if output.kind is not OutputKind.SCHEMA:
        return {"format": {"type": str(output.kind)}}
    form: JsonObject = {"type": "json_schema", "name": output.name or "answer", "schema": output.schema or {}}
    if output.name is None:
        log.add(AdaptationKind.FIELD_DEFAULTED, "text.format.name", "answer")
    if output.description is not None:
        form["description"] = output.description
    if output.strict is not None:
        form["strict"] = output.strict
    return {"format": form}
