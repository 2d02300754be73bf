"""What an upstream must get for what an official SDK asked (`support.sdk`), on its own wire and across wires.

Bodies are written here from the public APIs; nothing is taken from mustcall's codecs.
"""

from typing import Any

from support.forcing import choice_on, join_users, typed_item
from support.sdk import Ask

__all__ = ["expect_asked"]

Json = dict[str, Any]

#: What a Messages caller says, because that wire requires a limit.
_LIMIT = 4096
#: What Messages is sent where the caller of another wire set none: `default_max_tokens` of an upstream.
_DEFAULT_LIMIT = 8192


def expect_asked(caller: str, upstream: str, asked: Ask, *added: str, stream: bool) -> Json:
    """Return the body for a question with user turns of ours behind it, to a model of which nothing is known."""
    assert asked.echo is asked.handed is asked.effort is asked.limit is asked.temperature is None
    body = {"chat": _on_chat, "responses": _on_responses, "messages": _on_messages}[upstream](caller, asked, added)
    body["model"] = asked.model
    if asked.choice:
        # The only tool on offer is forced by `any` (rule 6); on one wire the caller's own words are sent (rule 74).
        crosses = upstream == "messages" != caller
        only = crosses and [asked.choice] == [name for name, _ in asked.tools]
        body["tool_choice"] = choice_on(upstream, "required" if only else asked.choice)
    if stream:
        body["stream"] = True
        if upstream == "chat":
            body["stream_options"] = {"include_usage": True}
    return body


def _turns(asked: Ask, added: tuple[str, ...]) -> list[Json]:
    return [{"role": "user", "content": text} for text in (asked.user, *added)]


def _system(asked: Ask) -> list[Json]:
    return [{"role": "system", "content": asked.system}] if asked.system else []


def _on_chat(caller: str, asked: Ask, added: tuple[str, ...]) -> Json:
    own: Json = {"strict": False} if caller == "responses" else {}  # it is said there, and has a place here
    functions = [{"name": name, "parameters": schema, **own} for name, schema in asked.tools]
    body: Json = {
        "messages": [*_system(asked), *_turns(asked, added)],
        "tools": [{"type": "function", "function": function} for function in functions],
    }
    if caller == "responses":
        body["store"] = False
    if caller == "messages":
        body["max_completion_tokens"] = _LIMIT
    return body


def _on_responses(caller: str, asked: Ask, added: tuple[str, ...]) -> Json:
    question, *ours = _turns(asked, added)
    said = [*map(typed_item, ours)]
    body: Json = {
        "input": [question if caller == "responses" else typed_item(question), *said],
        "tools": [
            {"type": "function", "name": name, "parameters": schema, "strict": False} for name, schema in asked.tools
        ],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    if caller == "chat":  # a system turn of the conversation stays one
        body["input"] = [*map(typed_item, _system(asked)), *body["input"]]
    elif asked.system:
        body["instructions"] = asked.system
    if caller == "messages":
        body["max_output_tokens"] = _LIMIT
    return body


def _on_messages(caller: str, asked: Ask, added: tuple[str, ...]) -> Json:
    turns = _turns(asked, added)
    body: Json = {
        "messages": turns if caller == "messages" else join_users(turns),
        "tools": [{"name": name, "input_schema": schema} for name, schema in asked.tools],
        "max_tokens": _LIMIT if caller == "messages" else _DEFAULT_LIMIT,
    }
    if asked.system:
        body["system"] = asked.system
    return body
