"""A scenario as the official SDKs' arguments, one writer for each wire. Nothing of mustcall's codecs is used."""

import json
from typing import Any

from contract.scenario import Scenario, Step

__all__ = ["chat_options", "messages_options", "responses_options"]


def chat_options(scenario: Scenario) -> dict[str, Any]:
    """Arguments of `chat.completions.create`."""
    options: dict[str, Any] = {"model": scenario.asked_model, "messages": _chat_messages(scenario.history)}
    if scenario.tools:
        options["tools"] = [
            {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": schema}}
            for name, schema in scenario.tools
        ]
        if not scenario.parallel:
            options["parallel_tool_calls"] = False
    if scenario.choice is not None:
        named = {"type": "function", "function": {"name": scenario.choice.name}}
        options["tool_choice"] = named if scenario.choice.mode == "named" else scenario.choice.mode
    if scenario.thinking:
        options["reasoning_effort"] = scenario.thinking
    if scenario.schema:
        inner = {"name": "answer", "schema": scenario.schema, "strict": True}
        options["response_format"] = {"type": "json_schema", "json_schema": inner}
    if scenario.stream:
        options |= {"stream": True, "stream_options": {"include_usage": True}}
    return options


def _chat_messages(history: tuple[Step, ...]) -> list[Any]:
    messages: list[Any] = [{"role": "system", "content": "Be brief."}]
    for step in history:
        match step.kind:
            case "call":
                function = {"name": step.name, "arguments": json.dumps(step.arguments)}
                call = {"id": step.id, "type": "function", "function": function}
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            case "result":
                messages.append({"role": "tool", "tool_call_id": step.id, "content": step.text})
            case role:
                messages.append({"role": role, "content": step.text})
    return messages


def responses_options(scenario: Scenario) -> dict[str, Any]:
    """Arguments of `responses.create`."""
    options: dict[str, Any] = {
        "model": scenario.asked_model,
        "input": _responses_items(scenario.history),
        "instructions": "Be brief.",
        "store": False,
    }
    if scenario.tools:
        options["tools"] = [
            {"type": "function", "name": name, "description": f"Does {name}.", "parameters": schema, "strict": False}
            for name, schema in scenario.tools
        ]
        if not scenario.parallel:
            options["parallel_tool_calls"] = False
    if scenario.choice is not None:
        named = {"type": "function", "name": scenario.choice.name}
        options["tool_choice"] = named if scenario.choice.mode == "named" else scenario.choice.mode
    if scenario.thinking:
        options["reasoning"] = {"effort": scenario.thinking}
    if scenario.schema:
        inner = {"type": "json_schema", "name": "answer", "schema": scenario.schema, "strict": True}
        options["text"] = {"format": inner}
    return options


def _responses_items(history: tuple[Step, ...]) -> list[Any]:
    items: list[Any] = []
    for step in history:
        match step.kind:
            case "call":
                items.append({"type": "function_call", "call_id": step.id, "name": step.name})
                items[-1]["arguments"] = json.dumps(step.arguments)
            case "result":
                items.append({"type": "function_call_output", "call_id": step.id, "output": step.text})
            case role:
                items.append({"role": role, "content": step.text})
    return items


def messages_options(scenario: Scenario) -> dict[str, Any]:
    """Arguments of `messages.create`."""
    options: dict[str, Any] = {
        "model": scenario.asked_model,
        "max_tokens": 4096,
        "system": "Be brief.",
        "messages": _messages_turns(scenario.history),
    }
    if scenario.tools:
        options["tools"] = [
            {"name": name, "description": f"Does {name}.", "input_schema": schema} for name, schema in scenario.tools
        ]
    choice = _messages_choice(scenario)
    if choice:
        options["tool_choice"] = choice
    if scenario.thinking:
        budget = {"low": 1024, "high": 3000}[scenario.thinking]
        options["thinking"] = {"type": "enabled", "budget_tokens": budget}
    if scenario.schema:
        options["output_config"] = {"format": {"type": "json_schema", "schema": scenario.schema}}
    return options


def _messages_choice(scenario: Scenario) -> dict[str, Any] | None:
    choice: dict[str, Any] | None = None
    if scenario.choice is not None:
        word = {"required": "any", "named": "tool"}.get(scenario.choice.mode, scenario.choice.mode)
        choice = {"type": word}
        if scenario.choice.mode == "named":
            choice["name"] = scenario.choice.name
    if not scenario.parallel and scenario.tools and (choice is None or choice["type"] != "none"):
        choice = (choice or {"type": "auto"}) | {"disable_parallel_tool_use": True}
    return choice


def _messages_turns(history: tuple[Step, ...]) -> list[Any]:
    messages: list[Any] = []
    for step in history:
        match step.kind:
            case "call":
                block = {"type": "tool_use", "id": step.id, "name": step.name, "input": step.arguments}
                messages.append({"role": "assistant", "content": [block]})
            case "result":
                block = {"type": "tool_result", "tool_use_id": step.id, "content": step.text}
                messages.append({"role": "user", "content": [block]})
            case role:
                messages.append({"role": role, "content": step.text})
    return messages
