"""The benchmark's own package for tests: its data, its checker with the model registry stubbed, its tool conversion."""

import importlib
import sys
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

from mustcall.core.origin import JsonObject
from mustcall.evals.bfcl.checking import Call
from mustcall.evals.bfcl.entries import BenchmarkCase, BenchmarkFunction, Truth, read_entries
from mustcall.evals.bfcl.offers import offered_name
from mustcall.evals.bfcl.source import PACKAGE
from mustcall.upstream.artifacts.fetching import fetch
from mustcall.upstream.artifacts.places import cache_directory

__all__ = ["Reference", "perfect_calls", "read_set", "readied_package"]

#: Where the product itself keeps it; looked up before any test has another cache.
_CACHE = cache_directory("evals")


@cache
def readied_package() -> Path:
    """Return the package, fetched once into the user's cache; test workers wait for the one that fetches."""
    return fetch(PACKAGE, _CACHE)


@cache
def read_set(name: str) -> tuple[BenchmarkCase, ...]:
    """Return the entries of a set."""
    return read_entries(readied_package(), name)


class Reference:
    """The package's own code, as far as it runs without the packages it depends on."""

    def __init__(self) -> None:
        with _importable(readied_package()):
            checker = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")
            enums = importlib.import_module("bfcl_eval.constants.enums")
            types = importlib.import_module("bfcl_eval.constants.type_mappings")
            handler = importlib.import_module("bfcl_eval.model_handler.utils")
        self._check = checker.ast_checker
        self._python = enums.Language.PYTHON
        self._convert = handler.convert_to_tool
        self._types = types.GORILLA_TO_OPENAPI
        self._style = enums.ModelStyle.OPENAI_COMPLETIONS

    def is_right(self, entry: BenchmarkCase, calls: Sequence[Call]) -> bool:
        """Tell whether the benchmark's checker takes these calls; where it breaks down, it does not."""
        functions = [{"name": each.name, "parameters": each.parameters} for each in entry.functions]
        truths = [{truth.name: truth.allowed} for truth in entry.truths]
        made = [{name: arguments} for name, arguments in calls]
        try:
            return self._check(functions, made, truths, self._python, entry.set, "any")["valid"]
        except (KeyError, TypeError, AttributeError):
            return False

    def tool(self, function: BenchmarkFunction) -> JsonObject:
        """Return a function as the benchmark sends it to an OpenAI-style endpoint."""
        described = {"name": function.name, "description": function.description, "parameters": function.parameters}
        return self._convert([described], self._types, self._style)[0]["function"]


#: What the package imports and no test needs: parsers of other languages, retries, its own command line.
_STUBBED = {
    "bfcl_eval.constants.model_config": (),
    "bfcl_eval.utils": (),
    "bfcl_eval.model_handler.parser.java_parser": ("parse_java_function_call",),
    "bfcl_eval.model_handler.parser.js_parser": ("parse_javascript_function_call",),
    "tenacity": ("retry", "retry_if_exception_message", "retry_if_exception_type", "wait_random_exponential"),
}


@contextmanager
def _importable(package: Path) -> Generator[None]:
    """Put the package on the path with its registry of models stubbed; take both away again."""
    before = dict(sys.modules)
    for name, members in _STUBBED.items():
        stub = ModuleType(name)
        vars(stub).update(dict.fromkeys(members))
        sys.modules[name] = stub
    # Every model is called under names without dots, as over HTTP.
    registry = defaultdict[str, SimpleNamespace](lambda: SimpleNamespace(underscore_to_dot=True))
    vars(sys.modules["bfcl_eval.constants.model_config"])["MODEL_CONFIG_MAPPING"] = registry
    sys.path.insert(0, str(package))
    try:
        yield
    finally:
        sys.path.remove(str(package))
        for name in [name for name in sys.modules if name.startswith("bfcl_eval") or name in _STUBBED]:
            del sys.modules[name]
            if name in before:
                sys.modules[name] = before[name]


def perfect_calls(entry: BenchmarkCase, *, last: bool = False, sparing: bool = False) -> list[Call]:
    """Return a right answer: the first of the allowed values, or the last; `sparing` leaves out what may be."""
    return [(offered_name(truth.name), _arguments(truth, last=last, sparing=sparing)) for truth in entry.truths]


def _arguments(truth: Truth, *, last: bool, sparing: bool) -> JsonObject:
    found: JsonObject = {}
    for name, allowed in truth.allowed.items():
        values = [value for value in allowed if value != ""]
        if values and not (sparing and "" in allowed):
            found[name] = _value(values[-1 if last else 0], last=last)
    return found


def _value(allowed: Any, *, last: bool) -> Any:
    """Return a value an alternative stands for: the values of an object's keys are lists of alternatives."""
    match allowed:
        case dict():
            alternatives = cast("dict[str, list[Any]]", allowed)
            picked = {key: [each for each in values if each != ""] for key, values in alternatives.items()}
            return {key: values[-1 if last else 0] for key, values in picked.items() if values}
        case list():
            items = cast("list[Any]", allowed)
            return [_value(each, last=last) if isinstance(each, dict) else each for each in items]
        case _:
            return allowed
