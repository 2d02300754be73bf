"""The gateway's ledger: what `[ledger]` says, the turns that are traced, and what is removed when it is old.

A ledger that cannot be opened or written is said in one line of the log, and the gateway serves without it.
"""

import asyncio
import contextlib
import re
from collections.abc import Coroutine, Mapping
from functools import partial
from pathlib import Path
from time import time

import msgspec

from mustcall.core.errors import ConfigError, LedgerError
from mustcall.engine.spending.budget_account import Budget, Metering
from mustcall.engine.spending.ledger_accounts import LedgerBreakers, LedgerMeter, WhenAway
from mustcall.gateway.config.environment import over
from mustcall.gateway.state.conversation_state import Memory
from mustcall.gateway.state.measured_profiles import profiles_in
from mustcall.gateway.state.response_owners import Holders
from mustcall.gateway.state.turn_traces import TurnEnd, describe, weight_of
from mustcall.ledger import (
    OFF,
    ContentsKept,
    FactRow,
    Ledger,
    TallyRow,
    default_place,
    named_place,
    open_ledger,
)
from mustcall.ledger.notices import Notices
from mustcall.ledger.tracing import TraceQueue
from mustcall.profiles import Fact, Learnt, LearntFact, Measurements, Observed
from mustcall.profiles.patterns import LONGEST_NAME
from mustcall.profiles.tallies import Count, ProfileTally, Tallies
from mustcall.telemetry.stream import PROCESS, EventStream
from mustcall.upstream.retry import Clock

__all__ = ["LedgerSettings", "TraceKeeper", "read_age", "read_size"]

#: Seconds between two removals of what is old.
_SWEEP = 3600.0
#: Seconds after which a reservation that nobody settled counts as spent.
_WRITE_OFF = 3600.0
#: Seconds after which a ledger that could not be opened is tried again.
_OPEN_AGAIN = 10.0
#: Seconds that the start of a gateway waits for what was learnt before.
_FIRST_SHARE = 2.0
#: Seconds between two exchanges of what was learnt, and how long the last one may take when the gateway stops.
_SHARE = 30.0
_LAST_SHARE = 2.0
#: Seconds after which a fact that was learnt again is written again: where a setting forbids to believe it, that is
#: with every turn.
_RENEW = 3600.0
_CLOSED = "opening the ledger failed, no traces or responses are stored"
#: A program's name in its `User-Agent`; `OpenAI/Python 2.1` has two words of it, `claude-cli/2.0` one.
_PRODUCT = re.compile(r"[A-Za-z][\w.+-]*(?:/[A-Za-z][\w.-]*)?", re.ASCII)
_LONGEST_CLIENT = 40
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SIZES = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}


class LedgerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[ledger]`: where state is kept, how long, and how much of it."""

    #: A file, a postgresql:// URL, or `off`. Without it MUSTCALL_LEDGER, DATABASE_URL, a file in the state directory.
    place: str | None = None
    #: How long turns, responses and finished runs are kept: `30d`, `12h`; `0` for ever.
    keep: str = "30d"
    #: How long accounts are kept that nobody uses: what a session has spent is forgotten with its account.
    keep_accounts: str = "365d"
    #: How long it is believed what turns have taught about a model (rule 139), `0` for ever.
    keep_learnt: str = "7d"
    #: How much is kept before the oldest goes: `2GB`; `0` for any amount.
    max_size: str = "2GB"
    #: What is kept of requests and replies in traces: `full`, `redacted` or `none`.
    contents: ContentsKept = ContentsKept.NONE
    #: Whether responses are kept for callers that go on from them, where the upstream keeps none.
    responses: bool = True
    #: What a cap does while the ledger cannot be asked: `closed` refuses, `open` lets calls through uncounted.
    when_away: WhenAway = WhenAway.CLOSED

    @property
    def learnt_seconds(self) -> float:
        """How long what was learnt is believed, in seconds."""
        age = read_age(self.keep_learnt)
        return float("inf") if age is None else age

    def place_in(self, environment: Mapping[str, str], named: str | None = None) -> str:
        """Return where the ledger is, `off` included: a flag over the environment over the file over the default."""
        return named or named_place(environment) or self.place or default_place(environment)

    def resolved(
        self, environment: Mapping[str, str], *, place: str | None = None, keep: str | None = None
    ) -> "LedgerSettings | None":
        """Return the settings with a place, flags over the environment over the file; None for no ledger.

        DATABASE_URL, which is not ours alone, and the state directory are for those who name no place at all.
        """
        where = self.place_in(environment, place)
        said = over(self, "MUSTCALL_LEDGER_", environment, but=("place",))
        settings = msgspec.structs.replace(said, place=where, keep=keep or said.keep)
        read_age(settings.keep)
        read_age(settings.keep_accounts)
        read_age(settings.keep_learnt)
        read_size(settings.max_size)
        if where == OFF:
            return None
        open_ledger(where)  # raises for a place that is none
        return settings


def read_age(text: str, setting: str = "ledger: keep", none: str = "for ever") -> float | None:
    """Read `30d`, `12h`, `90m`, `45s`, `2w` as seconds; None for `0`, which means `none`."""
    found = re.fullmatch(r"(\d+)\s*([smhdw]?)", text.strip().lower())
    if found is None or (found[2] == "" and found[1] != "0"):
        raise ConfigError(f"{setting} is a time like 30d, 12h or 0 {none}, not {text!r}")
    return int(found[1]) * _UNITS[found[2]] if found[1] != "0" else None


def read_size(text: str) -> int | None:
    """Read `500MB` or `2GB` as bytes; None for `0`."""
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", text.strip().lower())
    if found is None:
        raise ConfigError(f"ledger: max_size is a size like 500MB, 2GB or 0 for any, not {text!r}")
    return int(found[1]) * _SIZES[found[2]] or None


class TraceKeeper:
    """One gateway's ledger, from its start to its end."""

    def __init__(self, settings: LedgerSettings) -> None:
        assert settings.place is not None, "settings are resolved before they are used"
        self._settings = settings
        self.notices = Notices()
        place = settings.place if "://" in settings.place else Path(settings.place).expanduser()
        self.ledger: Ledger = open_ledger(place, contents=settings.contents)
        self.memory = Memory(self.ledger, self.notices) if settings.responses else None
        self.holders = Holders(self.ledger, self.notices)
        redacts = settings.contents is ContentsKept.REDACTED
        self.traces = TraceQueue(self.ledger, partial(describe, joins=redacts), self.notices, weigh=weight_of)
        self.keeps_contents = settings.contents is not ContentsKept.NONE
        self._meter: LedgerMeter | None = None
        self._breakers: LedgerBreakers | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._sharing: asyncio.Task[None] | None = None
        self._leaving = asyncio.Event()
        #: The facts known to be in the ledger, with their dates here: one that is gone from there was removed by
        #: somebody, or has expired.
        self._told: dict[tuple[str, str, str, str], float] = {}
        #: Whether there is anything to write to.
        self.is_open = False

    def put(self, end: TurnEnd) -> None:
        """Drop a finished turn into the queue of traces."""
        self.traces.put(end)

    def metering(self, budget: Budget, clock: Clock, *, events: EventStream = PROCESS) -> Metering:
        """Return a budget whose accounts and breakers all replicas share."""
        self._meter = LedgerMeter(self.ledger, self.notices, self._settings.when_away)
        self._breakers = LedgerBreakers(self.ledger, self.notices, clock, events)
        if self._sharing is not None:  # a reload brought the budget
            self._tasks.append(asyncio.get_running_loop().create_task(self._hear(self._breakers)))
        return Metering(budget, clock, meter=self._meter, breakers=self._breakers)

    async def open(self) -> None:
        """Open the ledger and look after it. One that cannot be opened is tried again, with a word in the log."""
        await self._try_to_open()
        self._tasks.append(asyncio.get_running_loop().create_task(self._sweep()))

    async def listen(self, learnt: Learnt, measured: Measurements | None = None) -> None:
        """Begin to share what turns learn and probes measure, and to hear of breakers that other replicas opened.

        What the ledger knows is there when this returns, so that the first turn has it. A slow ledger is left behind.
        """
        loop = asyncio.get_running_loop()
        shared = asyncio.Event()
        self._sharing = loop.create_task(self._share(learnt, measured, shared))
        self._tasks.append(self._sharing)
        if self._breakers is not None:
            self._tasks.append(loop.create_task(self._hear(self._breakers)))
        if self.is_open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_SHARE):
                    await shared.wait()

    def beside(self, work: Coroutine[None, None, None]) -> None:
        """Do work that needs the ledger, once it is open and until it is closed."""

        async def wait() -> None:
            try:
                await self._until_open()
            except asyncio.CancelledError:
                work.close()
                raise
            await work

        self._tasks.append(asyncio.get_running_loop().create_task(wait()))

    async def _hear(self, breakers: LedgerBreakers) -> None:
        await self._until_open()
        await breakers.listen()

    async def _until_open(self) -> None:
        while not self.is_open:  # noqa: ASYNC110  once in ten seconds, if ever
            await asyncio.sleep(_OPEN_AGAIN)

    async def _share(self, learnt: Learnt, measured: Measurements | None, shared: asyncio.Event) -> None:
        await self._until_open()
        last = False
        while True:
            try:
                if measured is not None:
                    await self.hear_measured(measured)
                await self.share_facts(learnt)
            except LedgerError as error:
                self.notices.failed("sharing learnt facts failed", error)
            shared.set()
            if last:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SHARE):
                    last = await self._leaving.wait()

    async def hear_measured(self, measured: Measurements) -> None:
        """Take over what probes measured, whichever replica they ran on."""
        measured.take_over([profile for profile, _ in profiles_in(await self.ledger.measured())])

    async def share_facts(self, learnt: Learnt) -> None:
        """Learn what others have learnt of late, tell what only this process knows, and forget what was removed."""
        since = max(0.0, time() - self._settings.learnt_seconds)
        known = await self.ledger.facts(since=since)
        rows = {(row.upstream, row.model, row.field, row.tenant): row for row in known}
        for one in learnt.facts():
            if one.key not in rows and one.at <= self._told.get(one.key, -1.0):  # not learnt anew meanwhile
                learnt.forget(*one.key)
        for row in known:
            with contextlib.suppress(ConfigError, msgspec.DecodeError):  # of another version
                learnt.hear(_told(row))
        news = [
            one
            for one in learnt.facts()
            if "\0" not in one.model and not one.is_expired(time(), learnt.keeps) and _is_news(one, rows.get(one.key))
        ]
        await self.ledger.put_facts(
            [
                FactRow(
                    upstream=one.endpoint,
                    model=one.model,
                    field=one.field,
                    value=msgspec.json.encode(one.fact.value),
                    note=one.fact.note or "",
                    tenant=one.tenant,
                    seen=one.seen,
                    first=one.first,
                )
                for one in news
            ]
        )
        self._told = {one.key: one.at for one in learnt.facts() if one.key in rows or one in news}
        await self._share_tallies(learnt.tallies, since)

    async def _share_tallies(self, tallies: Tallies, since: float) -> None:
        """Add what was counted here to what all have counted, and take that over."""
        news = [one for one in tallies.news() if "\0" not in one.model]
        rows = [
            TallyRow(
                upstream=one.endpoint,
                model=one.model,
                subject=one.subject,
                made=one.count.made,
                missed=one.count.missed,
                first=one.count.first,
                last=one.count.last,
                tenant=one.tenant,
            )
            for one in news
        ]
        await self.ledger.add_tallies(rows, before=since)
        tallies.mark_shared(news)  # before anything else can fail: what is written must not be written again
        tallies.take_over(
            ProfileTally(
                row.upstream, row.model, row.subject, Count(row.made, row.missed, row.first, row.last), row.tenant
            )
            for row in await self.ledger.tallies(since=since)
        )

    async def close(self) -> None:
        """Write what waits and close the ledger."""
        if self._sharing is not None and self.is_open:
            self._leaving.set()
            await asyncio.wait({self._sharing}, timeout=_LAST_SHARE)
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._meter is not None:
            await self._meter.finish()
        if self._breakers is not None:
            await self._breakers.finish()
        if self.is_open:
            await self.traces.flush()
        if self.memory is not None:
            await self.memory.close()
        await self.ledger.close()

    async def _try_to_open(self) -> None:
        try:
            await self.ledger.open()
        except LedgerError as error:
            self.notices.failed(_CLOSED, error)
        else:
            self.is_open = True
            self.notices.over(_CLOSED)

    async def _sweep(self) -> None:
        age, size = read_age(self._settings.keep), read_size(self._settings.max_size)
        unused = read_age(self._settings.keep_accounts)
        accounts = float("inf") if unused is None else unused
        while not self.is_open:
            await asyncio.sleep(_OPEN_AGAIN)
            await self._try_to_open()
        while True:
            try:
                await self.ledger.prune(age=age, size=size, accounts=accounts)
                await self.ledger.write_off(age=_WRITE_OFF)
                await self.ledger.expire_learnt(before=max(0.0, time() - self._settings.learnt_seconds))
            except LedgerError as error:
                self.notices.failed("pruning expired rows failed", error)
            await asyncio.sleep(_SWEEP)


def _told(row: FactRow) -> LearntFact:
    """Return a fact as the ledger has it."""
    fact = Fact(
        value=msgspec.json.decode(row.value),
        observed=Observed.LEARNT,
        note=row.note,
        source=f"{row.upstream}: {row.model[:LONGEST_NAME]}",
    )
    return LearntFact(row.upstream, row.model, row.field, fact, row.at, row.tenant, row.seen, row.first)


def _is_news(fact: LearntFact, row: FactRow | None) -> bool:
    """Tell whether a fact is not in the ledger like this, or was learnt again a good while after it was written."""
    if row is None:
        return True
    same = msgspec.json.encode(fact.fact.value) == row.value and fact.seen == row.seen
    return fact.at > row.at + (_RENEW if same else 0.0)
