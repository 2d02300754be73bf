"""An agent with types: tools that get a database by its type, two of them, and an answer that is a dataclass.

A type checker knows that `result.output` is a `Quote`, and that a run takes a `Shop` as `deps`. The articles are a
`Literal`, so a call with any other name is never run. Both tools are required steps: a small model that would answer
from memory has to call them first.
"""

import os
from dataclasses import dataclass
from typing import Literal

from mustcall import Agent, ToolContext, Upstream, tool
from mustcall.testing import Call, ScriptedModel

Article = Literal["candle", "lamp"]


class Shop:
    """What the tools depend on; it could be a database. No model ever sees it."""

    def __init__(self, prices: dict[str, int], stock: dict[str, int]) -> None:
        self.prices = prices
        self.stock = stock


@dataclass
class Quote:
    """The answer."""

    article: str
    euros: int
    in_stock: int


@tool(side_effect=False)
def get_price(article: Article, shop: Shop) -> int:
    """Look up the price of one article in euros."""
    return shop.prices[article]


@tool(side_effect=False)
def count_stock(article: Article, context: ToolContext[Shop]) -> int:
    """Count the stock of an article."""
    return context.deps.stock[article]


def upstream() -> Upstream:
    """Return the model: the one that was named, else one that keeps to a script."""
    where = os.environ.get("MUSTCALL_EXAMPLE")
    if where is not None:
        return Upstream(where, model=os.environ.get("MUSTCALL_EXAMPLE_MODEL", "local"))
    return ScriptedModel(
        [
            Call("get_price", {"article": "candle"}),
            Call("count_stock", {"article": "candle"}),
            '{"article": "candle", "euros": 4, "in_stock": 40}',
        ]
    )


def main() -> None:
    """Ask for a quote."""
    agent = Agent(
        upstream(),
        tools=[get_price, count_stock],
        deps_type=Shop,
        output=Quote,
        required_steps=["get_price", "count_stock"],
    )
    shop = Shop(prices={"candle": 4, "lamp": 30}, stock={"candle": 40, "lamp": 2})
    result = agent.run_sync("What does a candle cost, and how many are in stock?", deps=shop)
    quote = result.output
    print(f"{quote.article}: {quote.euros} euros, {quote.in_stock} in stock")
    print(result.trace())


if __name__ == "__main__":
    main()
