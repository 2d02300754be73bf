"""How a turn is going to be asked: the protocol, and the rungs of the ladder it may climb.

The ladder is a table over what the profile says of forced choices and of reasoning; it knows nothing of wires, and
nothing is tried here. The caller's intent (`Demand`) stays apart from the form it takes on a rung: compliance is
judged by the intent.
"""

from enum import StrEnum
from typing import assert_never

import msgspec

from mustcall.core.message import Role
from mustcall.core.parts import CallKind, Reasoning
from mustcall.core.request import ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import Tool
from mustcall.policy.facts.controls import Controls, Limits
from mustcall.policy.facts.profile import Forcing, Profile, Protocol, ReasoningHabit
from mustcall.policy.request.demand import Demand
from mustcall.policy.words.grounding import latest_input
from mustcall.policy.words.relevance import relevant_tools
from mustcall.policy.words.user_text import without_demands

__all__ = [
    "Plan",
    "Rung",
    "RungKind",
    "candidates",
    "first_rungs",
    "holds_bound_reasoning",
    "is_reasoning",
    "make_plan",
]

#: Efforts that ask for no reasoning.
_NO_EFFORT = frozenset({"none"})


class RungKind(StrEnum):
    """One way to ask (design, "The force ladder")."""

    PLAIN = "plain"  # nothing is forced
    NATIVE = "native"  # the provider's own forced choice
    SOFT = "soft"  # `auto` and a directive; reasoning stays on
    HARD = "hard"  # the forced choice with reasoning off for this one request
    SCHEMA = "schema"  # the call as a native JSON-schema answer
    GRAMMAR = "grammar"  # the call by the server's constrained decoding
    TEXT = "text"  # tools as text, the call parsed
    ANSWER = "answer"  # nothing is offered: an answer in text


class Rung(msgspec.Struct, frozen=True):
    """A way to ask and how firmly: 0 is the first directive, each further step is firmer."""

    kind: RungKind
    firmness: int = 0

    @property
    def constrains(self) -> bool:
        """Whether the reply is a JSON object that stands for a call."""
        return self.kind in (RungKind.SCHEMA, RungKind.GRAMMAR)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What may be tried in this turn, in order."""

    protocol: Protocol
    demand: Demand
    reasoning: bool
    rungs: tuple[Rung, ...]


_PLAIN = (Rung(RungKind.PLAIN),)


def make_plan(request: Request, demand: Demand, profile: Profile, controls: Controls) -> Plan:
    """Return the plan of a turn (rules 20 to 33, 70 to 76)."""
    protocol = controls.protocol or profile.protocol
    reasoning = is_reasoning(request, profile)
    if demand.forced and protocol is not Protocol.OFF:
        bound = profile.prefix_bound and holds_bound_reasoning(request)
        rungs = _proven_first(_ladder(profile, protocol, controls.limits, reasoning=reasoning, bound=bound), profile)
    elif profile.words_choose and protocol is Protocol.PROMPT:
        rungs = _chosen_by_words(request, demand, profile)
    else:
        rungs = _PLAIN
    return Plan(protocol=protocol, demand=demand, reasoning=reasoning, rungs=tuple(rungs))


def is_reasoning(request: Request, profile: Profile) -> bool:
    """Tell whether reasoning counts as active: the request or the profile turns it on (rule 22)."""
    if profile.reasoning is ReasoningHabit.NEVER:
        return False
    if profile.reasoning is ReasoningHabit.ALWAYS:
        return True
    config = request.reasoning
    if config is not None:
        if _asked(request, config):
            return True
        if config.mode is ReasoningMode.DISABLED or config.effort in _NO_EFFORT:
            return False
    match profile.reasoning:
        case ReasoningHabit.ASKED | ReasoningHabit.UNKNOWN:
            return False
        case ReasoningHabit.DEFAULT:
            return True
        case _:
            assert_never(profile.reasoning)


def _asked(request: Request, config: ReasoningConfig) -> bool:
    """Tell whether the request itself turns reasoning on, in a known word or in one of the provider's own."""
    if config.mode is ReasoningMode.DISABLED:
        return False
    if config.mode is not None or config.budget_tokens:
        return True
    if config.effort is not None:
        return config.effort not in _NO_EFFORT
    own = request.origin.fields.get("thinking") if request.origin is not None else None
    return isinstance(own, dict) and "type" in own


def holds_bound_reasoning(request: Request) -> bool:
    """Tell whether earlier turns carry reasoning state that only its issuer can read."""
    return any(
        isinstance(part, Reasoning) and part.state is not None
        for message in request.messages
        if message.role is Role.ASSISTANT
        for part in message.parts
    )


def _chosen_by_words(request: Request, demand: Demand, profile: Profile) -> list[Rung]:
    """Return a call and then an answer where the message is about a tool and none has answered it, else the answer."""
    latest = latest_input(without_demands(request))
    tools = () if latest.answered or demand.forbids else candidates(request, demand)
    call = [Rung(RungKind.SCHEMA)] if profile.schema_output and relevant_tools(" ".join(latest.texts), tools) else []
    return [*call, Rung(RungKind.ANSWER)]


def candidates(request: Request, demand: Demand) -> list[Tool]:
    """Return the tools whose call would satisfy the demand, those that are locked off left out."""
    return [
        tool
        for tool in request.tools
        if isinstance(tool, Tool) and tool.kind is CallKind.FUNCTION and demand.may_force(tool)
    ]


def first_rungs(profile: Profile) -> frozenset[RungKind]:
    """Return what forced turns start with where nothing was counted: without reasoning and with it."""
    ladders = (
        _ladder(profile, profile.protocol, Limits(), reasoning=reasoning, bound=False) for reasoning in (False, True)
    )
    return frozenset(ladder[0].kind for ladder in ladders)


def _proven_first(rungs: list[Rung], profile: Profile) -> list[Rung]:
    """Return the ladder with the rungs first that are known to make calls here (rule 139)."""
    proven = profile.forced_by
    if not proven:
        return rungs
    return sorted(rungs, key=lambda rung: proven.index(rung.kind) if rung.kind in proven else len(proven))


def _constraining(profile: Profile, protocol: Protocol) -> list[Rung]:
    """Return the rungs that constrain the reply: those the upstream has, and those it may have (rule 140)."""
    unknown = protocol is not Protocol.NATIVE  # of a first-party provider it is known what it has
    rungs: list[Rung] = []
    if profile.schema_output or (profile.schema_output is None and unknown):
        rungs.append(Rung(RungKind.SCHEMA))
    taken = profile.grammar_output is not False
    if taken and (profile.grammar_field is not None or (profile.local and unknown)):
        rungs.append(Rung(RungKind.GRAMMAR))
    return rungs


def _ladder(profile: Profile, protocol: Protocol, limits: Limits, *, reasoning: bool, bound: bool) -> list[Rung]:
    constrained = _constraining(profile, protocol)
    # Another rendering of the tools changes the prompt from its start, which bound reasoning does not survive; and a
    # first-party model is never taught a second grammar.
    text = [Rung(RungKind.TEXT)] if protocol is not Protocol.NATIVE and not bound else []
    soft = Rung(RungKind.SOFT)
    firmer = [Rung(RungKind.SOFT, step + 1) for step in range(limits.reminders)]
    if protocol is Protocol.PROMPT:
        asking = [Rung(RungKind.TEXT), Rung(RungKind.TEXT, 1)]
        return constrained + asking[:1] if profile.constrain_first and constrained else asking + constrained
    if profile.constrain_first and constrained:
        return [*constrained, soft]
    forced = profile.forced if profile.takes_choice else Forcing.NEVER
    match forced:
        case Forcing.ALWAYS:
            return _native(constrained, text)
        case Forcing.WITHOUT_REASONING:
            if not reasoning:
                return _native(constrained, text)
            if profile.reasoning_off:
                return [soft, Rung(RungKind.HARD)]
            return [soft, *firmer, *constrained[:1]]
        case Forcing.NEVER:
            if reasoning:
                return [soft, *firmer, *constrained[:1]]
            return [soft, *firmer[:1], *constrained, *text]
        case Forcing.IGNORED:
            return [*constrained, soft, *(text or firmer[:1])]
        case Forcing.UNKNOWN:
            # As the caller sent it: a refusal is immediate and teaches, an ignored force shows (rules 22, 74).
            hard = [Rung(RungKind.HARD)] if reasoning and profile.reasoning_off else []
            return [Rung(RungKind.NATIVE), *hard, *constrained, soft, *text]
        case _:
            assert_never(forced)


def _native(constrained: list[Rung], text: list[Rung]) -> list[Rung]:
    """A force that works is asked once more, with a directive, before the form is changed (rule 32)."""
    return [Rung(RungKind.NATIVE), Rung(RungKind.NATIVE, 1), *constrained, *text]
