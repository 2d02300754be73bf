"""What models cost: the lists that come with mustcall, and the operator's own prices over them."""

import math
import re

import pytest

from mustcall.policy.limits.budget import ModelPrice, Price
from mustcall.profiles.prices import Prices, price_lists


@pytest.mark.parametrize(
    ("model", "cost"),
    [
        ("gpt-4o", (2.5, 10.0)),
        ("gpt-4o-2024-08-06", (2.5, 10.0)),
        ("GPT-4o-mini", (0.15, 0.6)),
        ("openai/gpt-4.1", (2.0, 8.0)),
        ("claude-opus-4-5-20251101", (5.0, 25.0)),
        ("anthropic/claude-opus-4.5", (5.0, 25.0)),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", (3.0, 15.0)),
        ("claude-3-5-sonnet-latest", (3.0, 15.0)),
        ("claude-sonnet-4@20250514", (3.0, 15.0)),
        ("gemini-2.5-pro-preview", (1.25, 10.0)),
    ],
)
def test_a_model_is_known_under_every_spelling(model: str, cost: tuple[float, float]) -> None:
    """Rule 98: dates, prefixes and separators do not make another model."""
    price = Prices().of(model)
    assert price is not None
    assert (price.input, price.output) == cost


@pytest.mark.parametrize("model", ["", "m", "gpt-4o-audio", "claude-opus-9", "gpt-5.99", "my-gpt-4o", "gpt-4o-"])
def test_a_model_nobody_lists_has_no_price(model: str) -> None:
    """Rule 98: no price is better than the price of something else."""
    assert Prices().of(model) is None


def test_the_operators_prices_come_first() -> None:
    """Rule 98: by pattern, the first that matches wins; over the lists, and over a model in this process."""
    cheap, dear = Price(input=1, output=1), Price(input=9, output=9)
    own = Prices([ModelPrice(model="gpt-4o-mini*", price=cheap), ModelPrice(model="gpt-4o*", price=dear)])
    assert (own.of("gpt-4o-mini-x"), own.of("gpt-4o")) == (cheap, dear)
    assert own.of("gpt-4o", "embedded:x") == dear
    assert own.of("o3") == Prices().of("o3")


def test_a_model_in_this_process_costs_nothing() -> None:
    """Rule 98: that is known, not estimated."""
    assert Prices().of("anything", "embedded:/tmp/a.gguf") == Price(input=0, output=0)


def test_the_lists_say_where_they_are_from() -> None:
    """Rule 98: each list has a source and a date, each price is one, and no model is listed twice."""
    names: list[str] = []
    for each in price_lists():
        assert each.source.startswith("https://")
        assert re.fullmatch(r"20\d\d-\d\d", each.date)
        names += [re.sub(r"[._]", "-", name) for name in each.models]
        for price in each.models.values():
            for one in (price, price.long or price):
                assert 0 < (one.cached or one.input) <= one.input < one.output < math.inf
                assert one.cache_write is None or one.input < one.cache_write < 2 * one.input
            assert (price.long is None) == (price.long_above == 0)
    assert len(names) == len(set(names)) > 40
