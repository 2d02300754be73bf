"""What refusals taught in this process: facts per endpoint and model that stand over every other (rule 33).

Bounded, forgotten when the process ends. What a refusal teaches is decided in `policy.rejection`.
"""

from collections import OrderedDict
from typing import Any

import msgspec

from mustcall.policy.profile import Forcing, Profile
from mustcall.profiles.facts import Fact, Observed, checked
from mustcall.profiles.patterns import LONGEST_NAME

__all__ = ["Learnt", "LearntFact"]


class LearntFact(msgspec.Struct, frozen=True):
    """One learnt fact, for display."""

    endpoint: str
    model: str
    field: str
    fact: Fact


class Learnt:
    """The facts learnt so far, of at most `most` endpoints and models; the one used longest ago goes first."""

    def __init__(self, most: int = 1024) -> None:
        self._most = most
        self._facts: OrderedDict[tuple[str, str], dict[str, Fact]] = OrderedDict()

    def learn(self, endpoint: str, model: str, field: str, value: object, why: str) -> bool:
        """Note a fact; return whether it is news. Raise `ConfigError` for a field or value no profile has."""
        source = f"{endpoint}: {model[:LONGEST_NAME]}"
        new = checked(field, value, source)
        key = (endpoint, model)
        known = self._facts.get(key, {})
        old = known.get(field)
        if old is not None and (old.value == new or old.value is Forcing.NEVER):
            return False  # a force that is refused as such is not allowed again by a refusal that blames the reasoning
        if len(model) > LONGEST_NAME or self._most < 1:
            return False
        self._facts[key] = known | {field: Fact(value=new, observed=Observed.LEARNT, note=why[:200], source=source)}
        self._facts.move_to_end(key)
        while len(self._facts) > self._most:
            self._facts.popitem(last=False)
        return True

    def apply(self, endpoint: str, model: str, profile: Profile) -> Profile:
        """Return the profile with what was learnt; the same object if that changes nothing."""
        key = (endpoint, model)
        known = self._facts.get(key)
        if known is None:
            return profile
        self._facts.move_to_end(key)
        changes: dict[str, Any] = {
            field: fact.value for field, fact in known.items() if getattr(profile, field) != fact.value
        }
        return msgspec.structs.replace(profile, **changes) if changes else profile

    def facts(self) -> tuple[LearntFact, ...]:
        """Return everything learnt, the most recently used last."""
        return tuple(
            LearntFact(endpoint, model, field, fact)
            for (endpoint, model), known in self._facts.items()
            for field, fact in known.items()
        )
