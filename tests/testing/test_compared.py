"""The helper that sees whether a test of retries compared the body of each call."""

import json
from typing import Any

import pytest

from mustcall import Agent
from mustcall.core.origin import Wire
from mustcall.engine.records import TurnProgress
from mustcall.engine.turns import OperatorSettings, Turns
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Protocol
from mustcall.testing import Call, Fail, RunningGateway, Say, ScriptedModel, ScriptedUpstream, Turn
from mustcall.testing.render import Stamp, build_reply
from mustcall.testing.transport import FakeClock, FakeReply, FakeTransport
from support.compared import Comparing, check_compared, forget, keep_own_count, leave, read_raw, watch_upstreams
from support.exchanging import endpoint, inbound
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


@pytest.mark.parametrize("look", ["none", "count", "key", "substring", "one", "unequal", "each other"])
def test_less_does_not(look: str) -> None:
    """Rule 118: no look, a count, a key, a substring, one of two, a difference or recorded bodies are no comparison."""
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
        case "each other":
            assert bodies == [*bodies]
            assert bodies[0] == Comparing().bodies([ONE])[0]
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


MISSED = "of 2 upstream calls the bodies of 1, 2 were not compared"


@pytest.mark.parametrize("protocol", [Protocol.OFF, Protocol.HYBRID])
@pytest.mark.parametrize("look", ["bytes", "read", "count", "left"])
async def test_a_fake_transport_is_watched(look: str, protocol: Protocol) -> None:
    """Rule 118: so are turns and plain exchanges of the engine without a network, also once the transport is gone."""
    watch_upstreams()
    written = json.dumps(ASK).encode()
    reply = json.dumps(build_reply(Turn(Say("Hi.")), Wire.CHAT, ASK, Stamp(0))).encode()

    async def take() -> None:
        transport = FakeTransport([FakeReply(b"busy", status=503), FakeReply(reply)])
        await Turns(transport, FakeClock(), OperatorSettings()).take(
            inbound(Wire.CHAT, written),
            endpoint(Wire.CHAT, retries=1),
            None,
            asked="m",
            controls=Controls(protocol=protocol),
            progress=TurnProgress(),
            deadline=2_000_000.0,
        )
        match look:
            case "bytes":
                assert [call.body for call in transport.calls] == [written] * 2
            case "read":
                assert [read_raw(call.body or b"") for call in transport.calls] == [ASK] * 2
            case "left":
                leave(transport, "it is about something else")
            case _:
                assert len(transport.calls) == 2

    await take()
    if look == "count":
        with pytest.raises(AssertionError, match=MISSED):
            check_compared(every=True)
    else:
        check_compared(every=True)
    forget()


@pytest.mark.parametrize("look", ["bodies", "count", "left"])
async def test_a_scripted_model_is_watched(look: str) -> None:
    """Rule 118: so are the turns of an agent; its steps are turns of their own, and no retries."""
    watch_upstreams()
    model = ScriptedModel([Fail(503, "busy"), "Hi."])
    assert (await Agent(model).run("Hello.")).text == "Hi."
    asked = {"model": "scripted", "messages": [{"role": "user", "content": "Hello."}]}
    match look:
        case "bodies":
            assert [one.body for one in model.requests] == [asked] * 2
        case "left":
            leave(model, "it is about something else")
        case _:
            assert len(model.requests) == 2
    if look == "count":
        with pytest.raises(AssertionError, match=MISSED):
            check_compared(every=True)
    else:
        check_compared(every=True)
    forget()
