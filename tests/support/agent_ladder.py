"""The bodies of an agent's forced turn on a local server that never calls the tool, rung by rung."""

import json
from typing import Any

from mustcall.policy.facts.wording import Wording
from support.agents import SCHEMA, ask_body, offer, user

__all__ = ["ladder"]

_TOLD = """You can call tools. To call one, write exactly this, with the tool's name and its arguments:

<tool_call>
{"name": "TOOL_NAME", "arguments": {"PARAMETER": "VALUE"}}
</tool_call>

Write nothing after a call; its result will be given to you. These are the tools:

## get_weather
Look up the weather.
Parameters:
- city (string, required): a city"""


def ladder(wire: str, question: str, said: str, *, stream: bool = False) -> list[dict[str, Any]]:
    """Return what is sent on chat or Messages: the choice, a schema, a grammar, a directive, the tools as text.

    `said` is what the model says each time. What is constrained ends by itself; the rest is streamed, whoever asks.
    """
    words = Wording()
    asked = user(wire, question)
    listed = f"- get_weather: Look up the weather.\n  arguments: {json.dumps(SCHEMA, separators=(',', ':'))}"
    as_json = user(wire, words.call_as_json.format(tools=listed))
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "enum": ["get_weather"]}, "arguments": SCHEMA},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
    named = {"name": "tool_call", "schema": schema, "strict": True}
    held = {
        "chat": {"response_format": {"type": "json_schema", "json_schema": named}},
        "messages": {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
    }[wire]
    chat = wire == "chat"
    first, second = words.call_any[:2]
    firm = [asked, user(wire, first), {"role": "assistant", "content": said}, user(wire, second)]
    told = [{"role": "system", "content": _TOLD}] if chat else []
    tools = [offer(wire)]
    return [
        ask_body(wire, [asked], tools=tools, stream=True, tool_choice="required" if chat else {"type": "any"}),
        ask_body(wire, [asked, as_json], tools=(), stream=stream, **held),
        ask_body(wire, [asked, as_json], tools=(), stream=stream, json_schema=schema, guided_json=schema),
        ask_body(wire, firm, tools=tools, stream=True, tool_choice="auto" if chat else {"type": "auto"}),
        ask_body(wire, [*told, asked, user(wire, first)], tools=(), stream=True, **({} if chat else {"system": _TOLD})),
    ]
