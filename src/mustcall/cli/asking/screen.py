"""A run as people see it happen: words as they come, calls as they are made, and what became of them.

Everything a model or a tool wrote is made plain first: no text can steer the terminal.
"""

from typing import Any, assert_never

import msgspec
from rich.console import Console
from rich.status import Status
from rich.text import Text

from mustcall.cli.wrapping import WordWrap
from mustcall.core.errors import ErrorInfo
from mustcall.core.parts import ToolCall
from mustcall.engine.agent.events import (
    CallFinished,
    CallStarted,
    PartialOutput,
    ReasoningDelta,
    RunEvent,
    RunFinished,
    StepFinished,
    TextDelta,
)
from mustcall.engine.run_records.results import RunResult, Stopped
from mustcall.toolkit.builtin.files import plain
from mustcall.toolkit.reports import ChangeReports
from mustcall.toolkit.summary import describe_change
from mustcall.upstream.embedded.store import is_embedded

__all__ = ["Screen"]

_LONGEST = 200
_MOST_LINES = 6

_LOADING = "loading the model and reading the question"
#: What is said of a run that ended otherwise than with an answer.
_ENDINGS = {
    Stopped.STEP_CAP: "the most steps were made; this is the answer without more tools",
    Stopped.COST_CAP: "what may be spent was spent; this is the answer without more tools",
    Stopped.LENGTH: "the answer was cut off at the length limit",
    Stopped.REFUSED: "the model declined",
    Stopped.FILTERED: "the provider's filter stopped the answer",
}


class Screen:
    """Shows the events of runs on a console; `words` says whether the model's text is shown as it comes."""

    def __init__(
        self, console: Console, reports: ChangeReports, *, words: bool = True, answers: Console | None = None
    ) -> None:
        """Show calls and notes on `console`, and words on `answers` if that is another one."""
        self._console = console
        self._answers = answers or console
        self._wrap = WordWrap(self._answers.width if self._answers.is_terminal else 0)
        #: What the model said since its last call, as it was shown.
        self.said = ""
        self._reports = reports
        self._words = words
        self._status: Status | None = None
        #: Where answers were waited for.
        self._loaded: set[str] = set()
        self._midline = False
        if (reconfigure := getattr(console.file, "reconfigure", None)) is not None:
            reconfigure(errors="replace")  # a terminal that lacks a character gets a question mark, not an error
        rich_signs = (console.encoding or "").lower().startswith("utf")
        self._call, self._good, self._bad, self._bar = "→✓✗│" if rich_signs else ">+x|"

    def wait(self, address: str = "") -> None:
        """Show that something is being waited for; the first time, a model inside the process is loaded (`address`)."""
        if self._console.is_terminal and self._status is None:
            loads = is_embedded(address) and address not in self._loaded
            self._loaded.add(address)
            self._status = self._console.status(_LOADING if loads else "", spinner="dots")
            self._status.start()

    def settle(self) -> None:
        """End the line and whatever moves."""
        self._still()
        held = self._wrap.end()
        if held or self._midline:
            self._midline = False
            self._answers.file.write(f"{held}\n")
            self._answers.file.flush()

    def note(self, text: str, style: str = "dim") -> None:
        """Show a line of our own."""
        self.settle()
        self._console.print(Text(plain(text, keep="\n\t"), style=style), soft_wrap=True)

    def show(self, event: RunEvent) -> None:
        """Show one event."""
        match event:
            case TextDelta(text=text):
                if self._words:
                    self.said += text
                    self._write(text)
            case ReasoningDelta(text=text):
                if self._words:
                    self._write(text, style="dim italic")
            case PartialOutput():
                pass
            case StepFinished(record=record):
                if len(record.attempts) > 1:
                    verdicts = ", ".join(str(one.verdict) for one in record.attempts if one.verdict is not None)
                    self.note(f"  {len(record.attempts)} attempts: {verdicts}")
            case CallStarted(call=call):
                self.said = ""
                self.note(f"{self._call} {call.name}({_arguments(call)})", style="cyan")
                self.wait()
            case CallFinished():
                self._finished(event)
                self.wait()
            case RunFinished(result=result):
                self.settle()
                self._ended(result)
            case _:
                assert_never(event)

    def _write(self, text: str, style: str | None = None) -> None:
        shown = plain(text, keep="\n\t")
        if not shown:
            return
        self._still()
        wrapped = self._wrap.feed(shown)
        if style is None:
            self._answers.file.write(wrapped)
            self._answers.file.flush()
        else:
            self._answers.print(Text(wrapped, style=style), end="", soft_wrap=True)
        self._midline = not shown.endswith("\n")

    def _finished(self, event: CallFinished) -> None:
        for change in self._reports.of(event.call.id):
            self.note(f"  {describe_change(change)}")
        sign, style = (self._good, "green") if event.ok else (self._bad, "red")
        lines = event.result.splitlines() or [""]
        if not event.ok:
            self.note(f"  {sign} {event.status}: {_short(lines[0])}", style=style)
            return
        count = "1 line" if len(lines) == 1 else f"{len(lines)} lines"
        self.note(f"  {sign} {count}, {event.seconds:.2f} s", style=style)
        for line in lines[:_MOST_LINES]:
            self.note(f"  {self._bar} {_short(line)}")
        if len(lines) > _MOST_LINES:
            self.note(f"  {self._bar} … {len(lines) - _MOST_LINES} more lines")

    def _ended(self, result: RunResult[Any]) -> None:
        if result.error is not None:
            self.fail(result.error)
        elif result.stopped in _ENDINGS:
            self.note(f"({_ENDINGS[result.stopped]})")
        if result.force_satisfied is False and result.error is None:
            self.note("(the tool that was demanded was not called)", style="yellow")

    def fail(self, error: ErrorInfo) -> None:
        """Show an error."""
        self.note(f"mustcall: {error.message}", style="red")

    def _still(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _arguments(call: ToolCall) -> str:
    """Return arguments as a person would write them."""
    try:
        fields = msgspec.json.decode(call.arguments_json, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:
        return _short(call.arguments_json)
    return _short(", ".join(f"{name}={bytes(value).decode('utf-8', 'replace')}" for name, value in fields.items()))
