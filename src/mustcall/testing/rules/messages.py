"""What Anthropic Messages refuses about a request as a whole: headers, shape, thinking, tools.

The rules about turns and blocks are in `history`; `RULES` is the whole table, in the order the rules are asked.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from mustcall.testing.offers import as_object, as_objects
from mustcall.testing.rules import history
from mustcall.testing.rules.rule import Rule, SeenRequest, refuse
from mustcall.testing.script import Fail

__all__ = ["RULES"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_LEAST_BUDGET = 1024


def needs_api_key(ask: SeenRequest) -> Fail | None:
    """A key comes as `x-api-key` or as a bearer token."""
    if ask.headers.get("x-api-key") or ask.headers.get("authorization"):
        return None
    return Fail(401, "x-api-key header is required")


def needs_version(ask: SeenRequest) -> Fail | None:
    """`anthropic-version` is sent."""
    return None if ask.headers.get("anthropic-version") else refuse("anthropic-version: header is required")


def needs_model(ask: SeenRequest) -> Fail | None:
    """`model` is a string."""
    return None if isinstance(ask.body.get("model"), str) else refuse("model: Field required")


def needs_max_tokens(ask: SeenRequest) -> Fail | None:
    """`max_tokens` is a positive integer."""
    limit: Any = ask.body.get("max_tokens")
    if limit is None:
        return refuse("max_tokens: Field required")
    if not isinstance(limit, int) or isinstance(limit, bool):
        return refuse("max_tokens: Input should be a valid integer")
    return None if limit > 0 else refuse("max_tokens: Input should be greater than or equal to 1")


def has_no_thread(ask: SeenRequest) -> Fail | None:
    """Server-held threads are not served here; clients fall back to the whole history on this answer."""
    if ask.body.get("thread") is None:
        return None
    details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    return Fail(400, "thread: this request cannot be served as part of a thread", details=details)


def limits_budget(ask: SeenRequest) -> Fail | None:
    """A thinking budget is at least 1024 and below `max_tokens`."""
    thinking = as_object(ask.body.get("thinking"))
    if thinking.get("type") != "enabled":
        return None
    budget: Any = thinking.get("budget_tokens")
    if not isinstance(budget, int):
        return refuse("thinking.enabled.budget_tokens: Field required")
    if budget < _LEAST_BUDGET:
        return refuse(f"thinking.enabled.budget_tokens: Input should be greater than or equal to {_LEAST_BUDGET}")
    if budget >= int(ask.body["max_tokens"]):
        return refuse("`max_tokens` must be greater than `thinking.budget_tokens`.")
    return None


def never_forces_thinking(ask: SeenRequest) -> Fail | None:
    """A forced choice (`any`, `tool`) and thinking exclude each other."""
    thinks = as_object(ask.body.get("thinking")).get("type") in ("enabled", "adaptive", "between_tools")
    if thinks and as_object(ask.body.get("tool_choice")).get("type") in ("any", "tool"):
        return refuse("Thinking may not be enabled when tool_choice forces tool use.")
    return None


def needs_tools_for_choice(ask: SeenRequest) -> Fail | None:
    """`tool_choice` comes only with `tools`."""
    if ask.body.get("tool_choice") is not None and not ask.body.get("tools"):
        return refuse("tool_choice may only be specified while providing tools.")
    return None


def knows_choice(ask: SeenRequest) -> Fail | None:
    """The choice is of a known type, and a named one names a tool on offer."""
    if ask.body.get("tool_choice") is None:
        return None
    choice = as_object(ask.body.get("tool_choice"))
    if choice.get("type") not in ("auto", "any", "tool", "none"):
        return refuse(f"tool_choice: Input tag '{choice.get('type')}' does not match 'auto', 'any', 'tool' or 'none'")
    offered = [tool.get("name") for tool in as_objects(ask.body.get("tools"))]
    if choice["type"] == "tool" and choice.get("name") not in offered:
        return refuse(f"Tool '{choice.get('name')}' not found in provided tools")
    return None


def limits_names(ask: SeenRequest) -> Fail | None:
    """Tool names are 1 to 128 letters, digits, `_` and `-`, on offer and in the history."""
    for place, name in _names(ask):
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            return refuse(f"{place}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    return None


def offers_each_name_once(ask: SeenRequest) -> Fail | None:
    """No two tools share a name."""
    names = Counter(str(tool.get("name")) for tool in as_objects(ask.body.get("tools")))
    return refuse("tools: Tool names must be unique.") if any(count > 1 for count in names.values()) else None


def needs_schemas(ask: SeenRequest) -> Fail | None:
    """A client-side tool has an `input_schema` of type object."""
    for at, tool in enumerate(as_objects(ask.body.get("tools"))):
        if tool.get("type", "custom") not in ("custom", None):
            continue
        if "input_schema" not in tool:
            return refuse(f"tools.{at}.custom.input_schema: Field required")
        if as_object(tool["input_schema"]).get("type") != "object":
            return refuse(f"tools.{at}.custom.input_schema.type: Input should be 'object'")
    return None


RULES: tuple[Rule, ...] = (
    needs_api_key,
    needs_version,
    needs_model,
    needs_max_tokens,
    has_no_thread,
    limits_budget,
    needs_tools_for_choice,
    never_forces_thinking,
    needs_schemas,
    limits_names,
    offers_each_name_once,
    knows_choice,
    *history.RULES,
)


def _names(ask: SeenRequest) -> Iterator[tuple[str, Any]]:
    for at, tool in enumerate(as_objects(ask.body.get("tools"))):
        if "input_schema" in tool:
            yield f"tools.{at}.custom", tool.get("name")
    for at, message in enumerate(as_objects(ask.body.get("messages"))):
        for k, block in enumerate(as_objects(message.get("content"))):
            if block.get("type") == "tool_use":
                yield f"messages.{at}.content.{k}.tool_use", block.get("name")
