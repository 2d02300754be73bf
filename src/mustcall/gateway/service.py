"""What the gateway does for a caller, apart from HTTP: serve a turn, count tokens, list models."""

import asyncio
from collections.abc import Mapping
from copy import copy
from functools import partial
from threading import Lock

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationKind
from mustcall.core.errors import InvalidRequest, MustcallError, UnknownModel
from mustcall.core.memo import Bounded, Caches, Store, owned
from mustcall.core.origin import JsonObject, Wire
from mustcall.engine.exchange import Inbound, StreamedReply, WholeReply
from mustcall.engine.off_loop import heavily
from mustcall.engine.records import TurnProgress, TurnRecord
from mustcall.engine.spending.budget_account import Budget, Metering
from mustcall.engine.spending.metered import Metered
from mustcall.engine.turns import Turns
from mustcall.engine.warming import warm
from mustcall.gateway.config.budget_settings import session_of
from mustcall.gateway.config.settings import Settings
from mustcall.gateway.connections.admission import check_elements
from mustcall.gateway.connections.repeated_failures import Failures, RequestIdentity
from mustcall.gateway.model_lists import list_models
from mustcall.gateway.request_controls import take_controls
from mustcall.gateway.state.conversation_state import Memory, tenant_of, without_threads
from mustcall.gateway.state.response_owners import Holders
from mustcall.gateway.state.stored_responses import serve_stored
from mustcall.gateway.token_counts import count_tokens
from mustcall.ledger.notices import Notices
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.facts.routing import choose, is_routed
from mustcall.policy.failures.backoff import Backoff
from mustcall.policy.failures.client_retries import retries_itself
from mustcall.profiles import Learnt, Measurements
from mustcall.profiles.capabilities import describe_capabilities
from mustcall.telemetry.stream import PROCESS, EventStream
from mustcall.upstream.endpoint import Endpoint, caller_key
from mustcall.upstream.listing import ask_models
from mustcall.upstream.retry import Clock
from mustcall.upstream.seam import Transport
from mustcall.wire.caching.conversations import Conversations, Tenant
from mustcall.wire.codec import Peek
from mustcall.wire.opening import Fields, doubled_field, glimpse, open_body
from mustcall.wire.registry import codec_for

__all__ = ["Service"]

_MODELS_TIMEOUT = 5.0
#: Longer names of models are a caller's joke, and are not remembered.
_LONGEST_NAME = 256
#: For a client that tries again by itself: its tries and ours would be multiplied.
_NO_TRIES = Backoff(retries=0)


#: The values of larger bodies are counted before anything reads them: finding fields takes time for each value.
_COUNTED_FIRST = 1024 * 1024

#: A Responses request with this field starts a job and gets no reply yet: judged, it would be started again.
_JOB = "background"

#: Where a model is served, the name it goes under if that is another one, and what is said of that.
_Routed = tuple[Endpoint, str | None, tuple[Adaptation, ...]]


#: What is kept of conversations, which threads may read.
_CONVERSATIONS = Store(lambda: Conversations(lock=Lock()))


class Service:
    """The operations behind the routes."""

    def __init__(
        self,
        settings: Settings,
        transport: Transport,
        clock: Clock,
        metering: Metering | None = None,
        memory: Memory | None = None,
        *,
        holders: Holders | None = None,
        learnt: Learnt | None = None,
        measured: Measurements | None = None,
        failures: Failures | None = None,
        caches: Caches | None = None,
        events: EventStream = PROCESS,
    ) -> None:
        self._settings = settings
        self._caches = Caches() if caches is None else caches
        self._conversations = self._caches[_CONVERSATIONS]
        with owned(self._caches):
            warm()
        self.transport = transport
        self.clock = clock
        self._doors = settings.doors
        self._endpoints = {endpoint.name: endpoint for endpoint in settings.endpoints}
        if learnt is None and settings.ledger is not None:
            learnt = Learnt(keeps=settings.ledger.learnt_seconds)
        #: Where names that came before are served.
        self._routed: Bounded[tuple[str, Wire], _Routed] = Bounded(256)
        self._turns = Turns(
            transport, clock, settings.operator, learnt, settings.limits, measured=measured, events=events
        )
        self._memory = memory
        self._failures = Failures() if failures is None else failures
        #: None where the upstream itself can tell callers apart, or there is only one.
        self._holders = holders or Holders(None, Notices()) if len(settings.client_keys) > 1 else None
        budget = settings.operator.budget
        if metering is None and budget is not None:
            metering = Metering(budget, clock, events=events)
        #: None where nothing is counted.
        self._metering = metering

    def over(self, transport: Transport) -> "Service":
        """Return this service over another transport; settings and all that was learnt are shared."""
        other = copy(self)
        other.transport = transport
        other._turns = self._turns.over(transport)  # noqa: SLF001  a copy of itself
        return other

    @property
    def learnt(self) -> Learnt:
        """What refusals taught this process."""
        return self._turns.learnt

    @property
    def measured(self) -> Measurements:
        """What probes measured, as the ledger has it."""
        return self._turns.measured

    @property
    def caches(self) -> Caches:
        """What is kept of the requests that were read. Requests are served under `owned(caches)`."""
        return self._caches

    @property
    def failures(self) -> Failures:
        """What failed lately."""
        return self._failures

    def sizes(self) -> dict[str, int]:
        """Return how much is kept in memory, by what it is."""
        return {
            "facts": self._turns.learnt.size,
            "tallies": self._turns.learnt.tallies.size,
            "issued": len(self._turns.issued),
            "conversations": len(self._conversations),
            "conversation_bytes": self._conversations.size,
            "failures": len(self._failures),
        }

    async def turn(
        self,
        wire: Wire,
        body: bytes,
        headers: Mapping[str, str],
        query: str,
        token: str,
        *,
        progress: TurnProgress,
        caller: Mapping[str, str] | None = None,
    ) -> WholeReply | StreamedReply:
        """Serve one request for one reply. `caller` are the headers as they came, `headers` what upstreams may see."""
        tenant = progress.tenant = tenant_of(caller or headers)
        conversations = self._conversations.of(tenant, wire)
        came, fields = body, await _open(body, conversations, wire, self._settings.limits.body_elements)
        controls, body = take_controls(body, headers, self._turns.operator.controls, fields)
        repeats = retries_itself(headers)
        if fields is None or "thread" not in fields:  # what a thread holds is not in its bytes
            asked = RequestIdentity(wire, query, caller or headers, came)
            repeats |= self._recall(asked, fields, controls, token, progress)
        memory, keeps, held = self._memory, None, None
        if memory is not None and wire is Wire.MESSAGES and fields is not None and "thread" in fields:
            keeps, body = await memory.recall_thread(body, tenant, token)
            headers = without_threads(headers)
        if body is not came:
            came, fields = body, open_body(body, conversations, wire)
        seen = _seen(wire, body, fields)
        if seen.stream and progress.streams is not None:
            progress.streams()
        endpoint, model, noted = self._route(seen.model, wire)
        if repeats:
            endpoint = msgspec.structs.replace(endpoint, backoff=_NO_TRIES)
        if wire is endpoint.wire is Wire.RESPONSES and fields is not None and bytes(fields.get(_JOB, b"")) == b"true":
            controls = msgspec.structs.replace(controls, protocol=Protocol.OFF)
        progress.model, progress.upstream = seen.model, endpoint.name
        endpoint = self._as_known(endpoint, model or seen.model, wire)
        if memory is not None and wire is Wire.RESPONSES and not endpoint.keeps_responses:
            keeps, body = await memory.recall_response(body, tenant, token)
        if self._holders is not None and wire is Wire.RESPONSES and endpoint.keeps_responses:
            held = await self._holders.check_body(body, tenant)
        inbound = Inbound(
            wire=wire,
            body=body,
            headers=headers,
            query=query,
            stream=seen.stream,
            token=token,
            request_id=f"req_{token}",
            tenant=tenant,
            stored=keeps is not None and keeps.stores,
            previous=keeps.parent.id if keeps is not None and keeps.parent is not None else None,
            fields=fields if body is came else None,
            trace=progress.trace,
            noted=noted,
        )
        deadline = self.clock.monotonic() + self._settings.server.request_timeout
        metered: Metered | None = None
        if controls.session:
            key, by = caller_key(caller or headers), self._settings.session_by
            progress.session = session_of(controls.session, key, by) or ""
        if self._metering is not None or controls.turn_cost_usd:
            metered = self._metered(
                controls, inbound, endpoint, model=model or seen.model, progress=progress, caller=caller or headers
            )
        taking = self._turns.take(
            inbound,
            endpoint,
            model,
            asked=seen.model,
            controls=controls,
            progress=progress,
            deadline=deadline,
            metered=metered,
        )
        try:
            reply = await (taking if metered is None else metered.follow(taking))
        except MustcallError as error:
            if progress.failed is not None:
                progress.failed(error, progress.record)
            raise
        if held is not None:
            reply = await held.keep(reply)
        return reply if keeps is None else await keeps.keep(reply)

    def _as_known(self, endpoint: Endpoint, model: str, wire: Wire) -> Endpoint:
        """Return the endpoint as one that keeps no responses where that was measured: they are kept here then."""
        if wire is not Wire.RESPONSES or not endpoint.keeps_responses:
            return endpoint
        known = self._turns.known(endpoint, model).profile
        return endpoint if known.stateful else msgspec.structs.replace(endpoint, stateful=False)

    def _recall(
        self, asked: RequestIdentity, fields: Fields | None, controls: Controls, token: str, progress: TurnProgress
    ) -> bool:
        """Tell whether this request failed on its way a moment ago; raise the failure of one that the model failed.

        From here on its own failure is remembered. One that is told again is a turn without attempts, kept like any.
        """
        failures = self._failures
        progress.failed = partial(self._note, asked, token)
        if not failures:
            return False
        now = self.clock.monotonic()
        known = failures.find(asked, now, controls.remember_failures)
        if known is None:
            return False
        failure = known.again(now)
        if failure is not None:
            progress.failed, progress.record = None, known.record()
            progress.model = _seen(asked.wire, asked.body, fields).model
            progress.upstream = self._route(progress.model, asked.wire)[0].name
            raise failure
        return True

    def _note(self, asked: RequestIdentity, token: str, error: MustcallError, record: TurnRecord | None) -> None:
        self._failures.note(asked, error, f"req_{token}", record, self.clock.monotonic())

    def _metered(
        self,
        controls: Controls,
        inbound: Inbound,
        endpoint: Endpoint,
        *,
        model: str,
        progress: TurnProgress,
        caller: Mapping[str, str],
    ) -> Metered:
        """Return the meter of one turn, on the account of its session."""
        session = session_of(controls.session, caller_key(caller), self._settings.session_by)
        metering = self._metering
        if metering is None:  # the caller's own cap, and nothing else
            metering, session = Metering(Budget(), self.clock), None
        return self._turns.metered(
            metering,
            session,
            inbound,
            endpoint,
            model,
            progress=progress,
            turn_cost_usd=controls.turn_cost_usd,
        )

    async def count_tokens(self, body: bytes, headers: Mapping[str, str], query: str, token: str) -> WholeReply:
        """Count a Messages request's tokens: by the upstream if it speaks Messages and counts, else by estimate."""
        codec = codec_for(Wire.MESSAGES)
        await check_elements(body, self._settings.limits.body_elements)
        _, body = take_controls(body, headers, self._turns.operator.controls, _opened(body))
        endpoint, model, _ = self._route(codec.peek(body).model, Wire.MESSAGES)
        deadline = self.clock.monotonic() + self._settings.server.request_timeout
        return await count_tokens(
            body,
            headers,
            query,
            token,
            endpoint,
            model=model,
            transport=self.transport,
            clock=self.clock,
            deadline=deadline,
        )

    async def stored(
        self, method: str, path: str, query: str, headers: Mapping[str, str], caller: Mapping[str, str]
    ) -> WholeReply:
        """Answer for one stored response."""
        return await serve_stored(
            method,
            path,
            query,
            headers,
            tenant_of(caller),
            memory=self._memory,
            holders=self._holders,
            endpoints=self._settings.endpoints,
            transport=self.transport,
        )

    async def models(self, headers: Mapping[str, str]) -> bytes:
        """List the models on offer: routed names, and what the upstreams list themselves, under names that work.

        With several upstreams and no routes a name is only certain with its upstream before it. An upstream that does
        not answer in time is left out: the list is a convenience, not a promise. The extension field `mustcall` of each
        says what the model can do, and how that is known.
        """
        routes, doors = self._settings.routes, self._settings.doors
        names = {route.model: route.upstream for route in routes if not _is_pattern(route.model)}
        if not routes:
            names |= {endpoint.model: endpoint.name for endpoint in self._settings.endpoints if endpoint.model}
        asked = [
            endpoint
            for endpoint in self._settings.endpoints
            if not endpoint.model  # what has a model of its own answers to other names as that one
            if not routes or any(route.upstream == endpoint.name and _is_pattern(route.model) for route in routes)
        ]
        listings = await asyncio.gather(*(self._list(endpoint, headers) for endpoint in asked))
        for endpoint, listing in zip(asked, listings, strict=True):
            for name in listing:
                if not routes:
                    names[name if len(doors) == 1 else f"{endpoint.name}/{name}"] = endpoint.name
                elif is_routed(name, endpoint.name, routes):
                    names.setdefault(name, endpoint.name)
        anthropic = "anthropic-version" in headers
        wire = Wire.MESSAGES if anthropic else Wire.CHAT
        shaped = list_models(names, wire)
        for entry in shaped["data"]:
            entry["mustcall"] = self._described(entry["id"], wire)
        return msgspec.json.encode(shaped)

    def _described(self, name: str, wire: Wire) -> JsonObject:
        """Return what is known of a listed model: where it is served, under which name, and what it can do."""
        endpoint, model, *_ = self._route(name, wire)
        known = self._turns.known(endpoint, model or name)
        return {
            "upstream": endpoint.name,
            "model": model or name,
            "wire": str(endpoint.wire),
            "capabilities": describe_capabilities(known),
        }

    def _route(self, model: str, wire: Wire) -> _Routed:
        """Return where a model is served, the name it goes under if that is another one, and what to say of that."""
        known = self._routed.get((model, wire))
        if known is not None:
            return known
        destination = choose(model, wire, self._settings.routes, self._doors)
        noted: tuple[Adaptation, ...] = ()
        if destination.stands_in:
            if self._settings.server.unknown_model == "refuse":
                served = ", ".join(door.model for door in self._doors)
                raise UnknownModel(f"the model {model[:80]!r} is not served here; served are: {served}", param="model")
            told = f"{model[:80]!r} is not served here; {destination.model!r} answers"
            noted = (Adaptation(AdaptationKind.FIELD_MAPPED, "model", told),)
        sent = None if destination.model == model else destination.model
        route = self._endpoints[destination.upstream], sent, noted
        if len(model) <= _LONGEST_NAME:
            self._routed.keep((model, wire), route)
        return route

    async def _list(self, endpoint: Endpoint, headers: Mapping[str, str]) -> tuple[str, ...]:
        same_wire = ("anthropic-version" in headers) == (endpoint.wire is Wire.MESSAGES)
        try:
            listing = await ask_models(
                endpoint, self.transport, seconds=_MODELS_TIMEOUT, caller=headers, same_wire=same_wire
            )
        except MustcallError:
            return ()
        return listing.models or ()


async def _open(body: bytes, conversations: Tenant, wire: Wire, most: int) -> Fields | None:
    """Return the fields of a body of at most so many values; a large one is counted, then opened aside."""
    if len(body) > _COUNTED_FIRST:
        await check_elements(body, most)
        return await heavily(_opened, body, conversations, wire)
    fields = _opened(body, conversations, wire)
    await check_elements(body, most, fields)
    return fields


def _opened(body: bytes, conversations: Tenant | None = None, wire: Wire | None = None) -> Fields | None:
    """Return a body's fields, None if it is no JSON object; raise `InvalidRequest` for a field that is there twice."""
    fields = open_body(body, conversations, wire)
    if fields is not None:
        twice = doubled_field(body, fields)
        if twice is not None:
            raise InvalidRequest(f"the body has the field {twice[:80]!r} twice; send it once", param=twice[:80])
    return fields


def _seen(wire: Wire, body: bytes, fields: Fields | None) -> Peek:
    """Return what routing needs of a request; raise `InvalidRequest` where that is not in it."""
    seen = glimpse(fields) if fields is not None else None
    return codec_for(wire).peek(body) if seen is None else seen


def _is_pattern(model: str) -> bool:
    return any(sign in model for sign in "*?[")
