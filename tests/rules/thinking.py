"""A model that thinks and is forced: what it says, and the bodies of its attempts, for the tests of rules 20 to 33.

The upstream speaks Messages; the caller may speak any wire. Bodies are written by hand from the public API.
"""

from typing import Any

from mustcall.policy.facts.wording import Wording
from mustcall.testing import Call, Say, Think, Turn
from support.forcing import Got, choice_on, expect_body, join_users, write_body

__all__ = [
    "ANY",
    "ASK",
    "AS_JSON",
    "CALL",
    "CLAUDE",
    "CLOSED",
    "MET",
    "NAMED",
    "OTHER",
    "PARIS",
    "STUBBORN",
    "answered",
    "asked",
    "attempts_of",
    "hard",
    "hard_afresh",
    "soft_body",
    "thought",
]

#: Force and thinking exclude each other, and thinking can be turned off.
CLAUDE = "claude-sonnet-4-6"
#: Can be neither forced nor stopped from thinking; has native schema output.
STUBBORN = "claude-opus-5-5"
ASK = "Weather in Paris?"
PARIS = {"city": "Paris"}
CALL = Turn(Call("get_weather", PARIS))
OTHER = Turn(Think("hm", signature="sig-1"), Call("get_time", {"zone": "CET"}))
MET = (("get_weather", PARIS),)
NAMED = [sentence.format(tool="get_weather") for sentence in Wording().call_named]
ANY = list(Wording().call_any)
AS_JSON = (
    "Answer with one JSON object that calls one of these tools, with its name and arguments:\n"
    "- get_weather: The weather in a city.\n"
    '  arguments: {"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}'
)
#: The schema of the call as an answer of a provider that takes strict schemas.
CLOSED = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "enum": ["get_weather"]},
        "arguments": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "arguments"],
    "additionalProperties": False,
}


def thought(number: int = 1) -> Turn:
    """Return a reply of thinking and text."""
    return Turn(Think("hm", signature=f"sig-{number}"), Say("It is sunny."))


def answered(number: int = 1) -> dict[str, Any]:
    """Return the same reply as it must stand in the next attempt."""
    thinking = {"type": "thinking", "thinking": "hm", "signature": f"sig-{number}"}
    return {"role": "assistant", "content": [thinking, {"type": "text", "text": "It is sunny."}]}


def asked(wire: str, *steps: Any, **settings: Any) -> dict[str, Any]:
    """Return the caller's request: a named tool, thinking on."""
    given: dict[str, Any] = {"model": CLAUDE, "choice": "get_weather", "thinking": True} | settings
    return write_body(wire, *(steps or (ASK,)), **given)


def soft_body(wire: str, *steps: Any, words: str = NAMED[0], **settings: Any) -> dict[str, Any]:
    """Return the first attempt: `auto`, a directive at the tail, thinking as it was."""
    given: dict[str, Any] = {"model": CLAUDE, "thinking": True} | settings | {"choice": "auto"}
    return expect_body(wire, "messages", *(steps or (ASK,)), words, **given)


def hard(soft: dict[str, Any], words: str = NAMED[1], choice: str = "get_weather") -> dict[str, Any]:
    """Return the second attempt: the real choice, thinking off, the first answer kept and followed by a user turn."""
    return soft | {
        "messages": [*soft["messages"], answered(), {"role": "user", "content": words}],
        "tool_choice": choice_on("messages", choice),
        "thinking": {"type": "disabled"},
    }


def hard_afresh(wire: str, *, stream: bool = False) -> dict[str, Any]:
    """Return the second attempt after a reply that does not stay: the two directives are neighbours."""
    soft = soft_body(wire, stream=stream)
    words = [{"type": "text", "text": text} for text in NAMED[:2]]
    question = {"role": "user", "content": ASK}
    if wire == "messages":
        messages = [question, {"role": "user", "content": words}]
    else:
        messages = join_users([question, {"role": "user", "content": words}])
    return soft | {
        "messages": messages,
        "tool_choice": {"type": "tool", "name": "get_weather"},
        "thinking": {"type": "disabled"},
    }


def attempts_of(got: Got) -> list[tuple[str, str, str]]:
    """Return rung, verdict and remedy of each attempt, as an error tells them."""
    return [(one["rung"], one["verdict"], one["remedy"]) for one in got.error["details"]["attempts"]]
