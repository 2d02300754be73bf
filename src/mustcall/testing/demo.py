"""A script that plays the model for `mustcall serve --demo`: it calls a tool, then quotes what the tool said.

It reads the request on any of the three wires, always answers the same way, and says that it is a script. If the
request has a schema for the answer, the answer is a value that fits it.
"""

import json
import re
from typing import Any

from mustcall.core.origin import JsonObject, Wire
from mustcall.testing.offers import OfferedTool, as_object, as_objects, choice_of, find_offer, offers_of, output_schema
from mustcall.testing.placeholder import make_value
from mustcall.testing.recording import Recorded
from mustcall.testing.script import Call, Say, Turn

__all__ = ["demo_turn"]

_PREFIX = "This is mustcall's scripted demo, not a language model."
_LONGEST_QUOTE = 400
_WHOLE_MESSAGE = ("query", "text", "prompt", "message", "input", "question", "content", "task", "description")


def demo_turn(recorded: Recorded) -> Turn:
    """Return the demo's answer to a request."""
    wire = recorded.wire or Wire.CHAT
    body = as_object(recorded.body)
    result, asked = _read_tail(wire, body)
    offer = None if result is not None else _pick_offer(wire, body)
    schema = output_schema(wire, body)
    if offer is None and schema is not None:
        value = make_value(schema, lambda name: _pick_text(name, asked))
        return Turn(Say(json.dumps(value, ensure_ascii=False)))
    if result is not None:
        return Turn(Say(f"{_PREFIX} The tool returned: {_shorten(result)}"))
    if offer is None:
        heard = f' You wrote: "{_shorten(asked)}"' if asked else ""
        return Turn(Say(f"{_PREFIX}{heard} Offer it a tool and it will call it."))
    if offer.custom:
        return Turn(Call(offer.name, asked or "demo"))
    arguments = make_value({"type": "object"} | offer.schema, lambda name: _pick_text(name, asked))
    return Turn(Call(offer.name, as_object(arguments)))


def _pick_offer(wire: Wire, body: JsonObject) -> OfferedTool | None:
    """Return the forced tool, else the first on offer, unless the caller wants none."""
    offers, choice = offers_of(wire, body), choice_of(wire, body)
    if choice.mode == "none" or not offers:
        return None
    return find_offer(offers, choice.name) if choice.name is not None else offers[0]


def _pick_text(name: str, asked: str) -> str:
    """Return words of the user's message for a string parameter of this name."""
    if name.lower() in _WHOLE_MESSAGE:
        return asked or "demo"
    words = re.findall(r"[^\W_][\w'-]*", asked)
    names = [word for word in words[1:] if word[0].isupper() and len(word) > 1]
    long = [word for word in words if len(word) > 3]
    return next(iter(names or long[-1:] or words[-1:]), "demo")


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "…"


def _read_tail(wire: Wire, body: JsonObject) -> tuple[str | None, str]:
    """Return the latest tool result if the request ends with one, and the last user text."""
    items = as_objects(body.get("input" if wire is Wire.RESPONSES else "messages"))
    if isinstance(body.get("input"), str):
        items = [{"role": "user", "content": body["input"]}]
    result: str | None = None
    asked = ""
    for item in items:
        if (found := _result_of(item)) is not None:
            result = found
        elif item.get("role") == "user":
            result, asked = None, _text_of(item.get("content")) or asked
    return result, asked


def _result_of(item: JsonObject) -> str | None:
    if item.get("role") == "tool":
        return _text_of(item.get("content"))
    if item.get("type") in ("function_call_output", "custom_tool_call_output"):
        return _text_of(item.get("output"))
    results = [block for block in as_objects(item.get("content")) if block.get("type") == "tool_result"]
    return "\n".join(_text_of(block.get("content")) for block in results) if results else None


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(block["text"]) for block in as_objects(content) if "text" in block)
