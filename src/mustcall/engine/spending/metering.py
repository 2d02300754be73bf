"""The seams behind budgets and breakers: where accounts and breakers are kept, whoever keeps them.

`engine.spending.accounts` keeps them in memory; the ledger keeps them where replicas share them. Both are told and
asked the same few things, each of which one SQL statement can do. What a call costs, whether a cap is enforced and what
a refusal looks like is decided by those who ask (`engine.spending.budget_account`).

What every implementation owes:

- It may raise: accounting never fails a request (rule 98), so the caller logs what is raised and goes on unmetered.
- It is asked from several tasks at once, and from several event loops. What one method says happens as a whole.
- A `ChargeKey` is counted once however often it comes: a run that is taken up again after a crash repeats its keys.
- `settle` and `release` also come while a task is being cancelled; they must not wait for anything slow, or must hand
  over what they were told before they wait.
- Time is its own: in memory a monotonic clock, in a database the database's. A session begins with its first `reserve`.
"""

from typing import Protocol

from mustcall.policy.failures.breaker import Breaker, BreakerRule
from mustcall.policy.failures.breaker_classes import FailureClass
from mustcall.policy.limits.budget import Caps, Charge, ChargeKey, Spending, Trip

__all__ = ["Breakers", "Egress", "Meter"]


class Meter(Protocol):
    """Keeps the account of every session: what is spent, and what is reserved for calls that still run.

    Session ids are opaque and no secrets: those who make them out of keys send a digest.
    """

    async def reserve(self, session: str, key: ChargeKey, expected: Charge, caps: Caps) -> Trip | None:
        """Count a call that is about to start, or return the cap that is reached and count nothing (rule 94).

        As one statement: add `expected` to what is reserved WHERE `policy.limits.budget.check` lets it, that is, for
        each cap above 0, spent + reserved < cap, and now - started < seconds. No row means refused: read the account
        and let `check` say which cap it was. A key that is reserved or settled already changes nothing and gives None.
        """
        ...

    async def settle(self, session: str, key: ChargeKey, actual: Charge) -> None:
        """End a reserved call: what it really cost is spent, what was reserved for it is free again.

        A key that is settled already changes nothing. One that was never reserved, because the account could not be
        reached then, is spent all the same.
        """
        ...

    async def release(self, session: str, key: ChargeKey) -> None:
        """End a reserved call that cost nothing; a key that is not reserved changes nothing."""
        ...

    async def visit(self, session: str, host: str, most: int) -> bool:
        """Tell whether a tool may call a host: one of the session's own, or a new one while it has fewer than `most`.

        A new one is the session's own from then on (rule 99). `most` 0 is no cap.
        """
        ...

    async def spending(self, session: str) -> Spending:
        """Return a session's account as it stands; one nobody has heard of has spent nothing and starts now."""
        ...


class Breakers(Protocol):
    """Keeps one breaker for each upstream and failure class. `policy.failures.breaker` says what each event does to it.

    Asking must not wait for a store: an implementation answers from what this process knows and shares only changes of
    state, so that it goes on working when its store does not.
    """

    async def allow(self, upstream: str, rule: BreakerRule) -> tuple[FailureClass, float] | None:
        """Return None if a call may start now, else the class whose breaker is open and the seconds it will be.

        A breaker that is half-open lets one call through at a time (`admit`); the call is let through only if every
        class lets it.
        """
        ...

    async def report(self, upstream: str, rule: BreakerRule, failure: FailureClass | None) -> None:
        """Take note of how an allowed call ended: well for every class (None), or badly for one of them.

        For the other classes a call that failed proves nothing: if it was their probe, it is over.
        """
        ...

    async def forgo(self, upstream: str, rule: BreakerRule) -> None:
        """Take note that an allowed call ended without telling anything: cancelled, or refused for its own fault."""
        ...

    def state(self, upstream: str) -> dict[FailureClass, Breaker]:
        """Return the breakers of an upstream that are not as new, for reports."""
        ...


class Egress(Protocol):
    """What a tool that fetches asks and tells of the session it runs in (rule 99). `ToolContext.egress` is one.

    Each method raises `ToolRefused` in words for the model where a cap is reached.
    """

    @property
    def session(self) -> str:
        """The session's name: what is counted for one is not counted for another."""
        ...

    async def visit(self, host: str) -> int | None:
        """Ask before a host is called; return the bytes that may still come in, None for any number.

        A host the session has used stays allowed, also when the cap on hosts is reached since.
        """
        ...

    async def charge(self, size: int) -> None:
        """Count bytes that came in; asked to refuse if that reaches the cap, so tell it piece by piece."""
        ...
