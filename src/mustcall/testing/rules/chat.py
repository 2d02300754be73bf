"""What OpenAI Chat Completions refuses with a 400. First the shape, then the tools, then the history."""

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from mustcall.core.origin import JsonObject
from mustcall.testing.offers import as_object, as_objects
from mustcall.testing.rules.rule import OPENAI_NAME, Rule, SeenRequest, find_loose_object, refuse
from mustcall.testing.script import Fail

__all__ = ["RULES"]

_ROLES = ("system", "assistant", "user", "function", "tool", "developer")
_MOST_TOOLS = 128
_LONGEST_NAME = 64


def needs_model(ask: SeenRequest) -> Fail | None:
    """`model` is a string."""
    return None if isinstance(ask.body.get("model"), str) else refuse("you must provide a model parameter", "model")


def needs_messages(ask: SeenRequest) -> Fail | None:
    """`messages` is an array with something in it."""
    messages: Any = ask.body.get("messages")
    if not isinstance(messages, list):
        return refuse("Missing required parameter: 'messages'.", "messages", "missing_required_parameter")
    if not messages:
        message = "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array."
        return refuse(message, "messages", "empty_array")
    return None


def knows_roles(ask: SeenRequest) -> Fail | None:
    """Every message has a role the API knows."""
    for at, message in enumerate(_messages(ask)):
        if message.get("role") not in _ROLES:
            words = ", ".join(f"'{role}'" for role in _ROLES)
            text = f"Invalid value: '{message.get('role')}'. Supported values are: {words}."
            return refuse(text, f"messages[{at}].role", "invalid_value")
    return None


def needs_content(ask: SeenRequest) -> Fail | None:
    """Content may be null only in an assistant message."""
    for at, message in enumerate(_messages(ask)):
        if message.get("content") is None and message.get("role") not in ("assistant", "function"):
            text = "Invalid value for 'content': expected a string, got null."
            return refuse(text, f"messages[{at}].content")
    return None


def needs_tools_for_choice(ask: SeenRequest) -> Fail | None:
    """`tool_choice` comes only with `tools`."""
    if ask.body.get("tool_choice") is not None and not ask.body.get("tools"):
        return refuse("Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.")
    return None


def needs_tools_for_parallel(ask: SeenRequest) -> Fail | None:
    """`parallel_tool_calls` comes only with `tools`."""
    if ask.body.get("parallel_tool_calls") is not None and not ask.body.get("tools"):
        return refuse(
            "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are specified."
        )
    return None


def limits_tools(ask: SeenRequest) -> Fail | None:
    """At most 128 tools, and not an empty array."""
    tools: Any = ask.body.get("tools")
    if tools == []:
        text = "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead."
        return refuse(text, "tools", "empty_array")
    count = len(as_objects(tools))
    if count > _MOST_TOOLS:
        text = f"Invalid 'tools': array too long. Expected an array with maximum length {_MOST_TOOLS}, but got {count}."
        return refuse(text, "tools", "array_above_max_length")
    return None


def limits_names(ask: SeenRequest) -> Fail | None:
    """Tool names are 1 to 64 letters, digits, `_` and `-`, on offer and in the history."""
    for place, name in _names(ask):
        if not isinstance(name, str) or not OPENAI_NAME.fullmatch(name):
            text = f"Invalid '{place}': string does not match pattern. Expected a string that matches the pattern "
            return refuse(text + "'^[a-zA-Z0-9_-]+$'.", place, "invalid_value")
        if len(name) > _LONGEST_NAME:
            text = f"Invalid '{place}': string too long. Expected a string with maximum length {_LONGEST_NAME}, "
            return refuse(f"{text}but got a string with length {len(name)} instead.", place, "string_above_max_length")
    return None


def knows_choice(ask: SeenRequest) -> Fail | None:
    """A named choice names a tool on offer, in a word or shape the API knows."""
    choice: Any = ask.body.get("tool_choice")
    if choice is None or choice in ("none", "auto", "required"):
        return None
    fields = as_object(choice)
    if fields.get("type") == "allowed_tools":
        return None
    name = as_object(fields.get(str(fields.get("type")))).get("name")
    if name not in [_tool_name(tool) for tool in as_objects(ask.body.get("tools"))]:
        return refuse(f"Invalid value for 'tool_choice': the tool '{name}' is not among 'tools'.", "tool_choice")
    return None


def keeps_strict_schemas(ask: SeenRequest) -> Fail | None:
    """A strict function's schema closes every object and requires every key."""
    for at, tool in enumerate(as_objects(ask.body.get("tools"))):
        function = as_object(tool.get("function"))
        if function.get("strict") is True and (why := find_loose_object(function.get("parameters"))):
            text = f"Invalid schema for function '{function.get('name')}': {why}"
            return refuse(text, f"tools[{at}].function.parameters", "invalid_function_parameters")
    return None


def pairs_tool_messages(ask: SeenRequest) -> Fail | None:
    """A tool message answers a call of the assistant message it follows."""
    open_ids: list[Any] = []
    for at, message in enumerate(_messages(ask)):
        if message.get("role") == "assistant":
            open_ids = _call_ids(message)
        elif message.get("role") == "tool":
            if not open_ids:
                text = "Invalid parameter: messages with role 'tool' must be a response to a preceding message with "
                return refuse(text + "'tool_calls'.", f"messages.[{at}].role")
            if message.get("tool_call_id") not in open_ids:
                text = f"Invalid parameter: 'tool_call_id' of '{message.get('tool_call_id')}' not found in "
                return refuse(text + "'tool_calls' of previous message.", f"messages.[{at}].tool_call_id")
        else:
            open_ids = []
    return None


def answers_every_call(ask: SeenRequest) -> Fail | None:
    """Every call of an assistant message is answered by a tool message right after it."""
    messages = _messages(ask)
    for at, message in enumerate(messages):
        if not (calls := _call_ids(message)):
            continue
        following = takewhile(lambda later: later.get("role") == "tool", messages[at + 1 :])
        answered = [later.get("tool_call_id") for later in following]
        unanswered = [str(call_id) for call_id in calls if call_id not in answered]
        if unanswered:
            text = "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            text += "'tool_call_id'. The following tool_call_ids did not have response messages: "
            return refuse(text + ", ".join(unanswered), f"messages.[{at + 1}].role")
    return None


RULES: tuple[Rule, ...] = (
    needs_model,
    needs_messages,
    knows_roles,
    needs_content,
    limits_tools,
    needs_tools_for_choice,
    needs_tools_for_parallel,
    limits_names,
    knows_choice,
    keeps_strict_schemas,
    pairs_tool_messages,
    answers_every_call,
)


def _messages(ask: SeenRequest) -> list[JsonObject]:
    return as_objects(ask.body.get("messages"))


def _call_ids(message: JsonObject) -> list[Any]:
    if message.get("role") != "assistant":
        return []
    return [call.get("id") for call in as_objects(message.get("tool_calls"))]


def _tool_name(tool: JsonObject) -> Any:
    return as_object(tool.get(str(tool.get("type")))).get("name")


def _names(ask: SeenRequest) -> Iterator[tuple[str, Any]]:
    for at, tool in enumerate(as_objects(ask.body.get("tools"))):
        yield f"tools[{at}].{tool.get('type')}.name", _tool_name(tool)
    for at, message in enumerate(_messages(ask)):
        for k, call in enumerate(as_objects(message.get("tool_calls"))):
            yield f"messages[{at}].tool_calls[{k}].{call.get('type')}.name", _tool_name(call)
