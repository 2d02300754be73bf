"""Rules 93 to 99: what a session and a turn may spend, through real gateways and agents on a scripted upstream."""

import asyncio
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall import Agent, Budget, BudgetSpent, Caps, ToolContext, tool
from mustcall.core.origin import Wire
from mustcall.engine.exchange import Inbound, StreamedReply, WholeReply
from mustcall.engine.records import TurnProgress
from mustcall.engine.spending.accounts import MemoryMeter
from mustcall.engine.spending.budget_account import CapMode, Metering, ModelPrice, Price, TurnCap
from mustcall.engine.tooling.outcomes import CallStatus
from mustcall.engine.turns import OperatorSettings, Turns
from mustcall.gateway.config.budget_settings import SessionBy
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.policy.facts.controls import Controls, Limits, Salvage
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.limits.budget import Charge, ChargeKey, Spending
from mustcall.testing import Answer, Call, Fail, FakeClock, RunningGateway, Say, ScriptedUpstream, Turn
from mustcall.testing.transport import FakeReply, FakeTransport
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.seam import UpstreamCall
from rules.driving import PATHS, WAYS, WORDS, request
from rules.outcomes import Outcome, read_outcome
from support.agents import WIRES, agent_on, ask_body, results, said, user
from support.http import post

#: A scripted reply has 25 tokens in and 12 out; gpt-4o costs 2.5 and 10 dollars a million.
COST = (25 * 2.5 + 12 * 10) / 1_000_000

TEXT_CALL = Say('<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>')
OPEN = Turn(Say("Hello."))

#: Our words in the error of a spent session.
_HINT = "in the caps, or start a new session"


def ask(
    gateway: RunningGateway, wire: str, *, key: str = "k", headers: dict[str, str] | None = None, **fields: Any
) -> Outcome:
    """Take one turn."""
    sent = {"authorization": f"Bearer {key}"} if key else {}
    answer = post(gateway.url + PATHS[wire], request(wire, **fields), sent | (headers or {}))
    return read_outcome(wire, answer)


def gateway_on(upstream: ScriptedUpstream, wire: str, budget: Budget | None, **controls: Any) -> RunningGateway:
    """Return a gateway with a budget before the upstream."""
    operator = OperatorSettings(budget=budget, controls=Controls(**controls))
    return RunningGateway(f"{wire}={upstream.base_url}", operator=operator, clock=FakeClock())


def details(outcome: Outcome) -> dict[str, Any]:
    """What an error says besides its message."""
    return outcome.error["details"]


async def take(turns: Turns, metering: Metering, token: str, *, stream: bool = False) -> WholeReply | StreamedReply:
    """Take one turn without a gateway, on the account `s`."""
    endpoint = Endpoint(name="u", wire=Wire.CHAT, base_url="http://u/v1")
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream}).encode()
    inbound = Inbound(
        wire=Wire.CHAT, body=body, headers={}, query="", stream=stream, token=token, request_id=f"req_{token}"
    )
    progress = TurnProgress()
    metered = turns.metered(metering, "s", inbound, endpoint, "m", progress=progress)
    taking = turns.take(
        inbound, endpoint, None, asked="m", controls=Controls(), progress=progress, deadline=1e12, metered=metered
    )
    return await metered.follow(taking)


# --- sessions at the gateway -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_session_that_has_spent_its_money(wire: str, stream: bool) -> None:
    """Rule 94: the cap is checked before each call; a trip says all it must and makes no upstream call."""
    with (
        ScriptedUpstream([OPEN] * 3) as upstream,
        gateway_on(upstream, wire, Budget(caps=Caps(cost_usd=2 * COST))) as gateway,
    ):
        got = [
            ask(gateway, wire, headers={"x-mustcall-session": name}, stream=stream) for name in ("s", "s", "s", "other")
        ]
    assert [one.status for one in got] == [200, 200, 429, 200]
    assert len(upstream.requests) == 3
    refused = got[2]
    assert details(refused) == {
        "error": "the session's cost cap is reached: 0.000365 of 0.000365 US dollars",
        "error_code": "session_cost_cap",
        "error_kind": "cost",
        "operator_hint": f"raise cost_usd {_HINT}",
        "transient": False,
    }
    assert refused.message == f"{details(refused)['error']}; {details(refused)['operator_hint']}"
    assert refused.headers["x-should-retry"] == "false"
    assert (refused.attempts, refused.headers["x-mustcall-outcome"]) == (0, "failure")


def test_the_official_client_does_not_retry_a_spent_budget() -> None:
    """Rule 94: a 429 that waiting does not mend is asked for once."""
    import openai  # noqa: PLC0415  a heavy client for one test

    with ScriptedUpstream([OPEN]) as upstream, gateway_on(upstream, "chat", Budget(caps=Caps(calls=1))) as gateway:
        client = openai.OpenAI(base_url=gateway.base_url, api_key="k")
        messages: Any = [{"role": "user", "content": "Hi"}]
        client.chat.completions.create(model="gpt-4o", messages=messages)
        with pytest.raises(openai.RateLimitError) as caught:
            client.chat.completions.create(model="gpt-4o", messages=messages)
    assert caught.value.code == "budget_spent"
    assert len(upstream.requests) == 1


def test_transport_retries_are_calls() -> None:
    """Rules 93, 94: a retry after a 503 is checked like a first call and counted like one."""
    script: list[Answer] = [Fail(503, "busy"), Fail(503, "busy"), OPEN]
    with ScriptedUpstream(script) as upstream, gateway_on(upstream, "chat", Budget(caps=Caps(calls=2))) as gateway:
        got = ask(gateway, "chat")
    assert (got.status, details(got)["error_code"], got.attempts) == (429, "session_call_cap", 2)
    assert [one.body for one in upstream.requests] == [request("chat")] * 2


@pytest.mark.parametrize("wire", WIRES)
def test_another_attempt_is_checked(wire: str) -> None:
    """Rules 93, 94: what the first attempt used counts before the second, which is then not made."""
    script: list[Answer] = [Turn(TEXT_CALL), OPEN]
    with ScriptedUpstream(script) as upstream, gateway_on(upstream, wire, Budget(caps=Caps(tokens=37))) as gateway:
        got = ask(gateway, wire)
    assert (got.status, details(got)["error_code"], got.attempts) == (429, "session_token_cap", 1)
    assert [one.body for one in upstream.requests] == [request(wire)]


def test_attempts_are_summed() -> None:
    """Rules 93, 114: the cost of a turn is that of all its attempts, in the header and in the account."""
    with ScriptedUpstream([Turn(TEXT_CALL), OPEN]) as upstream, gateway_on(upstream, "chat", Budget()) as gateway:
        got = ask(gateway, "chat", headers={"x-mustcall-metadata": "true"})
    assert (got.status, got.attempts) == (200, 2)
    assert [one.body for one in upstream.requests] == [request("chat")] * 2
    assert float(got.headers["x-mustcall-cost-usd"]) == pytest.approx(2 * COST)
    assert "x-mustcall-cost-estimated" not in got.headers
    record = json.loads(got.raw)["mustcall"]
    assert (record["cost_usd"], record["estimated"]) == (pytest.approx(2 * COST), False)


def test_warnings_let_pass() -> None:
    """Rule 94: with `warn` a reached cap is reported and the call is made; with `off` nothing is counted."""
    with ScriptedUpstream([OPEN] * 4) as upstream:
        with gateway_on(upstream, "chat", Budget(caps=Caps(calls=1), mode=CapMode.WARN)) as gateway:
            warned = [ask(gateway, "chat").adaptations for _ in range(2)]
        with gateway_on(upstream, "chat", Budget(caps=Caps(calls=1), mode=CapMode.OFF)) as gateway:
            unwarned = [ask(gateway, "chat").adaptations for _ in range(2)]
    assert warned == [[], ["reported:session_call_cap"]]
    assert unwarned == [[], []]
    assert len(upstream.requests) == 4


def test_wall_time() -> None:
    """Rule 94: a session's time runs from its first call, and at >= it is over."""
    clock = FakeClock()
    operator = OperatorSettings(budget=Budget(caps=Caps(seconds=60)))
    with (
        ScriptedUpstream([OPEN] * 2) as upstream,
        RunningGateway(f"chat={upstream.base_url}", operator=operator, clock=clock) as gateway,
    ):
        statuses = [ask(gateway, "chat").status]
        clock.advance(59)
        statuses.append(ask(gateway, "chat").status)
        clock.advance(1)
        got = ask(gateway, "chat")
    assert (statuses, got.status, details(got)["error_kind"]) == ([200, 200], 429, "time")
    assert len(upstream.requests) == 2


def test_no_session_no_state() -> None:
    """Rules 94, 116: a request without session and key is a session of its own, and nothing of it survives."""
    with ScriptedUpstream([OPEN] * 3) as upstream, gateway_on(upstream, "chat", Budget(caps=Caps(calls=1))) as gateway:
        assert [ask(gateway, "chat", key="").status for _ in range(3)] == [200] * 3


def test_whose_session_it_is() -> None:
    """Rule 93: a name belongs to the key it came with; by key alone no name opens another account."""
    asked = [("k1", "s"), ("k2", "s"), ("k1", "t"), ("k1", ""), ("k1", "s")]
    statuses: dict[SessionBy, list[int]] = {}
    for by in SessionBy:
        with ScriptedUpstream([OPEN] * 5) as upstream:
            operator = OperatorSettings(budget=Budget(caps=Caps(calls=1)))
            given = settings_from_flags(f"chat={upstream.base_url}", operator=operator)
            given = type(given)(server=given.server, endpoints=given.endpoints, operator=operator, session_by=by)
            with RunningGateway(settings=given) as gateway:
                statuses[by] = [
                    ask(gateway, "chat", key=key, headers={"x-mustcall-session": name} if name else {}).status
                    for key, name in asked
                ]
    assert statuses == {SessionBy.SESSION: [200, 200, 200, 200, 429], SessionBy.KEY: [200, 200, 429, 429, 429]}


def test_a_session_named_in_the_body() -> None:
    """Rules 93, 9: the body extension names a session, too, and does not reach the upstream."""
    with ScriptedUpstream([OPEN]) as upstream, gateway_on(upstream, "chat", Budget(caps=Caps(calls=1))) as gateway:
        got = [ask(gateway, "chat", key=key, mustcall={"session": "s"}).status for key in ("", "")]
    assert got == [200, 429]
    assert upstream.requests[0].body == request("chat")


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_only_passed_through_is_counted(stream: bool) -> None:
    """Rule 93: under protocol `off` tokens are read from the bytes on their way, which stay as they are."""
    with ScriptedUpstream([OPEN] * 2) as upstream:
        budget = Budget(caps=Caps(tokens=37))
        with gateway_on(upstream, "chat", budget, protocol=Protocol.OFF) as gateway:
            got = [ask(gateway, "chat", stream=stream) for _ in range(2)]
    assert [one.status for one in got] == [200, 429]
    assert got[0].text == "Hello."
    assert len(upstream.requests) == 1


def test_usage_nobody_told_is_estimated() -> None:
    """Rule 98: a stream without usage is counted by its length, so that the cap holds, and says so."""
    with (
        ScriptedUpstream([OPEN] * 3) as upstream,
        gateway_on(upstream, "chat", Budget(caps=Caps(tokens=150))) as gateway,
    ):
        silent: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": False}}
        got = [ask(gateway, "chat", **silent) for _ in range(3)]
    assert [one.status for one in got] == [200, 200, 429]


# --- one turn --------------------------------------------------------------------------------------------------------


def test_a_turns_own_cap() -> None:
    """Rules 89, 95: `enforce` grants one final round once the cap is reached, then refuses."""
    budget = Budget(turn=TurnCap(cost_usd=COST, mode=CapMode.ENFORCE))
    with ScriptedUpstream([Turn(TEXT_CALL)] * 2) as upstream, gateway_on(upstream, "chat", budget) as gateway:
        got = ask(gateway, "chat", temperature=0.5)
    assert (got.status, details(got)["error_code"], got.attempts) == (429, "cost_cap_exceeded", 2)
    assert details(got)["error"] == "the turn's cost cap is exceeded: 0.000365 of 0.0001825 US dollars"
    assert [one.body for one in upstream.requests] == [request("chat", temperature=0.5)] * 2


def test_a_turns_cap_warns_by_default() -> None:
    """Rule 95: the default mode reports and goes on."""
    script: list[Answer] = [Turn(TEXT_CALL), OPEN]
    with (
        ScriptedUpstream(script) as upstream,
        gateway_on(upstream, "chat", Budget(turn=TurnCap(cost_usd=COST))) as gateway,
    ):
        got = ask(gateway, "chat")
    assert (got.status, got.attempts) == (200, 2)
    assert [one.body for one in upstream.requests] == [request("chat")] * 2
    assert "reported:turn_cost_cap" in got.adaptations


def test_a_caller_caps_its_own_turn() -> None:
    """Rule 95: by header, also where the operator has no budget; the operator's lower one stays."""
    header = {"x-mustcall-turn-cost-usd": str(COST)}
    lower = Budget(turn=TurnCap(cost_usd=COST / 2, mode=CapMode.ENFORCE))
    for budget, cap in ((None, "0.0001825"), (lower, "9.125e-05")):
        with ScriptedUpstream([Turn(TEXT_CALL)] * 2) as upstream, gateway_on(upstream, "chat", budget) as gateway:
            got = ask(gateway, "chat", headers=header)
        assert (got.status, details(got)["error_code"]) == (429, "cost_cap_exceeded")
        assert f"of {cap} US dollars" in details(got)["error"]
        assert [one.body for one in upstream.requests] == [request("chat")] * 2


def test_a_transport_retry_is_no_final_round() -> None:
    """Rules 95, 111: the one final round is one that was answered; a 503 before it does not use it up."""
    budget = Budget(turn=TurnCap(cost_usd=COST, mode=CapMode.ENFORCE))
    script: list[Answer] = [Turn(TEXT_CALL), Fail(503, "busy"), OPEN]
    with ScriptedUpstream(script) as upstream, gateway_on(upstream, "chat", budget) as gateway:
        got = ask(gateway, "chat")
    assert (got.status, got.text) == (200, "Hello.")
    assert [one.body for one in upstream.requests] == [request("chat")] * 3


def test_the_ceiling_stands_above() -> None:
    """Rule 96: a budget with room does not raise the number of extra calls."""
    budget = Budget(caps=Caps(calls=100))
    with (
        ScriptedUpstream([Turn(TEXT_CALL)] * 9) as upstream,
        gateway_on(upstream, "chat", budget, limits=Limits(extra_calls=1)) as gateway,
    ):
        got = ask(gateway, "chat")
    assert got.status == 422
    assert [one.body for one in upstream.requests] == [request("chat")] * 2


# --- agents ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_a_run_that_has_spent_its_cap(wire: str) -> None:
    """Rules 89, 95: the next call is refused as `cost_cap_exceeded`, and one final round is granted."""
    budget = Budget(
        turn=TurnCap(cost_usd=COST, mode=CapMode.ENFORCE),
        prices=(ModelPrice(model="m", price=Price(input=2.5, output=10)),),
    )
    script: list[Answer] = [Turn(Call("get_weather", {"city": "Oslo"})), Turn(Say("I cannot tell."))]
    ran: list[str] = []

    def get_weather(city: str) -> str:
        """Look up the weather.

        Args:
            city: a city
        """
        ran.append(city)
        return "Sunny"

    with ScriptedUpstream(script, strict=True) as upstream:
        result = await agent_on(upstream, wire, tools=[get_weather], budget=budget).run("Weather?")
    refusal = "The call of `get_weather` was refused: what may be spent on this is spent."
    asked = user(wire, "Weather?")
    called = said(wire, 0, ("get_weather", {"city": "Oslo"}))
    written = refusal if wire == "messages" else f"Error: {refusal}"
    last = [asked, *called, *results(wire, 0, written, failed=True), user(wire, WORDS.step_cap)]
    none = {"type": "none"} if wire == "messages" else "none"
    assert [one.body for one in upstream.requests] == [
        ask_body(wire, [asked]),
        ask_body(wire, last, tool_choice=none),
    ]
    assert (ran, [call.status for call in result.calls]) == ([], [CallStatus.COST_CAP_EXCEEDED])
    assert (result.text, result.stopped) == ("I cannot tell.", "cost_cap")
    assert result.cost_usd == pytest.approx(2 * COST)
    assert result.cost_cap is not None
    assert (result.cost_cap.exceeded, result.cost_cap.blocked) == (True, True)


async def test_agents_share_a_session() -> None:
    """Rule 93: runs of several agents that name one session are charged to one account, others are not."""
    meter = MemoryMeter()
    with ScriptedUpstream([OPEN] * 4) as upstream:
        first, second, other = (
            agent_on(upstream, wire, tools=[], budget=Caps(calls=2), session=session, meter=meter)
            for wire, session in (("chat", "s"), ("messages", "s"), ("chat", "t"))
        )
        await first.run("a")
        await second.run("b")
        with pytest.raises(BudgetSpent, match="call cap is reached: 2 of 2 calls"):
            await first.run("c")
        await other.run("d")
    assert len(upstream.requests) == 3
    assert (await meter.spending("s")).spent == Charge(calls=2, tokens=74, estimated=True)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_run_is_its_own_session(stream: bool) -> None:
    """Rules 93, 116: without a session each run has all of its caps, and its steps share them."""
    script: list[Answer] = [Turn(Call("get_weather", {"city": "Oslo"})), OPEN] * 3
    with ScriptedUpstream(script) as upstream:
        agent = agent_on(upstream, "chat", budget=Caps(tokens=74), max_steps=3)
        for _ in range(2):
            result = await (agent.run("Hi") if not stream else _streamed(agent))
            assert result.text == "Hello."
        with pytest.raises(BudgetSpent):
            await agent_on(upstream, "chat", budget=Caps(calls=1)).run("Hi")
    assert len(upstream.requests) == 5


async def _streamed(agent: Agent) -> Any:
    async with agent.stream("Hi") as events:
        async for _ in events:
            pass
    return events.result


async def test_a_budget_spent_in_the_middle_of_a_stream() -> None:
    """Rules 94, 135: after text went out, a refused attempt is still the typed error for who runs an agent."""
    script: list[Answer] = [Turn(Say("Let me see. "), TEXT_CALL), OPEN]
    with ScriptedUpstream(script) as upstream:
        agent = agent_on(
            upstream, "chat", model="gpt-4o", budget=Caps(calls=1), controls=Controls(salvage=Salvage.NEVER)
        )
        with pytest.raises(BudgetSpent) as caught:
            await _streamed(agent)
    assert caught.value.details is not None
    assert caught.value.details["error_code"] == "session_call_cap"
    assert len(upstream.requests) == 1


async def test_a_session_without_a_budget_is_counted() -> None:
    """Rule 93: who names an account wants it kept, caps or none."""
    meter = MemoryMeter()
    with ScriptedUpstream([Turn(Say("Hi."))]) as upstream:
        await agent_on(upstream, "chat", tools=[], session="s", meter=meter).run("Hello?")
    assert (await meter.spending("s")).spent.calls == 1


async def test_what_is_given_up_is_not_reserved_for_ever() -> None:
    """Rule 94: a run that is left in the middle of its stream leaves no reservation behind, and its input counts."""
    meter = MemoryMeter()
    with ScriptedUpstream([Turn(Say("word " * 400))], chunking=16) as upstream:
        agent = agent_on(upstream, "chat", tools=[], budget=Budget(), session="s", meter=meter)
        async with agent.stream("Hi") as events:
            await anext(aiter(events))
    account = await meter.spending("s")
    assert (account.running, account.in_flight, account.spent.calls) == (0, Charge(), 1)
    assert account.spent.estimated
    assert account.spent.tokens > 0


async def test_a_stream_nobody_reads_is_settled() -> None:
    """Rules 94, 116: a caller that goes away before the first piece leaves no reservation and no connection behind."""
    chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}
    piece = b"data: %b\n\n" % json.dumps(chunk).encode()
    reply = FakeReply(piece, piece, headers={"content-type": "text/event-stream"})
    clock, meter = FakeClock(), MemoryMeter()
    turns = Turns(FakeTransport([reply]), clock)
    taken = await take(turns, Metering(Budget(), clock, meter=meter), "t", stream=True)
    assert isinstance(taken, StreamedReply)
    assert (await meter.spending("s")).running == 1
    await taken.chunks.aclose()
    assert ((await meter.spending("s")).running, reply.closed) == (0, True)


async def test_costs_without_a_budget() -> None:
    """Rules 98, 114: a run says what it cost; a model nobody has a price for costs 0 and says `estimated`."""
    for model, cost, estimated in (("gpt-4o-2024-08-06", COST, False), ("m", 0.0, True)):
        with ScriptedUpstream([OPEN]) as upstream:
            result = await agent_on(upstream, "chat", model=model).run("Hi")
        assert (result.cost_usd, result.estimated, result.cost_cap) == (pytest.approx(cost), estimated, None)


class _Broken:
    """A meter whose store is away."""

    def __getattr__(self, name: str) -> Any:
        async def fail(*_: Any) -> Any:
            raise OSError("the store is away")

        return fail


async def test_accounting_never_fails_a_request(caplog: pytest.LogCaptureFixture) -> None:
    """Rule 98: with a meter that raises at every step the run goes on, and the log says so."""
    with ScriptedUpstream([Turn(Call("get_weather", {"city": "Oslo"})), OPEN]) as upstream:
        agent = agent_on(upstream, "chat", budget=Caps(calls=1), session="s", meter=_Broken())
        result = await agent.run("Hi")
    assert (result.text, len(upstream.requests)) == ("Hello.", 2)
    assert "accounting failed: OSError" in caplog.text


async def test_what_tools_fetch() -> None:
    """Rule 99: bytes and hosts are capped per session, a host already used stays allowed, the model can answer."""
    seen: list[int | None] = []

    @tool
    async def fetch(host: str, size: int, context: ToolContext) -> str:
        """Fetch."""
        assert context.egress is not None
        seen.append(await context.egress.visit(host))
        await context.egress.charge(size)
        return "ok"

    hosts = [("a", 40), ("b", 10), ("a", 40), ("a", 20), ("a", 1)]
    script: list[Answer] = [*(Turn(Call("fetch", {"host": host, "size": size})) for host, size in hosts), OPEN]
    with ScriptedUpstream(script) as upstream:
        agent = agent_on(upstream, "chat", tools=[fetch], budget=Caps(egress_bytes=100, hosts=1))
        result = await agent.run("Fetch")
    assert [call.status for call in result.calls] == ["ok", "refused", "ok", "refused", "refused"]
    assert result.calls[1].result == (
        "The call of `fetch` was refused: the session may call no more than 1 hosts, and this is a new one."
    )
    assert "egress cap of 100 bytes is reached" in result.calls[3].result
    assert seen == [100, 60, 20]
    assert (result.text, len(upstream.requests)) == ("Hello.", 6)


# --- many at once ----------------------------------------------------------------------------------------------------


class _Busy:
    """A transport whose calls take a while and cost what they like; it knows what is under way."""

    def __init__(self, meter: MemoryMeter, cap: float, seed: int, dearest: int) -> None:
        self._meter, self._cap = meter, cap
        self._chance = random.Random(seed)
        self._dearest = dearest
        self.running = 0
        self.most = 0

    async def send(self, call: UpstreamCall) -> FakeReply:
        del call
        account = await self._meter.spending("s")
        assert account.spent.cost_usd < self._cap, "a call was made although the cap was reached"
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(self._chance.randrange(5)):
            await asyncio.sleep(0)
        self.running -= 1
        tokens = self._chance.randrange(self._dearest + 1)
        body = {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens},
        }
        return FakeReply(json.dumps(body).encode())

    async def close(self) -> None:
        """Nothing is open."""


@given(
    seed=st.integers(0, 2**32),
    callers=st.integers(1, 12),
    cap=st.integers(1, 20_000),
    dearest=st.integers(0, 3_000),
    expected=st.sampled_from([0, 100, 1000]),
)
@settings(max_examples=60, deadline=None)
def test_a_cap_is_passed_only_by_what_runs(seed: int, callers: int, cap: int, dearest: int, expected: int) -> None:
    """Rule 94: whatever calls cost and however many run, a cap is exceeded by no more than those in flight."""
    asyncio.run(_crowd(seed, callers, cap / 1_000_000, dearest, expected))


async def _crowd(seed: int, callers: int, cap: float, dearest: int, expected: int) -> None:
    clock, meter = FakeClock(), MemoryMeter(FakeClock())
    budget = Budget(
        caps=Caps(cost_usd=cap),
        prices=(ModelPrice(model="m", price=Price(input=1, output=1)),),
        expected_output_tokens=expected,
    )
    metering = Metering(budget, clock, meter=meter)
    transport = _Busy(meter, cap, seed, dearest)
    turns = Turns(transport, clock)
    made = 0

    async def caller(number: int) -> None:
        nonlocal made
        for turn in range(6):
            try:
                await take(turns, metering, f"{number}-{turn}")
                made += 1
            except BudgetSpent:
                await asyncio.sleep(0)

    await asyncio.gather(*(caller(number) for number in range(callers)))
    account = await meter.spending("s")
    assert (account.running, account.in_flight) == (0, Charge())
    assert account.spent.calls == made
    assert account.spent.cost_usd <= cap + transport.most * dearest / 1_000_000 + 1e-9


# --- the account book ------------------------------------------------------------------------------------------------


async def test_a_key_is_charged_once() -> None:
    """Rule 94: a run that is taken up again repeats its keys; none is reserved or charged twice."""
    meter, key, caps = MemoryMeter(FakeClock()), ChargeKey("t", "1", 1), Caps(calls=1)
    charge = Charge(calls=1, tokens=5)
    assert await meter.reserve("s", key, charge, caps) is None
    assert await meter.reserve("s", key, charge, caps) is None
    await meter.settle("s", key, charge)
    await meter.settle("s", key, charge)
    await meter.release("s", key)
    assert await meter.reserve("s", key, charge, caps) is None
    account = await meter.spending("s")
    assert (account.spent, account.running) == (charge, 0)
    assert (await meter.reserve("s", ChargeKey("t", "1", 2), charge, caps)) is not None
    await meter.settle("s", ChargeKey("t", "9", 1), charge)  # its reservation was lost with the store
    assert (await meter.spending("s")).spent == charge + charge


async def test_sessions_unused_the_longest_are_forgotten() -> None:
    """Rule 94: the book is bounded, and nobody who has a call running is struck out of it."""
    meter = MemoryMeter(FakeClock(), most_sessions=2)
    await meter.reserve("runs", ChargeKey("t", "", 1), Charge(calls=1), Caps())
    for name in ("old", "new"):
        await meter.settle(name, ChargeKey("t", "", 1), Charge(calls=1))
    spent = [(await meter.spending(name)).spent.calls for name in ("old", "new")]
    assert (spent, (await meter.spending("runs")).running) == ([0, 1], 1)
    assert await meter.spending("nobody") == Spending(started=1_000_000.0)
