"""Two gateways on one PostgreSQL: one cap, one breaker, one state, also across a SIGKILL."""

import asyncio
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import msgspec
import openai

from mustcall import Budget
from mustcall.core.origin import Wire
from mustcall.engine.spending.metered import breaker_name
from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.policy.facts.controls import Controls, Limits
from mustcall.policy.failures.breaker import BreakerRule
from mustcall.policy.limits.budget import Caps
from mustcall.testing import Delayed, Fail, Hang, Recorded, RunningGateway, Say, ScriptedUpstream, Turn
from mustcall.upstream.endpoint import Endpoint
from support import warm
from support.http import call, post
from support.postgres import postgres_server

ASK: dict[str, Any] = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}]}
KEY = {"authorization": "Bearer k"}


@contextmanager
def replicas(upstream: ScriptedUpstream, budget: Budget) -> Generator[tuple[RunningGateway, RunningGateway]]:
    """Two gateways that share a database and a budget."""
    place = postgres_server().new_database()
    operator = OperatorSettings(budget=budget, controls=Controls(limits=Limits(extra_calls=0)))
    settings = settings_from_flags(f"chat={upstream.base_url}", operator=operator, ledger=LedgerSettings(place=place))
    endpoints = tuple(
        msgspec.structs.replace(one, backoff=msgspec.structs.replace(one.backoff, retries=0))
        for one in settings.endpoints
    )
    settings = msgspec.structs.replace(settings, endpoints=endpoints)
    with RunningGateway(settings=settings) as one, RunningGateway(settings=settings) as other:
        yield one, other


async def test_one_cap_for_both() -> None:
    """Rule 94: of forty requests at once over two replicas, a cap of six calls lets six through."""
    with (
        ScriptedUpstream(lambda _: Delayed(Turn(Say("Hello.")), 0.2)) as upstream,
        replicas(upstream, Budget(caps=Caps(calls=6))) as gateways,
    ):
        answers = await asyncio.gather(
            *(asyncio.to_thread(post, f"{gateways[n % 2].base_url}/chat/completions", ASK, KEY) for n in range(40))
        )
        assert sorted(answer.status for answer in answers) == [200] * 6 + [429] * 34
        assert len(upstream.requests) == 6


def test_one_breaker_for_both() -> None:
    """A breaker opened by failures at one replica is open at the other, which has seen none."""
    with (
        ScriptedUpstream(lambda _: Fail(500, "down")) as upstream,
        replicas(upstream, Budget(breaker=BreakerRule(failures=2, cool_down=600))) as (one, other),
    ):
        for _ in range(2):
            post(f"{one.base_url}/chat/completions", ASK, KEY)
        assert post(f"{one.base_url}/chat/completions", ASK, KEY).json["error"]["code"] == "breaker_open"
        # It is up, so its ledger is open.
        assert call("GET", other.base_url.removesuffix("/v1") + "/healthz").status == 200
        metering = other.app._metering
        assert metering is not None
        name = breaker_name(Endpoint(name="chat", wire=Wire.CHAT, base_url=upstream.base_url))
        while not metering.breakers.state(name):
            time.sleep(0.01)
        assert post(f"{other.base_url}/chat/completions", ASK, KEY).json["error"]["code"] == "breaker_open"
        assert len(upstream.requests) == 2


@contextmanager
def served(upstream: ScriptedUpstream, place: str) -> Generator[tuple[warm.Process, str]]:
    """`mustcall serve` in a process of its own, and where it listens."""
    arguments = ("serve", "--port", "0", "--ledger", place, "--upstream", f"chat={upstream.base_url}")
    process = warm.start(*arguments, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_a_replica_that_is_killed_in_a_stream_loses_nothing_stored() -> None:
    """SIGKILL in the middle of a stream: every response whose end its caller saw can be gone on from elsewhere."""
    place = postgres_server().new_database()

    def answer(recorded: Recorded) -> Turn | Hang:
        asked = recorded.body["messages"]
        return (
            Hang(Turn(Say("never ends " * 400)), after=6000)
            if asked[-1]["content"] == "hang"
            else Turn(Say(f"{len(asked)} messages"))
        )

    with ScriptedUpstream(answer) as upstream:
        previous: str | None = None
        said: list[str] = []
        for _ in range(2):
            with (
                served(upstream, place) as (process, url),
                openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as ai,
            ):
                for _ in range(2):
                    made = ai.responses.create(model="m", input="go on", previous_response_id=previous)
                    said.append(made.output_text)
                    previous = made.id
                stream = ai.responses.create(model="m", input="hang", previous_response_id=previous, stream=True)
                process.send_signal(signal.SIGKILL)
                process.wait()
                stream.close()
        assert said == ["1 messages", "3 messages", "5 messages", "7 messages"]
