"""The attempt a turn makes next: its rung, its request, what is looked for in its reply, what that is judged by.

All counters of a turn are here. Nothing here moves the turn on: that is done by what came back (`policy.turn.state`).
The caller's own request is never changed: what a turn adds lives here and ends with it (rules 24, 25, 49).
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.message import Message
from mustcall.core.origin import Wire
from mustcall.core.parts import ToolCall
from mustcall.core.request import Request
from mustcall.core.tools import Tool, functions_of
from mustcall.core.verdict import Verdict
from mustcall.dialects.names import Offered
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Forcing, Profile, Protocol, SchemaTarget
from mustcall.policy.facts.wording import Wording
from mustcall.policy.failures.rejection import Rejection
from mustcall.policy.history.mended import offer_stubs
from mustcall.policy.history.names import NameMap
from mustcall.policy.reply.judge import Case
from mustcall.policy.request.attempt_request import Shaped, shape
from mustcall.policy.request.demand import Demand
from mustcall.policy.request.plan import Plan, Rung, RungKind
from mustcall.policy.request.refused_tools import as_probe, without_tools
from mustcall.policy.request.structured_answer import AnswerWay, answer_way, asked_apart, written_answer
from mustcall.policy.request.tool_isolation import Isolation
from mustcall.policy.scanning.reply_scanner import ScanTargets
from mustcall.policy.schema.arguments import check_arguments
from mustcall.policy.words.grounding import latest_input
from mustcall.policy.words.shown_examples import asks_to_be_shown

__all__ = ["NextAttempt"]


class NextAttempt:
    """The attempt to come. `caller` is the request as decoded, `request` the same with its history mended."""

    def __init__(
        self,
        caller: Request,
        request: Request,
        plan: Plan,
        *,
        profile: Profile,
        controls: Controls,
        wording: Wording,
        issuer: str,
        names: NameMap,
        log: AdaptationLog,
        kept: bool = False,
        appends: bool = False,
        call_start: str = "call_",
    ) -> None:
        self._caller = caller
        self._call_start = call_start
        self._request = request
        self._controls = controls
        self._wording = wording
        self.issuer = issuer
        self._offered = functions_of(names.outgoing(caller).tools)
        self.names = names
        #: Whether the upstream keeps its replies, for the caller to go on from.
        self.stored = kept
        #: Whether the upstream adds its replies to a conversation of the caller's, and whether it has added one.
        self._appends = appends
        self.appended = False
        #: Whether an answer that did not fit is asked for once more, alone.
        self._alone = False
        self._place = 0
        self._kept_messages: list[Message] = []
        self._reminder: Message | None = None
        self._shaped: Shaped | None = None
        self._tried: dict[Verdict, int] = {}
        self._refusals: set[Rejection] = set()
        self._climbed: list[Rung] = []
        self._missed: list[Rung] = []
        self._mends: list[Callable[[Request], Request]] = []
        self._shows: bool | None = None
        #: Whether the tools were taken out because one was called although none may be.
        self._withdrawn = False
        #: The request and its schema target before schemas were narrowed.
        self._wide: tuple[Request, SchemaTarget] | None = None
        self.isolation = Isolation(caller, plan.demand)
        self.plan = plan
        self.profile = profile
        #: Upstream calls made beyond the first.
        self.extra = 0
        self.log = log

    @property
    def rung(self) -> Rung:
        """The rung of the next attempt."""
        return self.plan.rungs[self._place]

    @property
    def missed(self) -> tuple[Rung, ...]:
        """The rungs that were tried in this turn and did not make the call, refused ones not counted."""
        return tuple(self._missed)

    @property
    def may_call(self) -> bool:
        """Whether another upstream call is allowed (rule 96); none is once a reply is in the caller's conversation."""
        limits = self._controls.limits
        return not self.appended and self.extra - min(self.isolation.calls, limits.refused_tool) < limits.extra_calls

    def count_call(self) -> None:
        """Count one upstream call beyond the first."""
        self.extra += 1

    def answered(self) -> None:
        """Take note that the upstream answers with a reply."""
        self.appended = self._appends

    def shaped(self) -> Shaped:
        """Return the request of the next attempt; the same object when the same bytes are to be sent again."""
        if self._shaped is None:
            tail = self._kept_messages if self._reminder is None else [*self._kept_messages, self._reminder]
            request = self._request
            for mend in self._mends:
                request = mend(request)
            if self.isolation.begun:
                request = offer_stubs(without_tools(request, self.isolation.out), self.profile, self.log)
            plan = self.plan
            if not self.names.trivial:
                plan = msgspec.structs.replace(plan, demand=self._named_demand())
            shaped = shape(request, plan, self.rung, tail, profile=self.profile, wording=self._wording, log=self.log)
            if self._request.output is not None:
                shaped = self._answering(shaped, plan)
            if self.settles_early and self.profile.streams_forced is not False and not shaped.request.stream:
                self.log.add(AdaptationKind.FIELD_MAPPED, "stream", "on, so that the demanded call ends the reply")
                streamed = shaped.request.evolve(stream=True, stream_usage=True)
                shaped = msgspec.structs.replace(shaped, request=streamed)
            if shaped.request.stream and not self.profile.streams:
                self.log.add(AdaptationKind.FIELD_MAPPED, "stream", "off: the upstream does not stream")
                whole = shaped.request.evolve(stream=False, stream_usage=False)
                shaped = msgspec.structs.replace(shaped, request=whole)
            if self.isolation.probing:
                shaped = msgspec.structs.replace(shaped, request=as_probe(shaped.request))
            self._shaped = shaped
        return self._shaped

    @property
    def bends(self) -> bool:
        """Whether the next request may need schemas in another form: only those of a demand or an answer do."""
        return self.plan.demand.forced or self.rung.constrains or self._request.output is not None

    @property
    def settles_early(self) -> bool:
        """Whether the next reply is settled at its first complete call (rule 137).

        Not where the upstream is known to enforce the choice, and not where it constrains the reply: both end by
        themselves. Under `native` nothing is read from text; a call of the provider's own ends by itself, too.
        """
        if not self.plan.demand.forced or self.rung.constrains or self.plan.protocol is Protocol.NATIVE:
            return False
        if self._request.fields_for(Wire.CHAT).get("n", 1) not in (1, None):
            return False  # of several choices a stream would keep one
        forcing = self.rung.kind in (RungKind.NATIVE, RungKind.HARD)
        return not (forcing and self.profile.forced in (Forcing.ALWAYS, Forcing.WITHOUT_REASONING))

    def _answering(self, shaped: Shaped, plan: Plan) -> Shaped:
        """Return the request with its answer asked for as this upstream can be asked."""
        way = AnswerWay.ALONE if self._alone else self.answer_way
        asked = asked_apart(
            shaped.request, way, self._answer_tool, plan, profile=self.profile, wording=self._wording, log=self.log
        )
        return shaped if asked is shaped.request else msgspec.structs.replace(shaped, request=asked)

    @property
    def answer_way(self) -> AnswerWay:
        """How a structured answer is asked for on this rung."""
        if self._request.output is None or self.rung.constrains or self.rung.kind is RungKind.ANSWER:
            return AnswerWay.ASKED
        return answer_way(self._request, self.plan, self.profile, kept=self.stored)

    @property
    def _answer_tool(self) -> Tool | None:
        """The tool that takes the answer, where that is how it is asked for."""
        if self._request.output is None or self._alone or self.answer_way is not AnswerWay.TOOL:
            return None
        return written_answer(self._request, self.profile, self._wording)

    @property
    def holds_answer(self) -> bool:
        """Whether nothing may go out before it is known that it is the answer asked for."""
        output = self._caller.output
        return output is not None and (not self.profile.schema_output or self.answer_way is not AnswerWay.ASKED)

    def _named_demand(self) -> Demand:
        """Return the demand in the names the upstream knows."""
        demand = self.plan.demand
        if demand.choice is None:
            return demand
        return msgspec.structs.replace(demand, choice=self.names.choice(demand.choice))

    def lookout(self) -> ScanTargets | None:
        """Return what to look for in the text of the next reply, None for nothing."""
        # A model may write a tool's own name all the same: it stands in prompts and in the history.
        tools = self._offered
        answer = self._answer_tool
        if answer is not None:
            tools += (answer,)
        if not self.names.trivial:
            tools += tuple(tool for tool in functions_of(self._caller.tools) if tool not in self._offered)
        if self.plan.protocol is Protocol.OFF:
            return None
        native = self.plan.protocol is Protocol.NATIVE and self.rung.kind is not RungKind.TEXT
        if native and not tools:
            return None
        return ScanTargets(
            tools=tools,
            dialects=self.profile.dialects,
            loose=self.reads_text,
            separated=native or self.profile.separates_reasoning,
            alone=self._alone_means(),
            shown=self.shows,
            demanded=self._is_demanded if self.settles_early else None,
            call_start=self._call_start,
        )

    def _alone_means(self) -> Literal["reply", "anywhere"]:
        """Return what a call as JSON without markup is: a call, allowed or not (rules 63, 125), or text."""
        return "anywhere" if self.plan.demand.forced else "reply"

    def _is_demanded(self, name: str, arguments: str) -> bool:
        """Tell whether a call found in text is complete, on offer, valid and what the caller demanded."""
        call = self.names.restore(ToolCall(id="", name=name, arguments_json=arguments))
        found = Offered(functions_of(self._caller.tools)).find(call.name, call.namespace)
        if found is None:
            return False
        tool = found[0]
        checked = check_arguments(tool, call.arguments_json, null_is_absent=True)
        meant = call.evolve(name=tool.name, namespace=tool.namespace)
        return not (checked.problems or checked.truncated) and self.plan.demand.permits(meant)

    def shows(self) -> bool:
        """Tell whether the user asked to be shown JSON, an example or how a call is written (rule 63)."""
        if self._shows is None:
            self._shows = asks_to_be_shown(latest_input(self._caller).texts)
        return self._shows

    @property
    def reads_text(self) -> bool:
        """Whether text is the primary channel for calls on this rung."""
        return self.plan.protocol is Protocol.PROMPT or self.rung.kind is RungKind.TEXT

    def case(self, token: str, prompt_bound: int, sent_limit: int | None = None) -> Case:
        """Return what the current attempt's reply is judged by; `sent_limit` is the cap on tokens that was sent."""
        return Case(
            request=self._caller,
            demand=self.plan.demand,
            profile=self.profile,
            controls=self._controls,
            protocol=self.plan.protocol,
            rung=self.rung,
            names=self.names,
            offered=self._offered,
            token=token,
            call_start=self._call_start,
            prompt_bound=prompt_bound,
            sent_limit=sent_limit,
            answer_way=self.answer_way,
            shows=self.shows,
            answer_tool=self._answer_tool,
        )
