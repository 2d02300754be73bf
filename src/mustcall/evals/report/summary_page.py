"""Writes a run of `mustcall eval` as one HTML page that needs nothing else. Every number comes from `summary`."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from mustcall.evals.asking.rows import Arm, EvalRow, Form
from mustcall.evals.plain import read_plainly
from mustcall.evals.report.comparing import ColumnChange
from mustcall.evals.report.html import bar, document, table
from mustcall.evals.report.summary import Column, EvalSummary, Graded
from mustcall.evals.report.summary_wording import (
    CHANGE_HEADS,
    COST_HEADS,
    COST_NOTE,
    RIGHT_HEADS,
    RIGHT_NOTE,
    change_rows,
    circumstances,
    cost_rows,
    count_lines,
    headline,
    partial_note,
    right_rows,
)
from mustcall.evals.report.wording import seconds, when
from mustcall.evals.suites import Suite

__all__ = ["write_summary_page"]

#: How much of a reply's text is shown.
_LONGEST = 2000
_FORMS = {
    Form.NATIVE: "What the server itself returned as tool calls counts as a call, and text does not.",
    Form.WORDS: "The model's chat template has no place for tools, so the bare arm got them in a system message that "
    "asks for a call as JSON; such JSON counts as a call.",
}


def write_summary_page(summary: EvalSummary, suite: Suite, changes: Sequence[ColumnChange] | None = None) -> str:
    """Return the report."""
    return document(
        headline(summary),
        [
            *_opening(summary),
            *_chart(summary),
            *_tables(summary),
            *(table(CHANGE_HEADS, change_rows(changes)) if changes is not None else ()),
            *_method(summary),
            *_weights(summary),
            *_replies(summary, suite),
        ],
    )


def _opening(summary: EvalSummary) -> Iterator[str]:
    facts = summary.facts
    yield f"<h1>{escape(headline(summary))}</h1>"
    yield (
        f'<p class="faint">{escape(circumstances(summary))}; {when(facts.started)}, mustcall '
        f"{escape(facts.version)}</p>"
    )
    if summary.partial:
        yield f'<p class="warn">{escape(partial_note(summary))}</p>'


def _chart(summary: EvalSummary) -> Iterator[str]:
    yield '<h2>Right answers</h2><p class="faint">The line on each bar is the 95 % interval (Wilson).</p>'
    for figures in summary.sets:
        yield f"<h3>{escape(figures.name)}</h3>"
        for column in Column:
            yield bar(column, column, figures.name, figures.columns[column].right)


def _tables(summary: EvalSummary) -> Iterator[str]:
    yield from table(RIGHT_HEADS, right_rows(summary))
    yield f'<p class="faint">{escape(RIGHT_NOTE)}</p><h2>What it cost</h2>'
    yield from table(COST_HEADS, cost_rows(summary))
    yield f'<p class="faint">{escape(COST_NOTE)}</p>'
    for line in count_lines(summary):
        yield f"<p>{escape(line)}</p>"


def _method(summary: EvalSummary) -> Iterator[str]:
    yield (
        "<h2>How it was measured</h2><p>Each question was asked in both arms, which took turns in going first. "
        "<b>bare</b> is the upstream's own reply to one request, as a client of its wire writes it. "
        f"{_FORMS[summary.facts.form]} <b>mustcall</b> is the same request through mustcall's contract. <b>plain</b> "
        "is no arm: it reads the bare replies once more and takes a reply that is one JSON call, in a code fence or "
        "not, for that call. An error is never a right answer.</p>"
    )


def _weights(summary: EvalSummary) -> Iterator[str]:
    if summary.facts.weights:
        yield f"<p>SHA-256 of the model file: <code>{escape(summary.facts.weights)}</code></p>"


def _replies(summary: EvalSummary, suite: Suite) -> Iterator[str]:
    yield '<h2>Every reply</h2><p class="faint">The marks are bare, plain and mustcall.</p>'
    ordered = sorted(summary.graded, key=lambda each: (summary.facts.sets.index(each.row.set), each.row.id))
    for question, group in groupby(ordered, key=lambda each: each.row.id):
        columns = {each.column: each for each in group}
        marks = "".join(_mark(columns.get(column)) for column in Column)
        yield (
            f'<details><summary>{marks}<span class="says">{escape(suite.words(question))}</span>'
            f'<span class="faint">{escape(question)}</span></summary><div class="said">'
        )
        for column in Column:
            if column in columns:
                yield from _said(columns[column])
        yield "</div></details>"


def _mark(graded: Graded | None) -> str:
    if graded is None:
        return '<span class="mark"></span>'
    grade = 3 if graded.grade.right else 1 if graded.grade.valid else 0
    return f'<span class="mark s{grade}"></span>'


def _said(graded: Graded) -> Iterator[str]:
    row = graded.row
    calls = row.calls
    if graded.column is Column.PLAIN:
        calls = row.calls or read_plainly(row.text)
        if calls == row.calls:
            return  # nothing but what the bare reply says
    outcome = "right" if graded.grade.right else graded.grade.problem
    yield f'<p><b>{graded.column}</b>: {escape(outcome)} <span class="faint">{escape(_took(row))}</span></p>'
    for call in calls:
        yield f"<p><code>{escape(call.name)}({escape(call.arguments)})</code></p>"
    if row.text and graded.column is not Column.PLAIN:
        yield f"<p>“{escape(row.text[:_LONGEST])}{'…' if len(row.text) > _LONGEST else ''}”</p>"


def _took(row: EvalRow) -> str:
    words = [seconds(row.seconds)]
    if row.arm is Arm.MUSTCALL and row.sends:
        words.insert(0, f"{row.sends} upstream call{'' if row.sends == 1 else 's'}")
    return ", ".join([*words, *row.verdicts])
