"""`mustcall chat`: a conversation with a model that has tools, at a terminal or through a pipe."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from mustcall.cli.asking.prompt import LineReader
from mustcall.cli.asking.screen import Screen
from mustcall.cli.asking.session import Session, flags_from, opened, session_options
from mustcall.core.errors import MustcallError
from mustcall.toolkit.summary import conversation_as_json, conversation_as_markdown, trace_lines

__all__ = ["command"]


@click.command(name="chat")
@session_options
def command(**given: Any) -> None:
    """Talk to a model that has tools.

    Files can be listed and read (inside allowed folders), sums computed, documents searched (--docs), and every tool of
    an MCP server used (--mcp). /help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves.
    """
    with opened(flags_from(given)) as session:
        Chat(session, Console(highlight=False)).hold()


class Chat:
    """One conversation on a console."""

    def __init__(self, session: Session, console: Console) -> None:
        self._session = session
        self._talk = session.conversation
        self._console = console
        self._screen = Screen(console, session.kit.reports)
        self._lines = LineReader("you> ", colour=console.is_terminal and not console.no_color)
        self._saved: set[Path] = set()
        #: Each command, what it does, and its line in `/help`.
        self._commands: dict[str, tuple[Callable[[str], None], str]] = {
            "/help": (self._help, "this list"),
            "/tools": (self._tools, "the tools and where they come from"),
            "/trace": (self._trace, "what happened in the latest answer: attempts, verdicts, changes, calls"),
            "/model": (self._model, "/model NAME asks another model from now on"),
            "/save": (self._save, "/save FILE writes the conversation (.json for programs, anything else Markdown)"),
            "/clear": (self._clear, "forget the conversation"),
            "/exit": (self._leave, "leave (Ctrl-D)"),
        }
        self._leaving = False

    def hold(self) -> None:
        """Read and answer until there is nothing more to read, or the person leaves."""
        for line in self._session.notes:
            click.echo(f"note: {line}", err=True)
        if self._lines.interactive:
            tools = len(self._session.kit.tools)
            self._screen.note(f"{self._talk.model} with {tools} tools; /help lists the commands, Ctrl-D leaves")
        interrupted = False
        while not self._leaving:
            try:
                line = self._lines.read()
            except KeyboardInterrupt:
                if interrupted or not self._lines.interactive:
                    break
                interrupted = True
                self._console.print()
                self._screen.note("(Ctrl-C again or Ctrl-D leaves)")
                continue
            interrupted = False
            if line is None:
                break
            try:
                self._take(line)
            except KeyboardInterrupt:
                self._screen.note("(stopped)")
        if self._lines.interactive and not self._leaving:
            self._console.print()

    def _take(self, line: str) -> None:
        """Answer one line."""
        word, _, rest = line.strip().partition(" ")
        try:
            if line.startswith("/"):
                known = self._commands.get(word)
                if known is None:
                    self._screen.note(f"there is no command {word}; /help lists them. A blank before it makes it text")
                    return
                known[0](rest.strip())
            elif word:
                self._answer(line.strip())
        except MustcallError as error:
            self._screen.fail(error.info())

    def _answer(self, question: str) -> None:
        self._screen.wait(self._talk.upstream.endpoint.base_url)
        events = self._session.background.iterate(self._talk.ask(question))
        try:
            with contextlib.closing(events):
                for event in events:
                    self._screen.show(event)
        finally:
            self._screen.settle()

    # --- commands -----------------------------------------------------------------------------------------------------

    def _help(self, _: str) -> None:
        for name, (_run, line) in self._commands.items():
            self._screen.note(f"{name:8} {line}", style="")

    def _tools(self, _: str) -> None:
        kit = self._session.kit
        for tool in kit.tools:
            self._screen.note(f"{tool.name}  ({kit.sources[tool.name]})", style="cyan")
            self._screen.note(f"  {(tool.description or '').strip().partition(chr(10))[0]}", style="")
        roots = kit.roots
        self._screen.note(f"files are listed in {_places(roots.listable)}; read in {_places(roots.readable)}")

    def _trace(self, _: str) -> None:
        if self._talk.last is None:
            self._screen.note("nothing was asked yet")
            return
        for line in trace_lines(self._talk.last, self._session.kit.reports):
            self._screen.note(line, style="")

    def _model(self, name: str) -> None:
        if name:
            self._talk.use(name)
        upstream = self._talk.upstream
        self._screen.note(f"{self._talk.model} at {upstream.endpoint.base_url} ({upstream.endpoint.wire})", style="")

    def _save(self, name: str) -> None:
        if not name:
            self._screen.note("/save needs a file: /save talk.md")
            return
        path = Path(name).expanduser()
        write = conversation_as_json if path.suffix == ".json" else conversation_as_markdown
        data = write(self._talk.history, model=self._talk.model)
        again = os.O_TRUNC if path in self._saved else os.O_EXCL
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | again, 0o600), "wb") as file:  # noqa: PTH123  private
                file.write(data)
        except FileExistsError:
            self._screen.note(f"{path} is there already; choose another name", style="red")
        except OSError as error:
            self._screen.note(f"cannot write {path}: {error.strerror}", style="red")
        else:
            self._saved.add(path)
            self._screen.note(f"saved {len(self._talk.history)} messages to {path}")

    def _clear(self, _: str) -> None:
        self._talk.clear()
        self._screen.note("forgotten")

    def _leave(self, _: str) -> None:
        self._leaving = True


def _places(folders: tuple[Path, ...]) -> str:
    return ", ".join(map(os.fspath, folders)) or "no folder (--root DIR allows one)"
