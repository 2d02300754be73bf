"""Reads a Python literal as it arrives and says the same in JSON, and writes one. Nothing is ever evaluated.

Taken: strings of every quoting (`r` and `u` prefixes, adjacent ones joined), numbers, `True`/`False`/`None` and their
JSON spellings, lists, tuples, dicts with string keys. Refused, because they are no JSON value or no literal: bytes,
f-strings, sets, complex numbers, parenthesised expressions, names, calls, operators.
"""

import json
import re
from collections.abc import Callable
from enum import IntEnum

from mustcall.core.text.possessive import any_number, at_least_one
from mustcall.dialects.events import Reason
from mustcall.dialects.reading.jsontext import MAX_DEPTH, SHORT_NUMBER, Open, escape
from mustcall.dialects.reading.reader import NotACall, Parse, Reader, ahead, blanks, run

__all__ = ["read_literal", "write_literal"]

_Write = Callable[[str], None]

_CONSTANTS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_WORD = re.compile(r"[A-Za-z_]*+")
_SCALAR = re.compile(r"[-+0-9A-Za-z_.]*+")
_INTEGER = re.compile(r"([-+]?)(0(?:_?0)*|[1-9][0-9]*(?:_[0-9]+)*)\Z")
_BASED = re.compile(r"([-+]?)(0[xX][0-9A-Fa-f_]+|0[oO][0-7_]+|0[bB][01_]+)\Z")
_FLOAT = re.compile(r"([-+]?)([0-9](?:_?[0-9])*)?(\.(?:[0-9](?:_?[0-9])*)?)?([eE][-+]?[0-9]{1,6})?\Z")
# What certainly goes on inside a string: plain characters and escapes of a known length.
_KNOWN_ESCAPE = r"[\\'\"abfnrtv]|x[0-9A-Fa-f]{2}"
_SIMPLE_ESCAPE = re.compile(rf"\\({_KNOWN_ESCAPE})")
_ESCAPED = rf"\\(?:{_KNOWN_ESCAPE})"
_PLAIN: dict[tuple[bool, int, str], re.Pattern[str]] = {
    (raw, size, quote): re.compile(any_number(rf"[^{quote}\\{newlines}]++{'' if raw else rf'|{_ESCAPED}'}"))
    for raw in (False, True)
    for size, newlines in ((1, r"\n\r"), (3, ""))
    for quote in "'\""
}
_ESCAPES = {
    "\n": "",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
# Many plain items of a list, each with its comma: read in one step. Strings without what JSON writes otherwise.
_PLAIN_STRING = '"' + any_number(r"""[^'"\\,()\x00-\x1f]++|\\[\\bfnrt]""") + '"'
_PLAIN_ITEM = rf"""{SHORT_NUMBER}|'[^'"\\,()\x00-\x1f]*+'|{_PLAIN_STRING}"""
_FLAT_ITEMS = re.compile(at_least_one(rf"(?:{_PLAIN_ITEM})[ \t\r\n]*+,[ \t\r\n]*+"))
_ITEMS = re.compile(at_least_one(rf"(?:{_PLAIN_ITEM}|\[\]|\(\)|\{{\}})[ \t\r\n]*+,[ \t\r\n]*+"))
_TO_JSON = str.maketrans("'()", '"[]')
_ITEM_END = re.compile(r"[ \t\r\n]*+,[ \t\r\n]*+")
_CLOSERS = {"[": "]", "(": ")", "{": "}"}


class _At(IntEnum):
    """Where in a value the reader stands."""

    VALUE = 0
    ITEM_OR_END = 1
    KEY_OR_END = 2
    AFTER = 3


class _Level:
    """One open container: what closes it, its keys if it is a dict, how many items it has."""

    __slots__ = ("closer", "commas", "keys", "size")

    def __init__(self, opener: str, keys: set[str] | None = None, size: int = 0) -> None:
        self.closer = _CLOSERS[opener]
        self.keys = set[str]() if keys is None and opener == "{" else keys
        self.size = size
        self.commas = 0


def read_literal(reader: Reader, write: _Write, left: Open | None = None) -> Parse[None]:  # noqa: PLR0915 - one loop, one table of states
    """Read one literal, blanks before it included, and write it as JSON piece by piece.

    With `left` given, the beginning was read and written as JSON, and the literal goes on from there.
    """
    stack: list[_Level] = []
    at = _At.VALUE
    if left is not None:
        stack = [_Level("[" if keys is None else "{", keys, 1) for keys in left.containers]
        if left.at_key:
            # The comma before the key was written with the JSON.
            at, stack[-1].size = _At.KEY_OR_END, 0
    while True:
        character = yield from blanks(reader)
        if not character:
            raise NotACall(Reason.TRUNCATED)
        level = stack[-1] if stack else None
        if at is _At.AFTER:
            assert level is not None
            if character == ",":
                reader.position += 1
                level.commas += 1
                at = _At.ITEM_OR_END if level.keys is None else _At.KEY_OR_END
                continue
            if character != level.closer:
                raise NotACall(Reason.BAD_LITERAL)
        if level is not None and at is not _At.VALUE and character == level.closer:
            if level.closer == ")" and level.size == 1 and not level.commas:
                raise NotACall(Reason.BAD_LITERAL)
            reader.position += 1
            write("}" if level.keys is not None else "]")
            stack.pop()
            if not stack:
                return
            at = _At.AFTER
            continue
        if level is not None and at is not _At.VALUE and level.size:
            write(", ")
        plain = _ITEMS if len(stack) < MAX_DEPTH else _FLAT_ITEMS
        if at is _At.ITEM_OR_END and (items := plain.match(reader.buffer, reader.position)):
            assert level is not None
            reader.position = items.end()
            texts = _ITEM_END.split(items.group().translate(_TO_JSON))[:-1]
            write(", ".join(texts))
            level.size += len(texts)
            level.commas += len(texts)
            continue
        if at is _At.KEY_OR_END:
            assert level is not None
            yield from _read_key(reader, level, write)
            at = _At.VALUE
            continue
        if level is not None and level.keys is None:
            level.size += 1
        if character in _CLOSERS:
            if len(stack) == MAX_DEPTH:
                raise NotACall(Reason.TOO_DEEP)
            reader.position += 1
            stack.append(_Level(character))
            write("{" if character == "{" else "[")
            at = _At.KEY_OR_END if character == "{" else _At.ITEM_OR_END
            continue
        yield from _read_scalar(reader, character, write)
        if not stack:
            return
        at = _At.AFTER


def _read_key(reader: Reader, level: _Level, write: _Write) -> Parse[None]:
    assert level.keys is not None
    raw = yield from _read_prefix(reader)
    pieces: list[str] = []
    yield from _read_strings(reader, raw, pieces.append)
    key = "".join(pieces)
    separator = yield from blanks(reader)
    if separator != ":":
        raise NotACall(Reason.BAD_LITERAL if separator else Reason.TRUNCATED)
    reader.position += 1
    if key in level.keys:
        raise NotACall(Reason.DUPLICATE_KEY)
    level.keys.add(key)
    level.size += 1
    write(f'"{escape(key)}": ')


def _read_scalar(reader: Reader, character: str, write: _Write) -> Parse[None]:
    if character in "'\"":
        write('"')
        yield from _read_strings(reader, False, lambda piece: write(escape(piece)))
        write('"')
        return
    if character.isdigit() or character in "-+.":
        text = yield from run(reader, _SCALAR, 1024, Reason.BAD_LITERAL)
        write(_number(text))
        return
    word = yield from run(reader, _WORD, 16, Reason.BAD_LITERAL)
    following = yield from ahead(reader)
    if following and following in "'\"" and word in ("r", "R", "u", "U"):
        write('"')
        yield from _read_strings(reader, word in "rR", lambda piece: write(escape(piece)))
        write('"')
        return
    if word not in _CONSTANTS or following.isalnum():
        raise NotACall(Reason.BAD_LITERAL if following else Reason.TRUNCATED)
    write(_CONSTANTS[word])


def _number(text: str) -> str:
    """Return the number as JSON writes it; digits are kept as they are."""
    if found := _INTEGER.match(text):
        digits = found[2].replace("_", "")
        return ("-" if found[1] == "-" else "") + ("0" if digits.startswith("0") else digits)
    if found := _BASED.match(text):
        try:
            return ("-" if found[1] == "-" else "") + str(int(found[2], 0))
        except ValueError:
            raise NotACall(Reason.BAD_LITERAL) from None
    found = _FLOAT.match(text)
    if found is None or not (found[2] or (found[3] or ".") != ".") or not (found[3] or found[4]):
        raise NotACall(Reason.BAD_LITERAL)
    whole = (found[2] or "0").replace("_", "").lstrip("0") or "0"
    fraction = (found[3] or "").replace("_", "")
    if fraction == ".":
        fraction = ".0"
    return ("-" if found[1] == "-" else "") + whole + fraction + (found[4] or "")


def _read_prefix(reader: Reader) -> Parse[bool]:
    """Read a string prefix, if there is one; return whether it makes the string raw."""
    if (yield from ahead(reader)) in ("'", '"'):
        return False
    word = yield from run(reader, _WORD, 16, Reason.BAD_LITERAL)
    following = yield from ahead(reader)
    if word not in ("r", "R", "u", "U") or not following or following not in "'\"":
        raise NotACall(Reason.BAD_LITERAL if following else Reason.TRUNCATED)
    return word in "rR"


def _read_strings(reader: Reader, raw: bool, write: _Write) -> Parse[None]:
    """Read a string and those that stand directly behind it."""
    while True:
        yield from _read_string(reader, raw, write)
        following = yield from blanks(reader)
        if not following or following not in "'\"":
            return
        raw = False


def _read_string(reader: Reader, raw: bool, write: _Write) -> Parse[None]:
    quote = reader.buffer[reader.position]
    delimiter = yield from _read_delimiter(reader, quote)
    if not delimiter:
        return
    plain = _PLAIN[raw, len(delimiter), quote]
    while True:
        buffer, position = reader.buffer, reader.position
        found = plain.match(buffer, position)
        assert found is not None
        end = found.end()
        if end > position:
            reader.position = end
            text = buffer[position:end]
            write(text if raw or "\\" not in text else _SIMPLE_ESCAPE.sub(_unescape, text))
        if end == len(buffer):
            if reader.closed:
                raise NotACall(Reason.TRUNCATED)
            yield
        elif buffer[end] == "\\":
            write((yield from _read_escape(reader, raw)))
        elif buffer[end] != quote:
            raise NotACall(Reason.BAD_LITERAL)
        elif len(delimiter) == 1:
            reader.position += 1
            return
        else:
            yield from _hold(reader, 3)
            if reader.buffer.startswith(delimiter, reader.position):
                reader.position += 3
                return
            reader.position += 1
            write(quote)


def _unescape(found: re.Match[str]) -> str:
    kind = found[1]
    return _ESCAPES[kind] if len(kind) == 1 else chr(int(kind[1:], 16))


def _read_delimiter(reader: Reader, quote: str) -> Parse[str]:
    """Read the opening quotes; "" means that the string is empty and was read whole."""
    reader.position += 1
    if (yield from ahead(reader)) != quote:
        return quote
    reader.position += 1
    if (yield from ahead(reader)) != quote:
        return ""
    reader.position += 1
    return quote * 3


def _read_escape(reader: Reader, raw: bool) -> Parse[str]:
    yield from _hold(reader, 2)
    kind = reader.buffer[reader.position + 1]
    if raw:
        reader.position += 2
        return "\\" + kind
    if kind in _HEX_DIGITS:
        return (yield from _read_code(reader, _HEX_DIGITS[kind]))
    if kind in "01234567":
        return (yield from _read_octal(reader))
    if kind == "N":
        raise NotACall(Reason.BAD_LITERAL)
    reader.position += 2
    return _ESCAPES.get(kind, "\\" + kind)


def _read_octal(reader: Reader) -> Parse[str]:
    size = 1
    while size < 4:
        while len(reader.buffer) - reader.position <= size and not reader.closed:
            yield
        character = reader.buffer[reader.position + size : reader.position + size + 1]
        if not character or character not in "01234567":
            break
        size += 1
    code = int(reader.buffer[reader.position + 1 : reader.position + size], 8)
    reader.position += size
    return chr(code)


def _read_code(reader: Reader, digits: int) -> Parse[str]:
    """Read a hexadecimal escape; a surrogate pair, which JSON habits write, counts as its one character."""
    code = yield from _peek_code(reader, 0, digits)
    size = digits + 2
    if 0xD800 <= code <= 0xDBFF and digits == 4:
        low = yield from _peek_code(reader, size, digits)
        if not 0xDC00 <= low <= 0xDFFF:
            raise NotACall(Reason.BAD_LITERAL)
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        size *= 2
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise NotACall(Reason.BAD_LITERAL)
    reader.position += size
    return chr(code)


def _peek_code(reader: Reader, offset: int, digits: int) -> Parse[int]:
    for index in range(digits + 2):
        yield from _hold(reader, offset + index + 1)
        character = reader.buffer[reader.position + offset + index]
        allowed = "\\" if index == 0 else "xuU" if index == 1 else "0123456789abcdefABCDEF"
        if character not in allowed:
            raise NotACall(Reason.BAD_LITERAL)
    begin = reader.position + offset + 2
    return int(reader.buffer[begin : begin + digits], 16)


def _hold(reader: Reader, count: int) -> Parse[None]:
    while len(reader.buffer) - reader.position < count:
        if reader.closed:
            raise NotACall(Reason.TRUNCATED)
        yield


def write_literal(value: object) -> str:
    """Return a value as a Python literal."""
    text = repr(value)
    # A number Python would write as a name (`1e999` reads as inf) has no literal; JSON spells it as it came.
    return json.dumps(value, allow_nan=False) if "inf" in text and isinstance(value, float) else text
