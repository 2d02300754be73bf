"""Agents on a scripted upstream: what is sent, written by hand in the words of each wire, and what came back.

Nothing is read from mustcall's codecs, so that agreement between the two sides is evidence. The scripted upstream's ids
are known: part 1 of its reply to request 0 is `…_scripted_0000_1`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from mustcall import Agent, RunEvent, RunResult, RunStream, Upstream
from mustcall.testing import Script, ScriptedUpstream

__all__ = [
    "SCHEMA",
    "WIRES",
    "agent_on",
    "ask_body",
    "collect",
    "get_weather",
    "offer",
    "results",
    "run_script",
    "said",
    "user",
    "wrapped",
]

Out = TypeVar("Out")

WIRES = ("chat", "responses", "messages")

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"description": "a city", "type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def get_weather(city: str) -> str:
    """Look up the weather.

    Args:
        city: a city
    """
    return f"Sunny in {city}"


def agent_on(
    upstream: ScriptedUpstream, wire: str, *, stateful: bool = False, model: str = "m", **settings: Any
) -> Agent:
    """Return an agent on a scripted upstream, with one tool unless said otherwise."""
    settings.setdefault("tools", [get_weather])
    where = Upstream(f"{wire}={upstream.base_url}", model=model, api_key="k", stateful=stateful)
    return Agent(where, **settings)


async def collect(stream: RunStream[Out]) -> tuple[list[RunEvent], RunResult[Out]]:
    """Take a stream to its end: its events and its result."""
    async with stream:
        events = [event async for event in stream]
    return events, stream.result


async def run_script(
    wire: str,
    script: Script,
    prompt: Any,
    *,
    stream: bool = False,
    force: bool | str | None = None,
    **settings: Any,
) -> tuple[RunResult[Any], list[dict[str, Any]]]:
    """Run an agent over a strict scripted upstream; return its result and the bodies that were sent."""
    with ScriptedUpstream(script, strict=True) as upstream:
        agent = agent_on(upstream, wire, **settings)
        if stream:
            _, result = await collect(agent.stream(prompt, force=force))
        else:
            result = await agent.run(prompt, force=force)
        assert [one.refused_by for one in upstream.requests] == [None] * len(upstream.requests)
        return result, [one.body for one in upstream.requests]


def wrapped(text: str, tool: str = "get_weather", escaped: int = 0) -> str:
    """A tool's output as the model sees it; `escaped` signs of it were changed."""
    digest = hashlib.sha256(f"{tool}\0{text}".encode()).hexdigest()[:16]
    note = f' escaped="{escaped}"' if escaped else ""
    return f'<untrusted-data from="{tool}" id="{digest}"{note}>\n{text}\n</untrusted-data id="{digest}">'


def offer(
    wire: str, name: str = "get_weather", description: str = "Look up the weather.", schema: Any = None
) -> dict[str, Any]:
    """A tool as a request offers it."""
    function = {"name": name, "description": description, "parameters": schema or SCHEMA}
    return {
        "chat": {"type": "function", "function": function},
        "responses": {"type": "function", **function, "strict": False},
        "messages": {"name": name, "description": description, "input_schema": schema or SCHEMA},
    }[wire]


def user(wire: str, text: str) -> dict[str, Any]:
    """A user's message."""
    if wire == "responses":
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return {"role": "user", "content": text}


def said(wire: str, number: int, *parts: str | tuple[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the upstream said in reply to request `number`, as the next request carries it: texts and calls."""
    texts = [part for part in parts if isinstance(part, str)]
    blocks: list[dict[str, Any]] = []
    for index, part in enumerate(parts):
        if isinstance(part, str):
            block: dict[str, Any] = {"type": "text", "text": part}
            if wire == "responses":
                content: list[dict[str, Any]] = [
                    {"type": "output_text", "text": part, "annotations": [], "logprobs": []}
                ]
                block = {"type": "message", "role": "assistant", "content": content}
            blocks.append(block)
            continue
        name, arguments = part
        written = json.dumps(arguments, separators=(",", ":"))
        # Chat numbers the calls, the other wires all parts.
        place = sum(block["type"] == "function" for block in blocks) if wire == "chat" else index
        key = f"scripted_{number:04d}_{place}"
        blocks.append(
            {
                "chat": {"id": f"call_{key}", "type": "function", "function": {"name": name, "arguments": written}},
                "responses": {
                    "id": f"fc_{key}",
                    "type": "function_call",
                    "status": "completed",
                    "call_id": f"call_{key}",
                    "name": name,
                    "arguments": written,
                },
                "messages": {"type": "tool_use", "id": f"toolu_{key}", "name": name, "input": dict(arguments)},
            }[wire]
        )
    if wire == "responses":
        return blocks
    if wire == "messages":
        return [{"role": "assistant", "content": texts[0] if len(texts) == len(blocks) == 1 else blocks}]
    calls = [block for block in blocks if block["type"] == "function"]
    return [{"role": "assistant", "content": "".join(texts) or None, **({"tool_calls": calls} if calls else {})}]


def results(wire: str, number: int, *texts: str, first: int = 0, failed: bool = False) -> list[dict[str, Any]]:
    """The results of calls made in reply to request `number`, from its part `first` on."""
    first = 0 if wire == "chat" else first
    keys = [f"scripted_{number:04d}_{first + index}" for index in range(len(texts))]
    if wire == "chat":
        return [
            {"role": "tool", "tool_call_id": f"call_{key}", "content": text}
            for key, text in zip(keys, texts, strict=True)
        ]
    if wire == "responses":
        return [
            {"type": "function_call_output", "call_id": f"call_{key}", "output": text}
            for key, text in zip(keys, texts, strict=True)
        ]
    error = {"is_error": True} if failed else {}
    blocks = [
        {"type": "tool_result", "tool_use_id": f"toolu_{key}", "content": text, **error}
        for key, text in zip(keys, texts, strict=True)
    ]
    return [{"role": "user", "content": blocks}]


def ask_body(
    wire: str,
    turns: Sequence[dict[str, Any]],
    *,
    tools: Sequence[dict[str, Any]] | None = None,
    stream: bool = False,
    **fields: Any,
) -> dict[str, Any]:
    """A whole request of an agent."""
    body: dict[str, Any] = {"model": "m", "input" if wire == "responses" else "messages": list(turns)}
    offered = [offer(wire)] if tools is None else list(tools)
    if offered:
        body["tools"] = offered
    if wire == "messages":
        body["max_tokens"] = 8192
    if wire == "responses":
        body |= {"store": False, "include": ["reasoning.encrypted_content"]}
    if stream:
        body["stream"] = True
        if wire == "chat":
            body["stream_options"] = {"include_usage": True}
    return body | fields
