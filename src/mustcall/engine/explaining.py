"""What a turn would do with a request, without sending anything: profile, demand, mended history, each rung's body.

It runs the same steps as a real turn, with an upstream that answers in text and never calls the tool, so what is
shown is what would be sent; in place of the model's answers stands a word for them. Nothing here opens a connection.
"""

from collections.abc import Mapping

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationKind, AdaptationLog
from mustcall.core.errors import InvalidRequest
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.parts import Text
from mustcall.core.reply import FinishReason, Reply
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode
from mustcall.core.verdict import Verdict
from mustcall.engine.replies.early_release import appends_reply, keeps_reply
from mustcall.engine.turns import OperatorSettings, make_turn_state
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Profile, Protocol
from mustcall.policy.history.names import NameMap
from mustcall.policy.reply.judge import Judgement
from mustcall.policy.request.demand import Demand
from mustcall.policy.request.plan import Plan, Rung, RungKind
from mustcall.policy.turn.remedy import Remedy
from mustcall.policy.turn.state import TurnState
from mustcall.profiles import Fact, resolve
from mustcall.upstream.endpoint import Endpoint
from mustcall.wire.codec import Target
from mustcall.wire.crossing.offer import offer_for
from mustcall.wire.crossing.sealing import holds_seal
from mustcall.wire.registry import codec_for

__all__ = ["Explanation", "RungBody", "explain", "guess_wire"]

#: Fields, and words inside others, that only Messages requests have.
_MESSAGES_FIELDS = frozenset({"system", "thinking", "stop_sequences", "output_config", "anthropic_version"})
_MESSAGES_WORDS = (b'"input_schema"', b'"tool_use"', b'"tool_result"')
_MESSAGES_CHOICES = frozenset({"auto", "any", "tool", "none"})


class _Choice(msgspec.Struct):
    type: str


class RungBody(msgspec.Struct, frozen=True):
    """What would be sent on one rung; `untouched` says that it is the caller's own request, byte for byte."""

    rung: Rung
    body: JsonObject
    untouched: bool
    adaptations: tuple[Adaptation, ...]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of one request. `mended` is what is done to the history and the schemas before any rung."""

    wire: Wire
    upstream_wire: Wire
    upstream: str
    model: str
    profile: Profile
    facts: Mapping[str, Fact]
    plan: Plan
    mended: tuple[Adaptation, ...]
    rungs: tuple[RungBody, ...]
    controls: Controls
    given: JsonObject

    @property
    def unreached(self) -> tuple[Rung, ...]:
        """The rungs that the ceiling of extra calls leaves out."""
        return self.plan.rungs[len(self.rungs) :]

    @property
    def demanded(self) -> str:
        """The demand in a few words."""
        choice = self.plan.demand.choice
        if choice is None:
            return "none"
        among = f" of {', '.join(choice.allowed)}" if choice.allowed is not None else ""
        return f"{choice.mode} {choice.name}" if choice.mode is ChoiceMode.NAMED else f"{choice.mode}{among}"


def guess_wire(body: bytes) -> Wire:
    """Return the wire a request body was written for, by what only that wire has."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return Wire.CHAT
    if "messages" not in fields:
        return Wire.RESPONSES if "input" in fields else Wire.CHAT
    tools = bytes(fields.get("tools", b""))
    if b'"function"' in tools:
        return Wire.CHAT
    held = tools + bytes(fields["messages"])
    if not _MESSAGES_FIELDS.isdisjoint(fields) or any(word in held for word in _MESSAGES_WORDS):
        return Wire.MESSAGES
    if _names_messages_choice(fields.get("tool_choice")):
        return Wire.MESSAGES
    # What is left is the same on both wires: the model's family tells, and the limit that Messages demands.
    model = bytes(fields.get("model", b"")).lstrip(b' "').lower()
    return Wire.MESSAGES if model.startswith(b"claude") and "max_tokens" in fields else Wire.CHAT


def _names_messages_choice(raw: msgspec.Raw | None) -> bool:
    try:
        return raw is not None and msgspec.json.decode(raw, type=_Choice).type in _MESSAGES_CHOICES
    except msgspec.DecodeError:
        return False


def explain(body: bytes, wire: Wire, endpoint: Endpoint, model: str, operator: OperatorSettings) -> Explanation:
    """Return what would be done with a request; raise `CallerError` for one that would be refused."""
    request = codec_for(wire).decode_request(body)
    known = resolve(
        model, endpoint.base_url, endpoint.wire, operator.overrides, upstream=endpoint.name, server=endpoint.server
    )
    shaping = _Shaping(body, request, endpoint, model, NameMap.of(request, known.profile))
    controls = operator.controls
    if (controls.protocol or known.profile.protocol) is Protocol.OFF:
        plan = Plan(protocol=Protocol.OFF, demand=Demand(), reasoning=False, rungs=(Rung(RungKind.PLAIN),))
        mended, rungs = (), [shaping.passed()]
    else:
        turn_state = make_turn_state(
            request,
            known.profile,
            endpoint.issuer(model),
            controls=controls,
            wording=operator.wording,
            rules=operator.rules,
            kept=keeps_reply(wire, endpoint, request),
            appends=appends_reply(wire, endpoint, request),
        )
        plan, mended = turn_state.plan, turn_state.log.entries
        if wire is not endpoint.wire and plan.demand.forced and plan.protocol is not Protocol.PROMPT:
            offer_for(request.evolve(tool_choice=plan.demand.choice), endpoint.wire, AdaptationLog())
        rungs = [shaping.rung(turn_state)]
        while plan.demand.forced and _climbs(turn_state, model, len(rungs)):
            rungs.append(shaping.rung(turn_state))
    return Explanation(
        wire=wire,
        upstream_wire=endpoint.wire,
        upstream=endpoint.name,
        model=model,
        profile=known.profile,
        facts=known.facts,
        plan=plan,
        mended=mended,
        rungs=tuple(rungs),
        controls=controls,
        given=msgspec.json.decode(body, type=JsonObject),
    )


def _climbs(turn_state: TurnState, model: str, attempt: int) -> bool:
    """Answer an attempt in text without the call, and tell whether another rung follows."""
    text = Text(text=f"(what the model said in attempt {attempt})")
    reply = Reply(id="", model=model, parts=(text,), finish=FinishReason.STOP)
    judged = Judgement(verdict=Verdict.FORCE_MISSED, reply=reply, keeps=True)
    if turn_state.settle(judged, released=False, spoke=False).remedy is not Remedy.CLIMB:
        return False
    turn_state.count_call()
    return True


class _Shaping(msgspec.Struct, frozen=True):
    """Makes the body of a rung, as `engine.turn` does."""

    body: bytes
    request: Request
    endpoint: Endpoint
    model: str
    names: NameMap

    def rung(self, turn_state: TurnState) -> RungBody:
        """Return the request body of the current rung, with the adaptations made for it."""
        turn_state.log = AdaptationLog()
        shaped = turn_state.shaped()
        log = AdaptationLog()
        outgoing = shaped.request
        return self._encoded(turn_state.rung, outgoing, shaped.extra, (*turn_state.log.entries,), log)

    def passed(self) -> RungBody:
        """Return the request as it passes through where the protocol is off."""
        return self._encoded(Rung(RungKind.PLAIN), self.request, {}, (), AdaptationLog())

    def _encoded(
        self,
        rung: Rung,
        outgoing: Request,
        extra: Mapping[str, object],
        notes: tuple[Adaptation, ...],
        log: AdaptationLog,
    ) -> RungBody:
        endpoint, request = self.endpoint, self.request
        own = outgoing is request and not extra and request.raw_for(endpoint.wire) is not None
        untouched = own and not holds_seal(self.body)
        if outgoing.model != self.model:
            outgoing = outgoing.evolve(model=self.model)
        most, wanted = endpoint.max_output_tokens, outgoing.max_tokens
        if not untouched and most is not None and wanted is not None and wanted > most:
            log.add(AdaptationKind.VALUE_CLAMPED, "max_tokens", f"{wanted} to {most}")
            outgoing = outgoing.evolve(max_tokens=most)
        target = Target(issuer=endpoint.issuer(self.model), default_max_tokens=endpoint.default_max_tokens)
        try:
            body = {**codec_for(endpoint.wire).encode_request(outgoing, target, log), **extra}
        except RecursionError:
            raise InvalidRequest("the body is nested too deeply") from None
        untouched = untouched and request.model == self.model
        return RungBody(rung, body, untouched, tuple(dict.fromkeys((*notes, *log.entries))))
