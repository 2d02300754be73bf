"""One element per key, nested as deep as the value: MiniMax M3, where a sentinel stands before every tag.

A mapping is a series of elements, an array a series of `item` elements, anything else is text. The schema types the
leaves, and says whether an empty element is a string, an array or an object. Repeated elements of one name are an
array, too, but only their end would tell: they are refused as duplicate keys rather than guessed.
"""

import re
from collections.abc import Sequence
from typing import Any, cast

from mustcall.core.errors import UnsupportedFeature
from mustcall.core.origin import JsonObject
from mustcall.dialects.dialect import Dialect, Opener, WrittenCall
from mustcall.dialects.envelope import dump
from mustcall.dialects.events import Reason
from mustcall.dialects.families.xml_params import plain_key, read_attribute
from mustcall.dialects.grammar import marks_of
from mustcall.dialects.jsontext import MAX_DEPTH, escape, quote
from mustcall.dialects.reader import Fault, Parse, accept, blanks, copy_until, expect, run
from mustcall.dialects.schema import Kind, Parameter, child_schema
from mustcall.dialects.span import Call, Span

__all__ = ["DIALECTS"]

_S = "]<]minimax[>["
_TAG = re.compile(r"[^<>\s\"'/]*+")
_NEXT = marks_of(_S)
_STREAMED = "\0"


class _Element:
    """An open element: its tag, its schema, and once known what it holds (`array` or `object`)."""

    __slots__ = ("filled", "keys", "kind", "schema", "tag")

    def __init__(self, tag: str, schema: JsonObject | None, kind: str = "") -> None:
        self.tag = tag
        self.schema = schema
        self.kind = kind
        self.keys: set[str] = set()
        self.filled = False


def _calls(span: Span) -> Parse[None]:
    reader = span.reader
    while (yield from accept(reader, f"{_S}<invoke name=")):
        name = yield from read_attribute(reader)
        yield from blanks(reader)
        yield from expect(reader, ">")
        yield from _invoke(span, name)
        yield from blanks(reader)
    yield from span.finish(f"{_S}</tool_call>")


def _invoke(span: Span, name: str) -> Parse[None]:
    """Read the elements of one call. The stack holds the open elements; the call itself is the lowest."""
    reader = span.reader
    call = span.begin(name)
    root = call.schema
    call.write("{")
    stack = [_Element("invoke", root, "object")]
    while stack:
        element = stack[-1]
        text: str | None = None
        if element.kind:
            yield from blanks(reader)
        else:
            text = yield from _read_text(call, element, root)
        yield from expect(reader, _S)
        if (yield from accept(reader, "</")):
            yield from expect(reader, f"{element.tag}>")
            call.write(_closing(element, text, root))
            stack.pop()
            continue
        yield from expect(reader, "<")
        tag = yield from run(reader, _TAG, 256, Reason.BAD_MARKUP)
        yield from expect(reader, ">")
        if not tag or (text is not None and text.strip()):
            raise Fault(Reason.BAD_MARKUP)
        if len(stack) == MAX_DEPTH:
            raise Fault(Reason.TOO_DEEP)
        stack.append(_open(call, element, tag, root))
    call.end()


def _read_text(call: Call, element: _Element, root: JsonObject | None) -> Parse[str]:
    """Read an element's text up to the next tag; a declared string goes out as it comes, opening quote included."""
    reader = call.span.reader
    if _is_string(element, root):
        call.write('"')
        yield from copy_until(reader, _NEXT, lambda piece: call.write(escape(piece)))
        # Not blank: what is a string cannot turn out to hold elements.
        return _STREAMED
    pieces: list[str] = []
    yield from copy_until(reader, _NEXT, pieces.append)
    return "".join(pieces)


def _is_string(element: _Element, root: JsonObject | None) -> bool:
    return element.schema is not None and Parameter(element.schema, root).kind is Kind.STRING


def _closing(element: _Element, text: str | None, root: JsonObject | None) -> str:
    """Return the JSON that an element's end completes."""
    if element.kind:
        return "]" if element.kind == "array" else "}"
    if _is_string(element, root):
        return '"'
    parameter = Parameter(element.schema, root)
    if not text and parameter.kind is Kind.STRUCTURE:
        return "[]" if parameter.is_array else "{}"
    return parameter.convert(text or "")


def _open(call: Call, parent: _Element, tag: str, root: JsonObject | None) -> _Element:
    """Begin an element inside another, which is thereby known to be an array or an object."""
    if not parent.kind:
        listed = tag == "item" and child_schema(parent.schema, tag, root) is None
        parent.kind = "array" if listed else "object"
        call.write("[" if listed else "{")
    call.write(", " if parent.filled else "")
    parent.filled = True
    if parent.kind == "array":
        if tag != "item":
            raise Fault(Reason.BAD_MARKUP)
        return _Element(tag, child_schema(parent.schema, None, root))
    if tag in parent.keys:
        raise Fault(Reason.DUPLICATE_KEY)
    parent.keys.add(tag)
    call.write(quote(tag) + ": ")
    return _Element(tag, child_schema(parent.schema, tag, root))


def _render(calls: Sequence[WrittenCall]) -> str:
    def text(value: Any) -> str:
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            return "".join(element(key, item) for key, item in items)
        if isinstance(value, list):
            return "".join(element("item", item) for item in cast("list[Any]", value))
        if not isinstance(value, str):
            return dump(value)
        if _S in value:
            raise UnsupportedFeature("the dialect minimax_m3 cannot write a string that contains its sentinel")
        return value

    def element(key: str, value: Any) -> str:
        if "/" in key:
            raise UnsupportedFeature(f"the dialect minimax_m3 cannot write the parameter name {key!r}")
        tag = plain_key(key, "minimax_m3")
        return f"{_S}<{tag}>{text(value)}{_S}</{tag}>"

    inner = "\n".join(
        f'{_S}<invoke name="{call.name}">\n' + text(call.arguments) + f"\n{_S}</invoke>" for call in calls
    )
    return f"{_S}<tool_call>\n{inner}\n{_S}</tool_call>"


DIALECTS = (
    Dialect(
        "minimax_m3",
        "recursive elements",
        "MiniMax M3",
        (Opener(f"{_S}<tool_call>", _calls, (f"{_S}<invoke name=",)),),
        (f"{_S}</tool_call>",),
        _render,
    ),
)
