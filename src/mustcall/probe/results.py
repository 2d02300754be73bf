"""What a probe found, as it is written to a file and read from one."""

from pathlib import Path

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.core.reply import Usage
from mustcall.evals.report.statistics import Share, share_of
from mustcall.probe.values import CellGroup, CellVerdict, Level, Outcome, Owner
from mustcall.probe.verdicts import count, settle_verdict

__all__ = ["VERSION", "CellResult", "Guarantee", "ProbeResult", "ProbeSpending", "broken", "guarantees", "read_result"]

#: The version of the document.
VERSION = 1


class CellResult(msgspec.Struct, frozen=True, kw_only=True):
    """One cell: what its tries were, in order, and what they come to. The try of a number asks the same every time."""

    id: str
    guarantee: str
    group: CellGroup
    required: bool
    verdict: CellVerdict
    owner: Owner | None = None
    note: str = ""
    outcomes: tuple[Outcome, ...] = ()
    planned: int = 0
    fact: str = ""
    low: float = 0.0
    high: float = 1.0
    held: int = 0
    measured: int = 0
    #: The number that was measured, where the cell is about one: the tokens of a context.
    value: int | None = None
    #: Whether a reply told the owner of a failure, or the cell was tried in other ways to find it. Where neither was
    #: done, a run that goes on does it.
    explained: bool = False


class ProbeSpending(msgspec.Struct, frozen=True, kw_only=True):
    """What a run took."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    seconds: float = 0.0

    @property
    def usage(self) -> Usage:
        """The tokens."""
        return Usage(input_tokens=self.input_tokens, output_tokens=self.output_tokens)


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """A whole probe. `partial` says why cells were left out: stopped, out of budget, the upstream went away."""

    version: int = VERSION
    mustcall: str = ""
    upstream: str
    base_url: str
    wire: Wire
    model: str
    level: Level
    client: str = ""
    started: str
    partial: str = ""
    announced_requests: int = 0
    announced_usd: float | None = None
    spent: ProbeSpending = ProbeSpending()
    cells: tuple[CellResult, ...] = ()

    @property
    def day(self) -> str:
        """The day of the measurement, `2026-11-17`."""
        return self.started[:10]

    def encode(self) -> bytes:
        """Return the text of a result file."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


class Guarantee(msgspec.Struct, frozen=True, kw_only=True):
    """The cells of one guarantee, taken together."""

    name: str
    group: CellGroup
    required: bool
    verdict: CellVerdict
    owner: Owner | None
    share: Share


def guarantees(result: ProbeResult) -> list[Guarantee]:
    """Return each guarantee with the verdict of all tries of its cells, in the order of the cells."""
    joined: dict[str, list[CellResult]] = {}
    for cell in result.cells:
        joined.setdefault(cell.guarantee, []).append(cell)
    found: list[Guarantee] = []
    for name, cells in joined.items():
        outcomes = [outcome for cell in cells for outcome in cell.outcomes]
        verdicts = {cell.verdict for cell in cells} - {CellVerdict.UNMEASURED}
        verdict = verdicts.pop() if len(verdicts) == 1 else settle_verdict(outcomes)
        owners = [cell.owner for cell in cells if cell.owner is not None]
        found.append(
            Guarantee(
                name=name,
                group=cells[0].group,
                required=any(cell.required for cell in cells),
                verdict=verdict,
                owner=max(owners, key=owners.count) if owners else None,
                share=count(outcomes),
            )
        )
    return found


def broken(result: ProbeResult) -> list[CellResult]:
    """Return the required cells that were measured and do not hold."""
    return [
        cell
        for cell in result.cells
        if cell.required and cell.verdict not in (CellVerdict.HELD, CellVerdict.UNMEASURED)
    ]


def read_result(file: Path) -> ProbeResult:
    """Return what an earlier probe wrote; raise `ConfigError` if the file is none."""
    try:
        read = msgspec.json.decode(file.read_bytes(), type=ProbeResult)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file} is not what `mustcall probe --json` writes: {error}") from None
    if read.version != VERSION:
        raise ConfigError(f"{file} has version {read.version}, and only {VERSION} is known here; measure again")
    return read


def share(cell: CellResult) -> Share:
    """Return the rate of a cell with its interval."""
    return share_of(cell.held, cell.measured)
