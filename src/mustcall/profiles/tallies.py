"""How often which way of asking made the demanded call, and what follows from that (rule 139).

A subject is a rung of the ladder (`rung:schema`), a rung whose reply ran into the deadline (`late:native`), the
provider's own calls under its own forced choice (`enforced`), a text format the model wrote a call in
(`dialect:fenced_json`), or the provider's own calls as such (`arguments`): whether they needed no repair.
Counts are kept for each endpoint, model and tenant: those all replicas share (`totals`) and those of this process that
are not shared yet (`news`). A tenant sees its own and what two other tenants have seen alike (`_confirmed`). What is
derived from them is one table at the end of this file.
"""

import threading
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from mustcall.core.verdict import Verdict
from mustcall.dialects import known
from mustcall.policy.facts.profile import Forcing, Profile
from mustcall.policy.request.plan import Rung, RungKind, first_rungs
from mustcall.profiles.tenants import PerTenant

__all__ = [
    "ARGUMENTS",
    "DIALECT",
    "ENFORCED",
    "EXPIRY",
    "LATE",
    "MISSES",
    "RUNG",
    "WITNESSES",
    "Count",
    "ProfileTally",
    "Tallies",
    "derive",
    "may_reorder",
    "subjects",
]

RUNG = "rung:"
LATE = "late:"
DIALECT = "dialect:"
ENFORCED = "enforced"
ARGUMENTS = "arguments"
#: Seconds after which what was learnt is not believed any more (rule 139).
EXPIRY = 7 * 86_400.0
#: Other tenants that must have learnt something, each by itself, before a tenant believes it.
WITNESSES = 2
#: Forced calls that must have come as the provider's own, and none missed, before the choice counts as enforced.
_ENOUGH = 5
#: Calls in a row that needed no repair, and none that did, before arguments are trusted to stream (rule 145).
_TRUSTED = 50
#: Seconds after which a trust that is earned is confirmed, so that it does not expire while it is used.
_CONFIRMED = 86_400.0
#: Calls in one text format before tools are rendered in it.
_WRITTEN = 3
#: A first rung that mostly missed is tried again after so many calls for each miss it is ahead by.
_TRY_AGAIN = 20
#: A miss that cost a turn its whole time counts like so many when the next try is due.
_LATE_MISSES = 20
#: Verdicts on a forced reply that say that its rung did not make the call. A refusal of content, a cut prompt or a
#: repeated call say nothing about the rung.
MISSES = frozenset(
    {
        Verdict.FORCE_MISSED,
        Verdict.TEXT_CALL,
        Verdict.PHANTOM_CALL,
        Verdict.UNKNOWN_TOOL,
        Verdict.BAD_ARGUMENTS,
        Verdict.TRUNCATED,
        Verdict.EMPTY,
        Verdict.THINKING_ONLY,
    }
)

#: The rungs that send the provider's own forced choice.
_CHOOSING = (RungKind.NATIVE, RungKind.HARD)
_KINDS = frozenset(RungKind)
#: The fields by which an operator says in which order rungs are tried.
_ORDERING = frozenset({"forced", "forced_by", "constrain_first"})
#: The rungs that a turn may start with, in the order of an unknown server's ladder. The one that turns reasoning off is
#: for a retry: the next request reasons as its caller says (rule 24).
_STARTING = (RungKind.NATIVE, RungKind.SCHEMA, RungKind.GRAMMAR, RungKind.SOFT, RungKind.TEXT)


class Count(msgspec.Struct, frozen=True):
    """How often a subject made the call and how often it did not, first and last when."""

    made: int = 0
    missed: int = 0
    first: float = 0.0
    last: float = 0.0

    def __add__(self, other: "Count") -> "Count":
        first = min(self.first or other.first, other.first or self.first)
        return Count(self.made + other.made, self.missed + other.missed, first, max(self.last, other.last))


class ProfileTally(msgspec.Struct, frozen=True):
    """One count, for display and for the ledger."""

    endpoint: str
    model: str
    subject: str
    count: Count
    tenant: str = ""


_Counts = dict[str, Count]


class Tallies:
    """The counts of at most `most` endpoints and models for each tenant; the one used longest ago goes first.

    Threads may share it, as they do `Learnt`.
    """

    def __init__(self, most: int, keeps: float = EXPIRY) -> None:
        self.lock = threading.RLock()
        self._keeps = keeps
        self._totals: PerTenant[_Counts] = PerTenant(most)
        self._news: PerTenant[_Counts] = PerTenant(most)
        #: A number that stays while all stays that is derived from the counts.
        self.changes = 0

    @property
    def size(self) -> int:
        """Of how many models at endpoints something was counted."""
        return self._totals.size

    def observe(self, endpoint: str, model: str, subject: str, *, made: bool, now: float, tenant: str = "") -> None:
        """Count one attempt."""
        with self.lock:
            tally = ProfileTally(endpoint, model, subject, Count(int(made), int(not made), now, now), tenant)
            old, new = _add(self._totals, tally, self._keeps)
            _add(self._news, tally, self._keeps)
            # Of arguments only trust is derived: most calls neither earn nor lose it. Where others confirm counts, any
            # of them may change what is confirmed.
            confirmed = len(self._totals.known(endpoint, model)) >= WITNESSES
            if subject != ARGUMENTS or old is None or confirmed or _is_trusted(old) != _is_trusted(new):
                self.changes += 1

    def news(self) -> tuple[ProfileTally, ...]:
        """Return what was counted here and is not shared yet."""
        with self.lock:
            return tuple(_listed(self._news))

    def all(self) -> tuple[ProfileTally, ...]:
        """Return all counts."""
        with self.lock:
            return tuple(_listed(self._totals))

    def mark_shared(self, written: Iterable[ProfileTally]) -> None:
        """Take note that these counts of this process are in the ledger: they are news no longer."""
        with self.lock:
            for tally in written:
                counts = dict(self._news.known(tally.endpoint, tally.model).get(tally.tenant, {}))
                left = counts.get(tally.subject, Count())
                rest = Count(left.made - tally.count.made, left.missed - tally.count.missed, left.first, left.last)
                if rest.made > 0 or rest.missed > 0:  # counted while the ledger was written to
                    counts[tally.subject] = rest
                else:
                    counts.pop(tally.subject, None)
                if counts:
                    self._news.put(tally.endpoint, tally.model, tally.tenant, counts)
                else:
                    self._news.remove(tally.endpoint, tally.model, tally.tenant)

    def take_over(self, totals: Iterable[ProfileTally]) -> None:
        """Replace what is known by the counts of all replicas; what is not shared yet is added."""
        with self.lock:
            self.changes += 1
            self._totals.clear()
            for tally in (*totals, *_listed(self._news)):
                _add(self._totals, tally, self._keeps)

    def trusts(self, endpoint: str, model: str, now: float, tenant: str = "") -> bool:
        """Tell whether a tenant trusts arguments and they need not be counted today."""
        known = self._totals.known(endpoint, model)
        own = known.get(tenant)
        if own is not None and len(known) - 1 < WITNESSES:  # what `counts` would say, without the other subjects
            count = own.get(ARGUMENTS)
        else:
            count = self.counts(endpoint, model, 0.0, tenant).get(ARGUMENTS)
        return count is not None and _is_trusted(count) and count.last > now - _CONFIRMED

    def counts(self, endpoint: str, model: str, now: float, tenant: str = "") -> _Counts:
        """Return the counts of a model that a tenant believes: its own, and what others have confirmed."""
        with self.lock:
            known = self._totals.known(endpoint, model)
            if not known:
                return {}
            since = now - self._keeps if now else 0.0
            own = _believed(known.get(tenant, {}), since)
            if len(known) - (tenant in known) < WITNESSES:
                return own
            others = _confirmed([_believed(counts, since) for other, counts in known.items() if other != tenant])
            return {subject: own.get(subject, Count()) + others.get(subject, Count()) for subject in {**own, **others}}


def _add(store: PerTenant[_Counts], tally: ProfileTally, keeps: float) -> tuple[Count | None, Count]:
    """Add a count; one that is not believed any more starts anew. Return what it was and what it is."""
    counts = dict(store.known(tally.endpoint, tally.model).get(tally.tenant, {}))
    old, count = counts.get(tally.subject), tally.count
    new = counts[tally.subject] = count if old is None or old.last <= count.last - keeps else old + count
    store.put(tally.endpoint, tally.model, tally.tenant, counts)
    return old, new


def _believed(counts: Mapping[str, Count], since: float) -> _Counts:
    return {subject: count for subject, count in counts.items() if not since or count.last > since}


def _confirmed(tenants: list[_Counts]) -> _Counts:
    """Return what several tenants have seen alike: the count of the one that has seen the second most of it.

    A tenant says of a subject that it mostly makes the call or that it mostly does not. What most tenants say stands
    if two of them say so; one alone, however often it counted, adds nothing.
    """
    confirmed: _Counts = {}
    for subject in {subject: None for counts in tenants for subject in counts}:
        seen = [counts[subject] for counts in tenants if subject in counts]
        good = sorted((one for one in seen if one.made > one.missed), key=lambda one: -one.made)
        bad = sorted((one for one in seen if one.missed > one.made), key=lambda one: -one.missed)
        camp = good if len(good) > len(bad) else bad
        if len(camp) >= WITNESSES and len(good) != len(bad):
            confirmed[subject] = camp[WITNESSES - 1]
    return confirmed


def _listed(store: PerTenant[_Counts]) -> Iterable[ProfileTally]:
    for endpoint, model, tenant, counts in store:
        for subject, count in counts.items():
            yield ProfileTally(endpoint, model, subject, count, tenant)


def may_reorder(profile: Profile, configured: AbstractSet[str]) -> bool:
    """Tell whether counts may change the order of the ladder: not where the operator, or a fact we came with, made it.

    A forced choice or a constrained reply that is known to be obeyed passes untouched (rule 137).
    """
    known = profile.forced in (Forcing.ALWAYS, Forcing.WITHOUT_REASONING) or profile.constrain_first
    return not known and configured.isdisjoint(_ORDERING)


def derive(counts: _Counts, profile: Profile, *, reorders: bool = True) -> dict[str, Any]:
    """Return what counts say about a model, as fields of its profile.

    - Rungs that mostly make the call come first once another one was seen to miss it mostly (`_order`), where counts
      may say so (`may_reorder`).
    - A forced choice that made the provider's own calls several times and never failed is enforced.
    - Tools are rendered in the text format the model writes.
    - Arguments that were valid as they came, many times and always, are trusted.
    """
    changes: dict[str, Any] = {}
    if _is_trusted(counts.get(ARGUMENTS, Count())):
        changes["trusted_arguments"] = True
    enforced = counts.get(ENFORCED, Count())
    if profile.forced is Forcing.UNKNOWN and enforced.made >= _ENOUGH and not enforced.missed:
        changes["forced"] = Forcing.ALWAYS
    elif reorders and profile.forced is not Forcing.ALWAYS and (order := _order(counts, profile)):
        changes["forced_by"] = order
    # The text formats that tools can be rendered in; a replica of another version may have counted others.
    written = {name: count for name, count in _named(counts, DIALECT) if count.made >= _WRITTEN}
    if not written:
        return changes
    formats = [dialect.name for dialect in known() if dialect.name in written]
    usual = max(formats, key=lambda name: written[name].made, default=None)
    if usual is not None:
        changes["prompt_dialect"] = usual
    return changes


def _is_trusted(count: Count) -> bool:
    return count.made >= _TRUSTED and not count.missed


def _order(counts: _Counts, profile: Profile) -> tuple[str, ...]:
    """Return the rungs to start with, the best first; none if the ladder's own order is as good as any.

    Where a rung has mostly missed, those come first that mostly made the call, the most successful one before the
    others; where none has, those that have not mostly missed. The ladder's own first rung stays in front unless it has
    mostly missed, and comes back from time to time (`_is_due`), so that one bad turn is not the last word on it.
    """
    rungs = {RungKind(name): count for name, count in _named(counts, RUNG) if name in _KINDS}
    missing = {rung for rung, count in rungs.items() if count.missed > count.made}
    good = [rung for rung, count in rungs.items() if count.made > count.missed]
    if not missing or good == [RungKind.HARD]:
        return ()
    started = sorted((rung for rung in good if rung in _STARTING), key=lambda rung: -rungs[rung].made)
    late = {name: count.missed for name, count in _named(counts, LATE)}
    calls = sum(count.made for count in rungs.values())
    own = first_rungs(profile)
    first = [
        rung
        for rung in _STARTING
        if rung in own and (rung not in missing or _is_due(rungs[rung], late.get(rung, 0), calls))
    ]
    return tuple(dict.fromkeys([*first, *(started or (rung for rung in _STARTING if rung not in missing))]))


def _is_due(count: Count, late: int, calls: int) -> bool:
    """Tell whether a rung that mostly missed is tried again, by the number of calls that all rungs made.

    Each miss puts the next try off, each call it makes brings it nearer: one that works again is soon in front.
    """
    return calls >= _TRY_AGAIN * (count.missed - count.made + _LATE_MISSES * late)


def _named(counts: _Counts, prefix: str) -> Iterable[tuple[str, Count]]:
    return ((name.removeprefix(prefix), count) for name, count in counts.items() if name.startswith(prefix))


def subjects(
    missed: Iterable[Rung], made: Rung | None = None, dialect: str = "", *, late: Rung | None = None
) -> Iterable[tuple[str, bool]]:
    """Yield what a forced turn shows, and whether that made the call.

    `missed` are the rungs that did not make the demanded call, `made` is the one that did, `dialect` the format if the
    call stood in text. `late` is the rung whose reply ran into the deadline.
    """
    for rung in (*missed, *((late,) if late is not None else ())):
        yield f"{RUNG}{rung.kind}", False
        if rung.kind in _CHOOSING:
            yield ENFORCED, False
    if late is not None:
        yield f"{LATE}{late.kind}", False
    if made is not None:
        yield f"{RUNG}{made.kind}", True
        if made.kind in _CHOOSING:
            yield ENFORCED, not dialect
    if dialect:
        yield f"{DIALECT}{dialect}", True
