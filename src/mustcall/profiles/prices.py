"""What a model costs: the operator's own prices first, then the providers' lists that come with mustcall.

The lists are read when a price is first asked for. A model in this process costs nothing; one nobody knows has no
price, and what that means is decided where prices are used.
"""

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources

import msgspec

from mustcall.policy.limits.budget import ModelPrice, Price
from mustcall.profiles.patterns import LONGEST_NAME, model_pattern, spellings

__all__ = ["PriceList", "Prices", "price_lists"]

_FREE = Price(input=0.0, output=0.0)
#: Stands for a name that nobody asked for yet.
_UNASKED = Price(input=0.0, output=0.0)
#: What providers and doors put behind a name without meaning another model.
_SUFFIX = re.compile(r"(?:[-@](?:\d{8}|\d{4}-\d\d-\d\d|latest|preview))*(?:-v\d+(?::\d+)?)?\Z")
_REMEMBERED = 512


class PriceList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One provider's list: where it is from, of which day, and the prices by model."""

    provider: str
    source: str
    date: str
    models: dict[str, Price]


@cache
def price_lists() -> tuple[PriceList, ...]:
    """Return the lists that come with mustcall."""
    file = resources.files("mustcall.profiles") / "data" / "prices" / "lists.toml"
    tables = tomllib.loads(file.read_text(encoding="utf-8"))["list"]
    return msgspec.convert(tables, tuple[PriceList, ...])


@cache
def _listed() -> dict[str, Price]:
    return {_plain(name): price for each in price_lists() for name, price in each.models.items()}


class Prices:
    """Prices by model. `own` are the operator's, by pattern, and the first that matches wins."""

    def __init__(self, own: Sequence[ModelPrice] = ()) -> None:
        self._own = tuple((model_pattern(entry.model), entry.price) for entry in own)
        #: What was found before, by the name as it was given: most turns ask for the same few.
        self._known: dict[str, Price | None] = {}

    def of(self, model: str, base_url: str = "") -> Price | None:
        """Return what a model costs at an endpoint, None if that is not known."""
        found = self._known.get(model, _UNASKED)
        if found is _UNASKED:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._find(spellings(model))
            if len(model) <= LONGEST_NAME:
                self._known[model] = found
        return _FREE if found is None and base_url.startswith("embedded:") else found

    def _find(self, names: tuple[str, ...]) -> Price | None:
        for pattern, price in self._own:
            if pattern.matches(*names):
                return price
        listed = _listed()
        return next((listed[name] for name in map(_plain, names) if name in listed), None)


def _plain(name: str) -> str:
    """Return a name without its date, its separators all alike."""
    return re.sub(r"[._]", "-", _SUFFIX.sub("", name.lower(), count=1))
