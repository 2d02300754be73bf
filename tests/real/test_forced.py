"""Demanded calls from a real model on a server that enforces no choice: every wire, streamed and whole.

The 135M has a chat template without tools, so the server drops them without a word, whatever the choice says.
"""

from mustcall.testing import RunningGateway
from support.covering import pairwise
from support.real import CEILING, WIRES, check_calls, turn
from support.relaying import Relay
from support.sdk import Seen


@pairwise({"wire": WIRES, "choice": ("required", "get_weather", "set_timer"), "stream": (False, True)})
def test_forced(gateway: RunningGateway, relay: Relay, wire: str, choice: str, stream: bool) -> None:
    """Rules 137, 138, 140: a demanded call is made, whatever the server enforces and whatever is asked."""
    relay.take()
    seen = turn(gateway, wire, "What is the weather in Oslo?", choice, stream=stream)
    asked = relay.take()
    assert isinstance(seen, Seen), (seen, [(one.status, bytes(one.answer[-300:])) for one in asked])
    assert seen.calls, seen
    check_calls(seen)
    if choice != "required":
        assert {name for _, name, _ in seen.calls} == {choice}
    assert 1 <= len(asked) <= CEILING


def test_forced_turns_learn(relay: Relay) -> None:
    """Rule 139: what the first forced turn found out is used by the next ones; they cost one upstream request each."""
    with RunningGateway(f"chat={relay.base_url}") as fresh:
        counts: list[int] = []
        for _ in range(4):
            relay.take()
            seen = turn(fresh, "chat", "What is the weather in Oslo?", "required", stream=False)
            assert isinstance(seen, Seen), seen
            check_calls(seen)
            counts.append(len(relay.take()))
    assert counts[0] <= CEILING
    assert counts[1:] == [1, 1, 1]
