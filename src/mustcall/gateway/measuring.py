"""Measures upstreams again in the background (`[probe] every`): within a budget, by one replica, never instead of work.

Which models are due is decided here; who measures is decided by the ledger, and how by `mustcall.probe`. A request of
a measurement waits until no caller's request is under way. What fails here is one line of the log.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from mustcall.core.errors import ConfigError, LedgerError, MustcallError
from mustcall.gateway.config.settings import Settings
from mustcall.gateway.state.measured_profiles import profiles_in, row_of
from mustcall.ledger import Ledger, MeasuredRow
from mustcall.policy.limits.budget import Price
from mustcall.profiles import MeasuredProfile, Measurements
from mustcall.profiles.patterns import is_local, place_of
from mustcall.profiles.prices import Prices
from mustcall.telemetry.events import EndpointDrifted, EndpointMeasured
from mustcall.telemetry.logs import log_of
from mustcall.telemetry.stream import EventStream
from mustcall.upstream.embedded.store import is_embedded
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.retry import Clock
from mustcall.upstream.seam import Transport, UpstreamCall, UpstreamReply

__all__ = ["Change", "Host", "Means", "Measurement", "Remeasuring", "Task", "merged_profile"]

_log = log_of("mustcall.gateway")

#: Seconds between two looks at what is due.
_LOOK = 60.0
#: Seconds between two looks at whether callers' requests are under way, and the most that one request waits for that.
_PAUSE = 0.25
_PATIENCE = 60.0


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement to make: of which model, with what, and what was found before (empty for nothing)."""

    endpoint: Endpoint
    model: str
    transport: Transport
    clock: Clock
    price: Price | None
    max_requests: int
    max_usd: float
    before: bytes = b""


class Change(msgspec.Struct, frozen=True):
    """A cell whose verdict is another one than before, confirmed by a second run of it.

    `fact` is the field of a profile that the cell settles, if any: what was known of it holds no longer.
    """

    cell: str
    before: str
    now: str
    worse: bool
    fact: str = ""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """What a measurement came to. `report` is the document that the next one is compared with."""

    profile: MeasuredProfile
    report: bytes
    requests: int
    cost_usd: float = 0.0
    changes: tuple[Change, ...] = ()


#: Makes a measurement; None where nothing could be measured.
Measure = Callable[[Task], Awaitable[Measurement | None]]


class Host(Protocol):
    """The gateway as measurements see it: what is asked anew each time."""

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        ...

    @property
    def events(self) -> EventStream:
        """Where drift is told."""
        ...

    @property
    def under_way(self) -> int:
        """Callers' requests that are worked on."""
        ...


class Means(Protocol):
    """What turns run on, and what they know of measurements; both may be replaced."""

    @property
    def transport(self) -> Transport:
        """Connections to upstreams."""
        ...

    @property
    def measured(self) -> Measurements:
        """What turns know was measured."""
        ...


class Remeasuring:
    """The measurements of one gateway process."""

    def __init__(self, host: Host, ledger: Ledger, means: Means, clock: Clock, measure: Measure | None = None) -> None:
        self._host = host
        self._ledger = ledger
        self._transport = _Polite(means.transport, host)
        self._clock = clock
        self._measured = means.measured
        self._measure = measure
        #: What was said once in the log.
        self._said: set[str] = set()

    async def run(self) -> None:
        """Measure what is due, for as long as the gateway runs."""
        while True:
            with contextlib.suppress(LedgerError):  # the keeper says that the ledger is away
                await self.measure_due()
            await asyncio.sleep(_LOOK)

    async def measure_due(self) -> int:
        """Measure each model that is due and that no replica has taken on; return how many."""
        settings = self._host.settings
        every = settings.probe.seconds
        if every is None:
            return 0
        rows = {(row.endpoint, row.wire, row.model): row for row in await self._ledger.measured()}
        known = [
            *(one.profile for one in settings.measured),
            *(profile for profile, _ in profiles_in([*rows.values()])),
        ]
        count = 0
        for endpoint, model in _subjects(settings, known):
            price = self._price(settings, endpoint, model)
            if price is None and not is_local(place_of(endpoint.base_url)):
                self._say(f"{endpoint.name}: {model} is not measured: its price is not known; set it in [[price]]")
                continue
            about = MeasuredRow(
                endpoint=place_of(endpoint.base_url),
                wire=str(endpoint.wire),
                model=model,
                upstream=endpoint.name,
                profile=b"",
            )
            if not await self._ledger.claim_measuring(about, every=every):
                continue
            row = rows.get((about.endpoint, about.wire, about.model))
            task = Task(
                endpoint=endpoint,
                model=model,
                transport=self._transport,
                clock=self._clock,
                price=price,
                max_requests=settings.probe.max_requests,
                max_usd=settings.probe.max_usd,
                before=row.report if row is not None else b"",
            )
            await self._take(task, known)
            count += 1
        return count

    async def _take(self, task: Task, known: Sequence[MeasuredProfile]) -> None:
        """Make one measurement, keep it and tell of it. Nothing is raised but what the ledger is to blame for."""
        upstream, model, wire = task.endpoint.name, task.model, str(task.endpoint.wire)
        made: Measurement | None = None
        try:
            made = await (self._measure or _probe_quickly())(task)
        except MustcallError as error:
            _log.warning("measuring %s at %s failed: %s", task.model, task.endpoint.name, error.message)
        except Exception:  # noqa: BLE001  the gateway goes on whatever happens beside its requests
            _log.exception("measuring %s at %s failed", task.model, task.endpoint.name)
        now = self._clock.now()
        if made is None:
            failed = EndpointMeasured(at=now, upstream=upstream, model=model, wire=wire, class_="failed")
            self._host.events.emit(failed)
            return
        old = [profile for profile in known if profile.key == made.profile.key]
        profile = merged_profile(old[-1] if old else None, made)
        await self._ledger.put_measured(row_of(profile, made.report))
        self._measured.take_over([one for one, _ in profiles_in(await self._ledger.measured())])
        self._host.events.emit(
            EndpointMeasured(
                at=now,
                upstream=upstream,
                model=model,
                wire=wire,
                class_="measured",
                requests=made.requests,
                cost_usd=made.cost_usd,
            )
        )
        for change in made.changes:
            _log.warning("%s at %s drifted: %s was %s, is %s", model, upstream, change.cell, change.before, change.now)
            self._host.events.emit(
                EndpointDrifted(
                    at=now,
                    upstream=upstream,
                    model=model,
                    wire=wire,
                    class_=change.cell,
                    before=change.before,
                    now=change.now,
                    worse=change.worse,
                )
            )

    def _price(self, settings: Settings, endpoint: Endpoint, model: str) -> Price | None:
        budget = settings.operator.budget
        return Prices(budget.prices if budget is not None else ()).of(model, endpoint.base_url)

    def _say(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            _log.warning("%s", line)


def _subjects(settings: Settings, known: Sequence[MeasuredProfile]) -> Iterator[tuple[Endpoint, str]]:
    """Yield what is measured again: the models of upstreams that have one, and those that were measured before.

    A model in this process is left out, because its callers would wait for it, and so is an upstream that only a
    caller's key opens.
    """
    chosen = settings.probe.upstreams
    for endpoint in settings.endpoints:
        if (chosen and endpoint.name not in chosen) or is_embedded(endpoint.base_url):
            continue
        place = place_of(endpoint.base_url)
        if endpoint.api_key is None and not is_local(place):
            continue
        measured = [one.model for one in known if (one.endpoint, one.wire) == (place, endpoint.wire)]
        for model in dict.fromkeys([*((endpoint.model,) if endpoint.model else ()), *measured]):
            yield endpoint, model


def merged_profile(old: MeasuredProfile | None, made: Measurement) -> MeasuredProfile:
    """Return what is known after a quick measurement: a fact that more tries settled stays unless the cells drifted."""
    if old is None:
        return made.profile
    gone = {change.fact for change in made.changes}
    facts = {fact.field: fact for fact in old.facts if fact.field not in gone}
    for fact in made.profile.facts:
        known = facts.get(fact.field)
        if known is None or (known.value != fact.value and made.changes):
            facts[fact.field] = fact
    return msgspec.structs.replace(made.profile, facts=tuple(facts.values()))


class _Polite:
    """A transport whose requests let those of callers go first. Closing it closes nothing."""

    def __init__(self, transport: Transport, host: Host) -> None:
        self._transport = transport
        self._host = host

    async def send(self, call: UpstreamCall) -> UpstreamReply:
        """Send a request once no caller's is under way; raise `ConfigError` where that does not come."""
        waited = 0.0
        while self._host.under_way:
            if waited >= _PATIENCE:
                raise ConfigError(f"callers' requests were under way for {_PATIENCE:g} s: measured at another time")
            await asyncio.sleep(_PAUSE)
            waited += _PAUSE
        return await self._transport.send(call)

    async def close(self) -> None:
        """Leave the transport to the gateway."""


def _probe_quickly() -> Measure:
    from mustcall.gateway.quick_probe import probe_quickly  # noqa: PLC0415  only where something is measured

    return probe_quickly
