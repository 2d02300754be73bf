"""Stop sequences that the upstream ignores or has no word for are enforced here, on every pair of wires."""

from collections.abc import Generator
from typing import Any

import pytest

from mustcall.testing import Call, Say, Turn
from rules.driving import Stage, request
from support.agents import WIRES
from support.forcing import User

_FIELD = {"chat": "stop", "messages": "stop_sequences"}
_FINISH = {"chat": "stop", "messages": "stop_sequence"}
_GRID = [(caller, upstream, stream) for caller in _FIELD for upstream in WIRES for stream in (False, True)]


@pytest.fixture(scope="module")
def stage() -> Generator[Stage]:
    """The gateways of this module."""
    with Stage(compares=True) as made:
        yield made


def counting(wire: str, *stops: str, **fields: Any) -> dict[str, Any]:
    """A request with stop sequences."""
    named: dict[str, Any] = {"tools": (), _FIELD[wire]: list(stops), **fields}
    return request(wire, User("Count."), **named)


@pytest.mark.parametrize(("caller", "upstream", "stream"), _GRID)
def test_the_text_ends_before_the_stop_sequence(stage: Stage, caller: str, upstream: str, *, stream: bool) -> None:
    """One upstream call; nothing of the sequence or behind it goes out, however the bytes arrive; the finish fits."""
    body = counting(caller, "1 3", "never", stream=stream)
    for chunking in (None, 1, 2, 3, 5, 17):
        got = stage.play(Turn(Say("10 11 12 1 3 and more"), finish="length"), chunking=chunking).ask(
            caller, body, upstream
        )
        assert (got.text, len(stage.bodies)) == ("10 11 12 ", 1)
        assert got.finish == _FINISH[caller]
        assert b"more" not in got.raw
        if not stream:
            assert "text_dropped" in str(got.adaptations)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", list(_FIELD))
def test_a_healthy_reply_is_forwarded_as_it_came(stage: Stage, wire: str, *, stream: bool) -> None:
    """An upstream that stops by itself: its bytes, also where the text ends like a stop sequence begins."""
    body = counting(wire, "1 3", stream=stream)
    bare = stage.play(Turn(Say("10 11 12 1 "))).ask(wire, counting(wire, "no such", stream=stream))
    got = stage.play(Turn(Say("10 11 12 1 "))).ask(wire, body)
    assert (got.text, got.adaptations) == ("10 11 12 1 ", [])
    assert len(got.raw) == len(bare.raw)
    assert [one.body for one in stage.sent] == [body]


@pytest.mark.parametrize("wire", list(_FIELD))
def test_calls_are_kept(stage: Stage, wire: str) -> None:
    """Where tools are on offer, text may be part of a call: it stays as it came."""
    named: dict[str, Any] = {_FIELD[wire]: ["\n\n"]}
    body = request(wire, User("Count."), **named)
    turn = Turn(Say("Let me see.\n\nIt is"), Call("get_weather", {"city": "Paris"}))
    got = stage.play(turn).ask(wire, body)
    assert (got.text, len(got.calls), len(stage.bodies)) == ("Let me see.\n\nIt is", 1, 1)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", list(_FIELD))
@pytest.mark.parametrize(
    ("stop", "said", "text"),
    [
        ("\n", "\nHello", "\nHello"),
        ("\n", "\nHello\nWorld", "\nHello"),
        ("\n\n", "<think>a\n\nb</think>answer here", "<think>a\n\nb</think>answer here"),
    ],
    ids=["begins with the stop", "and has it later", "begins with a tag"],
)
def test_what_is_left_as_it_came(stage: Stage, wire: str, stop: str, said: str, text: str, *, stream: bool) -> None:
    """An answer that would be empty is not cut, and neither is reasoning in the text: one upstream call."""
    got = stage.play(Turn(Say(said))).ask(wire, counting(wire, stop, stream=stream))
    assert (got.text, len(stage.bodies)) == (text, 1)
