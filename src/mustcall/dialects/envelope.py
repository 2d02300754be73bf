"""Reads a call written as one JSON object: `{"name": …, "arguments": {…}}`, its keys in any order.

`arguments`, `args`, `parameters` and `input` are read (rule 61); an envelope without any of them is malformed, since
empty arguments are never invented. The OpenAI nesting `{"function": {"name", "arguments"}}` is followed once.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from mustcall.dialects.dialect import Renderer, WrittenCall
from mustcall.dialects.events import Reason
from mustcall.dialects.jsontext import read_string, read_value
from mustcall.dialects.reader import Fault, Parse, blanks, expect
from mustcall.dialects.span import Call, Span

__all__ = [
    "ARGUMENT_KEYS",
    "array_renderer",
    "dump",
    "read_array",
    "read_envelope",
    "read_envelopes",
    "read_items",
    "read_opened_envelope",
]

NAME_KEYS = frozenset({"name", "tool_name", "tool", "function"})
ARGUMENT_KEYS = frozenset({"arguments", "args", "parameters", "input"})
SIDE_KEYS = frozenset({"id", "call_id", "tool_call_id", "type"})


def read_envelope(span: Span) -> Parse[None]:
    """Read one call, blanks before it included."""
    first = yield from blanks(span.reader)
    if first != "{":
        raise Fault(Reason.BAD_JSON if first else Reason.TRUNCATED)
    span.reader.position += 1
    yield from read_opened_envelope(span)


def read_opened_envelope(span: Span) -> Parse[None]:
    """Read one call whose opening brace was read."""
    call = span.begin()
    yield from _read_fields(span, call, nested=False)
    call.end()


def _read_fields(span: Span, call: Call, *, nested: bool) -> Parse[None]:
    reader = span.reader
    keys: set[str] = set()
    if (yield from blanks(reader)) == "}":
        reader.position += 1
        return
    while True:
        if (yield from blanks(reader)) != '"':
            raise Fault(Reason.BAD_JSON if reader.position < len(reader.buffer) else Reason.TRUNCATED)
        key = yield from read_string(reader)
        separator = yield from blanks(reader)
        if separator != ":":
            raise Fault(Reason.BAD_JSON if separator else Reason.TRUNCATED)
        reader.position += 1
        if key in keys:
            raise Fault(Reason.DUPLICATE_KEY)
        keys.add(key)
        first = yield from blanks(reader)
        if key in NAME_KEYS and first == '"':
            call.named((yield from read_string(reader)))
        elif key == "function" and first == "{" and not nested:
            reader.position += 1
            yield from _read_fields(span, call, nested=True)
        elif key in ARGUMENT_KEYS:
            call.commit()
            yield from call.read_arguments()
        elif span.soft and key not in SIDE_KEYS:
            raise Fault(Reason.BAD_MARKUP)
        else:
            yield from read_value(reader)
        character = yield from blanks(reader)
        if character == "}":
            reader.position += 1
            return
        if character != ",":
            raise Fault(Reason.BAD_JSON if character else Reason.TRUNCATED)
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


def read_array(span: Span, read_item: Callable[[Span], Parse[None]] = read_envelope) -> Parse[None]:
    """Read a JSON array of calls. Each is complete by itself; the array's end belongs to the last."""
    yield from expect(span.reader, "[", Reason.BAD_JSON)
    yield from read_items(span, read_item)


def read_items(span: Span, read_item: Callable[[Span], Parse[None]] = read_envelope) -> Parse[None]:
    """Read the rest of an array whose bracket was read."""
    reader = span.reader
    if (yield from blanks(reader)) == "]":
        raise Fault(Reason.MISSING_NAME)
    while True:
        yield from read_item(span)
        character = yield from blanks(reader)
        if not character:
            # The input ends in the array, but behind a complete call: nothing of a call is missing.
            span.open_ended = True
            return
        if character not in "],":
            raise Fault(Reason.BAD_JSON)
        reader.position += 1
        if character == "]":
            span.drop()
            return


def dump(value: Any) -> str:
    """Return the value as JSON text, non-ASCII characters as they are."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def array_renderer(before: str, after: str, *, name: str = "name", arguments: str = "arguments") -> Renderer:
    """Return a renderer of calls as one JSON array between two markers."""

    def render(calls: Sequence[WrittenCall]) -> str:
        items = [{name: call.name, arguments: call.arguments} for call in calls]
        return f"{before}{dump(items)}{after}"

    return render
