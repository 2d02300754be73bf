"""What will be done differently because of a measured profile: plans before and after, by the planner itself.

Stock requests are explained with what is known without the profile and with it (`engine.explaining`), so that what is
said here is what turns do. Nothing is sent.
"""

from collections.abc import Sequence

import msgspec

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import MustcallError
from mustcall.core.message import Message, Role
from mustcall.core.parts import Text
from mustcall.core.request import OutputFormat, OutputKind, ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import ChoiceMode, Tool, ToolChoice
from mustcall.engine.explaining import Explanation, explain
from mustcall.engine.turns import OperatorSettings
from mustcall.profiles import Fact, MeasuredProfile, resolve
from mustcall.profiles.facts import Observed
from mustcall.upstream.endpoint import Endpoint
from mustcall.wire.codec import Target
from mustcall.wire.registry import codec_for

__all__ = ["FactChange", "PlanChange", "PlanChanges", "compare_plans"]

_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
_TOOLS = tuple(Tool(name=name, description="Look it up.", parameters=_SCHEMA) for name in ("get_weather", "get_time"))
_ASKED = Request(
    model="",
    messages=(Message(role=Role.USER, parts=(Text(text="What is the weather in Oslo?"),)),),
    tools=_TOOLS,
    max_tokens=1024,
)
_REASONING = ReasoningConfig(mode=ReasoningMode.ENABLED, effort="low")
#: What plans are compared for.
_CASES: dict[str, Request] = {
    "auto": _ASKED,
    "required": _ASKED.evolve(tool_choice=ToolChoice(mode=ChoiceMode.REQUIRED)),
    "required, reasoning": _ASKED.evolve(tool_choice=ToolChoice(mode=ChoiceMode.REQUIRED), reasoning=_REASONING),
    "named": _ASKED.evolve(tool_choice=ToolChoice(mode=ChoiceMode.NAMED, name="get_time")),
    "named, reasoning": _ASKED.evolve(
        tool_choice=ToolChoice(mode=ChoiceMode.NAMED, name="get_time"), reasoning=_REASONING
    ),
    "none": _ASKED.evolve(tool_choice=ToolChoice(mode=ChoiceMode.NONE)),
    "one call at a time": _ASKED.evolve(parallel_tool_calls=False),
    "answer by schema": _ASKED.evolve(
        tools=(), output=OutputFormat(kind=OutputKind.SCHEMA, schema=_SCHEMA, name="answer", strict=True)
    ),
}


class PlanChange(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of one kind of request: its rungs before and after, and the body fields its first attempt changes."""

    asked: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    fields: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything is done differently."""
        return self.before != self.after or bool(self.fields)


class FactChange(msgspec.Struct, frozen=True, kw_only=True):
    """A measured fact and what stood in its place; `stands` is False where the operator's own word does.

    `was_from` is empty where nothing was known.
    """

    field: str
    value: object
    measured: str
    was: object
    was_from: str
    stands: bool


class PlanChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What a measured profile changes for a model at an endpoint."""

    about: str
    facts: tuple[FactChange, ...]
    plans: tuple[PlanChange, ...]

    def lines(self) -> list[str]:
        """Return the PLAN: a line for each fact, and once for all requests that share them the rungs now and before."""
        lines = [f"PLAN for {self.about}"]
        for fact in self.facts:
            known = f"{_shown(fact.was)} ({fact.was_from})" if fact.was_from else "not known"
            if not fact.stands:
                lines.append(f"  {fact.field} stays {known}: the operator says so; measured {_shown(fact.value)}")
            elif fact.value == fact.was:
                known = f"known from {fact.was_from}" if fact.was_from else "assumed before"
                lines.append(f"  {fact.field} = {_shown(fact.value)} (measured {fact.measured}), as {known}")
            else:
                lines.append(f"  {fact.field} = {_shown(fact.value)} (measured {fact.measured}), was {known}")
        ladders: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
        for plan in self.plans:
            if plan.before != plan.after:
                ladders.setdefault((plan.before, plan.after), []).append(plan.asked)
        for (before, after), asked in ladders.items():
            lines += [f"  {'; '.join(asked)}:", f"    now {' > '.join(after)}", f"    was {' > '.join(before)}"]
        lines += [
            f"  {plan.asked}: as before, sent with another {', '.join(plan.fields)}"
            for plan in self.plans
            if plan.fields and plan.before == plan.after
        ]
        same = [plan.asked for plan in self.plans if not plan.changed]
        if len(same) == len(self.plans):
            lines.append("  nothing is done differently")
        elif same:
            lines.append(f"  as before: {'; '.join(same)}")
        return lines


def compare_plans(
    profile: MeasuredProfile, endpoint: Endpoint, operator: OperatorSettings | None = None
) -> PlanChanges:
    """Return what a measured profile changes, with what the operator's settings say over it."""
    before = operator or OperatorSettings()
    after = msgspec.structs.replace(before, overrides=(*before.overrides, profile.override()))
    known, now = (
        resolve(
            profile.model,
            endpoint.base_url,
            endpoint.wire,
            each.overrides,
            upstream=endpoint.name,
            server=endpoint.server,
        )
        for each in (before, after)
    )
    facts = [
        FactChange(
            field=fact.field,
            value=fact.value,
            measured=fact.measured,
            was=getattr(known.profile, fact.field),
            was_from=_source(known.facts.get(fact.field)),
            stands=now.facts[fact.field].observed is Observed.PROBED,
        )
        for fact in profile.facts
    ]
    plans = [
        _compare(
            asked, _explain(request, endpoint, profile.model, before), _explain(request, endpoint, profile.model, after)
        )
        for asked, request in _CASES.items()
    ]
    return PlanChanges(
        about=f"{profile.model} at {profile.endpoint} ({profile.wire})", facts=tuple(facts), plans=tuple(plans)
    )


def _explain(request: Request, endpoint: Endpoint, model: str, operator: OperatorSettings) -> Explanation | None:
    """Return the plan of a stock request, None where the wire cannot carry it."""
    codec = codec_for(endpoint.wire)
    try:
        body = codec.encode_request(
            request.evolve(model=model), Target(issuer="", default_max_tokens=1024), AdaptationLog()
        )
        return explain(msgspec.json.encode(body), endpoint.wire, endpoint, model, operator)
    except MustcallError:
        return None


def _compare(asked: str, before: Explanation | None, after: Explanation | None) -> PlanChange:
    if before is None or after is None:
        return PlanChange(asked=asked, before=_rungs(before), after=_rungs(after))
    was, now = before.rungs[0].body, after.rungs[0].body
    fields = [name for name in dict.fromkeys((*was, *now)) if was.get(name) != now.get(name)]
    return PlanChange(asked=asked, before=_rungs(before), after=_rungs(after), fields=tuple(fields))


def _rungs(explained: Explanation | None) -> tuple[str, ...]:
    """Return the kinds of rungs in order, each step of one kind once."""
    kinds: Sequence[str] = () if explained is None else [str(rung.kind) for rung in explained.plan.rungs]
    return tuple(kind for number, kind in enumerate(kinds) if number == 0 or kinds[number - 1] != kind)


def _source(fact: Fact | None) -> str:
    return "" if fact is None else fact.source or str(fact.observed)


def _shown(value: object) -> str:
    return msgspec.json.encode(value).decode().strip('"')
