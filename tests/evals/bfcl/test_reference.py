"""Our rules against the benchmark's own checker: every ground truth, right and damaged, and recorded replies."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from mustcall.evals.asking.rows import MadeCall
from mustcall.evals.bfcl.checking import Call, read_calls, reply_problem
from mustcall.evals.bfcl.entries import SETS, WITHOUT_CALLS, BenchmarkCase
from mustcall.evals.bfcl.offers import write_tool
from mustcall.evals.plain import read_plainly
from mustcall.policy.schema.validation import validator_for
from support.bfcl import Reference, perfect_calls, read_set
from support.examples import PROFILE

WITH_CALLS = [name for name in SETS if name not in WITHOUT_CALLS]
RECORDED = Path(__file__).parents[2] / "field" / "recorded" / "qwen2.5-coder-0.5b.llamacpp.jsonl"
#: What the benchmark puts behind every description before it converts functions.
REMARK = " Note that the provided function is in Python 3 syntax."
#: Values of every type, one of which is wrong for any argument.
ODD: tuple[Any, ...] = ("odd", "", 7, 7.5, True, None, [], ["odd"], [7], [{}], {}, {"odd": 1})
#: Every fourth ground truth is damaged, and every one under `deep`; each damage is done to each of them.
STRIDE = {"ci": 4, "deep": 1}


@cache
def reference() -> Reference:
    """The benchmark's checker, imported once."""
    return Reference()


def is_right(entry: BenchmarkCase, calls: list[Call]) -> bool:
    """Our own word on these calls."""
    return reply_problem(entry, [MadeCall(name, json.dumps(arguments)) for name, arguments in calls]) is None


def respelt(value: Any) -> Iterator[Any]:
    """The same value, nearly: another case, other punctuation, another number type, items changed."""
    match value:
        case bool():
            yield not value
        case str():
            yield value.upper()
            yield f" {value}, -_"
            yield f"{value} x"
            yield value.replace("'", '"')
        case int() | float():
            yield float(value)
            yield int(value)
            yield value + 1
            yield str(value)
        case list():
            items = cast("list[Any]", value)
            yield items[::-1]
            yield [*items, *items[:1]]
            yield items[1:]
            for each in items[:1]:
                yield from ([changed, *items[1:]] for changed in respelt(each))
        case dict():
            fields = cast("dict[str, Any]", value)
            yield {**fields, "unexpected": 1}
            for key, each in fields.items():
                yield {name: other for name, other in fields.items() if name != key}
                yield from ({**fields, key: changed} for changed in respelt(each))
        case _:
            pass


def damaged(calls: list[Call]) -> Iterator[list[Call]]:
    """Answers that differ from a right one in one thing."""
    yield []
    yield calls[::-1]
    yield calls[1:]
    yield [*calls, calls[0]]
    for place, (name, arguments) in enumerate(calls):

        def with_arguments(changed: dict[str, Any], place: int = place, name: str = name) -> list[Call]:
            return [*calls[:place], (name, changed), *calls[place + 1 :]]

        yield [*calls[:place], (f"{name}_other", arguments), *calls[place + 1 :]]
        yield with_arguments({})
        yield with_arguments({**arguments, "unexpected": 1})
        for parameter, value in arguments.items():
            yield with_arguments({key: each for key, each in arguments.items() if key != parameter})
            for odd in (*ODD, *respelt(value)):
                yield with_arguments({**arguments, parameter: odd})


@pytest.mark.parametrize("name", SETS)
def test_tools_are_the_benchmarks_own(name: str) -> None:
    """Every function is sent as the benchmark sends it, and its schema is one that can be checked against."""
    for entry in read_set(name):
        for function in entry.functions:
            tool = write_tool(function)
            noted = msgspec.structs.replace(function, description=f"{function.description}{REMARK}")
            theirs = reference().tool(noted)
            assert {"name": tool.name, "description": tool.description, "parameters": tool.parameters} == theirs
            assert validator_for(tool.parameters or {}) is not None


@pytest.mark.parametrize("name", WITH_CALLS)
def test_perfect_answers_agree(name: str) -> None:
    """An answer made of the allowed values is right by both, with and without what may be left out."""
    differing: list[str] = []
    right = 0
    for entry in read_set(name):
        for last, sparing in ((False, False), (True, False), (False, True)):
            calls = perfect_calls(entry, last=last, sparing=sparing)
            ours = is_right(entry, calls)
            right += ours
            if ours is not reference().is_right(entry, calls):
                differing.append(entry.id)
    assert differing == []
    assert right > 2.9 * len(read_set(name))


@pytest.mark.parametrize("name", WITH_CALLS)
def test_damaged_answers_agree(name: str) -> None:
    """An answer with one thing changed is right or wrong by both: names, counts, order, types, values, extras, gaps."""
    differing: list[tuple[str, list[Call]]] = []
    right = wrong = 0
    entries = read_set(name)[:: STRIDE[PROFILE]]
    for entry in entries:
        for calls in damaged(perfect_calls(entry)):
            ours = is_right(entry, calls)
            right, wrong = right + ours, wrong + (not ours)
            if ours is not reference().is_right(entry, calls):
                differing.append((entry.id, calls))
    assert differing == []
    assert right > 2 * len(entries)
    assert wrong > 20 * len(entries)


def test_recorded_replies_agree() -> None:
    """What a real model wrote, read plainly, is right or wrong by both."""
    known = {entry.id: entry for name in SETS for entry in read_set(name)}
    rows = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 168
    right: dict[str, int] = {}
    for row in rows:
        name, _, choice = row["id"].partition("/")
        entry = known[name]
        calls = read_plainly(row["text"])
        ours = reply_problem(entry, calls) is None
        theirs = not calls if entry.set in WITHOUT_CALLS else reference().is_right(entry, read_calls(calls) or [])
        assert ours is theirs, row["id"]
        if choice == "auto":
            right[entry.set] = right.get(entry.set, 0) + ours
    # The shares that were measured when the replies were recorded: 73 % of 45, 0 % of 44, 43 % of 44.
    assert right == {"simple_python": 33, "parallel": 0, "irrelevance": 19}
