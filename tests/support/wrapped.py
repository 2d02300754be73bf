"""The same question asked with the real SDKs, bare or wrapped, on each wire, blocking or not, streamed or not."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from mustcall.core.origin import Wire

__all__ = ["CALL", "QUESTION", "SCHEMA", "WAYS", "Client", "Way", "ask", "make_client", "read_raw", "said"]

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"item": {"type": "string"}},
    "required": ["item"],
    "additionalProperties": False,
}
QUESTION = "What does a hat cost?"
#: What every way of asking should come to.
CALL = ("price", {"item": "hat"})

_RESPONSES_ENDS = ("response.completed", "response.failed")

Client = Callable[[Any], Any]
"""Makes the client that is asked of a bare one: `wrap`, or nothing."""


class Way(NamedTuple):
    """One way to ask."""

    wire: Wire
    blocks: bool
    streams: bool

    def __str__(self) -> str:
        return f"{self.wire}-{'sync' if self.blocks else 'async'}-{'stream' if self.streams else 'whole'}"


WAYS = [Way(wire, blocks, streams) for wire in Wire for blocks in (True, False) for streams in (False, True)]


def make_client(way: Way, url: str, **more: Any) -> Any:
    """Return a client of the wire's SDK for an upstream at this address, which ends before `/v1`."""
    if way.wire is Wire.MESSAGES:
        kind = Anthropic if way.blocks else AsyncAnthropic
        return kind(base_url=url, api_key="key", **more)
    openai = OpenAI if way.blocks else AsyncOpenAI
    return openai(base_url=f"{url}/v1", api_key="key", **more)


def ask(way: Way, url: str, made: Client, *, forced: bool = False, **more: Any) -> Any:
    """Ask the question with one tool on offer; return the reply as a plain object, or raise what the SDK raises."""
    request = _request(way, forced=forced) | more
    client = made(make_client(way, url))
    if way.blocks:
        with client:
            return _collected(way, _create(way, client)(**request))

    async def asked() -> Any:
        async with client:
            reply = await _create(way, client)(**request)
            return _collected(way, [event async for event in reply] if way.streams else reply)

    return asyncio.run(asked())


def read_raw(way: Way, url: str, made: Client) -> bytes:
    """Ask the question without a tool; return the bytes of the reply's body."""
    request = _request(way, forced=False)
    del request["tools"]
    client = made(make_client(way, url))
    if way.blocks:
        with client, _raw(way, client)(**request) as reply:
            return reply.read()

    async def asked() -> bytes:
        async with client, _raw(way, client)(**request) as reply:
            return await reply.read()

    return asyncio.run(asked())


def said(way: Way, reply: Any) -> list[tuple[str, Any]]:
    """Return the calls of a reply, with arguments read; text where they cannot be."""
    match way.wire:
        case Wire.CHAT:
            calls = [call["function"] for call in reply["choices"][0]["message"].get("tool_calls") or ()]
            return [(call["name"], _read(call["arguments"])) for call in calls]
        case Wire.RESPONSES:
            items = [item for item in reply["output"] if item["type"] == "function_call"]
            return [(item["name"], _read(item["arguments"])) for item in items]
        case Wire.MESSAGES:
            blocks = [block for block in reply["content"] if block["type"] == "tool_use"]
            return [(block["name"], block["input"]) for block in blocks]


def _create(way: Way, client: Any) -> Any:
    match way.wire:
        case Wire.CHAT:
            return client.chat.completions.create
        case Wire.RESPONSES:
            return client.responses.create
        case Wire.MESSAGES:
            return client.messages.create


def _raw(way: Way, client: Any) -> Any:
    match way.wire:
        case Wire.CHAT:
            return client.chat.completions.with_streaming_response.create
        case Wire.RESPONSES:
            return client.responses.with_streaming_response.create
        case Wire.MESSAGES:
            return client.messages.with_streaming_response.create


def _request(way: Way, *, forced: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "m", "stream": True} if way.streams else {"model": "m"}
    function = {"name": "price", "description": "Look up a price.", "parameters": SCHEMA}
    match way.wire:
        case Wire.CHAT:
            body |= {"messages": [{"role": "user", "content": QUESTION}]}
            body |= {"tools": [{"type": "function", "function": function}]}
            body |= {"tool_choice": "required"} if forced else {}
        case Wire.RESPONSES:
            body |= {"input": QUESTION, "tools": [{"type": "function", "strict": False, **function}]}
            body |= {"tool_choice": "required"} if forced else {}
        case Wire.MESSAGES:
            tool = {"name": "price", "description": "Look up a price.", "input_schema": SCHEMA}
            body |= {"max_tokens": 100, "messages": [{"role": "user", "content": QUESTION}], "tools": [tool]}
            body |= {"tool_choice": {"type": "any"}} if forced else {}
    return body


def _collected(way: Way, reply: Any) -> Any:
    """Return a reply as a plain object; one that was streamed, put together from its events."""
    if not way.streams:
        return reply.model_dump(warnings=False)  # a bare reply may hold anything
    events = [event.model_dump() for event in reply]
    match way.wire:
        case Wire.CHAT:
            return _chat(events)
        case Wire.RESPONSES:
            return next(event["response"] for event in events if event["type"] in _RESPONSES_ENDS)
        case Wire.MESSAGES:
            return _message(events)


def _chat(events: list[Any]) -> Any:
    text, calls = "", dict[int, dict[str, Any]]()
    for event in events:
        for choice in event["choices"]:
            delta = choice["delta"]
            text += delta["content"] or ""
            for call in delta["tool_calls"] or ():
                into = calls.setdefault(call["index"], {"function": {"name": "", "arguments": ""}})
                for field in ("name", "arguments"):
                    into["function"][field] += call["function"][field] or ""
    return {"choices": [{"message": {"content": text, "tool_calls": list(calls.values())}}]}


def _message(events: list[Any]) -> Any:
    blocks: list[Any] = []
    for event in events:
        match event["type"]:
            case "content_block_start":
                blocks.append({**event["content_block"], "written": ""})
            case "content_block_delta" if event["delta"]["type"] == "input_json_delta":
                blocks[-1]["written"] += event["delta"]["partial_json"]
            case "content_block_delta" if event["delta"]["type"] == "text_delta":
                blocks[-1]["text"] += event["delta"]["text"]
            case _:
                pass
    for block in blocks:
        if block["type"] == "tool_use":
            block["input"] = _read(block["written"])
    return {"content": blocks}


def _read(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
