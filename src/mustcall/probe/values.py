"""The values of a probe: a cell, what one try sends, what came back, and what was found. Nothing here does anything.

A cell is one row: what is asked, what must be seen, how often it is tried, and which fact of a profile it settles. Its
`script` is a generator that yields what to send and receives what came back, so that cells of one request and of many
run the same way and no cell does I/O.
"""

from collections.abc import Callable, Generator, Mapping
from enum import StrEnum

import msgspec

from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.reply import Reply
from mustcall.core.request import Request

__all__ = [
    "ALL_WIRES",
    "Cell",
    "CellFinding",
    "CellGroup",
    "CellTries",
    "CellVerdict",
    "Client",
    "Level",
    "Outcome",
    "Owner",
    "Script",
    "Seen",
    "Send",
    "Watch",
]

ALL_WIRES = frozenset(Wire)


class CellGroup(StrEnum):
    """What cells are about; the sections of a report."""

    CHOICE = "tool choice"
    PARALLEL = "parallel calls"
    SCHEMA = "schemas of tools"
    OUTPUT = "structured answers"
    NAMES = "names and ids"
    HONESTY = "honest reports"
    RESULTS = "tool results"
    REASONING = "reasoning"
    STATE = "stored state"
    SIZE = "sizes"
    CONTROL = "stop and cancel"
    ERRORS = "errors"
    LOAD = "concurrency"


class Level(StrEnum):
    """How much is measured."""

    QUICK = "quick"
    DEFAULT = "default"
    DEEP = "deep"


class Client(StrEnum):
    """Clients whose needs are known."""

    CLAUDE_CODE = "claude-code"
    CODEX = "codex"
    OPENCODE = "opencode"
    OPENAI_SDK = "openai-sdk"


class Outcome(StrEnum):
    """What one try came to."""

    HELD = "held"
    NOT_DONE = "not done"  # answered, and not what was asked for
    REFUSED = "refused"  # a 4xx
    CRASHED = "crashed"  # a 5xx, or no whole answer
    UNMEASURED = "unmeasured"  # nothing was learnt


class CellVerdict(StrEnum):
    """What the tries of a cell come to."""

    HELD = "held"
    FLAKY = "flaky"
    IGNORED = "ignored"
    REFUSED = "refused"
    CRASHED = "crashed"
    UNMEASURED = "unmeasured"


class Owner(StrEnum):
    """Whose fault it is that a cell does not hold."""

    PARSER = "parser"  # the text holds the call, the server did not read it
    SERVER = "server"
    MODEL = "model"
    TRANSPORT = "transport"  # whole it holds, streamed it does not; or the connection broke


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request of a script.

    `request` is written by the wire's own codec; `fields` are put into that body. Without a request, `fields` are the
    body, or there is none. `path` is below the base URL, empty for the wire's own. With `cancel_after` the answer is
    left after so many events.
    """

    request: Request | None = None
    fields: JsonObject = {}
    method: str = "POST"
    path: str = ""
    cancel_after: int | None = None


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What came back. `status` is 0 where no answer began; `broken` is the code of a failure on the way.

    `documents` are the JSON documents as they came: the body, or the data of each event. `error` is that of an error
    status, or of a reply that is none.
    """

    status: int = 0
    headers: Mapping[str, str] = {}
    reply: Reply | None = None
    error: ErrorInfo | None = None
    broken: str = ""
    documents: tuple[JsonObject, ...] = ()
    streamed: bool = False
    cancelled: bool = False
    seconds: float = 0.0

    @property
    def answered(self) -> bool:
        """Whether there is a whole reply."""
        return self.reply is not None


class CellFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What one try showed; `owner` where the reply itself tells it, `note` in a few words, `value` if it is one."""

    outcome: Outcome
    note: str = ""
    owner: Owner | None = None
    value: int | None = None


Script = Callable[[int], Generator[tuple[Send, ...], tuple[Seen, ...], CellFinding]]
"""Makes the try of this number: yields requests that are sent together, receives what came back in the same order."""

Watch = Callable[[Wire, Send, Seen], CellFinding | None]
"""Looks at an exchange that another cell made; None where it tells nothing."""


class CellTries(msgspec.Struct, frozen=True):
    """How often a cell is tried at each level; 0 leaves it out."""

    quick: int
    default: int
    deep: int

    def at(self, level: Level) -> int:
        """Return the number for a level."""
        match level:
            case Level.QUICK:
                return self.quick
            case Level.DEFAULT:
                return self.default
            case Level.DEEP:
                return self.deep


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One guarantee under one circumstance.

    `guarantee` joins the cells that ask for the same thing streamed, whole, with and without reasoning. `duty` is who
    must see to it: a forced choice is the server's, whether a model calls a tool by itself is the model's. `required`
    says that a client cannot do without it. `sends` is the most requests of one try. A cell with `watch` sends nothing
    and looks at the exchanges of the others, but for those that are not `watched`. `fact` is the field of a profile
    that it settles.
    """

    id: str
    guarantee: str
    group: CellGroup
    asks: str
    wants: str
    duty: Owner = Owner.SERVER
    required: bool = False
    tries: CellTries = CellTries(0, 1, 2)
    script: Script | None = None
    watch: Watch | None = None
    watched: bool = True
    sends: int = 1
    #: About how many tokens one request reads and writes at most, for the announcement.
    reads: int = 400
    writes: int = 256
    wires: frozenset[Wire] = ALL_WIRES
    fact: str = ""
    #: Whether it streams, and whether it asks for reasoning: what is left out to find the owner.
    streams: bool = False
    reasons: bool = False
