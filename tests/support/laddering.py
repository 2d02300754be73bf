"""What a local server is sent for a demanded call that it never makes, rung by rung.

Written from the documented sentences and the public APIs; the caller's own request comes first.
"""

import json
from typing import Any

from mustcall.core.origin import Wire
from mustcall.policy.facts.wording import Wording
from support.forcing import Assistant, choice_on
from support.sending import with_steps

__all__ = ["climbed"]

_TOLD = """You can call tools. To call one, write exactly this, with the tool's name and its arguments:

<tool_call>
{"name": "TOOL_NAME", "arguments": {"PARAMETER": "VALUE"}}
</tool_call>

Write nothing after a call; its result will be given to you. These are the tools:

"""


def climbed(wire: str, body: dict[str, Any], said: str = "", told: str = "") -> list[dict[str, Any]]:
    """Return what is sent on a request's own wire for its one tool under `required`.

    That is the choice, a schema, a grammar, a directive, and the tools as text. `said` is what the model says each
    time, `told` how its tool is described in text. What is constrained ends by itself; the rest is streamed.
    """
    words = Wording()
    (tool,) = body["tools"]
    function = tool["function"] if wire == "chat" else tool
    name, arguments = function["name"], function["input_schema" if wire == "messages" else "parameters"]
    listed = f"- {name}: {function['description']}" if "description" in function else f"- {name}"
    if arguments.get("properties"):
        listed += f"\n  arguments: {json.dumps(arguments, separators=(',', ':'))}"
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "enum": [name]}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
    named = {"name": "tool_call", "schema": schema, "strict": True}
    held = {
        "chat": {"response_format": {"type": "json_schema", "json_schema": named}},
        "responses": {"text": {"format": {"type": "json_schema", **named}}},
        "messages": {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
    }[wire]
    streamed: dict[str, Any] = {"stream": True}
    if wire == "chat" and not body.get("stream"):
        streamed["stream_options"] = {"include_usage": True}
    first, second = words.call_any[:2]
    without = {key: value for key, value in body.items() if key not in ("tools", "tool_choice")}
    as_json = with_steps(Wire(wire), without, words.call_as_json.format(tools=listed))
    kept = (Assistant(said), second) if said else ()  # of a reply without text nothing is kept
    firm = with_steps(Wire(wire), body, first, *kept)
    in_text = with_steps(Wire(wire), {**without, **streamed}, first)
    if wire == "chat":
        in_text["messages"] = [{"role": "system", "content": _TOLD + told}, *in_text["messages"]]
    else:
        in_text["system" if wire == "messages" else "instructions"] = _TOLD + told
    return [
        {**body, **streamed},
        {**as_json, **held},
        {**as_json, "json_schema": schema, "guided_json": schema},
        {**firm, **streamed, "tool_choice": choice_on(wire, "auto")},
        in_text,
    ]
