"""Reads a parameter's value that is written as bare text between tags, typed by the tool's schema.

A string goes out as it comes, escaped for JSON. Its text is raw, so its closing tag may occur inside it: a closing tag
counts only where the markup goes on behind it (blanks, then the next parameter or the call's end); otherwise it is
part of the value. Arrays and objects are passed through if they are JSON; only scalars wait for their end.
"""

from collections.abc import Callable
from typing import cast

import msgspec

from mustcall.dialects.events import Reason
from mustcall.dialects.grammar import marks_of
from mustcall.dialects.jsontext import Open, escape, quote, read_value
from mustcall.dialects.marks import Marks
from mustcall.dialects.pyliteral import read_literal
from mustcall.dialects.reader import (
    BLANKS,
    MAX_WORD,
    Fault,
    Parse,
    accept,
    accept_any,
    blanks,
    copy_until,
    run,
)
from mustcall.dialects.schema import Kind, Parameter, child_schema
from mustcall.dialects.span import Call

__all__ = ["ArgumentWriter", "Ends", "read_raw_value"]

_NO_LIMIT = 1 << 62
_LEAKED = str.maketrans("ĠĊ", " \n")


class Ends(msgspec.Struct, frozen=True):
    """What ends a value: its closing tag, and the markup that must follow it.

    `wrapped` values stand on lines of their own; one newline on each side, of the same kind, is not theirs. `breaker`
    is the opening tag of a parameter, with `{key}` in it: standing in a value it shows that a closing tag is missing,
    and so does `end_breaker`. Where the format's models are known to forget the tag the value ends there (`lenient`),
    elsewhere the call is malformed. `leaked` values hold the tokenizer's letters for blanks and newlines.
    """

    closer: str
    followers: tuple[str, ...]
    wrapped: bool = False
    breaker: str = ""
    end_breaker: str = ""
    lenient: bool = False
    leaked: bool = False

    def marks(self, newline: str) -> Marks:
        """Return what to look for in a value that this newline wraps.

        No key is among it: compiling one expression per set of keys would cost more than reading the call.
        """
        breakers = ("\n" + mark for mark in (self.breaker.partition("{key}")[0], self.end_breaker) if mark)
        return marks_of(self.closer, newline + self.closer, *breakers)


class ArgumentWriter:
    """Writes a call's arguments key by key."""

    __slots__ = ("_declared", "_keys", "call", "longest_key")

    def __init__(self, call: Call) -> None:
        self.call = call
        self._keys: set[str] = set()
        schema = call.schema
        properties: object = schema.get("properties") if schema is not None else None
        # A schema comes from outside: only its shape is certain here.
        self._declared = cast("dict[str, object]", properties) if isinstance(properties, dict) else {}
        self.longest_key = min(max(map(len, self._declared), default=0), MAX_WORD)
        call.write("{")

    def key(self, key: str) -> Parameter:
        """Write the next key; return what the schema says of its value."""
        if key in self._keys:
            raise Fault(Reason.DUPLICATE_KEY)
        self.call.write((", " if self._keys else "") + quote(key) + ": ")
        self._keys.add(key)
        schema = self.call.schema
        return Parameter(child_schema(schema, key, schema), schema)

    def awaits(self, key: str) -> bool:
        """Tell whether this is a declared parameter that was not written yet."""
        return key in self._declared and key not in self._keys

    def end(self) -> None:
        """Complete the arguments and the call."""
        self.call.write("}")
        self.call.end()


def read_raw_value(writer: ArgumentWriter, parameter: Parameter, ends: Ends) -> Parse[None]:
    """Read one value and its closing tag, and write it to the call as JSON."""
    call = writer.call
    reader = call.span.reader
    newline = (yield from accept_any(reader, ("\r\n", "\n"))) if ends.wrapped else ""
    if parameter.kind is Kind.STRUCTURE:
        first = yield from blanks(reader)
        if first and first in "[{":
            yield from _pass_structure(call)
            yield from blanks(reader)
            if not (yield from accept(reader, ends.closer)):
                cut = reader.closed and ends.closer.startswith(reader.buffer[reader.position :])
                raise Fault(Reason.TRUNCATED if cut else Reason.BAD_JSON)
            return
    if parameter.kind is Kind.STRING:
        call.write('"')
        yield from _read_text(writer, ends, lambda piece: call.write(escape(piece)), newline=newline)
        call.write('"')
        return
    pieces: list[str] = []
    yield from _read_text(writer, ends, pieces.append, newline=newline)
    call.write(parameter.convert("".join(pieces)))


def _pass_structure(call: Call) -> Parse[None]:
    """Pass an array or object on as it comes: as JSON, and from where it shows to be one as a Python literal."""
    reader = call.span.reader
    left = Open()
    reader.open_tap(call.write)
    yield from read_value(reader, left)
    reader.close_tap()
    if left.containers:
        yield from read_literal(reader, call.write, left)


def _read_text(writer: ArgumentWriter, ends: Ends, write: Callable[[str], None], *, newline: str) -> Parse[None]:
    """Read raw text up to the closing tag that ends it."""
    reader = writer.call.span.reader
    if ends.leaked:
        write = _unleaking(write)
    marks = ends.marks(newline)
    while True:
        tag = yield from copy_until(reader, marks, write)
        if not tag.endswith(ends.closer):
            if tag[1:] != ends.end_breaker and not (yield from _opens_parameter(writer, ends, len(tag))):
                reader.position += len(tag)
                write(tag)
                continue
            if not ends.lenient:
                raise Fault(Reason.BAD_MARKUP)
            reader.position += 1
            return
        reader.position += len(tag)
        gap = yield from run(reader, BLANKS, _NO_LIMIT, Reason.BAD_MARKUP)
        if (yield from _follows(writer.call, ends.followers)):
            return
        write(tag + gap)


def _opens_parameter(writer: ArgumentWriter, ends: Ends, size: int) -> Parse[bool]:
    """Tell whether the opening tag ahead, `size` long up to its key, is of a parameter that may still come."""
    reader = writer.call.span.reader
    end = ends.breaker.partition("{key}")[2]
    while True:
        rest = reader.buffer[reader.position + size : reader.position + size + writer.longest_key + len(end)]
        key, found, _ = rest.partition(end)
        if found or reader.closed or len(rest) == writer.longest_key + len(end):
            return bool(found) and writer.awaits(key)
        yield


def _unleaking(write: Callable[[str], None]) -> Callable[[str], None]:
    return lambda piece: write(piece.translate(_LEAKED))


def _follows(call: Call, followers: tuple[str, ...]) -> Parse[bool]:
    """Tell whether one of these comes next, reading nothing. Fails as truncated if the input ends before it shows."""
    reader = call.span.reader
    while True:
        rest = reader.buffer[reader.position : reader.position + 64]
        if any(rest.startswith(follower) for follower in followers):
            return True
        if not any(follower.startswith(rest) for follower in followers):
            return False
        if reader.closed:
            raise Fault(Reason.TRUNCATED)
        yield
