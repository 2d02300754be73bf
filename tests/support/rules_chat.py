"""Every strict rule of Chat Completions, on requests it lets through and on requests it refuses, as the table says."""

from typing import Any

from mustcall.core.origin import Wire
from mustcall.testing.issued import IssuedMemory

Body = dict[str, Any]

WIRE = Wire.CHAT
KEYS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
ISSUED = IssuedMemory()
HALF: Body = {"model": "m", "max_tokens": 1, "tool_choice": 5, "thinking": [], "system": 1}
JUNK: list[Body] = [
    {},
    {"messages": 1, "input": 2, "tools": 3},
    {"messages": [1, {}], "input": [1, {}], "tools": [1, {}]},
]
OBJECT: Body = {"type": "object", "properties": {}}
OPEN: Body = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
CLOSED: Body = OPEN | {"additionalProperties": False}
OPTIONAL: Body = CLOSED | {"required": []}
NESTED: Body = {
    "type": "object",
    "properties": {"l": {"type": "array", "items": OPEN}},
    "required": ["l"],
    "additionalProperties": False,
}
C_USER: Body = {"role": "user", "content": "hi"}
C_CALL: Body = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
C_RESULT: Body = {"role": "tool", "tool_call_id": "c1", "content": "ok"}


def c_tool(name: str = "f", **more: Any) -> Body:
    """Return a chat tool."""
    return {"type": "function", "function": {"name": name, "parameters": OBJECT} | more}


def chat(*messages: Body, **more: Any) -> Body:
    """Return a chat request."""
    return {"model": "m", "messages": list(messages or [C_USER])} | more


# rule, requests that pass, requests that the rule refuses
TABLE: list[tuple[str, list[Body], list[Body]]] = [
    ("needs_model", [chat()], [{"messages": [C_USER]}]),
    ("needs_messages", [chat()], [{"model": "m"}, {"model": "m", "messages": []}]),
    (
        "knows_roles",
        [chat({"role": "developer", "content": "x"})],
        [chat({"role": "robot", "content": "x"})],
    ),
    ("needs_content", [chat(C_CALL, C_RESULT)], [chat({"role": "user", "content": None})]),
    (
        "limits_tools",
        [chat(tools=[c_tool(f"f{k}") for k in range(128)])],
        [chat(tools=[c_tool(f"f{k}") for k in range(129)]), chat(tools=[])],
    ),
    (
        "needs_tools_for_choice",
        [chat(tools=[c_tool()], tool_choice="required")],
        [chat(tool_choice="auto")],
    ),
    (
        "needs_tools_for_parallel",
        [chat(tools=[c_tool()], parallel_tool_calls=False)],
        [chat(parallel_tool_calls=False)],
    ),
    (
        "limits_names",
        [chat(tools=[c_tool("a-B_9")]), chat(tools=[{"type": "custom", "custom": {"name": "patch"}}])],
        [
            chat(tools=[c_tool("a.b")]),
            chat(tools=[c_tool("n" * 65)]),
            chat(tools=[c_tool("")]),
            chat(C_CALL | {"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "a b"}}]}, C_RESULT),
        ],
    ),
    (
        "knows_choice",
        [
            chat(tools=[c_tool()], tool_choice={"type": "function", "function": {"name": "f"}}),
            chat(tools=[c_tool()], tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}),
        ],
        [
            chat(tools=[c_tool()], tool_choice={"type": "function", "function": {"name": "g"}}),
            chat(tools=[c_tool()], tool_choice="any"),
        ],
    ),
    (
        "keeps_strict_schemas",
        [chat(tools=[c_tool(strict=True, parameters=CLOSED)]), chat(tools=[c_tool(parameters=OPEN)])],
        [chat(tools=[c_tool(strict=True, parameters=schema)]) for schema in (OPEN, OPTIONAL, NESTED)],
    ),
    (
        "pairs_tool_messages",
        [chat(C_USER, C_CALL, C_RESULT, C_USER)],
        [
            chat(C_USER, C_RESULT),
            chat(C_USER, C_CALL, C_USER, C_RESULT),
            chat(C_USER, C_CALL, C_RESULT, C_RESULT | {"tool_call_id": "c2"}),
        ],
    ),
    (
        "answers_every_call",
        [chat(C_USER, C_CALL, C_RESULT)],
        [chat(C_USER, C_CALL), chat(C_USER, C_CALL, C_USER)],
    ),
]
