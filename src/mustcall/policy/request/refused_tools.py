"""Which tool an upstream refuses, where it refuses the request for its tools: found by bisection (rule 130).

A refusal that names a tool leaves that tool out. One that names none is bisected: attempts leave out half of those
that are suspected, until one is left. An attempt that leaves out a single tool is a real one, and its reply is the
turn's; one that leaves out more is a probe: it asks for next to nothing, and what it is answered is not delivered.
With one such tool among n this takes at most log2 n + 1 calls, and the narrower schemas that are tried before take one.

Pure: it is told what came back and says what to leave out.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, ProviderTool, Tool
from mustcall.policy.facts.profile import Profile
from mustcall.policy.failures.rejection import Rejection
from mustcall.policy.history.mended import offer_stubs
from mustcall.policy.request.demand import Demand
from mustcall.policy.schema.tool_schemas import names_tool, schema_digest

__all__ = [
    "ABOUT_TOOLS",
    "REFUSED_STATUSES",
    "WHY",
    "Quarantine",
    "as_probe",
    "begin",
    "calls_for",
    "demanded_of",
    "drop_refused",
    "named_tools",
    "tool_digest",
    "without_tools",
]

#: Refusals that are about a tool.
ABOUT_TOOLS = frozenset({Rejection.SCHEMA_UNSUPPORTED, Rejection.TOOL_REFUSED})
#: Statuses by which a server refuses what a request holds.
REFUSED_STATUSES = frozenset({400, 422})
#: The longest reply of a probe, in tokens: every server's least.
_PROBE_TOKENS = 16
#: Why a tool is left out, in adaptations.
WHY = "the upstream refuses it"

_Tools = tuple[Tool | ProviderTool, ...]


class Quarantine(msgspec.Struct, frozen=True, kw_only=True):
    """Where a bisection stands, in places of the request's tools.

    One of `suspects` is refused. `left_out` is what the attempt under way leaves out of them, beside what is `gone`:
    tools that refusals named.
    """

    suspects: tuple[int, ...] = ()
    left_out: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()

    @property
    def out(self) -> frozenset[int]:
        """What the attempt under way leaves out."""
        return frozenset({*self.gone, *self.left_out})

    @property
    def probing(self) -> bool:
        """Whether the attempt under way is a probe."""
        return len(self.left_out) > 1

    def refused(self, named: Sequence[int]) -> "Quarantine | None":
        """Take a refusal of the attempt under way; None if nothing more can be found out."""
        fresh = [place for place in named if place not in self.out]
        if len(fresh) == 1:
            return Quarantine(gone=(*self.gone, *fresh))
        if len(self.suspects) <= 1:
            return None
        return self._halved([place for place in self.suspects if place not in self.left_out])

    def accepted(self) -> "Quarantine":
        """Take a probe that was not refused: what it left out holds the tool."""
        return self._halved(self.left_out)

    def _halved(self, suspects: Sequence[int]) -> "Quarantine":
        left_out = tuple(suspects[: max(1, len(suspects) // 2)])
        return Quarantine(suspects=tuple(suspects), left_out=left_out, gone=self.gone)


def begin(count: int, named: Sequence[int]) -> Quarantine:
    """Return the first attempt to find the tool among so many: the one that was named, else half of all."""
    if len(named) == 1:
        return Quarantine(gone=tuple(named))
    return Quarantine(suspects=tuple(named or range(count))).refused(()) or Quarantine(gone=tuple(range(count)))


def calls_for(count: int) -> int:
    """Return how many extra calls a turn with so many tools may take for this: log2 n + 2, 0 without tools."""
    return (count - 1).bit_length() + 2 if count else 0


def named_tools(request: Request, out: frozenset[int], message: str) -> tuple[int, ...]:
    """Return the tools that a refusal names, by name or by place among those that were sent; none if it names all."""
    sent = [place for place in range(len(request.tools)) if place not in out]
    named = tuple(
        place
        for number, place in enumerate(sent)
        if isinstance(tool := request.tools[place], Tool) and names_tool(tool.name, number, message)
    )
    return () if len(named) == len(sent) > 1 else named


def without_tools(request: Request, out: frozenset[int]) -> Request:
    """Return a request without these tools; without any, it chooses none (rule 4)."""
    kept = tuple(tool for place, tool in enumerate(request.tools) if place not in out)
    if kept:
        return request.evolve(tools=kept)
    return request.evolve(tools=(), tool_choice=None, parallel_tool_calls=None)


def as_probe(request: Request) -> Request:
    """Return the request that only shows whether its tools are taken: nothing demanded, the shortest reply."""
    return request.evolve(tool_choice=None, max_tokens=_PROBE_TOKENS, reasoning=None, stream=False, stream_usage=False)


def demanded_of(demand: Demand, names: Sequence[str], left: Sequence[str]) -> str | None:
    """Return which of the refused `names` the caller demands, None if the demand can be met by what is `left`."""
    choice = demand.choice
    if not demand.forced or choice is None:
        return None
    if choice.mode is ChoiceMode.NAMED:
        return choice.name if choice.name in names else None
    wanted = [name for name in left if choice.allowed is None or name in choice.allowed]
    return None if wanted else ", ".join(names)


def tool_digest(tool: Tool | ProviderTool) -> str:
    """Return what a refused tool is known by: its name and the shape of its schema, whatever it is described as."""
    if not isinstance(tool, Tool):
        return ""
    shape = schema_digest(tool.parameters or {})
    return hashlib.sha256(f"{tool.namespace or ''}\0{tool.name}\0{shape}".encode()).hexdigest()[:32]


def drop_refused(request: Request, profile: Profile, demand: Demand, log: AdaptationLog) -> Request:
    """Return a request without the tools that are known to be refused; one that is demanded is tried all the same."""
    refused = profile.refused_tools
    if not refused or not request.tools:
        return request
    out = frozenset(place for place, tool in enumerate(request.tools) if tool_digest(tool) in refused)
    names = [tool.name for place, tool in enumerate(request.tools) if place in out and isinstance(tool, Tool)]
    left = [tool.name for place, tool in enumerate(request.tools) if place not in out and isinstance(tool, Tool)]
    if not out or demanded_of(demand, names, left) is not None:
        return request
    for name in names:
        log.add(AdaptationKind.TOOL_DROPPED, name, WHY)
    return offer_stubs(without_tools(request, out), profile, log)
