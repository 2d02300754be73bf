"""Reads a call written as one JSON object: `{"name": …, "arguments": {…}}`, its keys in any order.

`arguments`, `args`, `parameters` and `input` are read (rule 61); an envelope without any of them is malformed, since
empty arguments are never invented. The OpenAI nesting `{"function": {"name", "arguments"}}` is followed once.

Without a wrapper (`HeldCalls`) more is asked: no foreign keys, no tool's definition, and nothing else on the line.
"""

import json
import re
import sys
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast

from mustcall.dialects.dialect import Renderer, WrittenCall
from mustcall.dialects.events import Malformed, Reason
from mustcall.dialects.reading.jsontext import read_string, read_value
from mustcall.dialects.reading.reader import NotACall, Parse, Reader, accept_any, ahead, blanks, expect, run
from mustcall.dialects.reading.span import OpenCall, Span
from mustcall.dialects.reasoning import CONTROLS

__all__ = [
    "ARGUMENT_KEYS",
    "NAME_KEYS",
    "SIDE_KEYS",
    "HeldCalls",
    "array_renderer",
    "dump",
    "read_alone",
    "read_array",
    "read_body",
    "read_envelope",
    "read_envelopes",
    "read_items",
    "read_opened_envelope",
    "wraps_arguments",
]

NAME_KEYS = frozenset({"name", "tool_name", "tool", "function"})
ARGUMENT_KEYS = frozenset({"arguments", "args", "parameters", "input"})
SIDE_KEYS = frozenset({"id", "call_id", "tool_call_id", "type"})
CALL_TYPES = frozenset({"function", "tool_call", "tool_use"})

WRAPPER_KEYS = ("arguments", "input")

_SCHEMA_SIGNS = frozenset({"type", "properties"})
_SCHEMA_KEYS = _SCHEMA_SIGNS | {
    *("$schema", "$id", "$defs", "definitions", "title", "description", "required", "additionalProperties", "strict"),
    *("minProperties", "maxProperties", "patternProperties", "propertyNames", "anyOf", "oneOf", "allOf", "examples"),
}
_FIRST_KEY = re.compile(r'\{[ \t\r\n]*+"([^"\\]*+)"')
_KEY_BEGINS = re.compile(r'(?:\{[ \t\r\n]*+(?:"[^"\\]*+)?)?\Z')
_LONGEST_KEY = 64

_SEPARATORS = " \t\r\n,"
_WRAPPER = re.compile(r'(\{[ \t\r\n]*+"(arguments|input)"[ \t\r\n]*+:[ \t\r\n]*+)\{')
_LONGEST_WRAPPER = 64
_SPACES = re.compile(r"[ \t\r]*+")
# What may stand behind a bare call on its line: the tokens models leak, and closers of whatever wrapped it.
_TOKENS = ("</", "<|", *(control.marker for control in CONTROLS if not control.marker.startswith("<|")))


class HeldCalls:
    """Calls without a wrapper: complete, but not made before it is seen that they stand alone on their line.

    `signs` are the keys by which the arguments just read look like the schema in a tool's definition; they are one
    unless the tool itself declares such parameters.
    """

    __slots__ = ("_calls", "_end", "_span", "signs")

    def __init__(self, span: Span) -> None:
        self.signs: frozenset[str] = frozenset()
        self._span = span
        self._calls: list[tuple[OpenCall, str]] = []
        self._end = ""

    def name(self, name: str) -> str:
        """Return a name that can be one; where any counts, a number does not."""
        if self._span.offered.anything and not (name[:1].isalpha() or name[:1] == "_"):
            raise NotACall(Reason.UNKNOWN_TOOL)
        return name

    def hold(self, call: OpenCall, *, certain: bool = True) -> None:
        """Keep a complete call. One that is not `certain` (`f()`) may still turn out to be text nobody reports."""
        if call.written is None:
            raise NotACall(Reason.MISSING_NAME)
        if not call.has_arguments:
            raise NotACall(Reason.MISSING_ARGUMENTS)
        if not self.signs <= _declared(call):
            raise NotACall(Reason.BAD_MARKUP)
        self.signs = frozenset()
        if certain:
            call.commit()
        call.flush()
        self._calls.append((call, self._span.reader.take_span()))
        self._span.call = None

    def expect_more(self) -> None:
        """Say that another call follows: with it even an uncertain one before it is certain."""
        for call, _ in self._calls[-1:]:
            call.commit()
            call.flush()

    def close(self) -> None:
        """Keep what was read since the last call: the end of their list."""
        self._end = self._span.reader.take_span()

    def make(self) -> None:
        """Make the calls. What was read behind them stays as it is."""
        span = self._span
        unfinished, reader = span.call, span.reader
        if unfinished is not None:
            unfinished.flush()
        rest = reader.take_span()
        for call, piece in self._calls:
            own = piece.lstrip(_SEPARATORS) if span.rejected else piece
            if own != piece:
                # What separates a call from one that stayed text is text.
                reader.raw.append(piece[: len(piece) - len(own)])
                span.release()
                span.flowed.clear()
            reader.raw.append(own)
            span.call = call
            call.end()
        if self._end:
            reader.raw.append(self._end)
            span.drop()
        reader.raw.append(rest)
        span.call = unfinished
        self._calls.clear()

    def take_back(self, reason: Reason) -> None:
        """Give everything back to the text and report all calls but the last, which the fault will."""
        span, reader = self._span, self._span.reader
        if not self._calls:
            return
        reader.close_tap()
        if span.soft:
            rest = reader.take_span()
            reader.raw += [*(piece for _, piece in self._calls), self._end, rest]
            return
        rest = reader.take_span()
        if span.call is None:
            span.call, piece = self._calls.pop()
            rest = piece + self._end + rest
        else:
            span.call.flush()
        reader.raw += [*(piece for _, piece in self._calls), rest]
        span.release()
        span.flowed[:] = [rest]
        span.events.extend(
            Malformed(reason, piece, span.dialect, call.index, call.written, span.in_reasoning)
            for call, piece in self._calls
        )
        self._calls.clear()


ReadItem = Callable[[Span, HeldCalls | None], Parse[None]]


def read_alone(span: Span, read: Callable[[HeldCalls], Parse[None]], separators: str = ";") -> Parse[None]:
    """Read calls that have no wrapper. They are made only if nothing else follows on their line."""
    held = HeldCalls(span)
    try:
        yield from read(held)
        held.close()
        yield from _end_line(span.reader, separators)
    except NotACall as fault:
        if fault.reason is Reason.TRUNCATED:
            held.make()
        else:
            held.take_back(fault.reason)
        raise
    held.make()


def _end_line(reader: Reader, separators: str) -> Parse[None]:
    yield from run(reader, _SPACES, sys.maxsize, Reason.BAD_MARKUP)
    following = yield from ahead(reader)
    if following in ("", "\n") or following in separators:
        return
    token = yield from accept_any(reader, _TOKENS)
    reader.position -= len(token)
    cut = reader.closed and any(token.startswith(reader.buffer[reader.position :]) for token in _TOKENS)
    if not token and not cut:
        raise NotACall(Reason.BAD_MARKUP)


def _may_define(call: OpenCall) -> Parse[bool]:
    """Tell whether what comes next may be the schema in a tool's definition and no arguments, reading nothing.

    It may if its first key is a word of JSON schemas that is no parameter of the tool's own.
    """
    reader = call.span.reader
    declared = _declared(call)
    while True:
        beginning = reader.buffer[reader.position : reader.position + _LONGEST_KEY]
        found = _FIRST_KEY.match(beginning)
        if found is not None:
            return found[1] in _SCHEMA_KEYS and found[1] not in declared
        if reader.closed or len(beginning) == _LONGEST_KEY or _KEY_BEGINS.match(beginning) is None:
            return beginning[:1] == '"'
        yield


def _signs_of_schema(text: str) -> frozenset[str]:
    """Return by which of their keys arguments look like a JSON schema, none if they do not."""
    value = json.loads(text)
    if isinstance(value, str):
        value = json.loads(value)
    is_schema = value.get("type") == "object" and ("properties" in value or value.keys() <= _SCHEMA_KEYS)
    return _SCHEMA_SIGNS.intersection(value) if is_schema else frozenset()


def _declared(call: OpenCall) -> AbstractSet[str]:
    declared: object = (call.schema or {}).get("properties")
    return cast("dict[str, Any]", declared).keys() if isinstance(declared, dict) else frozenset()


def read_envelope(span: Span, held: HeldCalls | None = None) -> Parse[None]:
    """Read one call, blanks before it included."""
    first = yield from blanks(span.reader)
    if first != "{":
        raise NotACall(Reason.BAD_JSON if first else Reason.TRUNCATED)
    span.reader.position += 1
    yield from read_opened_envelope(span, held)


def read_opened_envelope(span: Span, held: HeldCalls | None = None) -> Parse[None]:
    """Read one call whose opening brace was read."""
    call = span.begin()
    yield from _read_fields(span, call, held, nested=False)
    if held is not None:
        held.hold(call)
    else:
        call.end()


def _read_fields(span: Span, call: OpenCall, held: HeldCalls | None, *, nested: bool) -> Parse[None]:
    reader = span.reader
    keys: set[str] = set()
    if (yield from blanks(reader)) == "}":
        reader.position += 1
        return
    while True:
        if (yield from blanks(reader)) != '"':
            raise NotACall(Reason.BAD_JSON if reader.position < len(reader.buffer) else Reason.TRUNCATED)
        key = yield from read_string(reader)
        separator = yield from blanks(reader)
        if separator != ":":
            raise NotACall(Reason.BAD_JSON if separator else Reason.TRUNCATED)
        reader.position += 1
        if key in keys:
            raise NotACall(Reason.DUPLICATE_KEY)
        keys.add(key)
        first = yield from blanks(reader)
        if key in NAME_KEYS and first == '"':
            name = yield from read_string(reader)
            call.named(name if held is None else held.name(name))
        elif key == "function" and first == "{" and not nested:
            reader.position += 1
            yield from _read_fields(span, call, held, nested=True)
        elif key in ARGUMENT_KEYS:
            may_define = held is not None and key == "parameters" and (yield from _may_define(call))
            if not may_define:
                call.commit()
            pieces, before = len(reader.raw), reader.position - reader.start
            yield from call.read_arguments()
            if held is not None and may_define:
                read = "".join(reader.raw[pieces:]) + reader.buffer[reader.start : reader.position]
                held.signs = _signs_of_schema(read[before:])
        elif (held is not None or span.soft) and key not in SIDE_KEYS:
            raise NotACall(Reason.BAD_MARKUP)
        elif held is not None and key == "type":
            if first != '"' or (yield from read_string(reader)) not in CALL_TYPES:
                raise NotACall(Reason.BAD_MARKUP)
        else:
            yield from read_value(reader)
        character = yield from blanks(reader)
        if character == "}":
            reader.position += 1
            return
        if character != ",":
            raise NotACall(Reason.BAD_JSON if character else Reason.TRUNCATED)
        reader.position += 1


def read_envelopes(span: Span, separators: str = "") -> Parse[None]:
    """Read one call and any that follow it directly, each behind one of the separators if there are any."""
    while True:
        yield from read_envelope(span)
        following = yield from blanks(span.reader)
        if following and following in separators:
            span.reader.position += 1
            span.drop()
            following = yield from blanks(span.reader)
        if following != "{":
            return


def read_array(span: Span, read_item: ReadItem = read_envelope) -> Parse[None]:
    """Read a JSON array of calls. Each is complete by itself; the array's end belongs to the last."""
    yield from expect(span.reader, "[", Reason.BAD_JSON)
    yield from read_items(span, read_item)


def read_items(span: Span, read_item: ReadItem = read_envelope, held: HeldCalls | None = None) -> Parse[None]:
    """Read the rest of an array whose bracket was read."""
    reader = span.reader
    span.begin_list()
    if (yield from blanks(reader)) == "]":
        raise NotACall(Reason.MISSING_NAME)
    while True:
        yield from read_item(span, held)
        character = yield from blanks(reader)
        if not character:
            # The input ends in the array, but behind a complete call: nothing of a call is missing.
            span.open_ended = True
            return
        if character not in "],":
            raise NotACall(Reason.BAD_JSON)
        reader.position += 1
        if character == "]":
            span.end_list()
            if held is None:
                span.drop()
            return


def read_body(call: OpenCall) -> Parse[None]:
    """Read a call's arguments from the JSON object in its tags, unwrapped where models wrap them once more."""
    reader = call.span.reader
    wrapper = yield from _wrapper(call)
    if wrapper:
        reader.position += len(wrapper)
    yield from call.read_arguments()
    if wrapper:
        following = yield from blanks(reader)
        if following != "}":
            raise NotACall(Reason.AMBIGUOUS_ARGUMENTS if following else Reason.TRUNCATED)
        reader.position += 1


def wraps_arguments(call: OpenCall, key: str) -> bool:
    """Tell whether this key is a wrapper around the arguments and none of them, which only a schema can say."""
    declared: object = (call.schema or {}).get("properties")
    return key in WRAPPER_KEYS and isinstance(declared, dict) and key not in declared


def _wrapper(call: OpenCall) -> Parse[str]:
    """Return the beginning of an object that only wraps the arguments, unread; "" if it is none."""
    reader = call.span.reader
    while True:
        beginning = reader.buffer[reader.position : reader.position + _LONGEST_WRAPPER]
        found = _WRAPPER.match(beginning)
        if found is not None:
            return found[1] if wraps_arguments(call, found[2]) else ""
        bare = "".join(beginning.split())
        waits = any(f'{{"{key}":{{'.startswith(bare) for key in WRAPPER_KEYS)
        if not waits or reader.closed or len(beginning) == _LONGEST_WRAPPER:
            return ""
        yield


def dump(value: Any) -> str:
    """Return the value as JSON text, non-ASCII characters as they are."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def array_renderer(before: str, after: str, *, name: str = "name", arguments: str = "arguments") -> Renderer:
    """Return a renderer of calls as one JSON array between two markers."""

    def render(calls: Sequence[WrittenCall]) -> str:
        items = [{name: call.name, arguments: call.arguments} for call in calls]
        return f"{before}{dump(items)}{after}"

    return render
