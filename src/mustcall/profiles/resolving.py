"""Which profile a model has at an endpoint: every entry that matches, merged field by field, the most specific last.

Nothing known gives the defaults of `Profile`, which are the safe side (rule 74). After the first time for a model the
answer comes from a bounded store.
"""

from collections.abc import Mapping, Sequence

import msgspec

from mustcall.core.memo import kept
from mustcall.core.origin import Wire
from mustcall.policy.facts.profile import Profile
from mustcall.profiles.catalogue import ProfileEntry, Specificity, heaviest, load
from mustcall.profiles.facts import PRECEDENCE, Fact, Observed, is_settled
from mustcall.profiles.overrides import ProfileOverride
from mustcall.profiles.patterns import LONGEST_NAME, is_local, place_of, spellings

__all__ = ["Resolved", "resolve"]

_UNKNOWN = Profile()


class Resolved(msgspec.Struct, frozen=True):
    """A profile, for every field that is known, how, which fields the operator set, and which turns cannot change."""

    profile: Profile
    facts: Mapping[str, Fact]
    configured: frozenset[str] = frozenset()
    #: The fields whose facts rank over what turns teach (`facts.PRECEDENCE`), the operator's among them.
    settled: frozenset[str] = frozenset()


def resolve(
    model: str,
    base_url: str,
    wire: Wire,
    overrides: Sequence[ProfileOverride] = (),
    *,
    upstream: str = "",
    server: str = "",
) -> Resolved:
    """Return what is known of a model at an endpoint. `upstream` is the endpoint's name in the configuration.

    `server` is the short name it was given by (`llamacpp`): the address of a server on this machine does not tell it.
    """
    if len(model) > LONGEST_NAME:  # such a name is a caller's joke, and the cache is for names that come again
        return _resolve(model, base_url, wire, tuple(overrides), upstream, server=server)
    return _remembered(model, base_url, wire, tuple(overrides), upstream, server=server)


def _resolve(
    model: str, base_url: str, wire: Wire, overrides: tuple[ProfileOverride, ...], upstream: str, *, server: str
) -> Resolved:
    names, place = spellings(model), place_of(base_url)
    places = (place, server) if server else (place,)
    ranked: list[tuple[Specificity, int, ProfileEntry]] = []
    for number, entry in enumerate(load()):
        rank = entry.specificity(names, places, wire)
        if rank is not None:
            ranked.append((rank, number, entry))
    ranked.sort(key=lambda item: item[:2])
    facts: dict[str, Fact] = {}
    for _, _, entry in ranked:
        facts.update(entry.facts)
    if "local" not in facts and is_local(place) and not any(_is_at(entry, place) for _, _, entry in ranked):
        facts["local"] = Fact(value=True, observed=Observed.ASSUMED, note="by its address")
    off = facts.get("reasoning_off")
    if off is not None and off.value is False:  # a broader entry's word for "off" means nothing where there is none
        facts.pop("reasoning_off_fields", None)
    for override in overrides:
        if override.applies(names, place, wire, upstream):
            facts.update({field: fact for field, fact in override.facts.items() if _stands(fact, facts.get(field))})
    values = {"name": _name([entry for _, _, entry in ranked])} | {field: fact.value for field, fact in facts.items()}
    profile = msgspec.structs.replace(_UNKNOWN, **values)
    configured = frozenset(field for field, fact in facts.items() if fact.observed is Observed.CONFIG)
    settled = frozenset(field for field, fact in facts.items() if is_settled(fact))
    return Resolved(_UNKNOWN if profile == _UNKNOWN else profile, facts, configured, settled)


def _is_at(entry: ProfileEntry, place: str) -> bool:
    """Tell whether an entry speaks of this address."""
    return bool(entry.endpoints) and heaviest(entry.endpoints, place) is not None


def _stands(fact: Fact, over: Fact | None) -> bool:
    """Tell whether a fact stands over the one that is known so far: by rank, and of two measured ones the newer."""
    if over is None or PRECEDENCE[fact.observed] != PRECEDENCE[over.observed]:
        return over is None or PRECEDENCE[fact.observed] > PRECEDENCE[over.observed]
    return fact.observed is not Observed.PROBED or fact.when >= over.when


_remembered = kept(most=1024, most_bytes=None)(_resolve)


def _name(entries: Sequence[ProfileEntry]) -> str:
    """Return the name of the most specific model entry, and the door's: `claude-opus-5.5 via openrouter`."""
    model = next((entry.name for entry in reversed(entries) if not entry.endpoints), _UNKNOWN.name)
    door = next((entry.name for entry in reversed(entries) if entry.endpoints), None)
    return model if door is None else f"{model} via {door}"
