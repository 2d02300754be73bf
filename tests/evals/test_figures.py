"""Sums and intervals."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.evals.asking.rows import Arm, Ending
from mustcall.evals.prompts import load_prompts
from mustcall.evals.questions import AskedCall
from mustcall.evals.report.figures import Measure, add_up
from mustcall.evals.report.results import EvalResults, Trial
from mustcall.evals.report.statistics import wilson
from mustcall.evals.report.wording import unread_note
from mustcall.evals.scoring import Score
from support.evaluating import OSLO, answered, called, pair, run_of, small_run

scores = st.sampled_from(
    [
        Score(),
        Score(valid=True),
        Score(valid=True, right_tool=True),
        Score(valid=True, right_tool=True, right_arguments=True),
    ]
)
trials = st.builds(
    Trial,
    ending=st.sampled_from(Ending),
    score=scores,
    written=st.booleans(),
    sends=st.integers(1, 5),
    seconds=st.floats(0, 100),
    input_tokens=st.integers(0, 1000),
    output_tokens=st.integers(0, 1000),
)
runs = st.lists(st.builds(pair, st.sampled_from(load_prompts()), trials, trials), max_size=12).map(
    lambda them: run_of(*them)
)


@given(st.integers(1, 500).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))))
def test_wilson_holds_the_rate(counted: tuple[int, int]) -> None:
    """The interval lies within 0 and 1, holds the rate, and mirrors that of the misses."""
    hits, of = counted
    low, high = wilson(hits, of)
    assert 0 <= low <= hits / of <= high <= 1
    assert low < high
    assert wilson(of - hits, of) == pytest.approx((1 - high, 1 - low))


def test_wilson_known_values() -> None:
    """Known intervals: 0, 10 and 40 of 40; nothing is known of nothing."""
    assert wilson(0, 40) == pytest.approx((0.0, 0.0876), abs=5e-4)
    assert wilson(10, 40) == pytest.approx((0.1419, 0.4019), abs=5e-4)
    assert wilson(40, 40) == pytest.approx((0.9124, 1.0), abs=5e-4)
    assert wilson(0, 0) == (0.0, 1.0)


@given(runs)
def test_sums_are_the_trials(run: EvalResults) -> None:
    """Every figure can be counted again from the trials, and the demands add up to the whole."""
    figures = add_up(run)
    for arm in Arm:
        mine = [one.arm(arm) for one in run.pairs]
        for measure in Measure:
            share = figures.shares[arm][measure]
            assert (share.hits, share.of) == (sum(measure.holds(trial.score) for trial in mine), len(mine))
            assert share.hits == sum(arms[arm][measure].hits for arms in figures.by_demand.values())
        cost = figures.cost[arm]
        assert cost.calls == sum(trial.sends for trial in mine) == cost.extra + len(mine)
        assert cost.seconds == pytest.approx(sum(trial.seconds for trial in mine))
    for measure, (bare, must) in figures.only.items():
        gained = figures.shares[Arm.MUSTCALL][measure].hits - figures.shares[Arm.BARE][measure].hits
        assert must - bare == gained


@given(runs)
def test_results_survive_json(run: EvalResults) -> None:
    """What is written with `--json` can be read again, figures included."""
    assert msgspec.json.decode(msgspec.json.encode(run), type=EvalResults) == run
    assert msgspec.json.decode(msgspec.json.encode(add_up(run)))


def test_a_small_run() -> None:
    """A run of four prompts, counted by hand."""
    figures = add_up(small_run())
    assert [figures.shares[Arm.BARE][measure].hits for measure in Measure] == [1, 1, 1]
    assert [figures.shares[Arm.MUSTCALL][measure].hits for measure in Measure] == [3, 3, 2]
    assert figures.only[Measure.VALID] == (1, 3)
    assert (figures.cost[Arm.BARE].extra, figures.cost[Arm.MUSTCALL].extra) == (0, 7)
    assert figures.written == {Arm.BARE: 1, Arm.MUSTCALL: 0}
    assert figures.failed == {Arm.BARE: 1, Arm.MUSTCALL: 1}
    assert figures.by_demand[AskedCall.REQUIRED][Arm.MUSTCALL][Measure.VALID].of == 2


def test_partial_runs_say_so() -> None:
    """A run is partial until its last prompt."""
    assert small_run(planned=5).partial
    assert not small_run().partial


@pytest.mark.parametrize(("tokens", "unread"), [(0, False), (49, True), (50, False), (120, False)])
def test_tools_that_nobody_read(tokens: int, *, unread: bool) -> None:
    """Fewer tokens than the prompt can have mean that the server dropped the tools; no report means nothing."""
    figures = add_up(run_of(pair(OSLO, answered(input_tokens=tokens), called(OSLO))))
    assert figures.unread is unread
    assert ("never saw a tool" in unread_note(figures)) is unread
