"""The benchmark as a suite: its entries as questions, its rules as grades."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from mustcall.core.errors import ConfigError
from mustcall.core.tools import Tool
from mustcall.evals.asking.rows import MadeCall
from mustcall.evals.bfcl.checking import reply_problem
from mustcall.evals.bfcl.entries import SETS, WITHOUT_CALLS, BenchmarkCase, read_entries
from mustcall.evals.bfcl.offers import offered_name, write_tool
from mustcall.evals.bfcl.source import PACKAGE
from mustcall.evals.questions import AskedCall, Question
from mustcall.evals.suites import Grade, are_valid

__all__ = ["BfclSuite"]

#: Several functions are right together, so none can be named.
_SEVERAL = frozenset({"parallel_multiple"})


class BfclSuite:
    """The sets of a package that was fetched; each is read when it is first asked for."""

    name = "bfcl"
    version = PACKAGE.sha256[:16]

    def __init__(self, package: Path) -> None:
        self._package = package
        self._read: dict[str, Mapping[str, BenchmarkCase]] = {}
        self._tools: dict[str, tuple[Tool, ...]] = {}

    def sets(self, choice: AskedCall | None) -> tuple[str, ...]:
        """Return the sets; where a call is demanded, not those whose right answer is none."""
        match choice:
            case None | AskedCall.AUTO:
                return SETS
            case AskedCall.REQUIRED:
                left = WITHOUT_CALLS
            case AskedCall.NAMED:
                left = WITHOUT_CALLS | _SEVERAL
        return tuple(name for name in SETS if name not in left)

    def questions(self, name: str, choice: AskedCall | None) -> Sequence[Question]:
        """Return the questions of a set; without a choice the model decides, as on the leaderboard."""
        demand = choice or AskedCall.AUTO
        return [
            Question(
                id=entry.id,
                set=name,
                messages=entry.messages,
                tools=self._offer(entry),
                demand=demand,
                named=offered_name(entry.truths[0].name) if demand is AskedCall.NAMED else None,
            )
            for entry in self._entries(name).values()
        ]

    def words(self, question: str) -> str:
        """Return the last thing the user says."""
        return self._entry(question).messages[-1].text

    def grade(self, question: str, calls: Sequence[MadeCall]) -> Grade:
        """Grade calls by the AST rules."""
        entry = self._entry(question)
        problem = reply_problem(entry, calls)
        return Grade(
            called=bool(calls),
            valid=are_valid(calls, self._offer(entry)),
            right=problem is None,
            problem=problem or "",
        )

    def _entries(self, name: str) -> Mapping[str, BenchmarkCase]:
        if name not in self._read:
            self._read[name] = {entry.id: entry for entry in read_entries(self._package, name)}
        return self._read[name]

    def _entry(self, question: str) -> BenchmarkCase:
        # Ids begin with the name of their set; the longest name that fits is the set's.
        fitting = [name for name in SETS if question.startswith(f"{name}_")]
        name = max(fitting, key=len, default=None)
        entry = self._entries(name).get(question) if name is not None else None
        if entry is None:
            raise ConfigError(f"{PACKAGE.name} have no question {question!r}")
        return entry

    def _offer(self, entry: BenchmarkCase) -> tuple[Tool, ...]:
        if entry.id not in self._tools:
            self._tools[entry.id] = tuple(write_tool(function) for function in entry.functions)
        return self._tools[entry.id]
