"""What tries come to: classes, stopping, owners. Pure."""

import random

from hypothesis import given
from hypothesis import strategies as st

from mustcall.evals.report.statistics import wilson
from mustcall.probe.values import CellFinding, CellVerdict, Outcome, Owner
from mustcall.probe.verdicts import FLOOR, THRESHOLD, count, is_settled, settle_owner, settle_verdict

OUTCOMES = st.lists(st.sampled_from(Outcome), max_size=100)
H, N, R, C, U = Outcome.HELD, Outcome.NOT_DONE, Outcome.REFUSED, Outcome.CRASHED, Outcome.UNMEASURED


@given(OUTCOMES)
def test_the_verdict_is_the_class_of_the_observed_rate(outcomes: list[Outcome]) -> None:
    """Held from 95 %, flaky above 5 %, below that the most frequent failure; unmeasured where no try was measured."""
    measured = [outcome for outcome in outcomes if outcome is not U]
    verdict = settle_verdict(outcomes)
    assert settle_verdict(outcomes[::-1]) is verdict
    if not measured:
        assert verdict is CellVerdict.UNMEASURED
        return
    rate = measured.count(H) / len(measured)
    assert (verdict is CellVerdict.HELD) == (rate >= THRESHOLD)
    assert (verdict is CellVerdict.FLAKY) == (FLOOR < rate < THRESHOLD)
    if rate <= FLOOR:
        kinds = {CellVerdict.IGNORED: N, CellVerdict.REFUSED: R, CellVerdict.CRASHED: C}
        assert measured.count(kinds[verdict]) == max(measured.count(kind) for kind in kinds.values())


@given(OUTCOMES)
def test_a_cell_stops_where_the_interval_lies_in_one_class(outcomes: list[Outcome]) -> None:
    """Wilson's interval decides, but for two equal refusals or crashes, which repeat themselves."""
    measured = [outcome for outcome in outcomes if outcome is not U]
    low, high = wilson(measured.count(H), len(measured))
    inside = bool(measured) and (low >= THRESHOLD or high <= FLOOR or (low > FLOOR and high < THRESHOLD))
    repeated = len(measured) >= 2 and (set(measured) == {R} or set(measured) == {C})
    assert is_settled(outcomes) == (inside or repeated)


def test_73_tries_that_hold_are_enough_and_72_are_not() -> None:
    """Where the deep number comes from: the lower end of the interval of 73 of 73 is 95 %."""
    assert is_settled([H] * 73)
    assert not is_settled([H] * 72)
    assert not any(is_settled([N] * number) for number in range(1, 73))
    assert is_settled([H, N])  # one of each: neither class is left


def test_a_server_that_fails_in_30_percent_is_flaky_in_19_of_20_runs() -> None:
    """Rule of the issue: of 1,000 runs of up to 12 tries, 95 % and more are called flaky, at 30 % and at 70 %."""
    for share in (0.3, 0.7):
        chance = random.Random(7)
        found = 0
        for _ in range(1000):
            tries: list[Outcome] = []
            while len(tries) < 12 and not is_settled(tries):
                tries.append(N if chance.random() < share else H)
            found += settle_verdict(tries) is CellVerdict.FLAKY
        assert found >= 950, (share, found)


FINDINGS = st.lists(
    st.builds(CellFinding, outcome=st.sampled_from(Outcome), owner=st.none() | st.sampled_from(Owner)), max_size=20
)


@given(FINDINGS, st.sampled_from(Owner))
def test_only_failures_have_an_owner(findings: list[CellFinding], duty: Owner) -> None:
    """No owner where nothing failed; where the replies tell none, it is the duty's."""
    owner, _ = settle_owner(findings, duty)
    failed = [finding for finding in findings if finding.outcome in (N, R, C)]
    assert (owner is None) == (not failed)
    if failed and not any(finding.owner for finding in failed):
        assert owner is duty


def test_what_is_left_out_shows_whose_fault_it_is() -> None:
    """Whole it holds: transport. Without reasoning it holds: the duty's, and the note says so."""
    held, missed = CellFinding(outcome=H), CellFinding(outcome=N, note="no call")
    assert settle_owner([missed], Owner.SERVER, whole=held) == (
        Owner.TRANSPORT,
        "whole it holds, streamed it does not",
    )
    assert settle_owner([missed], Owner.SERVER, whole=missed, unreasoned=held)[1] == "it holds without reasoning"
    assert settle_owner([missed], Owner.MODEL, whole=missed) == (Owner.MODEL, "no call")


def test_the_owner_is_that_of_the_failures_the_verdict_is_about() -> None:
    """One broken connection beside eleven ignored requests is not the transport's fault."""
    broke = CellFinding(outcome=C, owner=Owner.TRANSPORT, note="closed")
    missed = CellFinding(outcome=N, note="no call")
    assert settle_owner([broke, *[missed] * 11], Owner.SERVER) == (Owner.SERVER, "no call")


@given(OUTCOMES)
def test_unmeasured_tries_count_for_nothing(outcomes: list[Outcome]) -> None:
    """The share is that of the measured ones."""
    share = count(outcomes)
    assert share.of == len(outcomes) - outcomes.count(U)
    assert share.hits == outcomes.count(H)
