"""Notices a model that writes the same piece again and again, which small models do until their limit.

A reply of 1,024 tokens of one repeated line takes the embedded model a minute on two cores, and nothing in it is of
use after its first line. Only requests with tools are watched: a person may ask for a hundred times the same word.

Cost: for every 64 characters one search in the last 2,048.
"""

__all__ = ["Repetition"]

#: Pieces of more characters than this are not looked for.
_LONGEST = 256
#: So often a piece stands behind itself, and over so many characters, before it is no content any more: 250 zeros in
#: arguments, or 80 empty items of a list, stay whole.
_TIMES, _CHARACTERS = 8, 1_024
_WINDOW = _LONGEST * _TIMES
_EVERY = 64
#: By these last characters the piece before is found.
_PROBE = 24


class Repetition:
    """Watches one text."""

    __slots__ = ("_tail", "_unseen")

    def __init__(self) -> None:
        self._tail = ""
        self._unseen = 0

    def feed(self, text: str) -> bool:
        """Take more of the text; return whether it now ends in one piece, again and again."""
        self._tail = (self._tail + text)[-_WINDOW:]
        self._unseen += len(text)
        if self._unseen < _EVERY:
            return False
        self._unseen = 0
        return self._repeats()

    def _repeats(self) -> bool:
        tail = self._tail
        before = tail.rfind(tail[-_PROBE:], 0, len(tail) - 1)
        period = len(tail) - _PROBE - before
        needed = max(_CHARACTERS, _TIMES * period)
        if before < 0 or period > _LONGEST or needed > len(tail):
            return False
        return tail[-needed + period :] == tail[-needed:-period]
