"""Arguments that fit a JSON schema, and arguments that surely do not.

Pure but for the source of chance that is handed in. It reads the part of JSON Schema that tools use in practice and
judges nothing: whoever wants to know whether a value fits asks a validator.
"""

import random
from typing import Any, cast

from mustcall.core.origin import JsonObject
from mustcall.testing.offers import as_object, as_objects

__all__ = ["sample", "spoil"]

_DEEPEST = 6


def sample(schema: Any, source: random.Random, mark: str, root: Any = None, depth: int = 0) -> Any:
    """Return a value that fits the schema; every free string in it holds the mark."""
    fields, root = as_object(schema), schema if root is None else root
    if "const" in fields:
        return fields["const"]
    if isinstance(fields.get("enum"), list) and fields["enum"]:
        return source.choice(fields["enum"])
    if isinstance(fields.get("$ref"), str):
        return sample(_resolve(root, fields["$ref"]), source, mark, root, depth + 1)
    for word in ("anyOf", "oneOf"):
        branches = as_objects(fields.get(word))
        if branches:
            return sample(source.choice(branches), source, mark, root, depth + 1)
    kind: Any = fields.get("type")
    if isinstance(kind, list):
        kind = next((word for word in cast("list[Any]", kind) if word != "null"), "null")  # words of a JSON array
    match kind:
        case "string":
            return _text(fields, source, mark)
        case "integer":
            return source.randint(int(fields.get("minimum", 0)), int(fields.get("maximum", 90)))
        case "number":
            return source.choice([0, 1.5, 12, 3.25])
        case "boolean":
            return source.random() < 0.5
        case "null":
            return None
        case "array":
            least = int(fields.get("minItems", 0))
            size = least if depth > _DEEPEST else source.randint(least, least + 2)
            return [sample(fields.get("items"), source, mark, root, depth + 1) for _ in range(size)]
        case "object":
            return _object(fields, source, mark, root, depth)
        case _:
            return _object(fields, source, mark, root, depth) if "properties" in fields else mark


def spoil(value: JsonObject, schema: JsonObject, source: random.Random, mark: str) -> Any:
    """Return arguments like these that do not fit: a required one missing, one of a wrong type, or no object at all.

    No loss-free reading can mend the result. A schema without properties takes any object, so that only a list is
    wrong there.
    """
    required = [name for name in schema.get("required", ()) if name in value]
    typed = [name for name, declared in as_object(schema.get("properties")).items() if as_object(declared).get("type")]
    ways = ["missing"] * bool(required) + ["mistyped"] * 2 * bool(typed) + ["list"]
    match source.choice(ways):
        case "missing":
            left_out = source.choice(required)
            return {name: item for name, item in value.items() if name != left_out}
        case "mistyped":
            name = source.choice(typed)
            wrong: Any = [[mark]] if as_object(schema["properties"][name])["type"] == "object" else {mark: [mark]}
            return value | {name: wrong}
        case _:
            return [mark, value]


def _text(fields: JsonObject, source: random.Random, mark: str) -> str:
    around = source.choice(["{}", "{}", "a {} b", 'say "{}"', "{} \\ \n ü", "<b>{}</b>", "x {{}} {}", "5 {}"])
    text = around.format(mark)
    least, most = int(fields.get("minLength", 0)), fields.get("maxLength")
    return text.ljust(least, "x")[:most] if isinstance(most, int) else text.ljust(least, "x")


def _object(fields: JsonObject, source: random.Random, mark: str, root: Any, depth: int) -> JsonObject:
    required: Any = fields.get("required") or ()
    return {
        name: sample(declared, source, mark, root, depth + 1)
        for name, declared in as_object(fields.get("properties")).items()
        if name in required or (depth < _DEEPEST and source.random() < 0.5)
    }


def _resolve(root: Any, reference: str) -> Any:
    found = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        found = as_object(found).get(step, {}) if step else found
    return found
