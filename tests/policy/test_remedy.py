"""The table of remedies: total, bounded, and row by row what the rules say."""

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.errors import ModelError, TextToolCallError
from mustcall.core.verdict import Verdict
from mustcall.policy.facts.controls import Limits, OnUnmet, Salvage
from mustcall.policy.turn.remedy import (
    ERRORS,
    TABLE,
    Condition,
    Decision,
    Remedy,
    RemedyRow,
    Situation,
    decide,
    markdown,
    row_for,
)

#: Verdicts of attempts that gave no reply: the engine settles those without the table.
WITHOUT_REPLY = frozenset({Verdict.REJECTED, Verdict.UNAVAILABLE})
AGAIN = frozenset({Remedy.RESAMPLE, Remedy.REMIND, Remedy.CLIMB})

counts = st.integers(0, 6)
limits = st.builds(
    Limits,
    extra_calls=counts,
    text_call=counts,
    empty=counts,
    thinking_only=counts,
    bad_arguments=counts,
    unknown_tool=counts,
    bad_answer=counts,
    truncated=counts,
)
situations = st.builds(
    Situation,
    limits=limits,
    tried=counts,
    extra=counts,
    rungs_left=st.booleans(),
    forced=st.booleans(),
    greedy=st.booleans(),
    reads_text=st.booleans(),
    released=st.booleans(),
    spoke=st.booleans(),
    stateful=st.booleans(),
    appended=st.booleans(),
    salvageable=st.booleans(),
    salvage=st.sampled_from(Salvage),
    cut_call=st.booleans(),
    final_thought=st.booleans(),
    on_unmet=st.sampled_from(OnUnmet),
    blocks=st.booleans(),
)


def situation(**changes: object) -> Situation:
    """An ordinary situation with a few things changed."""
    return msgspec.convert({"limits": Limits(), **changes}, Situation, from_attributes=True)


def remedy(verdict: Verdict, **changes: object) -> Remedy:
    """Return what is done about a verdict in a situation."""
    return decide(verdict, situation(**changes)).remedy


@given(st.sampled_from(Verdict), situations)
@settings(deadline=None)
def test_the_table_is_total(verdict: Verdict, case: Situation) -> None:
    """Contract 8: every verdict in any situation has a decision, and a failure has its typed error."""
    decision = decide(verdict, case)
    assert (decision.error is not None) is (decision.remedy is Remedy.FAIL)
    if decision.error is not None:
        assert issubclass(decision.error, ModelError)


@given(st.sampled_from(Verdict), situations)
@settings(deadline=None)
def test_the_ceiling_holds(verdict: Verdict, case: Situation) -> None:
    """Rule 96: whatever the limit of a class, nothing is tried again once the ceiling is reached."""
    if decide(verdict, case).remedy in AGAIN:
        assert case.extra < case.limits.extra_calls


def test_every_row_decides_somewhere() -> None:
    """A row that no situation comes to would only be printed: each is the first that fits in some situation."""
    flags = ("rungs_left", "forced", "greedy", "reads_text", "salvageable", "cut_call", "final_thought", "blocks")
    shown: tuple[dict[str, bool], ...] = ({}, {"released": True}, {"released": True, "spoke": True})
    seen: set[RemedyRow] = set()
    for bits in itertools.product((False, True), repeat=len(flags)):
        known = dict(zip(flags, bits, strict=True))
        for out, salvage, on_unmet, tried in itertools.product(shown, Salvage, OnUnmet, (0, 99)):
            case = situation(**known, **out, salvage=salvage, on_unmet=on_unmet, tried=tried)
            seen.update(
                row for verdict in {row.verdict for row in TABLE} if (row := row_for(verdict, case)) is not None
            )
    assert [row for row in TABLE if row not in seen] == []


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("spoke", [False, True])
def test_what_was_said_is_not_taken_back(verdict: Verdict, spoke: bool) -> None:
    """Rule 135: after release no rung is climbed; each climb of the table is there while nothing went out."""
    climbs = any(row.verdict is verdict and row.remedy is Remedy.CLIMB for row in TABLE)
    held: Remedy | None = None
    for tried in range(4):
        held = remedy(verdict, forced=True, rungs_left=True, tried=tried, extra=tried, greedy=True)
        assert held is not Remedy.CLIMB or climbs
        assert (
            remedy(
                verdict, forced=True, rungs_left=True, released=True, spoke=spoke, tried=tried, extra=tried, greedy=True
            )
            is not Remedy.CLIMB
        )
    if climbs:
        assert held is Remedy.CLIMB  # its own retries spent, the ladder is what is left


@given(st.sampled_from(Verdict), situations)
@settings(deadline=None)
def test_only_salvageable_calls_are_salvaged(verdict: Verdict, case: Situation) -> None:
    """Rules 51, 141: only if complete, offered and valid; text calls never where salvage is `never`.

    Arguments are salvaged behind their retry, and never where some of a call went out.
    """
    if decide(verdict, case).remedy is Remedy.SALVAGE:
        assert case.salvageable
        if verdict is Verdict.TEXT_CALL:
            assert case.salvage is not Salvage.NEVER
        else:
            assert verdict is Verdict.BAD_ARGUMENTS
            assert not case.called
            assert case.tried >= case.limits.bad_arguments or not case.may_call or case.stateful


@given(limits, st.lists(st.sampled_from(sorted(set(Verdict) - WITHOUT_REPLY)), max_size=60), situations)
@settings(max_examples=200, deadline=None)
def test_any_row_of_verdicts_ends(bounds: Limits, verdicts: list[Verdict], case: Situation) -> None:
    """Rule 96: counted as a turn counts, no sequence of verdicts costs more extra calls than the ceiling."""
    tried: dict[Verdict, int] = {}
    extra = 0
    for verdict in verdicts:
        now = msgspec.structs.replace(case, limits=bounds, tried=tried.get(verdict, 0), extra=extra)
        decision = decide(verdict, now)
        if decision.remedy not in AGAIN:
            break
        if decision.remedy is not Remedy.CLIMB:
            tried[verdict] = tried.get(verdict, 0) + 1
        extra += 1
    assert extra <= bounds.extra_calls


@pytest.mark.parametrize("verdict", sorted(set(Verdict) - WITHOUT_REPLY))
def test_every_reply_has_a_last_row(verdict: Verdict) -> None:
    """Style 3: each verdict's last row applies always, so the fallback in code is never what decides."""
    rows = [row for row in TABLE if row.verdict is verdict]
    assert rows[-1].condition is Condition.ALWAYS
    assert [row for row in rows[:-1] if row.condition is Condition.ALWAYS] == []


def test_every_failing_verdict_has_an_error() -> None:
    """Rule 48: what can fail has a typed error of its own."""
    failing = {row.verdict for row in TABLE if row.remedy is Remedy.FAIL}
    assert failing == set(ERRORS)
    assert len(set(ERRORS.values())) == len(ERRORS)


@pytest.mark.parametrize(
    "verdict", [Verdict.ANSWERED, Verdict.CALLED, Verdict.REFUSED, Verdict.FILTERED, Verdict.ANNOUNCED_ONLY]
)
def test_what_is_delivered_at_once(verdict: Verdict) -> None:
    """Rules 37, 133: a good reply, a refusal, a filtered reply and an announcement are never tried again."""
    assert remedy(verdict, rungs_left=True, forced=True) is Remedy.ACCEPT


def test_text_calls_without_a_force() -> None:
    """Rules 46, 47: the same bytes first, then a reminder, then the typed error; limit 0 disables."""
    verdict = Verdict.TEXT_CALL
    assert remedy(verdict) is Remedy.RESAMPLE
    assert remedy(verdict, tried=1, extra=1) is Remedy.REMIND
    assert decide(verdict, situation(tried=2, extra=2)) == Decision(Remedy.FAIL, TextToolCallError)
    assert remedy(verdict, greedy=True) is Remedy.REMIND
    assert remedy(verdict, limits=Limits(text_call=0)) is Remedy.FAIL


def test_text_calls_under_a_force() -> None:
    """Rule 54: the next attempt is the next rung, charged once."""
    assert remedy(Verdict.TEXT_CALL, forced=True, rungs_left=True) is Remedy.CLIMB
    assert remedy(Verdict.TEXT_CALL, forced=True) is Remedy.RESAMPLE


def test_text_calls_where_text_is_the_channel() -> None:
    """Rule 69: a malformed call in text gets a format correction, twice at most, never the same bytes again."""
    found = [remedy(Verdict.TEXT_CALL, reads_text=True, tried=tried, extra=tried) for tried in range(3)]
    assert found == [Remedy.REMIND, Remedy.REMIND, Remedy.FAIL]


@pytest.mark.parametrize(
    ("salvage", "spoke", "tried", "expected"),
    [
        (Salvage.RELEASED, True, 0, Remedy.SALVAGE),
        (Salvage.RELEASED, False, 0, Remedy.RESAMPLE),
        (Salvage.RELEASED, False, 2, Remedy.FAIL),
        (Salvage.LAST, False, 0, Remedy.RESAMPLE),
        (Salvage.LAST, False, 2, Remedy.SALVAGE),
        (Salvage.LAST, True, 0, Remedy.SALVAGE),
        (Salvage.NEVER, True, 0, Remedy.RESAMPLE),
        (Salvage.NEVER, False, 2, Remedy.FAIL),
    ],
)
def test_salvage(salvage: Salvage, spoke: bool, tried: int, expected: Remedy) -> None:
    """Rule 51: a valid text call is promoted when nothing else can be done, as far as the setting allows."""
    got = remedy(
        Verdict.TEXT_CALL, salvageable=True, salvage=salvage, spoke=spoke, released=spoke, tried=tried, extra=tried
    )
    assert got is expected


@pytest.mark.parametrize(("on_unmet", "expected"), [(OnUnmet.ANSWER, Remedy.ACCEPT), (OnUnmet.ERROR, Remedy.FAIL)])
def test_a_spent_ladder(on_unmet: OnUnmet, expected: Remedy) -> None:
    """Rule 27: the setting decides what an unmet force gives, once no rung is left."""
    assert remedy(Verdict.FORCE_MISSED, forced=True, rungs_left=True, on_unmet=on_unmet) is Remedy.CLIMB
    assert remedy(Verdict.FORCE_MISSED, forced=True, on_unmet=on_unmet) is expected


@pytest.mark.parametrize("verdict", [Verdict.EMPTY, Verdict.THINKING_ONLY])
def test_nothing_said(verdict: Verdict) -> None:
    """Rule 38: two reminders, then a typed error; nothing can be added once text went out."""
    found = [remedy(verdict, tried=tried, extra=tried) for tried in range(3)]
    assert found == [Remedy.REMIND, Remedy.REMIND, Remedy.FAIL]
    assert remedy(verdict, released=True, spoke=True) is Remedy.FAIL


def test_a_family_that_answers_in_reasoning() -> None:
    """Rule 38: a family's override makes reasoning the answer."""
    assert remedy(Verdict.THINKING_ONLY, final_thought=True) is Remedy.ACCEPT
    assert remedy(Verdict.EMPTY, final_thought=True) is Remedy.REMIND


def test_cut_calls() -> None:
    """Rules 26, 40, 123, 138: a cut call is asked for once more; under a force another rung is taken."""
    assert remedy(Verdict.TRUNCATED, cut_call=True) is Remedy.REMIND
    assert remedy(Verdict.TRUNCATED, cut_call=True, tried=1, extra=1) is Remedy.FAIL
    for cut in (False, True):
        assert remedy(Verdict.TRUNCATED, rungs_left=True, forced=True, cut_call=cut) is Remedy.CLIMB
        assert remedy(Verdict.TRUNCATED, forced=True, cut_call=cut) is Remedy.FAIL


def test_loops_block_only_where_the_tool_says_so() -> None:
    """Rule 108: an advisory is delivered, a block is an error."""
    assert remedy(Verdict.LOOPING) is Remedy.ACCEPT
    assert remedy(Verdict.LOOPING, blocks=True) is Remedy.FAIL


@given(st.sampled_from(Verdict), situations)
@settings(deadline=None)
def test_an_id_the_caller_has_seen_is_not_left_behind(verdict: Verdict, case: Situation) -> None:
    """Rule 78: once a stored reply has gone out under its id, no attempt follows that would have another."""
    if case.stateful and case.released:
        assert decide(verdict, case).remedy not in AGAIN


def test_a_stored_reply_that_was_seen_ends_the_turn() -> None:
    """Rule 78: every verdict that is tried again while the id is not seen, or not kept, is not tried again then."""
    retried = [verdict for verdict in Verdict if remedy(verdict, released=True) in AGAIN]
    assert Verdict.TEXT_CALL in retried
    assert len(retried) > 3
    for verdict in retried:
        assert remedy(verdict, stateful=True) in AGAIN
        assert remedy(verdict, released=True, stateful=True) not in AGAIN


def test_a_reply_in_the_callers_conversation_ends_the_turn() -> None:
    """Rule 78: nothing is tried again where the upstream has added the reply; what may be delivered still is."""
    again: set[Verdict] = set()
    flags = ("rungs_left", "forced", "greedy", "salvageable", "cut_call", "released")
    for verdict, bits in itertools.product(Verdict, itertools.product((False, True), repeat=len(flags))):
        known = dict(zip(flags, bits, strict=True))
        free, added = remedy(verdict, **known), remedy(verdict, **known, appended=True)
        assert added not in AGAIN
        if free in AGAIN:
            again.add(verdict)
        else:
            assert added is free
    assert len(again) > 5
    assert remedy(Verdict.BAD_ARGUMENTS, salvageable=True, appended=True) is Remedy.SALVAGE


def test_the_table_can_be_printed() -> None:
    """Style 3: one line for each row, so that the page cannot drift from the table."""
    lines = markdown().splitlines()
    assert len(lines) == len(TABLE) + 2
    for line, row in zip(lines[2:], TABLE, strict=True):
        assert line.startswith(f"| `{row.verdict}` | {row.condition} | {row.remedy} |")
    assert all(left != right for left, right in itertools.pairwise(lines))
