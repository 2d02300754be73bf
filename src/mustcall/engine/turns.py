"""Where turns begin: a request, its profile and its controls become a plan, and the plan a turn.

One of these serves a whole process; it keeps what turns learn from each other (what was refused, what worked) and
nothing of any request. Gateway and library come in here.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationKind, AdaptationLog
from mustcall.core.limits import DEFAULTS, GatewayLimits
from mustcall.core.request import Request
from mustcall.engine.edge import Edge
from mustcall.engine.exchange import Inbound, OtherForm, StreamedReply, WholeReply, exchange
from mustcall.engine.off_loop import LARGE, Aside, heavily, here
from mustcall.engine.records import TurnProgress, TurnRecord
from mustcall.engine.replies.early_release import appends_reply, keeps_reply
from mustcall.engine.replies.issuing import IssuedStates
from mustcall.engine.spending.budget_account import Budget, BudgetAccount, Metering
from mustcall.engine.spending.metered import Metered
from mustcall.engine.turn import EngineTurn
from mustcall.engine.turn_context import TurnContext, TurnServices
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Profile, Protocol
from mustcall.policy.facts.wording import Wording
from mustcall.policy.history.mended import mend_history
from mustcall.policy.history.names import UNCHANGED, NameMap
from mustcall.policy.request.demand import Demand, renamed_locks, settle_demand
from mustcall.policy.request.plan import make_plan
from mustcall.policy.request.refused_tools import drop_refused
from mustcall.policy.scanning.echoes import echoes_in
from mustcall.policy.schema.tool_schemas import compile_tools
from mustcall.policy.turn.state import TurnState
from mustcall.policy.words.grounding import GroundingRule
from mustcall.profiles import Learnt, Measurements, ProfileOverride, Resolved, resolve
from mustcall.telemetry.stream import PROCESS, EventStream
from mustcall.upstream.endpoint import Endpoint, caller_key
from mustcall.upstream.retry import Clock
from mustcall.upstream.seam import Transport
from mustcall.wire.crossing.binding import Binding
from mustcall.wire.crossing.sealing import holds_seal
from mustcall.wire.opening import Opened
from mustcall.wire.registry import codec_for

__all__ = ["OperatorSettings", "Turns", "make_turn_state"]


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's settings for every turn: grounding rules, profile overrides, the sentences, the controls.

    `budget` is the gateway's; an agent has its own.
    """

    rules: tuple[GroundingRule, ...] = ()
    overrides: tuple[ProfileOverride, ...] = ()
    wording: Wording = Wording()
    controls: Controls = Controls()
    budget: Budget | None = None


def make_turn_state(
    request: Request,
    profile: Profile,
    issuer: str,
    *,
    controls: Controls,
    wording: Wording,
    rules: Sequence[GroundingRule] = (),
    kept: bool = False,
    appends: bool = False,
    call_start: str = "call_",
) -> TurnState:
    """Return the state of a new turn, before anything is sent; raise `ForcedToolMissing` (rule 8).

    `kept` says that the upstream keeps the reply under its id, for the caller to go on from, `appends` that it adds the
    reply to a conversation of the caller's; `call_start` is how the ids of calls begin there. Under protocol `off`
    nothing is demanded and nothing is changed.
    """
    if (controls.protocol or profile.protocol) is Protocol.OFF:
        return _passed(request, profile, issuer, controls=controls, wording=wording, kept=kept, appends=appends)
    demand = settle_demand(request, controls, rules, notice=wording.step_cap)
    log = AdaptationLog()
    names = NameMap.of(request, profile)
    if not names.trivial:
        demand = renamed_locks(demand, request.tools, names.outgoing(request).tools)
    offered = drop_refused(mend_history(request, profile, issuer, log, wording), profile, demand, log)
    mended = names.outgoing(compile_tools(offered, profile, log), log)
    plan = make_plan(mended, demand, profile, controls)
    return TurnState(
        request,
        mended,
        plan,
        profile=profile,
        controls=controls,
        wording=wording,
        issuer=issuer,
        names=names,
        log=log,
        kept=kept,
        appends=appends,
        call_start=call_start,
    )


def _passed(
    request: Request, profile: Profile, issuer: str, *, controls: Controls, wording: Wording, kept: bool, appends: bool
) -> TurnState:
    """Return the state of a turn that forwards everything without a check."""
    log = AdaptationLog()
    lost = lost_force(controls)
    if lost is not None:
        log.add(lost.kind, lost.subject, lost.detail)
    return TurnState(
        request,
        request,
        make_plan(request, Demand(), profile, controls),
        profile=profile,
        controls=controls,
        wording=wording,
        issuer=issuer,
        names=UNCHANGED,
        log=log,
        kept=kept,
        appends=appends,
    )


def lost_force(controls: Controls) -> Adaptation | None:
    """Return the note for whoever asked for a force that is not made."""
    if not controls.force_tools:
        return None
    subject = controls.force_tools if isinstance(controls.force_tools, str) else "any tool"
    return Adaptation(AdaptationKind.FORCE_DROPPED, subject, "under protocol `off` nothing is forced")


def _unread(inbound: Inbound) -> int:
    """Return how many bytes of a request have not come before."""
    return len(inbound.fields.rest) if isinstance(inbound.fields, Opened) else len(inbound.body)


class Turns:
    """Takes turns over one transport."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        operator: OperatorSettings | None = None,
        learnt: Learnt | None = None,
        limits: GatewayLimits = DEFAULTS,
        *,
        measured: Measurements | None = None,
        events: EventStream = PROCESS,
    ) -> None:
        self._limits = limits
        self.events = events
        self._transport = transport
        self._clock = clock
        self.operator = operator or OperatorSettings()
        self.learnt = learnt or Learnt()
        self.measured = measured or Measurements()
        #: What the operator and probes say, joined once for each change.
        self._said = (self.measured.overrides, (*self.measured.overrides, *self.operator.overrides))
        self.issued = IssuedStates()
        self._last = TurnServices(transport=transport, clock=clock, learnt=self.learnt)

    def over(self, transport: Transport) -> "Turns":
        """Return these turns over another transport; what they learn stays shared."""
        other = copy(self)
        other._transport = transport  # noqa: SLF001  a copy of itself
        other._last = TurnServices(transport=transport, clock=self._clock, learnt=self.learnt)  # noqa: SLF001  as above
        return other

    def known(self, endpoint: Endpoint, model: str) -> Resolved:
        """Return what is known of a model at an endpoint apart from what turns taught, each fact with its source."""
        shared = self.measured.overrides
        if self._said[0] is not shared:
            self._said = (shared, (*shared, *self.operator.overrides))
        return resolve(
            model, endpoint.base_url, endpoint.wire, self._said[1], upstream=endpoint.name, server=endpoint.server
        )

    def ruled_by(self, rules: tuple[GroundingRule, ...]) -> "Turns":
        """Return the same turns under other grounding rules; what is learnt is shared."""
        other = copy(self)
        other.operator = msgspec.structs.replace(self.operator, rules=rules)
        return other

    def profile(self, endpoint: Endpoint, model: str, tenant: str = "") -> Profile:
        """Return what is known of a model at an endpoint, with what turns taught that this tenant may believe."""
        known = self.known(endpoint, model)
        return self.learnt.apply(
            endpoint.name,
            model,
            known.profile,
            configured=known.configured,
            settled=known.settled,
            now=self._clock.now(),
            tenant=tenant,
        )

    def metered(
        self,
        metering: Metering,
        session: str | None,
        inbound: Inbound,
        endpoint: Endpoint,
        model: str,
        *,
        progress: TurnProgress,
        turn_cost_usd: float = 0.0,
    ) -> Metered:
        """Return the meter of one turn with its own account. `model` is the name that is sent."""
        account = metering.open(session, inbound.token, turn_cost_usd=turn_cost_usd)
        lent = endpoint.api_key is None and endpoint.forward_key and caller_key(inbound.headers) is not None
        return Metered(account, self._transport, endpoint, model, progress, lent=lent, events=self.events)

    def charged(
        self, account: BudgetAccount, endpoint: Endpoint, model: str, *, progress: TurnProgress, step: str
    ) -> Metered:
        """Return the meter of one step, on the account of the run."""
        return Metered(account, self._transport, endpoint, model, progress, step=step, events=self.events)

    async def take(
        self,
        inbound: Inbound,
        endpoint: Endpoint,
        model: str | None,
        *,
        asked: str,
        controls: Controls,
        progress: TurnProgress,
        deadline: float,
        metered: Metered | None = None,
    ) -> WholeReply | StreamedReply:
        """Take one turn for a caller on a wire.

        `asked` is the model the caller named, `model` the name to send if it is another one. With `metered` every call
        goes through it, and it must `follow` the turn.
        """
        profile = self.profile(endpoint, model or asked, inbound.tenant)
        off = (controls.protocol or profile.protocol) is Protocol.OFF
        answered: OtherForm | None = None
        if off and inbound.wire is endpoint.wire and not holds_seal(inbound.body):
            codec_for(inbound.wire).peek(inbound.body)  # what is not read is looked at all the same
            record = progress.record = TurnRecord(protocol=str(Protocol.OFF))
            transport = self._transport if metered is None else metered
            passed = await exchange(
                inbound, endpoint, model, transport, self._clock, deadline=deadline, limits=self._limits, record=record
            )
            if not isinstance(passed, OtherForm):
                lost = lost_force(controls)
                noted = inbound.noted if lost is None else (*inbound.noted, lost)
                return msgspec.structs.replace(passed, adaptations=(*passed.adaptations, *noted)) if noted else passed
            inbound = msgspec.structs.replace(inbound, noted=(*passed.adaptations, *inbound.noted))
            answered = passed
            answered.taken = None if metered is None else metered.adopt
            # `off` is one exchange: a broken reply in the other form is not asked for again, like any other.
            once = msgspec.structs.replace(endpoint.backoff, retries=0)
            endpoint = msgspec.structs.replace(endpoint, backoff=once)
        try:
            turn = await self.begin(
                inbound,
                endpoint,
                model,
                asked=asked,
                controls=controls,
                progress=progress,
                deadline=deadline,
                metered=metered,
                takes_bytes=True,
                profile=profile,
                answered=answered,
            )
            return await Edge(turn, progress, created=int(self._clock.now()), metadata=controls.metadata).take()
        finally:
            if answered is not None:
                await answered.close()
                if progress.record is not None:
                    answered.count(progress.record.attempts)

    async def begin(
        self,
        inbound: Inbound,
        endpoint: Endpoint,
        model: str | None,
        *,
        asked: str,
        controls: Controls,
        progress: TurnProgress,
        deadline: float,
        metered: Metered | None = None,
        takes_bytes: bool = False,
        profile: Profile | None = None,
        answered: OtherForm | None = None,
    ) -> EngineTurn:
        """Return a turn for a reader of values, or of bytes too, before it sends; `answered` is there already."""
        sent = model or asked
        known = profile or self.profile(endpoint, sent, inbound.tenant)
        asked_for = (inbound, endpoint, known, endpoint.issuer(sent), controls)
        begun = here(self._begun, *asked_for) if _unread(inbound) <= LARGE * 4 else Aside.ASIDE
        request, turn_state = await heavily(self._begun_aside, *asked_for) if begun is Aside.ASIDE else begun
        record = progress.record = TurnRecord(
            protocol=str(turn_state.plan.protocol), attempts=[], model=sent, place=endpoint.base_url, wire=endpoint.wire
        )
        services = self._services(controls, metered)
        context = TurnContext(
            services=services if answered is None else msgspec.structs.replace(services, transport=answered),
            inbound=inbound,
            request=request,
            turn_state=turn_state,
            endpoint=endpoint,
            theirs=codec_for(endpoint.wire),
            binding=Binding(turn_state.names.outgoing(request), endpoint.wire),
            same_wire=inbound.wire is endpoint.wire,
            progress=progress,
            record=record,
            deadline=deadline,
            model=model,
            takes_bytes=takes_bytes,
        )
        if inbound.noted:
            context.log.extend(inbound.noted)
        return EngineTurn(context)

    def _services(self, controls: Controls, metered: Metered | None) -> TurnServices:
        """Return what a turn shares with others; the last ones, where they are the same."""
        if metered is None and self._last.controls is controls:
            return self._last
        services = TurnServices(
            transport=self._transport if metered is None else metered,
            clock=self._clock,
            learnt=self.learnt,
            issued=self.issued,
            controls=controls,
            wording=self.operator.wording,
            limits=self._limits,
            tally=metered,
            events=self.events,
        )
        if metered is None:
            self._last = services
        return services

    def _begun(
        self, inbound: Inbound, endpoint: Endpoint, profile: Profile, issuer: str, controls: Controls
    ) -> tuple[Request, TurnState]:
        """Decode a request and make the state of its turn."""
        request = self.issued.marked(codec_for(inbound.wire).decode_request(inbound.body, inbound.fields), issuer)
        turn_state = make_turn_state(
            request,
            profile,
            issuer,
            controls=controls,
            wording=self.operator.wording,
            rules=self.operator.rules,
            kept=keeps_reply(inbound.wire, endpoint, request),
            appends=appends_reply(inbound.wire, endpoint, request),
            call_start=codec_for(endpoint.wire).call_start,
        )
        return request, turn_state

    def _begun_aside(self, *asked_for: Any) -> tuple[Request, TurnState]:
        """Do as `_begun`, and look through a long history for what a model may echo: that is remembered with it."""
        request, turn_state = self._begun(*asked_for)
        echoes_in(request, request, self.operator.wording)
        return request, turn_state
