"""The search for a refused tool inside one turn: what is left out now, what that cost, and whom it concerns (rule 130).

It is told of refusals and of probes that were taken. How the suspects are halved is `quarantine`'s; what is sent is
the turn's.
"""

from mustcall.core.adaptation import Adaptation, AdaptationKind
from mustcall.core.errors import ErrorInfo
from mustcall.core.request import Request
from mustcall.core.tools import ProviderTool, Tool
from mustcall.policy.request.demand import Demand
from mustcall.policy.request.refused_tools import (
    REFUSED_STATUSES,
    WHY,
    Quarantine,
    begin,
    demanded_of,
    named_tools,
    tool_digest,
)

__all__ = ["Isolation"]


class Isolation:
    """The search of one turn for `caller`, the request as its caller wrote it."""

    __slots__ = ("_caller", "_demand", "_found", "_request", "calls", "error", "offender", "words")

    def __init__(self, caller: Request, demand: Demand) -> None:
        self._caller = caller
        self._demand = demand
        self._request = caller
        self._found: Quarantine | None = None
        #: Calls made for this: bounded by themselves, and not under the ceiling of the turn.
        self.calls = 0
        #: The refused tool, where it is one that the caller demands.
        self.offender: str | None = None
        #: The last refusal.
        self.error: ErrorInfo | None = None
        #: What the first refusal said so by.
        self.words: tuple[str, ...] = ()

    @property
    def begun(self) -> bool:
        """Whether something is left out."""
        return self._found is not None

    @property
    def out(self) -> frozenset[int]:
        """The places of the tools that the next attempt leaves out."""
        return self._found.out if self._found is not None else frozenset()

    @property
    def probing(self) -> bool:
        """Whether the next attempt only shows if its tools are taken: its reply is not the turn's."""
        return self._found is not None and self._found.probing

    @property
    def notes(self) -> tuple[Adaptation, ...]:
        """The tools that a real attempt leaves out."""
        if self._found is None or self._found.probing:
            return ()
        names = self._names(self._found.out)
        return tuple(Adaptation(AdaptationKind.TOOL_DROPPED, name, WHY) for name in names)

    @property
    def digests(self) -> tuple[str, ...]:
        """What the tools that a real attempt leaves out are known by; none while it is not known which those are."""
        return tuple(map(tool_digest, self._dropped))

    @property
    def names(self) -> tuple[str, ...]:
        """What those tools are called, each at the place of its digest; for people."""
        return tuple(tool.name if isinstance(tool, Tool) else "" for tool in self._dropped)

    @property
    def _dropped(self) -> list[Tool | ProviderTool]:
        if self.probing or self.offender is not None:
            return []
        tools = self._caller.tools
        return [tools[place] for place in sorted(self.out) if place < len(tools)]

    def refused(self, error: ErrorInfo, words: tuple[str, ...], request: Request) -> bool:
        """Take a refusal of what was sent of `request`; tell whether another attempt may help."""
        if error.status not in REFUSED_STATUSES or not request.tools:
            return False
        self._request, self.error = request, error
        named = named_tools(request, self.out, error.message)
        if self._found is None:
            self.words = words
            return self._go_on(begin(len(request.tools), named))
        found = self._found.refused(named)
        return found is not None and self._go_on(found)

    def taken(self) -> None:
        """Take a probe that was not refused."""
        assert self._found is not None, "there was a probe"
        self._go_on(self._found.accepted())

    def _go_on(self, found: Quarantine) -> bool:
        self._found = found
        if not found.probing:
            left = frozenset(range(len(self._request.tools))) - found.out
            self.offender = demanded_of(self._demand, self._names(found.out), self._names(left))
        if self.offender is None:
            self.calls += 1
        return self.offender is None

    def _names(self, places: frozenset[int]) -> list[str]:
        """Return the caller's names of tools."""
        own, sent = self._caller.tools, self._request.tools
        offered = own if len(own) == len(sent) else sent
        return [tool.name for place in sorted(places) if isinstance(tool := offered[place], Tool)]
