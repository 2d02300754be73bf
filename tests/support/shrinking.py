"""A large request that fails for two of its parts: one tool, and one message with certain words."""

from typing import Any

from mustcall.core.origin import Wire

__all__ = ["CULPRIT", "WORDS", "large", "names"]

CULPRIT = "tool_7"
WORDS = "the purple heron lands at noon"


def tool(number: int, wire: Wire) -> dict[str, Any]:
    """A tool with a schema, as a wire writes it."""
    schema = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where it is, as a path from the root of the project."},
            "depth": {"type": "integer", "description": "How deep to go."},
        },
        "required": ["path"],
    }
    name, about = f"tool_{number}", f"Does the thing number {number} to a file and says what came of it. " * 4
    match wire:
        case Wire.CHAT:
            return {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}
        case Wire.RESPONSES:
            return {"type": "function", "name": name, "description": about, "parameters": schema}
        case Wire.MESSAGES:
            return {"name": name, "description": about, "input_schema": schema}


def pair(number: int, wire: Wire) -> list[dict[str, Any]]:
    """A call and its result, as a wire writes them."""
    name, said = f"tool_{number % 31}", f"The result number {number} is a rather long text that nobody needs. " * 8
    identity = f"call_{number}"
    match wire:
        case Wire.CHAT:
            call = {"id": identity, "type": "function", "function": {"name": name, "arguments": '{"path":"a"}'}}
            return [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": identity, "content": said},
            ]
        case Wire.RESPONSES:
            return [
                {"type": "function_call", "call_id": identity, "name": name, "arguments": '{"path":"a"}'},
                {"type": "function_call_output", "call_id": identity, "output": said},
            ]
        case Wire.MESSAGES:
            return [
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": identity, "name": name, "input": {"path": "a"}}],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": identity, "content": said}]},
            ]


def large(wire: Wire) -> dict[str, Any]:
    """A request of 31 tools and 58 messages; one message has the words."""
    talk: list[dict[str, Any]] = []
    for number in range(19):
        said = f"Please go on with step {number}." if number != 11 else f"Remember that {WORDS}, and then go on."
        talk += [{"role": "user", "content": said}, *pair(number, wire)]
    talk.append({"role": "user", "content": "And now the last step, please."})
    tools = [tool(number, wire) for number in range(31)]
    settings = {"temperature": 0.7, "top_p": 0.9}
    match wire:
        case Wire.CHAT:
            return {"model": "m", "messages": talk, "tools": tools, "seed": 3, **settings}
        case Wire.RESPONSES:
            return {"model": "m", "input": talk, "tools": tools, "instructions": "Be brief.", **settings}
        case Wire.MESSAGES:
            return {
                "model": "m",
                "messages": talk,
                "tools": tools,
                "max_tokens": 500,
                "system": "Be brief.",
                **settings,
            }


def names(body: dict[str, Any]) -> list[str]:
    """The names of a request's tools, on any wire."""
    return [one.get("name") or one["function"]["name"] for one in body.get("tools", [])]
