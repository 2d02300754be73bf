"""Breakers by upstream and failure class: gateways and agents leave alone what keeps failing (rules 94 and 111)."""

import itertools
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall import Agent, Budget, Upstream
from mustcall.core.errors import BreakerOpen, ErrorInfo, UpstreamGarbage, UpstreamTimeout, UpstreamUnavailable
from mustcall.engine.spending.accounts import MemoryBreakers
from mustcall.engine.spending.budget_account import BreakerRule, Caps
from mustcall.engine.turns import OperatorSettings
from mustcall.policy.facts.controls import Controls, Limits
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.failures.breaker import BreakerState
from mustcall.policy.failures.breaker_classes import FailureClass, failure_of, is_healthy
from mustcall.testing import (
    Answer,
    Cut,
    Fail,
    FakeClock,
    Reset,
    RunningGateway,
    Say,
    ScriptedUpstream,
    StreamError,
    Turn,
)
from rules.driving import PATHS, WAYS, request
from rules.outcomes import Outcome, read_outcome
from support.http import post

OPEN = Turn(Say("Hello."))
DOWN = Fail(500, "down")
RULE = BreakerRule(failures=2, cool_down=30)


class Stand:
    """A gateway that retries nothing by itself, with a breaker and time that stands still, before one upstream."""

    def __init__(self, *answers: Answer, wire: str = "chat", rule: BreakerRule = RULE, **controls: Any) -> None:
        self.clock = FakeClock()
        self.wire = wire
        self._upstream = ScriptedUpstream(answers).start()
        operator = OperatorSettings(
            budget=Budget(breaker=rule), controls=Controls(limits=Limits(extra_calls=0), **controls)
        )
        flags = [f"{name}:{wire}={self._upstream.base_url}" for name in ("a", "b")]
        self._gateway = RunningGateway(*flags, operator=operator, clock=self.clock)

    def __enter__(self) -> Self:
        self._gateway.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._gateway.close()
        self._upstream.close()

    def ask(self, model: str = "gpt-4o", *, key: str = "", **fields: Any) -> Outcome:
        """Take one turn."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        answer = post(self._gateway.url + PATHS[self.wire], request(self.wire, model=model, **fields), headers)
        return read_outcome(self.wire, answer)

    @property
    def calls(self) -> int:
        """Calls the upstream got."""
        return len(self._upstream.requests)


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_an_open_breaker_refuses_at_once(wire: str, stream: bool) -> None:
    """Rule 94: after so many failures in a row no call is made, and the error says what, why and for how long."""
    with Stand(DOWN, DOWN, OPEN, wire=wire) as stand:
        failed = [stand.ask(stream=stream).status for _ in range(2)]
        stand.clock.advance(10)
        got = stand.ask(stream=stream)
        assert stand.calls == 2
    assert failed == [500, 500]
    assert (got.status, got.headers["retry-after"], got.attempts) == (503, "20", 0)
    assert got.error["details"] == {"upstream": "a", "failure": "server", "retry_after": 20.0, "transient": True}
    assert got.message == (
        "the upstream 'a' failed 2 times in a row (server); "
        "its circuit is open for another 20.0 seconds; no call was made"
    )
    if wire != "messages":  # that wire's error has no place for a code
        assert got.error["code"] == "breaker_open"


def test_a_probe_that_succeeds_closes_it() -> None:
    """Rule 111: after the cool-down one call is let through to see; when it succeeds everything is as before."""
    with Stand(DOWN, DOWN, OPEN, DOWN, OPEN) as stand:
        for _ in range(2):
            stand.ask()
        stand.clock.advance(30)
        assert [stand.ask().status for _ in range(3)] == [200, 500, 200]
        assert stand.calls == 5


def test_a_probe_that_fails_opens_it_again() -> None:
    """Rule 111: one failed probe is enough, and the cool-down begins anew."""
    with Stand(DOWN, DOWN, DOWN, OPEN) as stand:
        for _ in range(2):
            stand.ask()
        stand.clock.advance(30)
        assert [stand.ask().status for _ in range(2)] == [500, 503]
        stand.clock.advance(29.5)
        refused = stand.ask()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        stand.clock.advance(0.5)
        assert stand.ask().status == 200
        assert stand.calls == 4


def test_another_upstream_is_not_concerned() -> None:
    """Rule 111: breakers are kept by upstream."""
    with Stand(DOWN, DOWN, OPEN) as stand:
        statuses = [stand.ask(f"{name}/gpt-4o").status for name in ("a", "a", "a", "b")]
        assert (statuses, stand.calls) == ([500, 500, 503, 200], 3)


def test_classes_are_counted_apart() -> None:
    """Rule 111: failures of two kinds in turn are not two of one kind; a third of one of them is."""
    with Stand(DOWN, Fail(529, "overloaded"), DOWN, OPEN) as stand:
        statuses = [stand.ask().status for _ in range(4)]
        assert (statuses, stand.calls) == ([500, 529, 500, 503], 3)


def test_a_success_begins_the_count_anew() -> None:
    """Rule 111: only failures in a row count."""
    with Stand(DOWN, OPEN, DOWN, OPEN) as stand:
        assert [stand.ask().status for _ in range(4)] == [500, 200, 500, 200]


@pytest.mark.parametrize(
    "refusal", [Fail(400, "bad"), Fail(401, "no key"), Fail(404, "no model"), Fail(429, "insufficient_quota")]
)
def test_what_is_not_the_upstreams_fault(refusal: Fail) -> None:
    """Rule 111: the caller's own faults, keys and quotas open nothing."""
    with Stand(*[refusal] * 4) as stand:
        assert [stand.ask().status for _ in range(4)] == [refusal.status] * 4


def test_throttling_by_anothers_key() -> None:
    """Rule 111: where callers bring their own keys, one that is throttled does not shut the door for the others."""
    throttled = Fail(429, "slow down")
    with Stand(throttled, throttled, OPEN) as stand:
        assert [stand.ask(key=key).status for key in ("k1", "k1", "k2")] == [429, 429, 200]
    with Stand(throttled, throttled, OPEN) as stand:
        assert [stand.ask().status for _ in range(3)] == [429, 429, 503]


@pytest.mark.parametrize("protocol", [None, Protocol.OFF])
@pytest.mark.parametrize("broken", [Cut(OPEN, 400), StreamError(OPEN, type="overloaded_error"), Reset(OPEN, 400)])
def test_answers_that_break_off_count(broken: Answer, protocol: Protocol | None) -> None:
    """Rules 41, 111: a stream that is cut, or ends in the upstream's error, is a failure although it began well."""
    with Stand(broken, broken, OPEN, wire="messages", protocol=protocol) as stand:
        for _ in range(2):
            assert stand.ask(stream=True).error
        assert stand.ask(stream=True).status == 503
        assert stand.calls == 2


def test_retries_stop_when_the_breaker_opens() -> None:
    """Rule 94: a turn's own retries are checked like first calls."""
    clock = FakeClock()
    operator = OperatorSettings(budget=Budget(breaker=RULE))
    with (
        ScriptedUpstream([DOWN] * 5) as upstream,
        RunningGateway(f"chat={upstream.base_url}", operator=operator, clock=clock) as gateway,
    ):
        got = read_outcome("chat", post(gateway.url + PATHS["chat"], request("chat")))
    assert (got.status, got.error["code"], got.attempts) == (503, "breaker_open", 2)
    assert [one.body for one in upstream.requests] == [request("chat")] * 2


def test_a_refused_call_is_no_probe() -> None:
    """Rules 94, 111: a call that the budget refuses leaves the probe to the next one."""
    clock = FakeClock()
    operator = OperatorSettings(
        budget=Budget(breaker=RULE, caps=Caps(calls=3)), controls=Controls(limits=Limits(extra_calls=0))
    )
    with (
        ScriptedUpstream([DOWN, DOWN, OPEN, OPEN]) as upstream,
        RunningGateway(f"chat={upstream.base_url}", operator=operator, clock=clock) as gateway,
    ):

        def ask(session: str) -> int:
            headers = {"x-mustcall-session": session}
            return post(gateway.url + PATHS["chat"], request("chat"), headers).status

        assert [ask("s"), ask("s")] == [500, 500]
        clock.advance(30)
        assert [ask("s"), ask("s"), ask("t")] == [200, 429, 200]


async def test_agents_on_one_upstream_share_its_breaker() -> None:
    """Rule 94: the typed error of an agent, and no call; every agent on that upstream knows."""
    with ScriptedUpstream([DOWN] * 3) as upstream:
        controls = Controls(limits=Limits(extra_calls=0))
        where = Upstream(f"chat={upstream.base_url}", model="m")
        first, second = (Agent(where, budget=Budget(breaker=RULE), controls=controls) for _ in range(2))
        for _ in range(2):
            assert (await first.run("Hi", check=False)).stopped == "failed"
        with pytest.raises(BreakerOpen) as caught:
            await second.run("Hi")
    assert len(upstream.requests) == 2
    assert 0 < caught.value.retry_after <= 30


async def test_one_probe_at_a_time() -> None:
    """Rule 111: while a probe is out nobody else gets through; one that tells nothing makes room for the next."""
    clock = FakeClock()
    breakers = MemoryBreakers(clock)
    for _ in range(2):
        await breakers.report("u", RULE, FailureClass.SERVER)
    assert await breakers.allow("u", RULE) == (FailureClass.SERVER, 30.0)
    clock.advance(30)
    assert [await breakers.allow("u", RULE) for _ in range(3)] == [None, *[(FailureClass.SERVER, 30.0)] * 2]
    await breakers.forgo("u", RULE)
    assert await breakers.allow("u", RULE) is None
    assert breakers.state("u")[FailureClass.SERVER].state is BreakerState.HALF_OPEN
    await breakers.report("u", RULE, FailureClass.TIMEOUT)  # says nothing of the other class
    assert await breakers.allow("u", RULE) is None
    await breakers.report("u", RULE, None)
    assert breakers.state("u") == {}


@given(st.lists(st.sampled_from([None, *FailureClass, "forgo", "wait"]), max_size=60), st.integers(0, 3))
async def test_a_breaker_never_stays_shut(events: list[Any], failures: int) -> None:
    """Rule 111: whatever happened, after one cool-down a call gets through; with `failures` 0 always."""
    clock, rule = FakeClock(), BreakerRule(failures=failures, cool_down=10)
    breakers = MemoryBreakers(clock)
    for event in events:
        if event == "wait":
            clock.advance(4)
        elif await breakers.allow("u", rule) is None:
            await (breakers.forgo("u", rule) if event == "forgo" else breakers.report("u", rule, event))
        else:
            assert failures
    clock.advance(10)
    assert await breakers.allow("u", rule) is None


def test_classes_of_failures() -> None:
    """Rule 111: the one predicate decides; each failure has one class."""
    codes = {UpstreamUnavailable: "connection", UpstreamTimeout: "timeout", UpstreamGarbage: "garbage"}
    assert {kind: failure_of(kind("x").info()) for kind in codes} == codes
    statuses = {408: "timeout", 429: "throttled", 500: "server", 502: "server", 503: "overloaded", 504: "timeout"}
    statuses |= {529: "overloaded", 522: "timeout", 400: None, 401: None, 404: None, 413: None}
    for status, expected in statuses.items():
        assert failure_of(ErrorInfo(message="x", status=status, code="c")) == expected
    quota = ErrorInfo(message="You exceeded your current quota", status=429, code="insufficient_quota")
    assert failure_of(quota) is None
    healthy = [is_healthy(ErrorInfo(message="x", status=status, code="c")) for status in (400, 401, 429, 500)]
    assert healthy == [True, False, False, False]
    assert len(set(itertools.chain(FailureClass))) == 6
