"""`mustcall.wrap`: the SDKs' own clients, asked on a model that misbehaves; bare, wrapped, and through the gateway."""

import json
from typing import Any, NamedTuple

import anthropic
import openai
import pytest

from mustcall import Limits, wrap
from mustcall.adapters import httpx_seam
from mustcall.core.origin import Wire
from mustcall.testing import Call, Cut, Fail, Hang, RunningGateway, Say, ScriptedUpstream, Think, Turn
from mustcall.wire.registry import codec_for
from support.wrapped import CALL, QUESTION, SCHEMA, WAYS, Way, ask, read_raw, said

GOOD = Turn(Call("price", {"item": "hat"}))
MARKUP = '<tool_call>{"name": "price", "arguments": {"item": "hat"}}</tool_call>'


class Fault(NamedTuple):
    """What a model does before it does what it should, and the upstream calls that the turn comes to."""

    name: str
    script: tuple[Turn, ...]
    forced: bool
    calls: int


FAULTS = [
    Fault("force ignored", (Turn(Say("I would rather not.")), GOOD), True, 2),
    Fault("call as text", (Turn(Say(MARKUP)),), False, 1),
    Fault("call as text under a force", (Turn(Say(MARKUP)),), True, 1),
    Fault("broken arguments", (Turn(Call("price", '{"item": ')), GOOD), False, 2),
    Fault("wrong arguments", (Turn(Call("price", {"thing": "hat"})), GOOD), False, 2),
    Fault("unknown tool", (Turn(Call("weather", {"city": "Rome"})), GOOD), False, 2),
    Fault("nothing said", (Turn(), GOOD), False, 2),
]


def _bare(client: Any) -> Any:
    return client


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_misbehaving_model(way: Way, fault: Fault) -> None:
    """Rule 1: wrapped, the call comes; bare, the same code does not get it."""
    with ScriptedUpstream(fault.script) as upstream:
        assert said(way, ask(way, upstream.url, wrap, forced=fault.forced)) == [CALL]
        first, *more = upstream.requests
    assert len(more) == fault.calls - 1
    with ScriptedUpstream(fault.script) as upstream:
        assert said(way, ask(way, upstream.url, _bare, forced=fault.forced)) != [CALL]
        (alone,) = upstream.requests
    if fault.forced:
        assert _but_stream(first.body) == _but_stream(alone.body)
    else:
        assert first.raw == alone.raw


@pytest.mark.parametrize("fault", [FAULTS[0], FAULTS[3], FAULTS[5]], ids=lambda fault: fault.name)
@pytest.mark.parametrize("way", [way for way in WAYS if way.blocks], ids=str)
def test_one_engine(way: Way, fault: Fault) -> None:
    """Rule 118: the upstream gets from a wrapped client what it gets from the gateway, byte for byte."""
    with ScriptedUpstream(fault.script) as upstream:
        ask(way, upstream.url, wrap, forced=fault.forced)
        bodies = [request.raw for request in upstream.requests]
    with ScriptedUpstream(fault.script) as upstream, RunningGateway(f"{way.wire}={upstream.base_url}") as gateway:
        ask(way, gateway.url, _bare, forced=fault.forced)
        assert bodies == [request.raw for request in upstream.requests]


def test_the_bodies_of_a_forced_turn() -> None:
    """Rules 25, 118: the first body is the caller's, read as a stream; the second asks for the call as JSON."""
    way = Way(Wire.CHAT, blocks=True, streams=False)
    with ScriptedUpstream([Turn(Say("No.")), Turn(Say('{"name": "price", "arguments": {"item": "hat"}}'))]) as upstream:
        assert said(way, ask(way, upstream.url, wrap, forced=True)) == [CALL]
    function = {"name": "price", "description": "Look up a price.", "parameters": SCHEMA}
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "enum": ["price"]}, "arguments": SCHEMA},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
    directive = (
        "Answer with one JSON object that calls one of these tools, with its name and arguments:\n"
        f"- price: Look up a price.\n  arguments: {json.dumps(SCHEMA, separators=(',', ':'))}"
    )
    asked = {"role": "user", "content": QUESTION}
    assert [request.body for request in upstream.requests] == [
        {
            "model": "m",
            "messages": [asked],
            "tools": [{"type": "function", "function": function}],
            "tool_choice": "required",
            "stream": True,
            "stream_options": {"include_usage": True},
        },
        {
            "model": "m",
            "messages": [asked, {"role": "user", "content": directive}],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "tool_call", "schema": schema, "strict": True},
            },
        },
    ]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_healthy_turn_is_untouched(way: Way) -> None:
    """Rule 3: the request, its headers and the reply are those of the bare client, byte for byte."""
    script = (Turn(Think("Well."), Say("A hat costs 12 euros."), extra={"unknown": 1}),)
    seen: list[tuple[bytes, dict[str, str], bytes]] = []
    for made in (_bare, wrap):
        with ScriptedUpstream(script, chunking=7) as upstream:
            body = read_raw(way, upstream.url, made)
            (request,) = upstream.requests
            headers = {name: value for name, value in request.headers.items() if name != "host"}
            seen.append((request.raw, headers, body))
    assert seen[0] == seen[1]
    assert b"A hat costs 12 euros." in seen[0][2] or way.streams


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_failure_is_the_sdks_own(way: Way) -> None:
    """Rule 27: a force that stays unmet is an error of the SDK's own class with our code, and is not asked again."""
    with ScriptedUpstream(default=Turn(Say("I would rather not."))) as upstream:
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught:
            ask(way, upstream.url, wrap, forced=True)
        calls = len(upstream.requests)
    error = caught.value
    assert error.status_code == codec_for(way.wire).failure_status
    assert ("ForceUnmet" if way.wire is Wire.MESSAGES else "force_unmet") in str(error.body)
    assert calls == 1 + Limits().extra_calls
    assert error.response.headers["x-mustcall-attempts"] == str(calls)


@pytest.mark.parametrize("way", [way for way in WAYS if way.streams], ids=str)
def test_a_stream_that_fails_after_it_began(way: Way) -> None:
    """Rule 113: what cannot be taken back ends in the wire's error event, which the SDK raises, or hands on."""
    with ScriptedUpstream([Cut(Turn(Say("A hat costs " * 400)), after=4000)], chunking=64) as upstream:
        if way.wire is Wire.RESPONSES:
            assert ask(way, upstream.url, wrap)["error"]["message"].startswith("the upstream")
        else:
            with pytest.raises((openai.APIError, anthropic.APIError), match="the upstream"):
                ask(way, upstream.url, wrap)
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("blocks", [True, False], ids=["sync", "async"])
@pytest.mark.parametrize("wire", Wire)
def test_the_upstreams_errors_are_passed_on(wire: Wire, blocks: bool) -> None:
    """Rule 111: an error of the upstream is the SDK's own, sent again as often as the client's `max_retries` says."""
    way = Way(wire, blocks, streams=False)
    again = {"x-should-retry": "true", "retry-after-ms": "1"}
    with ScriptedUpstream(default=Fail(429, "slow down", headers=again)) as upstream:
        with pytest.raises((openai.RateLimitError, anthropic.RateLimitError), match="slow down"):
            ask(way, upstream.url, lambda client: wrap(client.with_options(max_retries=1)))
        assert [request.body for request in upstream.requests] == [upstream.requests[0].body] * 2


@pytest.mark.parametrize("blocks", [True, False], ids=["sync", "async"])
@pytest.mark.parametrize("wire", Wire)
def test_connections_that_fail(wire: Wire, blocks: bool) -> None:
    """Rule 113: no connection and no answer in time are the SDK's own errors for that."""
    way = Way(wire, blocks, streams=False)
    with ScriptedUpstream([Hang(Turn(Say("late")))]) as upstream:
        url = upstream.url
        with pytest.raises((openai.APITimeoutError, anthropic.APITimeoutError)):
            ask(way, url, lambda client: wrap(client.with_options(max_retries=0)), timeout=0.05)
    with pytest.raises((openai.APIConnectionError, anthropic.APIConnectionError)):
        ask(way, url, lambda client: wrap(client.with_options(max_retries=0)))


@pytest.mark.parametrize("blocks", [True, False], ids=["sync", "async"])
@pytest.mark.parametrize("wire", Wire)
def test_a_timeout_is_for_all_attempts(wire: Wire, blocks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 97: the second attempt of a turn has what the first one left of the caller's timeout."""
    way = Way(wire, blocks, streams=False)
    seen: list[tuple[Any, float]] = []
    times = iter([100.0, 104.0])  # the turn begins; the second attempt begins four seconds later
    monkeypatch.setattr(httpx_seam, "monotonic", lambda: next(times))
    made = httpx_seam.Attempts.request

    def request(self: httpx_seam.Attempts, call: Any) -> Any:
        sent = made(self, call)
        seen.append((sent, sent.extensions["timeout"]["read"]))
        return sent

    monkeypatch.setattr(httpx_seam.Attempts, "request", request)
    with ScriptedUpstream([Turn(Call("weather", {"city": "Rome"})), GOOD]) as upstream:
        assert said(way, ask(way, upstream.url, wrap, timeout=30.0)) == [CALL]
        assert len(upstream.requests) == 2
    assert [left for _, left in seen] == [30.0, 26.0]


def _but_stream(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body without how the reply is wanted: a forced one is read as a stream (rule 137)."""
    return {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
