"""What a coordinated answer came to: plain values, whole at any moment of it."""

from enum import StrEnum

import msgspec

from mustcall.core.errors import ErrorInfo
from mustcall.core.reply import Usage
from mustcall.engine.coordinating.envelopes import Critique, Envelope, Proposal, RoleKind, Synthesis

__all__ = ["CoordinateResult", "InnerCall", "InnerStatus", "RoleRun", "WorkerTools"]


class WorkerTools(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the tools that were asked for (rule 87)."""

    accepted: tuple[str, ...]
    rejected: tuple[str, ...]
    #: Executions that each role may make before its answer, in each round.
    hop_budget: int
    applies_to: tuple[RoleKind, ...]


class InnerStatus(StrEnum):
    """What became of a call that a role made or tried to make (rule 89)."""

    OK = "ok"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    #: It had begun when a durable run was interrupted.
    UNKNOWN = "unknown"
    #: It was not approved, its tool said no, or it is not among the accepted ones.
    REFUSED = "refused"
    #: It was not written as a call is.
    PARSE_ERROR = "parse_error"
    SCHEMA_ERROR = "schema_error"
    HOP_BUDGET_EXHAUSTED = "hop_budget_exhausted"
    COST_CAP_EXCEEDED = "cost_cap_exceeded"
    #: It came where nothing could be called any more.
    IGNORED_EXTRA = "ignored_extra"


class InnerCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a role made or tried to make. `hop` is the one it took, or would have taken.

    `name` is empty where no name could be read. Nothing ran under any status but `ok`, `failed`, `timed_out`, `unknown`
    and, where the tool itself said no, `refused`.
    """

    hop: int
    name: str
    status: InnerStatus


class RoleRun(msgspec.Struct, frozen=True, kw_only=True):
    """One role's work in one round: what it handed over, or the error it failed with, and what that took."""

    role: RoleKind
    #: `proposer`, `critic_1`, `critic_2`, …, `synthesizer`.
    name: str
    upstream: str
    model: str
    round: int = 1
    output: Envelope | None = None
    error: ErrorInfo | None = None
    inner_tool_calls: tuple[InnerCall, ...] = ()
    #: Upstream calls, retries included.
    attempts: int = 0
    usage: Usage = Usage()
    #: What it cost as far as prices are known; `estimated` says that something of it is not.
    cost_usd: float = 0.0
    estimated: bool = False
    seconds: float = 0.0


class CoordinateResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `coordinate`. `roles` are in the order of completion."""

    answer: str | None
    session: str
    roles: tuple[RoleRun, ...]
    #: The rounds of proposal and critique that were completed.
    rounds: int = 0
    synthesis: Synthesis | None = None
    proposal: Proposal | None = None
    critiques: tuple[Critique, ...] = ()
    #: None where no tools were asked for.
    worker_tools: WorkerTools | None = None
    #: What the run failed with, where it was asked not to raise.
    error: ErrorInfo | None = None

    @property
    def usage(self) -> Usage:
        """The tokens of all roles."""
        total = Usage()
        for role in self.roles:
            total += role.usage
        return total

    @property
    def cost_usd(self) -> float:
        """The cost of all roles in US dollars, as far as prices are known."""
        return sum(role.cost_usd for role in self.roles)

    @property
    def estimated(self) -> bool:
        """Whether part of the cost is an estimate."""
        return any(role.estimated for role in self.roles)

    @property
    def attempts(self) -> int:
        """The number of upstream calls of all roles."""
        return sum(role.attempts for role in self.roles)

    @property
    def inner_tool_calls(self) -> dict[str, tuple[InnerCall, ...]]:
        """The calls of each role by its name, over all rounds."""
        calls: dict[str, tuple[InnerCall, ...]] = {}
        for role in self.roles:
            calls[role.name] = calls.get(role.name, ()) + role.inner_tool_calls
        return calls
