"""The helper that sees whether a test of retries compared the body of each call."""

import json
from typing import Any

import pytest

from mustcall.testing import Call, RunningGateway, Say, ScriptedUpstream, Turn
from support.compared import Comparing, check_compared, forget, keep_own_count, leave, watch_upstreams
from support.http import post

ONE, TWO = {"a": 1}, {"a": 2}


def ended(*, calls: int = 2, asked: int = 1) -> Comparing:
    """A script of two calls for one request that has ended."""
    script = Comparing()
    script.end(calls, asked)
    return script


def test_whole_bodies_count() -> None:
    """Rule 118: each body is compared, alone or in a list, on either side of the sign."""
    bodies = ended().bodies([ONE, TWO])
    assert bodies == [ONE, TWO]
    check_compared()
    forget()
    first, second = ended().bodies([ONE, TWO])
    assert first == ONE
    assert TWO == second  # noqa: SIM300  the other way round
    check_compared()


@pytest.mark.parametrize("look", ["none", "count", "key", "substring", "one", "unequal"])
def test_less_does_not(look: str) -> None:
    """Rule 118: no look, a count, a key, a substring, one of two, or a difference is no comparison of both."""
    bodies = ended().bodies([ONE, TWO])
    match look:
        case "count":
            assert len(bodies) == 2
        case "key":
            assert [body["a"] for body in bodies] == [1, 2]
        case "substring":
            assert "1" in str(bodies[0])
        case "one":
            assert bodies[0] == ONE
        case "unequal":
            assert bodies[0] != TWO
            assert not bodies[1] == ONE  # noqa: SIM201  the other sign
        case _:
            pass
    missing = "2" if look == "one" else "1, 2"
    with pytest.raises(
        AssertionError, match=f"rule 118: of 2 upstream calls the bodies of {missing} were not compared"
    ):
        check_compared()
    forget()


def test_what_is_not_asked_about() -> None:
    """Rule 118: one call for each request needs no comparison, and what a test leaves has its reason."""
    ended(calls=3, asked=3)
    ended().leave("it is about something else")
    check_compared()


ASK: dict[str, Any] = {
    "model": "gpt-4o",
    "messages": [{"role": "user", "content": "Weather?"}],
    "tools": [{"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}],
}
LEAK = Turn(Say('<tool_call>{"name": "ping", "arguments": {}}</tool_call>'))


@pytest.mark.parametrize("look", ["bodies", "bytes", "count", "left", "own", "no retry", "asked directly"])
def test_any_upstream_behind_a_gateway_is_watched(look: str) -> None:
    """Rule 118: a turn of several calls on an upstream of the test's own is compared, or left for a reason."""
    watch_upstreams()
    script = [Turn(Say("Hi."))] * 2 if look in ("no retry", "asked directly") else [LEAK, Turn(Call("ping", {}))]
    with ScriptedUpstream(script) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        if look == "own":
            keep_own_count(upstream)
        address = upstream.base_url if look == "asked directly" else gateway.base_url
        for _ in range(2 if look in ("no retry", "asked directly") else 1):
            assert post(f"{address}/chat/completions", ASK).status == 200
        assert len(upstream.requests) == 2
        match look:
            case "bodies":
                assert [one.body for one in upstream.requests] == [ASK, ASK]
            case "bytes":
                assert {one.raw == json.dumps(ASK).encode() for one in upstream.requests} == {True}
            case "left":
                leave(upstream, "it is about something else")
            case _:
                pass
        if look == "count":
            with pytest.raises(AssertionError, match="of 2 upstream calls the bodies of 1, 2 were not compared"):
                check_compared(every=True)
        else:
            check_compared(every=True)
    forget()
