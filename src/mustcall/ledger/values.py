"""What the ledger keeps, as frozen values: runs and their events, responses, turns, breakers, learnt facts.

A value knows nothing of tables or databases. Contents (`data`, `body`, `input`, …) are bytes that the ledger never
looks into, save to redact them where the operator asked for that. Times are seconds since 1970 by the database's clock.
"""

from enum import StrEnum

import msgspec

__all__ = [
    "AttemptTrace",
    "BreakerRow",
    "Claim",
    "ContentsKept",
    "FactRow",
    "Health",
    "JournalEvent",
    "MeasuredRow",
    "NewEvent",
    "Pruned",
    "RetryTrace",
    "RunEnd",
    "RunStatus",
    "StoredResponse",
    "StoredRun",
    "TallyRow",
    "TurnFilter",
    "TurnGroup",
    "TurnSums",
    "TurnTrace",
]


class ContentsKept(StrEnum):
    """What is kept of what was said, in traces and in the journals of finished runs."""

    FULL = "full"
    REDACTED = "redacted"  # with secrets and personal marks masked
    NONE = "none"


class RunStatus(StrEnum):
    """Where a run is."""

    QUEUED = "queued"  # waits for an owner
    RUNNING = "running"  # has an owner while its lease lasts
    WAITING = "waiting"  # parked by its owner, for an approval or an answer from outside
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing more can be written to the run."""
        return self in (RunStatus.DONE, RunStatus.FAILED, RunStatus.CANCELLED)


class StoredRun(msgspec.Struct, frozen=True, kw_only=True):
    """One durable run. Who holds it writes under its `fence`; every claim raises the fence by one."""

    id: str
    kind: str
    status: RunStatus
    owner: str | None
    fence: int
    #: When the owner's hold ends unless it is renewed; None without an owner.
    lease_until: float | None
    #: What the run was started with.
    data: bytes
    #: What it ended with; None before its end.
    outcome: bytes | None
    created: float
    updated: float


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a claim. If it was not `won`, `run` says why: its status, or its owner and lease.

    `created` says that the run did not exist before.
    """

    run: StoredRun
    won: bool
    created: bool = False


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line for a run's journal. (run, step, attempt, kind) is unique: who writes it first has the right to act.

    `step` is a path (`p/m0`, `c/1/m0`); `kind` a short word (`intent`, `result`, `model`, …).
    """

    step: str
    kind: str
    data: bytes
    attempt: int = 0


class JournalEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a run's journal as it stands there. `seq` grows along the journal."""

    seq: int
    run: str
    step: str
    attempt: int
    kind: str
    fence: int
    data: bytes
    at: float


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ends (or is parked: `waiting`, `queued`), and what with."""

    status: RunStatus
    outcome: bytes | None = None


class BreakerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker that all replicas see. `version` grows with each change; `now` is the database's clock at the read."""

    name: str
    state: str
    failures: int
    since: float
    probing: bool
    version: int
    now: float


class FactRow(msgspec.Struct, frozen=True, kw_only=True):
    """A learnt fact of a profile: whose turns taught it, how often it was seen, first and last when."""

    upstream: str
    model: str
    field: str
    value: bytes
    note: str
    at: float = 0.0
    tenant: str = ""
    seen: int = 1
    first: float = 0.0


class MeasuredRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe measured of a model at an endpoint; `tried` is when somebody last set out to measure it.

    The profile is empty as long as no measurement has ended.
    """

    endpoint: str
    wire: str
    model: str
    upstream: str
    profile: bytes
    report: bytes = b""
    at: float = 0.0
    tried: float = 0.0


class TallyRow(msgspec.Struct, frozen=True, kw_only=True):
    """How often a way of asking made the demanded call of a model, and how often it did not."""

    upstream: str
    model: str
    subject: str
    made: int
    missed: int
    first: float
    last: float
    tenant: str = ""


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One response that its caller may go on from.

    `input` is what the caller sent with this turn alone, `body` the reply as it was given, `settings` what a
    server-held thread carries on (tools, system). `items` are the ids of the reply's items, by which it is found too.
    `tenant` is a digest of the caller's key: nobody else sees the response.
    """

    id: str
    conversation: str
    parent: str | None
    depth: int
    wire: str
    model: str
    tenant: str
    input: bytes
    body: bytes
    settings: bytes = b""
    items: tuple[str, ...] = ()
    created: float = 0.0


class RetryTrace(msgspec.Struct, frozen=True):
    """A call of an attempt that was made again: how it failed, after how many seconds, how long the next one waited."""

    why: str
    seconds: float
    wait: float


class AttemptTrace(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream call of a turn.

    `tool` is the tool that a call meant which could not be made, `problem` what was wrong with the reply. `request`,
    `reply` and `problem` are contents; they are dropped or redacted by setting when they are written.
    """

    number: int
    rung: str
    verdict: str | None
    remedy: str | None
    digest: str
    seconds: float
    sends: int
    error: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    tool: str = ""
    problem: str = ""
    request: bytes = b""
    reply: bytes = b""
    #: Seconds after the first attempt began.
    begun: float = 0.0
    #: The body of the upstream's answer as it came; contents too.
    raw: bytes = b""
    #: The calls before the last one, in order.
    retries: tuple[RetryTrace, ...] = ()


class TurnTrace(msgspec.Struct, frozen=True, kw_only=True):
    """One turn. `request` and `reply` are contents; they are dropped or redacted by setting when they are written."""

    id: str
    at: float
    wire: str
    model: str
    upstream: str
    protocol: str
    force: str
    outcome: str | None
    status: int
    seconds: float
    tenant: str = ""
    response: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    adaptations: tuple[str, ...] = ()
    attempts: tuple[AttemptTrace, ...] = ()
    request: bytes = b""
    reply: bytes = b""
    #: A digest of the session's name and the caller's key; the program that called, by its own name.
    session: str = ""
    client: str = ""
    #: The code of the error that the caller got.
    error: str = ""
    #: What all attempts cost; `estimated` if a price or a count is not known.
    cost_usd: float = 0.0
    estimated: bool = False

    @property
    def ended(self) -> str:
        """The outcome; without one `gone` where the client left before a reply, else `none`."""
        return self.outcome or ("none" if self.status else "gone")


class TurnFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which turns are wanted: those that are as every word says that is not empty."""

    model: str = ""
    upstream: str = ""
    #: What the turn `ended` with: an outcome, `gone` or `none`.
    outcome: str = ""
    #: The verdict of at least one attempt.
    verdict: str = ""
    #: How the session's digest begins; turns of the session `or_session` are wanted as well.
    session: str = ""
    or_session: str = ""
    client: str = ""
    #: Whose turns; a digest of the caller's key.
    tenant: str = ""


class TurnGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Turns of a model with the same outcome, whose first attempt had the same verdict; `mended`: with a repair."""

    upstream: str
    model: str
    outcome: str | None
    #: The verdict of the first attempt; None where there was none.
    first: str | None
    mended: bool
    count: int
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    cost_usd: float = 0.0


class TurnSums(msgspec.Struct, frozen=True, kw_only=True):
    """What turns came to: by model, by what attempts were and what was done about it, by kind of adaptation."""

    #: Every group of the models used most.
    groups: tuple[TurnGroup, ...] = ()
    #: How many models there are, also those whose groups are not told.
    models: int = 0
    #: Verdict, remedy, attempts.
    attempts: tuple[tuple[str, str, int], ...] = ()
    #: Kind of adaptation, turns.
    changes: tuple[tuple[str, int], ...] = ()


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """How much was removed."""

    turns: int = 0
    responses: int = 0
    runs: int = 0


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found. `problems` is empty for a sound ledger."""

    store: str
    place: str
    migrations: tuple[str, ...]
    rows: dict[str, int]
    stored_bytes: int
    problems: tuple[str, ...] = ()
