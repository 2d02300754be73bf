"""Turns run for real: a lying upstream, a gateway before it, SDK clients before that, many turns at once."""

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from contract.checker import check
from contract.client import Caller, Outcome
from contract.scenario import Scenario, build
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.policy.failures.backoff import Backoff
from mustcall.profiles import read_overrides
from mustcall.testing import Recorded, RunningGateway, ScriptedUpstream
from mustcall.testing.adversary.upstream import Adversary, AttemptTruth
from mustcall.upstream.retry import SystemClock
from mustcall.upstream.seam import Timeouts
from support.compared import leave

__all__ = ["HASTY", "PATIENT", "Arena", "HastyClock", "Report", "open_arena", "run_turns"]

_AT_ONCE = 8

#: A machine may stand still for seconds: only turns whose upstream hangs are ended by the clock.
PATIENT = Timeouts(connect=180, read=180, idle=180)
HASTY = Timeouts(connect=180, read=0.5, idle=0.5)

#: Strict rules about what this upstream issued itself: most of its replies are written by hand and not remembered.
_WAIVED = (
    "keeps_thinking",
    "keeps_reasoning",
    "follows_reasoning",
    "knows_encrypted_reasoning",
    "knows_previous_response",
)


class HastyClock(SystemClock):
    """Real time, but no wait is longer than a moment: the adversary asks for many."""

    async def sleep(self, seconds: float) -> None:
        """Wait a moment."""
        await asyncio.sleep(min(seconds, 0.002))


@dataclass(frozen=True)
class Report:
    """One turn, done and checked."""

    scenario: Scenario
    outcome: Outcome
    told: list[AttemptTruth]
    requests: list[Recorded]
    violations: list[str]

    def explain(self) -> str:
        """Everything about the turn that helps to understand a violation."""
        lines = [f"seed {self.scenario.seed}: {self.scenario.describe()}"]
        lines += [f"  ! {violation}" for violation in self.violations]
        lines += [f"  attempt {k}: {one.what}{' (honest)' if one.honest else ''}" for k, one in enumerate(self.told)]
        lines += [
            f"  request {k}: refused by {one.refused_by}" for k, one in enumerate(self.requests) if one.refused_by
        ]
        outcome = self.outcome
        lines.append(f"  outcome: {outcome.kind} {outcome.status or ''} {outcome.message[:200]}".rstrip())
        if outcome.kind == "answered":
            lines.append(f"  finish {outcome.finish}, text {outcome.text[:200]!r}, calls {outcome.calls}")
        ours = {key: value for key, value in outcome.capture.headers.items() if key.startswith("x-mustcall")}
        return "\n".join([*lines, f"  headers {ours}"])


@dataclass(frozen=True)
class Arena:
    """An upstream that lies and a gateway that must not."""

    adversary: Adversary
    upstream: ScriptedUpstream
    gateway: RunningGateway
    trusting: bool = False


@contextmanager
def open_arena(*, trusting: bool = False) -> Generator[Arena]:
    """Start both for the length of a shard; `trusting` is a gateway to which the liar has a clean record."""
    adversary = Adversary()
    with ScriptedUpstream(adversary, strict=True, waive=_WAIVED) as upstream:
        leave(upstream, "the replies decide what is asked again; the checker looks through every body")
        wires = ("chat", "responses", "messages")
        flags = [f"{wire}{pace}:{wire}={upstream.base_url}" for wire in wires for pace in ("", "-hasty")]
        settings = settings_from_flags(*flags)
        endpoints = tuple(
            msgspec.structs.replace(
                endpoint,
                backoff=Backoff(retries=2),
                timeouts=HASTY if endpoint.name.endswith("-hasty") else PATIENT,
            )
            for endpoint in settings.endpoints
        )
        settings = msgspec.structs.replace(settings, endpoints=endpoints)
        if trusting:
            overrides = read_overrides([{"models": ["*"], "trusted_arguments": True}], "contract")
            operator = msgspec.structs.replace(settings.operator, overrides=overrides)
            settings = msgspec.structs.replace(settings, operator=operator)
        with RunningGateway(settings=settings, clock=HastyClock(), request_timeout=600.0) as gateway:
            yield Arena(adversary, upstream, gateway, trusting)


async def run_turns(arena: Arena, seeds: Iterable[int], on_report: Callable[[Report], None]) -> None:
    """Run the turns of these seeds, several at once; each report is handed over as soon as it is there."""
    caller = Caller(arena.gateway.url)
    limit = asyncio.Semaphore(_AT_ONCE)
    try:
        async with asyncio.TaskGroup() as group:
            for seed in seeds:
                await limit.acquire()
                task = group.create_task(_run_turn(arena, caller, build(seed), on_report))
                task.add_done_callback(lambda _: limit.release())
    finally:
        await caller.close()


async def _run_turn(arena: Arena, caller: Caller, scenario: Scenario, on_report: Callable[[Report], None]) -> None:
    arena.adversary.expect(scenario.model, scenario.demand)
    outcome = await caller.take(scenario)
    requests = [
        one
        for one in list(arena.upstream.requests)
        if isinstance(one.body, dict) and one.body.get("model") == scenario.model
    ]
    told = arena.adversary.forget(scenario.model)
    violations = check(scenario, outcome, told, requests, trusting=arena.trusting)
    on_report(Report(scenario, outcome, told, requests, violations))
