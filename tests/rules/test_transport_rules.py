"""Rule 111 beside the rules of section C to E in one turn: retries of the transport are counted apart."""

from collections.abc import Iterator
from typing import Any

import pytest

from mustcall.testing import Answer, Call, Fail, Say, Turn
from rules.driving import WAYS, WORDS, Stage, arriving, request
from rules.forms import INVOKE, check_no_trace
from support.forcing import FAILED

BUSY = Fail(529, "Overloaded")
LEAK = Turn(Say(INVOKE), finish="tool_calls")
GOOD = Turn(Call("get_weather", {"city": "Paris"}))
CALLED = (("get_weather", {"city": "Paris"}),)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One upstream behind three gateways: two retries of the transport, two of text calls, four extra calls."""
    with Stage(compares=True) as opened:
        yield opened


ORDERS: dict[str, tuple[Answer, ...]] = {
    "in turns": (BUSY, LEAK, BUSY, LEAK, GOOD),
    "transport first": (BUSY, BUSY, LEAK, LEAK, GOOD),
    "text calls first": (LEAK, LEAK, BUSY, BUSY, GOOD),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_both_limits_can_be_used_up_in_one_turn(stage: Stage, wire: str, stream: bool, order: str) -> None:
    """Rules 47, 96, 111: two retries of each kind fit into one turn, in any order: neither counts for the other."""
    body = request(wire, stream=stream)
    outcome = stage.play(*ORDERS[order]).ask(wire, body)
    reminded = arriving(wire, wire, WORDS.text_call, stream=stream)
    leaks = 0
    expected: list[dict[str, Any]] = []
    for answer in ORDERS[order]:
        expected.append(reminded if leaks == 2 else body)
        leaks += answer is LEAK
    assert stage.bodies == expected
    assert (outcome.error, outcome.text, outcome.calls) == ({}, "", CALLED)
    check_no_trace(outcome.raw)


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_the_transports_own_limit(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 111: after two retries the third failure is the outcome, though a text call could still be retried."""
    body = request(wire, stream=stream)
    outcome = stage.play(BUSY, BUSY, LEAK, BUSY).ask(wire, body)
    assert stage.bodies == [body] * 4
    assert (outcome.status, outcome.calls) == (529, ())


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_the_text_calls_own_limit(stage: Stage, wire: str, stream: bool) -> None:
    """Rules 47, 111: after two retries the third text call is the outcome, though the transport has one retry left."""
    body = request(wire, stream=stream)
    outcome = stage.play(LEAK, BUSY, LEAK, LEAK).ask(wire, body)
    assert stage.bodies == [body, body, body, arriving(wire, wire, WORDS.text_call, stream=stream)]
    assert (outcome.status, outcome.calls) == (FAILED[wire], ())
    assert outcome.message.startswith("TextToolCallError: ")


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_new_request_starts_both_anew(stage: Stage, wire: str, stream: bool) -> None:
    """Rules 47, 111: what one request used up is there again for the next."""
    body = request(wire, stream=stream)
    for _ in range(2):
        outcome = stage.play(BUSY, BUSY, GOOD).ask(wire, body)
        assert stage.bodies == [body] * 3
        assert outcome.calls == CALLED
