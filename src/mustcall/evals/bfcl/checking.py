"""Whether the calls of a reply are the right ones, by the benchmark's AST rules. Pure.

One function must be called once, or each of several calls made in any order, as the set says. Arguments must be there
if required, be declared, and be right by `values`. Where no call is right, any readable call is wrong.
"""

import json
from collections.abc import Sequence
from typing import Any, cast

from mustcall.core.origin import JsonObject
from mustcall.evals.asking.rows import MadeCall
from mustcall.evals.bfcl.entries import WITHOUT_CALLS, BenchmarkCase, BenchmarkFunction, Truth
from mustcall.evals.bfcl.offers import offered_name
from mustcall.evals.bfcl.values import may_be_absent, value_problem

__all__ = ["read_calls", "reply_problem"]

Call = tuple[str, JsonObject]


def read_calls(calls: Sequence[MadeCall]) -> list[Call] | None:
    """Return names and arguments; None if the arguments of one are not a JSON object: then nothing was called."""
    read: list[Call] = []
    for call in calls:
        try:
            arguments: Any = json.loads(call.arguments)
        except (ValueError, RecursionError):
            return None
        if not isinstance(arguments, dict):
            return None
        read.append((call.name, cast("JsonObject", arguments)))
    return read


def reply_problem(entry: BenchmarkCase, calls: Sequence[MadeCall]) -> str | None:
    """Return why the calls of a reply are not right, None if they are."""
    read = read_calls(calls)
    if entry.set in WITHOUT_CALLS:
        return "a function was called" if read else None
    if read is None:
        return "the arguments are not a JSON object"
    if len(read) != len(entry.truths):
        return f"{len(read)} calls instead of {len(entry.truths)}"
    return _unmatched(entry, read)


def _unmatched(entry: BenchmarkCase, calls: list[Call]) -> str | None:
    """Find a call for each right one in turn, the first that fits; one call stands for one."""
    left = list(calls)
    for truth in entry.truths:
        function = next((each for each in entry.functions if each.name == truth.name), entry.functions[0])
        problems = [_call_problem(function, call, truth) for call in left]
        if None not in problems:
            return f"{offered_name(truth.name)}: {problems[0]}"
        del left[problems.index(None)]
    return None


def _call_problem(function: BenchmarkFunction, call: Call, truth: Truth) -> str | None:
    name, arguments = call
    if name != offered_name(function.name):
        return "another function was called"
    for wanted in function.required:
        if wanted not in arguments:
            return f"{wanted} is missing"
    for parameter, value in arguments.items():
        schema = function.properties.get(parameter)
        if schema is None or parameter not in truth.allowed:
            return f"{parameter} is not expected"
        problem = value_problem(value, schema, truth.allowed[parameter])
        if problem is not None:
            return f"{parameter} {problem}"
    for parameter, allowed in truth.allowed.items():
        if parameter not in arguments and not may_be_absent(allowed):
            return f"{parameter} is missing"
    return None
