"""What a suite is, which of its questions are asked, and in which order. Pure.

A suite knows its questions and which calls are right; it knows no upstream, no file and no figures.
"""

import random
from collections.abc import Sequence
from itertools import zip_longest
from typing import Protocol

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.tools import Tool
from mustcall.evals.asking.rows import MadeCall
from mustcall.evals.questions import AskedCall, Question
from mustcall.evals.scoring import read_arguments

__all__ = ["Grade", "Suite", "are_valid", "check_sets", "choose_questions", "pick_questions", "read_ids"]


class Grade(msgspec.Struct, frozen=True, kw_only=True):
    """What a reply is worth: it made a call, every call was of an offered tool and fits its schema, the suite's rules.

    `problem` says why it is not right.
    """

    called: bool = False
    valid: bool = False
    right: bool = False
    problem: str = ""


class Suite(Protocol):
    """A collection of questions with rules for their answers."""

    @property
    def name(self) -> str:
        """What the command line calls it."""
        ...

    @property
    def version(self) -> str:
        """Which data it asks; replies to other data cannot be scored with it."""
        ...

    def sets(self, choice: AskedCall | None) -> tuple[str, ...]:
        """Return the sets that can be asked with a choice (None: with the suite's own), in the order of reports."""
        ...

    def questions(self, name: str, choice: AskedCall | None) -> Sequence[Question]:
        """Return the questions of a set, in the suite's order."""
        ...

    def words(self, question: str) -> str:
        """Return what the user says in the question with this id, for reports."""
        ...

    def grade(self, question: str, calls: Sequence[MadeCall]) -> Grade:
        """Grade the calls of a reply to the question with this id; raise `ConfigError` for an unknown one."""
        ...


def check_sets(suite: Suite, wanted: Sequence[str], choice: AskedCall | None) -> tuple[str, ...]:
    """Return the sets to ask, all of them where none is named; raise `ConfigError` for one that cannot be asked."""
    possible = suite.sets(choice)
    for name in wanted:
        if name in possible:
            continue
        if choice is not None and name in suite.sets(None):
            raise ConfigError(
                f"the set {name!r} of {suite.name} cannot be asked with --choice {choice}: its right answers are not "
                f"such calls; sets that can be: {', '.join(possible)}"
            )
        raise ConfigError(f"{suite.name} has no set called {name!r}; its sets are: {', '.join(possible)}")
    return tuple(name for name in possible if not wanted or name in wanted)


def choose_questions(
    suite: Suite, sets: Sequence[str], choice: AskedCall | None, *, limit: int | None, seed: int
) -> tuple[Question, ...]:
    """Return the questions in the order they are asked: of each set in turn, so that a run cut short is a fair sample.

    With `limit`, so many of each set, drawn by the seed: the same number gives the same questions.
    """
    drawn: list[list[Question]] = []
    for name in sets:
        questions = list(suite.questions(name, choice))
        if limit is not None and limit < len(questions):
            places = random.Random(f"{seed}:{name}").sample(range(len(questions)), limit)  # noqa: S311  not a secret
            questions = [questions[place] for place in places]
        drawn.append(questions)
    return tuple(question for row in zip_longest(*drawn) for question in row if question is not None)


def pick_questions(
    suite: Suite, sets: Sequence[str], choice: AskedCall | None, ids: Sequence[str]
) -> tuple[Question, ...]:
    """Return the questions of the sets whose ids are listed; raise `ConfigError` for an id that the suite has not.

    The order is that of `choose_questions`: of each set in turn.
    """
    listed = dict.fromkeys(ids)
    everything = {question.id for name in suite.sets(None) for question in suite.questions(name, None)}
    for wanted in listed:
        if wanted not in everything:
            raise ConfigError(f"{suite.name} has no question {wanted!r}")
    drawn = [[question for question in suite.questions(name, choice) if question.id in listed] for name in sets]
    picked = tuple(question for row in zip_longest(*drawn) for question in row if question is not None)
    if not picked:
        raise ConfigError(f"none of the {len(listed)} listed questions is of the sets {', '.join(sets)}")
    return picked


def read_ids(text: str) -> tuple[str, ...]:
    """Return the ids of a list of questions: one on each line; empty lines and lines that start with # do not count."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def are_valid(calls: Sequence[MadeCall], tools: Sequence[Tool]) -> bool:
    """Tell whether there is a call, and every one is of an offered tool with arguments that fit its schema."""
    offered = {tool.name: tool for tool in tools}
    return bool(calls) and all(read_arguments(offered.get(call.name), call.arguments) is not None for call in calls)
