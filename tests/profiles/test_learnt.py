"""Facts learnt from refusals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ConfigError
from mustcall.policy.profile import Forcing, Profile, Protocol
from mustcall.policy.rejection import Rejection, lesson
from mustcall.profiles import Learnt, Observed

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


DAY = 86_400.0
START = 1_700_000_000.0


@pytest.mark.parametrize(("field", "value"), [("schema_output", False), ("forced", Forcing.NEVER)])
def test_what_expired_is_learnt_again(field: str, value: object) -> None:
    """Rules 33, 139: a fact of seven days ago is as good as none, for the one who learns it, too."""
    learnt, profile = Learnt(), Profile()
    assert learnt.learn("e", "m", field, value, "", at=START)
    assert learnt.apply("e", "m", profile, now=START + 8 * DAY) is profile
    assert learnt.learn("e", "m", field, value, "", at=START + 8 * DAY)
    assert getattr(learnt.apply("e", "m", profile, now=START + 9 * DAY), field) == value


def test_a_force_that_was_refused_long_ago() -> None:
    """Rules 33, 139: once that has expired, a refusal that blames the reasoning is believed."""
    learnt = Learnt()
    learnt.learn("e", "m", "forced", Forcing.NEVER, "", at=START)
    assert not learnt.learn("e", "m", "forced", Forcing.WITHOUT_REASONING, "", at=START + DAY)
    assert learnt.learn("e", "m", "forced", Forcing.WITHOUT_REASONING, "", at=START + 8 * DAY)
    assert learnt.apply("e", "m", Profile(), now=START + 8 * DAY).forced is Forcing.WITHOUT_REASONING


def test_a_repeated_lesson_is_believed_for_longer() -> None:
    """Rule 139: seven days from the last time; an older word neither shortens that nor replaces a newer one."""
    learnt = Learnt()
    learnt.learn("e", "m", "forced", Forcing.WITHOUT_REASONING, "", at=START)
    for day in (5, 3):
        assert not learnt.learn("e", "m", "forced", Forcing.WITHOUT_REASONING, "", at=START + day * DAY)
    assert not learnt.learn("e", "m", "forced", Forcing.NEVER, "", at=START + DAY)
    assert learnt.apply("e", "m", PROFILE, now=START + 11 * DAY).forced is Forcing.WITHOUT_REASONING
    assert learnt.apply("e", "m", PROFILE, now=START + 13 * DAY) is PROFILE


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
