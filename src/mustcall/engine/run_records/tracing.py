"""A run, told step by step: as text for a terminal, as a table for a notebook. It reads results and decides nothing.

What a model or a tool wrote is shown shortened, and escaped in HTML.
"""

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

import msgspec

from mustcall.core.parts import CallKind, ToolCall
from mustcall.engine.records import AttemptRecord, TurnRecord
from mustcall.engine.tooling.outcomes import ExecutedCall, shortened
from mustcall.policy.turn.remedy import ACCEPTED

if TYPE_CHECKING:
    from mustcall.engine.run_records.results import RunResult

__all__ = ["Trace", "TraceRow"]

#: Characters of a result, an answer and of arguments that are shown.
_SHOWN = 80


class TraceRow(msgspec.Struct, frozen=True):
    """One line of a trace. `step` is empty where the line belongs to the run."""

    step: str
    what: str
    outcome: str
    seconds: float | None = None


class Trace:
    """The steps of a run. `rows` are its lines; `str` and notebooks show them."""

    def __init__(self, result: "RunResult[Any]") -> None:
        self._result = result
        self.rows = tuple(_rows(result))

    def __str__(self) -> str:
        return "\n".join(_lines(self.rows))

    def __repr__(self) -> str:
        return f"Trace({len(self._result.steps)} steps, {len(self._result.calls)} calls)"

    @property
    def html(self) -> str:
        """The rows as a table."""
        head = "".join(f"<th>{title}</th>" for title in ("step", "what", "outcome", "seconds"))
        body = "".join(
            f"<tr><td>{escape(row.step)}</td><td>{escape(row.what)}</td><td>{escape(row.outcome)}</td>"
            f"<td>{_seconds(row)}</td></tr>"
            for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _repr_html_(self) -> str:
        """Show the table in a notebook."""
        return self.html


def _rows(result: "RunResult[Any]") -> Iterator[TraceRow]:
    for number, step in enumerate(result.steps, 1):
        yield from _turn(str(number), step)
        for call in result.calls:
            if call.step == number:
                yield _call(str(number), call)
    told = f"{result.answer!r}" if result.structured and result.answered else result.text
    yield TraceRow("", f"run {result.stopped}", shortened(told, _SHOWN))
    usage = result.usage
    price = f", {'about ' if result.estimated else ''}${result.cost_usd:.6f}" if result.cost_usd else ""
    yield TraceRow("", "tokens", f"{usage.input_tokens} in, {usage.output_tokens} out{price}")
    if result.error is not None:
        yield TraceRow("", f"error {result.error.code}", shortened(result.error.message, 3 * _SHOWN))


def _turn(number: str, step: TurnRecord) -> Iterator[TraceRow]:
    """Tell of a model's turn: in one line where its first attempt was good, else in one for each attempt."""
    outcome = str(step.outcome or step.error or "no outcome")
    force = "" if step.force == "none" else f", force {step.force}"
    seconds = sum(attempt.seconds for attempt in step.attempts)
    yield TraceRow(number, f"model {step.model}".rstrip(), f"{outcome}{force}", seconds)
    if len(step.attempts) > 1 or any(attempt.verdict not in ACCEPTED for attempt in step.attempts):
        for index, attempt in enumerate(step.attempts, 1):
            yield TraceRow(number, f"  attempt {index} ({attempt.rung.kind})", _attempt(attempt), attempt.seconds)
    for change in step.adaptations:
        yield TraceRow(number, f"  changed {change.subject}", f"{change.kind}: {change.detail}".rstrip(": "))


def _attempt(attempt: AttemptRecord) -> str:
    words = [attempt.word or "not judged", attempt.problem, str(attempt.remedy or ""), attempt.error or ""]
    return ", ".join(filter(None, words))


def _call(number: str, call: ExecutedCall) -> TraceRow:
    told = call.error or call.result
    return TraceRow(number, _made(call.call), f"{call.status}: {shortened(told, _SHOWN)}", call.seconds)


def _made(call: ToolCall) -> str:
    """Return a call as Python would write it; as the model wrote it where that cannot be read."""
    try:
        given = call.arguments if call.kind is CallKind.FUNCTION else {"input": call.arguments_json}
    except Exception:  # noqa: BLE001  what is shown is never a reason to fail
        return shortened(f"{call.name} {call.arguments_json}", _SHOWN)
    return shortened(f"{call.name}({', '.join(f'{name}={value!r}' for name, value in given.items())})", _SHOWN)


def _seconds(row: TraceRow) -> str:
    return "" if row.seconds is None else f"{row.seconds:.2f}"


def _lines(rows: tuple[TraceRow, ...]) -> Iterator[str]:
    """Return the rows as text: columns for what happened, the rest behind them."""
    wide = min(48, max((len(row.what) for row in rows), default=0))
    for row in rows:
        seconds = "" if row.seconds is None else f"  ({row.seconds:.2f} s)"
        yield f"{row.step:>3} {row.what:<{wide}}  {row.outcome}{seconds}".rstrip()
