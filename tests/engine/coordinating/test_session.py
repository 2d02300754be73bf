"""A coordinated answer spends as one session: its cost, its caps and what its tools fetch."""

from typing import Any

import pytest

from mustcall import Budget, Caps, CoordinateResult, Upstream, coordinate
from mustcall.core.errors import QuorumMissed, RoleFailed
from mustcall.engine.spending.accounts import MemoryMeter
from mustcall.engine.spending.budget_account import CapMode, ModelPrice, Price, TurnCap
from mustcall.testing import Answer, Call, Recorded, Say, ScriptedUpstream, Turn
from mustcall.toolkit.builtin.fetch import fetch_tool
from mustcall.toolkit.builtin.verify import Verifier, verify_tool
from support.agents import get_weather
from support.pages import fetcher, page, serving

#: A dollar for each token in, two for each out: 25 and 12 of them are 49 dollars.
DEAR = (ModelPrice(model="m", price=Price(input=1e6, output=2e6)),)
QUESTION = "How high is the tower?"


def model(*first: Answer) -> "tuple[ScriptedUpstream, list[Answer]]":
    """A model that plays every role, and makes these answers before its first proposal."""
    waiting = list(first)

    def answer(recorded: Recorded) -> Answer:
        text = str(recorded.body)
        if "You propose" in text:
            return waiting.pop(0) if waiting else Turn(Say('{"answer":"330 m"}'))
        if "You check a claim" in text:
            return Turn(Say('{"verdict":"supported","quotes":["330 m"]}'))
        return Turn(Say('{"stance":"agree"}' if "You check" in text else '{"answer":"It is 330 metres high."}'))

    return ScriptedUpstream(answer), waiting


async def ask(upstream: ScriptedUpstream, **settings: Any) -> CoordinateResult:
    """Coordinate an answer with one critic, all on one model."""
    where = Upstream(f"chat={upstream.base_url}", model="m", api_key="k")
    return await coordinate(QUESTION, proposer=where, critics=[where], synthesizer=where, **settings)


async def test_what_roles_cost() -> None:
    """Rules 93, 98: each role's cost is told, and their sum; a model without a price is 0 and estimated."""
    with model()[0] as upstream:
        result = await ask(upstream, budget=Budget(prices=DEAR))
        assert [role.cost_usd for role in result.roles] == [49.0, 49.0, 49.0]
        assert (result.cost_usd, result.estimated) == (147.0, False)
        result = await ask(upstream)
        assert (result.cost_usd, result.estimated) == (0.0, True)


async def test_one_account() -> None:
    """Rule 93: every role's calls, and those of a tool's own model, are spent by the one session and told with it."""
    meter = MemoryMeter()
    script = Turn(Call("verify", {"claim": "It is 330 m high.", "evidence": "It is 330 m high."}))
    with model(script)[0] as upstream:
        where = Upstream(f"chat={upstream.base_url}", model="m", api_key="k")
        budget = Budget(prices=DEAR)
        verifier = Verifier(where, budget=budget, session="s", meter=meter)
        result = await ask(upstream, worker_tools=[verify_tool(verifier)], session="s", meter=meter, budget=budget)
        account = await meter.spending("s")
    assert result.session == "s"
    assert (account.spent.calls, account.spent.cost_usd) == (5, 245.0)
    assert (result.attempts, verifier.attempts, result.cost_usd) == (5, 1, 245.0)
    assert [(role.name, role.attempts, role.cost_usd) for role in result.roles] == [
        ("proposer", 3, 147.0),
        ("critic_1", 1, 49.0),
        ("synthesizer", 1, 49.0),
    ]
    assert (result.usage.input_tokens, result.usage.output_tokens) == (125, 60)


@pytest.mark.parametrize(("calls", "error"), [(1, QuorumMissed), (2, RoleFailed)])
async def test_a_spent_session(calls: int, error: type[Exception]) -> None:
    """Rule 94: when the session's cap is reached no role makes another call, and the error says why."""
    with model()[0] as upstream:
        with pytest.raises(error) as raised:
            await ask(upstream, budget=Caps(calls=calls), session=f"spent-{calls}")
        assert len(upstream.requests) == calls
    assert "budget_spent" in str(getattr(raised.value, "details", ""))


async def test_a_spent_turn() -> None:
    """Rules 89, 95: a role whose own cost cap is reached is refused its next call and gets one final round."""
    with model(Turn(Call("get_weather", {"city": "Oslo"})))[0] as upstream:
        budget = Budget(prices=DEAR, turn=TurnCap(cost_usd=10, mode=CapMode.ENFORCE))
        result = await ask(upstream, budget=budget, worker_tools=[get_weather])
    assert [(call.name, str(call.status)) for call in result.inner_tool_calls["proposer"]] == [
        ("get_weather", "cost_cap_exceeded")
    ]
    assert result.answer == "It is 330 metres high."


async def test_what_a_session_fetches() -> None:
    """Rule 99: hosts are the session's, whichever role fetches; a new one over the cap is refused."""
    async with serving({"/": page(b"0123456789")}) as site:
        turns = [Turn(Call("fetch", {"url": f"http://{name}.test:{site.port}/"})) for name in "ab"]
        with model(*turns)[0] as upstream:
            tool = fetch_tool(fetcher(f"*:{site.port}", private=["127.0.0.1/32"]))
            meter = MemoryMeter()
            result = await ask(upstream, worker_tools=[tool], budget=Caps(hosts=1), session="s", meter=meter)
    assert [str(call.status) for call in result.inner_tool_calls["proposer"]] == ["ok", "refused"]
    assert site.connections == 1
    assert (await meter.spending("s")).spent.egress_bytes == 10
