"""The plan of a turn: which rungs may be climbed, for every kind of upstream."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import OpaqueState, Reasoning, Text
from mustcall.core.request import ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import ToolChoice
from mustcall.policy.facts.controls import Controls, Limits
from mustcall.policy.facts.profile import Forcing, Profile, Protocol, ReasoningHabit
from mustcall.policy.request.plan import (
    Plan,
    Rung,
    RungKind,
    first_rungs,
    holds_bound_reasoning,
    is_reasoning,
    make_plan,
)
from support.values import ANY, NOTHING, asked, demand, named, user

HABITS = {False: ReasoningHabit.NEVER, True: ReasoningHabit.ALWAYS}

#: What is tried with a model of whose schema output nothing is known, by forced choice and reasoning: where text may
#: carry calls, and with a first-party provider. A number behind a rung is its firmness.
LADDERS: dict[tuple[Forcing, bool], tuple[str, str]] = {
    (Forcing.ALWAYS, False): ("native native1 schema text", "native native1"),
    (Forcing.ALWAYS, True): ("native native1 schema text", "native native1"),
    (Forcing.WITHOUT_REASONING, False): ("native native1 schema text", "native native1"),
    (Forcing.WITHOUT_REASONING, True): ("soft soft1 soft2 soft3 schema", "soft soft1 soft2 soft3"),
    (Forcing.NEVER, False): ("soft soft1 schema text", "soft soft1"),
    (Forcing.NEVER, True): ("soft soft1 soft2 soft3 schema", "soft soft1 soft2 soft3"),
    (Forcing.IGNORED, False): ("schema soft text", "soft soft1"),
    (Forcing.IGNORED, True): ("schema soft text", "soft soft1"),
    (Forcing.UNKNOWN, False): ("native schema soft text", "native soft"),
    (Forcing.UNKNOWN, True): ("native schema soft text", "native soft"),
}


def spell(plan: Plan) -> str:
    """Write the ladder of a plan in short."""
    return " ".join(f"{rung.kind}{rung.firmness or ''}" for rung in plan.rungs)


def plan_of(
    profile: Profile, request: Request | None = None, controls: Controls | None = None, *, force: bool = True
) -> Plan:
    """Plan a small turn."""
    wanted = demand(named()) if force else demand()
    return make_plan(request or asked(), wanted, profile, controls or Controls())


@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize(("forced", "reasoning"), list(itertools.product(Forcing, [False, True])))
def test_ladder_for_every_kind_of_upstream(protocol: Protocol, forced: Forcing, reasoning: bool) -> None:
    """Rules 20, 22, 28, 30, 70, 74, 140: forced choice, reasoning and protocol give one ladder, written out by hand."""
    plan = plan_of(Profile(protocol=protocol, forced=forced, reasoning=HABITS[reasoning]))
    expected = {
        Protocol.HYBRID: LADDERS[forced, reasoning][0],
        Protocol.NATIVE: LADDERS[forced, reasoning][1],
        Protocol.PROMPT: "text text1 schema",
        Protocol.OFF: "plain",
    }
    assert spell(plan) == expected[protocol]
    assert plan.reasoning is reasoning
    assert plan.protocol is protocol


@pytest.mark.parametrize(
    ("profile", "ladder"),
    [
        (Profile(forced=Forcing.WITHOUT_REASONING, reasoning_off=True), "soft hard"),
        (Profile(forced=Forcing.WITHOUT_REASONING, schema_output=True), "soft soft1 soft2 soft3 schema"),
        (Profile(forced=Forcing.NEVER, schema_output=True, grammar_field="g"), "soft soft1 soft2 soft3 schema"),
        (Profile(forced=Forcing.IGNORED, schema_output=True, grammar_field="g"), "schema grammar soft text"),
        (Profile(forced=Forcing.UNKNOWN, reasoning_off=True), "native hard schema soft text"),
        (Profile(forced=Forcing.UNKNOWN, schema_output=False), "native soft text"),
        (Profile(forced=Forcing.UNKNOWN, local=True), "native schema grammar soft text"),
        (Profile(forced=Forcing.UNKNOWN, local=True, grammar_output=False), "native schema soft text"),
        (Profile(forced=Forcing.IGNORED, grammar_field="g", grammar_output=False), "schema soft text"),
        (Profile(forced=Forcing.UNKNOWN, forced_by=("schema", "text")), "schema text native soft"),
        (Profile(forced=Forcing.ALWAYS, grammar_field="g", schema_output=False), "native native1 grammar text"),
        (Profile(forced=Forcing.ALWAYS, grammar_field="g", constrain_first=True), "schema grammar soft"),
        (Profile(forced=Forcing.ALWAYS, constrain_first=True, schema_output=False), "native native1 text"),
        (Profile(protocol=Protocol.PROMPT, schema_output=False), "text text1"),
        (Profile(protocol=Protocol.PROMPT, schema_output=True, constrain_first=True), "schema text"),
    ],
)
def test_ladder_with_more_means(profile: Profile, ladder: str) -> None:
    """Rules 23, 28, 76, 139, 140: with reasoning on, what else a server can do is tried in its place."""
    thinking = asked(reasoning=ReasoningConfig(mode=ReasoningMode.ENABLED, budget_tokens=1024))
    assert spell(plan_of(profile, thinking)) == ladder


@pytest.mark.parametrize("forced", Forcing)
def test_what_turns_start_with(forced: Forcing) -> None:
    """Rule 139: the first rungs are those of the two ladders, with reasoning and without."""
    for protocol, column in ((Protocol.HYBRID, 0), (Protocol.NATIVE, 1)):
        ladders = [LADDERS[forced, reasoning][column].split() for reasoning in (False, True)]
        assert first_rungs(Profile(protocol=protocol, forced=forced)) == {ladder[0] for ladder in ladders}


def test_an_unknown_model_gets_what_the_caller_sent() -> None:
    """Rules 22, 74: the forced choice goes first as it came, whether the request turns reasoning on or not."""
    thinking = asked(reasoning=ReasoningConfig(effort="high"))
    assert spell(plan_of(Profile(), thinking)) == "native schema soft text"
    assert spell(plan_of(Profile(), asked())) == "native schema soft text"


@pytest.mark.parametrize("reminders", [0, 1, 3, 5])
def test_reminders_are_a_setting(reminders: int) -> None:
    """Rule 28: as many firmer reminders as the limit says."""
    profile = Profile(forced=Forcing.NEVER, reasoning=ReasoningHabit.ALWAYS, schema_output=False)
    plan = plan_of(profile, controls=Controls(limits=Limits(reminders=reminders)))
    assert [rung.firmness for rung in plan.rungs] == list(range(reminders + 1))


def test_bound_reasoning_keeps_the_tools_where_they_are() -> None:
    """Rule 134: tools rendered as text change the prompt from its start, so that rung is not there."""
    bound = Reasoning(text="t", state=OpaqueState(Wire.MESSAGES, {"signature": "c2ln"}, "up"))
    history = asked(user("a"), Message(role=Role.ASSISTANT, parts=(bound, Text(text="b"))), user("c"))
    profile = Profile(prefix_bound=True)
    assert holds_bound_reasoning(history)
    assert spell(plan_of(profile, history)) == "native schema soft"
    assert spell(plan_of(profile, asked())) == "native schema soft text"
    assert not holds_bound_reasoning(asked(user("a"), Message(role=Role.ASSISTANT, parts=(Reasoning(text="t"),))))


def test_nothing_is_climbed_without_a_force() -> None:
    """Rule 30: auto, none and no choice at all are asked plainly, with any profile."""
    for choice in (None, NOTHING):
        plan = make_plan(asked(), demand(choice), Profile(forced=Forcing.NEVER), Controls())
        assert plan.rungs == (Rung(RungKind.PLAIN),)
    assert make_plan(asked(), demand(ANY, hosted=True), Profile(), Controls()).rungs == (Rung(RungKind.PLAIN),)


def test_the_callers_protocol_wins() -> None:
    """Rule 70: a protocol in the controls is used instead of the profile's."""
    plan = plan_of(Profile(protocol=Protocol.NATIVE), controls=Controls(protocol=Protocol.PROMPT))
    assert (plan.protocol, spell(plan)) == (Protocol.PROMPT, "text text1 schema")


ON = ReasoningConfig(mode=ReasoningMode.ADAPTIVE)
OFF = ReasoningConfig(mode=ReasoningMode.DISABLED)


@pytest.mark.parametrize(
    ("habit", "silent", "on", "off"),
    [
        (ReasoningHabit.NEVER, False, False, False),
        (ReasoningHabit.ASKED, False, True, False),
        (ReasoningHabit.DEFAULT, True, True, False),
        (ReasoningHabit.ALWAYS, True, True, True),
        (ReasoningHabit.UNKNOWN, False, True, False),
    ],
)
def test_reasoning_counts_as_active(habit: ReasoningHabit, silent: bool, on: bool, off: bool) -> None:
    """Rule 22: the request or the profile turns it on."""
    profile = Profile(reasoning=habit)
    assert is_reasoning(asked(), profile) is silent
    assert is_reasoning(asked(reasoning=ON), profile) is on
    assert is_reasoning(asked(reasoning=OFF), profile) is off


def test_reasoning_in_other_words() -> None:
    """Rule 22: an effort, a budget or a provider's own `thinking` field ask for it; effort `none` does not."""
    profile = Profile(reasoning=ReasoningHabit.ASKED)
    own = Origin(Wire.CHAT, {"thinking": {"type": "enabled"}})
    assert is_reasoning(asked(reasoning=ReasoningConfig(effort="low")), profile)
    assert is_reasoning(asked(reasoning=ReasoningConfig(budget_tokens=1024)), profile)
    assert not is_reasoning(asked(reasoning=ReasoningConfig(effort="none")), profile)
    assert is_reasoning(asked(reasoning=ReasoningConfig(), origin=own), profile)
    assert not is_reasoning(asked(reasoning=ReasoningConfig()), profile)
    assert not is_reasoning(asked(), Profile(reasoning=ReasoningHabit.UNKNOWN, reasoning_off=True))


profiles = st.builds(
    Profile,
    protocol=st.sampled_from(Protocol),
    forced=st.sampled_from(Forcing),
    reasoning=st.sampled_from(ReasoningHabit),
    reasoning_off=st.sampled_from([None, True, False]),
    prefix_bound=st.booleans(),
    schema_output=st.sampled_from([None, True, False]),
    local=st.booleans(),
    forced_by=st.lists(st.sampled_from([str(kind) for kind in RungKind]), unique=True, max_size=3).map(tuple),
    grammar_field=st.sampled_from([None, "guided_json"]),
    grammar_output=st.sampled_from([None, True, False]),
    constrain_first=st.booleans(),
)
requests = st.sampled_from([None, ON, OFF, ReasoningConfig(effort="high")]).map(
    lambda reasoning: asked(reasoning=reasoning)
)


@given(profiles, requests, st.integers(0, 4), st.sampled_from([named(), ANY]))
@settings(deadline=None)
def test_every_rung_is_legal_for_its_profile(
    profile: Profile, request: Request, reminders: int, choice: ToolChoice
) -> None:
    """Rules 20, 28, 71, 74: the ladder is never empty, no rung stands twice, and none is known to be refused."""
    plan = make_plan(request, demand(choice), profile, Controls(limits=Limits(reminders=reminders)))
    kinds = [rung.kind for rung in plan.rungs]
    assert plan.rungs
    assert len(set(plan.rungs)) == len(plan.rungs)
    if plan.protocol is Protocol.OFF:
        assert kinds == [RungKind.PLAIN]
        return
    assert RungKind.PLAIN not in kinds
    if profile.forced is Forcing.NEVER or (profile.forced is Forcing.WITHOUT_REASONING and plan.reasoning):
        assert RungKind.NATIVE not in kinds
    if profile.forced in (Forcing.NEVER, Forcing.IGNORED) or not profile.reasoning_off or not plan.reasoning:
        assert RungKind.HARD not in kinds
    if profile.forced is Forcing.UNKNOWN and plan.protocol is Protocol.HYBRID and not profile.constrain_first:
        assert RungKind.NATIVE in kinds
    unknown = plan.protocol is not Protocol.NATIVE
    assert profile.schema_output or (profile.schema_output is None and unknown) or RungKind.SCHEMA not in kinds
    assert profile.grammar_field or (profile.local and unknown) or RungKind.GRAMMAR not in kinds
    assert profile.grammar_output is not False or RungKind.GRAMMAR not in kinds
    proven = [kind for kind in profile.forced_by if kind in kinds]
    assert list(dict.fromkeys(kinds))[: len(proven)] == proven
    if plan.protocol is Protocol.NATIVE:
        assert RungKind.TEXT not in kinds
    if plan.protocol is Protocol.PROMPT:
        assert not {RungKind.NATIVE, RungKind.SOFT, RungKind.HARD} & set(kinds)
