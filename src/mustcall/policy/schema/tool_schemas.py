"""Tool schemas as an upstream takes them, with a report of what was lost on the way (rule 130).

What one upstream refuses would fail the whole request, so a schema is reduced to what it takes; a tool whose schema is
none at all is offered without its faulty parts. Nothing is given up: arguments are always checked against the caller's
own schema (`arguments`). A schema that can go as it is comes back as the same object.

Cost: one encoding of each schema per request; the work itself is done once per schema and kept (bounded).
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Any, assert_never, cast

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationKind, AdaptationLog
from mustcall.core.memo import Remembered, compile_unkept, kept
from mustcall.core.origin import JsonObject
from mustcall.core.parts import CallKind
from mustcall.core.request import Request
from mustcall.core.tools import ProviderTool, Tool
from mustcall.policy.facts.profile import Profile, SchemaTarget
from mustcall.policy.schema.arguments import object_schema
from mustcall.policy.schema.checker import first_fault
from mustcall.policy.schema.gemini import Reduction, merge_schemas, reduce_for_gemini
from mustcall.policy.schema.strict import close_schema
from mustcall.policy.schema.subschemas import (
    MAX_DEPTH,
    Path,
    as_list,
    as_object,
    deeper_than,
    hoist,
    resolve,
    rewrite,
    types_of,
    without_faults,
)
from mustcall.policy.schema.validation import schema_fault

__all__ = ["Compiled", "compile_schema", "compile_tools", "names_tool", "refused_schemas", "schema_digest"]

_LARGEST_CACHED = 65_536
_MOST_NESTED = 8
_MOST_WORDS = 300
_UNIONS = ("anyOf", "oneOf")
#: What a schema says to its reader and to nobody else.
_ANNOTATIONS = frozenset({"title", "description", "examples", "$comment"})
_ANYTHING: JsonObject = {"type": "object", "properties": {}}

#: Words a root may not hold, by target; FULL and GEMINI have no such list (Gemini's reducer has its own).
_ROOT_REFUSED = {
    SchemaTarget.FULL: frozenset[str](),
    SchemaTarget.OPENAI: frozenset({"anyOf", "oneOf", "allOf", "enum", "const", "not", "$ref"}),
    SchemaTarget.ANTHROPIC: frozenset({"anyOf", "oneOf", "allOf", "$ref"}),
    SchemaTarget.GEMINI: frozenset({"anyOf", "oneOf", "allOf", "enum", "const", "not", "$ref"}),
}
# Anthropic compiles at most so many strict tools and optional parameters together (docs).
_MOST_STRICT = 20
_MOST_OPTIONAL = 24


class Compiled(msgspec.Struct, frozen=True):
    """A schema for one upstream and what it lost. `expressible` is false where a strict form was asked for in vain."""

    schema: JsonObject
    losses: tuple[str, ...] = ()
    expressible: bool = True


def compile_schema(schema: JsonObject, target: SchemaTarget, *, strict: bool = False) -> Compiled:
    """Return the schema as the target takes it, the same object if it does already.

    `strict` asks for the closed form that constrained decoding needs (strict tools, structured answers). Where a schema
    cannot be closed without changing what it means, it comes back open and not `expressible`.
    """
    try:
        text = msgspec.json.encode(schema)
    except (ValueError, TypeError, RecursionError):
        return Compiled(_ANYTHING, ("top level: not a JSON schema, dropped",))
    compiled = _cached(text, target, strict) if len(text) <= _LARGEST_CACHED else _compile(text, target, strict)
    return Compiled(schema, compiled.losses, compiled.expressible) if compiled.schema == schema else compiled


def _compile(text: bytes, target: SchemaTarget, strict: bool) -> Compiled:
    report = Reduction()
    schema = _sound(cast("JsonObject", msgspec.json.decode(text)), report)
    schema = _object_root(schema, target, report)
    match target:
        case SchemaTarget.FULL:
            return Compiled(schema, report.losses)
        case SchemaTarget.GEMINI:
            reduced = reduce_for_gemini(schema, report)
            return Compiled(reduced, report.losses)
        case SchemaTarget.OPENAI | SchemaTarget.ANTHROPIC:
            if not strict:
                return Compiled(schema, report.losses)
            before = report.losses
            closed = close_schema(schema, target, report)
            return Compiled(schema, before, expressible=False) if closed is None else Compiled(closed, report.losses)
        case _:
            assert_never(target)


_cached = kept(most=8192, most_bytes=64 * 1024 * 1024)(_compile)


def _sound(schema: JsonObject, report: Reduction) -> JsonObject:
    """Return the schema without the parts that are no JSON Schema; it is a copy of ours and is changed in place."""
    if deeper_than(schema, MAX_DEPTH):
        report.lose((), "nested too deep, dropped")
        return _ANYTHING
    sound = schema if schema_fault(schema) is None else without_faults(schema, first_fault, report.lose)
    if sound is None:
        report.lose((), "not a JSON schema, dropped")
        return _ANYTHING
    return sound


def _object_root(schema: JsonObject, target: SchemaTarget, report: Reduction) -> JsonObject:
    """Return a schema whose root is an object's, as every target but FULL demands in so many words."""
    wrapped = object_schema(schema)
    if wrapped is not schema:
        report.lose((), "a value that is no object became a field of one")
        schema = wrapped
    refused = _ROOT_REFUSED[target]
    if not refused.isdisjoint(schema):
        body, definitions = hoist(schema, "part")
        body = _flattened(body, definitions, refused, report, _MOST_NESTED)
        schema = {**body, "$defs": definitions} if definitions else body
    if target is SchemaTarget.FULL:
        return schema
    if schema.get("type") != "object":
        schema = {**schema, "type": "object"}
    if target is SchemaTarget.OPENAI and "properties" not in schema:
        schema = {**schema, "properties": {}}
    return schema


def _flattened(
    node: JsonObject, definitions: dict[str, JsonObject], refused: frozenset[str], report: Reduction, left: int
) -> JsonObject:
    """Return an object schema without unions and references at its root."""
    rest = {key: value for key, value in node.items() if key not in refused}
    for word in refused - {"$ref", "allOf", *_UNIONS}:
        if word in node:
            report.lose((), f"{word} dropped")
    if not left:
        return rest

    def members(word: str) -> list[JsonObject]:
        found = [member for item in as_list(node.get(word)) if (member := as_object(item)) is not None]
        return [_flattened(member, definitions, refused, report, left - 1) for member in found]

    target = resolve({"$defs": definitions}, node.get("$ref"))
    if target is not None:
        rest = merge_schemas(rest, [_flattened(target, definitions, refused, report, left - 1)], (), report)
    rest = merge_schemas(rest, members("allOf"), (), report)
    for word in _UNIONS:
        branches = [branch for branch in members(word) if "object" in (types_of(branch, branch) or ("object",))]
        if branches:
            report.lose((), f"the alternatives of {word} became one object")
            rest = _united(rest, branches)
    return rest


def _united(node: JsonObject, branches: list[JsonObject]) -> JsonObject:
    """Return one object schema for what the branches describe: all their fields, required what all require.

    A field keeps its declaration although a branch that does not name it would take anything there: the model needs to
    know what the field is for.
    """
    properties: dict[str, Any] = dict(as_object(node.get("properties")) or {})
    declared: dict[str, list[Any]] = {}
    for branch in branches:
        for name, member in (as_object(branch.get("properties")) or {}).items():
            forms = declared.setdefault(name, [])
            if member not in forms:
                forms.append(member)
    for name, forms in declared.items():
        properties.setdefault(name, forms[0] if len(forms) == 1 else {"anyOf": forms})
    common = [name for name in as_list(branches[0].get("required")) if all(name in _required(b) for b in branches)]
    required = list(dict.fromkeys([*_required(node), *common]))
    united = {**node, "type": "object", "properties": properties}
    return {**united, "required": required} if required else united


def _required(node: JsonObject) -> list[Any]:
    return as_list(node.get("required"))


def compile_tools(request: Request, profile: Profile, log: AdaptationLog) -> Request:
    """Return the request with every tool's schema as the upstream takes it, the same object if nothing has to change.

    Depends on the tools alone, so the same tools always go out as the same bytes.
    """
    if not request.tools:
        return request
    offered, target, refused = request.tools, profile.schema_target, profile.narrowed_schemas
    tools, notes = _compiled.of(offered, target, refused)
    for note in notes:
        log.add(note.kind, note.subject, note.detail)
    return request if tools is offered else request.evolve(tools=tools)


_Tools = tuple[Tool | ProviderTool, ...]


def schema_digest(schema: JsonObject) -> str:
    """Return what tells a schema from others: a digest of all of it but its titles, descriptions and examples."""
    try:
        bare = rewrite(schema, lambda node, _path: {key: node[key] for key in node if key not in _ANNOTATIONS})
        text = msgspec.json.encode(bare, order="sorted")
    except (ValueError, TypeError, RecursionError):
        return ""
    return hashlib.sha256(text).hexdigest()[:32]


def refused_schemas(tools: Sequence[tuple[JsonObject, str]], message: str) -> tuple[str, ...]:
    """Return the digests of the schemas that a refusal may mean, each given with its tool's name.

    Those it names, by the tool's name or its place; all if it names none. One that is in the narrowest form as it is
    cannot be meant.
    """
    reducible = [
        (place, schema, name)
        for place, (schema, name) in enumerate(tools)
        if compile_schema(schema, SchemaTarget.GEMINI).schema is not schema
    ]
    named = [one for one in reducible if names_tool(one[2], one[0], message)]
    return tuple(dict.fromkeys(schema_digest(schema) for _, schema, _ in named or reducible))


def names_tool(name: str, place: int, message: str) -> bool:
    """Tell whether a refusal names a tool, or its place among those that were sent."""
    spelled = rf"(?<![\w-]){re.escape(name)}(?![\w-])|\btools[.\[]{place}\b|function_declarations\[{place}\]"
    return bool(name) and compile_unkept(spelled).search(message) is not None


def _compile_all(
    offered: _Tools, usual: SchemaTarget, refused: tuple[str, ...]
) -> tuple[_Tools, tuple[Adaptation, ...]]:
    """Return the tools with schemas for this target, the same tuple if nothing has to change, and what was changed.

    Schemas that are known to be `refused` go out in the narrowest form there is.
    """
    log = AdaptationLog()
    strict_left, optional_left = _MOST_STRICT, _MOST_OPTIONAL
    limited = usual is SchemaTarget.ANTHROPIC
    tools: list[Tool | ProviderTool] = []
    for tool in offered:
        if not isinstance(tool, Tool) or tool.kind is CallKind.CUSTOM or tool.parameters is None:
            tools.append(tool)
            continue
        narrow = bool(refused) and schema_digest(tool.parameters) in refused
        target = SchemaTarget.GEMINI if narrow else usual
        compiled = compile_schema(tool.parameters, target, strict=bool(tool.strict))
        changes: dict[str, Any] = {}
        losses = compiled.losses
        if tool.strict and compiled.expressible and limited:
            optional = _optional_fields(compiled.schema)
            if strict_left <= 0 or optional > optional_left:
                compiled = compile_schema(tool.parameters, target)
                losses = (*compiled.losses, "top level: strict dropped, more than the upstream compiles together")
                changes["strict"] = False
            else:
                strict_left, optional_left = strict_left - 1, optional_left - optional
        if not compiled.expressible:
            losses = (*losses, "top level: strict dropped, the schema has no closed form")
            changes["strict"] = False
        if compiled.schema is not tool.parameters:
            changes["parameters"] = compiled.schema
        if target is SchemaTarget.GEMINI and _takes_nothing(compiled.schema):
            # Gemini refuses an object without properties ("should be non-empty for OBJECT type"), not one left out.
            changes["parameters"] = None
            losses = (*losses, "top level: left out, it has no properties")
        if changes:
            log.add(AdaptationKind.SCHEMA_REDUCED, tool.name, _told(losses))
        tools.append(tool.evolve(**changes) if changes else tool)
    same = all(new is old for new, old in zip(tools, offered, strict=True))
    return offered if same else tuple(tools), log.entries


_compiled = Remembered(_compile_all)


def _takes_nothing(schema: JsonObject) -> bool:
    """Tell whether a schema is that of an object without properties."""
    return schema.get("type") == "object" and not schema.get("properties") and "anyOf" not in schema


def _optional_fields(schema: JsonObject) -> int:
    count = 0

    def look(node: JsonObject, _path: Path) -> JsonObject:
        nonlocal count
        required = _required(node)
        count += sum(name not in required for name in as_object(node.get("properties")) or {})
        return node

    rewrite(schema, look)
    return count


def _told(losses: tuple[str, ...]) -> str:
    words = "; ".join(losses) or "written in the upstream's form, nothing lost"
    return words if len(words) <= _MOST_WORDS else words[: _MOST_WORDS - 1] + "…"
