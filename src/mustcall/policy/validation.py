"""Whether JSON text is sound and fits a schema, and what is wrong with it in words that never repeat the text.

Sound means that every reader gets the same value from it: one JSON text without duplicate keys, `NaN`, lone
surrogates, numbers out of any range or nesting over 100. A schema is compiled once (cached by its text, bounded) by
`jsonschema-rs`, which is told never to fetch anything; one it refuses is no reason to fail: it is reported as not
checkable. `format` is an annotation, not a check, as JSON Schema has it. Which schema applies is decided elsewhere.

Cost: linear in the text. Valid arguments cost one decode and one `is_valid`: about 4 µs for a small object.
"""

import json
import re
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.policy.subschemas import MAX_DEPTH, as_list, as_object, rewrite

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

__all__ = [
    "MAX_PROBLEMS",
    "Document",
    "Problem",
    "Unreadable",
    "describe_problems",
    "fits",
    "problems_in",
    "read_documents",
    "read_json",
    "read_plain",
    "schema_fault",
    "validator_for",
    "write_json",
]

#: How many problems are put into words (rule 84), and how many are kept at all.
MAX_PROBLEMS = 5
_MOST_KEPT = 20
_MOST_OPTIONS = 12
_MOST_WORDS = 200
_LARGEST_CACHED = 65_536
_BACKTRACKS = 100_000
_MAX_EXPONENT = 400
_MOST_DOCUMENTS = 10_000

_DRAFT_4 = frozenset({"exclusiveMinimum", "exclusiveMaximum"})
_BLANKS = re.compile(r"[ \t\r\n]*+")
_STRUCTURE = re.compile(r'"(?:[^"\\]++|\\.)*+("?)|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ENCODER = msgspec.json.Encoder(decimal_format="number")


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong: the field (`trip.legs[0].day`, empty at the top) and what was expected there."""

    path: str
    expected: str


class Document(msgspec.Struct, frozen=True):
    """One JSON value and its own text. Fractions are `Decimal`, so writing it again loses nothing."""

    value: Any
    text: str


class Unreadable(Exception):
    """The text is not sound JSON. `truncated` says that it ends inside a string or bracket. Never leaves policy."""

    def __init__(self, expected: str, *, truncated: bool = False) -> None:
        super().__init__(expected)
        self.problem = Problem("", expected)
        self.truncated = truncated


class _Refused(ValueError):
    """The text is JSON of a kind that readers disagree about."""


def read_documents(text: str) -> list[Document]:
    """Read the JSON values that stand one behind the other in a text; none in a blank one."""
    if not text.isascii() and not _encodable(text):
        raise Unreadable("well-formed Unicode text")
    if text.count("{") + text.count("[") > MAX_DEPTH:
        depth, cut = _structure(text)
        if depth > MAX_DEPTH:
            raise Unreadable(f"nesting of at most {MAX_DEPTH} levels", truncated=cut)
    documents: list[Document] = []
    position = 0 if text.startswith("{") else _skip_blanks(text, 0)
    while position < len(text):
        try:
            value, end = _DECODER.raw_decode(text, position)
        except _Refused as refused:
            raise Unreadable(str(refused)) from None
        except (ValueError, RecursionError):
            cut = _structure(text)[1]
            expected = "complete JSON, which ended too early" if cut else "valid JSON"
            raise Unreadable(expected, truncated=cut) from None
        if len(documents) == _MOST_DOCUMENTS:
            raise Unreadable("one JSON value")
        documents.append(Document(value, text[position:end]))
        position = end if end == len(text) else _skip_blanks(text, end)
    if "\\u" in text and _SURROGATE.search(text) and not all(_writable(document.value) for document in documents):
        raise Unreadable("well-formed Unicode text")
    return documents


def read_plain(text: str) -> JsonObject | None:
    """Return the object that a text is if it is an easy one, None if `read_documents` must look.

    Most arguments are easy: ASCII, nothing below the first level, and as many colons as fields, so none stands twice.
    """
    if not (text.startswith("{") and text.isascii()) or text.find("{", 1) >= 0 or text.find("[") >= 0 or "\\u" in text:
        return None
    try:
        value, end = _PLAIN.raw_decode(text)
    except ValueError:
        return None
    return value if end == len(text) and text.count(":") == len(value) else None


def read_json(text: str) -> Any:
    """Read the one JSON value a text is, or raise `Unreadable`."""
    documents = read_documents(text)
    if len(documents) != 1:
        raise Unreadable("one JSON value" if documents else "a JSON value, not an empty text")
    return documents[0].value


def write_json(value: Any) -> str:
    """Write a value read here, every number as it was."""
    return _ENCODER.encode(value).decode()


def _skip_blanks(text: str, position: int) -> int:
    found = _BLANKS.match(text, position)
    assert found is not None  # the pattern matches nothing, too
    return found.end()


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _writable(value: Any) -> bool:
    try:
        _ENCODER.encode(value)
    except UnicodeEncodeError:
        return False
    return True


def _structure(text: str) -> tuple[int, bool]:
    """Return how deep brackets nest, and whether a string or bracket is open at the end (rule 123)."""
    depth = deepest = 0
    for found in _STRUCTURE.finditer(text):
        match text[found.start()]:
            case "{" | "[":
                depth += 1
                deepest = max(deepest, depth)
            case "}" | "]":
                depth = max(0, depth - 1)
            case _:
                if not found.group(1):
                    return deepest, True
    return deepest, depth > 0


def _unique(pairs: list[tuple[str, Any]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _Refused("each field only once")
    return value


def _fraction(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise _Refused("numbers within range") from None
    if len(text) > 1024 or abs(value.adjusted()) > _MAX_EXPONENT:
        raise _Refused("numbers within range")
    return value


def _constant(_text: str) -> None:
    raise _Refused("valid JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_fraction, parse_constant=_constant)
_PLAIN = json.JSONDecoder(parse_float=_fraction, parse_constant=_constant)


def validator_for(schema: JsonObject) -> "Validator | None":
    """Return the compiled validator, None if the schema cannot be compiled without fetching or at all."""
    built = _built(schema)
    return None if isinstance(built, tuple) else built


def schema_fault(schema: JsonObject) -> tuple[str | int, ...] | None:
    """Return None for a schema that compiles, else where its first fault is (empty if nobody can say)."""
    built = _built(schema)
    return built if isinstance(built, tuple) else None


def _built(schema: JsonObject) -> "Validator | tuple[str | int, ...]":
    try:
        text = msgspec.json.encode(schema).decode()
    except (ValueError, TypeError, RecursionError):
        return ()
    return _cached(text) if len(text) <= _LARGEST_CACHED else _build(text)


def _build(text: str) -> "Validator | tuple[str | int, ...]":
    """Compile as written, else without an unknown `$schema`, else as draft 4 where its boolean limits are the fault."""
    # Imported here because it costs 30 ms that `import mustcall` does not owe.
    from jsonschema_rs import Draft4Validator, FancyRegexOptions, validator_for  # noqa: PLC0415

    schema = cast("JsonObject", msgspec.json.decode(text))
    try:
        if '"nullable":true' in text:
            schema = rewrite(schema, _with_null)
    except RecursionError:
        return ()
    bare = {key: value for key, value in schema.items() if key != "$schema"}
    patterns = FancyRegexOptions(backtrack_limit=_BACKTRACKS)
    fault: tuple[str | int, ...] = ()
    for compiler, form in ((validator_for, schema), (validator_for, bare), (Draft4Validator, bare)):
        if compiler is Draft4Validator and not _DRAFT_4.intersection(fault[-1:]):
            break
        try:
            return compiler(form, offline=True, validate_formats=False, pattern_options=patterns)
        except ValueError as error:
            fault = fault or tuple(cast("ValidationError", error).instance_path if hasattr(error, "kind") else ())
    return fault


_cached = lru_cache(maxsize=1024)(_build)


def _with_null(node: JsonObject, _path: tuple[str | int, ...]) -> JsonObject:
    """OpenAPI's `nullable`, which JSON Schema does not know but tools are written with."""
    if node.get("nullable") is not True:
        return node
    return {"anyOf": [{key: value for key, value in node.items() if key != "nullable"}, {"type": "null"}]}


def problems_in(schema: JsonObject, value: Any) -> tuple[Problem, ...]:
    """Return what is wrong with a value, the first twenty things at most; nothing if the schema cannot be compiled."""
    validator = validator_for(schema)
    if validator is None:
        return ()
    names = _declared_names(schema)
    try:
        errors = list(islice(validator.iter_errors(value), _MOST_KEPT))
    except ValueError:  # a value the library cannot carry
        return (Problem("", "a value within bounds"),)
    found = (_problem(_telling(error), schema, names) for error in errors)
    return tuple(dict.fromkeys(found))


def _telling(error: "ValidationError", left: int = 4) -> "ValidationError":
    """Of a failed union whose value has the type of one branch only, tell what is wrong with that branch."""
    branches: list[list[ValidationError]] = error.kind.as_dict().get("context", [])
    if not left or error.kind.name not in ("anyOf", "oneOf"):
        return error
    fitting = [
        branch
        for branch in branches
        if branch
        and not any(
            inner.kind.name in ("type", "const", "enum", "false schema") and inner.instance_path == error.instance_path
            for inner in branch
        )
    ]
    return _telling(fitting[0][0], left - 1) if len(fitting) == 1 else error


def _problem(error: "ValidationError", schema: JsonObject, names: frozenset[str]) -> Problem:
    details = error.kind.as_dict()
    path: list[str | int] = list(error.instance_path)
    parent = _at(schema, error.schema_path[:-1])
    keyword = error.kind.name
    if keyword == "required":
        name = str(details.get("property", ""))
        path.append(name)
        field = as_object((as_object(parent.get("properties")) or {}).get(name)) or {}
        declared = field.get("type")
        expected = f"{declared}, required" if isinstance(declared, str) else "required"
    else:
        expected = _expected(keyword, details, parent)
    return Problem(_written(path, names), _line(expected))


def _expected(keyword: str, details: dict[str, Any], parent: JsonObject) -> str:
    limit = details.get("limit")
    match keyword:
        case "type":
            return " or ".join(sorted(str(name) for name in as_list(details.get("types"))))
        case "enum":
            return "one of " + _listed([write_json(option) for option in as_list(details.get("options"))])
        case "const":
            return write_json(details.get("expected_value"))
        case "additionalProperties" | "unevaluatedProperties":
            allowed = list(as_object(parent.get("properties")) or {})
            return "no fields but " + _listed(allowed) if allowed else "no fields"
        case "anyOf" | "oneOf":
            types = {
                name
                for branch in as_list(details.get("context"))
                for inner in branch
                if inner.kind.name == "type"
                for name in inner.kind.as_dict()["types"]
            }
            return " or ".join(sorted(types)) if types else "exactly one of the declared forms"
        case "minimum" | "minLength" | "minItems" | "minProperties":
            return f"at least {limit}{_UNITS.get(keyword, '')}"
        case "maximum" | "maxLength" | "maxItems" | "maxProperties":
            return f"at most {limit}{_UNITS.get(keyword, '')}"
        case "exclusiveMinimum":
            return f"more than {limit}"
        case "exclusiveMaximum":
            return f"less than {limit}"
        case "multipleOf":
            return f"a multiple of {details.get('multiple_of')}"
        case "pattern":
            return f"text that matches {details.get('pattern')}"
        case "uniqueItems":
            return "items that all differ"
        case _:
            return f"what the schema says under {keyword}"


_UNITS = {
    "minLength": " characters",
    "maxLength": " characters",
    "minItems": " items",
    "maxItems": " items",
    "minProperties": " fields",
    "maxProperties": " fields",
}


def _listed(words: list[str]) -> str:
    more = len(words) - _MOST_OPTIONS
    return ", ".join(words[:_MOST_OPTIONS]) + (f" and {more} more" if more > 0 else "")


def _line(words: str) -> str:
    line = " ".join(words.split())
    return line if len(line) <= _MOST_WORDS else line[: _MOST_WORDS - 1] + "…"


def _at(schema: JsonObject, path: list[str | int]) -> JsonObject:
    target: Any = schema
    for step in path:
        if isinstance(step, str):
            target = (as_object(target) or {}).get(step)
        else:
            members = as_list(target)
            target = members[step] if step < len(members) else None
    return as_object(target) or {}


def _declared_names(schema: JsonObject) -> frozenset[str]:
    """Return the names the schema itself uses: any other key in a path is the model's text."""
    names: set[str] = set()

    def collect(node: JsonObject, _path: tuple[str | int, ...]) -> JsonObject:
        names.update(as_object(node.get("properties")) or {})
        names.update(name for name in as_list(node.get("required")) if isinstance(name, str))
        return node

    rewrite(schema, collect)
    return frozenset(names)


def _written(path: list[str | int], names: frozenset[str]) -> str:
    written = ""
    for step in path:
        if isinstance(step, int):
            written += f"[{step}]"
        else:
            written += ("." if written else "") + (step if step in names else "*")
    return _line(written)


def fits(validator: "Validator", value: Any) -> bool:
    """Whether the value is valid; one the library cannot carry is not."""
    try:
        return validator.is_valid(value)
    except ValueError:
        return False


def describe_problems(problems: tuple[Problem, ...]) -> str:
    """Say in one neutral line what is wrong, five things at most: fields and what they take, nothing of the text."""
    told = [f"{problem.path or 'top level'}: {problem.expected}" for problem in problems[:MAX_PROBLEMS]]
    more = len(problems) - MAX_PROBLEMS
    return "; ".join(told) + (f"; and {more} more" if more > 0 else "")
