"""Text that is almost JSON, written anew as JSON where exactly one reading is possible (rule 141 a).

Only the way of writing changes: every number, constant and string says what it said, nothing is added, and what is
left out is a comma, a comment or a fence. What has two readings is left alone: a word without quotes as a value, an
escape that JSON does not know, text behind the value. Brackets that are missing at the very end are named apart:
adding them is a salvage, not a reading (rule 141 d). The result still has to pass the strict reader.

Cost: linear. Each character belongs to one token, and a token is matched once.
"""

import re
from enum import Enum

import msgspec

from mustcall.core.text.possessive import any_number, maybe
from mustcall.policy.schema.subschemas import MAX_DEPTH

__all__ = ["Relaxed", "relax"]

_IN_COMMENT = r"[^*]++|\*(?!/)"
_IN_DOUBLE_QUOTES, _IN_SINGLE_QUOTES = r'[^"\\]++|\\.', r"[^'\\]++|\\."
_FRACTION, _EXPONENT = r"\.[0-9]++", "[eE][-+]?[0-9]++"
_TOKEN = re.compile(
    rf"""
      (?P<blank>[ \t\r\n\f\v\xa0\ufeff]++)
    | (?P<line>(?://|\#)[^\r\n]*+)
    | (?P<block>/\*{any_number(_IN_COMMENT)}\*/)
    | (?P<string>"{any_number(_IN_DOUBLE_QUOTES)}")
    | (?P<single>'{any_number(_IN_SINGLE_QUOTES)}')
    | (?P<number>-?(?:0|[1-9][0-9]*+){maybe(_FRACTION)}{maybe(_EXPONENT)})
    | (?P<word>[A-Za-z_$][A-Za-z0-9_$-]*+)
    | (?P<mark>[{{}}\[\],:])
    """,
    re.VERBOSE | re.DOTALL,
)
_FENCE = re.compile(r"\s*+(`++|~~~++)[ \t]*+[A-Za-z0-9_.+-]*+")
_FENCE_END = re.compile(r"\s*+(?:`++|~~~++)?\s*+\Z")
_IN_STRING = re.compile(r"\\(.)|[\x00-\x1f]", re.DOTALL)
_IN_SINGLE = re.compile(r"\\(.)|[\x00-\x1f\"]", re.DOTALL)
_TO_ESCAPE = re.compile(r"[\x00-\x1f]|\\'")
_CONSTANTS = {"true": "true", "false": "false", "null": "null"}
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f", '"': '\\"'}
_CLOSERS = {"{": "}", "[": "]"}


class Relaxed(msgspec.Struct, frozen=True):
    """JSON text, the repairs that made it (rows of `repairs.TABLE`), and the brackets that had to be added."""

    text: str
    repairs: tuple[str, ...]
    added: str = ""


class _At(Enum):
    """What may come next."""

    VALUE = "a value"
    FIRST_ITEM = "the first item or the end of a list"
    ITEM = "an item or, behind a trailing comma, the end of a list"
    FIRST_KEY = "the first key or the end of an object"
    KEY = "a key or, behind a trailing comma, the end of an object"
    COLON = "a colon"
    AFTER = "a comma or the end of what is open"
    OVER = "nothing but blanks"


class _Ambiguous(Exception):
    """The text has no reading, or more than one."""


def relax(text: str) -> Relaxed | None:
    """Return the text as JSON; None if it has no reading, or more than one. Never raises."""
    try:
        return _Relaxing(text).read()
    except _Ambiguous:
        return None


_VALUES = frozenset({_At.VALUE, _At.FIRST_ITEM, _At.ITEM})
_KEYS = frozenset({_At.FIRST_KEY, _At.KEY})
_ENDS = frozenset({_At.FIRST_ITEM, _At.ITEM, _At.FIRST_KEY, _At.KEY, _At.AFTER})


class _Relaxing:
    """One text on its way."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._out: list[str] = []
        self._open: list[str] = []
        self._at = _At.VALUE
        self._used: dict[str, None] = {}
        #: Whether the last token may be cut off: a number that nothing follows.
        self._unsure = False
        #: Whether a comment ran to the end of its line: what looks open may have been closed in it.
        self._lined = False

    def read(self) -> Relaxed:
        text = self._text
        fence = _FENCE.match(text)
        position = fence.end() if fence is not None else 0
        if fence is not None:
            self._used["fence"] = None
        while position < len(text):
            token = _TOKEN.match(text, position)
            if token is None:
                if fence is None or _FENCE_END.match(text, position) is None:
                    raise _Ambiguous
                break
            kind = token.lastgroup
            assert kind is not None, "every alternative is a group"
            position = token.end()
            self._take(kind, token[0])
        if not self._open:
            if self._at is not _At.OVER:
                raise _Ambiguous
            return Relaxed("".join(self._out), tuple(self._used))
        if self._at is not _At.AFTER or self._unsure or self._lined:
            raise _Ambiguous
        added = "".join(_CLOSERS[opener] for opener in reversed(self._open))
        return Relaxed("".join(self._out) + added, tuple(self._used), added)

    def _take(self, kind: str, token: str) -> None:
        self._unsure = kind == "number"
        if kind == "blank":
            return
        if kind in ("line", "block"):
            self._used["comment"] = None
            self._lined = self._lined or kind == "line"
            return
        if kind == "mark":
            self._mark(token)
        elif self._at in _KEYS:
            self._key(kind, token)
        elif self._at in _VALUES:
            self._value(kind, token)
        else:
            raise _Ambiguous

    def _mark(self, mark: str) -> None:
        at = self._at
        if mark in "{[":
            if at not in _VALUES or len(self._open) == MAX_DEPTH:  # the strict reader refuses what is deeper
                raise _Ambiguous
            self._separate()
            self._out.append(mark)
            self._open.append(mark)
            self._at = _At.FIRST_KEY if mark == "{" else _At.FIRST_ITEM
        elif mark == ":":
            if at is not _At.COLON:
                raise _Ambiguous
            self._out.append(":")
            self._at = _At.VALUE
        elif mark == ",":
            if at is not _At.AFTER:
                raise _Ambiguous
            self._at = _At.KEY if self._open[-1] == "{" else _At.ITEM
        else:
            if at not in _ENDS or _CLOSERS[self._open[-1]] != mark:
                raise _Ambiguous
            if at in (_At.KEY, _At.ITEM):
                self._used["trailing_comma"] = None
            self._out.append(mark)
            self._open.pop()
            self._at = _At.AFTER if self._open else _At.OVER

    def _separate(self) -> None:
        """Write the comma that was read, now that something follows it."""
        if self._at in (_At.KEY, _At.ITEM):
            self._out.append(",")

    def _key(self, kind: str, token: str) -> None:
        self._separate()
        if kind == "word":
            self._used["bare_key"] = None
            self._out.append(f'"{token}"')
        elif kind in ("string", "single"):
            self._out.append(self._string(kind, token))
        else:
            raise _Ambiguous
        self._at = _At.COLON

    def _value(self, kind: str, token: str) -> None:
        if not self._open:
            raise _Ambiguous  # no object
        self._separate()
        if kind == "number":
            self._out.append(token)
        elif kind == "word":
            if token in _PYTHON:
                self._used["python_constant"] = None
            written = _CONSTANTS.get(token) or _PYTHON.get(token)
            if written is None:
                raise _Ambiguous
            self._out.append(written)
        else:
            self._out.append(self._string(kind, token))
        self._at = _At.AFTER

    def _string(self, kind: str, token: str) -> str:
        if kind == "single":
            self._used["single_quotes"] = None
            return f'"{_IN_SINGLE.sub(self._escaped, token[1:-1])}"'
        return _IN_STRING.sub(self._escaped, token) if _TO_ESCAPE.search(token) else token

    def _escaped(self, found: re.Match[str]) -> str:
        escaped = found[1]
        if escaped is None:
            if found[0] != '"':
                self._used["control_character"] = None
            return _ESCAPES.get(found[0]) or f"\\u{ord(found[0]):04x}"
        if escaped == "'":
            self._used["single_quotes"] = None
            return "'"
        if escaped < " ":
            raise _Ambiguous  # a line that goes on, or a line break
        return found[0]
