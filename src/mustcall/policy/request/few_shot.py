"""Requests for models that follow examples better than instructions: a call by example, an answer from a result.

Chosen by a profile fact. The instruction and the examples come first and never change, so that they stay cached; the
tools stand beside the message they are for. It renders; which tools and which schema is decided elsewhere.
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from mustcall.core.message import Message, Role
from mustcall.core.origin import JsonObject
from mustcall.core.parts import Part, Text, ToolCall, ToolResult
from mustcall.core.request import Request
from mustcall.core.tools import Tool
from mustcall.dialects.reading.schema import resolve
from mustcall.policy.facts.wording import Wording, fill
from mustcall.policy.schema.subschemas import as_object
from mustcall.wire.crossing.turns import result_text

__all__ = ["Example", "answer_changes", "call_changes", "list_tools"]


class Example(msgspec.Struct, frozen=True):
    """A message, the tools beside it, and the call that is right."""

    tools: tuple[Tool, ...]
    message: str
    name: str
    arguments: JsonObject


def _example_tool(name: str, description: str, **types: str) -> Tool:
    properties = {key: {"type": kind} for key, kind in types.items()}
    return Tool(name=name, description=description, parameters={"type": "object", "properties": properties})


_EXAMPLES = (
    Example(
        (_example_tool("play_song", "Play a song.", title="string"),),
        "Play the song Yesterday.",
        "play_song",
        {"title": "Yesterday"},
    ),
    Example(
        (_example_tool("book_table", "Book a table in a restaurant.", restaurant="string", guests="integer"),),
        "I need a table for 4 at Da Mario tonight.",
        "book_table",
        {"restaurant": "Da Mario", "guests": 4},
    ),
)


def call_changes(request: Request, tools: Sequence[Tool], wording: Wording) -> dict[str, Any]:
    """Return the changes that make a request ask for one call of these tools, by example."""
    shown: list[Message] = []
    for example in _EXAMPLES:
        shown.append(_turn(Role.USER, _task(example.tools, example.message, wording)))
        # Spaced as `json.dumps` does it: what small models have seen most.
        call = msgspec.json.format(
            msgspec.json.encode({"name": example.name, "arguments": example.arguments}), indent=0
        )
        shown.append(_turn(Role.ASSISTANT, call.decode()))
    messages = list(_plain(_own(request), wording))
    if messages and messages[-1].role is Role.USER:
        last = messages.pop()
        asked = "\n".join(part.text for part in last.parts if isinstance(part, Text))
        rest = tuple(part for part in last.parts if not isinstance(part, Text))
        task = Message(role=Role.USER, parts=(Text(text=_task(tools, asked, wording)), *rest))
    else:
        task = _turn(Role.USER, _task(tools, wording.continue_turn, wording))
    return {
        "system": None,
        "messages": (_system(request, wording.call_worked), *shown, *messages, task),
        "tools": (),
        "tool_choice": None,
        "parallel_tool_calls": None,
    }


def answer_changes(request: Request, wording: Wording, question: str) -> dict[str, Any]:
    """Return the changes that make a request ask for an answer in text: nothing is offered, results are told.

    `question` follows a result that is told last; none follows where it is empty.
    """
    changes: dict[str, Any] = {}
    if request.tools:
        changes |= {"tools": (), "tool_choice": None, "parallel_tool_calls": None}
    parts = [part for message in request.messages for part in message.parts]
    if not any(isinstance(part, ToolCall | ToolResult) for part in parts):
        return changes
    messages = list(_plain(_own(request), wording))
    # No example here: measured, the model repeats the example's answer.
    if question and messages and messages[-1].role is Role.ASSISTANT:
        messages.append(_turn(Role.USER, question))
    system = [_system(request, "")] if _system_texts(request) else []
    return changes | {"system": None, "messages": (*system, *messages)}


def list_tools(tools: Iterable[Tool]) -> str:
    """Return the tools, one line each: name, description, and the arguments with their types."""
    lines: list[str] = []
    for tool in tools:
        root: JsonObject = tool.parameters or {}
        properties = as_object(resolve(root, root).get("properties")) or {}
        kinds = ", ".join(f"{name} ({_kind(declared)})" for name, declared in properties.items())
        described = f": {tool.description}" if tool.description else ""
        lines.append(f"- {tool.name}{described}" + (f" Arguments: {kinds}" if kinds else ""))
    return "\n".join(lines)


def _flat(result: str) -> str:
    """Return a result in the plainest words: an object as `key: value, …`, a list as its items, the rest as it is."""
    try:
        value: Any = msgspec.json.decode(result)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return result
    match value:
        case dict():
            items = cast("JsonObject", value).items()  # read from JSON, so its keys are strings
            return ", ".join(f"{key}: {_scalar(item)}" for key, item in items)
        case list():
            return ", ".join(map(_scalar, cast("list[Any]", value)))
        case _:
            return result


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _kind(declared: Any) -> str:
    kind = (as_object(declared) or {}).get("type")
    return kind if isinstance(kind, str) else "any"


def _task(tools: Iterable[Tool], message: str, wording: Wording) -> str:
    return fill(wording.call_worked_task, tools=list_tools(tools), message=message)


def _turn(role: Role, text: str) -> Message:
    return Message(role=role, parts=(Text(text=text),))


def _system(request: Request, instruction: str) -> Message:
    texts = [text for text in (instruction, *_system_texts(request)) if text]
    return _turn(Role.SYSTEM, "\n\n".join(texts))


def _system_texts(request: Request) -> list[str]:
    messages = [message for message in request.messages if message.role in (Role.SYSTEM, Role.DEVELOPER)]
    if request.system is not None:
        messages.insert(0, request.system)
    return [part.text for message in messages for part in message.parts if isinstance(part, Text)]


def _own(request: Request) -> Iterable[Message]:
    return (message for message in request.messages if message.role not in (Role.SYSTEM, Role.DEVELOPER))


def _plain(messages: Iterable[Message], wording: Wording) -> Iterable[Message]:
    """Tell calls and their results in plain words, as the assistant's own: markup is what such a model would repeat."""
    names: dict[str, str] = {}
    for message in messages:
        parts: list[Part] = []
        results: list[str] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                names[part.id] = part.name
            elif isinstance(part, ToolResult):
                written = _flat(result_text(part).text)
                results.append(fill(wording.result_worked, tool=names.get(part.call_id, "a tool"), result=written))
            else:
                parts.append(part)
        if results:
            yield _turn(Role.ASSISTANT, "\n".join(results))
        if parts:
            yield message if len(parts) == len(message.parts) else Message(role=message.role, parts=tuple(parts))
