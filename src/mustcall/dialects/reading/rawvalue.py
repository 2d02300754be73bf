"""Reads a parameter's value that is written as bare text between tags, typed by the tool's schema.

A string goes out as it comes, escaped for JSON. Its text is raw, so its closing tag may occur inside it: a closing tag
counts only where the markup goes on behind it (blanks, then the next parameter or the call's end); otherwise it is
part of the value. Everything else waits for its end: what is no value of its declared type stays a string.
"""

from collections.abc import Callable
from typing import Any, cast

import msgspec

from mustcall.dialects.events import Reason
from mustcall.dialects.reading.jsontext import Open, escape, is_scalar, quote, read_value
from mustcall.dialects.reading.pyliteral import read_literal
from mustcall.dialects.reading.reader import (
    BLANKS,
    MAX_WORD,
    NotACall,
    Parse,
    Reader,
    accept,
    accept_any,
    blanks,
    copy_until,
    expect,
    run,
)
from mustcall.dialects.reading.schema import DeclaredParameter, Kind, child_schema
from mustcall.dialects.reading.span import OpenCall
from mustcall.dialects.scanning.grammar import marks_of
from mustcall.dialects.scanning.marks import Marks

__all__ = ["ArgumentWriter", "Ends", "read_json_value", "read_raw_value"]

_NO_LIMIT = 1 << 62
_STRUCTURES = ("[", "{", '"')
_CDATA, _CDATA_END = "<![CDATA[", "]]>"
_LEAKED = str.maketrans("ĠĊ", " \n")


class Ends(msgspec.Struct, frozen=True, dict=True):
    """What ends a value: its closing tag, and the markup that must follow it.

    `wrapped` values stand on lines of their own; one newline on each side, of the same kind, is not theirs. `breaker`
    is the opening tag of a parameter, with `{key}` in it: standing in a value it shows that a closing tag is missing,
    and so does `end_breaker`. Where the format's models are known to forget the tag the value ends there (`lenient`),
    elsewhere the call is malformed. `leaked` values hold the tokenizer's letters for blanks and newlines. With `cdata`
    a value may stand in CDATA sections.
    """

    closer: str
    followers: tuple[str, ...]
    wrapped: bool = False
    breaker: str = ""
    end_breaker: str = ""
    lenient: bool = False
    leaked: bool = False
    cdata: bool = False

    def marks(self, newline: str) -> Marks:
        """Return what to look for in a value that this newline wraps.

        No key is among it: compiling one expression per set of keys would cost more than reading the call.
        """
        # Kept with the tags it belongs to: some hold a prefix that a model wrote.
        held: Any = self.__dict__  # a plain dict, whatever the type of a frozen value says
        known: Marks | None = held.get(newline)
        if known is None:
            breakers = ("\n" + mark for mark in (self.breaker.partition("{key}")[0], self.end_breaker) if mark)
            known = held[newline] = Marks((self.closer, newline + self.closer, *breakers))
        return known


class ArgumentWriter:
    """Writes a call's arguments key by key."""

    __slots__ = ("_declared", "_keys", "call", "longest_key")

    def __init__(self, call: OpenCall) -> None:
        self.call = call
        self._keys: set[str] = set()
        schema = call.schema
        properties: object = schema.get("properties") if schema is not None else None
        # A schema comes from outside: only its shape is certain here.
        self._declared = cast("dict[str, object]", properties) if isinstance(properties, dict) else {}
        self.longest_key = min(max(map(len, self._declared), default=0), MAX_WORD)
        call.write("{")

    def key(self, key: str) -> DeclaredParameter:
        """Write the next key; return what the schema says of its value."""
        if key in self._keys:
            raise NotACall(Reason.DUPLICATE_KEY)
        self.call.write((", " if self._keys else "") + quote(key) + ": ")
        self._keys.add(key)
        schema = self.call.schema
        return DeclaredParameter(child_schema(schema, key, schema), schema)

    def awaits(self, key: str) -> bool:
        """Tell whether this is a declared parameter that was not written yet."""
        return key in self._declared and key not in self._keys

    def end(self) -> None:
        """Complete the arguments and the call."""
        self.call.write("}")
        self.call.end()


def read_raw_value(writer: ArgumentWriter, parameter: DeclaredParameter, ends: Ends) -> Parse[None]:
    """Read one value and its closing tag, and write it to the call as JSON."""
    call = writer.call
    reader = call.span.reader
    newline = (yield from accept_any(reader, ("\r\n", "\n"))) if ends.wrapped else ""
    if ends.cdata and (yield from accept(reader, _CDATA)):
        yield from _read_cdata(call, parameter, ends)
        return
    if parameter.kind is Kind.STRUCTURE and (yield from blanks(reader)) in ("[", "{"):
        yield from _read_structure(writer, ends, newline)
        return
    if parameter.kind is Kind.STRING:
        call.write('"')
        yield from _read_text(writer, ends, lambda piece: call.write(escape(piece)), newline=newline)
        call.write('"')
        return
    pieces: list[str] = []
    yield from _read_text(writer, ends, pieces.append, newline=newline)
    call.write(parameter.convert("".join(pieces)))


def read_json_value(writer: ArgumentWriter, ends: Ends) -> Parse[None]:
    """Read a value that its tag says is JSON, and its closing tag; where it is none it is the string it was written."""
    if (yield from blanks(writer.call.span.reader)) in _STRUCTURES:
        yield from _read_structure(writer, ends, "")
        return
    pieces: list[str] = []
    yield from _read_text(writer, ends, pieces.append, newline="")
    value = "".join(pieces)
    writer.call.write(value.strip() if is_scalar(value.strip()) else quote(value))


class _Structure:
    """A value that is to be JSON, or from where it shows to be one a Python literal, as its text comes."""

    __slots__ = ("_reader", "_reading", "faulty", "over", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        #: Whether it is complete, and whether it is none.
        self.over = self.faulty = False
        self._reader = Reader()
        self._reading = self._read()

    def _read(self) -> Parse[None]:
        reader, left = self._reader, Open()
        yield from blanks(reader)
        reader.open_tap(self.pieces.append)
        yield from read_value(reader, left)
        reader.close_tap()
        if left.containers:
            yield from read_literal(reader, self.pieces.append, left)

    def feed(self, text: str, *, last: bool = False) -> None:
        """Take the next piece of its text."""
        reader = self._reader
        reader.settle()
        reader.push(text)
        reader.closed = last
        reader.raw.clear()
        try:
            if not self.over:
                next(self._reading)
        except StopIteration:
            self.over = True
        except NotACall:
            self.faulty = True
        if self.over and reader.buffer[reader.position :].strip(" \t\r\n"):
            self.faulty = True

    @property
    def is_open(self) -> bool:
        """Whether more text may complete it."""
        return not (self.over or self.faulty)


def _read_structure(writer: ArgumentWriter, ends: Ends, newline: str) -> Parse[None]:
    """Read a value that is to be an array, an object or JSON, and its closing tag.

    A closing tag in one of its strings does not end it. What is none of these is a string (validation will judge it).
    """
    text: list[str] = []
    structure = _Structure()
    while True:
        fed = len(text)
        closing = yield from _read_text(writer, ends, text.append, newline=newline)
        if not structure.faulty:
            structure.feed("".join(text[fed:]))
        if structure.is_open:
            structure.feed(closing)
            if structure.is_open:
                text.append(closing)
                continue
            structure.faulty = True
        writer.call.write(quote("".join(text)) if structure.faulty else "".join(structure.pieces))
        return


def _read_cdata(call: OpenCall, parameter: DeclaredParameter, ends: Ends) -> Parse[None]:
    """Read a value in CDATA sections, whose text is bare, and its closing tag."""
    reader = call.span.reader
    pieces: list[str] = []
    while True:
        yield from copy_until(reader, marks_of(_CDATA_END), pieces.append)
        reader.position += len(_CDATA_END)
        yield from blanks(reader)
        if not (yield from accept(reader, _CDATA)):
            break
    yield from expect(reader, ends.closer)
    call.write(parameter.convert("".join(pieces)))


def _read_text(writer: ArgumentWriter, ends: Ends, write: Callable[[str], None], *, newline: str) -> Parse[str]:
    """Read raw text up to the closing tag that ends it; return the tag, with the blanks behind it."""
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
                raise NotACall(Reason.BAD_MARKUP)
            reader.position += 1
            return ""
        reader.position += len(tag)
        gap = yield from run(reader, BLANKS, _NO_LIMIT, Reason.BAD_MARKUP)
        if (yield from _follows(writer.call, ends.followers)):
            return tag + gap
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


def _follows(call: OpenCall, followers: tuple[str, ...]) -> Parse[bool]:
    """Tell whether one of these comes next, reading nothing. Fails as truncated if the input ends before it shows."""
    reader = call.span.reader
    while True:
        rest = reader.buffer[reader.position : reader.position + 64]
        if any(rest.startswith(follower) for follower in followers):
            return True
        if not any(follower.startswith(rest) for follower in followers):
            return False
        if reader.closed:
            raise NotACall(Reason.TRUNCATED)
        yield
