"""The loss-free changes that make a value fit its schema, and the one lossy change that can be asked for.

A string that spells a value of the declared type, a list of one where a single value is declared, a field in other
case or separators, a null in an optional field (rules 106, 131). Only with `drops` are fields left out that a closed
schema does not declare (rule 141 d). Each change is told as a row of `repairs.TABLE`. Whether the result fits is the
caller's to check.

Cost: linear in the value and the schemas that apply to it.
"""

import re
from decimal import Decimal
from typing import Any, cast

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.dialects.names import fold
from mustcall.policy.limits.work_allowance import spend
from mustcall.policy.schema.leniency import relax
from mustcall.policy.schema.repairs import RepairMade
from mustcall.policy.schema.subschemas import Path, as_list, as_object, resolve, spell, types_of
from mustcall.policy.schema.validation import Document, Unreadable, read_documents

__all__ = ["Mender"]

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,999})\Z")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,300})(?:\.[0-9]{1,300})?(?:[eE][-+]?[0-9]{1,2})?\Z")
_MOST_CONJUNCTS = 32
#: Steps that are counted for each of them (`work_allowance`).
_LOOK = 200
_DEEPEST_READING = 32
_MOST_CHANGES = 20


class _Reading(msgspec.Struct, frozen=True):
    """How a string in one place may be read: the schemas that apply and the types they admit."""

    schemas: list[JsonObject]
    types: frozenset[str]


def _written_member(text: str, schemas: list[JsonObject]) -> int | float | None:
    """Return the one number or truth of an enumeration that a string spells, None if there is none.

    Some upstreams take enumerations of strings alone, so that is how their models say such a value.
    """
    for schema in schemas:
        members = as_list(schema.get("enum"))
        if members and text not in members:
            meant = [member for member in members if isinstance(member, int | float) and spell(member) == text]
            return meant[0] if len(meant) == 1 else None
    return None


class Mender:
    """Makes the loss-free changes to one value, and says each in words. A value that needs none stays the same object.

    A part of a value is read by all schemas that apply to it: references, `allOf`, and the branch of a union if only
    one can be meant. Where two could be, nothing is changed.
    """

    def __init__(self, root: JsonObject, *, null_is_absent: bool, drops: bool = False) -> None:
        self._changes: list[RepairMade] = []
        self._untold: dict[str, int] = {}
        self._root = root
        self._null_is_absent = null_is_absent
        self._drops = drops

    @property
    def changes(self) -> tuple[RepairMade, ...]:
        """What was changed, the first of them in words."""
        return (*self._changes, *(RepairMade(repair, f"and {count} more") for repair, count in self._untold.items()))

    def mend(self, value: Any, schemas: list[JsonObject], path: Path) -> Any:
        """Return the value as the schemas mean it."""
        match value:
            case str():
                return self._mend_string(value, self._reading(schemas), path)
            case dict():
                return self._mend_object(cast("JsonObject", value), self._applying(schemas, "object"), path)
            case list():
                items = cast("list[Any]", value)
                only = self._only_item(items, schemas)
                if only is not items:
                    self._note("list_of_one", path, "a list of one read as its item")
                    return only
                return self._mend_array(items, self._applying(schemas, "array"), path)
            case _:
                return value

    def _only_item(self, value: list[Any], schemas: list[JsonObject]) -> Any:
        """Return the only item of a list where a single value of its type is declared, else the list."""
        only: object = value[0] if len(value) == 1 else None
        kind = _SCALARS.get(type(only))
        if kind is None:
            return value
        types = self._types(self._applying(schemas, ""))
        if types is None or "array" in types:
            return value
        wanted = types & {"number", "integer"} if kind == "number" else types & {kind}
        return only if wanted else value

    def _applying(self, schemas: list[JsonObject], kind: str) -> list[JsonObject]:
        found: list[JsonObject] = []
        waiting = list(reversed(schemas))
        while waiting and len(found) < _MOST_CONJUNCTS:
            schema = waiting.pop()
            found.append(schema)
            target = resolve(self._root, schema["$ref"]) if "$ref" in schema else None
            members = [target, *(as_object(member) for member in as_list(schema.get("allOf")))]
            for word in ("anyOf", "oneOf") if kind else ():
                branches = [branch for member in as_list(schema.get(word)) if (branch := as_object(member)) is not None]
                fitting = [branch for branch in branches if kind in (types_of(branch, self._root) or (kind,))]
                members.extend(fitting if len(fitting) == 1 else ())
            waiting.extend(member for member in reversed(members) if member is not None)
        spend(len(found) * _LOOK)
        return found

    def _types(self, schemas: list[JsonObject]) -> frozenset[str] | None:
        types: frozenset[str] | None = None
        for schema in schemas:
            found = types_of(schema, self._root)
            if found is not None:
                found = found | {"integer"} if "number" in found else found
                types = found if types is None else types & found
        return types

    def _reading(self, schemas: list[JsonObject]) -> "_Reading":
        applying = self._applying(schemas, "")
        return _Reading(applying, self._types(applying) or frozenset({"string"}))

    def _note(self, repair: str, path: Path, words: str) -> None:
        if len(self._changes) == _MOST_CHANGES:
            self._untold[repair] = self._untold.get(repair, 0) + 1
            return
        written = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
        self._changes.append(RepairMade(repair, f"{written.removeprefix('.') or 'arguments'}: {words}"))

    def _mend_string(self, text: str, reading: "_Reading", path: Path) -> Any:
        """Read a string as the type its field declares, if it declares no string (rule 131)."""
        types = reading.types
        if "string" in types:
            member = _written_member(text, reading.schemas)
            if member is None:
                return text
            self._note("string_as_type", path, "a string read as the value it spells")
            return member
        bare = text.strip()
        folded = bare.casefold()
        if "null" in types and folded in ("null", "none"):
            self._note("string_as_type", path, "a string read as null")
            return None
        if "boolean" in types and folded in ("true", "false"):
            self._note("string_as_type", path, "a string read as boolean")
            return folded == "true"
        if "integer" in types and _INTEGER.match(bare):
            self._note("string_as_type", path, "a string read as integer")
            return int(bare)
        if "integer" in types and _NUMBER.match(bare):
            number = Decimal(bare)
            if "number" in types or number == number.to_integral_value():
                self._note("string_as_type", path, "a string read as number")
                return number
        if bare[:1] in ("{", "[") and len(path) < _DEEPEST_READING:
            return self._mend_written_structure(text, reading, path)
        return text

    def _mend_written_structure(self, text: str, reading: "_Reading", path: Path) -> Any:
        document = _read_structure(text)
        if document is None:
            return text
        value = document.value
        kind = "object" if isinstance(value, dict) else "array"
        if kind not in reading.types:
            return text
        self._note("string_as_type", path, f"a string read as {kind}")
        return self.mend(value, reading.schemas, path)

    def _mend_object(self, value: JsonObject, schemas: list[JsonObject], path: Path) -> JsonObject:
        declared: dict[str, list[JsonObject]] = {}
        others: list[JsonObject] = []
        required: set[str] = set()
        for schema in schemas:
            for name, member in (as_object(schema.get("properties")) or {}).items():
                inner = as_object(member)
                declared.setdefault(name, []).extend([] if inner is None else [inner])
            other = as_object(schema.get("additionalProperties"))
            others.extend([] if other is None else [other])
            required.update(name for name in as_list(schema.get("required")) if isinstance(name, str))
        free_keys = any(others) or any(schema.get("patternProperties") for schema in schemas)
        closed = not free_keys and any(schema.get("additionalProperties") is False for schema in schemas)
        meant = {} if free_keys else _meant_names(value, declared)
        mended: JsonObject = {}
        for key, item in value.items():
            name = meant.get(key, key)
            inner_path = (*path, name if name in declared else "*")
            if name != key:
                self._note("key_spelling", inner_path, "a field written in other case or separators")
            if self._drops and closed and name not in declared:
                self._note("undeclared_dropped", path, "a field that is not declared left out")
                continue
            if item is None and name in declared and name not in required and self._drops_null(declared[name]):
                self._note("null_left_out", inner_path, "a null left out of an optional field")
                continue
            mended[name] = self.mend(item, declared.get(name, others), inner_path)
        same = mended.keys() == value.keys() and all(mended[key] is item for key, item in value.items())
        return value if same else mended

    def _drops_null(self, schemas: list[JsonObject]) -> bool:
        types = self._types(self._applying(schemas, "")) if self._null_is_absent else None
        return types is not None and "null" not in types

    def _mend_array(self, value: list[Any], schemas: list[JsonObject], path: Path) -> list[Any]:
        rest: list[JsonObject] = []
        places: dict[int, list[JsonObject]] = {}
        for schema in schemas:
            items = as_object(schema.get("items"))
            rest.extend([] if items is None else [items])
            for index, member in enumerate(as_list(schema.get("prefixItems")) or as_list(schema.get("items"))):
                inner = as_object(member)
                places.setdefault(index, []).extend([] if inner is None else [inner])
        if not rest and not places:
            return value
        reading = self._reading(rest)
        mended: list[Any] = []
        for index, item in enumerate(value):
            if isinstance(item, str) and index not in places:
                mended.append(self._mend_string(item, reading, (*path, index)))
            elif isinstance(item, (str, dict, list)):
                mended.append(self.mend(item, places.get(index, rest), (*path, index)))
            else:
                mended.append(item)
        return value if all(map(_is, mended, value)) else mended


#: What a list of one may hold: values that need no more reading.
_SCALARS: dict[type, str] = {str: "string", bool: "boolean", int: "number", Decimal: "number"}


def _read_structure(text: str) -> Document | None:
    """Read a string that is one object or list, leniently if need be; None if it is not."""
    for written in (text, None):
        if written is None:
            relaxed = relax(text)
            if relaxed is None or relaxed.added:
                return None
            written = relaxed.text  # noqa: PLW2901 - the second try
        try:
            documents = read_documents(written)
        except Unreadable:
            continue
        return documents[0] if len(documents) == 1 else None
    return None


def _is(new: Any, old: Any) -> bool:
    return new is old


def _meant_names(value: JsonObject, declared: dict[str, list[JsonObject]]) -> dict[str, str]:
    """Return which declared name each undeclared key means: the only one that differs in case or separators alone."""
    strays = [key for key in value if key not in declared]
    if not strays:
        return {}
    names: dict[str, list[str]] = {}
    for name in declared:
        names.setdefault(fold(name), []).append(name)
    written: dict[str, list[str]] = {}
    for key in strays:
        written.setdefault(fold(key), []).append(key)
    return {
        keys[0]: matches[0]
        for folded, keys in written.items()
        if len(keys) == 1 and len(matches := names.get(folded, [])) == 1 and matches[0] not in value
    }
