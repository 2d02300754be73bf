"""The tools that come with mustcall, as an agent is given them: names, schemas, and how each is run.

They look and compute and change nothing. What they may see is decided by `roots`; paths are expanded from an allowlist
first (rule 80), and what was expanded is reported. The descriptions are short because small models read them, too.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

import msgspec

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.origin import JsonObject
from mustcall.engine.tooling.definition import FunctionTool, ToolContext, ToolSettings
from mustcall.policy.schema.paths import expand_arguments
from mustcall.policy.words.grounding import GroundingRule
from mustcall.policy.words.signs import MessageSign
from mustcall.toolkit.builtin.arithmetic import LONGEST, compute, readable
from mustcall.toolkit.builtin.clock import current_time
from mustcall.toolkit.builtin.files import list_directory, read_file
from mustcall.toolkit.builtin.numbers import show_number
from mustcall.toolkit.builtin.roots import Roots
from mustcall.toolkit.builtin.search import Documents
from mustcall.toolkit.holding import hold_arguments
from mustcall.toolkit.reports import ChangeReports

__all__ = ["RULES", "VARIABLES", "BuiltinTool", "builtin_tools"]

#: The variables that paths may be written with. None of them holds anything but a place.
VARIABLES: Final = ("HOME", "TMPDIR", "PWD")

#: No example: measured, a 0.5B model computes the example.
_EXPRESSION: Final = "The arithmetic of the question in figures, with + - * / ** % ( ), sqrt and the like."

_SETTINGS: Final = ToolSettings(timeout=20.0, side_effect=False, idempotent=True)

#: The questions that a tool answers better than any memory. Phrases of `policy.words.grounding`.
RULES: Final = (
    GroundingRule(
        name="builtin-list",
        triggers=(
            "list files|list the files|list all files|list all the files|list my files|show files|show the files",
            "show me the files|show me all files|what files|which files|list directory|list the directory",
            "list folder|list the folder|list this folder|list this directory|list the contents",
            "what is in the folder|what is in the directory|what's in the folder|what's in the directory",
            "what is in this folder|what is in this directory|what's in this folder|what's in this directory",
            "in the current folder|in the current directory|how many files",
        ),
        tool="list_directory",
    ),
    GroundingRule(
        name="builtin-read",
        triggers=("read the file|read file|open the file|show the file|print the file|summari*e the file",),
        signs=(MessageSign.FILE,),
        tool="read_file",
    ),
    GroundingRule(
        name="builtin-time",
        triggers=(
            "what time is it|what is the time|what's the time|tell me the time|current time|the time now|time is it",
            "what day is it|what day is today|which day is it|day of the week is it|day is it today",
            "what date is it|today's date|current date|what is the date|what's the date",
            "tell me the date|what year is it|what month is it",
        ),
        tool="current_time",
    ),
    GroundingRule(
        name="builtin-calculate", triggers=("calculate|compute|work out",), signs=(MessageSign.SUM,), tool="calculator"
    ),
    GroundingRule(
        name="builtin-search",
        triggers=("search the docs|search the documents|search the documentation|in the docs|what do the docs say",),
        tool="search_docs",
    ),
)


class BuiltinTool(FunctionTool):
    """A tool that comes with mustcall. Before it runs, paths among its arguments are expanded (rule 80).

    Where there is a question, what the model passed is held to it first (`toolkit.holding`).
    """

    def __init__(
        self,
        name: str,
        description: str,
        schema: JsonObject,
        run: Callable[[JsonObject], Any],
        *,
        paths: Sequence[str] = (),
        values: Mapping[str, str] = MappingProxyType({}),
        question: Callable[[], str | None] = lambda: None,
        reports: ChangeReports,
    ) -> None:
        super().__init__(name, description, schema, run, settings=_SETTINGS)
        self._paths = tuple(paths)
        self._values = values
        self._question = question
        self._reports = reports

    def prepare(self, arguments: str, context: ToolContext) -> Callable[[], Any]:
        """Return the call, ready to be made; what was changed in its arguments is reported under the call's id."""
        log = AdaptationLog()
        given: JsonObject = msgspec.json.decode(arguments)
        held = hold_arguments(self.name, given, self._question() or "", log)
        expanded = expand_arguments(held, self._paths, self._values, log, tool=self.name)
        if log.entries:
            self._reports.add(context.call.id, log.entries)
        return super().prepare(msgspec.json.encode(expanded).decode(), context)


def builtin_tools(
    roots: Roots,
    *,
    documents: Documents | None = None,
    values: Mapping[str, str] | None = None,
    reports: ChangeReports | None = None,
    question: Callable[[], str | None] = lambda: None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> tuple[FunctionTool, ...]:
    """Return the built-in tools; `values` are the variables paths are expanded with, none by default (rule 80).

    `question` gives what the person asked where arguments are to be held to it (small models), else None.
    """
    known, noted = values or {}, reports or ChangeReports()

    def listing(arguments: JsonObject) -> str:
        return list_directory(roots, arguments.get("path", "."))

    def reading(arguments: JsonObject) -> str:
        return read_file(roots, arguments["path"], arguments.get("first_line", 1))

    def calculating(arguments: JsonObject) -> str:
        expression = " ".join(readable(arguments["expression"]).split())
        return f"{expression} = {show_number(compute(expression))}"

    def telling(arguments: JsonObject) -> str:
        return current_time(now(), arguments.get("zone"))

    tools: list[FunctionTool] = [
        BuiltinTool(
            "list_directory",
            "List the files in a folder.",
            _schema((), path=_text("The folder, such as /tmp; the current one, ., by default.")),
            listing,
            paths=("path",),
            values=known,
            question=question,
            reports=noted,
        ),
        BuiltinTool(
            "read_file",
            "Read a text file, some lines at a time.",
            _schema(
                ("path",),
                path=_text("The file, such as notes.txt."),
                first_line={"type": "integer", "minimum": 1, "description": "Where to begin; 1 is the first line."},
            ),
            reading,
            paths=("path",),
            values=known,
            question=question,
            reports=noted,
        ),
        BuiltinTool(
            "calculator",
            "Compute an arithmetic expression.",
            _schema(expression={**_text(_EXPRESSION), "maxLength": LONGEST}),
            calculating,
            question=question,
            reports=noted,
        ),
        BuiltinTool(
            "current_time",
            "Tell the date and time.",
            _schema((), zone=_text("A time zone, such as Europe/Oslo; the local one by default.")),
            telling,
            question=question,
            reports=noted,
        ),
    ]
    if documents is not None:
        folder = documents

        def searching(arguments: JsonObject) -> str:
            return folder.answer(arguments["query"])

        tools.append(
            BuiltinTool(
                "search_docs",
                f"Search the documents in {folder.folder.name}.",
                _schema(query=_text("Words to look for.")),
                searching,
                question=question,
                reports=noted,
            )
        )
    return tuple(tools)


def _text(description: str) -> JsonObject:
    return {"type": "string", "description": description}


def _schema(required: Sequence[str] | None = None, /, **properties: JsonObject) -> JsonObject:
    """Return the schema of an object; every property is required unless it is said which are."""
    wanted = list(properties) if required is None else list(required)
    return {"type": "object", "properties": properties, "required": wanted, "additionalProperties": False}
