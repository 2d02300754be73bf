"""What OpenAI Responses refuses with a 400. First the shape, then the tools, then the history."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from mustcall.core.origin import JsonObject
from mustcall.testing.issued import CALL_ITEMS
from mustcall.testing.offers import as_object, as_objects
from mustcall.testing.rules.rule import OPENAI_NAME, Rule, SeenRequest, find_loose_object, refuse
from mustcall.testing.script import Fail

__all__ = ["RULES"]

_ROLES = ("assistant", "system", "developer", "user")
_LONGEST_CALL_ID = 64
_LONGEST_NAME = 64
_MOST_TOOLS = 128


def needs_model(ask: SeenRequest) -> Fail | None:
    """`model` is a string."""
    if isinstance(ask.body.get("model"), str):
        return None
    return refuse("Missing required parameter: 'model'.", "model", "missing_required_parameter")


def needs_input(ask: SeenRequest) -> Fail | None:
    """`input` is a string or an array (a stored response may go on without one)."""
    if isinstance(ask.body.get("input"), (str, list)) or ask.body.get("previous_response_id") is not None:
        return None
    return refuse("Missing required parameter: 'input'.", "input", "missing_required_parameter")


def knows_items(ask: SeenRequest) -> Fail | None:
    """An input item says its type, or is a message of a known role."""
    for at, item in _items(ask):
        kind = item.get("type", "message")
        if not isinstance(kind, str):
            return refuse(f"Invalid type for 'input[{at}].type': expected a string.", f"input[{at}].type")
        if kind == "message" and item.get("role") not in _ROLES:
            words = ", ".join(f"'{role}'" for role in _ROLES)
            text = f"Invalid value: '{item.get('role')}'. Supported values are: {words}."
            return refuse(text, f"input[{at}].role", "invalid_value")
    return None


def limits_tools(ask: SeenRequest) -> Fail | None:
    """At most 128 tools."""
    count = len(as_objects(ask.body.get("tools")))
    if count > _MOST_TOOLS:
        text = f"Invalid 'tools': array too long. Expected an array with maximum length {_MOST_TOOLS}, but got {count}."
        return refuse(text, "tools", "array_above_max_length")
    return None


def needs_tools_for_choice(ask: SeenRequest) -> Fail | None:
    """A choice that demands a tool comes only with `tools`."""
    if ask.body.get("tool_choice") in (None, "auto", "none") or ask.body.get("tools"):
        return None
    return refuse("Tool choice is only allowed when 'tools' are specified.", "tool_choice")


def knows_choice(ask: SeenRequest) -> Fail | None:
    """A named choice names a tool on offer."""
    choice = as_object(ask.body.get("tool_choice"))
    if choice.get("type") not in ("function", "custom"):
        return None
    if choice.get("name") in [tool.get("name") for _, tool in _tools(ask)]:
        return None
    return refuse(f"Tool choice '{choice.get('name')}' not found in 'tools' parameter.", "tool_choice")


def limits_names(ask: SeenRequest) -> Fail | None:
    """Tool names are 1 to 64 letters, digits, `_` and `-`, on offer and in the history."""
    named = [(place, tool.get("name")) for place, tool in _tools(ask)]
    named += [(f"input[{at}]", item.get("name")) for at, item in _items(ask) if item.get("type") in CALL_ITEMS]
    for place, name in named:
        if not isinstance(name, str) or not OPENAI_NAME.fullmatch(name):
            text = f"Invalid '{place}.name': string does not match pattern. Expected a string that matches the pattern "
            return refuse(text + "'^[a-zA-Z0-9_-]+$'.", f"{place}.name", "invalid_value")
        if len(name) > _LONGEST_NAME:
            text = f"Invalid '{place}.name': string too long. Expected a string with maximum length {_LONGEST_NAME}, "
            text += f"but got a string with length {len(name)} instead."
            return refuse(text, f"{place}.name", "string_above_max_length")
    return None


def keeps_strict_schemas(ask: SeenRequest) -> Fail | None:
    """A strict function's schema closes every object and requires every key."""
    for place, tool in _tools(ask):
        if tool.get("strict") is True and (why := find_loose_object(tool.get("parameters"))):
            text = f"Invalid schema for function '{tool.get('name')}': {why}"
            return refuse(text, f"{place}.parameters", "invalid_function_parameters")
    return None


def limits_call_ids(ask: SeenRequest) -> Fail | None:
    """A `call_id` has 1 to 64 characters."""
    for at, item in _items(ask):
        if item.get("type") not in CALL_ITEMS and item.get("type") not in CALL_ITEMS.values():
            continue
        call_id, place = item.get("call_id"), f"input[{at}].call_id"
        if not isinstance(call_id, str) or not call_id:
            return refuse(f"Missing required parameter: '{place}'.", place, "missing_required_parameter")
        if len(call_id) > _LONGEST_CALL_ID:
            text = f"Invalid '{place}': string too long. Expected a string with maximum length {_LONGEST_CALL_ID}, "
            text += f"but got a string with length {len(call_id)} instead."
            return refuse(text, place, "string_above_max_length")
    return None


def knows_previous_response(ask: SeenRequest) -> Fail | None:
    """`previous_response_id` names a response this upstream made and stored."""
    previous = ask.body.get("previous_response_id")
    if previous is None or previous in ask.issued.stored:
        return None
    text = f"Previous response with id '{previous}' not found."
    return refuse(text, "previous_response_id", "previous_response_not_found")


def knows_encrypted_reasoning(ask: SeenRequest) -> Fail | None:
    """Encrypted reasoning comes back as this upstream issued it."""
    for _, item in _items(ask):
        content = item.get("encrypted_content")
        if item.get("type") == "reasoning" and content is not None and content not in ask.issued.encrypted:
            text = f"The encrypted content for item {item.get('id')} could not be verified. "
            text += "Reason: Encrypted content could not be decrypted or parsed."
            return refuse(text, "input", "invalid_encrypted_content")
    return None


def keeps_reasoning(ask: SeenRequest) -> Fail | None:
    """An item of a stored response, sent back by its id, comes with the reasoning that led to it."""
    items = [item for _, item in _items(ask)]
    present = {item.get("id") for item in items}
    for item in items:
        needed = ask.issued.led_to.get(str(item.get("id")))
        if needed is not None and needed not in present:
            text = f"Item '{item.get('id')}' of type '{item.get('type')}' was provided without its required "
            return refuse(f"{text}'reasoning' item: '{needed}'.", "input")
    return None


def follows_reasoning(ask: SeenRequest) -> Fail | None:
    """A reasoning item is followed by the item it led to."""
    last: JsonObject = {}
    for item, after in pairwise([*(item for _, item in _items(ask)), last]):
        leads = after.get("type") in {*CALL_ITEMS, "reasoning"} or after.get("role") == "assistant"
        if item.get("type") == "reasoning" and not leads:
            text = f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
            return refuse(text, "input")
    return None


def pairs_outputs(ask: SeenRequest) -> Fail | None:
    """A call's output follows its call, in the input or in the stored response, and is of its kind."""
    calls: set[tuple[str, Any]] = set()
    pending = _pending(ask)
    for _, item in _items(ask):
        kind, call_id = str(item.get("type")), item.get("call_id")
        if kind in CALL_ITEMS:
            calls.add((CALL_ITEMS[kind], call_id))
        elif kind in CALL_ITEMS.values() and (kind, call_id) not in calls and call_id not in pending:
            what = "function call" if kind == "function_call_output" else "custom tool call"
            return refuse(f"No tool call found for {what} output with call_id {call_id}.", "input")
    return None


def answers_every_call(ask: SeenRequest) -> Fail | None:
    """Every call, in the input or left open by the stored response, has its output in the input."""
    items = [item for _, item in _items(ask)]
    answered = {item.get("call_id") for item in items if item.get("type") in CALL_ITEMS.values()}
    calls = sorted(_pending(ask)) + [item.get("call_id") for item in items if item.get("type") in CALL_ITEMS]
    unanswered = [call_id for call_id in calls if call_id not in answered]
    return refuse(f"No tool output found for function call {unanswered[0]}.", "input") if unanswered else None


RULES: tuple[Rule, ...] = (
    needs_model,
    needs_input,
    knows_items,
    limits_tools,
    needs_tools_for_choice,
    limits_names,
    knows_choice,
    keeps_strict_schemas,
    limits_call_ids,
    knows_previous_response,
    knows_encrypted_reasoning,
    keeps_reasoning,
    follows_reasoning,
    pairs_outputs,
    answers_every_call,
)


def _items(ask: SeenRequest) -> list[tuple[int, JsonObject]]:
    return list(enumerate(as_objects(ask.body.get("input"))))


def _pending(ask: SeenRequest) -> frozenset[str]:
    return ask.issued.stored.get(str(ask.body.get("previous_response_id")), frozenset())


def _tools(ask: SeenRequest) -> Iterator[tuple[str, JsonObject]]:
    for at, tool in enumerate(as_objects(ask.body.get("tools"))):
        if tool.get("type") in ("function", "custom"):
            yield f"tools[{at}]", tool
        elif tool.get("type") == "namespace":
            for k, inner in enumerate(as_objects(tool.get("tools"))):
                yield f"tools[{at}].tools[{k}]", inner
