"""Counts of what made demanded calls, and what follows from them (rule 139)."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.policy.plan import Rung, RungKind
from mustcall.policy.profile import Forcing, Profile
from mustcall.profiles import Learnt
from mustcall.profiles.tallies import EXPIRY, Count, Tallies, Tally, derive, subjects

NOW = 1_000_000.0


def counted(tallies: Tallies, endpoint: str = "e", model: str = "m", now: float = NOW) -> dict[str, tuple[int, int]]:
    """What is believed of a model: made and missed."""
    return {subject: (one.made, one.missed) for subject, one in tallies.counts(endpoint, model, now).items()}


def counts(**made: tuple[int, int]) -> dict[str, Count]:
    """Counts by rung, `enforced` and `dialect_NAME`."""
    subject = {"enforced": "enforced"}
    return {
        subject.get(name, name.replace("dialect_", "dialect:") if "dialect_" in name else f"rung:{name}"): Count(*pair)
        for name, pair in made.items()
    }


def test_attempts_are_counted() -> None:
    """Rule 139: each attempt is counted as made or missed, with the dates of the first and the last."""
    tallies = Tallies(9)
    for made, now in ((True, 10.0), (False, 20.0), (True, 30.0)):
        tallies.observe("e", "m", "rung:schema", made=made, now=now)
    tallies.observe("e", "n", "rung:schema", made=True, now=40.0)
    assert tallies.counts("e", "m", 0.0) == {"rung:schema": Count(2, 1, 10.0, 30.0)}
    assert tallies.all() == tallies.news()
    assert [(one.model, one.count.made) for one in tallies.all()] == [("m", 2), ("n", 1)]
    assert counted(tallies, "other") == counted(tallies, model="other") == {}


def test_counts_expire() -> None:
    """Rule 139: what nothing was added to for seven days is not believed, and starts anew when it is seen again."""
    tallies = Tallies(9)
    tallies.observe("e", "m", "rung:native", made=False, now=NOW)
    tallies.observe("e", "m", "rung:schema", made=True, now=NOW + 10)
    assert counted(tallies, now=NOW + EXPIRY - 1) == {"rung:native": (0, 1), "rung:schema": (1, 0)}
    assert counted(tallies, now=NOW + EXPIRY + 1) == {"rung:schema": (1, 0)}
    tallies.observe("e", "m", "rung:native", made=True, now=NOW + EXPIRY + 1)
    assert counted(tallies, now=NOW + EXPIRY + 1) == {"rung:native": (1, 0), "rung:schema": (1, 0)}


def test_memory_is_bounded() -> None:
    """Rule 139: of so many models at most; the one used longest ago goes first, shared or not."""
    tallies = Tallies(2)
    for model in ("a", "b", "a", "c"):
        tallies.observe("e", model, "rung:text", made=True, now=NOW)
    assert [one.model for one in tallies.all()] == ["a", "c"]
    assert {one.model for one in tallies.news()} == {"a", "c"}
    tallies.share((), [Tally("e", f"m{number}", "rung:text", Count(1, 0, NOW, NOW)) for number in range(9)])
    assert len(tallies.all()) == 2
    learnt = Learnt()
    learnt.observe("e", "m" * 10_000, "rung:text", made=True, now=NOW)
    assert learnt.tallies.all() == ()


def test_counts_of_all_replicas_are_taken_over() -> None:
    """Rule 139: the ledger's totals replace what was known, and what is written is news no longer."""
    tallies = Tallies(9)
    tallies.observe("e", "m", "rung:text", made=True, now=NOW)
    written = tallies.news()
    totals = [
        Tally("e", "m", "rung:text", Count(4, 1, NOW - 50, NOW)),
        Tally("e", "n", "rung:soft", Count(1, 0, NOW, NOW)),
    ]
    tallies.share(written, totals)
    assert tallies.news() == ()
    assert tallies.all() == tuple(totals)
    tallies.share((), ())  # somebody removed them
    assert tallies.all() == ()


def test_what_is_counted_while_the_ledger_is_written_stays_news() -> None:
    """Rule 139: nothing counted is lost or counted twice, whenever it was counted."""
    tallies = Tallies(9)
    tallies.observe("e", "m", "rung:text", made=True, now=NOW)
    written = tallies.news()
    tallies.observe("e", "m", "rung:text", made=False, now=NOW + 1)
    tallies.observe("e", "m", "rung:soft", made=True, now=NOW + 2)
    tallies.share(written, [Tally("e", "m", "rung:text", Count(4, 0, NOW - 50, NOW))])
    news = {one.subject: (one.count.made, one.count.missed) for one in tallies.news()}
    assert news == {"rung:text": (0, 1), "rung:soft": (1, 0)}
    assert counted(tallies, now=NOW + 2) == {"rung:text": (4, 1), "rung:soft": (1, 0)}


DERIVED: dict[str, tuple[dict[str, Count], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "what works is left alone": (counts(native=(9, 0)), {}),
    "one that missed, one that made it": (counts(native=(0, 1), schema=(1, 0)), {"forced_by": ("schema",)}),
    "the best first": (
        counts(native=(1, 4), soft=(2, 0), schema=(3, 1)),
        {"forced_by": ("schema", "soft")},
    ),
    "missed now and then": (counts(native=(3, 1), schema=(1, 0)), {}),
    "as often missed as made": (counts(native=(1, 1), schema=(1, 0)), {}),
    "nothing is good": (counts(native=(0, 2), text=(1, 1)), {}),
    "reasoning is turned off for a retry only": (counts(soft=(0, 3), hard=(3, 0)), {}),
    "enforced": (counts(native=(5, 0), enforced=(5, 0)), {"forced": Forcing.ALWAYS}),
    "not often enough": (counts(native=(4, 0), enforced=(4, 0)), {}),
    "once ignored": (counts(native=(9, 0), enforced=(9, 1)), {}),
    "a text format": (counts(dialect_anthropic=(3, 0), dialect_hermes=(2, 0)), {"prompt_dialect": "anthropic"}),
    "a text format, seldom": (counts(dialect_anthropic=(2, 0)), {}),
    "a text format of another version": (counts(dialect_klingon=(9, 0)), {}),
}


@pytest.mark.parametrize("case", DERIVED)
def test_what_counts_say(case: str) -> None:
    """Rules 24, 139: which rung comes first, whether a force is enforced, in which format tools are rendered."""
    known, expected = DERIVED[case]
    assert derive(known, Profile()) == expected


def test_what_is_known_of_a_force_is_not_derived() -> None:
    """Rule 139: counts say that an unknown force is enforced; of a known one they say nothing."""
    enforced = counts(enforced=(9, 0))
    assert {forced: derive(enforced, Profile(forced=forced)) for forced in Forcing} == {
        forced: {"forced": Forcing.ALWAYS} if forced is Forcing.UNKNOWN else {} for forced in Forcing
    }


@pytest.mark.parametrize(
    ("missed", "made", "dialect", "expected"),
    [
        ([], RungKind.NATIVE, "", {"rung:native": True, "enforced": True}),
        ([], RungKind.NATIVE, "hermes", {"rung:native": True, "enforced": False, "dialect:hermes": True}),
        ([], RungKind.HARD, "", {"rung:hard": True, "enforced": True}),
        ([RungKind.NATIVE], RungKind.SCHEMA, "", {"rung:native": False, "enforced": False, "rung:schema": True}),
        ([RungKind.SOFT], RungKind.TEXT, "glm", {"rung:soft": False, "rung:text": True, "dialect:glm": True}),
    ],
)
def test_what_a_turn_shows(missed: list[RungKind], made: RungKind, dialect: str, expected: dict[str, bool]) -> None:
    """Rule 139: a turn shows which rungs missed, which made the call, whether it was enforced, and its format."""
    assert dict(subjects([Rung(kind) for kind in missed], Rung(made), dialect)) == expected


def test_what_was_configured_is_not_overridden() -> None:
    """Rule 139: what is learnt changes the fields that the operator left open, and no other."""
    learnt = Learnt()
    for subject, made in (("rung:native", False), ("rung:schema", True)):
        learnt.observe("e", "m", subject, made=made, now=NOW)
    learnt.learn("e", "m", "named", False, "", at=NOW)
    free = learnt.apply("e", "m", Profile(), now=NOW)
    assert (free.forced_by, free.named) == (("schema",), False)
    fixed = learnt.apply("e", "m", Profile(), configured={"forced_by"}, now=NOW)
    assert (fixed.forced_by, fixed.named) == ((), False)
    profile = Profile()
    assert learnt.apply("e", "m", profile, configured={"forced_by", "named"}, now=NOW) is profile


def test_facts_expire_too() -> None:
    """Rule 139: a fact of seven days ago is not believed; one without a date was never shared and is."""
    learnt = Learnt()
    learnt.learn("e", "m", "named", False, "", at=NOW)
    learnt.learn("e", "m", "parallel", False, "")
    assert not learnt.apply("e", "m", Profile(), now=NOW + EXPIRY - 1).named
    later = learnt.apply("e", "m", Profile(), now=NOW + EXPIRY + 1)
    assert (later.named, later.parallel) == (True, False)


_SUBJECTS = [*(f"rung:{kind}" for kind in RungKind), "enforced", "dialect:hermes", "dialect:glm", "dialect:?", "?"]


@given(st.dictionaries(st.sampled_from(_SUBJECTS), st.builds(Count, st.integers(0, 9), st.integers(0, 9))))
def test_whatever_was_counted_fits_a_profile(known: dict[str, Count]) -> None:
    """Rule 139: what is derived are fields and values of a profile, and the same again from what it made."""
    changes = derive(known, Profile())
    profile = msgspec.structs.replace(Profile(), **changes)
    assert set(changes) <= {"forced_by", "forced", "prompt_dialect"}
    assert set(profile.forced_by) <= set(RungKind) - {RungKind.HARD}
    again = derive(known, profile)
    assert msgspec.structs.replace(profile, **again) == profile


_steps = st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.booleans()), max_size=12)


@given(_steps)
def test_sharing_loses_nothing(steps: list[tuple[str, bool, bool]]) -> None:
    """Rule 139: however counting and sharing alternate, the ledger's sum and this process's are what was counted."""
    tallies, ledger = Tallies(9), dict[str, Count]()
    seen = dict[str, Count]()
    for subject, made, shares in steps:
        tallies.observe("e", "m", subject, made=made, now=NOW)
        seen[subject] = seen.get(subject, Count()) + Count(int(made), int(not made), NOW, NOW)
        if shares:
            news = tallies.news()
            for one in news:
                ledger[one.subject] = ledger.get(one.subject, Count()) + one.count
            tallies.share(news, [Tally("e", "m", name, count) for name, count in ledger.items()])
            assert tallies.news() == ()
    assert tallies.counts("e", "m", NOW) == seen
