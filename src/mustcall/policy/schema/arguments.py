"""Whether the arguments a model wrote may be delivered, and the repairs that make them so.

The caller's own schema decides, whatever was sent upstream, so what a reduced schema dropped is enforced here (rule
130). The repairs and their order are `repairs.TABLE` (rules 106, 107, 131, 141): arguments are read leniently where one
reading is possible, then coerced without loss. What loses something is not done but offered as `salvage`. All else is a
problem that names the field and what it takes, never what was written. Several complete objects in a row are one call
only if each repeats the one before or adds fields to it (a server that sends snapshots); others are a problem, because
picking one would be a guess. It never raises, whatever the text or the schema.

Cost: linear. Arguments that are valid and flat cost one decode, one `is_valid` and one look at their keys.
"""

from itertools import pairwise
from typing import Any, cast

import msgspec

from mustcall.core.memo import Remembered
from mustcall.core.origin import JsonObject
from mustcall.core.parts import CallKind
from mustcall.core.tools import Tool
from mustcall.dialects.names import fold
from mustcall.policy.schema.coercion import Mender
from mustcall.policy.schema.leniency import relax
from mustcall.policy.schema.repairs import RepairMade
from mustcall.policy.schema.subschemas import MAX_DEPTH, as_object, deeper_than, hoist, types_of
from mustcall.policy.schema.validation import (
    Document,
    Problem,
    Unreadable,
    describe_problems,
    fits,
    read_documents,
    read_plain,
    validator_for,
    write_json,
)

__all__ = ["WRAPPED_FIELD", "Checked", "Problem", "RepairMade", "check_arguments", "describe_problems", "object_schema"]

#: The field that holds the value of a tool whose schema is not that of an object.
WRAPPED_FIELD = "value"

_NOT_OBJECT = Problem("", "a JSON object")
_NESTED: frozenset[type] = frozenset({dict, list})
#: What models call the arguments of a call.
_WRAPPERS = frozenset({"arguments", "parameters", "args"})
_READ_AS = "the text read as JSON"


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments after the check. They may be delivered if there is no problem."""

    #: The JSON text to deliver: the model's own where nothing was changed.
    arguments: str
    #: Each change, the first twenty in words; the rest is counted.
    changes: tuple[RepairMade, ...] = ()
    problems: tuple[Problem, ...] = ()
    #: The text ends inside a string or bracket (rule 123).
    truncated: bool = False
    #: The text is no sound JSON.
    unreadable: bool = False
    #: The tool's schema, or a part of it, cannot be checked by: the arguments had to be an object that fits the rest.
    unchecked: bool = False
    #: What a lossy repair would deliver, where one would make the arguments fit (rule 141 d).
    salvage: "Checked | None" = None

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
    prepared = _prepared.of(tool)
    plain = read_plain(arguments)
    if plain is not None and prepared is not None and prepared.takes(plain):
        return Checked(arguments=arguments)
    absent = bool(tool.strict) if null_is_absent is None else null_is_absent
    try:
        documents = read_documents(arguments)
        if _is_empty(documents):
            return _check_empty(schema, arguments)
        text, value, change = _one_object(arguments, documents)
    except Unreadable as unreadable:
        return _check_unreadable(tool, arguments, prepared, unreadable, null_is_absent=absent)
    if prepared is None:
        return Checked(arguments=text, changes=change)
    return _check_object(tool, _Subject(arguments, text, value, change), prepared, null_is_absent=absent)


def _check_unreadable(
    tool: Tool, arguments: str, prepared: "_Prepared | None", fault: Unreadable, *, null_is_absent: bool
) -> Checked:
    """Check text that is not sound JSON: read leniently if it has one reading, else refused."""
    refused = Checked(arguments=arguments, problems=(fault.problem,), truncated=fault.truncated, unreadable=True)
    relaxed = relax(arguments)
    if relaxed is None or not (relaxed.repairs or relaxed.added):
        return refused
    try:
        documents = read_documents(relaxed.text)
    except Unreadable:
        return refused
    value = as_object(documents[0].value) if len(documents) == 1 else None
    if value is None:
        return refused
    closing = (RepairMade("brackets_closed", f"{len(relaxed.added)} closing brackets added"),) if relaxed.added else ()
    changes = (*(RepairMade(repair, _READ_AS) for repair in relaxed.repairs), *closing)
    checked = Checked(arguments=relaxed.text, changes=changes)
    if prepared is not None:
        subject = _Subject(arguments, relaxed.text, value, changes)
        checked = _check_object(tool, subject, prepared, null_is_absent=null_is_absent)
    if not closing:
        return checked
    # A schema that cannot be compiled cannot say that every required field is there.
    whole = checked if checked.valid and not checked.unchecked else checked.salvage
    return msgspec.structs.replace(refused, salvage=whole)


class _Subject(msgspec.Struct, frozen=True):
    """What the model wrote, the object's text and value in it, and what was done to find it."""

    written: str
    text: str
    value: JsonObject
    changes: tuple[RepairMade, ...]


def _is_empty(documents: list[Document]) -> bool:
    if not documents:
        return True
    value = documents[0].value
    return len(documents) == 1 and (value is None or (isinstance(value, str) and not value.strip()))


def _check_empty(schema: JsonObject | None, written: str) -> Checked:
    """Read empty arguments as `{}`, if and only if that is valid (rules 107, 131)."""
    empty = Checked(arguments="{}", changes=(RepairMade("empty", "empty arguments read as {}"),))
    if schema is None:
        return empty
    prepared = _prepare(schema)
    checked = _fit(_Subject(written, "{}", {}, empty.changes), prepared, null_is_absent=False)
    if checked.unchecked:  # nobody can say that nothing is required
        return Checked(arguments=written, problems=(_NOT_OBJECT,), unchecked=True)
    return checked


def _one_object(written: str, documents: list[Document]) -> tuple[str, JsonObject, tuple[RepairMade, ...]]:
    """Return the one object meant, its text and what was done to find it, or raise `Unreadable`."""
    last = documents[-1]
    if len(documents) == 1 and isinstance(last.value, str):
        inner = read_documents(last.value)
        value = as_object(inner[0].value) if len(inner) == 1 else None
        if value is not None:
            return last.value, value, (RepairMade("json_string", "a JSON string that holds the object was unwrapped"),)
    values = [value for document in documents if (value := as_object(document.value)) is not None]
    if len(values) < len(documents):
        raise Unreadable(_NOT_OBJECT.expected)
    if len(values) == 1:
        return written, values[0], ()
    if not all(_extends(new, old) for old, new in pairwise(values)):
        raise Unreadable("one JSON object, not several")
    taken = RepairMade("snapshots", f"the last of {len(values)} snapshots of the arguments was taken")
    return last.text, values[-1], (taken,)


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
    #: Whether the schema, or a part of it, cannot be checked by.
    partly: bool

    def takes(self, value: JsonObject) -> bool:
        """Tell whether an object with nothing below it fits as it is, and none of its keys can be a misspelt one."""
        return not self.partly and value.keys() <= self.declared.keys() and fits(self.validator, value)


def _prepare(schema: JsonObject) -> _Prepared:
    checker = validator_for(schema)
    partly = checker is None or not checker.whole
    if checker is not None and partly:
        schema = checker.schema
    whole = object_schema(schema)
    if whole is not schema:
        checker = validator_for(whole)
    return _Prepared(whole, checker, as_object(whole.get("properties")) or {}, partly or checker is None)


def _prepare_tool(tool: Tool) -> _Prepared | None:
    return None if tool.parameters is None else _prepare(tool.parameters)


def _weigh(prepared: _Prepared | None) -> int:
    return 0 if prepared is None or prepared.validator is None else prepared.validator.weight


_prepared = Remembered(_prepare_tool, most=512, most_bytes=64 * 1024 * 1024, weigh=_weigh)


def _check_object(tool: Tool, subject: _Subject, prepared: _Prepared, *, null_is_absent: bool) -> Checked:
    """Check an object: as it is, coerced, or what it wraps; else say what a lossy repair would make of it."""
    checked = _fit(subject, prepared, null_is_absent=null_is_absent)
    if checked.valid:
        return checked
    inner = _unwrapped(tool, subject, prepared.declared)
    if inner is not None:
        unwrapped = _fit(inner, prepared, null_is_absent=null_is_absent)
        if unwrapped.valid:
            return unwrapped
    for candidate in (subject, inner):
        salvage = None if candidate is None else _drop(candidate, prepared, null_is_absent=null_is_absent)
        if salvage is not None:
            return msgspec.structs.replace(checked, salvage=salvage)
    return checked


def _fit(subject: _Subject, prepared: _Prepared, *, null_is_absent: bool) -> Checked:
    """Check an object as it is, then with the changes that lose nothing."""
    schema, validator = prepared.schema, prepared.validator
    if validator is None:
        return Checked(arguments=subject.text, changes=subject.changes, unchecked=True)
    value = subject.value
    valid = fits(validator, value)
    delivered = Checked(arguments=subject.text, changes=subject.changes, unchecked=prepared.partly)
    if valid and _is_plain(value, prepared.declared):
        return delivered
    mender = Mender(schema, null_is_absent=null_is_absent)
    mended = mender.mend(value, [schema], ())
    if mender.changes and fits(validator, mended):
        changes = (*subject.changes, *mender.changes)
        return Checked(arguments=write_json(mended), changes=changes, unchecked=prepared.partly)
    if valid:
        return delivered
    problems = validator.problems(mended) or (Problem("", "arguments that fit the schema"),)
    return Checked(arguments=subject.written, problems=problems)


def _drop(subject: _Subject, prepared: _Prepared, *, null_is_absent: bool) -> Checked | None:
    """Return the object without the fields that a closed schema does not declare, None if it does not fit then."""
    mender = Mender(prepared.schema, null_is_absent=null_is_absent, drops=True)
    mended = mender.mend(subject.value, [prepared.schema], ())
    if not fits(prepared.validator, mended):
        return None
    changes = (*subject.changes, *mender.changes)
    return Checked(arguments=write_json(mended), changes=changes, unchecked=prepared.partly)


def _unwrapped(tool: Tool, subject: _Subject, declared: JsonObject) -> _Subject | None:
    """Return the object that is all an object holds, under a word for arguments or the tool's own name."""
    value = subject.value
    own = fold(tool.name)
    named = value.get("name")
    outer = (
        value.keys() - {"name"} if isinstance(named, str) and fold(named) == own and len(value) > 1 else value.keys()
    )
    if len(outer) != 1:
        return None
    (key,) = outer
    repair = "wrapper" if key in _WRAPPERS else "tool_name_key" if fold(key) == own and len(value) == 1 else None
    if repair is None or not {fold(name) for name in value}.isdisjoint(map(fold, declared)):
        return None
    inner = value[key]
    if isinstance(inner, str):
        try:
            documents = read_documents(inner)
        except Unreadable:
            return None
        inner = documents[0].value if len(documents) == 1 else None
    found = as_object(inner)
    if found is None:
        return None
    change = RepairMade(repair, "the object inside was taken")
    return _Subject(subject.written, write_json(found), found, (*subject.changes, change))


def _is_plain(value: JsonObject, declared: JsonObject) -> bool:
    """Whether no key can be a misspelt one: all are declared, and no object lies below them."""
    for key, item in value.items():
        if key not in declared:
            return False
        if type(item) in _NESTED and (type(item) is dict or not _NESTED.isdisjoint(map(type, item))):
            return False
    return True
