"""The request a client makes of a question, on each wire: the messages, the tools, the choice, and nothing else.

Written out here and not by the codecs, so that what is measured is what a client sends and no part of mustcall. Pure.
"""

from typing import assert_never

import msgspec

from mustcall.core.origin import JsonObject, Wire
from mustcall.core.tools import Tool
from mustcall.evals.asking.rows import Form
from mustcall.evals.questions import AskedCall, Question, Said, Speaker

__all__ = ["Sampling", "ask", "greet"]

#: Enough for any server's least.
_GREETING_TOKENS = 16


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """What both arms are asked with; no temperature leaves it to the server."""

    max_tokens: int
    temperature: float | None = 0.0


def ask(
    question: Question, wire: Wire, model: str, sampling: Sampling, *, stream: bool = False, form: Form = Form.NATIVE
) -> JsonObject:
    """Return the body of the request."""
    said = question.messages if form is Form.NATIVE else (_in_words(question), *question.messages)
    body = _say(said, wire, model, sampling.max_tokens)
    if sampling.temperature is not None:
        body["temperature"] = sampling.temperature
    if form is Form.NATIVE:
        body |= {"tools": [_tool(tool, wire) for tool in question.tools], "tool_choice": _choice(question, wire)}
    if stream:
        body["stream"] = True
        if wire is Wire.CHAT:
            body["stream_options"] = {"include_usage": True}
    return body


def greet(wire: Wire, model: str) -> JsonObject:
    """Return the body of a request that makes a server load its model and says nothing."""
    return _say((Said(Speaker.USER, "Hello"),), wire, model, _GREETING_TOKENS)


def _say(said: tuple[Said, ...], wire: Wire, model: str, limit: int) -> JsonObject:
    system = "\n\n".join(each.text for each in said if each.role is Speaker.SYSTEM)
    talk = [{"role": str(each.role), "content": each.text} for each in said if each.role is not Speaker.SYSTEM]
    match wire:
        case Wire.CHAT:
            first = [{"role": "system", "content": system}] if system else []
            return {"model": model, "messages": [*first, *talk], "max_tokens": limit}
        case Wire.RESPONSES:
            return {
                "model": model,
                **({"instructions": system} if system else {}),
                "input": talk,
                "max_output_tokens": limit,
            }
        case Wire.MESSAGES:
            return {"model": model, "max_tokens": limit, **({"system": system} if system else {}), "messages": talk}
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


def _choice(question: Question, wire: Wire) -> str | JsonObject:
    match wire, question.demand:
        case Wire.CHAT, AskedCall.NAMED:
            return {"type": "function", "function": {"name": question.named}}
        case Wire.RESPONSES, AskedCall.NAMED:
            return {"type": "function", "name": question.named}
        case Wire.MESSAGES, AskedCall.NAMED:
            return {"type": "tool", "name": question.named}
        case Wire.MESSAGES, AskedCall.REQUIRED:
            return {"type": "any"}
        case Wire.MESSAGES, AskedCall.AUTO:
            return {"type": "auto"}
        case _:
            return str(question.demand)


_DEMANDS = {
    AskedCall.AUTO: "If no function fits the request, answer in plain words instead.",
    AskedCall.REQUIRED: "You must call a function; do not answer in words.",
    AskedCall.NAMED: "You must call the function {named}; do not answer in words.",
}


def _in_words(question: Question) -> Said:
    """Return a system message that offers the tools and says how to call one; `plain` reads what it asks for."""
    listed = "\n".join(
        msgspec.json.encode(
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        ).decode()
        for tool in question.tools
    )
    return Said(
        Speaker.SYSTEM,
        "You can call these functions, one JSON document each:\n"
        f"{listed}\n"
        'To call one, reply with one JSON object and nothing else: {"name": "the function\'s name", "arguments": '
        '{"a parameter": "its value"}}. To call several, reply with a JSON list of such objects. '
        + _DEMANDS[question.demand].format(named=question.named),
    )
