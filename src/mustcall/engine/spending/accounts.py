"""Accounts and breakers in this process's memory: what `engine.spending.metering` asks for, for one process.

Every method does its work without waiting, under a lock, because runs of several event loops may share a session. What
a restart forgets is forgotten; the ledger is for those who need more.
"""

import threading
from collections import OrderedDict
from typing import Any

from mustcall.policy.failures.breaker import Breaker, BreakerRule, CallHealth, admit, record, wait_left
from mustcall.policy.failures.breaker_classes import FailureClass
from mustcall.policy.limits.budget import Caps, Charge, ChargeKey, Spending, Trip, check, release, reserve, settle
from mustcall.telemetry.events import BreakerChanged
from mustcall.telemetry.stream import PROCESS, EventStream
from mustcall.upstream.retry import Clock, SystemClock

__all__ = ["MemoryBreakers", "MemoryMeter", "shared_meter"]

#: Settled keys a session remembers, so that none of them is charged twice.
_REMEMBERED = 1024


class _Account:
    __slots__ = ("hosts", "reserved", "settled", "spending")

    def __init__(self, started: float) -> None:
        self.spending = Spending(started=started)
        self.reserved: dict[ChargeKey, Charge] = {}
        self.settled: OrderedDict[ChargeKey, None] = OrderedDict()
        self.hosts: set[str] = set()


class MemoryMeter:
    """A `Meter` in memory. Above `most_sessions`, the least recently used idle sessions are removed."""

    def __init__(self, clock: Clock | None = None, *, most_sessions: int = 10_000) -> None:
        self._clock: Clock = clock or SystemClock()
        self._most = most_sessions
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._lock = threading.Lock()

    async def reserve(self, session: str, key: ChargeKey, expected: Charge, caps: Caps) -> Trip | None:
        """Reserve the expected cost of a call, or return the cap that is reached."""
        with self._lock:
            account = self._account(session)
            if key in account.reserved or key in account.settled:
                return None
            trip = check(caps, account.spending, self._clock.monotonic())
            if trip is None:
                account.spending = reserve(account.spending, expected)
                account.reserved[key] = expected
            return trip

    async def settle(self, session: str, key: ChargeKey, actual: Charge) -> None:
        """End a reserved call with its real cost."""
        with self._lock:
            account = self._account(session)
            if key in account.settled:
                return
            expected = account.reserved.pop(key, None)
            if expected is None:
                account.spending = settle(reserve(account.spending, Charge()), Charge(), actual)
            else:
                account.spending = settle(account.spending, expected, actual)
            account.settled[key] = None
            if len(account.settled) > _REMEMBERED:
                account.settled.popitem(last=False)

    async def release(self, session: str, key: ChargeKey) -> None:
        """End a reserved call that cost nothing."""
        with self._lock:
            account = self._account(session)
            expected = account.reserved.pop(key, None)
            if expected is not None:
                account.spending = release(account.spending, expected)

    async def visit(self, session: str, host: str, most: int) -> bool:
        """Return whether a tool may call a host, and count the host."""
        with self._lock:
            hosts = self._account(session).hosts
            if host not in hosts and most and len(hosts) >= most:
                return False
            hosts.add(host)
            return True

    async def spending(self, session: str) -> Spending:
        """Return the current account of a session."""
        with self._lock:
            account = self._accounts.get(session)
            return Spending(started=self._clock.monotonic()) if account is None else account.spending

    def accounts(self, most: int) -> list[tuple[str, Spending, float]]:
        """Return the most recently used sessions, with their accounts and the time of the meter's clock."""
        with self._lock:
            last = list(reversed(self._accounts.items()))[:most]
            now = self._clock.monotonic()
            return [(session, account.spending, now) for session, account in last]

    def _account(self, session: str) -> _Account:
        account = self._accounts.get(session)
        if account is not None:
            self._accounts.move_to_end(session)
            return account
        if len(self._accounts) >= self._most:
            idle = next((name for name, each in self._accounts.items() if not each.reserved), None)
            if idle is not None:
                del self._accounts[idle]
        account = self._accounts[session] = _Account(self._clock.monotonic())
        return account


class MemoryBreakers:
    """`Breakers` in memory. An upstream that is well has no entry, so that asking costs one lookup."""

    def __init__(self, clock: Clock | None = None, events: EventStream = PROCESS) -> None:
        self._clock: Clock = clock or SystemClock()
        self._events = events
        self._breakers: dict[str, dict[FailureClass, Breaker]] = {}
        self._lock = threading.Lock()

    async def allow(self, upstream: str, rule: BreakerRule) -> tuple[FailureClass, float] | None:
        """Return None if a call may start now, else the class whose breaker is open and the seconds left."""
        if upstream not in self._breakers:
            return None
        with self._lock:
            breakers, now = self._breakers.get(upstream, {}), self._clock.monotonic()
            for failure, breaker in breakers.items():
                left = wait_left(breaker, rule, now)
                if left > 0:
                    return failure, left
            self._put(upstream, {failure: admit(breaker, rule, now)[0] for failure, breaker in breakers.items()})
            return None

    async def report(self, upstream: str, rule: BreakerRule, failure: FailureClass | None) -> None:
        """Take note of how an allowed call ended."""
        if failure is None and upstream not in self._breakers:
            return
        with self._lock:
            breakers = self._breakers.setdefault(upstream, {})
            if failure is not None:
                breakers.setdefault(failure, Breaker())
            self._record(
                upstream,
                rule,
                {
                    each: CallHealth.SUCCEEDED
                    if failure is None
                    else CallHealth.FAILED
                    if each is failure
                    else CallHealth.UNKNOWN
                    for each in breakers
                },
            )

    def states(self) -> list[dict[str, Any]]:
        """Return every breaker that has counted a failure: its name, state, failures and seconds since it changed."""
        with self._lock:
            now = self._clock.monotonic()
            return [
                {
                    "name": f"{upstream}/{failure}",
                    "state": str(breaker.state),
                    "failures": breaker.failures,
                    "ago": now - breaker.since,
                }
                for upstream, breakers in self._breakers.items()
                for failure, breaker in breakers.items()
            ]

    async def forgo(self, upstream: str, rule: BreakerRule) -> None:
        """Take note that an allowed call told nothing."""
        if upstream in self._breakers:
            with self._lock:
                self._record(upstream, rule, dict.fromkeys(self._breakers.get(upstream, {}), CallHealth.UNKNOWN))

    def state(self, upstream: str) -> dict[FailureClass, Breaker]:
        """Return the breakers of an upstream that are not as new."""
        with self._lock:
            return dict(self._breakers.get(upstream, {}))

    def adopt(self, upstream: str, failure: FailureClass, breaker: Breaker) -> None:
        """Take a breaker as somebody else knows it; one that is as new is forgotten."""
        with self._lock:
            self._put(upstream, {**self._breakers.get(upstream, {}), failure: breaker})

    def _record(self, upstream: str, rule: BreakerRule, ends: dict[FailureClass, CallHealth]) -> None:
        now = self._clock.monotonic()
        old = self._breakers.get(upstream, {})
        self._put(upstream, {failure: record(old[failure], rule, end, now) for failure, end in ends.items()})

    def _put(self, upstream: str, new: dict[FailureClass, Breaker]) -> None:
        """Keep the breakers of an upstream that are not as new, and tell which changed their state."""
        old, fresh = self._breakers.get(upstream, {}), Breaker()
        kept = {failure: breaker for failure, breaker in new.items() if breaker != fresh}
        if kept:
            self._breakers[upstream] = kept
        else:
            self._breakers.pop(upstream, None)
        if not self._events.listening:
            return
        for failure, breaker in new.items():
            if breaker.state is not old.get(failure, fresh).state:
                name = upstream.partition("@")[0]
                at = self._clock.now()
                self._events.emit(BreakerChanged(at=at, upstream=name, class_=str(breaker.state), failure=str(failure)))


_shared: MemoryMeter | None = None


def shared_meter() -> MemoryMeter:
    """Return the meter of this process, where agents that name the same session meet."""
    global _shared  # noqa: PLW0603  the one account book of the process
    if _shared is None:
        _shared = MemoryMeter()
    return _shared
