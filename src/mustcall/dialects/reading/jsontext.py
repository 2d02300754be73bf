"""Reads JSON as it arrives, strictly: what passes here is one valid JSON text, character for character.

Refused, because two readers of the result could disagree or none could carry it: duplicate keys (compared after
decoding), `NaN` and `Infinity`, raw control characters in strings, lone surrogates, numbers over 1,024 characters,
nesting over 100. It repairs nothing and knows nothing of tools.

Each character is looked at once (a string that a piece cuts off, at most twice within that piece).
"""

import json
import re
from collections.abc import Callable
from enum import IntEnum

from mustcall.core.text.possessive import any_number, at_least_one, maybe
from mustcall.dialects.events import Reason
from mustcall.dialects.reading.reader import NotACall, Parse, Reader, ahead, blanks, run

__all__ = [
    "MAX_DEPTH",
    "SHORT_NUMBER",
    "Open",
    "decode_string",
    "escape",
    "is_scalar",
    "quote",
    "read_object",
    "read_string",
    "read_value",
    "read_wrapped_object",
]

MAX_DEPTH = 100
MAX_NUMBER = 1024

_HEX = "[0-9A-Fa-f]"
# What certainly goes on inside a string: plain characters and whole escapes, both halves of a surrogate pair as one.
_ESCAPED = (
    rf'\\(?:["\\/bfnrt]|u(?:[0-9A-CEFa-cef]{_HEX}{{3}}|[Dd][0-7]{_HEX}{{2}}'
    rf"|[Dd][89ABab]{_HEX}{{2}}\\u[Dd][C-Fc-f]{_HEX}{{2}}))"
)
_INSIDE = any_number(rf'[^"\\\x00-\x1f]++|{_ESCAPED}')
_PLAIN = re.compile(_INSIDE)
_SIMPLE_STRING = re.compile(rf'"{_INSIDE}"')
_SIMPLE_KEY = re.compile(r'"([^"\\\x00-\x1f]*+)"[ \t\r\n]*+:[ \t\r\n]*+')
_NUMBER = r"-?(?:0|[1-9][0-9]*+)" + maybe(r"\.[0-9]++") + maybe("[eE][-+]?[0-9]++")
SHORT_NUMBER = r"-?(?:0|[1-9][0-9]{0,99}+)" + maybe(r"\.[0-9]{1,99}+") + maybe("[eE][-+]?[0-9]{1,9}+")
_SHORT_SCALAR = re.compile(rf"(?:{SHORT_NUMBER}|true|false|null)(?=[,\]}} \t\r\n])")
# Many plain items of an array, each with its comma: read in one step.
_ITEM = rf'(?:{SHORT_NUMBER}|true|false|null|"{_INSIDE}")[ \t\r\n]*+'
_LIST = r"\[[ \t\r\n]*+" + maybe(_ITEM + any_number(rf",[ \t\r\n]*+{_ITEM}")) + r"\][ \t\r\n]*+"
_FLAT_ITEMS = re.compile(at_least_one(rf"{_ITEM},[ \t\r\n]*+"))
_ITEMS = re.compile(at_least_one(rf"(?:{_ITEM}|{_LIST}|\{{\}}[ \t\r\n]*+),[ \t\r\n]*+"))
_SCALAR_RUN = re.compile(r"[-+.0-9A-Za-z]*+")
_WHOLE_SCALAR = re.compile(rf"(?:{_NUMBER}|true|false|null)\Z")
# What begins a value in Python and none in JSON: a string, a tuple, `True`, `False` and `None`.
_PYTHON = "'(TFN"
_ENCODE = json.JSONEncoder(ensure_ascii=False).encode
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def quote(text: str) -> str:
    """Return the text as a JSON string."""
    return _ENCODE(text)


def escape(text: str) -> str:
    """Return the text as the inside of a JSON string."""
    return _ENCODE(text)[1:-1]


def is_scalar(text: str) -> bool:
    """Tell whether a text is a JSON number, `true`, `false` or `null`."""
    return len(text) <= MAX_NUMBER and _WHOLE_SCALAR.match(text) is not None


class _At(IntEnum):
    """Where in a value the reader stands."""

    VALUE = 0
    FIRST_ITEM = 1
    KEY = 2
    FIRST_KEY = 3
    AFTER = 4


class Open:
    """The containers that are open where a text stops being JSON and begins to be Python, outermost first.

    Of an object its keys so far, of an array None. `at_key` tells that a key comes next and no value.
    """

    __slots__ = ("at_key", "containers")

    def __init__(self) -> None:
        self.containers: list[set[str] | None] = []
        self.at_key = False


def read_object(reader: Reader) -> Parse[None]:
    """Read one JSON object, blanks before it included."""
    first = yield from blanks(reader)
    if first != "{":
        raise NotACall(Reason.NOT_OBJECT if first else Reason.TRUNCATED)
    yield from read_value(reader)


def read_value(reader: Reader, left: Open | None = None) -> Parse[None]:  # noqa: PLR0915 - one loop, one table
    """Read one JSON value, blanks before it included.

    With `left` given, reading ends in front of what only Python writes, and `left` says what is open there.
    """
    stack: list[set[str] | None] = [] if left is None else left.containers
    at = _At.VALUE
    while True:
        buffer, position = reader.buffer, reader.position
        character = buffer[position] if position < len(buffer) else ""
        if not character or character in " \t\r\n":
            character = yield from blanks(reader)
            if not character:
                raise NotACall(Reason.TRUNCATED)
        if at is _At.AFTER:
            if character == ",":
                reader.position += 1
                at = _At.VALUE if stack[-1] is None else _At.KEY
                continue
            if character != ("]" if stack[-1] is None else "}"):
                raise NotACall(Reason.BAD_JSON)
            reader.position += 1
            stack.pop()
        elif at >= _At.KEY:
            if character == '"':
                keys = stack[-1]
                assert keys is not None
                simple = _SIMPLE_KEY.match(reader.buffer, reader.position)
                if simple is not None:
                    reader.position = simple.end()
                    key = simple[1]
                else:
                    key = yield from _read_key(reader)
                if key in keys:
                    raise NotACall(Reason.DUPLICATE_KEY)
                keys.add(key)
                at = _At.VALUE
                continue
            if left is not None and character == "'":
                left.at_key = True
                return
            if character != "}" or at is _At.KEY:
                raise NotACall(Reason.BAD_JSON)
            reader.position += 1
            stack.pop()
        elif stack and stack[-1] is None and (items := _read_items(reader, len(stack))):
            reader.position = items
            at = _At.VALUE
            continue
        elif character == '"':
            yield from _skip_string(reader)
        elif character == "{" or character == "[":  # noqa: PLR1714 - the hot path
            if len(stack) == MAX_DEPTH:
                raise NotACall(Reason.TOO_DEEP)
            reader.position += 1
            stack.append(set() if character == "{" else None)
            at = _At.FIRST_KEY if character == "{" else _At.FIRST_ITEM
            continue
        elif character == "]" and at is _At.FIRST_ITEM:
            reader.position += 1
            stack.pop()
        elif (scalar := _SHORT_SCALAR.match(reader.buffer, reader.position)) is not None:
            reader.position = scalar.end()
        elif left is not None and stack and character in _PYTHON:
            return
        else:
            yield from _skip_scalar(reader)
        if not stack:
            return
        at = _At.AFTER


def _read_items(reader: Reader, depth: int) -> int:
    """Return where many plain items of an array end, 0 if there are none."""
    found = (_ITEMS if depth < MAX_DEPTH else _FLAT_ITEMS).match(reader.buffer, reader.position)
    return found.end() if found is not None else 0


def _skip_scalar(reader: Reader) -> Parse[None]:
    scalar = yield from run(reader, _SCALAR_RUN, MAX_NUMBER, Reason.BAD_JSON)
    if _WHOLE_SCALAR.match(scalar) is None:
        ended = reader.closed and reader.position == len(reader.buffer)
        raise NotACall(Reason.TRUNCATED if ended else Reason.BAD_JSON)


def _read_key(reader: Reader) -> Parse[str]:
    key = yield from read_string(reader)
    character = yield from blanks(reader)
    if character != ":":
        raise NotACall(Reason.BAD_JSON if character else Reason.TRUNCATED)
    reader.position += 1
    yield from blanks(reader)
    return key


def _skip_string(reader: Reader) -> Parse[None]:
    found = _SIMPLE_STRING.match(reader.buffer, reader.position)
    if found is not None:
        reader.position = found.end()
        return
    reader.position += 1
    while True:
        buffer = reader.buffer
        plain = _PLAIN.match(buffer, reader.position)
        assert plain is not None
        reader.position = position = plain.end()
        if position == len(buffer):
            if reader.closed:
                raise NotACall(Reason.TRUNCATED)
            yield
        elif buffer[position] == '"':
            reader.position += 1
            return
        elif buffer[position] == "\\":
            yield from _read_escape(reader)
        else:
            raise NotACall(Reason.BAD_JSON)


def _read_escape(reader: Reader) -> Parse[str]:
    """Read one escape sequence, both halves of a surrogate pair as one; what it stands for is returned."""
    yield from _hold(reader, 2)
    kind = reader.buffer[reader.position + 1]
    if kind != "u":
        if kind not in _ESCAPES:
            raise NotACall(Reason.BAD_JSON)
        reader.position += 2
        return _ESCAPES[kind]
    code = yield from _peek_unit(reader, 0)
    if not 0xD800 <= code <= 0xDFFF:
        reader.position += 6
        return chr(code)
    if code >= 0xDC00:
        raise NotACall(Reason.BAD_JSON)
    low = yield from _peek_unit(reader, 6)
    if not 0xDC00 <= low <= 0xDFFF:
        raise NotACall(Reason.BAD_JSON)
    reader.position += 12
    return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00))


def _peek_unit(reader: Reader, offset: int) -> Parse[int]:
    """Return the code unit of the escape at this offset, reading nothing; fail at the first wrong character."""
    for index, allowed in enumerate(("\\", "u", None, None, None, None)):
        yield from _hold(reader, offset + index + 1)
        character = reader.buffer[reader.position + offset + index]
        if character not in (allowed or "0123456789abcdefABCDEF"):
            raise NotACall(Reason.BAD_JSON)
    begin = reader.position + offset + 2
    return int(reader.buffer[begin : begin + 4], 16)


def _hold(reader: Reader, count: int) -> Parse[None]:
    while len(reader.buffer) - reader.position < count:
        if reader.closed:
            raise NotACall(Reason.TRUNCATED)
        yield


def decode_string(reader: Reader, write: Callable[[str], None]) -> Parse[None]:
    """Read one JSON string and hand what it says to `write`, piece by piece."""
    if (yield from ahead(reader)) != '"':
        raise NotACall(Reason.BAD_JSON if reader.position < len(reader.buffer) else Reason.TRUNCATED)
    reader.position += 1
    while True:
        buffer, position = reader.buffer, reader.position
        plain = _PLAIN.match(buffer, position)
        assert plain is not None
        end = plain.end()
        if end > position:
            reader.position = end
            text = buffer[position:end]
            write(json.loads(f'"{text}"') if "\\" in text else text)
        if end == len(buffer):
            if reader.closed:
                raise NotACall(Reason.TRUNCATED)
            yield
        elif buffer[end] == '"':
            reader.position += 1
            return
        elif buffer[end] == "\\":
            write((yield from _read_escape(reader)))
        else:
            raise NotACall(Reason.BAD_JSON)


def read_string(reader: Reader) -> Parse[str]:
    """Read one JSON string and return what it says."""
    pieces: list[str] = []
    yield from decode_string(reader, pieces.append)
    return "".join(pieces)


def read_wrapped_object(reader: Reader, write: Callable[[str], None]) -> Parse[None]:
    """Read a JSON string that holds a JSON object, and hand the object's own text to `write` as it comes.

    A fault inside is raised at the string's end, the one place that does not depend on how the text was cut.
    """
    inner = Reader()
    inner.open_tap(write)
    parse = read_object(inner)
    fault: NotACall | None = None
    done = False

    def resume() -> None:
        nonlocal fault, done
        try:
            next(parse)
            inner.settle()
        except StopIteration:
            inner.close_tap()
            done = True
            rest = inner.buffer[inner.position :]
            fault = NotACall(Reason.NOT_OBJECT) if rest.strip(" \t\r\n") else None
        except NotACall as raised:
            inner.close_tap()
            fault = raised

    def take(piece: str) -> None:
        nonlocal fault
        if done:
            fault = fault or (NotACall(Reason.NOT_OBJECT) if piece.strip(" \t\r\n") else None)
        elif fault is None:
            inner.push(piece)
            resume()

    yield from decode_string(reader, take)
    if not done and fault is None:
        inner.closed = True
        resume()
    if fault is not None:
        raise NotACall(Reason.BAD_JSON if fault.reason is Reason.TRUNCATED else fault.reason)
