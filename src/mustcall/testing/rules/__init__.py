"""The providers' own rules about requests, each a small pure function, one table per wire.

`find_violation` runs a wire's table in order; the first rule that objects gives the answer the provider would give.
A rule sees the request and what this upstream has issued, and nothing else.
"""

from collections.abc import Collection

from mustcall.core.origin import Wire
from mustcall.testing.rules import chat, messages, responses
from mustcall.testing.rules.rule import Rule, SeenRequest
from mustcall.testing.script import Fail

__all__ = ["RULES", "Rule", "SeenRequest", "find_violation"]

RULES: dict[Wire, tuple[Rule, ...]] = {
    Wire.CHAT: chat.RULES,
    Wire.RESPONSES: responses.RULES,
    Wire.MESSAGES: messages.RULES,
}


def find_violation(wire: Wire, ask: SeenRequest, waived: Collection[str] = ()) -> tuple[str, Fail] | None:
    """Return the name of the first rule the request breaks and the provider's answer, or None."""
    for rule in RULES[wire]:
        if rule.__name__ not in waived and (fail := rule(ask)) is not None:
            return rule.__name__, fail
    return None
