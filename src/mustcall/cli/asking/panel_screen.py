"""Several models at work as people see it: a line for each, which changes where that is possible.

At a terminal the lines are redrawn as things happen; elsewhere a line is written when a role begins a call or ends.
Everything a model or a tool wrote is made plain first: no text can steer the terminal.
"""

from typing import Self, assert_never

import msgspec
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from mustcall.engine.agent.events import CallFinished, CallStarted, StepFinished
from mustcall.engine.coordinating.envelopes import Critique, Proposal, Synthesis
from mustcall.engine.coordinating.events import CoordinateEvent, RoleFinished, RoleProgress, RoleStarted
from mustcall.engine.coordinating.results import RoleRun
from mustcall.toolkit.builtin.files import plain

__all__ = ["PanelScreen"]

_LONGEST = 100


class _Line(msgspec.Struct):
    """What is shown of one role."""

    name: str
    model: str
    words: str = "thinks"
    done: bool = False
    good: bool = True
    calls: int = 0


class PanelScreen:
    """Shows events on a console; use it with `with`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines: dict[tuple[str, int], _Line] = {}
        self._live: Live | None = None
        rich_signs = (console.encoding or "").lower().startswith("utf")
        self._good, self._bad, self._spinner = ("✓", "✗", "dots") if rich_signs else ("+", "x", "line")

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=8)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, event: CoordinateEvent) -> None:
        """Show one event."""
        match event:
            case RoleStarted():
                self._lines[event.name, event.round] = _Line(_title(event.name, event.round), event.model)
            case RoleProgress():
                self._progress(event)
            case RoleFinished(run=run):
                line = self._lines[run.name, run.round]
                line.words, line.done, line.good = _outcome(run), True, run.error is None
                self._say(f"{self._good if line.good else self._bad} {line.name} ({line.model}): {line.words}")
            case _:
                assert_never(event)
        if self._live is not None:
            self._live.update(self._table())

    def note(self, text: str, style: str = "dim") -> None:
        """Show a line of our own."""
        self._console.print(Text(plain(text), style=style), soft_wrap=True)

    def _progress(self, event: RoleProgress) -> None:
        line = self._lines.get((event.name, event.round))
        if line is None:
            return
        match event.event:
            case CallStarted(call=call):
                line.calls += 1
                line.words = f"calls {call.name} {_short(call.arguments_json)}"
                self._say(f"  {line.name} {line.words}")
            case CallFinished(call=call, ok=ok, status=status, result=result):
                line.words = f"{call.name}: {status if ok else f'{status}, {_short(result)}'}"
                if not ok:
                    self._say(f"  {line.name} {line.words}")
            case StepFinished():
                line.words = "thinks on"
            case _:
                pass

    def _say(self, text: str) -> None:
        """Write a line where nothing can be redrawn."""
        if self._live is None:
            self.note(text, style="")

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 1))
        for line in self._lines.values():
            sign = Text(self._good if line.good else self._bad, style="green" if line.good else "red")
            table.add_row(
                sign if line.done else Spinner(self._spinner),
                Text(line.name, style="bold"),
                Text(plain(line.model), style="dim"),
                Text(plain(line.words), overflow="ellipsis", no_wrap=True),
            )
        return table


def _title(name: str, number: int) -> str:
    title = name.replace("_", " ")
    return title if number == 1 or name == "synthesizer" else f"{title}, round {number}"


def _outcome(run: RoleRun) -> str:
    calls = len(run.inner_tool_calls)
    counted = f" ({calls} call{'s' if calls > 1 else ''})" if calls else ""
    match run.output:
        case Proposal(answer=answer) | Synthesis(answer=answer):
            return f"{_short(answer)}{counted}"
        case Critique(stance=stance, problems=problems):
            return f"{stance}{': ' if problems else ''}{_short('; '.join(problems))}{counted}"
        case None:
            return f"failed: {_short(run.error.message) if run.error is not None else 'no answer'}{counted}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
