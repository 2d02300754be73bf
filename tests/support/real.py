"""Turns with a real model: the tools on offer, one way to ask on every wire, and what a valid call is."""

from typing import Any

import jsonschema_rs

from mustcall.testing import RunningGateway
from support.sdk import Ask, Failure, Seen, ask

__all__ = ["CEILING", "PATIENCE", "TOOLS", "WIRES", "check_calls", "turn"]

#: One attempt and four more, of any kind (rule 96).
CEILING = 5
#: No turn depends on speed; this only ends a test that hangs.
PATIENCE = 900.0

#: Every string is bounded, so that a constrained call always fits the token limit.
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 24}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TIMER: dict[str, Any] = {
    "type": "object",
    "properties": {"minutes": {"type": "integer", "minimum": 1, "maximum": 600}},
    "required": ["minutes"],
    "additionalProperties": False,
}
TOOLS = (("get_weather", WEATHER), ("set_timer", TIMER))
SCHEMAS = dict(TOOLS)

WIRES = ("chat", "responses", "messages")


def turn(gateway: RunningGateway, wire: str, user: str, choice: str, *, stream: bool) -> Seen | Failure:
    """Ask with the tools on offer."""
    request = Ask(
        user=user,
        system=None,
        tools=TOOLS,
        model="smollm2-135m",
        choice=choice,
        limit=96,
        temperature=0,
        patience=PATIENCE,
    )
    return ask(wire, gateway.url, request, stream=stream)


def check_calls(seen: Seen) -> None:
    """Assert that every call names an offered tool and fits its schema, under an id of its own."""
    assert seen.finish == "tool_calls"
    assert len({call_id for call_id, _, _ in seen.calls}) == len(seen.calls)
    for _, name, arguments in seen.calls:
        assert jsonschema_rs.is_valid(SCHEMAS[name], arguments), (name, arguments)
