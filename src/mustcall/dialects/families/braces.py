"""Gemma's own notation: `call:NAME{key:<escape>text<escape>,n:42}`. Strings have a delimiter of their own.

FunctionGemma and Gemma 4 differ in their markers only; Gemma 4 sometimes drops the word `call`. Text between delimiters
is raw, so a string that contains its delimiter cannot be written; numbers, booleans and null are bare JSON. Text
without its delimiters is a string up to the next comma or bracket.
"""

import re
from collections.abc import Sequence
from typing import Any, cast

from mustcall.core.errors import UnsupportedFeature
from mustcall.core.text.possessive import at_least_one
from mustcall.dialects.dialect import Dialect, Opener, Parser, Renderer, WrittenCall
from mustcall.dialects.events import Reason
from mustcall.dialects.reading.envelope import dump
from mustcall.dialects.reading.jsontext import MAX_DEPTH, SHORT_NUMBER, escape, is_scalar, quote, read_value
from mustcall.dialects.reading.reader import NotACall, Parse, accept, ahead, blanks, copy_until, expect, run, word
from mustcall.dialects.reading.span import OpenCall, Span
from mustcall.dialects.scanning.grammar import marks_of

__all__ = ["DIALECTS"]

# Many plain items of a list, each with the comma before it: read in one step.
_ITEMS = re.compile(at_least_one(rf"[ \t\r\n]*+,[ \t\r\n]*+(?:{SHORT_NUMBER}|\[\]|\{{\}})(?=[ \t\r\n]*+[,\]])"))
_ITEM_START = re.compile(r"[ \t\r\n]*+,[ \t\r\n]*+")
_KEY = re.compile(r"[^:<>{}\[\],\s\"]*+")
_BARE = re.compile(r"[^,<>{}\[\]\n\"]*+")
_LONGEST_BARE = 4096
# A key and its number: read in one step.
_PAIR = re.compile(rf"([^:<>{{}}\[\],\s\"]{{1,256}}+):[ \t\r\n]*+({SHORT_NUMBER})(?=[ \t\r\n]*+[,}}])")


def _calls(delimiter: str, closer: str) -> Parser:
    def read(span: Span) -> Parse[None]:
        reader = span.reader
        if not (yield from accept(reader, ":")):
            yield from expect(reader, "call:")
        name = yield from word(reader)
        call = span.begin(name.removesuffix(":"))
        yield from blanks(reader)
        yield from expect(reader, "{")
        call.write("{")
        yield from _read_container(call, delimiter)
        call.end()
        yield from span.finish(closer)

    return read


def _read_container(call: OpenCall, delimiter: str) -> Parse[None]:
    """Read the inside of the arguments, whose opening brace was read. The stack holds each open object's keys."""
    reader = call.span.reader
    stack: list[set[str] | None] = [set()]
    first = True
    while stack:
        keys = stack[-1]
        character = reader.buffer[reader.position : reader.position + 1]
        if not character or character in " \t\r\n":
            character = yield from blanks(reader)
            if not character:
                raise NotACall(Reason.TRUNCATED)
        if character == ("]" if keys is None else "}"):
            reader.position += 1
            call.write(character)
            stack.pop()
            first = False
            continue
        if (
            not first
            and keys is None
            and len(stack) < MAX_DEPTH
            and (items := _ITEMS.match(reader.buffer, reader.position))
        ):
            reader.position = items.end()
            call.write(_ITEM_START.sub(", ", items.group()))
            continue
        if not first:
            if character != ",":
                raise NotACall(Reason.BAD_LITERAL)
            reader.position += 1
            call.write(", ")
            if reader.buffer[reader.position : reader.position + 1] in (" ", "\t", "\r", "\n", ""):
                yield from blanks(reader)
        if keys is not None and (pair := _PAIR.match(reader.buffer, reader.position)):
            _add_key(keys, pair[1])
            reader.position = pair.end()
            call.write(f"{quote(pair[1])}: {pair[2]}")
            first = False
            continue
        if keys is not None:
            key = yield from _read_key(call, delimiter)
            _add_key(keys, key)
            call.write(quote(key) + ": ")
        opener = reader.buffer[reader.position : reader.position + 1]
        if not opener or opener in " \t\r\n":
            opener = yield from blanks(reader)
        first = opener in ("{", "[")
        if first:
            if len(stack) == MAX_DEPTH:
                raise NotACall(Reason.TOO_DEEP)
            reader.position += 1
            call.write(opener)
            stack.append(set() if opener == "{" else None)
        else:
            yield from _read_scalar(call, delimiter)


def _add_key(keys: set[str], key: str) -> None:
    if key in keys:
        raise NotACall(Reason.DUPLICATE_KEY)
    keys.add(key)


def _read_key(call: OpenCall, delimiter: str) -> Parse[str]:
    reader = call.span.reader
    if (yield from accept(reader, delimiter)):
        pieces: list[str] = []
        yield from copy_until(reader, marks_of(delimiter), pieces.append)
        reader.position += len(delimiter)
        key = "".join(pieces)
    else:
        key = yield from run(reader, _KEY, 256, Reason.BAD_LITERAL)
        if not key:
            ended = reader.closed and reader.position == len(reader.buffer)
            raise NotACall(Reason.TRUNCATED if ended else Reason.BAD_LITERAL)
    yield from blanks(reader)
    yield from expect(reader, ":", Reason.BAD_LITERAL)
    return key


def _read_scalar(call: OpenCall, delimiter: str) -> Parse[None]:
    reader = call.span.reader
    if (yield from accept(reader, delimiter)):
        call.write('"')
        yield from copy_until(reader, marks_of(delimiter), lambda piece: call.write(escape(piece)))
        reader.position += len(delimiter)
        call.write('"')
        return
    if (yield from ahead(reader)) == '"':
        reader.open_tap(call.write)
        yield from read_value(reader)
        reader.close_tap()
        return
    bare = (yield from run(reader, _BARE, _LONGEST_BARE, Reason.BAD_LITERAL)).strip()
    if not bare:
        ended = reader.closed and reader.position == len(reader.buffer)
        raise NotACall(Reason.TRUNCATED if ended else Reason.BAD_LITERAL)
    # Text without its delimiters: it ends with the next comma or bracket, and what it says is no number is a string.
    call.write(bare if is_scalar(bare) else quote(bare))


def _renderer(dialect: str, before: str, delimiter: str, after: str) -> Renderer:
    def string(value: str) -> str:
        if delimiter in value or any(value.endswith(delimiter[:end]) for end in range(1, len(delimiter))):
            raise UnsupportedFeature(f"the dialect {dialect} cannot write a string with {delimiter!r} in it")
        return delimiter + value + delimiter

    def key(name: str) -> str:
        return name if name and _KEY.fullmatch(name) and len(name) < 200 else string(name)

    def write(value: Any) -> str:
        if isinstance(value, str):
            return string(value)
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            return "{" + ",".join(f"{key(name)}:{write(item)}" for name, item in items) + "}"
        if isinstance(value, list):
            return "[" + ",".join(write(item) for item in cast("list[Any]", value)) + "]"
        return dump(value)

    def render(calls: Sequence[WrittenCall]) -> str:
        return "".join(f"{before}call:{call.name}{write(call.arguments)}{after}" for call in calls)

    return render


DIALECTS = (
    Dialect(
        "functiongemma",
        "braces",
        "FunctionGemma",
        (Opener("<start_function_call>", _calls("<escape>", "<end_function_call>"), ("call:",)),),
        ("<end_function_call>",),
        _renderer("functiongemma", "<start_function_call>", "<escape>", "<end_function_call>"),
        result="<start_function_response>response:{name}{result:<escape>{content}<escape>}<end_function_response>",
    ),
    Dialect(
        "gemma4",
        "braces",
        "Gemma 4",
        (Opener("<|tool_call>", _calls('<|"|>', "<tool_call|>"), ("call:", ":")),),
        ("<tool_call|>",),
        _renderer("gemma4", "<|tool_call>", '<|"|>', "<tool_call|>"),
    ),
)
