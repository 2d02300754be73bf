"""What turns taught: facts per endpoint and model, and counts of what worked (rules 33, 139).

A fact is the tenant's whose turn taught it; others believe it once two tenants have learnt it each by itself, so that
no single caller changes another's requests. It is believed for an hour at first; the turn after that tries again, and
each time it turns out true the next trial is twice as far away, seven days at most. What the operator configured is
never overridden. What a refusal teaches is decided in `policy.failures.rejection`, what counts say in `tallies`; the
ledger keeps both and replicas share them.
"""

import threading
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from mustcall.core.memo import Bounded
from mustcall.policy.facts.profile import Forcing, Profile
from mustcall.profiles.facts import Fact, Observed, checked
from mustcall.profiles.patterns import LONGEST_NAME
from mustcall.profiles.tallies import EXPIRY, WITNESSES, Tallies, derive, may_reorder
from mustcall.profiles.tenants import PerTenant

__all__ = ["SCHEMA", "TOOL", "Learnt", "LearntFact", "believed_for"]

#: Before the digest of a tool schema that was refused: such a fact is about this one schema and no other.
SCHEMA = "schema:"
#: Before the digest of a tool that was refused in every form.
TOOL = "tool:"
#: Seconds for which a fact is believed that was seen once.
_FIRST_TRIAL = 3600.0
#: Facts of one tenant about one model; of refused schemas there may be many, and the oldest go first.
_MOST_FACTS = 128
#: Facts that are not believed where the operator set another field, which says more than they do.
_SETTLED_BY: dict[str, frozenset[str]] = {"grammar_output": frozenset({"grammar_field"})}
#: The profile field that facts about single schemas and tools become, and what an operator may set in its place.
_SINGLE = {SCHEMA: ("narrowed_schemas", "schema_target"), TOOL: ("refused_tools", "refused_tools")}


def believed_for(seen: int, keeps: float = EXPIRY) -> float:
    """Return for how many seconds a fact is believed that was seen so often, each time when it was tried again."""
    return min(keeps, _FIRST_TRIAL * 2.0 ** min(seen - 1, 16))


class LearntFact(msgspec.Struct, frozen=True):
    """One learnt fact of one tenant; `at` is when it was last learnt, 0 if that was not noted.

    `seen` is how often it was learnt, trials that came after it had expired and shown it to be true still.
    """

    endpoint: str
    model: str
    field: str
    fact: Fact
    at: float = 0.0
    tenant: str = ""
    seen: int = 1
    first: float = 0.0

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is about, and whose it is."""
        return self.endpoint, self.model, self.field, self.tenant

    def is_expired(self, now: float, keeps: float = EXPIRY) -> bool:
        """Tell whether it is not believed any more. A fact without a date does not expire, nor any at time 0."""
        return bool(self.at and now) and self.at <= now - believed_for(self.seen, keeps)


_Facts = dict[str, LearntFact]
#: Seconds for which a profile is given again: what expires is believed for so much longer at most.
_AGAIN = 1.0


class _Applied(msgspec.Struct, frozen=True, gc=False):
    """A profile with what was learnt, and what it was made of."""

    profile: Profile
    configured: AbstractSet[str]
    settled: AbstractSet[str]
    changes: int
    at: float
    taught: Profile

    def holds(
        self, profile: Profile, configured: AbstractSet[str], settled: AbstractSet[str], changes: int, now: float
    ) -> bool:
        """Tell whether it would be made the same again."""
        return (
            self.changes == changes
            and self.profile is profile
            and self.configured is configured
            and self.settled is settled
            and 0 <= now - self.at < _AGAIN
        )


class Learnt:
    """What was learnt so far, for each tenant of at most `most` endpoints and models; believed `keeps` seconds.

    Threads may share it: blocking callers bring a thread and an event loop each (LangChain's `batch`), and read and
    write the same facts and counts at the same time. Whoever holds the lock waits for nothing else.
    """

    def __init__(self, most: int = 1024, keeps: float = EXPIRY) -> None:
        self.lock = threading.RLock()
        self._most = most
        self.keeps = keeps
        self._facts: PerTenant[_Facts] = PerTenant(most)
        #: A number that stays while all facts stay.
        self._changes = 0
        self.tallies = Tallies(most, keeps)
        self._applied: Bounded[tuple[str, str, str], _Applied] = Bounded(most)

    @property
    def size(self) -> int:
        """Of how many models at endpoints a fact is known."""
        return self._facts.size

    def learn(
        self, endpoint: str, model: str, field: str, value: object, why: str, *, at: float = 0.0, tenant: str = ""
    ) -> bool:
        """Note a fact; return whether it is news. Raise `ConfigError` for a field or value no profile has.

        One that is learnt again is believed from then on, and for longer if it had expired. What is older than what is
        known changes nothing.
        """
        with self.lock:
            source = f"{endpoint}: {model[:LONGEST_NAME]}"
            new = _checked(field, value, source)
            old = self._facts.known(endpoint, model).get(tenant, {}).get(field)
            seen, first = 1, at
            if old is not None:
                same = old.fact.value == new
                if not old.is_expired(at, self.keeps):
                    if same:
                        self._put(msgspec.structs.replace(old, at=max(at, old.at)))
                        return False
                    if old.fact.value is Forcing.NEVER or 0 < at < old.at:
                        # A force that is refused as such is not allowed again by a refusal that blames the reasoning.
                        return False
                elif same:
                    seen, first = old.seen + 1, old.first
            if len(model) > LONGEST_NAME or self._most < 1:
                return False
            fact = Fact(value=new, observed=Observed.LEARNT, note=why[:200], source=source)
            self._put(LearntFact(endpoint, model, field, fact, at, tenant, seen, first))
            return True

    def hear(self, told: LearntFact) -> None:
        """Take over a fact that another replica has learnt; one that is known here and newer stays."""
        with self.lock:
            new = _checked(told.field, told.fact.value, told.fact.source)
            old = self._facts.known(told.endpoint, told.model).get(told.tenant, {}).get(told.field)
            if old is not None and (told.at < old.at or (told.at == old.at and told.seen <= old.seen)):
                return
            if len(told.model) <= LONGEST_NAME and self._most > 0:
                self._put(msgspec.structs.replace(told, fact=msgspec.structs.replace(told.fact, value=new)))

    def _put(self, one: LearntFact) -> None:
        known = dict(self._facts.known(one.endpoint, one.model).get(one.tenant, {}))
        known.pop(one.field, None)
        known[one.field] = one
        while len(known) > _MOST_FACTS:
            known.pop(next(iter(known)))
        self._changes += 1
        self._facts.put(one.endpoint, one.model, one.tenant, known)

    def forget(self, endpoint: str, model: str, field: str, tenant: str = "") -> None:
        """Forget a fact."""
        with self.lock:
            known = dict(self._facts.known(endpoint, model).get(tenant, {}))
            if known.pop(field, None) is None:
                return
            self._changes += 1
            if known:
                self._facts.put(endpoint, model, tenant, known)
            else:
                self._facts.remove(endpoint, model, tenant)

    def observe(self, endpoint: str, model: str, subject: str, *, made: bool, now: float, tenant: str = "") -> None:
        """Count an attempt at a demanded call: by which rung or in which text format, and whether it came."""
        if len(model) <= LONGEST_NAME and self._most > 0:
            self.tallies.observe(endpoint, model, subject, made=made, now=now, tenant=tenant)

    def apply(
        self,
        endpoint: str,
        model: str,
        profile: Profile,
        *,
        configured: AbstractSet[str] = frozenset(),
        settled: AbstractSet[str] = frozenset(),
        now: float = 0.0,
        tenant: str = "",
    ) -> Profile:
        """Return the profile with what a tenant may believe; the same object if that changes nothing.

        Fields in `configured` stay as the operator set them, and so does what they decide together with others;
        those in `settled` stay as they were measured.
        """
        key = (endpoint, model, tenant)
        applied = self._applied.get(key)
        changes = self._changes + self.tallies.changes
        if applied is not None and applied.holds(profile, configured, settled, changes, now):
            return applied.taught
        with self.lock:
            taught = self._taught(
                endpoint, model, profile, configured=configured, settled=settled, now=now, tenant=tenant
            )
            if len(model) <= LONGEST_NAME:
                self._applied.keep(key, _Applied(profile, configured, settled, changes, now, taught))
        return taught

    def _taught(
        self,
        endpoint: str,
        model: str,
        profile: Profile,
        *,
        configured: AbstractSet[str],
        settled: AbstractSet[str],
        now: float,
        tenant: str,
    ) -> Profile:
        settled = settled | configured
        counts = self.tallies.counts(endpoint, model, now, tenant)
        known = self._facts.known(endpoint, model)
        if not known and not counts:
            return profile
        taught = profile
        if known:
            self._facts.touch(endpoint, model, tenant)
            believed = _believed(known, tenant, now, self.keeps)
            changes = {
                field: value
                for field, value in believed.items()
                if not field.startswith(tuple(_SINGLE)) and configured.isdisjoint(_SETTLED_BY.get(field, ()))
            }
            for start, (name, settled_by) in _SINGLE.items():
                digests = sorted(field.removeprefix(start) for field in believed if field.startswith(start))
                if digests and settled_by not in configured:
                    changes[name] = tuple(digests)
            taught = _with(profile, changes, settled)
        if not counts:
            return taught
        return _with(taught, derive(counts, taught, reorders=may_reorder(profile, configured)), settled)

    def facts(self) -> tuple[LearntFact, ...]:
        """Return every fact learnt, for each tenant the most recently used last."""
        with self.lock:
            return tuple(one for *_, known in self._facts for one in known.values())


def _checked(field: str, value: object, source: str) -> Any:
    """Return a fact's value as its own type; raise `ConfigError`."""
    if field.startswith(TOOL):
        return checked("refused_tools", [field.removeprefix(TOOL)], source) and True
    return checked("schema_target" if field.startswith(SCHEMA) else field, value, source)


def _believed(known: Mapping[str, _Facts], tenant: str, now: float, keeps: float) -> dict[str, Any]:
    """Return what a tenant may believe: what its own turns taught, and what those of two others did."""
    own = known.get(tenant, {})
    believed = {one.field: one.fact.value for one in own.values() if not one.is_expired(now, keeps)}
    if len(known) - (tenant in known) < WITNESSES:
        return believed
    said: dict[tuple[str, Any], int] = {}
    for other, facts in known.items():
        for field, one in facts.items() if other != tenant else ():
            if field not in believed and not one.is_expired(now, keeps):
                said[field, one.fact.value] = said.get((field, one.fact.value), 0) + 1
    for (field, value), count in sorted(said.items(), key=lambda one: one[1]):  # what most say stands
        if count >= WITNESSES:
            believed[field] = value
    return believed


def _with(profile: Profile, changes: dict[str, Any], settled: AbstractSet[str]) -> Profile:
    """Return the profile with these fields, settled ones left out; the same object if that changes nothing."""
    changes = {
        field: value for field, value in changes.items() if field not in settled and getattr(profile, field) != value
    }
    return msgspec.structs.replace(profile, **changes) if changes else profile
