"""Two probes side by side: pairs, the exact test, Benjamini-Hochberg."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.probe.comparing import ALPHA, compare, discoveries
from mustcall.probe.results import CellResult, ProbeResult
from mustcall.probe.values import CellGroup, CellVerdict, Level, Outcome
from mustcall.probe.verdicts import count, settle_verdict

H, N, U = Outcome.HELD, Outcome.NOT_DONE, Outcome.UNMEASURED


def result_of(wire: Wire = Wire.CHAT, **cells: list[Outcome]) -> ProbeResult:
    """Return a result with these cells."""
    return ProbeResult(
        upstream="up",
        base_url="http://127.0.0.1:9/v1",
        wire=wire,
        model="m",
        level=Level.DEFAULT,
        started="2026-11-17T09:00:00+00:00",
        cells=tuple(
            CellResult(
                id=name,
                guarantee=name,
                group=CellGroup.CHOICE,
                required=True,
                verdict=settle_verdict(outcomes),
                outcomes=tuple(outcomes),
                held=count(outcomes).hits,
                measured=count(outcomes).of,
            )
            for name, outcomes in cells.items()
        ),
    )


@given(st.lists(st.sampled_from(Outcome), max_size=30))
def test_a_result_has_not_drifted_from_itself(outcomes: list[Outcome]) -> None:
    """No pair differs, so nothing is told."""
    (drift,) = compare(result_of(a=outcomes), result_of(a=outcomes))
    assert not drift.drifted
    assert not drift.changed
    assert drift.p == 1.0


def test_a_guarantee_that_is_lost_is_drift() -> None:
    """Eight tries that held and now do not: p = 2/2^8, a discovery though other cells stayed as they were."""
    old = result_of(a=[H] * 8, b=[H] * 8, c=[N] * 4)
    a, b, c = compare(old, result_of(a=[N] * 8, b=[H] * 8, c=[N] * 4))
    assert (a.before, a.now, a.lost, a.gained) == (CellVerdict.HELD, CellVerdict.IGNORED, 8, 0)
    assert a.p == 2 / 2**8
    assert a.drifted
    assert a.is_worse
    assert not b.drifted
    assert not c.drifted


def test_too_few_tries_are_a_change_and_no_drift() -> None:
    """Two tries can never be significant: the verdict is told, drift is not claimed. Unmeasured tries do not pair."""
    a, b = compare(result_of(a=[H, H], b=[H] * 9), result_of(a=[N, N], b=[U] * 9))
    assert a.changed
    assert not a.drifted
    assert (b.pairs, b.p) == (0, 1.0)


def test_results_of_two_wires_do_not_pair() -> None:
    """What one wire sends the other does not."""
    with pytest.raises(ConfigError, match="chat wire, this one is on messages"):
        compare(result_of(), result_of(Wire.MESSAGES))


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 20)), max_size=30))
def test_discoveries_are_those_of_benjamini_hochberg(tests: list[tuple[float, int]]) -> None:
    """The largest k whose k-th smallest p is at most k/m of alpha, among the tests that can be significant."""
    family = [p for p, differ in tests if differ and 2.0 ** (1 - differ) <= ALPHA]
    found = discoveries(tests)
    best = max((k for k in range(1, len(family) + 1) if sorted(family)[k - 1] <= ALPHA * k / len(family)), default=0)
    assert sum(found) == best
    chosen = [p for (p, _), yes in zip(tests, found, strict=True) if yes]
    assert sorted(chosen) == sorted(family)[:best]
