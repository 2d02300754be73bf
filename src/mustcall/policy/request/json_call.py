"""A tool call as a JSON answer: the schema that constrains it, and the reader of what came back.

For upstreams that cannot be forced to call but can be held to a schema or grammar (rules 60, 76), and for answers the
caller wants in a structure. What is read here is not yet checked: `arguments` judges it by the tool's own schema. It
knows no upstream; `schemas` makes of the schema what one takes.

Cost: linear in the tools' schemas and in the text.
"""

import re
from collections.abc import Sequence
from typing import Any

from mustcall.core.origin import JsonObject
from mustcall.core.parts import CallKind
from mustcall.core.tools import Tool
from mustcall.dialects.names import Offered
from mustcall.policy.schema.arguments import object_schema
from mustcall.policy.schema.subschemas import MAX_DEPTH, Path, as_list, as_object, deeper_than, hoist, rewrite
from mustcall.policy.schema.validation import (
    Checker,
    Problem,
    Unreadable,
    describe_problems,
    fits,
    read_json,
    schema_fault,
    validator_for,
    write_json,
)

__all__ = [
    "answer_problems",
    "bound_schema",
    "call_schema",
    "describe_problems",
    "read_call",
    "read_calls",
]

# Seen with a 135M model: unbounded strings sometimes run to the token cap, bounded ones end by themselves.
_LONGEST_STRING = 200
_MOST_ITEMS = 16
_LARGEST_INTEGER = 999_999_999

_FENCED = re.compile(r"```[A-Za-z]*[ \t]*\r?\n(.*?)\r?\n?```\Z", re.DOTALL)
_FREE_TEXT: JsonObject = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
_CALL_KEYS = frozenset({"name", "arguments"})


def call_schema(tools: Sequence[Tool], *, single: bool, bound: bool = False, rooted: bool = False) -> JsonObject:
    """Return the schema of an answer that is one call of one of these tools, or with `single` off a list of calls.

    One call is `{"name": …, "arguments": …}`; a list is `{"calls": [ … ]}`. `bound` limits strings, integers and arrays
    that have no limit (small local models run on in them). `rooted` gives an object at the root also where several
    tools make it a union (`{"call": …}`), which some upstreams demand.
    """
    if not tools:
        return {"not": {}}  # no answer calls one of no tools
    definitions: dict[str, JsonObject] = {}
    forms = [_call_form(tool, index, definitions) for index, tool in enumerate(tools)]
    call: JsonObject = forms[0] if len(forms) == 1 else {"anyOf": forms}
    schema = call
    if not single:
        schema = _closed({"calls": {"type": "array", "items": call, "minItems": 1}})
    elif rooted and len(forms) != 1:
        schema = _closed({"call": call})
    if definitions:
        schema = {**schema, "$defs": definitions}
    return bound_schema(schema) if bound else schema


def bound_schema(schema: JsonObject) -> JsonObject:
    """Return the schema with a limit on every text, list and integer that has none."""
    return rewrite(schema, _bounded)


def _call_form(tool: Tool, index: int, definitions: dict[str, JsonObject]) -> JsonObject:
    parameters = _parameters(tool)
    body, parts = hoist(parameters, f"tool{index}_part")
    definitions.update(parts)
    if "type" not in body and "$ref" not in body:
        body = {"type": "object", **body}
    return _closed({"name": {"type": "string", "enum": [tool.name]}, "arguments": body})


def _parameters(tool: Tool) -> JsonObject:
    if tool.kind is CallKind.CUSTOM:
        return _FREE_TEXT
    schema = tool.parameters
    if schema is None or deeper_than(schema, MAX_DEPTH) or not _is_sound(schema):
        return {"type": "object"}
    return object_schema(schema)


def _is_sound(schema: JsonObject) -> bool:
    """Tell whether a schema can be sent to hold a reply to it: it has no fault, and can be checked by."""
    return schema_fault(schema) is None and validator_for(schema) is not None


def _closed(properties: JsonObject) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _bounded(node: JsonObject, _path: Path) -> JsonObject:
    """Limit what has no limit, never tighter than the schema's own lower bounds."""
    if "enum" in node or "const" in node:
        return node
    declared = node.get("type")
    types = {declared} if isinstance(declared, str) else {item for item in as_list(declared) if isinstance(item, str)}
    added: JsonObject = {}
    if "string" in types and node.keys().isdisjoint({"maxLength", "pattern", "format"}):
        added["maxLength"] = max(_LONGEST_STRING, _whole(node.get("minLength")))
    if "array" in types and "maxItems" not in node:
        added["maxItems"] = max(_MOST_ITEMS, _whole(node.get("minItems")))
    if "integer" in types:
        low, high = node.get("minimum", node.get("exclusiveMinimum")), node.get("maximum", node.get("exclusiveMaximum"))
        if low is None:
            added["minimum"] = min(-_LARGEST_INTEGER, _whole(high) - 1)
        if high is None:
            added["maximum"] = max(_LARGEST_INTEGER, _whole(low) + 1)
    if "properties" in node and "additionalProperties" not in node and "patternProperties" not in node:
        added["additionalProperties"] = False
    return {**node, **added} if added else node


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def read_call(text: str, tools: Sequence[Tool]) -> tuple[str, str] | None:
    """Read an answer that is one call: the offered tool's name and its arguments as text, None if it is no such call.

    Blanks and one code fence around it are tolerated; what is cut off, has other fields or names no offered tool is
    not a call.
    """
    calls = read_calls(text, tools)
    return calls[0] if calls is not None and len(calls) == 1 else None


def read_calls(text: str, tools: Sequence[Tool]) -> tuple[tuple[str, str], ...] | None:
    """Read an answer that is one call or a list of calls; None if any of it is not a call."""
    answer = _object_in(text)
    if answer is None:
        return None
    written: list[Any] = [answer]
    if answer.keys() == {"call"}:
        written = [answer["call"]]
    elif answer.keys() == {"calls"}:
        written = as_list(answer["calls"])
    offered = Offered(tools)
    calls = tuple(_read_one(as_object(item), offered) for item in written)
    found = tuple(call for call in calls if call is not None)
    return found if found and len(found) == len(calls) else None


def _object_in(text: str) -> JsonObject | None:
    """Return the JSON object that an answer is, with blanks and one code fence around it or not."""
    bare = text.strip()
    fenced = _FENCED.match(bare)
    try:
        return as_object(read_json(fenced.group(1) if fenced is not None else bare))
    except Unreadable:
        return None


def _read_one(call: JsonObject | None, offered: Offered) -> tuple[str, str] | None:
    if call is None or call.keys() != _CALL_KEYS or not isinstance(call["name"], str):
        return None
    name = offered.resolve(call["name"])
    arguments = as_object(call["arguments"])
    if name is None or arguments is None:
        return None
    tool = offered.tool(name)
    if tool is not None and tool.kind is CallKind.CUSTOM:
        text = arguments.get("input")
        return (name, text) if isinstance(text, str) and len(arguments) == 1 else None
    return name, write_json(arguments)


def named_in_call(text: str) -> str | None:
    """Return the name of the tool that an answer calls which is one call and nothing else, whoever offers it."""
    answer = _object_in(text)
    if answer is None or len(answer) != len(_CALL_KEYS) or not isinstance(answer.get("name"), str):
        return None
    arguments = answer.get("arguments", answer.get("parameters"))
    return answer["name"] if as_object(arguments) is not None else None


def answer_problems(schema: JsonObject | None, checker: Checker | None, text: str) -> tuple[Problem, ...]:
    """Return what is wrong with a structured answer, by its compiled schema; without a schema it must be an object."""
    try:
        value = read_json(text)
    except Unreadable as unreadable:
        return (unreadable.problem,)
    if schema is None:
        return () if isinstance(value, dict) else (Problem("", "a JSON object"),)
    if checker is None or fits(checker, value):
        return ()
    return checker.problems(value) or (Problem("", "an answer that fits the schema"),)
