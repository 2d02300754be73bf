"""What a cell came to, judged from what was seen of it: a table of ends, and whether the end is the right one.

Pure: a `Cell` holds everything that is needed, and can be written down and read again.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal

from clientmatrix.adapters import Client
from clientmatrix.cases import CALL_LIMIT, OWN_TRIES, Case
from clientmatrix.reading import Wire
from clientmatrix.replies import FIGURE

Arm = Literal["direct", "same", "cross"]
ARMS: tuple[Arm, ...] = ("direct", "same", "cross")


class End(StrEnum):
    """How a cell ended."""

    DONE = "done"  # the answer was given
    LEAKED = "leaked"  # the answer was given, and call markup with it
    STOPPED = "stopped"  # exit status 0 without the answer
    ERROR = "error"  # the client said that it failed
    STORM = "storm"  # killed: it asked again and again for what failed
    HUNG = "hung"  # still running at the time limit
    BROKEN = "broken"  # the cell itself could not be run


@dataclass(frozen=True)
class Cell:
    """One client on one case in one arm: the key, and what was seen."""

    client: str
    version: str
    case: str
    arm: Arm
    wire: Wire
    end: End
    right: bool
    calls: int = 0
    # What the gateway was asked by the client; None without a gateway.
    asked: int | None = None
    figure: int | None = None
    seconds: float = 0.0
    outside: list[str] = field(default_factory=list[str])
    tail: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What a resumed run recognises the cell by."""
        return self.client, self.version, self.case, self.arm


@dataclass(frozen=True)
class Planned:
    """A cell to run."""

    client: Client
    case: Case
    arm: Arm

    @property
    def wire(self) -> Wire:
        """The wire of the upstream."""
        return self.client.other if self.arm == "cross" else self.client.wire

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The key of its result."""
        return self.client.name, self.client.version, self.case.name, self.arm


def plan(clients: Iterable[Client], cases: Iterable[Case], arms: Iterable[Arm], wires: Iterable[Wire]) -> list[Planned]:
    """Every cell that can be told: the case exists on the arm's upstream wire, and is one for this client."""
    chosen = [Planned(client, case, arm) for client in clients for case in cases for arm in arms]
    return [
        cell
        for cell in chosen
        if cell.wire in cell.case.wires
        and cell.wire in wires
        and (not cell.case.clients or cell.client.name in cell.case.clients)
    ]


def find_end(case: Case, output: str, sentence: str, status: int | End) -> End:
    """How it ended: `status` is the exit status, or the end of a client that was killed."""
    if isinstance(status, End):
        return status
    leaked = any(mark in output for mark in case.marks)
    if sentence in output:
        return End.LEAKED if leaked else End.DONE
    return End.ERROR if status else End.STOPPED


def is_right(case: Case, end: End, calls: int, figure: int | None, asked: int | None = None) -> bool:
    """Whether the cell came to what the case asks for."""
    match case.goal:
        case "answer" | "accepted":
            return end is End.DONE
        case "figure":
            return end is End.DONE and figure == FIGURE
        case "bounded":
            return end in {End.STOPPED, End.ERROR} and calls <= CALL_LIMIT
        case "single":
            # A client that asked nothing within the limit shows nothing.
            return end is not End.BROKEN and calls > 0 and (asked is None or calls <= asked + OWN_TRIES)


def write_cell(cell: Cell) -> dict[str, Any]:
    """The cell as a JSON object."""
    return asdict(cell)


def read_cell(value: dict[str, Any]) -> Cell:
    """The cell of a JSON object."""
    return Cell(**{**value, "end": End(value["end"])})
