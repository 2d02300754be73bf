"""A value that fits a JSON schema, made without randomness: what the demo puts into arguments.

Covers what tool schemas use: types, enums, constants, defaults, bounds, nested objects and arrays, references and
unions. A `pattern` is met only by luck (a few common shapes are tried); `not` and conditionals are ignored.
"""

import re
from collections.abc import Callable
from typing import Any, cast

from mustcall.core.origin import JsonObject
from mustcall.testing.offers import as_object, as_objects

__all__ = ["make_value"]

_DEEPEST = 8
_FORMATS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "127.0.0.1",
    "hostname": "example.com",
}
_GUESSES = ("demo", "DEMO", "1", "123", "0000", "AB12", "2026-01-31", "12:00", "#000000", "demo@example.com", "a", "A")


def make_value(schema: Any, pick_text: Callable[[str], str], name: str = "") -> Any:
    """Return a value for the schema; `pick_text` gives the text for a string of this name."""
    return _make(schema, as_object(schema), pick_text, name, 0)


def _make(schema: Any, root: JsonObject, pick_text: Callable[[str], str], name: str, depth: int) -> Any:
    fields = _resolve(as_object(schema), root)
    for key in ("const", "default"):
        if key in fields:
            return fields[key]
    choices: Any = fields.get("enum") or fields.get("examples")
    if isinstance(choices, list) and choices:
        return cast("list[Any]", choices)[0]  # JSON
    for union in ("anyOf", "oneOf"):
        if options := as_objects(fields.get(union)):
            best = next((option for option in options if option.get("type") != "null"), options[0])
            return _make(fields | {union: None} | best, root, pick_text, name, depth + 1)
    match _type_of(fields):
        case "object":
            return _make_object(fields, root, pick_text, depth)
        case "array":
            return _make_array(fields, root, pick_text, name, depth)
        case "integer":
            return int(_make_number(fields, 1))
        case "number":
            return _make_number(fields, 1)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return _make_text(fields, pick_text(name))


def _resolve(fields: JsonObject, root: JsonObject) -> JsonObject:
    for _ in range(_DEEPEST):
        reference = fields.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            break
        found: Any = root
        for step in reference.removeprefix("#").strip("/").split("/"):
            found = as_object(found).get(step.replace("~1", "/").replace("~0", "~")) if step else found
        fields = {key: value for key, value in fields.items() if key != "$ref"} | as_object(found)
    for part in as_objects(fields.get("allOf")):
        whole = _resolve(part, root)
        properties = as_object(fields.get("properties")) | as_object(whole.get("properties"))
        required = [*(fields.get("required") or ()), *(whole.get("required") or ())]
        fields = whole | fields | {"properties": properties, "required": required}
    return fields


def _type_of(fields: JsonObject) -> str:
    kind: Any = fields.get("type")
    if isinstance(kind, list):
        kind = next((one for one in cast("list[Any]", kind) if one != "null"), "null")  # JSON
    if isinstance(kind, str):
        return kind
    if fields.get("properties"):
        return "object"
    return "array" if "items" in fields else "string"


def _make_object(fields: JsonObject, root: JsonObject, pick_text: Callable[[str], str], depth: int) -> JsonObject:
    properties = as_object(fields.get("properties"))
    required = [str(key) for key in fields.get("required") or ()]
    wanted = required or (list(properties)[:1] if depth == 0 else [])
    if depth > _DEEPEST:
        return {}
    return {key: _make(properties.get(key), root, pick_text, key, depth + 1) for key in wanted}


def _make_array(
    fields: JsonObject, root: JsonObject, pick_text: Callable[[str], str], name: str, depth: int
) -> list[Any]:
    first = [_make(item, root, pick_text, name, depth + 1) for item in as_objects(fields.get("prefixItems"))]
    least = int(fields.get("minItems") or 0)
    wanted = least if depth > _DEEPEST or "maxItems" in fields else max(least, 1)
    missing = max(0, wanted - len(first))
    if not fields.get("uniqueItems"):
        return first + [_make(fields.get("items"), root, pick_text, name, depth + 1) for _ in range(missing)]
    return first + _make_distinct(as_object(fields.get("items")), root, pick_text, name, missing)


def _make_distinct(
    items: JsonObject, root: JsonObject, pick_text: Callable[[str], str], name: str, count: int
) -> list[Any]:
    fields = _resolve(items, root)
    if isinstance(fields.get("enum"), list):
        return list(fields["enum"][:count])
    one = _make(fields, root, pick_text, name, 1)
    if isinstance(one, int | float) and not isinstance(one, bool):
        return [one + number for number in range(count)]
    return [f"{one} {number + 1}" if number else one for number in range(count)]


def _make_number(fields: JsonObject, usual: float) -> float:
    step = fields.get("multipleOf") or 1
    low, high = fields.get("minimum"), fields.get("maximum")
    above, below = fields.get("exclusiveMinimum"), fields.get("exclusiveMaximum")
    value: float = usual
    if above is not None:
        value = max(value, above + step) if value <= above else value
    if low is not None:
        value = max(value, low)
    if high is not None:
        value = min(value, high)
    if below is not None and value >= below:
        value = below - step
    if fields.get("multipleOf"):
        rounded = -(-value // step) * step
        value = rounded if high is None or rounded <= high else value // step * step
    return value


def _make_text(fields: JsonObject, text: str) -> str:
    text = _FORMATS.get(str(fields.get("format")), text)
    pattern = fields.get("pattern")
    if isinstance(pattern, str):
        text = next((guess for guess in (text, *text.split(), *_GUESSES) if _matches(pattern, guess)), text)
    least, most = fields.get("minLength") or 0, fields.get("maxLength")
    text = text + "." * (int(least) - len(text))
    return text if most is None else text[: int(most)]


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return False
