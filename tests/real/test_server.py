"""What llama.cpp's server does with tools, choices and schemas: the facts that the ladder for unknown servers rests on.

Observed on the server of the `local` extra with a model whose chat template has no tools; none of them depends on the
weights. A test that fails here means that the server has changed, not that mustcall is wrong.
"""

import json
from typing import Any

import jsonschema_rs
import pytest

from mustcall.testing import LlamaServer
from support.http import Response, call
from support.real import PATIENCE, TOOLS

OFFERED = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in TOOLS]
CALL: dict[str, Any] = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"name": {"const": name}, "arguments": schema},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for name, schema in TOOLS
    ]
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "call", "schema": CALL}}


def ask(server: LlamaServer, path: str = "/v1/chat/completions", **fields: Any) -> Response:
    """Post a question with these fields."""
    body: dict[str, Any] = {"model": server.model, "temperature": 0, "max_tokens": 1024}
    body["messages"] = [{"role": "user", "content": "What is the weather in Oslo?"}]
    return call("POST", f"{server.url}{path}", json.dumps(body | fields).encode(), timeout=PATIENCE)


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "set_timer"}}])
def test_tools_are_dropped(server: LlamaServer, choice: Any) -> None:
    """A template without tools: they are not in the prompt, and no choice is enforced or refused."""
    plain = ask(server, max_tokens=8).json
    offered = ask(server, max_tokens=8, tools=OFFERED, tool_choice=choice).json
    assert offered["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]
    assert offered["choices"][0]["message"].get("tool_calls") is None
    assert offered["choices"][0]["message"]["content"] == plain["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": FORMAT},
        {"response_format": FORMAT, "tools": OFFERED, "tool_choice": "auto"},
        {"response_format": FORMAT, "tools": OFFERED, "tool_choice": "required"},
        {"response_format": {"type": "json_object", "schema": CALL}},
        {"json_schema": CALL},
        {"json_schema": CALL, "tools": OFFERED},
    ],
    ids=["format", "format-tools", "format-required", "object-schema", "field", "field-tools"],
)
def test_schema_is_enforced(server: LlamaServer, fields: dict[str, Any]) -> None:
    """Rule 140: a schema constrains the answer, with and without tools beside it."""
    answer = ask(server, **fields).json
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert jsonschema_rs.is_valid(CALL, json.loads(answer["choices"][0]["message"]["content"]))


def test_grammar(server: LlamaServer) -> None:
    """Rule 140: a grammar constrains the answer, and is refused with 400 beside tools."""
    grammar = 'root ::= "yes" | "no"'
    assert ask(server, grammar=grammar).json["choices"][0]["message"]["content"] in ("yes", "no")
    refused = ask(server, grammar=grammar, tools=OFFERED)
    assert (refused.status, refused.json["error"]["message"]) == (
        400,
        "Cannot use custom grammar constraints with tools.",
    )


def test_wires(server: LlamaServer) -> None:
    """Messages and Responses are served beside Chat Completions."""
    message = ask(server, "/v1/messages", max_tokens=8)
    response = call(
        "POST",
        f"{server.url}/v1/responses",
        json.dumps({"model": server.model, "input": "Hi.", "max_output_tokens": 8}).encode(),
        timeout=PATIENCE,
    )
    assert (message.json["type"], response.json["object"]) == ("message", "response")
