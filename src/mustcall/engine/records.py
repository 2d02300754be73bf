"""What happened in a turn: a record for each attempt, and the turn's own. Headers, errors and traces come from it."""

import hashlib
import operator
from collections.abc import Callable
from functools import reduce

import msgspec

from mustcall.core.adaptation import Adaptation
from mustcall.core.errors import ErrorInfo, ModelError, MustcallError
from mustcall.core.origin import JsonObject
from mustcall.core.parts import Text
from mustcall.core.reply import Reply, Usage
from mustcall.core.verdict import GONE, TOOL_PROBE, OutcomeKind, Verdict
from mustcall.engine.replies.delivery import Delivery
from mustcall.policy.limits.budget import Charge, CostCap, charge_for
from mustcall.policy.reply.judge import Judgement
from mustcall.policy.request.plan import Rung
from mustcall.policy.scanning.reply_scanner import ScanFindings
from mustcall.policy.turn.remedy import ACCEPTED, Remedy
from mustcall.profiles.prices import Prices
from mustcall.telemetry.context import TraceContext
from mustcall.upstream.retry import Retry

__all__ = ["AttemptRecord", "TurnProgress", "TurnRecord", "request_digest", "spent"]


#: The prices that come with mustcall, for those who set none.
_LISTED = Prices()


class AttemptRecord(msgspec.Struct, kw_only=True):
    """One upstream call inside a turn, its transport retries included."""

    rung: Rung
    body: bytes
    started: float
    seconds: float = 0.0
    #: Seconds until the status and the headers of the answer were there; 0 if they never were.
    first_byte: float = 0.0
    sends: int = 1
    #: The transport retries among them.
    retries: tuple[Retry, ...] = ()
    verdict: Verdict | None = None
    #: Whether this was a probe for a refused tool that the upstream answered.
    probe: bool = False
    remedy: Remedy | None = None
    error: str | None = None
    #: The tool a call of the reply meant that could not be made, as far as its name could be read, and what was wrong.
    tool: str = ""
    problem: str = ""
    unreadable: bool = False
    cut_call: bool = False
    #: How a reply broke off, or what error it ended in; for breakers, never for callers.
    failure: ErrorInfo | None = None
    usage: Usage | None = None
    #: What came back, in the caller's names; for traces.
    reply: Reply | None = None
    #: The digest of a body that is not kept here.
    sent: str = ""
    #: What it cost, where a budget counts it; `estimated` if a price or a count is not known.
    cost_usd: float | None = None
    estimated: bool = False

    def __repr__(self) -> str:
        return f"AttemptRecord({self.rung.kind}, {self.word or 'not judged'}, {self.seconds:.3f} s)"

    @property
    def digest(self) -> str:
        """A short name for the bytes that were sent."""
        return self.sent or request_digest(self.body)

    @property
    def word(self) -> str:
        """What is told as the verdict of this attempt; empty where it ended before one."""
        if self.verdict is not None:
            return str(self.verdict)
        return TOOL_PROBE if self.probe else ""

    def note(self, judged: Judgement, found: ScanFindings, usage: Usage | None) -> None:
        """Keep the verdict; where it is not simply accepted, also which tool the reply meant and what was wrong."""
        self.verdict, self.usage = judged.verdict, usage
        if judged.verdict not in ACCEPTED:
            self.tool, self.problem = _meant(judged, found)[:64], judged.problem
            self.unreadable, self.cut_call = judged.unreadable, judged.cut_call

    def note_refusal(self, error: ErrorInfo) -> None:
        """Keep that the upstream answered with an error."""
        again_later = error.status == 429 or error.status >= 500
        self.verdict = Verdict.UNAVAILABLE if again_later else Verdict.REJECTED
        self.error = error.code

    def note_failure(self, error: ErrorInfo, now: float) -> None:
        """Keep how the answer broke off, and that the attempt ended then."""
        self.verdict, self.error, self.failure = Verdict.UNAVAILABLE, error.code, error
        self.seconds = now - self.started

    def note_probe(self, reply: Reply | None) -> None:
        """Keep that this was a probe for a refused tool (rule 130), which is not judged, and what it cost."""
        self.probe = True
        self.usage = reply.usage if reply is not None else None

    def lean(self) -> "AttemptRecord":
        """Return the record without the body, which holds the whole conversation once more."""
        return msgspec.structs.replace(self, body=b"", reply=None, sent=self.digest)

    def summary(self) -> JsonObject:
        """Return the record without contents: what may stand in an error or a header."""
        summary: JsonObject = {
            "rung": str(self.rung.kind),
            "verdict": self.word or None,
            "remedy": str(self.remedy) if self.remedy is not None else None,
            "request": self.digest,
            "seconds": round(self.seconds, 3),
        }
        if self.error is not None:
            summary["error"] = self.error
        if self.usage is not None:
            summary["usage"] = {"input": self.usage.input_tokens, "output": self.usage.output_tokens}
        return summary


class TurnRecord(msgspec.Struct, kw_only=True):
    """One turn. `force` is `none`, `met`, `unmet` or `dropped`."""

    protocol: str
    force: str = "none"
    outcome: OutcomeKind | None = None
    #: The code of the error that the turn ended in, also of a stream that had begun.
    error: str = ""
    attempts: list[AttemptRecord] = []
    adaptations: tuple[Adaptation, ...] = ()
    #: The model's name as it was sent, and the endpoint's address: what a price is looked up by.
    model: str = ""
    place: str = ""
    #: The wire that the endpoint speaks; empty where it is the caller's.
    wire: str = ""
    #: How the turn stands against its own cost cap, where it has one (rule 95).
    cost_cap: CostCap | None = None

    def __repr__(self) -> str:
        return f"TurnRecord({self.outcome or 'no outcome'}, force={self.force!r}, attempts={self.attempts!r})"

    @property
    def cause(self) -> str:
        """The code of the error that the caller got; empty for what was delivered, whatever came before that."""
        return "" if self.outcome in (OutcomeKind.ANSWER, OutcomeKind.CALLS) else self.error

    @property
    def cost_usd(self) -> float:
        """What all attempts cost together, as far as prices and tokens are known (rule 98)."""
        return self.cost.cost_usd

    @property
    def estimated(self) -> bool:
        """Whether something of the cost is not known: a price, or the tokens of an attempt."""
        return self.cost.estimated

    @property
    def counted(self) -> bool:
        """Whether a budget counted what the turn cost."""
        return any(attempt.cost_usd is not None for attempt in self.attempts)

    @property
    def cost(self) -> Charge:
        """What all attempts cost together, and whether that is certain."""
        if len(self.attempts) == 1:
            return self._cost_of(self.attempts[0])
        return reduce(operator.add, map(self._cost_of, self.attempts), Charge())

    def _cost_of(self, attempt: AttemptRecord) -> Charge:
        if attempt.cost_usd is not None:
            return Charge(cost_usd=attempt.cost_usd, estimated=attempt.estimated)
        return charge_for(attempt.usage, _LISTED.of(self.model, self.place))

    @property
    def calls(self) -> int:
        """Upstream calls made, transport retries included."""
        attempts = self.attempts
        return attempts[0].sends if len(attempts) == 1 else sum([attempt.sends for attempt in attempts])

    @property
    def usage(self) -> Usage | None:
        """What all attempts cost together, as far as they told (rule 114)."""
        attempts = self.attempts
        if len(attempts) == 1:
            return attempts[0].usage
        counted = [attempt.usage for attempt in attempts if attempt.usage is not None]
        return reduce(operator.add, counted) if counted else None

    def summary(self) -> JsonObject:
        """Return the record as the caller may see it."""
        usage = self.usage
        return {
            "outcome": str(self.outcome) if self.outcome is not None else None,
            "protocol": self.protocol,
            "force": self.force,
            "attempts": [attempt.summary() for attempt in self.attempts],
            "usage": None if usage is None else {"input": usage.input_tokens, "output": usage.output_tokens},
            "cost_usd": round(self.cost_usd, 9),
            "estimated": self.estimated,
            "adaptations": [
                {"kind": str(entry.kind), "subject": entry.subject, "detail": entry.detail}
                for entry in self.adaptations
            ],
        }


def request_digest(body: bytes) -> str:
    """Return a short name for the bytes of a request."""
    return hashlib.sha256(body).hexdigest()[:16]


def _meant(judged: Judgement, found: ScanFindings) -> str:
    """Return the tool that a call meant which could not be made; empty where no name could be read."""
    if judged.verdict is Verdict.BAD_ARGUMENTS and judged.problem:
        return judged.problem.partition(": ")[0]
    written = (entry.name for entry in (*found.calls, *found.malformed))
    return next((name for name in (*(call.name for call in judged.reply.calls), *written) if name), "")


def spent(record: TurnRecord, judged: Judgement, kind: type[ModelError], *, appended: bool = False) -> ModelError:
    """Return the typed error for a verdict that no remedy helped; it carries the record of every attempt.

    `appended` says that the upstream has added the reply to the caller's conversation.
    """
    details: JsonObject = {"attempts": [attempt.summary() for attempt in record.attempts]}
    if judged.problem:
        details["problem"] = judged.problem
    if judged.reply.calls:
        details["tool"] = judged.reply.calls[0].name[:64]
    for word, holds in (
        ("cut_call", judged.cut_call),
        ("unreadable", judged.unreadable),
        ("in_conversation", appended),
    ):
        if holds:
            details[word] = True
    count = len(record.attempts)
    said = f"{kind.__name__}: {(kind.__doc__ or '').splitlines()[0].rstrip('.').split(' (rule')[0]}"
    problem = f" ({judged.problem})" if judged.problem else ""
    if judged.verdict is Verdict.FORCE_MISSED:
        record.force = "unmet"
        if judged.keeps:  # what is not certainly clean stays here
            details["text"] = "".join(part.text for part in judged.reply.parts if isinstance(part, Text))
    where = "; the reply is in the conversation, so no other was asked for" if appended else ""
    return kind(f"{said}{problem}; {count} attempt{'s' if count > 1 else ''} made{where}", details=details)


class TurnProgress:
    """What the one who waits for a turn can see of it while it runs."""

    __slots__ = (
        "asked",
        "delivery",
        "failed",
        "gone",
        "holding",
        "model",
        "record",
        "session",
        "spoke",
        "streams",
        "tenant",
        "trace",
        "upstream",
        "waiting",
    )

    def __init__(self) -> None:
        #: Whether nothing has come for the caller of a stream yet.
        self.waiting = False
        #: Whether the turn keeps back what it has, or tries again, and the caller has all that went out before: a
        #: streaming one needs a sign of life.
        self.holding = False
        #: The caller's end of a stream: it writes signs of life, and the error of one that fails outside of its turn.
        self.delivery: Delivery | None = None
        #: Called once it is known that a stream is asked for.
        self.streams: Callable[[], None] | None = None
        #: Called with the error and the record of a turn that fails, also where a stream has begun.
        self.failed: Callable[[MustcallError, TurnRecord | None], None] | None = None
        self.record: TurnRecord | None = None
        #: The model that was asked for and the upstream it went to; empty before that is known.
        self.model = ""
        self.upstream = ""
        #: The session as accounts know it, where the caller named one or something is counted.
        self.session = ""
        #: A digest of the caller's key, where it has one and that was asked for.
        self.tenant = ""
        #: When the first piece of a stream went out to the caller, in the clock's monotonic seconds.
        self.spoke: float | None = None
        #: The span of the turn, where somebody traces; the caller's body, where contents are told.
        self.trace: TraceContext | None = None
        self.asked: bytes | None = None
        #: Whether the caller left before the turn was over.
        self.gone = False

    @property
    def outcome(self) -> str:
        """The word for what the turn came to; empty where nothing was judged."""
        record = self.record
        if record is not None and record.outcome is not None:
            return str(record.outcome)
        return GONE if self.gone else ""
