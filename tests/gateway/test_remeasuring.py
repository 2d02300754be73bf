"""Measurements in the background: within a budget, by one replica, behind callers, with an event where one drifted."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.gateway import measuring
from mustcall.gateway.config.probe_settings import ProbeSettings
from mustcall.gateway.config.settings import Settings, load_settings, settings_from_flags
from mustcall.gateway.measuring import Change, Measurement, Remeasuring, Task, merged_profile
from mustcall.gateway.state.measured_profiles import profiles_in
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.ledger import Ledger, open_ledger
from mustcall.policy.facts.profile import Forcing
from mustcall.profiles import MeasuredFact, MeasuredProfile, Measurements
from mustcall.telemetry.counting import Counts, ModelNames
from mustcall.telemetry.events import EndpointDrifted, EndpointMeasured, Event
from mustcall.telemetry.stream import EventStream
from mustcall.testing import FakeClock, RunningGateway
from mustcall.testing.probed import LyingServer, find_lie
from support.http import call

URL = "http://127.0.0.1:9000/v1"


class Host:
    """A gateway as measurements see it."""

    def __init__(self, *flags: str, **probe: Any) -> None:
        named = flags or (f"lab:chat={URL}#honest",)
        settings = settings_from_flags(*named, ledger=LedgerSettings(place="l.db"))
        said = msgspec.convert({"every": "1d", **probe}, ProbeSettings)
        self.settings: Settings = msgspec.structs.replace(settings, probe=said)
        self.events = EventStream()
        self.under_way = 0
        self.told: list[Event] = []
        self.events.listen(self.told.append)

    def drifted(self) -> list[tuple[str, str, str]]:
        """What drifted: the cell, before and now."""
        return [(one.class_, one.before, one.now) for one in self.told if isinstance(one, EndpointDrifted)]


class Means:
    """What turns run on."""

    def __init__(self, transport: LyingServer) -> None:
        self.transport = transport
        self.measured = Measurements()


@pytest.fixture
async def ledger(tmp_path: Path) -> Any:
    """An open ledger."""
    async with open_ledger(str(tmp_path / "l.db")) as opened:
        yield opened


async def due(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next measurement be due now."""
    real = ledger.claim_measuring

    async def claim(row: Any, *, every: float) -> bool:
        return await real(row, every=0.0 * every)

    monkeypatch.setattr(ledger, "claim_measuring", claim)


async def test_one_replica_measures_within_its_budget(ledger: Ledger) -> None:
    """Of several that look at once one measures; it makes no more requests than it may, and all know the result."""
    server, host = LyingServer(), Host()
    means = Means(server)
    replicas = [Remeasuring(host, ledger, means, FakeClock()) for _ in range(3)]
    assert sum(await asyncio.gather(*(one.measure_due() for one in replicas))) == 1
    assert 0 < len(server.requests) <= host.settings.probe.max_requests
    ((profile, row),) = profiles_in(await ledger.measured())
    assert (profile.model, profile.upstream, profile.endpoint) == ("honest", "lab", "127.0.0.1:9000/v1")
    assert row.report
    assert means.measured.profiles == (profile,)
    (told,) = host.told
    assert isinstance(told, EndpointMeasured)
    assert (told.class_, told.requests, told.upstream) == ("measured", len(server.requests), "lab")
    assert await replicas[0].measure_due() == 0


@pytest.mark.parametrize("most", [1, 5, 12])
async def test_no_more_requests_than_it_may(ledger: Ledger, most: int) -> None:
    """A budget smaller than the quick set leaves cells out, and never goes over."""
    server = LyingServer()
    await Remeasuring(Host(max_requests=most), ledger, Means(server), FakeClock()).measure_due()
    assert len(server.requests) == most


async def test_drift_is_measured_twice_told_and_used(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that begins to ignore `required`: an event for each cell, a metric, and the profile of the next turn."""
    await due(ledger, monkeypatch)
    host, honest = Host(), Means(LyingServer())
    assert await Remeasuring(host, ledger, honest, FakeClock()).measure_due() == 1
    again = Means(LyingServer())
    assert await Remeasuring(host, ledger, again, FakeClock()).measure_due() == 1
    assert host.drifted() == []
    liar = Means(LyingServer(find_lie("ignores_required")))
    assert await Remeasuring(host, ledger, liar, FakeClock()).measure_due() == 1
    assert host.drifted() == [("required", "held", "ignored"), ("required+stream", "held", "ignored")]
    assert len(liar.transport.requests) <= host.settings.probe.max_requests
    (profile,) = liar.measured.profiles
    assert profile.values()["forced"] is Forcing.IGNORED
    counts = Counts(ModelNames())
    for event in host.told:
        counts.take(event)
    added, _ = counts.taken()
    assert added["drifts", "lab", "required", "worse"] == 1
    assert added["probes", "lab", "measured"] == 3
    back = Means(LyingServer())
    assert await Remeasuring(host, ledger, back, FakeClock()).measure_due() == 1
    assert ("required", "ignored", "held") in host.drifted()
    assert "forced" not in back.measured.profiles[0].values()  # with reasoning on nobody measured it


async def test_one_odd_answer_is_no_drift(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a second run of the cell does not confirm is not told."""
    await due(ledger, monkeypatch)
    host = Host()
    await Remeasuring(host, ledger, Means(LyingServer()), FakeClock()).measure_due()

    class Once(LyingServer):
        """Lies under none once."""

        async def send(self, call: Any) -> Any:
            if b'"none"' in (call.body or b"") and not any(b'"none"' in one.raw for one in self.requests):
                liar = LyingServer(find_lie("calls_under_none"))
                self.requests.append((await liar.send(call), liar.requests[0])[1])
                return await LyingServer(find_lie("calls_under_none")).send(call)
            return await super().send(call)

    server = Once()
    await Remeasuring(host, ledger, Means(server), FakeClock()).measure_due()
    assert sum(b'"none"' in one.raw for one in server.requests) > 1
    assert host.drifted() == []


@pytest.mark.parametrize("lie", ["crashes", "refuses"])
async def test_what_cannot_be_measured_changes_nothing(ledger: Ledger, lie: str) -> None:
    """A server that answers everything with an error is told as failed; no profile is written."""

    class Down(LyingServer):
        async def send(self, call: Any) -> Any:
            reply = await super().send(call)
            reply.status = 500 if lie == "crashes" else 401
            return reply

    host, means = Host(), Means(Down())
    assert await Remeasuring(host, ledger, means, FakeClock()).measure_due() == 1
    assert [(type(one), one.class_) for one in host.told] == [(EndpointMeasured, "failed")]
    assert profiles_in(await ledger.measured()) == []
    assert means.measured.profiles == ()


async def test_callers_go_first(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a caller's request is under way nothing is sent; if that lasts, it is measured another time."""
    monkeypatch.setattr(measuring, "_PAUSE", 0.0)
    monkeypatch.setattr(measuring, "_PATIENCE", 0.0)
    server, host = LyingServer(), Host()
    host.under_way = 1
    assert await Remeasuring(host, ledger, Means(server), FakeClock()).measure_due() == 1
    assert server.requests == []
    assert [one.class_ for one in host.told] == ["failed"]


async def test_whatever_breaks_is_no_exception(ledger: Ledger) -> None:
    """A measurement that fails in any way is an event, and the next one comes."""

    async def fail(_task: Task) -> Measurement | None:
        raise ZeroDivisionError

    host = Host()
    assert await Remeasuring(host, ledger, Means(LyingServer()), FakeClock(), fail).measure_due() == 1
    assert [one.class_ for one in host.told] == ["failed"]


@pytest.mark.parametrize(
    ("flags", "probe", "models"),
    [
        ((f"lab:chat={URL}#honest",), {}, ["honest"]),
        ((f"lab:chat={URL}",), {}, []),
        ((f"lab:chat={URL}#honest", f"b:responses={URL}#other"), {"upstreams": ("b",)}, ["other"]),
        (("far:chat=https://models.example.com/v1#honest",), {}, []),
        ((f"lab:chat={URL}#honest",), {"every": "0"}, []),
    ],
)
async def test_who_is_measured(
    ledger: Ledger, flags: tuple[str, ...], probe: dict[str, Any], models: list[str]
) -> None:
    """Models that upstreams name; none where only a caller's key opens it, and none without `every`."""
    seen: list[str] = []

    async def note(task: Task) -> Measurement | None:
        seen.append(task.model)
        return None

    await Remeasuring(Host(*flags, **probe), ledger, Means(LyingServer()), FakeClock(), note).measure_due()
    assert seen == models


def _profile(day: str, **facts: Any) -> MeasuredProfile:
    made = [MeasuredFact(field=field, value=value, day=day, held=3, of=3) for field, value in facts.items()]
    return MeasuredProfile.of(URL, Wire.CHAT, "honest", made)


def test_a_quick_measurement_adds_to_what_is_known() -> None:
    """A fact of more tries stays where nothing drifted; what is new is added; what drifted is replaced."""
    old = _profile("2026-11-01", forced="always", most_tools=32)
    new = _profile("2026-11-17", forced="ignored", parallel=False)
    same = merged_profile(old, Measurement(profile=new, report=b"", requests=1))
    assert same.values() == {"forced": Forcing.ALWAYS, "most_tools": 32, "parallel": False}
    change = Change("required", "held", "ignored", worse=True, fact="forced")
    drifted = merged_profile(old, Measurement(profile=new, report=b"", requests=1, changes=(change,)))
    assert drifted.values() == {"forced": Forcing.IGNORED, "most_tools": 32, "parallel": False}
    unsettled = Measurement(profile=_profile("2026-11-17", parallel=False), report=b"", requests=1, changes=(change,))
    assert merged_profile(old, unsettled).values() == {"most_tools": 32, "parallel": False}
    assert merged_profile(None, Measurement(profile=new, report=b"", requests=1)) == new


def test_every_needs_a_ledger(tmp_path: Path) -> None:
    """Without a ledger no replica would know what another has measured."""
    file = tmp_path / "mustcall.toml"
    file.write_text(f'[probe]\nevery = "1d"\n[[upstream]]\nname = "lab"\nwire = "chat"\nbase_url = "{URL}"\n')
    with pytest.raises(ConfigError, match="every needs a ledger"):
        load_settings(file, environment={"MUSTCALL_LEDGER": "off"})


def test_a_gateway_measures_beside_its_requests(tmp_path: Path) -> None:
    """The gateway does it by itself after its start, and its metrics tell."""
    settings = settings_from_flags(f"lab:chat={URL}#honest", ledger=LedgerSettings(place=str(tmp_path / "l.db")))
    settings = msgspec.structs.replace(settings, probe=ProbeSettings(every="1d"))
    server = LyingServer()
    with RunningGateway(settings=settings, transport=server) as gateway:
        told = _until(gateway.app.events.listen)
        assert told.class_ == "measured"
        page = call("GET", f"{gateway.url}/metrics").body.decode()
    assert 'mustcall_probes_total{result="measured",upstream="lab"} 1.0' in page
    assert len(server.requests) == told.requests


def _until(listen: Callable[[Callable[[Event], None]], object]) -> EndpointMeasured:
    """Wait for the end of a measurement."""
    found: list[EndpointMeasured] = []
    ready = threading.Event()

    def take(event: Event) -> None:
        if isinstance(event, EndpointMeasured):
            found.append(event)
            ready.set()

    listen(take)
    assert ready.wait(180)
    return found[0]
