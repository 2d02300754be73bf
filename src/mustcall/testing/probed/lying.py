"""What a lie is: one thing that a server does wrong, as changes to a request, a turn or an answer."""

from collections.abc import Callable
from typing import Any

import msgspec

from mustcall.core.origin import Wire
from mustcall.core.request import Request
from mustcall.testing.recording import Recorded
from mustcall.testing.script import Answer, Turn

__all__ = ["Lie", "ProbedRequest"]


class ProbedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a lie sees it: the bytes that came, what they say, and how many are under way or were left.

    `memory` is what a lie keeps between requests; it belongs to the server.
    """

    recorded: Recorded
    request: Request
    wire: Wire
    under_way: int = 1
    left: bool = False
    memory: dict[str, Any] = msgspec.field(default_factory=dict)


class Lie(msgspec.Struct, frozen=True, kw_only=True):
    """One lie, the guarantee it breaks, whose fault that is as seen from outside, and what cannot hold beside it.

    `reads` changes what the server takes the request for, `says` the turn it answers with, `sends` the answer as a
    whole; `path` answers what is no turn. Each leaves alone what it does not lie about.
    """

    name: str
    breaks: str
    owner: str
    also: frozenset[str] = frozenset()
    wire: Wire = Wire.CHAT
    verdict: str = ""
    reads: Callable[[ProbedRequest], Request] | None = None
    says: Callable[[ProbedRequest, Turn], Turn] | None = None
    sends: Callable[[ProbedRequest, Answer], Answer] | None = None
    path: Callable[[Recorded, Answer], Answer] | None = None

    @property
    def all_broken(self) -> frozenset[str]:
        """Every guarantee that does not hold with this lie."""
        return self.also | {self.breaks}
