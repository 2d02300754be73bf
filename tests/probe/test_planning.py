"""The plan and its request_budget: nothing that is announced is ever exceeded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.origin import Wire
from mustcall.core.reply import Usage
from mustcall.policy.limits.budget import Price
from mustcall.probe.catalogue import cells_for
from mustcall.probe.planning import ProbePlan, RequestBudget, plan_probe
from mustcall.probe.values import Level

USAGES = st.builds(Usage, input_tokens=st.integers(0, 400), output_tokens=st.integers(0, 400))


def plan_of(requests: int, tokens: int, usd: float | None) -> ProbePlan:
    """Return a plan with these limits."""
    return ProbePlan(
        wire=Wire.CHAT,
        level=Level.QUICK,
        client=None,
        cells=(),
        most_requests=requests,
        most_input_tokens=tokens,
        most_output_tokens=tokens,
        most_usd=usd,
    )


@given(
    st.integers(0, 30),
    st.integers(0, 3000),
    st.floats(0, 0.2),
    st.lists(st.tuples(USAGES, st.floats(0, 1)), max_size=60),
)
def test_a_purse_never_spends_more_than_the_plan(
    requests: int, tokens: int, usd: float, asked: list[tuple[Usage, float]]
) -> None:
    """Whatever is asked for: requests that are paid for take at most what was paid, so the sums stay below the plan."""
    price = Price(input=100.0, output=300.0)
    request_budget = RequestBudget(plan_of(requests, tokens, usd), price)
    for most, part in asked:
        if request_budget.take(most):
            took = Usage(input_tokens=int(most.input_tokens * part), output_tokens=int(most.output_tokens * part))
            request_budget.settle(most, took if part < 0.9 else None)
    assert request_budget.requests <= requests
    assert request_budget.usage.input_tokens <= tokens
    assert request_budget.usage.output_tokens <= tokens
    assert request_budget.cost <= usd + 1e-6


def test_requests_at_once_are_paid_for_before_any_has_ended() -> None:
    """What is open counts in full."""
    request_budget = RequestBudget(plan_of(9, 1000, None), None)
    each = Usage(input_tokens=400, output_tokens=10)
    assert [request_budget.take(each) for _ in range(3)] == [True, True, False]
    request_budget.settle(each, Usage(input_tokens=100, output_tokens=1))
    assert request_budget.take(each)


@pytest.mark.parametrize("wire", Wire)
def test_levels_have_the_size_that_is_said(wire: Wire) -> None:
    """Quick about 24, default about 200, deep 73 of each required cell that is one request."""
    sizes = {level: plan_probe(cells_for(wire, level), wire, level, None).most_requests for level in Level}
    assert 24 <= sizes[Level.QUICK] <= 31
    assert 180 <= sizes[Level.DEFAULT] <= 220
    deep = {cell.id: cell.tries.deep for cell in cells_for(wire, Level.DEEP)}
    assert {deep[name] for name in ("required", "required+reasoning+stream", "named", "none", "strict")} == {73}


def test_the_words_tell_what_is_known_of_the_cost() -> None:
    """A price, none, or nothing to pay."""
    cells = cells_for(Wire.CHAT, Level.QUICK)
    for price, words in ((None, "not known"), (Price(input=0, output=0), "no cost"), (Price(input=1, output=2), "$0.")):
        assert words in plan_probe(cells, Wire.CHAT, Level.QUICK, price).words
    capped = plan_probe(cells, Wire.CHAT, Level.QUICK, Price(input=1000, output=2000), max_usd=0.25)
    assert capped.most_usd == 0.25
    assert plan_probe(cells, Wire.CHAT, Level.QUICK, None, max_requests=5).most_requests == 5
