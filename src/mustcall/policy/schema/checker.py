"""The one place where values are held against a schema: compiled once, never fetched for, with a bound on the work.

A schema is compiled by `jsonschema-rs` (kept by its text, bounded). One that is larger than `LARGEST_SCHEMA` or whose
work cannot be bounded (`workload`) is no reason to fail: it is reported as not checkable. Of one that the library
refuses, the rest is checked by once the faulty parts are left out (`subschemas`). A value that would take more than
`MOST_STEPS` steps does not fit: nobody can say that it does. `format` is an
annotation, not a check, as JSON Schema has it. Which schema applies is decided elsewhere; what is wrong with a value
that does not fit is found in `misfits`.

Cost: linear in value times the schema's effort. Valid arguments cost one `is_valid`: about 1 µs for a small object.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import msgspec

from mustcall.core.memo import Bounded, Store
from mustcall.core.origin import JsonObject
from mustcall.policy.limits.work_allowance import spend
from mustcall.policy.schema.misfits import Misfits
from mustcall.policy.schema.problems import Problem
from mustcall.policy.schema.subschemas import MOST_FAULTS, Path, as_object, rewrite, without_faults
from mustcall.policy.schema.workload import MOST_STEPS, SchemaWorkload, Uncountable, effort_of

if TYPE_CHECKING:
    from jsonschema_rs import Registry, ValidationError, Validator

__all__ = [
    "LARGEST_SCHEMA",
    "Checker",
    "first_fault",
    "fits",
    "problems_in",
    "schema_fault",
    "validator_for",
]

#: The longest text of a schema that is compiled, in characters: compiling it takes about 50 ms, and is done once.
LARGEST_SCHEMA = 131_072
_LARGEST_CACHED = 65_536
#: The bytes that all compiled schemas take that are kept.
_MOST_CACHED = 128 * 1024 * 1024
#: What a compiled schema takes, in bytes (measured, rounded up): a character, a pattern, a character of a pattern, a
#: class of characters, a class by its Unicode property, and whatever is repeated, for each time.
_CHARACTER, _PATTERN, _SIGN, _CLASS, _PROPERTY, _REPEATED = 24, 4_096, 64, 2_048, 56_320, 256
_COSTLY = re.compile(r"(\\[pP])|\\[wWdDsS]|\[\^|(\))?\{\s*+0*+(\d{0,6}+)\d*+\s*+(?:,\s*+0*+(\d{0,6}+)\d*+\s*+)?\}")
#: What counting and compiling a character of a schema costs, in steps: measured at up to 3 µs.
_COMPILING = 100
_BACKTRACKS = 100_000
#: The largest automaton of one pattern, in bytes; a pattern above it makes the schema not checkable.
_LARGEST_PATTERN = 1_048_576
#: How many compiled parts of one schema are kept.
_MOST_PARTS = 256

#: Words that draft 4 gives another form, and what they are about.
_DRAFT_4 = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
#: How many characters of one schema are looked through for faults, each time from the start.
_MOST_SEARCHED = 262_144
_TOO_DEAR = Problem("", f"a value that can be checked in {MOST_STEPS:,} steps")
_BASE = "urn:mustcall:schema"


class Checker:
    """A compiled schema and what checking by it may cost."""

    __slots__ = ("_effort", "_library", "_parts", "cheap", "is_valid", "schema", "weight", "whole")

    def __init__(self, library: "Validator", schema: JsonObject, effort: SchemaWorkload, weight: int) -> None:
        #: Whether all of the schema is checked by; otherwise faulty parts were left out.
        self.whole = True
        #: About how many bytes it takes.
        self.weight = weight
        self._library = library
        self._effort = effort
        self._parts: _Parts | None = None
        #: The schema as it was compiled.
        self.schema = schema
        #: Whether values of any size may be checked.
        self.cheap = effort.bounded
        #: The library's own verdict, to be asked for where the work is known to be affordable.
        self.is_valid = library.is_valid

    def affords(self, value: Any) -> bool:
        """Tell whether a value can be checked within `MOST_STEPS`."""
        return self._effort.affords(value)

    def problems(self, value: Any) -> tuple[Problem, ...]:
        """Return what is wrong with a value, the first twenty things at most."""
        if not self.affords(value):
            return (_TOO_DEAR,)
        try:
            if self.is_valid(value):
                return ()
            if self._parts is None:
                self._parts = _Parts(type(self._library), self.schema)
            return Misfits(self._parts, self.schema, self._effort).find(value)
        except ValueError:  # a value the library cannot carry
            return (Problem("", "a value within bounds"),)


def fits(checker: Checker, value: Any) -> bool:
    """Whether the value is valid; one the library cannot carry or that takes too many steps is not."""
    try:
        return (checker.cheap or checker.affords(value)) and checker.is_valid(value)
    except ValueError:
        return False


def problems_in(schema: JsonObject, value: Any) -> tuple[Problem, ...]:
    """Return what is wrong with a value, the first twenty things at most; nothing if the schema is not checkable."""
    checker = validator_for(schema)
    return () if checker is None else checker.problems(value)


class _Built(msgspec.Struct, frozen=True):
    """What became of a schema: what checks by it, if anything does, and where its first fault is, if it has one."""

    checker: Checker | None = None
    fault: Path | None = None


def validator_for(schema: JsonObject) -> Checker | None:
    """Return the compiled schema, without its faulty parts; None if nothing can be checked by it within bounds."""
    return _built(schema).checker


def schema_fault(schema: JsonObject) -> Path | None:
    """Return None for a schema without a fault, else where its first fault is (empty if nobody can say).

    One that is only too dear to check has none: what an upstream makes of it is for the upstream to say.
    """
    return _built(schema).fault


def _built(schema: JsonObject) -> _Built:
    try:
        text = msgspec.json.encode(schema).decode()
    except (ValueError, TypeError, RecursionError):
        return _Built(fault=())
    if len(text) > LARGEST_SCHEMA:
        return _Built()
    checkers = _checkers.here()
    known = None if checkers is None else checkers.get(text)
    if known is None:
        known = _build(text)
        if checkers is not None and len(text) <= _LARGEST_CACHED:
            checkers.keep(text, known, len(text) if known.checker is None else known.checker.weight)
    return known


def _weight(text: str, schema: JsonObject) -> int:
    """Return about how many bytes a schema takes when it is compiled."""
    weight = _CHARACTER * len(text)
    return weight + sum(map(_pattern_weight, _patterns_in(schema))) if '"pattern' in text else weight


def _patterns_in(schema: JsonObject) -> Iterator[str]:
    waiting: list[Any] = [schema]
    for node in waiting:
        if isinstance(node, dict):
            each = cast("JsonObject", node)
            if isinstance(each.get("pattern"), str):
                yield each["pattern"]
            yield from as_object(each.get("patternProperties")) or ()
            waiting += each.values()
        elif isinstance(node, list):
            waiting += cast("list[Any]", node)


def _pattern_weight(pattern: str) -> int:
    """Return about how many bytes a pattern takes: a repeated group all that stands in it, so many times."""
    weight, widest, groups = _PATTERN + _SIGN * len(pattern), _REPEATED, 1
    for property_, group, least, most in _COSTLY.findall(pattern):
        times = int(most or least or 0)
        if group:
            groups *= max(times, 1)
        elif times:
            weight += times * widest
        else:
            width = _PROPERTY if property_ else _CLASS
            weight, widest = weight + width, max(widest, width)
    return min(weight * groups, _LARGEST_PATTERN)


def _build(text: str) -> _Built:
    """Compile all of a schema, else what is left of it without its faults."""
    schema = cast("JsonObject", msgspec.json.decode(text))
    try:
        if '"nullable":true' in text:
            schema = rewrite(schema, _with_null)
        found = _compiled(schema)
        if not isinstance(found, tuple):
            return _Built(found)
        if "$schema" not in schema or found[-1:] == ("items",):  # an older draft that is named reads them itself
            schema = rewrite(_without_draft(schema), _without_tuples)
            whole = _compiled(schema)
            if not isinstance(whole, tuple):
                return _Built(whole, found)
        most = max(1, min(MOST_FAULTS, _MOST_SEARCHED // len(text)))
        rest = without_faults(schema, first_fault, _tell_nobody, most=most, admitting=True)
        checker = None if rest is None else _compiled(rest)
    except RecursionError:
        return _Built(fault=())
    if not isinstance(checker, Checker):
        return _Built(fault=found)
    checker.whole = False
    return _Built(checker, found)


def first_fault(schema: JsonObject) -> Path | None:
    """Return where the first fault of a schema is, without looking for more and without keeping anything."""
    found = _compiled(schema)
    return found if isinstance(found, tuple) else None


def _tell_nobody(_path: Path, _words: str) -> None:
    """What is left out here is reported by whoever offers the schema."""


def _compiled(schema: JsonObject) -> Checker | Path | None:
    """Compile a schema as written, else without an unknown `$schema`, else with the limits of draft 4 rewritten.

    Return where the first fault is if nothing takes it, None if it makes too much work.
    """
    # Imported here because it costs 30 ms that `import mustcall` does not owe.
    from jsonschema_rs import validator_for  # noqa: PLC0415

    text = msgspec.json.encode(schema).decode()
    spend(len(text) * _COMPILING)  # compiled all the same: what does not fit in here is compiled elsewhere
    try:
        effort = effort_of(schema)
    except Uncountable:
        return None
    fault: Path = ()
    form = schema
    for change in (None, _without_draft, _with_numbers):
        if change is _with_numbers and _DRAFT_4.keys().isdisjoint(fault[-1:]):
            break
        form = form if change is None else change(form)
        try:
            library = validator_for(form, offline=True, validate_formats=False, pattern_options=_patterns())
        except ValueError as error:
            fault = fault or tuple(cast("ValidationError", error).instance_path if hasattr(error, "kind") else ())
        else:
            return None if effort.unknown else Checker(library, form, effort, _weight(text, schema))
    return fault


def _without_draft(schema: JsonObject) -> JsonObject:
    return {key: value for key, value in schema.items() if key != "$schema"}


def _with_numbers(schema: JsonObject) -> JsonObject:
    """Return a schema with the exclusive limits of draft 4, which were `true` beside a number, as numbers."""
    return rewrite(schema, _number_limits)


def _number_limits(node: JsonObject, _path: Path) -> JsonObject:
    for word, limit in _DRAFT_4.items():
        exclusive = node.get(word)
        if isinstance(exclusive, bool):
            node = {key: value for key, value in node.items() if key != word}
            if exclusive and limit in node:
                node[word] = node.pop(limit)
    return node


def _without_tuples(node: JsonObject, _path: Path) -> JsonObject:
    """Return a schema with an array in `items` as drafts since 2020-12 write it; upstreams refuse the older form."""
    if not isinstance(node.get("items"), list) or "prefixItems" in node:
        return node
    rest = {key: value for key, value in node.items() if key not in ("items", "additionalItems")}
    further = {"items": node["additionalItems"]} if "additionalItems" in node else {}
    return {**rest, "prefixItems": node["items"], **further}


def _patterns() -> Any:
    from jsonschema_rs import FancyRegexOptions  # noqa: PLC0415

    return FancyRegexOptions(backtrack_limit=_BACKTRACKS, size_limit=_LARGEST_PATTERN)


_checkers: Store[Bounded[str, _Built]] = Store(lambda: Bounded(8192, _MOST_CACHED))


def _with_null(node: JsonObject, _path: tuple[str | int, ...]) -> JsonObject:
    """OpenAPI's `nullable`, which JSON Schema does not know but tools are written with."""
    if node.get("nullable") is not True:
        return node
    return {"anyOf": [{key: value for key, value in node.items() if key != "nullable"}, {"type": "null"}]}


class _Parts:
    """Compiled parts of one schema, made when they are asked for; `misfits` asks."""

    __slots__ = ("_compiler", "_kept", "_registry", "_schema", "tuples", "whole_references")

    def __init__(self, compiler: "type[Validator]", schema: JsonObject) -> None:
        self._compiler: Any = compiler
        self._schema = schema
        self._registry: Registry | None = None
        self._kept: dict[str, Validator] = {}
        #: What decides between drafts: arrays in `items` and what stands beside a `$ref`.
        self.tuples = compiler.__name__ != "Draft202012Validator"
        self.whole_references = compiler.__name__ in ("Draft4Validator", "Draft6Validator", "Draft7Validator")

    def at(self, pointer: str) -> JsonObject:
        """Return a schema that refers to one part of the document."""
        return {"$ref": _BASE + pointer}

    def compiled(self, schema: JsonObject) -> "Validator":
        """Return a small schema compiled, which may refer to parts of the document; kept by its text."""
        key = msgspec.json.encode(schema).decode()
        found = self._kept.get(key)
        if found is None:
            from jsonschema_rs import Registry  # noqa: PLC0415

            if self._registry is None:
                self._registry = Registry([(_BASE, self._schema)], draft=_DRAFTS[self._compiler.__name__])
            if len(self._kept) >= _MOST_PARTS:
                self._kept.clear()
            found = self._kept[key] = self._compiler(
                schema, registry=self._registry, offline=True, validate_formats=False, pattern_options=_patterns()
            )
        return found


#: The numbers by which the library knows its drafts.
_DRAFTS = {
    "Draft4Validator": 4,
    "Draft6Validator": 6,
    "Draft7Validator": 7,
    "Draft201909Validator": 19,
    "Draft202012Validator": 20,
}
