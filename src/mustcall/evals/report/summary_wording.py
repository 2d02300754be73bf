"""How the figures of `mustcall eval` are written, the same in the terminal, on the page and in the picture. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from mustcall.evals.asking.journal import RunFacts
from mustcall.evals.asking.rows import Form
from mustcall.evals.report.comparing import ColumnChange
from mustcall.evals.report.statistics import Share
from mustcall.evals.report.summary import Column, ColumnFigures, Comparison, EvalSummary
from mustcall.evals.report.wording import interval, percent, seconds

__all__ = [
    "CHANGE_HEADS",
    "COST_HEADS",
    "COST_NOTE",
    "RIGHT_HEADS",
    "RIGHT_NOTE",
    "change_rows",
    "circumstances",
    "cost_rows",
    "count_lines",
    "headline",
    "partial_note",
    "right_rows",
]

RIGHT_HEADS = ("right", "n", *map(str, Column), "gain", "loss", "p")
RIGHT_NOTE = (
    "In brackets: 95 % interval (Wilson). plain: the bare replies, a call that is the whole text read as one. gain, "
    "loss: questions that only mustcall, only bare got right; p: exact McNemar test of the two."
)
COST_HEADS = ("cost", "valid", "called", "errors", "median", "p90", "read", "written", "sends", "later")
COST_NOTE = (
    "valid, called: share of replies. median, p90: time for a question that this arm asked first. read, written: "
    "tokens. sends: upstream calls a turn; later: without the first turn."
)

CHANGE_HEADS = ("since the earlier run", "arm", "asked in both", "right then", "now", "gain", "loss", "p")

#: So much of a hash tells two files apart for a reader; the page and the data have all of it.
_HASH_SHOWN = 12

_ARMS = (Column.BARE, Column.MUSTCALL)


def headline(summary: EvalSummary) -> str:
    """Say in one sentence what was measured."""
    shares = {column: summary.sets[-1].columns[column].right for column in _ARMS}
    bare, mustcall = (f"{shares[column].hits} of {shares[column].of}" for column in _ARMS)
    return f"{summary.facts.suite}, right answers: {bare} bare, {mustcall} through mustcall"


def circumstances(summary: EvalSummary) -> str:
    """Say how it was measured, in one line."""
    facts = summary.facts
    temperature = "the server's own" if facts.sampling.temperature is None else f"{facts.sampling.temperature:g}"
    words = [
        f"{facts.model} at {facts.address}",
        *([f"weights {facts.weights[:_HASH_SHOWN]}…"] if facts.weights else []),
        f"tool_choice {facts.choice or ('auto' if facts.suite == 'bfcl' else 'as each prompt says')}",
        f"wire {facts.wire}" + (f" on {facts.upstream_wire}" if facts.wire is not facts.upstream_wire else ""),
        *(["streamed"] if facts.stream else []),
        f"through the {facts.via}" if facts.via in ("engine", "gateway") else f"through the gateway at {facts.via}",
        *(["tools in words for the bare arm"] if facts.form is Form.WORDS else []),
        f"temperature {temperature}, at most {facts.sampling.max_tokens} tokens",
        _drawn(facts),
    ]
    return "; ".join(words)


def _drawn(facts: RunFacts) -> str:
    if facts.listed:
        return f"the {facts.planned} questions of a list ({facts.listed})"
    return f"seed {facts.seed}" + (f", {facts.limit} a set" if facts.limit is not None else "")


def partial_note(summary: EvalSummary) -> str:
    """Say how far a run came that did not come to its end; nothing for one that did."""
    if not summary.partial:
        return ""
    return f"Partial: stopped after {summary.asked} of {summary.facts.planned} questions."


def right_rows(summary: EvalSummary) -> Iterator[tuple[str, ...]]:
    """Return a row of `RIGHT_HEADS` for each set; the plain reading's interval is left out, for want of room."""
    for figures in summary.sets:
        bare, plain, mustcall = (figures.columns[column].right for column in Column)
        against = figures.against_bare
        yield (
            figures.name,
            str(mustcall.of),
            _share(bare),
            percent(plain.rate),
            _share(mustcall),
            *_compared(against),
        )


def _share(share: Share) -> str:
    return f"{percent(share.rate)} ({interval(share, unit='')})"


def _compared(against: Comparison) -> tuple[str, str, str]:
    return str(against.only_second), str(against.only_first), _probability(against.p)


def _probability(p: float) -> str:
    """Write a p."""
    return f"{p:.2g}" if p >= 0.0001 else "<0.0001"


def change_rows(changes: Sequence[ColumnChange]) -> Iterator[tuple[str, ...]]:
    """Return a row of `CHANGE_HEADS` for each set and column."""
    for change in changes:
        counts = (change.common, change.before, change.now, change.gained, change.lost)
        yield change.set, str(change.column), *map(str, counts), _probability(change.p)


def cost_rows(summary: EvalSummary) -> Iterator[tuple[str, ...]]:
    """Return rows of `COST_HEADS`: the name of each set alone, then its arms."""
    for figures in summary.sets:
        yield (figures.name,)
        for column in _ARMS:
            yield str(column), *_costs(figures.columns[column])


def _costs(one: ColumnFigures) -> tuple[str, ...]:
    return (
        percent(one.valid.rate),
        percent(one.called.rate),
        str(sum(one.errors.values())),
        seconds(one.median_seconds),
        seconds(one.p90_seconds),
        _thousands(one.input_tokens),
        _thousands(one.output_tokens),
        _mean(one.sends_per_turn),
        _mean(one.sends_later),
    )


def _thousands(count: int) -> str:
    return f"{count / 1000:.1f}k" if count >= 10_000 else str(count)


def _mean(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def count_lines(summary: EvalSummary) -> Iterator[str]:
    """Say how often each error, verdict and rung came, over all sets."""
    for column in _ARMS:
        one = summary.sets[-1].columns[column]
        for name, counted in (("errors", one.errors), ("verdicts", one.verdicts), ("rungs", one.rungs)):
            if counted:
                yield f"{column}, {name}: {_counted(counted)}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{word} {count}" for word, count in counts.items())
