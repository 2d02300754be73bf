"""One element per key, nested as deep as the value: MiniMax M3, where a sentinel stands before every tag.

A mapping is a series of elements, an array a series of `item` elements, anything else is text. The schema types the
leaves, and says whether an empty element is a string, an array or an object. Repeated elements of one name are an
array, too: the first is held until the next tag tells, if it is a leaf; one that holds elements has gone out by then,
and repeating it is a duplicate key, unless the schema declared the array. Text before elements is their `$text`.
"""

import re
from collections.abc import Sequence
from typing import Any, cast

from mustcall.core.errors import UnsupportedFeature
from mustcall.core.origin import JsonObject
from mustcall.dialects.dialect import Dialect, Opener, WrittenCall
from mustcall.dialects.events import Reason
from mustcall.dialects.families.xml_params import plain_key, read_attribute
from mustcall.dialects.reading.envelope import dump
from mustcall.dialects.reading.jsontext import MAX_DEPTH, escape, quote
from mustcall.dialects.reading.reader import NotACall, Parse, accept, blanks, copy_until, expect, run
from mustcall.dialects.reading.schema import DeclaredParameter, Kind, child_schema, declares_string
from mustcall.dialects.reading.span import OpenCall, Span
from mustcall.dialects.scanning.grammar import marks_of

__all__ = ["DIALECTS"]

_S = "]<]minimax[>["
_TAG = re.compile(r"[^<>\s\"'/]*+")
_NEXT = marks_of(_S)
_STREAMED = "\0streamed"


class _Element:
    """An open element: its tag, its schema, and once known what it holds (`array` or `object`).

    In an object, `last` is the tag of the leaf or the list that was read last, `held` the text of a leaf that is not
    written yet, and `listing` tells that a list of repeated elements is open.
    """

    __slots__ = ("filled", "held", "keys", "kind", "last", "listing", "schema", "tag")

    def __init__(self, tag: str, schema: JsonObject | None, kind: str = "") -> None:
        self.tag = tag
        self.schema = schema
        self.kind = kind
        self.keys: set[str] = set()
        self.filled = False
        self.last = ""
        self.held: str | None = None
        self.listing = False


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
            stack.pop()
            _close(call, element, stack[-1] if stack else None, text, root)
            continue
        yield from expect(reader, "<")
        tag = yield from run(reader, _TAG, 256, Reason.BAD_MARKUP)
        yield from expect(reader, ">")
        if not tag or text is _STREAMED:
            raise NotACall(Reason.BAD_MARKUP)
        if len(stack) == MAX_DEPTH:
            raise NotACall(Reason.TOO_DEEP)
        if not element.kind:
            _begin_container(call, stack, tag, text or "", root)
        stack.append(_open(call, element, tag, root))
    call.end()


def _read_text(call: OpenCall, element: _Element, root: JsonObject | None) -> Parse[str]:
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
    return declares_string(element.schema, root)


def _closing(element: _Element, text: str | None, root: JsonObject | None) -> str:
    """Return the JSON that an element's end completes."""
    if element.kind:
        return "]" if element.kind == "array" else "}"
    if _is_string(element, root):
        return '"'
    parameter = DeclaredParameter(element.schema, root)
    if not text and parameter.kind is Kind.STRUCTURE:
        return "[]" if parameter.is_array else "{}"
    return parameter.convert(text or "")


def _close(
    call: OpenCall, element: _Element, parent: _Element | None, text: str | None, root: JsonObject | None
) -> None:
    """End an element. A leaf of an object waits: the next tag may repeat it."""
    if element.kind:
        _settle(call, element, root)
    is_leaf = text is not None and text is not _STREAMED
    if is_leaf and parent is not None and parent.kind == "object" and not parent.listing:
        parent.last, parent.held = element.tag, text
        return
    call.write(_closing(element, text, root))


def _settle(call: OpenCall, parent: _Element, root: JsonObject | None) -> None:
    """Write what an object held back: no further element repeats it."""
    if parent.held is not None:
        leaf = _Element(parent.last, child_schema(parent.schema, parent.last, root))
        call.write(_closing(leaf, parent.held, root))
    if parent.listing:
        call.write("]")
    parent.last, parent.held, parent.listing = "", None, False


def _begin_container(call: OpenCall, stack: list[_Element], tag: str, text: str, root: JsonObject | None) -> None:
    """Begin an array or an object: an element's first inner tag tells which."""
    parent, element = stack[-2:]
    listed = tag == "item" and child_schema(element.schema, tag, root) is None
    element.kind = "array" if listed else "object"
    if (
        not listed
        and parent.kind == "object"
        and not parent.listing
        and DeclaredParameter(element.schema, root).is_array
    ):
        call.write("[")
        parent.last, parent.listing = element.tag, True
        element.schema = child_schema(element.schema, None, root)
    call.write("[" if listed else "{")
    if text.strip():
        if listed:
            raise NotACall(Reason.BAD_MARKUP)
        call.write(f'"$text": {quote(text)}')
        element.keys.add("$text")
        element.filled = True


def _open(call: OpenCall, parent: _Element, tag: str, root: JsonObject | None) -> _Element:
    """Begin an element inside another."""
    declared = child_schema(parent.schema, tag, root)
    if parent.kind == "object" and tag == parent.last:
        return _repeat(call, parent, tag, declared, root)
    _settle(call, parent, root)
    call.write(", " if parent.filled else "")
    parent.filled = True
    if parent.kind == "array":
        if tag != "item":
            raise NotACall(Reason.BAD_MARKUP)
        return _Element(tag, child_schema(parent.schema, None, root))
    if tag in parent.keys:
        raise NotACall(Reason.DUPLICATE_KEY)
    parent.keys.add(tag)
    call.write(quote(tag) + ": ")
    return _Element(tag, declared)


def _repeat(
    call: OpenCall, parent: _Element, tag: str, declared: JsonObject | None, root: JsonObject | None
) -> _Element:
    """Begin an element of the same name as the one before it: both are items of one array."""
    items = child_schema(declared, None, root) if DeclaredParameter(declared, root).is_array else declared
    if parent.held is not None:
        call.write("[" + DeclaredParameter(items, root).convert(parent.held))
        parent.held, parent.listing = None, True
    call.write(", ")
    return _Element(tag, items)


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
