"""Reads the benchmark's sets out of its package: questions, function documents, right answers. Judges nothing."""

import zipfile
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.origin import JsonObject
from mustcall.evals.questions import Said, Speaker

__all__ = ["SETS", "WITHOUT_CALLS", "BenchmarkCase", "BenchmarkFunction", "Truth", "read_entries"]

#: The sets that can be asked, in the order of reports; every one is a single turn with functions in Python's types.
SETS = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "irrelevance",
    "live_simple",
    "live_multiple",
    "live_irrelevance",
)
#: The sets whose right answer is no call.
WITHOUT_CALLS = frozenset({"irrelevance", "live_irrelevance"})

_DATA = "bfcl_eval/data/BFCL_v4_{}.json"
_TRUTH = "bfcl_eval/data/possible_answer/BFCL_v4_{}.json"


_T = TypeVar("_T")


class BenchmarkFunction(msgspec.Struct, frozen=True):
    """A function on offer; its parameters are in the benchmark's own types."""

    name: str
    description: str
    parameters: JsonObject

    @property
    def properties(self) -> dict[str, JsonObject]:
        """The schema of each parameter."""
        return self.parameters["properties"]

    @property
    def required(self) -> list[str]:
        """The parameters that must be given."""
        return self.parameters.get("required", [])


class Truth(msgspec.Struct, frozen=True):
    """One right call: the values each parameter may have. An empty text among them means it may be left out."""

    name: str
    allowed: dict[str, list[Any]]


class BenchmarkCase(msgspec.Struct, frozen=True, kw_only=True):
    """One test case. `truths` are the calls that must be made, in any order; none where no call is right."""

    id: str
    set: str
    messages: tuple[Said, ...]
    functions: tuple[BenchmarkFunction, ...]
    truths: tuple[Truth, ...] = ()


class _Message(msgspec.Struct, frozen=True):
    role: Speaker
    content: str


class _Line(msgspec.Struct, frozen=True):
    id: str
    question: tuple[tuple[_Message, ...], ...]
    function: tuple[BenchmarkFunction, ...]


class _Answer(msgspec.Struct, frozen=True):
    id: str
    ground_truth: tuple[dict[str, dict[str, list[Any]]], ...]


def read_entries(package: Path, name: str) -> tuple[BenchmarkCase, ...]:
    """Return the entries of a set, in the benchmark's order; raise `ConfigError` for a package without it."""
    try:
        with zipfile.ZipFile(package) as archive:
            lines = _decode(archive.read(_DATA.format(name)), _Line)
            answers = [] if name in WITHOUT_CALLS else _decode(archive.read(_TRUTH.format(name)), _Answer)
    except (OSError, KeyError, zipfile.BadZipFile, msgspec.DecodeError) as error:
        raise ConfigError(f"cannot read the set {name!r} of {package.name}: {error}") from None
    truths = {answer.id: answer.ground_truth for answer in answers}
    return tuple(_entry(line, name, truths.get(line.id, ())) for line in lines)


def _decode(data: bytes, kind: type[_T]) -> list[_T]:
    return [msgspec.json.decode(line, type=kind) for line in data.splitlines() if line.strip()]


def _entry(line: _Line, name: str, truths: tuple[dict[str, dict[str, list[Any]]], ...]) -> BenchmarkCase:
    return BenchmarkCase(
        id=line.id,
        set=name,
        messages=tuple(Said(message.role, message.content) for turn in line.question for message in turn),
        functions=line.function,
        truths=tuple(Truth(function, allowed) for truth in truths for function, allowed in truth.items()),
    )
