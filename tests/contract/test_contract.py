"""The contract of the gateway against an upstream that lies: on every turn exactly one outcome, and nothing leaks.

Replay a seed that failed with `python tools/soak.py --seed N`.
"""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from contract.client import ROUNDS, Caller
from contract.running import Report, open_arena, run_turns
from contract.scenario import COMBINATIONS, build

SHARDS = 19
TURNS = ROUNDS * len(COMBINATIONS)
_SHOWN = 5


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # an SDK about odd but harmless fields
@pytest.mark.parametrize("shard", range(SHARDS))
async def test_the_contract_holds(shard: int) -> None:
    """Rules 35, 40, 53, 96, 113, 125, 126, 135: whatever the upstream does, one outcome, few calls, no leak."""
    reports: list[Report] = []
    with open_arena() as arena:
        await run_turns(arena, range(shard * TURNS, (shard + 1) * TURNS), reports.append)
    assert len(reports) == TURNS
    bad = [report for report in reports if report.violations]
    told = "\n\n".join(report.explain() for report in bad[:_SHOWN])
    assert not bad, f"{len(bad)} of {TURNS} turns violate the contract:\n\n{told}"
    outcomes = Counter("calls" if one.outcome.calls else one.outcome.kind for one in reports)
    assert min(outcomes[kind] for kind in ("calls", "answered", "failed")) >= TURNS // 20, outcomes


async def test_a_body_is_the_same_however_it_is_given_to_the_sdk() -> None:
    """What the SDK's own way through the arguments makes of each combination is what is sent without it."""
    sent: list[Any] = []

    def refuse(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        return httpx2.Response(400, json={"error": {"message": "no"}})

    caller = Caller("http://sdk.invalid", transport=httpx2.MockTransport(refuse))
    for number in range(2 * len(COMBINATIONS)):
        scenario = build(len(COMBINATIONS) + number)
        await caller.take(scenario)
        await caller.take(replace(scenario, seed=0))
    await caller.close()
    assert len(sent) == 4 * len(COMBINATIONS)
    assert sent[0::2] == sent[1::2]


def test_the_turns_are_enough_and_of_every_kind() -> None:
    """At least 2,000 turns: each wire to each wire, streamed and not, with every choice, honest and not."""
    scenarios = [build(seed) for seed in range(SHARDS * TURNS)]
    assert len(scenarios) >= 2000
    pairs = Counter((one.caller, one.upstream, one.stream) for one in scenarios)
    assert set(pairs) == set(COMBINATIONS)
    assert min(pairs.values()) == max(pairs.values())
    assert {(one.caller, one.upstream, one.stream) for one in scenarios if one.demand.hangs} == set(COMBINATIONS)
    choices = Counter("absent" if one.choice is None else one.choice.mode for one in scenarios)
    assert set(choices) == {"absent", "auto", "none", "required", "named"}
    assert {dirt for one in scenarios for dirt in one.dirt} >= {"orphan call", "orphan result", "leftover markup"}
    assert {one.demand.honest_from for one in scenarios} == {None, 0, 1, 2, 3, 4}


def test_a_seed_is_a_turn() -> None:
    """The same seed gives the same turn, another seed another."""
    assert build(7) == build(7)
    assert build(7) != build(7 + len(COMBINATIONS))
