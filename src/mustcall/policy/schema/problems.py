"""What is wrong with a value, in words that name the field and what it takes, and never repeat what was written.

Words come from the schema alone. A key that the schema does not name is the model's text and is written as `*`. Which
part of a schema a value fails is decided in `checker`.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.policy.schema.subschemas import as_list, as_object, rewrite

__all__ = ["MAX_PROBLEMS", "Problem", "declared_names", "describe_problems", "expected", "one_line", "written"]

#: How many problems are put into words (rule 84).
MAX_PROBLEMS = 5
_MOST_OPTIONS = 12
_MOST_WORDS = 200
_ENCODER = msgspec.json.Encoder(decimal_format="number")


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong: the field (`trip.legs[0].day`, empty at the top) and what was expected there."""

    path: str
    expected: str


def describe_problems(problems: tuple[Problem, ...]) -> str:
    """Say in one neutral line what is wrong, five things at most: fields and what they take, nothing of the text."""
    told = [f"{problem.path or 'top level'}: {problem.expected}" for problem in problems[:MAX_PROBLEMS]]
    more = len(problems) - MAX_PROBLEMS
    return "; ".join(told) + (f"; and {more} more" if more > 0 else "")


def expected(keyword: str, details: dict[str, Any], parent: JsonObject) -> str:
    """Return what a keyword of a schema wanted, from the library's details about its failure."""
    limit = details.get("limit")
    match keyword:
        case "type":
            return " or ".join(sorted(str(name) for name in as_list(details.get("types"))))
        case "enum":
            return "one of " + _listed([_spelt(option) for option in as_list(details.get("options"))])
        case "const":
            return _spelt(details.get("expected_value"))
        case "additionalProperties" | "unevaluatedProperties":
            allowed = list(as_object(parent.get("properties")) or {})
            return "no fields but " + _listed(allowed) if allowed else "no fields"
        case "anyOf" | "oneOf":
            return " or ".join(sorted(as_list(details.get("types")))) or "exactly one of the declared forms"
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


def _spelt(value: Any) -> str:
    return _ENCODER.encode(value).decode()


def one_line(words: str) -> str:
    """Return words from a schema as one short line."""
    line = " ".join(words.split())
    return line if len(line) <= _MOST_WORDS else line[: _MOST_WORDS - 1] + "…"


def declared_names(schema: JsonObject) -> frozenset[str]:
    """Return the names the schema itself uses: any other key in a path is the model's text."""
    names: set[str] = set()

    def collect(node: JsonObject, _path: tuple[str | int, ...]) -> JsonObject:
        names.update(as_object(node.get("properties")) or {})
        names.update(name for name in as_list(node.get("required")) if isinstance(name, str))
        return node

    rewrite(schema, collect)
    return frozenset(names)


def written(path: Sequence[str | int], names: frozenset[str]) -> str:
    """Return a place in a value in words: declared names as they are, all others as `*`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if step in names else "*")
    return one_line(text)
