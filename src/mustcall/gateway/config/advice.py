"""The fix for a mistake in the configuration file, found from what msgspec says of it and from the fields there are."""

import re
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import inspect

from mustcall.core.origin import Wire
from mustcall.core.text.nearest import did_you_mean

__all__ = ["advice", "takes_switch"]

#: Mistakes that people make most, by a sign of each.
_FIXES = {
    re.compile(
        r"`api_key` - at `\$\.upstream\b"
    ): "put the key into an environment variable and name it in api_key_env",
    re.compile(r"`routes`"): "write each route as [[route]]",
    re.compile(r"`upstreams`"): "write each upstream as [[upstream]]",
    re.compile(r"`prices`"): "write each price as [[price]]",
    re.compile(r"Expected `array`, got `object` - at `\$\.\w+`"): (
        "write the table with two brackets, [[…]], once for each entry"
    ),
}
#: What to write where another type is wanted.
_WRITE = {"bool": "write true or false", "int": "write a whole number", "float": "write a number, without a unit"}
_UNKNOWN = re.compile(r"unknown field `([^`]*)`(?: - at `\$([^`]*)`)?")
_VALUE = re.compile(r"Invalid enum value '([^']*)'(?: - at `\$([^`]*)`)?")
_TYPE = re.compile(r"Expected `([^`]*)`, got `[^`]*`(?: - at `\$([^`]*)`)?")
_STEP = re.compile(r"\.([^.\[]+)|\[[^\]]*\]")


def advice(problem: str, kind: type[msgspec.Struct]) -> str:
    """Return what to add to a complaint about a file of this kind: a fix, or the field or value that was meant."""
    for sign, fix in _FIXES.items():
        if sign.search(problem):
            return f"; {fix}"
    value = _VALUE.search(problem)
    if value is not None:
        words = _words(kind, value[2])
        if set(words) == set(Wire):
            return f"; the wires are {', '.join(Wire)}"
        meant = did_you_mean(value[1], words)
        return f"{meant} It can be {', '.join(words)}" if meant else _choices(words)
    type_ = _TYPE.search(problem)
    if type_ is not None:
        wanted = set(type_[1].split(" | ")) - {"null"}
        return _choices(_words(kind, type_[2])) or "".join(f"; {_WRITE[one]}" for one in _WRITE if wanted == {one})
    field = _UNKNOWN.search(problem)
    if field is None:
        return ""
    names = [name for node in _at(kind, field[2] or "") for name in _fields(node)]
    return did_you_mean(field[1], names) or "; docs/gateway.md and docs/turns.md list the fields"


def takes_switch(kind: type[msgspec.Struct], name: str) -> bool:
    """Return whether a field of a section may be true or false."""
    return any(isinstance(node, inspect.BoolType) for node in _at(kind, f".{name}"))


def _choices(words: list[str]) -> str:
    return f"; it can be {', '.join(words)}" if words else ""


def _words(kind: type[msgspec.Struct], path: str | None) -> list[str]:
    """Return the words that may stand at a path."""
    return [str(word) for node in _at(kind, path or "") for word in _values(node)]


def _at(kind: type[msgspec.Struct], path: str) -> Iterable[inspect.Type]:
    """Return the types that may stand at a path like `.upstream[0].headers`."""
    nodes = list(_apart(inspect.type_info(kind)))
    for step in _STEP.finditer(path):
        below = (child for node in nodes for child in _below(node, step[1]))
        nodes = [part for child in below for part in _apart(child)]
    return nodes


def _apart(node: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(node, inspect.UnionType):
        yield from node.types
    else:
        yield node


def _below(node: inspect.Type, name: str | None) -> Iterator[inspect.Type]:
    """Yield what stands under a name, or where the step is into a list or a table of any names, under any."""
    match node:
        case inspect.StructType() if name is not None:
            yield from (field.type for field in node.fields if field.encode_name == name)
        case inspect.DictType():
            yield node.value_type
        case inspect.VarTupleType() | inspect.ListType() if name is None:
            yield node.item_type
        case _:
            return


def _fields(node: inspect.Type) -> Iterator[str]:
    if isinstance(node, inspect.StructType):
        yield from (field.encode_name for field in node.fields)


def _values(node: inspect.Type) -> Iterator[str]:
    if isinstance(node, inspect.EnumType):
        yield from (str(member.value) for member in node.cls)
    elif isinstance(node, inspect.LiteralType):
        yield from (str(value) for value in node.values)
