"""Grades and sums of a run, and what floors and earlier runs say of them."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ConfigError
from mustcall.evals.asking.rows import Arm, EvalRow
from mustcall.evals.bfcl.suite import BfclSuite
from mustcall.evals.builtin import BuiltinSuite
from mustcall.evals.floors import LeastShare, check_floors, missed_floors, read_floor
from mustcall.evals.prompts import EvalPrompt, load_prompts
from mustcall.evals.report.comparing import compare_runs, read_summary
from mustcall.evals.report.statistics import mcnemar, quantile, share_of
from mustcall.evals.report.summary import ALL, Column, EvalSummary, summarise
from support.bfcl import readied_package
from support.evalrows import LIST, OSLO, facts, failed, fenced, row, small_summary


def made(prompt: EvalPrompt, arm: Arm, how: str, sends: int, turn: int) -> EvalRow:
    """A reply to a prompt: its right call, words, or an error."""
    if how == "failed":
        return failed(prompt, arm, sends=sends, turn=turn)
    return row(prompt, arm, right=how == "right", sends=sends, turn=turn)


rows = st.lists(
    st.builds(
        made,
        st.sampled_from(load_prompts()),
        st.sampled_from(Arm),
        st.sampled_from(["right", "words", "failed"]),
        st.integers(0, 5),
        st.integers(1, 3),
    ),
    max_size=20,
    unique_by=lambda each: (each.id, each.arm),
)


def test_a_small_run() -> None:
    """Two questions, counted by hand."""
    summary = small_summary()
    required, named, everything = summary.sets
    assert (required.name, named.name, everything.name) == ("required", "named", ALL)
    assert [required.columns[column].right.hits for column in Column] == [0, 1, 1]
    assert [named.columns[column].right.hits for column in Column] == [0, 0, 0]
    must = everything.columns[Column.MUSTCALL]
    assert (must.right, must.valid.hits, must.called.hits, must.calls) == (share_of(1, 2), 1, 1, 1)
    assert must.errors == {"force_unmet": 1}
    assert must.verdicts == {"force_missed": 1, "called": 1}
    assert must.rungs == {"native": 1, "schema": 1}
    assert (must.sends_per_turn, must.sends_later) == (3.0, 4.0)
    assert (must.median_seconds, must.p90_seconds) == (5.0, 9.0)
    bare = everything.columns[Column.BARE]
    assert (bare.input_tokens, bare.output_tokens, bare.sends_later) == (50, 9, 1.0)
    assert (everything.against_bare.only_first, everything.against_bare.only_second) == (0, 1)
    assert (everything.against_plain.only_first, everything.against_plain.only_second) == (0, 0)
    assert (summary.asked, summary.partial) == (2, False)
    assert small_summary(planned=9).partial


@given(rows)
def test_sums_are_the_rows(given_rows: list[EvalRow]) -> None:
    """Every figure can be counted again from the rows, and the sets add up to the whole."""
    summary = summarise(facts(sets=("required", "named", "auto")), given_rows, BuiltinSuite())
    everything = summary.sets[-1]
    for column in Column:
        arm = Arm.MUSTCALL if column is Column.MUSTCALL else Arm.BARE
        mine = [each for each in given_rows if each.arm is arm]
        figures = everything.columns[column]
        assert figures.right.of == len(mine)
        assert figures.right.hits == sum(bool(each.calls) for each in mine)
        assert sum(figures.errors.values()) == sum(each.fault is not None for each in mine)
        assert figures.right.hits == sum(each.columns[column].right.hits for each in summary.sets[:-1])
    assert msgspec.json.decode(msgspec.json.encode(summary), type=EvalSummary) == summary


def test_times_are_of_who_asked_first() -> None:
    """A prompt that the server read for the other arm says nothing of the time; where there is no other, it must do."""
    rows = [
        row(OSLO, Arm.BARE, seconds=9.0),
        row(OSLO, Arm.MUSTCALL, seconds=1.0, first=False),
        row(LIST, Arm.BARE, seconds=1.0, first=False),
    ]
    everything = summarise(facts(), rows, BuiltinSuite()).sets[-1]
    assert everything.columns[Column.BARE].median_seconds == 9.0
    assert everything.columns[Column.MUSTCALL].median_seconds == 1.0


def test_an_error_is_never_right() -> None:
    """Where no call is right, words are, and an error is no answer."""
    suite, asked = BfclSuite(readied_package()), facts(suite="bfcl", sets=("irrelevance",))
    words = msgspec.structs.replace(row(OSLO, Arm.BARE), id="irrelevance_1", set="irrelevance")
    error = msgspec.structs.replace(failed(OSLO, Arm.MUSTCALL), id="irrelevance_1", set="irrelevance")
    summary = summarise(asked, [words, error], suite)
    assert summary.sets[0].columns[Column.BARE].right.hits == 1
    assert summary.sets[0].columns[Column.MUSTCALL].right.hits == 0
    assert summary.graded[-1].grade.problem == "force_unmet: no <call>"


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [(0, 0, 1.0), (0, 1, 1.0), (0, 5, 0.0625), (1, 8, 0.0390625), (3, 3, 1.0), (0, 20, 1.9e-6)],
)
def test_mcnemar(first: int, second: int, p: float) -> None:
    """Known values of the exact test; which column is which does not count."""
    assert mcnemar(first, second) == mcnemar(second, first) == pytest.approx(p, rel=0.01)


def test_quantile() -> None:
    """The nearest rank, of few values and none."""
    assert quantile([], 0.9) == 0
    assert quantile([5.0], 0.9) == 5
    assert quantile([float(each) for each in range(1, 11)], 0.9) == 9


@pytest.mark.parametrize(
    ("text", "floor"),
    [
        ("required=0.7", LeastShare("required", Column.MUSTCALL, 0.7)),
        ("required=70%", LeastShare("required", Column.MUSTCALL, 0.7)),
        ("live_simple.bare=0", LeastShare("live_simple", Column.BARE, 0.0)),
        ("all.plain=100 %", LeastShare("all", Column.PLAIN, 1.0)),
    ],
)
def test_reading_floors(text: str, floor: LeastShare) -> None:
    """Shares are numbers or percentages; mustcall is meant where no arm is named."""
    assert read_floor(text) == floor


@pytest.mark.parametrize(
    "text", ["", "required", "=1", "required=", "required=x", "required=70", "a.nobody=1", "a=nan"]
)
def test_floors_that_are_none(text: str) -> None:
    """Anything else is one clear error."""
    with pytest.raises(ConfigError, match="--at-least"):
        read_floor(text)


def test_floors_are_checked() -> None:
    """A missed share is told with its count, a reached one is not; a set that is not asked is an error."""
    summary = small_summary()
    assert missed_floors(summary, [read_floor("required=1"), read_floor("all=0.5"), read_floor("named.bare=0")]) == []
    (line,) = missed_floors(summary, [read_floor("named=0.7")])
    assert line == "named, mustcall: 0 of 1 right (0.0%), wanted at least 70.0%"
    with pytest.raises(ConfigError, match="'auto', which is not asked"):
        check_floors([read_floor("auto=1")], summary.facts.sets)
    check_floors([read_floor("all=1")], ["required"])
    alone = summarise(facts(sets=("required",)), [row(OSLO, Arm.MUSTCALL)], BuiltinSuite())
    assert len(missed_floors(alone, [read_floor("all=1")])) == 1


def test_comparing_runs(tmp_path: Path) -> None:
    """Only questions of both runs are compared, arm by arm, and what moved is counted."""
    old, file = small_summary(), tmp_path / "old.json"
    file.write_bytes(msgspec.json.encode(old))
    new = summarise(
        facts(),
        [row(OSLO, Arm.BARE, text=fenced(OSLO)), row(OSLO, Arm.MUSTCALL), row(LIST, Arm.BARE, right=True)],
        BuiltinSuite(),
    )
    changes = {(each.set, each.column): each for each in compare_runs(read_summary(file), new)}
    assert set(changes) == {
        ("required", Column.BARE),
        ("required", Column.PLAIN),
        ("required", Column.MUSTCALL),
        ("named", Column.BARE),
        ("named", Column.PLAIN),
    }
    lost, gained = changes["required", Column.MUSTCALL], changes["named", Column.BARE]
    assert (lost.common, lost.before, lost.now, lost.gained, lost.lost, lost.p) == (1, 1, 0, 0, 1, 1.0)
    assert (gained.before, gained.now, gained.gained, gained.lost) == (0, 1, 1, 0)


@pytest.mark.parametrize("content", ["", "{}", json.dumps({"run": {}})])
def test_an_earlier_run_that_is_none(content: str, tmp_path: Path) -> None:
    """A file of something else, and no file, are one clear error each."""
    file = tmp_path / "old.json"
    with pytest.raises(ConfigError, match="cannot read"):
        read_summary(file)
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match="is not what `mustcall eval --json` writes"):
        read_summary(file)


def test_runs_of_other_data_are_not_compared() -> None:
    """Runs of different suites have no question in common."""
    with pytest.raises(ConfigError, match="no questions in common"):
        compare_runs(small_summary(data="other"), small_summary())
