"""Whether the arguments a model wrote may be delivered, and the loss-free changes that make them so.

The caller's own schema decides, whatever was sent upstream, so what a reduced schema dropped is enforced here (rule
130). Changed is only what cannot lose meaning (rules 106, 107, 131); all else is a problem that names the field and
what it takes, never what was written. Several complete objects in a row are one call only if each repeats the one
before or adds fields to it (a server that sends snapshots); others are a problem, because picking one would be a
guess. It never raises, whatever the text or the schema.

Cost: linear. Arguments that are valid and flat cost one decode, one `is_valid` and one look at their keys.
"""

import re
from decimal import Decimal
from itertools import pairwise
from typing import Any, cast

import msgspec

from mustcall.core.memo import Remembered
from mustcall.core.origin import JsonObject
from mustcall.core.parts import CallKind
from mustcall.core.tools import Tool
from mustcall.dialects.names import fold
from mustcall.policy.subschemas import (
    MAX_DEPTH,
    Path,
    as_list,
    as_object,
    deeper_than,
    hoist,
    resolve,
    spell,
    types_of,
)
from mustcall.policy.validation import (
    Document,
    Problem,
    Unreadable,
    describe_problems,
    fits,
    problems_in,
    read_documents,
    read_plain,
    validator_for,
    write_json,
)

__all__ = ["WRAPPED_FIELD", "Checked", "Problem", "check_arguments", "describe_problems", "object_schema"]

#: The field that holds the value of a tool whose schema is not that of an object.
WRAPPED_FIELD = "value"

_NOT_OBJECT = Problem("", "a JSON object")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,999})\Z")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,300})(?:\.[0-9]{1,300})?(?:[eE][-+]?[0-9]{1,2})?\Z")
_MOST_CONJUNCTS = 32
_DEEPEST_READING = 32
_MOST_CHANGES = 20
_NESTED = (dict, list)


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments after the check. They may be delivered if there is no problem."""

    #: The JSON text to deliver: the model's own where nothing was changed.
    arguments: str
    #: Each loss-free change in words, the first twenty; the rest is counted.
    changes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    #: The text ends inside a string or bracket (rule 123).
    truncated: bool = False
    #: The text is no sound JSON.
    unreadable: bool = False
    #: The tool's schema cannot be compiled: the arguments only had to be an object.
    unchecked: bool = False

    @property
    def valid(self) -> bool:
        """Whether the arguments may be delivered."""
        return not self.problems


def object_schema(schema: JsonObject) -> JsonObject:
    """Return the schema of the arguments as an object: itself, or one field of it where it admits no object.

    No wire can carry arguments that are not an object, so such a tool is offered and checked in this form.
    """
    types = types_of(schema, schema)
    if types is None or "object" in types or deeper_than(schema, MAX_DEPTH):
        return schema
    inner, definitions = hoist(schema, "part")
    wrapped: JsonObject = {"type": "object", "properties": {WRAPPED_FIELD: inner}, "required": [WRAPPED_FIELD]}
    return {**wrapped, "$defs": definitions} if definitions else wrapped


def check_arguments(tool: Tool, arguments: str, *, null_is_absent: bool | None = None) -> Checked:
    """Check the arguments of one call against the tool's own schema.

    `null_is_absent` reads a null in an optional field that takes none as leaving it out: where the schema was sent in
    strict form, that is how a model has to write it. Without a word that is the tool's `strict`.
    """
    if tool.kind is CallKind.CUSTOM:
        return Checked(arguments=arguments)
    schema = tool.parameters
    prepared = None if schema is None else _prepared.get(tool, make=lambda: _prepare(object_schema(schema)))
    plain = read_plain(arguments)
    if plain is not None and prepared is not None and prepared.takes(plain):
        return Checked(arguments=arguments)
    try:
        documents = read_documents(arguments)
        if _is_empty(documents):
            return _check_empty(schema, arguments)
        text, value, change = _one_object(arguments, documents)
    except Unreadable as unreadable:
        return Checked(
            arguments=arguments, problems=(unreadable.problem,), truncated=unreadable.truncated, unreadable=True
        )
    if prepared is None:
        return Checked(arguments=text, changes=change)
    absent = bool(tool.strict) if null_is_absent is None else null_is_absent
    return _check_object(_Subject(arguments, text, value, change), prepared, null_is_absent=absent)


class _Subject(msgspec.Struct, frozen=True):
    """What the model wrote, the object's text and value in it, and what was done to find it."""

    written: str
    text: str
    value: JsonObject
    changes: tuple[str, ...]


def _is_empty(documents: list[Document]) -> bool:
    if not documents:
        return True
    value = documents[0].value
    return len(documents) == 1 and (value is None or (isinstance(value, str) and not value.strip()))


def _check_empty(schema: JsonObject | None, written: str) -> Checked:
    """Read empty arguments as `{}`, if and only if that is valid (rules 107, 131)."""
    empty = Checked(arguments="{}", changes=("empty arguments read as {}",))
    if schema is None:
        return empty
    prepared = _prepare(object_schema(schema))
    checked = _check_object(_Subject(written, "{}", {}, empty.changes), prepared, null_is_absent=False)
    if checked.unchecked and schema.get("required"):
        return Checked(arguments=written, problems=(_NOT_OBJECT,), unchecked=True)
    return checked


def _one_object(written: str, documents: list[Document]) -> tuple[str, JsonObject, tuple[str, ...]]:
    """Return the one object meant, its text and what was done to find it, or raise `Unreadable`."""
    last = documents[-1]
    if len(documents) == 1 and isinstance(last.value, str):
        inner = read_documents(last.value)
        value = as_object(inner[0].value) if len(inner) == 1 else None
        if value is not None:
            return last.value, value, ("a JSON string that holds the object was unwrapped",)
    values = [value for document in documents if (value := as_object(document.value)) is not None]
    if len(values) < len(documents):
        raise Unreadable(_NOT_OBJECT.expected)
    if len(values) == 1:
        return written, values[0], ()
    if not all(_extends(new, old) for old, new in pairwise(values)):
        raise Unreadable("one JSON object, not several")
    return last.text, values[-1], (f"the last of {len(values)} snapshots of the arguments was taken",)


def _extends(new: Any, old: Any) -> bool:
    """Whether a value says all that an earlier one said: its objects may have more fields, all else is equal.

    A longer string or array is not an extension: two calls run together (`{"id": "1"}{"id": "12"}`) look alike.
    """
    if type(new) is not type(old):
        return False
    match old:
        case dict():
            longer = cast("JsonObject", new)
            return all(key in longer and _extends(longer[key], item) for key, item in cast("JsonObject", old).items())
        case list():
            items, others = cast("list[Any]", old), cast("list[Any]", new)
            return len(items) == len(others) and all(map(_extends, others, items))
        case _:
            return bool(new == old)


class _Prepared(msgspec.Struct, frozen=True):
    """A schema ready for checking: compiled if it can be, and the fields it declares."""

    schema: JsonObject
    validator: Any
    declared: JsonObject

    def takes(self, value: JsonObject) -> bool:
        """Tell whether an object with nothing below it fits as it is, and none of its keys can be a misspelt one."""
        return self.validator is not None and value.keys() <= self.declared.keys() and fits(self.validator, value)


_prepared: Remembered[_Prepared] = Remembered(512)


def _prepare(schema: JsonObject) -> _Prepared:
    return _Prepared(schema, validator_for(schema), as_object(schema.get("properties")) or {})


def _check_object(subject: _Subject, prepared: _Prepared, *, null_is_absent: bool) -> Checked:
    schema, validator = prepared.schema, prepared.validator
    if validator is None:
        return Checked(arguments=subject.text, changes=subject.changes, unchecked=True)
    value = subject.value
    valid = fits(validator, value)
    delivered = Checked(arguments=subject.text, changes=subject.changes)
    if valid and _is_plain(value, prepared.declared):
        return delivered
    mender = _Mender(schema, null_is_absent=null_is_absent)
    mended = mender.mend(value, [schema], ())
    if mender.changes and fits(validator, mended):
        return Checked(arguments=write_json(mended), changes=(*subject.changes, *mender.changes))
    if valid:
        return delivered
    problems = problems_in(schema, mended) or (Problem("", "arguments that fit the schema"),)
    return Checked(arguments=subject.written, problems=problems)


def _is_plain(value: JsonObject, declared: JsonObject) -> bool:
    """Whether no key can be a misspelt one: all are declared, and nothing lies below them."""
    for key, item in value.items():  # noqa: SIM110  a generator costs more than all it looks at
        if key not in declared or type(item) in _NESTED:
            return False
    return True


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


class _Mender:
    """Makes the loss-free changes to one value, and says each in words. A value that needs none stays the same object.

    A part of a value is read by all schemas that apply to it: references, `allOf`, and the branch of a union if only
    one can be meant. Where two could be, nothing is changed.
    """

    def __init__(self, root: JsonObject, *, null_is_absent: bool) -> None:
        self._changes: list[str] = []
        self._untold = 0
        self._root = root
        self._null_is_absent = null_is_absent

    @property
    def changes(self) -> tuple[str, ...]:
        """What was changed, the first of them in words."""
        more = (f"and {self._untold} more",) if self._untold else ()
        return (*self._changes, *more)

    def mend(self, value: Any, schemas: list[JsonObject], path: Path) -> Any:
        """Return the value as the schemas mean it."""
        match value:
            case str():
                return self._mend_string(value, self._reading(schemas), path)
            case dict():
                return self._mend_object(cast("JsonObject", value), self._applying(schemas, "object"), path)
            case list():
                return self._mend_array(cast("list[Any]", value), self._applying(schemas, "array"), path)
            case _:
                return value

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

    def _note(self, path: Path, words: str) -> None:
        if len(self._changes) == _MOST_CHANGES:
            self._untold += 1
            return
        written = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
        self._changes.append(f"{written.removeprefix('.') or 'arguments'}: {words}")

    def _mend_string(self, text: str, reading: "_Reading", path: Path) -> Any:
        """Read a string as the type its field declares, if it declares no string (rule 131)."""
        types = reading.types
        if "string" in types:
            member = _written_member(text, reading.schemas)
            if member is None:
                return text
            self._note(path, "a string read as the value it spells")
            return member
        bare = text.strip()
        folded = bare.casefold()
        if "null" in types and folded in ("null", "none"):
            self._note(path, "a string read as null")
            return None
        if "boolean" in types and folded in ("true", "false"):
            self._note(path, "a string read as boolean")
            return folded == "true"
        if "integer" in types and _INTEGER.match(bare):
            self._note(path, "a string read as integer")
            return int(bare)
        if "integer" in types and _NUMBER.match(bare):
            number = Decimal(bare)
            if "number" in types or number == number.to_integral_value():
                self._note(path, "a string read as number")
                return number
        if bare[:1] in ("{", "[") and len(path) < _DEEPEST_READING:
            return self._mend_written_structure(text, reading, path)
        return text

    def _mend_written_structure(self, text: str, reading: "_Reading", path: Path) -> Any:
        try:
            documents = read_documents(text)
        except Unreadable:
            return text
        value = documents[0].value
        kind = "object" if isinstance(value, dict) else "array"
        if len(documents) != 1 or kind not in reading.types:
            return text
        self._note(path, f"a string read as {kind}")
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
        meant = {} if free_keys else _meant_names(value, declared)
        mended: JsonObject = {}
        for key, item in value.items():
            name = meant.get(key, key)
            inner_path = (*path, name if name in declared else "*")
            if name != key:
                self._note(inner_path, "a field written in other case or separators")
            if item is None and name in declared and name not in required and self._drops_null(declared[name]):
                self._note(inner_path, "a null left out of an optional field")
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
            elif isinstance(item, str | dict | list):
                mended.append(self.mend(item, places.get(index, rest), (*path, index)))
            else:
                mended.append(item)
        return value if all(map(_is, mended, value)) else mended


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
