"""What an upstream must be sent for the small requests of `exchanging`: first, and again with a reminder behind it.

Written from the public APIs and the documented sentences; nothing is taken from mustcall's codecs. What was written on
the upstream's own wire stays as it is. Crossing to Messages joins neighbouring user turns, crossing to Responses writes
typed items and leaves no state on the server, and a crossing stream on chat asks for its usage.
"""

import json
from typing import Any

from mustcall.core.origin import Wire
from mustcall.policy.facts.wording import Wording
from support.exchanging import SCHEMA, TOOLS, asked
from support.forcing import Assistant, User, choice_on, join_users, turns_on, typed_item
from support.sdk import Ask

__all__ = ["as_schema_answer", "carried", "carried_from_sdk", "with_steps"]

_TEXT = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input of the tool, as plain text."}},
    "required": ["input"],
    "additionalProperties": False,
}
_LIMITS = {Wire.CHAT: "max_completion_tokens", Wire.RESPONSES: "max_output_tokens", Wire.MESSAGES: "max_tokens"}


def with_steps(theirs: Wire, body: dict[str, Any], *steps: str | Assistant, crosses: bool = False) -> dict[str, Any]:
    """Return a body with more turns behind its own: what the user is made to say, and what the model said before."""
    if not steps:
        return body
    key = "input" if theirs is Wire.RESPONSES else "messages"
    own: list[Any] = [{"role": "user", "content": body[key]}] if isinstance(body[key], str) else body[key]
    more = turns_on(str(theirs), [User(step) if isinstance(step, str) else step for step in steps])
    if theirs is Wire.RESPONSES:
        more = [typed_item(item) for item in more]
    turns = [*own, *more]
    return {**body, key: join_users(turns) if crosses and theirs is Wire.MESSAGES else turns}


def carried(
    mine: Wire,
    theirs: Wire,
    *steps: str | Assistant,
    asks_stream: bool = False,
    stream: bool | None = None,
    choice: str | None = None,
    limit: int | None = None,
    tools: bool = True,
) -> dict[str, Any]:
    """Return what is sent for `asked(mine, tools=tools)`, with the tools in the words of the other side.

    `stream` is whether the upstream streams, where that is not what the caller asked for; `limit` the caller's limit.
    """
    stream = asks_stream if stream is None else stream
    crosses = mine is not theirs
    body = {**asked(theirs), **({"tools": _tools(mine, theirs)} if tools else {})}
    if crosses and theirs is Wire.RESPONSES:
        body["input"] = [typed_item({"role": "user", "content": "hi"})]
        body["include"] = ["reasoning.encrypted_content"]
    if (mine, theirs) == (Wire.RESPONSES, Wire.CHAT):  # `store` was said, and has a place there
        body["store"] = False
    body.pop("max_tokens", None)
    if limit is None and theirs is Wire.MESSAGES:
        limit = 8192
    if limit is not None:
        body[_LIMITS[theirs]] = limit
    if choice is not None:
        body["tool_choice"] = choice_on(str(theirs), choice)
    if stream:
        body["stream"] = True
        if theirs is Wire.CHAT and (crosses or not asks_stream):
            body["stream_options"] = {"include_usage": True}
    return with_steps(theirs, body, *steps, crosses=crosses)


def carried_from_sdk(mine: str, theirs: str, *, stream: bool) -> dict[str, Any]:
    """Return what is sent for the plain `Ask` of an official SDK: a system prompt and a question."""
    told, question = Ask().system, {"role": "user", "content": Ask().user}
    system = {"role": "system", "content": told}
    crosses = mine != theirs
    body: dict[str, Any] = {"model": Ask().model}
    if theirs == "chat":
        body["messages"] = [system, question]
        if mine == "responses":  # `store` was said, and has a place there
            body["store"] = False
    elif theirs == "messages":
        body |= {"system": told, "messages": [question], "max_tokens": 8192 if crosses else 4096}
    else:
        turns = [system, question] if mine == "chat" else [question]  # chat keeps its system prompt among the turns
        body["input"] = [typed_item(turn) for turn in turns] if crosses else turns
        body |= {"store": False, "include": ["reasoning.encrypted_content"]}
        if mine != "chat":
            body["instructions"] = told
    if mine == "messages" and crosses:
        body[_LIMITS[Wire(theirs)]] = 4096
    if stream:
        body["stream"] = True
        if theirs == "chat":
            body["stream_options"] = {"include_usage": True}
    return body


def as_schema_answer(mine: Wire, theirs: Wire, **asking: Any) -> dict[str, Any]:
    """Return the request that asks for a call of `weather` as an answer held to a schema, in place of the tools."""
    listed = f"- weather\n  arguments: {json.dumps(SCHEMA, separators=(',', ':'))}"
    body = carried(mine, theirs, Wording().call_as_json.format(tools=listed), **asking)
    del body["tools"]
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "enum": ["weather"]}, "arguments": SCHEMA},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
    named = {"name": "tool_call", "schema": schema, "strict": True}
    return (
        body
        | {
            Wire.CHAT: {"response_format": {"type": "json_schema", "json_schema": named}},
            Wire.RESPONSES: {"text": {"format": {"type": "json_schema", **named}}},
            Wire.MESSAGES: {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
        }[theirs]
    )


def _tools(mine: Wire, theirs: Wire) -> list[dict[str, Any]]:
    """The tools of a request: a custom tool is a function of one text where there are no custom tools."""
    if mine is theirs or (mine, theirs) == (Wire.CHAT, Wire.RESPONSES):
        return TOOLS[theirs]
    schemas = {"weather": SCHEMA, "patch": SCHEMA if mine is Wire.MESSAGES else _TEXT}
    if theirs is Wire.MESSAGES:
        return [{"name": name, "input_schema": schema} for name, schema in schemas.items()]
    functions: list[dict[str, Any]] = [{"name": name, "parameters": schema} for name, schema in schemas.items()]
    if theirs is Wire.RESPONSES:
        return [{"type": "function", **function, "strict": False} for function in functions]
    if mine is Wire.RESPONSES:  # `strict` was said of the first, and has a place there
        functions[0]["strict"] = False
    return [{"type": "function", "function": function} for function in functions]
