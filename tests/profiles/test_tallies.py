"""Counts of what made demanded calls, and what follows from them (rule 139)."""

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mustcall.policy.facts.profile import Forcing, Profile, Protocol
from mustcall.policy.request.plan import Rung, RungKind
from mustcall.profiles import Learnt
from mustcall.profiles.tallies import EXPIRY, Count, ProfileTally, Tallies, derive, subjects
from mustcall.profiles.tenants import PerTenant

NOW = 1_000_000.0


def counted(tallies: Tallies, endpoint: str = "e", model: str = "m", now: float = NOW) -> dict[str, tuple[int, int]]:
    """What is believed of a model: made and missed."""
    return {subject: (one.made, one.missed) for subject, one in tallies.counts(endpoint, model, now).items()}


def counts(**made: tuple[int, int]) -> dict[str, Count]:
    """Counts by rung, `enforced`, `late_RUNG` and `dialect_NAME`."""
    return {
        name.replace("_", ":") if "_" in name or name == "enforced" else f"rung:{name}": Count(*pair)
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


def test_what_two_others_saw_alike_is_believed() -> None:
    """Rule 139: the count of the second witness, on top of one's own; who stands alone convinces nobody."""
    tallies = Tallies(9)

    def count(tenant: str, subject: str, made: int, missed: int) -> None:
        for done, times in ((True, made), (False, missed)):
            for _ in range(times):
                tallies.observe("e", "m", subject, made=done, now=NOW, tenant=tenant)

    def seen(tenant: str) -> dict[str, tuple[int, int]]:
        return {name: (one.made, one.missed) for name, one in tallies.counts("e", "m", NOW, tenant).items()}

    count("a", "rung:native", 0, 1000)
    assert (seen("a"), seen("b")) == ({"rung:native": (0, 1000)}, {})
    count("b", "rung:native", 5, 3)
    assert (seen("b"), seen("c")) == ({"rung:native": (5, 3)}, {})  # one says so, one the contrary
    count("c", "rung:native", 4, 0)
    assert seen("d") == {"rung:native": (4, 0)}  # two against one, however often that one counted
    assert seen("b") == {"rung:native": (5, 3)}  # of the others one says so, one the contrary
    assert seen("a") == {"rung:native": (4, 1000)}
    count("d", "rung:text", 2, 2)
    assert seen("e") == {"rung:native": (4, 0)}


def test_memory_is_bounded() -> None:
    """Rule 139: of so many models at most; the one used longest ago goes first, shared or not."""
    tallies = Tallies(2)
    for model in ("a", "b", "a", "c"):
        tallies.observe("e", model, "rung:text", made=True, now=NOW)
    assert [one.model for one in tallies.all()] == ["a", "c"]
    assert {one.model for one in tallies.news()} == {"a", "c"}
    tallies.take_over([ProfileTally("e", f"m{number}", "rung:text", Count(1, 0, NOW, NOW)) for number in range(9)])
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
        ProfileTally("e", "m", "rung:text", Count(4, 1, NOW - 50, NOW)),
        ProfileTally("e", "n", "rung:soft", Count(1, 0, NOW, NOW)),
    ]
    tallies.mark_shared(written)
    assert tallies.news() == ()
    assert counted(tallies) == {"rung:text": (1, 0)}  # known here all the same, should the totals not be read
    tallies.take_over(totals)
    assert tallies.all() == tuple(totals)
    tallies.take_over(())  # somebody removed them
    assert tallies.all() == ()


def test_what_is_counted_while_the_ledger_is_written_stays_news() -> None:
    """Rule 139: nothing counted is lost or counted twice, whenever it was counted."""
    tallies = Tallies(9)
    tallies.observe("e", "m", "rung:text", made=True, now=NOW)
    written = tallies.news()
    tallies.observe("e", "m", "rung:text", made=False, now=NOW + 1)
    tallies.observe("e", "m", "rung:soft", made=True, now=NOW + 2)
    tallies.mark_shared(written)
    tallies.take_over([ProfileTally("e", "m", "rung:text", Count(4, 0, NOW - 50, NOW))])
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
    "the ladder's own first rung stays if it works": (
        counts(native=(3, 2), schema=(4, 1), soft=(0, 1)),
        {"forced_by": ("native", "schema")},
    ),
    "nothing is good: what did not mostly miss": (
        counts(native=(0, 2), text=(1, 1)),
        {"forced_by": ("schema", "grammar", "soft", "text")},
    ),
    "nothing is good, native is as good as any": (
        counts(schema=(0, 1)),
        {"forced_by": ("native", "grammar", "soft", "text")},
    ),
    "everything missed": (counts(native=(0, 1), schema=(0, 1), grammar=(0, 1), soft=(0, 1), text=(0, 1)), {}),
    "one of another version": (counts(native=(0, 1), schema=(1, 0), telepathy=(9, 0)), {"forced_by": ("schema",)}),
    "missed once, 19 calls": (counts(native=(0, 1), text=(19, 0)), {"forced_by": ("text",)}),
    "missed once, 20 calls": (counts(native=(0, 1), text=(20, 0)), {"forced_by": ("native", "text")}),
    "missed once more": (counts(native=(0, 2), text=(39, 0)), {"forced_by": ("text",)}),
    "missed once more, 40 calls": (counts(native=(0, 2), text=(40, 0)), {"forced_by": ("native", "text")}),
    "works again, not often enough": (counts(native=(1, 3), text=(39, 0)), {"forced_by": ("native", "text")}),
    "works again": (counts(native=(3, 3), text=(57, 0)), {}),
    "cost a turn its time": (counts(native=(0, 1), late_native=(0, 1), text=(419, 0)), {"forced_by": ("text",)}),
    "cost it that long ago": (
        counts(native=(0, 1), late_native=(0, 1), text=(420, 0)),
        {"forced_by": ("native", "text")},
    ),
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
    ("profile", "known", "order"),
    [
        (Profile(forced=Forcing.NEVER), counts(soft=(0, 1), schema=(19, 0)), ("schema",)),
        (Profile(forced=Forcing.NEVER), counts(soft=(0, 1), schema=(20, 0)), ("soft", "schema")),
        (Profile(forced=Forcing.IGNORED), counts(schema=(0, 1), text=(20, 0)), ("schema", "text")),
        (Profile(protocol=Protocol.PROMPT), counts(text=(0, 1), schema=(20, 0)), ("text", "schema")),
        (Profile(forced=Forcing.WITHOUT_REASONING), counts(soft=(0, 4), schema=(1, 0)), ("native", "schema")),
    ],
)
def test_the_rung_that_comes_back_is_the_ladders_own_first(
    profile: Profile, known: dict[str, Count], order: tuple[str, ...]
) -> None:
    """Rule 139: what is tried again is what the turn would have started with, with reasoning or without."""
    assert derive(known, profile) == {"forced_by": order}


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


def test_what_a_turn_that_failed_shows() -> None:
    """Rule 139: which rungs missed, and which one ran into the deadline."""
    missed = [Rung(RungKind.SCHEMA)]
    assert dict(subjects(missed)) == {"rung:schema": False}
    assert dict(subjects(missed, late=Rung(RungKind.NATIVE))) == {
        "rung:schema": False,
        "rung:native": False,
        "enforced": False,
        "late:native": False,
    }


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


@pytest.mark.parametrize("field", ["forced", "constrain_first", "forced_by"])
def test_counts_do_not_reorder_what_the_operator_ordered(field: str) -> None:
    """Rule 139: who says what a force does, or what comes first, has made the ladder."""
    learnt, profile = Learnt(), Profile()
    for subject, made in (("rung:native", False), ("rung:schema", True)):
        learnt.observe("e", "m", subject, made=made, now=NOW)
    assert learnt.apply("e", "m", profile, configured={field}, now=NOW) is profile


def test_counts_do_not_reorder_what_is_known_to_be_obeyed() -> None:
    """Rules 137, 139: known enforcement passes untouched, also after a turn in which it was not obeyed."""
    learnt = Learnt()
    for subject, made in (("rung:native", False), ("rung:schema", True)):
        learnt.observe("e", "m", subject, made=made, now=NOW)
    known = [*(Profile(forced=forced) for forced in Forcing), Profile(constrain_first=True)]
    reordered = [one.forced for one in known if learnt.apply("e", "m", one, now=NOW) is not one]
    assert reordered == [Forcing.NEVER, Forcing.IGNORED, Forcing.UNKNOWN]


def test_what_a_refusal_taught_does_not_end_the_counting() -> None:
    """Rule 139: a force that was learnt to be refused with reasoning leaves the order to the counts."""
    learnt = Learnt()
    learnt.learn("e", "m", "forced", "without_reasoning", "", at=NOW)
    for subject, made in (("rung:soft", False), ("rung:schema", True)):
        learnt.observe("e", "m", subject, made=made, now=NOW)
    assert learnt.apply("e", "m", Profile(), now=NOW).forced_by == ("native", "schema")


def test_a_field_for_grammars_that_the_operator_named_is_used() -> None:
    """Rule 139: that a server took none of our guesses says nothing about the field the operator knows."""
    learnt, profile = Learnt(), Profile(grammar_field="guided")
    learnt.learn("e", "m", "grammar_output", False, "", at=NOW)
    assert learnt.apply("e", "m", profile, configured={"grammar_field"}, now=NOW) is profile
    assert learnt.apply("e", "m", profile, now=NOW).grammar_output is False


def test_facts_expire_too() -> None:
    """Rule 139: a fact of an hour ago is tried again; one without a date was never shared and is believed."""
    learnt = Learnt()
    learnt.learn("e", "m", "named", False, "", at=NOW)
    learnt.learn("e", "m", "parallel", False, "")
    assert not learnt.apply("e", "m", Profile(), now=NOW + 3599).named
    later = learnt.apply("e", "m", Profile(), now=NOW + 3601)
    assert (later.named, later.parallel) == (True, False)


_SUBJECTS = [
    *(f"{prefix}:{kind}" for kind in RungKind for prefix in ("rung", "late")),
    *("enforced", "dialect:hermes", "dialect:glm", "dialect:?", "rung:?", "late:?", "?"),
]


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
            tallies.mark_shared(news)
            tallies.take_over([ProfileTally("e", "m", name, count) for name, count in ledger.items()])
            assert tallies.news() == ()
    assert tallies.counts("e", "m", NOW) == seen


@pytest.mark.parametrize("broken", [1, 2, 7, 30])
def test_there_is_a_way_back(broken: int) -> None:
    """Rule 139: a first rung that works again is first again, after about as many turns as it was broken for, by 20."""
    learnt, turns, started = Learnt(), 0, list[str]()
    while turns < 3000:
        order = learnt.apply("e", "m", Profile(), now=NOW).forced_by
        first = order[0] if order else "native"
        started.append(first)
        works = turns >= broken
        if first == "native":
            learnt.observe("e", "m", "rung:native", made=works, now=NOW)
        if first != "native" or not works:
            learnt.observe("e", "m", "rung:schema", made=True, now=NOW)
        turns += 1
    assert started[0] == "native"
    assert started[1:20] == ["schema"] * 19
    back = max(place for place, first in enumerate(started) if first == "schema")
    assert back <= 20 * (1 + started[:broken].count("native"))


def test_what_never_works_is_tried_seldom() -> None:
    """Rule 139: on a server that ignores a force for ever, 1 turn in 20 pays one call for the way back."""
    learnt, calls = Learnt(), 0
    for _ in range(1000):
        order = learnt.apply("e", "m", Profile(), now=NOW).forced_by
        if not order or order[0] == "native":
            learnt.observe("e", "m", "rung:native", made=False, now=NOW)
            calls += 1
        learnt.observe("e", "m", "rung:text", made=True, now=NOW)
        calls += 1
    assert 1040 <= calls <= 1051


def in_threads(work: Callable[[int], None], count: int = 6) -> None:
    """Do the work in so many threads at once."""
    failed: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001  it is shown below
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from(["arguments", "arguments", "enforced", "rung:schema"]),
            st.sampled_from([1, 2, 24, 25, 48, 50]),
            st.sampled_from([True, True, True, False]),
        ),
        max_size=8,
    )
)
@example([(tenant, "arguments", 25, True) for tenant in "abc"])
def test_a_given_profile_follows_every_count(seen: list[tuple[str, str, int, bool]]) -> None:
    """Rule 139: whoever counted what, each tenant's profile says what follows from the counts it believes."""
    learnt, profile = Learnt(), Profile()
    for tenant, subject, times, made in seen:
        for _ in range(times):
            learnt.observe("e", "m", subject, made=made, now=NOW, tenant=tenant)
            for reader in "abcd":
                follows = derive(learnt.tallies.counts("e", "m", NOW, reader), profile)
                given = learnt.apply("e", "m", profile, now=NOW, tenant=reader)
                assert given == msgspec.structs.replace(profile, **follows)


def test_threads_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 139: threads that share what turns taught lose no count and no fact."""
    learnt = Learnt()
    read = PerTenant[Any].known

    def known(self: PerTenant[Any], endpoint: str, model: str) -> Any:
        found = read(self, endpoint, model)
        time.sleep(0)  # lets another thread run between what is read and what is written
        return found

    monkeypatch.setattr(PerTenant, "known", known)

    def work(number: int) -> None:
        for turn in range(200):
            learnt.observe("e", "m", "rung:schema", made=True, now=NOW)
            learnt.observe("e", f"m{turn % 6}", "rung:text", made=True, now=NOW)
            learnt.learn("e", "m", f"schema:{number:02}{turn % 20:02}", "openai", "refused", at=NOW)
            learnt.apply("e", "m", Profile(), now=NOW)
            learnt.facts()

    in_threads(work)
    assert learnt.tallies.counts("e", "m", NOW)["rung:schema"] == Count(1200, 0, NOW, NOW)
    assert len({one.field for one in learnt.facts()}) == 120
