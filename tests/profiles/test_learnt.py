"""Facts learnt from refusals."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ConfigError
from mustcall.policy.facts.profile import Forcing, Profile, Protocol
from mustcall.policy.failures.rejection import Rejection, lesson
from mustcall.profiles import Learnt, LearntFact, Observed
from mustcall.profiles.tallies import ARGUMENTS

PROFILE = Profile(name="p", forced=Forcing.ALWAYS)


def test_nothing_learnt() -> None:
    """Rule 33: without a lesson the profile is the same object."""
    assert Learnt().apply("e", "m", PROFILE) is PROFILE


def test_a_lesson_is_for_its_endpoint_and_model() -> None:
    """Rule 33: what one model at one endpoint taught is remembered for it, and for no other."""
    learnt = Learnt()
    assert learnt.learn("e", "m", "forced", Forcing.WITHOUT_REASONING, "Thinking may not be enabled")
    assert learnt.apply("e", "m", PROFILE).forced is Forcing.WITHOUT_REASONING
    assert learnt.apply("e", "m", PROFILE).name == "p"
    assert learnt.apply("e", "other", PROFILE) is PROFILE
    assert learnt.apply("other", "m", PROFILE) is PROFILE
    (fact,) = learnt.facts()
    assert (fact.endpoint, fact.model, fact.field) == ("e", "m", "forced")
    assert (fact.fact.observed, fact.fact.note) == (Observed.LEARNT, "Thinking may not be enabled")


def test_a_profile_that_was_given_follows_every_change() -> None:
    """Rule 33: the profile is the same object while nothing changes; what is learnt, counted or forgotten shows."""
    learnt = Learnt()
    assert learnt.apply("e", "m", PROFILE, now=10.0) is PROFILE
    learnt.learn("e", "m", "forced", Forcing.NEVER, "", at=10.0)
    taught = learnt.apply("e", "m", PROFILE, now=10.0)
    assert taught.forced is Forcing.NEVER
    assert learnt.apply("e", "m", PROFILE, now=10.5) is taught
    assert learnt.apply("e", "m", PROFILE, now=10.5, configured={"forced"}) is PROFILE
    assert learnt.apply("e", "m", PROFILE, now=10.5, tenant="other") is PROFILE
    other = Profile(name="q", forced=Forcing.ALWAYS)
    assert learnt.apply("e", "m", other, now=10.5).name == "q"
    assert learnt.apply("e", "m", PROFILE, now=10.0 + 3600.0) is PROFILE  # it has expired
    learnt.forget("e", "m", "forced")
    assert learnt.apply("e", "m", PROFILE, now=10.5) is PROFILE
    for _ in range(60):
        learnt.observe("e", "m", ARGUMENTS, made=True, now=11.0)
    assert learnt.apply("e", "m", PROFILE, now=11.0).trusted_arguments
    learnt.observe("e", "m", ARGUMENTS, made=False, now=11.0)
    assert not learnt.apply("e", "m", PROFILE, now=11.0).trusted_arguments


def test_the_same_lesson_is_no_news() -> None:
    """Rule 33: a lesson is learnt once, and one that changes nothing leaves the profile as it is."""
    learnt = Learnt()
    assert learnt.learn("e", "m", "forced", "always", "")
    assert not learnt.learn("e", "m", "forced", Forcing.ALWAYS, "")
    assert learnt.apply("e", "m", PROFILE) is PROFILE


def test_a_refused_force_stays_refused() -> None:
    """Rule 33: blaming the reasoning does not allow again what was refused as such."""
    learnt = Learnt()
    assert learnt.learn("e", "m", "forced", Forcing.WITHOUT_REASONING, "")
    assert learnt.learn("e", "m", "forced", Forcing.NEVER, "")
    assert not learnt.learn("e", "m", "forced", Forcing.WITHOUT_REASONING, "")
    assert learnt.apply("e", "m", PROFILE).forced is Forcing.NEVER


HOUR = 3_600.0
DAY = 24 * HOUR
START = 1_700_000_000.0


@pytest.mark.parametrize(("field", "value"), [("schema_output", False), ("forced", Forcing.NEVER)])
def test_a_fact_is_tried_again(field: str, value: object) -> None:
    """Rules 33, 139: believed for an hour at first, and twice as long each time it proves true; seven days at most."""
    learnt, profile = Learnt(), Profile()
    at = START
    for seen, hours in enumerate((1, 2, 4, 8, 16, 32, 64, 128, 168, 168), 1):
        assert learnt.learn("e", "m", field, value, "", at=at)
        (fact,) = learnt.facts()
        assert (fact.seen, fact.first, fact.at) == (seen, START, at)
        assert getattr(learnt.apply("e", "m", profile, now=at + hours * HOUR - 1), field) == value
        at += hours * HOUR
        assert learnt.apply("e", "m", profile, now=at) is profile


def test_a_fact_that_changed_is_a_new_one() -> None:
    """Rule 139: another value is seen once, however often the one before it was."""
    learnt = Learnt()
    for hours in (0, 2, 5):
        learnt.learn("e", "m", "forced", Forcing.WITHOUT_REASONING, "", at=START + hours * HOUR)
    assert learnt.learn("e", "m", "forced", Forcing.NEVER, "", at=START + 6 * HOUR)
    (fact,) = learnt.facts()
    assert (fact.seen, fact.first) == (1, START + 6 * HOUR)


def test_a_force_that_was_refused_long_ago() -> None:
    """Rules 33, 139: once that has expired, a refusal that blames the reasoning is believed."""
    learnt = Learnt()
    learnt.learn("e", "m", "forced", Forcing.NEVER, "", at=START)
    assert not learnt.learn("e", "m", "forced", Forcing.WITHOUT_REASONING, "", at=START + 60)
    assert learnt.learn("e", "m", "forced", Forcing.WITHOUT_REASONING, "", at=START + DAY)
    assert learnt.apply("e", "m", Profile(), now=START + DAY).forced is Forcing.WITHOUT_REASONING


def test_a_repeated_lesson_is_believed_for_longer() -> None:
    """Rule 139: an hour from the last time; an older word neither shortens that nor replaces a newer one."""
    learnt = Learnt()
    learnt.learn("e", "m", "forced", Forcing.WITHOUT_REASONING, "", at=START)
    for minutes in (50, 30):
        assert not learnt.learn("e", "m", "forced", Forcing.WITHOUT_REASONING, "", at=START + minutes * 60)
    assert not learnt.learn("e", "m", "forced", Forcing.NEVER, "", at=START + 60)
    assert learnt.apply("e", "m", PROFILE, now=START + 109 * 60).forced is Forcing.WITHOUT_REASONING
    assert learnt.apply("e", "m", PROFILE, now=START + 111 * 60) is PROFILE
    assert learnt.facts()[0].seen == 1  # it was never tried again meanwhile


TENANTS = ["a", "b", "c", "d"]


def test_a_fact_is_its_tenants_until_two_others_confirm_it() -> None:
    """Rule 139: one tenant's lesson is believed by nobody else; that of two is believed by all."""
    learnt = Learnt()
    learnt.learn("e", "m", "forced", Forcing.NEVER, "", at=START, tenant="a")
    assert learnt.apply("e", "m", PROFILE, now=START, tenant="a").forced is Forcing.NEVER
    for other in ("", "b", "c"):
        assert learnt.apply("e", "m", PROFILE, now=START, tenant=other) is PROFILE
    learnt.learn("e", "m", "forced", Forcing.WITHOUT_REASONING, "", at=START, tenant="b")
    assert learnt.apply("e", "m", PROFILE, now=START, tenant="c") is PROFILE  # they do not say the same
    learnt.learn("e", "m", "forced", Forcing.NEVER, "", at=START + 1800, tenant="c")
    for tenant in ("a", "c", "d", ""):
        assert learnt.apply("e", "m", PROFILE, now=START + 1800, tenant=tenant).forced is Forcing.NEVER
    assert learnt.apply("e", "m", PROFILE, now=START + 1800, tenant="b").forced is Forcing.WITHOUT_REASONING
    # What one of the two does not believe any more is confirmed no longer.
    assert learnt.apply("e", "m", PROFILE, now=START + HOUR, tenant="d") is PROFILE


_FACTS = st.tuples(
    st.sampled_from(["forced", "named", "schema:1", "schema:2"]), st.integers(0, 2), st.sampled_from(["m", "n"])
)
_VALUES: dict[str, list[object]] = {
    "forced": ["never", "without_reasoning", "ignored"],
    "named": [False, True, False],
    "schema:1": ["gemini", "openai", "full"],
    "schema:2": ["gemini", "gemini", "gemini"],
}
_SUBJECTS = ["rung:native", "rung:schema", "rung:soft", "enforced", "dialect:hermes", "dialect:anthropic"]
_COUNTS = st.tuples(st.sampled_from(_SUBJECTS), st.booleans(), st.sampled_from(["m", "n"]))


@given(
    before=st.lists(st.tuples(st.sampled_from(TENANTS[1:2]), st.one_of(_FACTS, _COUNTS)), max_size=12),
    hostile=st.lists(st.one_of(_FACTS, _COUNTS), max_size=60),
)
def test_one_tenant_changes_nothing_for_another(before: list[tuple[str, Any]], hostile: list[Any]) -> None:
    """Rule 139: whatever one tenant's turns teach, what every other believes is what it believed before."""

    def teach(learnt: Learnt, tenant: str, one: Any) -> None:
        if isinstance(one[1], bool):
            for _ in range(7):
                learnt.observe("e", one[2], one[0], made=one[1], now=START, tenant=tenant)
        else:
            learnt.learn("e", one[2], one[0], _VALUES[one[0]][one[1]], "", at=START, tenant=tenant)

    quiet, attacked = Learnt(most=2), Learnt(most=2)
    for tenant, one in before:
        for learnt in (quiet, attacked):
            teach(learnt, tenant, one)
    for one in hostile:
        teach(attacked, "a", one)
    for number in range(20):  # and what it names beside makes no room in others' memories
        attacked.learn("e", f"x{number}", "named", False, "", at=START, tenant="a")
        attacked.observe("e", f"x{number}", "enforced", made=True, now=START, tenant="a")
    for model in ("m", "n"):
        for tenant in (*TENANTS[1:], ""):
            believed = quiet.apply("e", model, Profile(), now=START, tenant=tenant)
            assert attacked.apply("e", model, Profile(), now=START, tenant=tenant) == believed


def test_a_refused_schema_is_a_fact_about_that_schema() -> None:
    """Rules 130, 139: the digests of refused schemas are added up; the operator's own target has the last word."""
    learnt = Learnt()
    for digest in ("bb", "aa"):
        learnt.learn("e", "m", f"schema:{digest}", "gemini", "", at=START)
    profile = learnt.apply("e", "m", PROFILE, now=START)
    assert (profile.narrowed_schemas, profile.schema_target) == (("aa", "bb"), PROFILE.schema_target)
    assert learnt.apply("e", "m", PROFILE, now=START, configured={"schema_target"}) is PROFILE
    for number in range(200):
        learnt.learn("e", "m", f"schema:{number}", "gemini", "", at=START)
    kept = learnt.apply("e", "m", PROFILE, now=START).narrowed_schemas
    assert len(kept) == 128
    assert "199" in kept
    assert "aa" not in kept


def test_what_another_replica_learnt() -> None:
    """Rule 139: it is taken over as it is, with whose it is and how often it was seen; older words change nothing."""
    one, other = Learnt(), Learnt()
    for hours in (0, 2, 6):
        one.learn("e", "m", "named", False, "why", at=START + hours * HOUR, tenant="a")
    (told,) = one.facts()
    other.hear(told)
    assert other.facts() == (told,)
    other.hear(LearntFact("e", "m", "named", told.fact, START, "a"))
    assert other.facts() == (told,)
    other.forget("e", "m", "named", "b")
    assert other.facts() == (told,)
    other.forget("e", "m", "named", "a")
    assert other.facts() == ()


def test_bounded() -> None:
    """Rule 33: memory is bounded; what was used longest ago is forgotten, and giant names are not kept."""
    learnt = Learnt(most=2)
    for model in ("a", "b"):
        learnt.learn("e", model, "named", False, "")
    learnt.apply("e", "a", PROFILE)
    learnt.learn("e", "c", "named", False, "x" * 1000)
    assert [fact.model for fact in learnt.facts()] == ["a", "c"]
    assert len(learnt.facts()[1].fact.note) == 200
    assert not learnt.learn("e", "m" * 10_000, "named", False, "")
    assert len(learnt.facts()) == 2
    assert not Learnt(most=0).learn("e", "m", "named", False, "")


def test_only_what_a_profile_has() -> None:
    """Rule 33: a lesson about no field, or of no legal value, is a mistake of ours."""
    with pytest.raises(ConfigError):
        Learnt().learn("e", "m", "colour", "red", "")
    with pytest.raises(ConfigError):
        Learnt().learn("e", "m", "forced", "red", "")


@given(st.lists(st.sampled_from(list(Rejection)), max_size=8))
def test_every_lesson_can_be_learnt(rejections: list[Rejection]) -> None:
    """Rule 33: whatever an upstream refuses, the lessons fit the profile, and applying them twice changes nothing."""
    learnt = Learnt()
    for rejection in rejections:
        taught = lesson(rejection)
        if taught is not None:
            learnt.learn("e", "m", *taught, rejection)
    once = learnt.apply("e", "m", PROFILE)
    assert learnt.apply("e", "m", once) is once
    if Rejection.TOOLS_UNSUPPORTED in rejections:
        assert once.protocol is Protocol.PROMPT
    if Rejection.FORCE_UNSUPPORTED in rejections:
        assert once.forced is Forcing.NEVER
