"""What a call costs that ends otherwise than well: given up, late, cut off, or never made."""

import asyncio
import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from mustcall import Agent, Budget, Caps, Upstream
from mustcall.core.errors import MustcallError, UpstreamTimeout, UpstreamUnavailable
from mustcall.core.origin import Wire
from mustcall.engine.exchange import Inbound, StreamedReply, WholeReply
from mustcall.engine.records import TurnProgress
from mustcall.engine.spending.accounts import MemoryBreakers, MemoryMeter
from mustcall.engine.spending.budget_account import Metering, ModelPrice, Price
from mustcall.engine.spending.metered import breaker_name
from mustcall.engine.turns import OperatorSettings, Turns
from mustcall.policy.facts.controls import Controls, Limits
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.failures.breaker import BreakerRule
from mustcall.policy.failures.breaker_classes import FailureClass
from mustcall.policy.limits.budget import Charge, ChargeKey, Spending, Trip
from mustcall.testing import Answer, Cut, Fail, FakeClock, Hang, RunningGateway, Say, ScriptedUpstream, Turn
from mustcall.testing.transport import FakeReply, FakeTransport
from mustcall.upstream.endpoint import Endpoint
from rules.driving import PATHS, request
from support.agents import WIRES, agent_on
from support.exchanging import SSE, events, whole

ENDPOINT = Endpoint(name="u", wire=Wire.CHAT, base_url="http://u/v1")
#: What its breakers are kept under.
U = breaker_name(ENDPOINT)
#: Looks in a row at which nothing more has come.
_STILL = 10
_DEAR = (ModelPrice(model="*", price=Price(input=1.0, output=1000.0)),)


def _asking(*, stream: bool = False) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream}).encode()


async def take(
    turns: Turns,
    metering: Metering,
    token: str,
    *,
    stream: bool = False,
    controls: Controls | None = None,
    progress: TurnProgress | None = None,
) -> WholeReply | StreamedReply:
    """Take one turn without a gateway, on the account `s`."""
    endpoint = ENDPOINT
    body = _asking(stream=stream)
    inbound = Inbound(
        wire=Wire.CHAT, body=body, headers={}, query="", stream=stream, token=token, request_id=f"req_{token}"
    )
    controls, progress = controls or Controls(), progress or TurnProgress()
    metered = turns.metered(metering, "s", inbound, endpoint, "m", progress=progress)
    taking = turns.take(
        inbound, endpoint, None, asked="m", controls=controls, progress=progress, deadline=1e12, metered=metered
    )
    return await metered.follow(taking)


def _read_some(gateway: RunningGateway, wire: str, most: int) -> tuple[int, bytes]:
    """Take a streamed turn of the session `s` and leave once so many bytes have come."""
    to = urlsplit(gateway.url)
    connection = http.client.HTTPConnection(to.hostname or "", to.port, timeout=180)
    body = json.dumps(request(wire, stream=True)).encode()
    headers = {"content-type": "application/json", "x-mustcall-session": "s", "authorization": "Bearer k"}
    connection.request("POST", PATHS[wire], body, headers)
    answer = connection.getresponse()
    got = b""
    while len(got) < most and (piece := answer.read1(4096)):
        got += piece
    connection.close()
    return answer.status, got


@pytest.mark.parametrize("protocol", [Protocol.OFF, Protocol.NATIVE])
@pytest.mark.parametrize("wire", WIRES)
def test_output_that_was_delivered_is_never_free(wire: str, protocol: Protocol) -> None:
    """Rules 93, 94, 98: a caller that leaves before a stream ends has spent what came, so its cap holds."""
    budget = Budget(prices=_DEAR, caps=Caps(cost_usd=0.5), expected_output_tokens=0)
    statuses: list[int] = []
    got = b""
    with ScriptedUpstream(default=Hang(Turn(Say("word " * 4000)), after=60_000)) as upstream:
        operator = OperatorSettings(budget=budget, controls=Controls(protocol=protocol))
        with RunningGateway(f"{wire}={upstream.base_url}", operator=operator) as gateway:
            while len(statuses) < 10 and 429 not in statuses:
                status, got = _read_some(gateway, wire, 50_000)
                statuses.append(status)
                upstream.wait_until_done()  # the gateway takes a moment to see that we left, and lets go of it
    assert 0 < len(upstream.requests) < 5
    assert statuses[-1] == 429
    assert b"cost cap is reached" in got


def _came(told: list[Any]) -> int:
    """How many characters a run said."""
    return sum(len(getattr(event, "text", "")) for event in told)


async def _account(answer: Answer, asked: str = "Hi", *, stream: bool = False) -> tuple[Spending, Any]:
    """Ask an agent, give up when nothing more comes, and return the account and what the run told."""
    meter = MemoryMeter()
    told: list[Any] = []
    with ScriptedUpstream([answer], chunking=64) as upstream:
        agent = agent_on(upstream, "chat", tools=[], budget=Budget(prices=_DEAR), session="s", meter=meter)

        async def run() -> None:
            if not stream:
                await agent.run(asked)
            async with agent.stream(asked) as events:
                async for event in events:
                    told.append(event)  # noqa: PERF401  it is cancelled in the middle

        task = asyncio.create_task(run())
        await upstream.await_requests(1)
        count, same = -1, 0
        while same < _STILL or (
            stream and _came(told) <= 1000
        ):  # a busy machine pauses, too: nothing came for a while, not once
            same = same + 1 if count == len(told) else 0
            count = len(told)
            await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return await meter.spending("s"), told


async def test_a_call_given_up_before_its_answer_costs_its_input() -> None:
    """Rule 98: what was sent is read by the upstream; nobody says what it cost, so it is estimated."""
    account, _ = await _account(Hang(Turn(Say("x"))), "word " * 4000)
    assert 5000 < account.spent.tokens < 5200
    assert (account.spent.cost_usd > 0.005, account.spent.estimated, account.running) == (True, True, 0)


async def test_a_stream_given_up_costs_what_came() -> None:
    """Rules 93, 98: the text that was streamed before a run was cancelled is counted."""
    account, told = await _account(Hang(Turn(Say("word " * 4000)), after=100_000), stream=True)
    came = _came(told)
    assert came // 4 <= account.spent.tokens <= came // 4 + 100
    assert account.spent.estimated


@pytest.mark.parametrize(("sent", "spent"), [(True, True), (False, False)])
async def test_a_call_that_timed_out_costs_its_input_if_it_was_sent(sent: bool, spent: bool) -> None:
    """Rule 98: a connection that was never made costs nothing, an answer that did not come in time does."""
    late = UpstreamTimeout("late")
    late.sent = sent
    clock, meter = FakeClock(), MemoryMeter()
    transport = FakeTransport([late] * 9)
    with pytest.raises(UpstreamTimeout):
        await take(Turns(transport, clock), Metering(Budget(prices=_DEAR), clock, meter=meter), "t")
    assert [call.body for call in transport.calls] == [_asking()] * (1 + ENDPOINT.backoff.retries)
    account = await meter.spending("s")
    assert (account.spent.tokens > 0, account.spent.estimated, account.running) == (spent, spent, 0)


async def test_a_run_costs_what_its_account_says() -> None:
    """Rules 93, 114: what broke off is in the run's cost, too."""
    meter = MemoryMeter()
    with ScriptedUpstream([Cut(Turn(Say("word " * 400)), after=20_000)], chunking=16) as upstream:
        agent = agent_on(upstream, "chat", tools=[], budget=Budget(prices=_DEAR), session="s", meter=meter)
        events = agent.stream("Hi")
        with pytest.raises(UpstreamUnavailable):
            _ = [event async for event in events]
        result = events.result
    account = await meter.spending("s")
    assert len(upstream.requests) == account.spent.calls
    assert account.spent.cost_usd > 0.01
    assert (result.cost_usd, result.estimated) == (pytest.approx(account.spent.cost_usd), True)


@pytest.mark.parametrize("late", [False, True], ids=["at once", "after a timeout"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_reply_in_the_other_form_is_in_the_record(stream: bool, late: bool) -> None:
    """Rules 93, 98: under `off`, too, the record of a call says what it cost, with the retries before it."""
    body = whole(Wire.CHAT) if stream else b"".join(events(Wire.CHAT))
    reply = FakeReply(body, headers={} if stream else SSE)
    lost = UpstreamTimeout("late")
    lost.sent = True
    clock, meter, progress = FakeClock(), MemoryMeter(), TurnProgress()
    transport = FakeTransport([lost, reply] if late else [reply])
    metering = Metering(Budget(prices=_DEAR), clock, meter=meter)
    off = Controls(protocol=Protocol.OFF)
    taken = await take(Turns(transport, clock), metering, "t", stream=stream, controls=off, progress=progress)
    if isinstance(taken, StreamedReply):
        _ = [piece async for piece in taken.chunks]
    assert [call.body for call in transport.calls] == [_asking(stream=stream)] * (2 if late else 1)
    spent, record = (await meter.spending("s")).spent, progress.record
    assert record is not None
    assert (record.counted, record.calls) == (True, spent.calls)
    assert (record.cost_usd, record.estimated) == (pytest.approx(spent.cost_usd), spent.estimated)
    assert spent.cost_usd > 0


# --- calls that are cancelled before they are made -------------------------------------------------------------------


class _Slow(MemoryMeter):
    """A meter whose answer takes its time: what it counted is counted."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def reserve(self, session: str, key: ChargeKey, expected: Charge, caps: Caps) -> Trip | None:
        trip = await super().reserve(session, key, expected, caps)
        self.asked.set()
        await self.go.wait()
        return trip


async def test_a_cancel_while_a_call_is_reserved() -> None:
    """Rules 94, 111: neither the reservation nor the probe of a half-open breaker outlives the call never made."""
    clock = FakeClock()
    meter, breakers = _Slow(clock), MemoryBreakers(clock)
    meter.go.set()
    rule = BreakerRule(failures=1, cool_down=30)
    metering = Metering(Budget(breaker=rule), clock, meter=meter, breakers=breakers)
    await breakers.report(U, rule, FailureClass.SERVER)
    clock.advance(31)
    transport = FakeTransport([])
    meter.go.clear()
    task = asyncio.create_task(take(Turns(transport, clock), metering, "t"))
    await meter.asked.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    account = await meter.spending("s")
    assert (transport.calls, account.running, account.in_flight, account.spent) == ([], 0, Charge(), Charge())
    assert not any(breaker.probing for breaker in breakers.state(U).values())


# --- whose breaker it is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "name"),
    [
        ("http://127.0.0.1:9000/v1", "n@127.0.0.1:9000/v1"),
        ("https://user:secret@h.example/v1?key=secret", "n@h.example/v1"),
        ("embedded:/models/a.gguf", "n@embedded:/models/a.gguf"),
    ],
)
def test_names_of_breakers(base_url: str, name: str) -> None:
    """A name and an address, and nothing that may be secret."""
    assert breaker_name(Endpoint(name="n", wire=Wire.CHAT, base_url=base_url)) == name


async def test_a_failing_caller_does_not_block_the_planner() -> None:
    """Rule 111: two servers of one name are two upstreams, each with breakers of its own."""

    def look(q: str) -> str:
        """Look something up."""
        return q

    with (
        ScriptedUpstream(default=Turn(Say("Call look with 1."))) as well,
        ScriptedUpstream(default=Fail(500, "down")) as down,
    ):
        planner, caller = (Upstream(f"here:chat={each.base_url}", model="m") for each in (well, down))
        budget = Budget(breaker=BreakerRule(failures=2, cool_down=600))
        agent = Agent(
            planner=planner,
            caller=caller,
            tools=[look],
            budget=budget,
            controls=Controls(limits=Limits(extra_calls=1)),
        )
        for _ in range(3):
            with pytest.raises(MustcallError):
                await agent.run("Look 1 up.")
    assert (len(well.requests), len(down.requests)) == (3, 2)
