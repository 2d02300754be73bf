"""Every strict rule of Messages, on requests it lets through and on requests it refuses, as the table says."""

from typing import Any

from mustcall.core.origin import Wire
from mustcall.testing.issued import IssuedMemory

Body = dict[str, Any]

WIRE = Wire.MESSAGES
KEYS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
ISSUED = IssuedMemory(thoughts={"c2ln": "Hm."}, redacted={"b3Bh"})
HALF: Body = {"model": "m", "max_tokens": 1, "tool_choice": 5, "thinking": [], "system": 1}
JUNK: list[Body] = [
    {},
    {"messages": 1, "input": 2, "tools": 3},
    {"messages": [1, {}], "input": [1, {}], "tools": [1, {}]},
]
OBJECT: Body = {"type": "object", "properties": {}}
LONG = "n" * 129
M_USER: Body = {"role": "user", "content": "hi"}
M_CALL: Body = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]}
M_RESULT: Body = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]}
M_TOOL: Body = {"name": "f", "input_schema": OBJECT}


def messages(*turns: Body, **more: Any) -> Body:
    """Return a Messages request; one with tool blocks offers a tool."""
    return {"model": "m", "max_tokens": 4096, "messages": list(turns or [M_USER]), "tools": [M_TOOL]} | more


def m_call(**more: Any) -> Body:
    """Return an assistant turn with one changed call."""
    return {"role": "assistant", "content": [M_CALL["content"][0] | more]}


def m_result(**more: Any) -> Body:
    """Return a user turn with one changed result."""
    return {"role": "user", "content": [M_RESULT["content"][0] | more]}


def m_thought(**block: Any) -> Body:
    """Return an assistant turn that starts with a thinking block."""
    return {"role": "assistant", "content": [{"type": "thinking"} | block, *M_CALL["content"]]}


FORCED = {"tool_choice": {"type": "tool", "name": "f"}}
THINKS = {"thinking": {"type": "enabled", "budget_tokens": 2048}}

# rule, requests that pass, requests that the rule refuses
TABLE: list[tuple[str, list[Body], list[Body]]] = [
    ("needs_model", [messages()], [{"max_tokens": 1, "messages": [M_USER]}]),
    (
        "needs_max_tokens",
        [messages()],
        [messages(max_tokens=None), messages(max_tokens="9"), messages(max_tokens=0)],
    ),
    ("has_no_thread", [messages(thread=None)], [messages(thread={"type": "create"})]),
    (
        "limits_budget",
        [messages(**THINKS), messages(thinking={"type": "adaptive"})],
        [
            messages(thinking={"type": "enabled", "budget_tokens": 4096}),
            messages(thinking={"type": "enabled", "budget_tokens": 9}),
            messages(thinking={"type": "enabled"}),
        ],
    ),
    (
        "needs_tools_for_choice",
        [messages(tool_choice={"type": "any"})],
        [messages(tool_choice={"type": "any"}, tools=[]), messages(tool_choice={"type": "auto"}, tools=None)],
    ),
    (
        "never_forces_thinking",
        [messages(**FORCED), messages(**THINKS), messages(**THINKS, tool_choice={"type": "auto"})],
        [messages(**THINKS, **FORCED), messages(**THINKS, tool_choice={"type": "any"})],
    ),
    (
        "needs_schemas",
        [messages(), messages(tools=[M_TOOL, {"type": "web_search_20250305", "name": "web_search"}])],
        [messages(tools=[{"name": "f"}]), messages(tools=[{"name": "f", "input_schema": {"type": "string"}}])],
    ),
    (
        "limits_names",
        [messages(tools=[M_TOOL | {"name": "n" * 128}])],
        [
            messages(tools=[M_TOOL | {"name": LONG}]),
            messages(tools=[M_TOOL | {"name": "a.b"}]),
            messages(M_USER, m_call(name="functions.f"), M_RESULT),
        ],
    ),
    (
        "offers_each_name_once",
        [messages(tools=[M_TOOL, M_TOOL | {"name": "g"}])],
        [messages(tools=[M_TOOL, M_TOOL])],
    ),
    (
        "knows_choice",
        [messages(**FORCED), messages(tool_choice={"type": "none"})],
        [messages(tool_choice={"type": "tool", "name": "g"}), messages(tool_choice={"type": "required"})],
    ),
    ("needs_messages", [messages()], [messages(messages=[]), messages(messages=None)]),
    (
        "knows_roles",
        [messages(M_USER, {"role": "system", "content": "x"}, M_USER)],
        [messages({"role": "tool", "content": "x"})],
    ),
    (
        "has_no_empty_text",
        [messages(M_USER, system=[{"type": "text", "text": "x"}])],
        [
            messages({"role": "user", "content": ""}),
            messages({"role": "user", "content": [{"type": "text", "text": " "}]}),
            messages(M_USER, system=[{"type": "text", "text": ""}]),
        ],
    ),
    (
        "needs_tools_for_history",
        [messages(M_USER, M_CALL, M_RESULT), messages(M_USER, tools=None)],
        [messages(M_USER, M_CALL, M_RESULT, tools=None)],
    ),
    (
        "limits_ids",
        [messages(M_USER, M_CALL, M_RESULT)],
        [
            messages(M_USER, m_call(id="functions.f:0"), m_result(tool_use_id="functions.f:0")),
            messages(M_USER, M_CALL, m_result(tool_use_id="")),
        ],
    ),
    (
        "uses_each_id_once",
        [messages(M_USER, M_CALL, M_RESULT, m_call(id="t2"), m_result(tool_use_id="t2"))],
        [messages(M_USER, M_CALL, M_RESULT, M_CALL, M_RESULT)],
    ),
    (
        "answers_every_call",
        [
            messages(M_USER, M_CALL, M_RESULT),
            messages(M_USER, M_CALL, {"role": "system", "content": "x"}, M_RESULT, M_USER),
        ],
        [messages(M_USER, M_CALL), messages(M_USER, M_CALL, M_USER)],
    ),
    (
        "pairs_results",
        [messages(M_USER, M_CALL, M_RESULT)],
        [
            messages(M_RESULT),
            messages(M_USER, M_CALL, M_RESULT, {"role": "assistant", "content": "so"}, M_RESULT),
            messages(
                M_USER,
                M_CALL,
                {"role": "user", "content": [*M_RESULT["content"], *m_result(tool_use_id="t9")["content"]]},
            ),
        ],
    ),
    (
        "puts_results_first",
        [messages(M_USER, M_CALL, {"role": "user", "content": [*M_RESULT["content"], {"type": "text", "text": "x"}]})],
        [messages(M_USER, M_CALL, {"role": "user", "content": [{"type": "text", "text": "x"}, *M_RESULT["content"]]})],
    ),
    (
        "keeps_thinking",
        [
            messages(M_USER, m_thought(thinking="Hm.", signature="c2ln"), M_RESULT),
            messages(M_USER, m_thought(type="redacted_thinking", data="b3Bh"), M_RESULT),
        ],
        [
            messages(M_USER, m_thought(thinking="Hm!", signature="c2ln"), M_RESULT),
            messages(M_USER, m_thought(thinking="Hm.", signature="other"), M_RESULT),
            messages(M_USER, m_thought(type="redacted_thinking", data="other"), M_RESULT),
        ],
    ),
    (
        "ends_with_user",
        [messages(M_USER, {"role": "assistant", "content": "so"}, M_USER)],
        [messages(M_USER, {"role": "assistant", "content": "so"})],
    ),
]
