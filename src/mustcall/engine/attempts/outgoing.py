"""The bytes of each attempt: the caller's own where nothing changed, the last ones if they repeat, else new ones."""

from collections.abc import Mapping

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.errors import InvalidRequest
from mustcall.core.request import Request
from mustcall.engine.turn_context import TurnContext
from mustcall.policy.facts.profile import Forcing, Protocol
from mustcall.policy.request.attempt_request import Shaped
from mustcall.upstream.endpoint import request_headers
from mustcall.upstream.seam import UpstreamCall
from mustcall.wire.caching.encode_cache import write_body
from mustcall.wire.codec import Target
from mustcall.wire.crossing.offer import offer_for
from mustcall.wire.outline import rename_model

__all__ = ["Outgoing"]

#: The wires' words for the cap on a reply's tokens; what is sent may be lower or higher than what was asked for.
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


class Outgoing:
    """Writes one turn's requests."""

    __slots__ = ("_context", "_written", "limit")

    def __init__(self, context: TurnContext) -> None:
        self._context = context
        self._written: tuple[Shaped, bytes] | None = None
        #: The cap on the reply's tokens that was sent.
        self.limit: int | None = None

    def body(self) -> bytes:
        """Return the next attempt's bytes."""
        context = self._context
        shaped = context.turn_state.shaped()
        if self._written is not None and self._written[0] is shaped:
            return self._written[1]
        request, inbound = shaped.request, context.inbound
        self.limit = request.max_tokens
        if context.same_wire and request is context.request and not shaped.extra and request.raw_for(inbound.wire):
            body = inbound.body if context.model is None else rename_model(inbound.body, context.model)
        else:
            body = self._encode(request, shaped.extra)
        self._written = (shaped, body)
        return body

    def call(self, body: bytes, attempt: int = 1) -> UpstreamCall:
        """Return the call that sends these bytes."""
        context, inbound, endpoint = self._context, self._context.inbound, self._context.endpoint
        query = f"?{inbound.query}" if inbound.query and context.same_wire else ""
        stream = context.turn_state.shaped().request.stream
        headers = request_headers(endpoint, inbound.headers, same_wire=context.same_wire, stream=stream)
        if inbound.trace is not None:
            headers |= inbound.trace.outgoing(attempt)
        return UpstreamCall(
            url=endpoint.base_url + context.theirs.path + query,
            headers=headers,
            body=body,
            timeouts=endpoint.timeouts,
        )

    def _encode(self, request: Request, extra: Mapping[str, object]) -> bytes:
        context, turn_state = self._context, self._context.turn_state
        outgoing = request if context.model is None else request.evolve(model=context.model)
        most = context.endpoint.max_output_tokens
        if most is not None and request.max_tokens is not None and request.max_tokens > most:
            context.log.add(AdaptationKind.VALUE_CLAMPED, "max_tokens", f"{request.max_tokens} to {most}")
            outgoing = outgoing.evolve(max_tokens=most)
        target = Target(
            issuer=turn_state.issuer,
            default_max_tokens=context.endpoint.default_max_tokens,
            thinks_when_forced=turn_state.profile.forced is Forcing.ALWAYS,
        )
        if not context.same_wire and self._written is None:
            self._refuse_lost_demand()
        try:
            body = context.theirs.encode_request(outgoing, target, context.log, pieces=True)
            self.limit = next((body[name] for name in _LIMITS if isinstance(body.get(name), int)), None)
            return write_body({**body, **extra} if extra else body)
        except RecursionError:  # what can just be read cannot always be written
            raise InvalidRequest("the body is nested too deeply") from None

    def _refuse_lost_demand(self) -> None:
        """Raise if the demanded tool has no form on the upstream's wire: `auto` must not hide that (rule 8)."""
        context, plan = self._context, self._context.turn_state.plan
        if plan.demand.forced and plan.protocol is not Protocol.PROMPT:
            demanded = context.request.evolve(tool_choice=plan.demand.choice)
            offer_for(demanded, context.endpoint.wire, AdaptationLog())
