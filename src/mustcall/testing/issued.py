"""What an upstream has given out and will recognise: signed thoughts, encrypted reasoning, stored responses.

Providers sign reasoning and refuse it when it comes back changed; OpenAI also continues responses it has stored.
`remember` notes both from each finished reply; the strict rules ask.
"""

from itertools import pairwise

import msgspec

from mustcall.core.origin import JsonObject, Wire
from mustcall.testing.offers import as_object, as_objects

__all__ = ["CALL_ITEMS", "IssuedMemory", "remember"]

CALL_ITEMS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
"""Each kind of Responses call item and the kind of item that answers it."""


class IssuedMemory(msgspec.Struct):
    """The upstream's memory.

    `thoughts` maps a signature to its text; `stored` a response id to the calls it left open; `led_to` the id of a
    stored item to the id of the reasoning that led to it.
    """

    thoughts: dict[str, str] = {}
    redacted: set[str] = set()
    encrypted: set[str] = set()
    stored: dict[str, frozenset[str]] = {}
    led_to: dict[str, str] = {}


def remember(issued: IssuedMemory, wire: Wire, request: JsonObject, reply: JsonObject) -> None:
    """Note what a reply gives out."""
    if wire is Wire.MESSAGES:
        for block in as_objects(reply.get("content")):
            if block["type"] == "thinking":
                issued.thoughts[str(block["signature"])] = str(block["thinking"])
            elif block["type"] == "redacted_thinking":
                issued.redacted.add(str(block["data"]))
    elif wire is Wire.RESPONSES:
        output = as_objects(reply.get("output"))
        issued.encrypted |= {str(item["encrypted_content"]) for item in output if "encrypted_content" in item}
        if as_object(request).get("store") is not False:
            calls = (item["call_id"] for item in output if item["type"] in CALL_ITEMS)
            issued.stored[str(reply["id"])] = frozenset(map(str, calls))
            for before, item in pairwise(output):
                if before["type"] == "reasoning" and item["type"] != "reasoning":
                    issued.led_to[str(item["id"])] = str(before["id"])
