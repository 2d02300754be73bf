"""What an upstream was asked, read from the body it received. Independent of mustcall's own codecs."""

import json
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Got", "read_request"]


@dataclass
class Got:
    """A request's meaning: system prompt, turns in order, tools, thinking handed back."""

    system: str = ""
    turns: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    tools: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    thinking: list[str] = field(default_factory=list[str])
    stream: bool = False


def read_request(wire: str, body: Any) -> Got:
    """Read a recorded body."""
    got = Got(stream=bool(body.get("stream")))
    {"chat": _chat, "responses": _responses, "messages": _messages}[wire](body, got)
    return got


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part["text"] for part in content)


def _chat(body: Any, got: Got) -> None:
    got.tools = [(tool["function"]["name"], tool["function"]["parameters"]) for tool in body.get("tools", ())]
    for message in body["messages"]:
        role = message["role"]
        if role == "system":
            got.system = _text(message["content"])
        elif role == "tool":
            got.turns.append(("result", message["tool_call_id"], _text(message["content"])))
        else:
            if message.get("reasoning_content"):
                got.thinking.append(message["reasoning_content"])
            if message.get("content"):
                got.turns.append((role, _text(message["content"])))
            for call in message.get("tool_calls", ()):
                function = call["function"]
                got.turns.append(("call", call["id"], function["name"], json.loads(function["arguments"])))
    _check_ids(got)


def _responses(body: Any, got: Got) -> None:
    got.system = body.get("instructions") or ""
    got.tools = [(tool["name"], tool["parameters"]) for tool in body.get("tools", ())]
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "message" and item["role"] in ("system", "developer"):
            got.system = _text(item["content"])
        elif kind == "message":
            got.turns.append((item["role"], _text(item["content"])))
        elif kind == "function_call":
            got.turns.append(("call", item["call_id"], item["name"], json.loads(item["arguments"])))
        elif kind == "function_call_output":
            got.turns.append(("result", item["call_id"], _text(item["output"])))
        elif kind == "reasoning":
            assert item["encrypted_content"]
            got.thinking.append("".join(part["text"] for part in [*item["summary"], *(item.get("content") or ())]))
    _check_ids(got)


def _messages(body: Any, got: Got) -> None:
    got.system = _text(body.get("system"))
    got.tools = [(tool["name"], tool["input_schema"]) for tool in body.get("tools", ())]
    for message in body["messages"]:
        content = message["content"]
        if isinstance(content, str):
            got.turns.append((message["role"], content))
            continue
        for block in content:
            kind = block["type"]
            if kind == "text":
                got.turns.append((message["role"], block["text"]))
            elif kind == "thinking":
                assert block["signature"]
                got.thinking.append(block["thinking"])
            elif kind == "tool_use":
                got.turns.append(("call", block["id"], block["name"], block["input"]))
            elif kind == "tool_result":
                got.turns.append(("result", block["tool_use_id"], _text(block["content"])))
    _check_ids(got)


def _check_ids(got: Got) -> None:
    """Every result must name a call made before it; checked here so that each test checks it."""
    made = {turn[1] for turn in got.turns if turn[0] == "call"}
    for turn in got.turns:
        if turn[0] == "result":
            assert turn[1] in made, f"result {turn[1]} has no call"
