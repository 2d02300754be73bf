"""What a probe may take, told before anything is sent and never exceeded: requests, tokens, US dollars. Pure.

The plan counts every try of every cell, and a reserve for what is asked once more: after a rate limit, and to find the
owner of a failure. Each request counts with its whole body and with its own limit of output tokens.
"""

import math
from collections.abc import Sequence

import msgspec

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.reply import Usage
from mustcall.policy.limits.budget import Price, charge_for
from mustcall.probe.values import Cell, Client, Level, Send
from mustcall.wire.codec import Target
from mustcall.wire.registry import codec_for

__all__ = ["ISSUER", "ProbePlan", "RequestBudget", "body_of", "most_tokens", "plan_probe"]

#: The name under which reasoning state of a probe is handed back.
ISSUER = "probe"
#: Requests beyond the tries: a seventh, six at least.
_RESERVE = 7
_LEAST_RESERVE = 6
#: Characters of JSON that a token has at least, on average.
_CHARACTERS = 2
#: Tokens a chat template adds to a prompt.
_TEMPLATE = 200


def body_of(send: Send, wire: Wire, model: str, *, limit_field: str = "max_tokens") -> JsonObject | None:
    """Return the body of a request; None where it has none. `limit_field` is how a chat server spells the limit."""
    if send.request is None:
        return dict(send.fields) or None
    request = msgspec.structs.replace(send.request, model=model)
    target = Target(issuer=ISSUER, thinks_when_forced=True)
    body = codec_for(wire).encode_request(request, target, AdaptationLog())
    if wire is Wire.CHAT and limit_field != "max_completion_tokens" and "max_completion_tokens" in body:
        body = {limit_field if name == "max_completion_tokens" else name: value for name, value in body.items()}
    if send.path.endswith("/count_tokens"):
        body = {name: value for name, value in body.items() if name not in ("max_tokens", "stream")}
    return body | send.fields


def most_tokens(body: JsonObject | None) -> Usage:
    """Return the most tokens that a request reads and writes."""
    if body is None:
        return Usage()
    limits = (body.get(name) for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"))
    limit = next((value for value in limits if isinstance(value, int)), 0)
    return Usage(input_tokens=_TEMPLATE + len(msgspec.json.encode(body)) // _CHARACTERS, output_tokens=limit)


class ProbePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured and the most that it takes. `most_usd` is None where the price is not known."""

    wire: Wire
    level: Level
    client: Client | None
    cells: tuple[Cell, ...]
    most_requests: int
    most_input_tokens: int
    most_output_tokens: int
    most_usd: float | None
    #: What all of it may cost, where that is more than the cap.
    uncapped_usd: float | None = None

    @property
    def words(self) -> str:
        """The announcement as one line."""
        if self.most_usd is None:
            cost = "the price of the model is not known"
        elif self.uncapped_usd is not None:
            cost = f"${self.most_usd:.4f} of the ${self.uncapped_usd:.4f} that all of it may cost"
        else:
            cost = f"${self.most_usd:.4f}" if self.most_usd else "no cost"
        return (
            f"{len(self.cells)} cells, at most {self.most_requests} requests, {self.most_input_tokens:,} input and "
            f"{self.most_output_tokens:,} output tokens, {cost}"
        )


def plan_probe(
    cells: Sequence[Cell],
    wire: Wire,
    level: Level,
    price: Price | None,
    *,
    client: Client | None = None,
    max_usd: float | None = None,
    max_requests: int | None = None,
) -> ProbePlan:
    """Return the plan of a run; where `max_usd` or `max_requests` is less than the cells take, it is the most."""
    requests, tokens, largest = 0, Usage(), Usage()
    for cell in cells:
        if cell.script is None:
            continue
        first = next(cell.script(0))
        each = most_tokens(body_of(first[0], wire, "model"))
        times = cell.tries.at(level) * cell.sends
        requests += times
        # What comes later in a script has the first reply in its history.
        growth = each.output_tokens if cell.sends > len(first) else 0
        tokens += Usage(input_tokens=times * (each.input_tokens + growth), output_tokens=times * each.output_tokens)
        if each.input_tokens + each.output_tokens > largest.input_tokens + largest.output_tokens:
            largest = each
    reserve = max(_LEAST_RESERVE, math.ceil(requests / _RESERVE))
    average = Usage(
        input_tokens=math.ceil(tokens.input_tokens / max(1, requests)),
        output_tokens=math.ceil(tokens.output_tokens / max(1, requests)),
    )
    tokens += Usage(
        input_tokens=reserve * average.input_tokens + largest.input_tokens,
        output_tokens=reserve * average.output_tokens + largest.output_tokens,
    )
    cost = None if price is None else charge_for(tokens, price).cost_usd
    uncapped = None
    if cost is not None and max_usd is not None and max_usd < cost:
        cost, uncapped = max_usd, cost
    return ProbePlan(
        wire=wire,
        level=level,
        client=client,
        cells=tuple(cells),
        most_requests=min(requests + reserve, max_requests or requests + reserve),
        most_input_tokens=tokens.input_tokens,
        most_output_tokens=tokens.output_tokens,
        most_usd=cost,
        uncapped_usd=uncapped,
    )


class RequestBudget:
    """What is left of a plan. A request is paid for before it is sent, and settled with what it took."""

    def __init__(self, plan: ProbePlan, price: Price | None) -> None:
        self._plan = plan
        self._price = price
        self.requests = 0
        self.usage = Usage()
        self.cost = 0.0
        #: What is paid for and not settled.
        self._open = Usage()
        self._open_cost = 0.0

    def go_on(self, requests: int, usage: Usage, cost: float) -> None:
        """Count what an earlier run of the same plan took."""
        self.requests += requests
        self.usage += usage
        self.cost += cost

    @property
    def left(self) -> int:
        """How many requests may still be sent."""
        return self._plan.most_requests - self.requests

    def take(self, most: Usage) -> bool:
        """Pay for a request; return False where the plan has no room for it."""
        cost, plan = self._cost(most), self._plan
        used = self.usage + self._open + most
        if (
            self.requests >= plan.most_requests
            or used.input_tokens > plan.most_input_tokens
            or used.output_tokens > plan.most_output_tokens
            or (plan.most_usd is not None and self.cost + self._open_cost + cost > plan.most_usd + 1e-9)
        ):
            return False
        self.requests += 1
        self._open += most
        self._open_cost += cost
        return True

    def settle(self, most: Usage, took: Usage | None) -> None:
        """Replace what was paid for by what it took; a server that counts nothing is taken to have used it all."""
        real = most if took is None else took
        self._open = Usage(
            input_tokens=self._open.input_tokens - most.input_tokens,
            output_tokens=self._open.output_tokens - most.output_tokens,
        )
        self._open_cost -= self._cost(most)
        self.usage += real
        self.cost += self._cost(real)

    def _cost(self, usage: Usage) -> float:
        return 0.0 if self._price is None else charge_for(usage, self._price).cost_usd
