"""The search for a smaller candidate, without an upstream."""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Generator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.replay.reducing import CONFIRMING, LEAST_CALLS, FoundReduction, Reducer, ReductionPhase

Units = frozenset[int]
UNITS = ReductionPhase[Units](
    "units",
    len,
    lambda units, kept: frozenset(sorted(units)[place] for place in kept),
    again=True,
)


def search(
    size: int, oracle: Callable[[Units], str], most: int, *, wanted: str = ""
) -> tuple[FoundReduction[Units], list[Units]]:
    """Run a search; return what it found and every candidate that was asked for."""
    reducer: Reducer[Units] = Reducer(most, lambda verdict: verdict == "ok", wanted=wanted)
    asked: list[Units] = []
    run: Generator[Units, str, FoundReduction[Units]] = reducer.run(frozenset(range(size)), [UNITS])
    try:
        candidate = next(run)
        while True:
            asked.append(candidate)
            candidate = run.send(oracle(candidate))
    except StopIteration as ended:
        return ended.value, asked


def fails_with(needed: Units) -> Callable[[Units], str]:
    """A model that fails whenever all of these are there."""
    return lambda units: "bad" if needed <= units else "ok"


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_the_result_is_what_is_needed_and_nothing_else(data: st.DataObject) -> None:
    """For a deterministic, monotone oracle and enough calls the result is 1-minimal: here, the one minimal set."""
    size = data.draw(st.integers(1, 60))
    needed = frozenset(data.draw(st.lists(st.integers(0, size - 1), max_size=4)))
    found, asked = search(size, fails_with(needed), 2000)
    assert found.result == needed
    assert found.confirmed == (10, 10)
    assert found.calls == len(asked)
    assert not found.spent


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_monotone_oracle_with_several_minima_ends_in_one_of_them(data: st.DataObject) -> None:
    """No unit of the result can be left out."""
    size = data.draw(st.integers(1, 30))
    sets = data.draw(st.lists(st.frozensets(st.integers(0, size - 1), min_size=1, max_size=3), min_size=1, max_size=4))

    def oracle(units: Units) -> str:
        return "bad" if any(one <= units for one in sets) else "ok"

    found, _ = search(size, oracle, 2000)
    assert oracle(found.result) == "bad"
    assert all(oracle(found.result - {one}) == "ok" for one in found.result)


@given(st.integers(LEAST_CALLS, 150), st.integers(1, 60), st.randoms(use_true_random=False), st.floats(0, 1))
@settings(max_examples=300, deadline=None)
def test_no_more_calls_are_made_than_announced(most: int, size: int, chance: random.Random, rate: float) -> None:
    """Whatever the answers are, also at random, the budget holds, the confirmation included."""
    found, asked = search(size, lambda _units: "bad" if chance.random() < rate else "ok", most)
    assert len(asked) == found.calls <= most
    if found.verdict:
        assert found.confirmed[1] == CONFIRMING


@given(st.integers(1, 40), st.integers(LEAST_CALLS, 80))
@settings(max_examples=100, deadline=None)
def test_what_the_budget_allows_has_failed_before_it_is_returned(size: int, most: int) -> None:
    """A search that ends early returns a candidate that counted, never one that was not tried."""
    needed = frozenset({0, size // 2, size - 1})
    found, asked = search(size, fails_with(needed), most)
    assert needed <= found.result
    assert asked.count(found.result) >= 3


def test_one_of_31_takes_eight_candidates() -> None:
    """The cost is logarithmic: the empty one, five bisections, and a look at whether that was all, twice over.

    What fails is seen at its first call, what does not after four at most; the result counts after three.
    """
    found, asked = search(31, fails_with(frozenset({17})), 120)
    assert found.result == {17}
    assert found.candidates <= 9
    calls = [len(list(group)) for _, group in itertools.groupby(asked)]
    in_search = calls[1:-1]
    fails = [17 in next(group) for group in (iter(asked[sum(calls[:place]) :]) for place in range(1, len(calls) - 1))]
    assert calls[0] == 3
    assert all(count <= 4 for count in in_search)
    assert [count for count, failing in zip(in_search, fails, strict=True) if failing] == [1, 1, 1, 1 + 3]
    assert calls[-1] == CONFIRMING


def test_a_request_that_works_is_said_to_work() -> None:
    """Seven good replies decide it: one that fails six times of ten gives them twice in a thousand."""
    found, asked = search(10, lambda _units: "ok", 120)
    assert (found.verdict, found.original, len(asked)) == ("", (0, 7), 7)


def test_a_request_that_fails_now_and_then_is_asked_more_often_before_it_is_given_up() -> None:
    """Three rounds as long as it may still be one that counts; what it failed in is told."""
    answers = iter(["bad", "ok", "ok", "bad", "ok", "ok", "ok"] * 3)
    found, asked = search(10, lambda _units: next(answers), 120)
    assert (found.verdict, found.original, len(asked)) == ("", (5, 15), 15)


def test_calls_of_an_earlier_pass_count_in_the_next() -> None:
    """A single failure of what has lost the cause misleads the first pass only; no decided candidate is asked again."""
    asked_of: Counter[Units] = Counter()

    def oracle(units: Units) -> str:
        asked_of[units] += 1
        by_chance = units == frozenset(range(7)) and asked_of[units] == 1
        return "bad" if 17 in units or by_chance else "ok"

    found, asked = search(31, oracle, 120)
    assert found.result == {17}
    assert len(asked) == found.calls <= 120
    assert not found.spent


def test_an_upstream_that_stops_failing_is_seen_at_the_confirmation() -> None:
    """The last word is ten fresh calls."""
    left = iter(["bad"] * 7)
    found, asked = search(4, lambda _units: next(left, "ok"), 120)
    assert found.verdict == "bad"
    assert not found.is_confirmed
    # Three for the original, one for the request without anything, three for its trials: none is left.
    assert asked[:7] == [frozenset(range(4))] * 3 + [frozenset()] * 4
    assert found.confirmed == (0, 10)


def test_the_verdict_that_is_looked_for_is_the_one_that_repeats() -> None:
    """Another failure is not the same failure."""

    def oracle(units: Units) -> str:
        return "truncated" if 3 in units else "empty"

    found, _ = search(8, oracle, 200)
    assert (found.verdict, found.result) == ("truncated", frozenset({3}))
    other, _ = search(8, oracle, 200, wanted="empty")
    assert other.verdict == ""


def test_failures_of_different_kinds_are_not_added_up() -> None:
    """Two of one kind and two of another are no three of five, and two is what is told."""
    answers = iter(["empty", "truncated", "ok", "truncated", "empty", *["ok"] * 99])
    found, _ = search(8, lambda _units: next(answers), 120)
    assert (found.verdict, found.original[0]) == ("", 2)


def flaky(needed: Units, rate: float, seed: int) -> Callable[[Units], str]:
    """A model that fails so often when all of these are there."""
    chance = random.Random(seed)
    return lambda units: "bad" if needed <= units and chance.random() < rate else "ok"


def exact(seeds: Sequence[int], rate: float, most: int) -> int:
    """Count the searches that end with exactly what is needed."""
    return sum(search(31, flaky(frozenset({17}), rate, seed), most)[0].result == frozenset({17}) for seed in seeds)


@pytest.mark.parametrize(("rate", "least"), [(1.0, 60), (0.9, 60), (0.75, 59), (0.6, 58)])
def test_a_failure_that_comes_six_times_of_ten_is_found_too(rate: float, least: int) -> None:
    """Of 60 searches so many end with exactly the one unit that is needed, within 120 calls."""
    assert exact(range(60), rate, 120) >= least


def noisy(needed: Units, rate: float, seed: int) -> Callable[[Units], str]:
    """A model that fails always when all of these are there, and so often without them."""
    chance = random.Random(seed)
    return lambda units: "bad" if needed <= units or chance.random() < rate else "ok"


def test_failures_that_come_without_the_cause_do_not_mislead() -> None:
    """One failure of ten has another reason: what is found by it is not kept."""
    found = [search(31, noisy(frozenset({17}), 0.1, seed), 120)[0] for seed in range(60)]
    assert sum(one.result == {17} for one in found) >= 57
    assert all(17 in one.result for one in found if one.is_confirmed)
