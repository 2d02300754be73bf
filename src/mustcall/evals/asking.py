"""The request a client makes of a prompt, on each wire: one user message, the tools, the choice, and nothing else.

Written out here and not by the codecs, so that what is measured is what a client sends and no part of mustcall. Pure.
"""

from typing import assert_never

from mustcall.core.origin import JsonObject, Wire
from mustcall.core.tools import Tool
from mustcall.evals.prompts import Demand, Prompt
from mustcall.evals.results import Sampling

__all__ = ["ask", "greet"]

#: Enough for any server's least.
_GREETING_TOKENS = 16


def ask(prompt: Prompt, wire: Wire, model: str, sampling: Sampling) -> JsonObject:
    """Return the body of the request."""
    body = _say(prompt.says, wire, model, sampling.max_tokens)
    if sampling.temperature is not None:
        body["temperature"] = sampling.temperature
    tools = [_tool(tool, wire) for tool in prompt.tools]
    return {**body, "tools": tools, "tool_choice": _choice(prompt, wire)}


def greet(wire: Wire, model: str) -> JsonObject:
    """Return the body of a request that makes a server load its model and says nothing."""
    return _say("Hello", wire, model, _GREETING_TOKENS)


def _say(words: str, wire: Wire, model: str, limit: int) -> JsonObject:
    user = {"role": "user", "content": words}
    match wire:
        case Wire.CHAT:
            return {"model": model, "messages": [user], "max_tokens": limit}
        case Wire.RESPONSES:
            return {"model": model, "input": [user], "max_output_tokens": limit}
        case Wire.MESSAGES:
            return {"model": model, "max_tokens": limit, "messages": [user]}
        case _:
            assert_never(wire)


def _tool(tool: Tool, wire: Wire) -> JsonObject:
    described = {"name": tool.name, "description": tool.description}
    match wire:
        case Wire.CHAT:
            return {"type": "function", "function": {**described, "parameters": tool.parameters}}
        case Wire.RESPONSES:
            return {"type": "function", **described, "parameters": tool.parameters, "strict": False}
        case Wire.MESSAGES:
            return {**described, "input_schema": tool.parameters}
        case _:
            assert_never(wire)


def _choice(prompt: Prompt, wire: Wire) -> str | JsonObject:
    match wire, prompt.demand:
        case Wire.CHAT, Demand.NAMED:
            return {"type": "function", "function": {"name": prompt.wants}}
        case Wire.RESPONSES, Demand.NAMED:
            return {"type": "function", "name": prompt.wants}
        case Wire.MESSAGES, Demand.NAMED:
            return {"type": "tool", "name": prompt.wants}
        case Wire.MESSAGES, Demand.REQUIRED:
            return {"type": "any"}
        case Wire.MESSAGES, Demand.AUTO:
            return {"type": "auto"}
        case _:
            return str(prompt.demand)
