"""Growing conversations: what an agent sends, request by request, on each wire. Every session says something else.

A session begins with a system prompt and a question of its own. Each further request has all messages of the last one
and one exchange more: what the assistant said, its call with an array among the arguments, and a long result. Sessions
share the system prompt and the tools, as those of one agent do, and nothing else; so no store of whole messages helps
across them.
"""

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from mustcall.bench.bodies import TEXT, TOOL, Wire, opening_of, settings_of
from mustcall.bench.exchanges import exchange

__all__ = ["BenchSession", "Growth"]

Json = dict[str, Any]

#: What results are made of; a session takes its own pieces of it, in its own order.
_SOURCE = (
    "def read_table(path: Path) -> list[Row]:\n"
    '    """Return the rows of a table; raise `ValueError` for a line with too few columns."""\n'
    '    with path.open(encoding="utf-8") as file:\n'
    '        return [Row(*line.rstrip("\\n").split("\\t")) for line in file if not line.startswith("#")]\n\n'
)
_PIECES = tuple(line for line in (_SOURCE + TEXT).splitlines(keepends=True) if line.strip())


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """How conversations grow: so many requests, from so many bytes to so many; `seed` makes them others each time."""

    requests: int
    first: int = 5_000
    last: int = 300_000
    tools: int = 4
    seed: int = 0

    def size_at(self, number: int) -> int:
        """Return the bytes that the messages of a request should have."""
        steps = max(1, self.requests - 1)
        return self.first + (self.last - self.first) * number // steps


class BenchSession:
    """One conversation. `bodies` yields its requests; each is made when it is asked for."""

    def __init__(self, wire: Wire, model: str, growth: Growth, number: int, *, stream: bool) -> None:
        self._wire: Wire = wire
        self._growth = growth
        self._random = random.Random(growth.seed * 100_003 + number)  # noqa: S311  text, not a secret
        self._name = f"{growth.seed}-{number}"
        head, tail = settings_of(wire, model, growth.tools, stream=stream)
        self._head, self._tail = head, tail
        self._written = b",".join(msgspec.json.encode(item) for item in self._opening())

    def bodies(self) -> Iterator[bytes]:
        """Yield the requests in order."""
        for number in range(self._growth.requests):
            self._grow(number, self._growth.size_at(number))
            yield b"".join((self._head, self._written, self._tail))

    def _grow(self, number: int, size: int) -> None:
        """Add exchanges until the conversation has its size: one after the first request, however many before it."""
        while number and len(self._written) < size:
            missing = min(size - len(self._written), 12_000)
            items = self._exchange(number, max(200, missing - 700))
            self._written += b"," + b",".join(map(msgspec.json.encode, items))
            number += 1000

    def _opening(self) -> list[Json]:
        question = f"Session {self._name}: why does the import fail? {self._text(self._growth.first - 1500)}"
        return opening_of(self._wire, question)

    def _exchange(self, number: int, size: int) -> list[Json]:
        call_id = f"call_{self._name}_{number}".replace("-", "_")
        arguments: Json = {
            "city": f"Oslo {self._name}",
            "country": "NO",
            "units": "metric",
            "days": number % 14 + 1,
            "hourly": False,
            "note": self._text(120),
            "places": [f"Place {self._random.randrange(10**6)}", "Bergen", "Hamar"],
        }
        said = f"I look at part {number} (of {self._name}): {self._text(200)}"
        return exchange(self._wire, call_id, said, (TOOL, arguments), self._text(size))

    def _text(self, size: int) -> str:
        pieces: list[str] = []
        length = 0
        while length < size:
            piece = f"{self._random.randrange(10**6)}: {self._random.choice(_PIECES)}"
            pieces.append(piece)
            length += len(piece)
        return "".join(pieces)[:size]
