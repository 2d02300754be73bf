"""The words of every report: marks, meanings, counts, intervals, the headline. Pure."""

from mustcall.evals.report.statistics import share_of
from mustcall.evals.report.wording import interval
from mustcall.probe.results import CellResult, ProbeResult, broken
from mustcall.probe.values import CellVerdict, Owner

__all__ = ["MARKS", "MEANINGS", "OWNERS", "headline", "of", "written_interval"]

#: One character for each verdict.
MARKS = {
    CellVerdict.HELD: "✔",
    CellVerdict.FLAKY: "~",
    CellVerdict.IGNORED: "✘",
    CellVerdict.REFUSED: "⊘",
    CellVerdict.CRASHED: "‼",
    CellVerdict.UNMEASURED: "·",
}
MEANINGS = {
    CellVerdict.HELD: "at least 95 %",
    CellVerdict.FLAKY: "sometimes",
    CellVerdict.IGNORED: "200 and not done",
    CellVerdict.REFUSED: "a 4xx",
    CellVerdict.CRASHED: "a 5xx or no whole answer",
    CellVerdict.UNMEASURED: "nothing was learnt",
}
OWNERS = {
    Owner.PARSER: "the text holds the call, and the server did not read it",
    Owner.SERVER: "the server had to see to it, and did not",
    Owner.MODEL: "the server leaves it to the model, which did not do it",
    Owner.TRANSPORT: "whole it holds and streamed it does not, or the connection broke",
}


def of(cell: CellResult) -> str:
    """Return how many tries held, `11/12`."""
    return f"{cell.held}/{cell.measured}" if cell.measured else ""


def written_interval(cell: CellResult) -> str:
    """Return the 95 % interval of the rate."""
    return interval(share_of(cell.held, cell.measured)) if cell.measured else ""


def headline(result: ProbeResult) -> str:
    """Return what a probe found, in one line."""
    spent = result.spent
    cost = f", ${spent.cost_usd:.4f}" if spent.cost_usd else ""
    words = f"{_required(result)}; {spent.requests} requests in {spent.seconds:.0f} s{cost}"
    return f"{words}; {result.partial}" if result.partial else words


def _required(result: ProbeResult) -> str:
    """Return how many required cells hold, do not, and were not measured; the last two only where there are any."""
    required = [cell.verdict for cell in result.cells if cell.required]
    held, failed = required.count(CellVerdict.HELD), len(broken(result))
    missing = required.count(CellVerdict.UNMEASURED)
    words = [f"{held} required cell holds" if held == 1 else f"{held} required cells hold"]
    if failed:
        words.append(f"{failed} does not" if failed == 1 else f"{failed} do not")
    if missing:
        words.append(f"{missing} was not measured" if missing == 1 else f"{missing} were not measured")
    return ", ".join(words) if required else "no required cell was asked for"
