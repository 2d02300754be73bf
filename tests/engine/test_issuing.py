"""Who issued a state that its wire carries without a name: kept by digest, bounded, and never guessed."""

import msgspec
import pytest

from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.parts import OpaqueState, Reasoning, Text
from mustcall.core.reply import FinishReason, Reply
from mustcall.core.request import Request
from mustcall.engine.replies.issuing import IssuedStates

STATES = {
    "thinking": OpaqueState(Wire.MESSAGES, {"type": "thinking", "thinking": "hm", "signature": "s1"}),
    "redacted": OpaqueState(Wire.MESSAGES, {"type": "redacted_thinking", "data": "d1"}),
    "encrypted": OpaqueState(Wire.RESPONSES, "e1"),
}
#: Nothing in it that only its issuer can have written.
PLAIN = OpaqueState(Wire.CHAT, {"field": "reasoning_content"})


def reply(*states: OpaqueState) -> Reply:
    """A reply that thinks."""
    parts = tuple(Reasoning(text="hm", state=state) for state in states)
    return Reply(id="r", model="m", parts=(*parts, Text(text="Hi")), finish=FinishReason.STOP)


def asked(*states: OpaqueState) -> Request:
    """A request that hands the thoughts back."""
    parts = tuple(Reasoning(text="hm", state=state) for state in states)
    return Request(model="m", messages=(Message(role=Role.ASSISTANT, parts=parts),))


def issuers(request: Request) -> list[str]:
    """Who is said to have issued each state."""
    return [part.state.issuer for part in request.messages[0].parts if isinstance(part, Reasoning) and part.state]


@pytest.mark.parametrize("kind", STATES)
def test_another_issuers_state_is_marked(kind: str) -> None:
    """Rule 124: state is known again by what only its issuer can write, and marked only for another upstream."""
    issued, request = IssuedStates(), asked(STATES[kind])
    assert issued.marked(request, "two/m") is request
    issued.note(reply(STATES[kind]), "one/m")
    assert issued.marked(request, "one/m") is request
    assert issuers(issued.marked(request, "two/m")) == ["one/m"]
    assert issuers(issued.marked(request, "one/n")) == ["one/m"]


def test_state_that_anybody_can_write_is_not_kept() -> None:
    """Rule 124: plain reasoning text has no issuer to be told by."""
    issued = IssuedStates()
    issued.note(reply(PLAIN), "one/m")
    assert len(issued) == 0


def test_state_that_is_marked_stays_as_it_is() -> None:
    """Rule 124: a seal that names its issuer is believed."""
    issued = IssuedStates()
    issued.note(reply(*STATES.values()), "one/m")
    request = asked(msgspec.structs.replace(STATES["thinking"], issuer="three/m"))
    assert issued.marked(request, "two/m") is request


def test_the_oldest_are_forgotten_first() -> None:
    """Rule 124: the memory is bounded; what is seen again is new again."""
    issued = IssuedStates(most=2)
    for state in (STATES["thinking"], STATES["redacted"], STATES["thinking"], STATES["encrypted"]):
        issued.note(reply(state), "one/m")
    assert len(issued) == 2
    assert issuers(issued.marked(asked(*STATES.values()), "two/m")) == ["one/m", "", "one/m"]
