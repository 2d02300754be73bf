"""A structured answer while it is still being written: the value that its text says so far.

What is complete is there; a text in the middle of being written is there as far as it goes; a number, a word or a name
that may still grow is not. Nothing is checked against a schema: it is a preview, and the answer comes by itself.

Cost: each character is looked at once to find where the text can be cut. A value is made only when the text has grown
by a sixteenth since the last one, so that all values together cost a fixed multiple of the text.
"""

from typing import Any, cast

import msgspec

from mustcall.core.origin import JsonObject

__all__ = ["PartialAnswer"]

_CLOSERS = {"{": "}", "[": "]"}
#: The text has to grow by one part in so many before another value is made.
_SHARE = 16


class PartialAnswer:
    """Takes the text of an answer piece by piece. `wrapped` is the field that the value stands under, if it does."""

    def __init__(self, wrapped: str | None = None) -> None:
        self._wrapped = wrapped
        self._pieces: list[str] = []
        self._length = 0
        #: How much of the text there was when the latest value was made.
        self.made = 0
        self._stack: list[str] = []
        self._begun = False
        self._ended = False
        # Inside a text: whether it is a name, and what an escape still needs.
        self._text = False
        self._name = False
        self._escape = 0
        #: Whether the next text in an object is a name.
        self._names = False
        #: Up to where the text says whole values, and up to where an unfinished text does; 0 is nowhere. Whatever opens
        #: or closes is whole at once, so what is open at the cut is what is open now.
        self._cut = 0
        self._open = 0
        self._last: Any = None

    def feed(self, text: str) -> Any:
        """Take more text; return the value so far where it is another than before, else None."""
        for sign in text:
            self._take(sign)
        if not self._begun or self._length < self.made + max(1, self.made // _SHARE):
            return None
        value, self.made = self._value(), self._length
        if value is None or value == self._last:
            return None
        self._last = value
        return value

    def _take(self, sign: str) -> None:
        if not self._begun:
            if sign not in _CLOSERS:
                return  # blanks, a fence, words before the answer
            self._begun = True
        if self._ended:
            return
        self._pieces.append(sign)
        self._length += 1
        if self._text:
            self._take_in_text(sign)
        elif sign == '"':
            self._text, self._name = True, self._names
        elif sign in _CLOSERS:
            self._stack.append(sign)
            self._names = sign == "{"
            self._cut = self._length
        elif sign in "}]":
            if self._stack:
                self._stack.pop()
            self._names = False
            self._cut = self._length
            self._ended = not self._stack
        elif sign == ",":
            self._cut = self._length - 1
            self._names = bool(self._stack) and self._stack[-1] == "{"
        elif sign == ":":
            self._names = False

    def _take_in_text(self, sign: str) -> None:
        if self._escape:
            self._escape = 4 if self._escape == -1 and sign == "u" else max(0, self._escape - 1)
        elif sign == "\\":
            self._escape = -1
            return
        elif sign == '"':
            self._text, self._open = False, 0
            if not self._name:
                self._cut = self._length
            return
        if not self._name and not self._escape:
            self._open = self._length

    def _value(self) -> Any:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        try:
            closers = "".join(_CLOSERS[each] for each in reversed(self._stack))
            written = self._pieces[0][: self._open or self._cut]
            value: Any = msgspec.json.decode("".join((written, '"' if self._open else "", closers)))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None  # half a character, or no JSON at all: nothing is shown of it
        if self._wrapped is None:
            return value
        return cast("JsonObject", value).get(self._wrapped) if isinstance(value, dict) else None
