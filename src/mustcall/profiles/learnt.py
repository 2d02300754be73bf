"""What turns taught: facts per endpoint and model, and counts of what worked (rules 33, 139).

Bounded, and not believed any more after a while. What the operator configured is never overridden. What a refusal
teaches is decided in `policy.rejection`, what counts say in `tallies`; the ledger keeps both and replicas share them.
"""

from collections import OrderedDict
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from mustcall.policy.profile import Forcing, Profile
from mustcall.profiles.facts import Fact, Observed, checked
from mustcall.profiles.patterns import LONGEST_NAME
from mustcall.profiles.tallies import EXPIRY, Tallies, derive, may_reorder

__all__ = ["Learnt", "LearntFact"]

#: Facts that are not believed where the operator set another field, which says more than they do.
_SETTLED_BY: dict[str, frozenset[str]] = {"grammar_output": frozenset({"grammar_field"})}


class LearntFact(msgspec.Struct, frozen=True):
    """One learnt fact, for display; `at` is when it was learnt, 0 if that was not noted."""

    endpoint: str
    model: str
    field: str
    fact: Fact
    at: float = 0.0

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is about."""
        return self.endpoint, self.model, self.field

    def is_expired(self, now: float) -> bool:
        """Tell whether it is not believed any more. A fact without a date does not expire, nor any at time 0."""
        return bool(self.at and now) and self.at <= now - EXPIRY


class Learnt:
    """What was learnt so far, of at most `most` endpoints and models; the one used longest ago goes first."""

    def __init__(self, most: int = 1024) -> None:
        self._most = most
        self._facts: OrderedDict[tuple[str, str], dict[str, LearntFact]] = OrderedDict()
        self.tallies = Tallies(most)

    def learn(self, endpoint: str, model: str, field: str, value: object, why: str, *, at: float = 0.0) -> bool:
        """Note a fact; return whether it is news. Raise `ConfigError` for a field or value no profile has.

        One that is learnt again is believed from then on; one that expired is forgotten first. What is older than what
        is known changes nothing.
        """
        source = f"{endpoint}: {model[:LONGEST_NAME]}"
        new = checked(field, value, source)
        key = (endpoint, model)
        known = self._facts.get(key, {})
        old = known.get(field)
        if old is not None and not old.is_expired(at):
            if old.fact.value == new:
                self._facts[key] = known | {field: msgspec.structs.replace(old, at=max(at, old.at))}
                return False
            if old.fact.value is Forcing.NEVER or 0 < at < old.at:
                # A force that is refused as such is not allowed again by a refusal that blames the reasoning.
                return False
        if len(model) > LONGEST_NAME or self._most < 1:
            return False
        fact = Fact(value=new, observed=Observed.LEARNT, note=why[:200], source=source)
        self._facts[key] = known | {field: LearntFact(endpoint, model, field, fact, at)}
        self._facts.move_to_end(key)
        while len(self._facts) > self._most:
            self._facts.popitem(last=False)
        return True

    def forget(self, endpoint: str, model: str, field: str) -> None:
        """Forget a fact."""
        known = self._facts.get((endpoint, model), {})
        known.pop(field, None)

    def observe(self, endpoint: str, model: str, subject: str, *, made: bool, now: float) -> None:
        """Count an attempt at a demanded call: by which rung or in which text format, and whether it came."""
        if len(model) <= LONGEST_NAME and self._most > 0:
            self.tallies.observe(endpoint, model, subject, made=made, now=now)

    def apply(
        self,
        endpoint: str,
        model: str,
        profile: Profile,
        *,
        configured: AbstractSet[str] = frozenset(),
        now: float = 0.0,
    ) -> Profile:
        """Return the profile with what was learnt; the same object if that changes nothing.

        Fields in `configured` stay as the operator set them, and so does what they decide together with others.
        """
        key = (endpoint, model)
        counts = self.tallies.counts(endpoint, model, now)
        known = self._facts.get(key)
        if known is None and not counts:
            return profile
        taught = profile
        if known is not None:
            self._facts.move_to_end(key)
            taught = _with(
                profile,
                {
                    one.field: one.fact.value
                    for one in known.values()
                    if not one.is_expired(now) and configured.isdisjoint(_SETTLED_BY.get(one.field, ()))
                },
                configured,
            )
        if not counts:
            return taught
        return _with(taught, derive(counts, taught, reorders=may_reorder(profile, configured)), configured)

    def facts(self) -> tuple[LearntFact, ...]:
        """Return every fact learnt, the most recently used last."""
        return tuple(one for known in self._facts.values() for one in known.values())


def _with(profile: Profile, changes: dict[str, Any], configured: AbstractSet[str]) -> Profile:
    """Return the profile with these fields, configured ones left out; the same object if that changes nothing."""
    changes = {
        field: value for field, value in changes.items() if field not in configured and getattr(profile, field) != value
    }
    return msgspec.structs.replace(profile, **changes) if changes else profile
