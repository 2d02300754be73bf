"""The official SDKs as callers: one conversation asked on each wire, one way to tell what came back.

`ask` makes the request a real client makes; `Seen` is what that client understood. Nothing of mustcall is imported,
so that agreement between the two sides is evidence.
"""

import json
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import anthropic
import httpcore2
import httpx2
import openai

__all__ = ["PARALLEL", "Ask", "Failure", "Handed", "Seen", "ask"]

# A client reads the certificates of every authority there is when it is made, four fifths of what it costs here; tests
# make one for each question, and all of them ask on loopback without TLS.
httpcore2.default_ssl_context = cache(httpcore2.default_ssl_context)

PARALLEL = "parallel"
_MODES = ("auto", "required")
#: Loading the system's certificates takes longer than a turn on loopback.
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@dataclass(frozen=True)
class Handed:
    """A step of earlier conversation: the calls an assistant made, and what each returned."""

    calls: tuple[tuple[str, str, dict[str, Any]], ...]
    results: tuple[tuple[str, str], ...]
    text: str = ""


@dataclass(frozen=True)
class Ask:
    """One request, said once for all wires. `choice` is `auto`, `required` or the name of a tool."""

    user: str = "What is the weather?"
    system: str | None = "Be brief."
    tools: tuple[tuple[str, dict[str, Any]], ...] = ()
    handed: Handed | None = None
    effort: str | None = None
    echo: "Seen | None" = None
    model: str = "test-model"
    choice: str | None = None
    limit: int | None = None
    temperature: float | None = None
    patience: float = 120
    #: Where the answer's headers go, if they are wanted.
    heard: dict[str, str] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Seen:
    """What a client understood of a reply. `native` is the assistant turn as the client would hand it back."""

    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, str, dict[str, Any]], ...] = ()
    finish: str = ""
    tokens: tuple[int, int] = (0, 0)
    native: Any = field(default=None, compare=False)

    def without_ids(self) -> "Seen":
        """Return the meaning alone: ids are each wire's own."""
        return replace(self, calls=tuple(("", name, arguments) for _, name, arguments in self.calls), native=None)


@dataclass(frozen=True)
class Failure:
    """What a client understood of an error, and the text it had before."""

    message: str
    status: int | None
    text: str = ""


def ask(wire: str, url: str, request: Ask, *, stream: bool) -> Seen | Failure:
    """Ask as a client of the wire would."""
    return {"chat": _chat, "responses": _responses, "messages": _messages}[wire](url, request, stream)


def _shared(request: Ask) -> dict[str, Any]:
    """Return the fields that every wire writes alike; not every SDK has an argument for each."""
    return {} if request.temperature is None else {"extra_body": {"temperature": request.temperature}}


def _listening(request: Ask) -> dict[str, Any]:
    """Return the client's options: with a listener for the answer's headers, if they are wanted."""
    heard = request.heard
    if heard is None:
        return {}

    def keep(response: httpx2.Response) -> None:
        heard.update({name.lower(): value for name, value in response.headers.items()})

    hooks = {"response": [keep]}
    return {"http_client": httpx2.Client(event_hooks=hooks, timeout=request.patience, verify=_NO_CERTIFICATES)}


def _untyped(value: Any) -> Any:
    """Let a test read whatever the SDK made of a reply."""
    return value


def _parse(arguments: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(arguments)
    assert type(value) is dict
    return value


# --- chat ---------------------------------------------------------------------------------------------------------


def _chat_messages(request: Ask) -> list[Any]:
    messages: list[Any] = []
    if request.system:
        messages.append({"role": "system", "content": request.system})
    messages.append({"role": "user", "content": request.user})
    if request.echo is not None:
        messages.append(request.echo.native)
        messages += [{"role": "tool", "tool_call_id": i, "content": "done"} for i, _, _ in request.echo.calls]
    if request.handed is not None:
        calls = [
            {"id": i, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for i, name, arguments in request.handed.calls
        ]
        messages.append({"role": "assistant", "content": request.handed.text or None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": i, "content": text} for i, text in request.handed.results]
    return messages


def _chat(url: str, request: Ask, stream: bool) -> Seen | Failure:
    client = openai.OpenAI(
        base_url=f"{url}/v1", api_key="sk-test", max_retries=0, timeout=request.patience, **_listening(request)
    )
    options = _shared(request)
    if request.tools:
        options["tools"] = [
            {"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in request.tools
        ]
    if request.choice:
        named = {"type": "function", "function": {"name": request.choice}}
        options["tool_choice"] = request.choice if request.choice in _MODES else named
    if request.limit:
        options["max_tokens"] = request.limit
    if request.effort:
        options["reasoning_effort"] = request.effort
    text: list[str] = []
    try:
        with client:
            if not stream:
                whole = _untyped(client).chat.completions.create(
                    model=request.model, messages=_chat_messages(request), **options
                )
                return _chat_seen(whole.choices[0].message.model_dump(exclude_none=True), whole)
            chunks = client.chat.completions.create(
                model=request.model,
                messages=_chat_messages(request),
                stream=True,
                stream_options={"include_usage": True},
                **options,
            )
            return _chat_stream(chunks, text)
    except openai.APIError as error:
        return Failure(error.message, getattr(error, "status_code", None), "".join(text))


def _chat_seen(message: dict[str, Any], whole: Any) -> Seen:
    finish = whole.choices[0].finish_reason
    refusal = message.get("refusal")
    usage = whole.usage
    return Seen(
        text=(message.get("content") or "") + (refusal or ""),
        thinking=message.get("reasoning_content") or "",
        calls=tuple(
            (call["id"], call["function"]["name"], _parse(call["function"]["arguments"]))
            for call in message.get("tool_calls", ())
        ),
        finish="refusal" if refusal or finish == "content_filter" else finish,
        tokens=(usage.prompt_tokens, usage.completion_tokens) if usage else (0, 0),
        native=message,
    )


def _chat_stream(chunks: Iterable[Any], text: list[str]) -> Seen:
    thinking: list[str] = []
    refusal: list[str] = []
    details: list[Any] = []
    calls: dict[int, dict[str, Any]] = {}
    finish, tokens = "", (0, 0)
    for chunk in chunks:
        if chunk.usage is not None:
            tokens = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
        for choice in chunk.choices:
            delta = choice.delta.model_dump(exclude_none=True)
            text.append(delta.get("content", ""))
            refusal.append(delta.get("refusal", ""))
            thinking.append(delta.get("reasoning_content", ""))
            details += delta.get("reasoning_details", [])
            for piece in delta.get("tool_calls", ()):
                call = calls.setdefault(piece["index"], {"id": "", "name": "", "arguments": ""})
                call["id"] = call["id"] or piece.get("id", "")
                call["name"] = call["name"] or piece["function"].get("name", "")
                call["arguments"] += piece["function"].get("arguments", "")
            finish = choice.finish_reason or finish
    declined = "".join(refusal)
    native: dict[str, Any] = {"role": "assistant", "content": "".join(text) or None}
    if thinking:
        native["reasoning_content"] = "".join(thinking)
    if details:
        native["reasoning_details"] = details
    if calls:
        native["tool_calls"] = [
            {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
            for c in calls.values()
        ]
    return Seen(
        text="".join(text) + declined,
        thinking="".join(thinking),
        calls=tuple((c["id"], c["name"], _parse(c["arguments"])) for c in calls.values()),
        finish="refusal" if declined or finish == "content_filter" else finish,
        tokens=tokens,
        native=native,
    )


# --- responses ----------------------------------------------------------------------------------------------------


def _responses_input(request: Ask) -> list[Any]:
    items: list[Any] = [{"role": "user", "content": request.user}]
    if request.echo is not None:
        items += request.echo.native
        items += [{"type": "function_call_output", "call_id": i, "output": "done"} for i, _, _ in request.echo.calls]
    if request.handed is not None:
        if request.handed.text:
            items.append({"role": "assistant", "content": request.handed.text})
        items += [
            {"type": "function_call", "call_id": i, "name": name, "arguments": json.dumps(arguments)}
            for i, name, arguments in request.handed.calls
        ]
        items += [{"type": "function_call_output", "call_id": i, "output": text} for i, text in request.handed.results]
    return items


def _responses(url: str, request: Ask, stream: bool) -> Seen | Failure:
    client = openai.OpenAI(
        base_url=f"{url}/v1", api_key="sk-test", max_retries=0, timeout=request.patience, **_listening(request)
    )
    options: dict[str, Any] = _shared(request) | {
        "model": request.model,
        "input": _responses_input(request),
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    if request.system:
        options["instructions"] = request.system
    if request.tools:
        options["tools"] = [
            {"type": "function", "name": name, "parameters": schema, "strict": False} for name, schema in request.tools
        ]
    if request.choice:
        named = {"type": "function", "name": request.choice}
        options["tool_choice"] = request.choice if request.choice in _MODES else named
    if request.limit:
        options["max_output_tokens"] = request.limit
    if request.effort:
        options["reasoning"] = {"effort": request.effort, "summary": "auto"}
    text: list[str] = []
    try:
        with client:
            if not stream:
                return _responses_seen(client.responses.create(**options))
            with client.responses.stream(**options) as events:
                for event in _untyped(events):
                    if event.type == "response.output_text.delta":
                        text.append(event.delta)
                    if event.type == "response.failed":
                        error = event.response.error
                        return Failure(error.message if error else "", None, "".join(text))
                    if event.type == "error":
                        return Failure(event.message, None, "".join(text))
                    if event.type in ("response.completed", "response.incomplete"):
                        return _responses_seen(event.response)
                return Failure("the stream ended without its last event", None, "".join(text))
    except openai.APIError as error:
        return Failure(error.message, getattr(error, "status_code", None), "".join(text))


def _responses_seen(response: Any) -> Seen:
    text: list[str] = []
    thinking: list[str] = []
    calls: list[tuple[str, str, dict[str, Any]]] = []
    refused = False
    for item in response.output:
        if item.type == "message":
            for part in item.content:
                text.append(part.text if part.type == "output_text" else part.refusal)
                refused = refused or part.type == "refusal"
        elif item.type == "reasoning":
            thinking += [part.text for part in item.summary or ()]
            thinking += [part.text for part in item.content or ()]
        elif item.type == "function_call":
            calls.append((item.call_id, item.name, _parse(item.arguments)))
    finish = "tool_calls" if calls else "stop"
    if response.status == "incomplete":
        reason = response.incomplete_details.reason
        finish = "length" if reason == "max_output_tokens" else "refusal"
    return Seen(
        text="".join(text),
        thinking="".join(thinking),
        calls=tuple(calls),
        finish="refusal" if refused else finish,
        tokens=(response.usage.input_tokens, response.usage.output_tokens) if response.usage else (0, 0),
        native=[item.model_dump(exclude_none=True, exclude={"parsed_arguments", "parsed"}) for item in response.output],
    )


# --- messages -----------------------------------------------------------------------------------------------------


def _messages_turns(request: Ask) -> list[Any]:
    messages: list[Any] = [{"role": "user", "content": request.user}]
    if request.echo is not None:
        messages.append({"role": "assistant", "content": request.echo.native})
        results = [{"type": "tool_result", "tool_use_id": i, "content": "done"} for i, _, _ in request.echo.calls]
        messages.append({"role": "user", "content": results})
    if request.handed is not None:
        blocks: list[Any] = [{"type": "text", "text": request.handed.text}] if request.handed.text else []
        blocks += [
            {"type": "tool_use", "id": i, "name": name, "input": arguments}
            for i, name, arguments in request.handed.calls
        ]
        messages.append({"role": "assistant", "content": blocks})
        results = [{"type": "tool_result", "tool_use_id": i, "content": text} for i, text in request.handed.results]
        messages.append({"role": "user", "content": results})
    return messages


def _messages(url: str, request: Ask, stream: bool) -> Seen | Failure:
    client = anthropic.Anthropic(
        base_url=url, api_key="sk-test", max_retries=0, timeout=request.patience, **_listening(request)
    )
    options: dict[str, Any] = _shared(request) | {"model": request.model, "messages": _messages_turns(request)}
    options["max_tokens"] = request.limit or 4096
    if request.system:
        options["system"] = request.system
    if request.tools:
        options["tools"] = [{"name": name, "input_schema": schema} for name, schema in request.tools]
    if request.choice:
        named = {"type": "tool", "name": request.choice}
        options["tool_choice"] = {"auto": {"type": "auto"}, "required": {"type": "any"}}.get(request.choice, named)
    if request.effort:
        options["thinking"] = {"type": "enabled", "budget_tokens": 2048}
    text: list[str] = []
    try:
        with client:
            if not stream:
                return _messages_seen(client.messages.create(**options))
            with client.messages.stream(**options) as events:
                text.extend(events.text_stream)
                return _messages_seen(events.get_final_message())
    except anthropic.APIStatusError as error:
        return Failure(error.message, error.status_code, "".join(text))
    except anthropic.APIError as error:
        return Failure(error.message, None, "".join(text))


def _messages_seen(message: Any) -> Seen:
    reason: str = message.stop_reason
    finish = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length"}.get(reason, reason)
    usage = message.usage
    return Seen(
        text="".join(block.text for block in message.content if block.type == "text"),
        thinking="".join(block.thinking for block in message.content if block.type == "thinking"),
        calls=tuple((block.id, block.name, block.input) for block in message.content if block.type == "tool_use"),
        finish=finish,
        tokens=(
            usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0),
            usage.output_tokens,
        ),
        native=[block.model_dump(exclude_none=True) for block in message.content],
    )
