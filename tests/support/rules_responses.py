"""Every strict rule of Responses, on requests it lets through and on requests it refuses, as the table says."""

from typing import Any

from mustcall.core.origin import Wire
from mustcall.testing.issued import IssuedMemory

Body = dict[str, Any]

WIRE = Wire.RESPONSES
KEYS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
ISSUED = IssuedMemory(encrypted={"ZW5j"}, stored={"resp_1": frozenset({"call_1"})}, led_to={"fc_1": "rs_1"})
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
R_CALL: Body = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
R_OUTPUT: Body = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
R_REASON: Body = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ZW5j"}


def r_tool(name: str = "f", **more: Any) -> Body:
    """Return a Responses tool."""
    return {"type": "function", "name": name, "parameters": OBJECT} | more


def responses(*items: Body, **more: Any) -> Body:
    """Return a Responses request."""
    return {"model": "m", "input": list(items) or "hi"} | more


# rule, requests that pass, requests that the rule refuses
TABLE: list[tuple[str, list[Body], list[Body]]] = [
    ("needs_model", [responses()], [{"input": "hi"}]),
    (
        "knows_items",
        [responses({"role": "user", "content": "a"}, {"type": "item_reference", "id": "msg_1"})],
        [responses({"role": "tool", "content": "a"}), responses({"type": 5}), responses({"content": "a"})],
    ),
    ("needs_input", [responses()], [{"model": "m"}]),
    (
        "limits_tools",
        [responses(tools=[r_tool(f"f{k}") for k in range(128)])],
        [responses(tools=[r_tool(f"f{k}") for k in range(129)])],
    ),
    (
        "needs_tools_for_choice",
        [responses(tools=[r_tool()], tool_choice="required"), responses(tools=[], tool_choice="auto")],
        [responses(tool_choice="required"), responses(tool_choice={"type": "function", "name": "f"})],
    ),
    (
        "limits_names",
        [responses(tools=[r_tool("a-B_9"), {"type": "web_search"}])],
        [
            responses(tools=[r_tool("a.b")]),
            responses(tools=[r_tool("n" * 65)]),
            responses(tools=[{"type": "namespace", "name": "ns", "tools": [r_tool("a b")]}]),
            responses(R_CALL | {"name": "a b"}, R_OUTPUT),
        ],
    ),
    (
        "knows_choice",
        [
            responses(tools=[r_tool()], tool_choice={"type": "function", "name": "f"}),
            responses(tools=[{"type": "web_search"}], tool_choice={"type": "web_search"}),
        ],
        [responses(tools=[r_tool()], tool_choice={"type": "function", "name": "g"})],
    ),
    (
        "keeps_strict_schemas",
        [responses(tools=[r_tool(strict=True, parameters=CLOSED)]), responses(tools=[r_tool(parameters=OPEN)])],
        [responses(tools=[r_tool(strict=True, parameters=schema)]) for schema in (OPEN, OPTIONAL, NESTED)],
    ),
    (
        "limits_call_ids",
        [responses(R_CALL | {"call_id": "c" * 64}, R_OUTPUT | {"call_id": "c" * 64})],
        [
            responses(R_CALL | {"call_id": "c" * 65}, R_OUTPUT | {"call_id": "c" * 65}),
            responses(R_CALL | {"call_id": ""}, R_OUTPUT | {"call_id": ""}),
        ],
    ),
    (
        "knows_previous_response",
        [responses(R_OUTPUT | {"call_id": "call_1"}, previous_response_id="resp_1")],
        [responses(previous_response_id="resp_2")],
    ),
    (
        "knows_encrypted_reasoning",
        [responses(R_REASON, R_CALL, R_OUTPUT), responses(R_REASON | {"encrypted_content": None}, R_CALL, R_OUTPUT)],
        [responses(R_REASON | {"encrypted_content": "ZW5k"}, R_CALL, R_OUTPUT)],
    ),
    (
        "keeps_reasoning",
        [responses(R_REASON, R_CALL | {"id": "fc_1"}, R_OUTPUT), responses(R_CALL | {"id": "fc_2"}, R_OUTPUT)],
        [responses(R_CALL | {"id": "fc_1"}, R_OUTPUT)],
    ),
    (
        "follows_reasoning",
        [responses(R_REASON, {"role": "assistant", "content": "a"}), responses(R_REASON, R_REASON, R_CALL, R_OUTPUT)],
        [responses({"role": "user", "content": "a"}, R_REASON), responses(R_REASON, {"role": "user", "content": "a"})],
    ),
    (
        "pairs_outputs",
        [responses(R_CALL, R_OUTPUT)],
        [
            responses(R_OUTPUT),
            responses(R_OUTPUT, R_CALL),
            responses(R_CALL, R_OUTPUT | {"type": "custom_tool_call_output"}),
        ],
    ),
    (
        "answers_every_call",
        [responses(R_CALL, R_OUTPUT)],
        [responses(R_CALL), responses({"role": "user", "content": "a"}, previous_response_id="resp_1")],
    ),
]
