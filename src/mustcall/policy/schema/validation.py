"""Whether JSON text is sound, and the way to all that is said about its fit with a schema.

Sound means that every reader gets the same value from it: one JSON text without duplicate keys, `NaN`, lone
surrogates, numbers out of any range or nesting over 100. How a value is held against a schema is decided in
`checker`, whose names are passed on here.

Cost: linear in the text. Valid arguments cost one decode and one `is_valid`: about 4 µs for a small object.
"""

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any, cast

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.core.text.possessive import any_number
from mustcall.policy.schema.checker import Checker, fits, problems_in, schema_fault, validator_for
from mustcall.policy.schema.problems import MAX_PROBLEMS, Problem, describe_problems
from mustcall.policy.schema.subschemas import MAX_DEPTH

__all__ = [
    "MAX_PROBLEMS",
    "Checker",
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

_MAX_EXPONENT = 400
_MOST_DOCUMENTS = 10_000

_BLANKS = re.compile(r"[ \t\r\n]*+")
_STRUCTURE = re.compile('"' + any_number(r'[^"\\]++|\\.') + r'("?)|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ENCODER = msgspec.json.Encoder(decimal_format="number")
_OBJECT = msgspec.json.Decoder(dict[str, object])
_NESTED: frozenset[type] = frozenset({dict, list})
#: Values that every reader reads the same. A fraction is exact only as a `Decimal`.
_SIMPLE: frozenset[type] = frozenset({str, int, bool, type(None)})


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

    Most arguments are easy: one object with nothing below it but lists of scalars.
    """
    if not text.startswith("{") or "\\u" in text or not (text.isascii() or _encodable(text)):
        return None
    opened = text.count("{") + text.count("[")
    if opened > MAX_DEPTH:
        return None
    quick = _read_quickly(text)
    if quick is not None:
        return quick
    try:
        value, end = _DECODER.raw_decode(text)
    except ValueError:
        return None
    if end != len(text) or (opened > 1 and not all(map(_is_flat, value.values()))):
        return None
    return value


def _read_quickly(text: str) -> JsonObject | None:
    """Return the flat object that a text is if it has no fraction, and as many colons as fields: none stands twice."""
    try:
        value = _OBJECT.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if text.count(":") != len(value):
        return None
    for item in value.values():
        if type(item) in _SIMPLE:
            continue
        if not isinstance(item, list) or not _SIMPLE.issuperset(map(type, cast("list[object]", item))):
            return None
    return value


def _is_flat(value: object) -> bool:
    if isinstance(value, list):
        return _NESTED.isdisjoint(map(type, cast("list[object]", value)))
    return not isinstance(value, dict)


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
