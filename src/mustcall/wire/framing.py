"""Whether the frame around a stream's events is the usual one, so that every client finds the events we found.

Clients differ in how they read the rarer parts of the standard: some make an event of a lone `retry` or of a blank line
after an `id`, none expects a byte order mark or a line that is not UTF-8. Comments are fine everywhere.
"""

import re

from mustcall.core.text.possessive import at_least_one, maybe

__all__ = ["Framing"]

#: Events as most servers write them: a name or none, and one line of data. No part of it is ever tried another way, so
#: that nothing is kept for that.
_USUAL = re.compile(at_least_one(maybe(r"event:[^\r\n]*+\n") + r"data:[^\r\n]*+\n\n").encode())
_BLANK, _OPEN, _FILLED = range(3)


class Framing:
    """The lines of one stream. Blocks end where events end, so nothing is kept but whether an id was given."""

    __slots__ = ("_numbered",)

    def __init__(self) -> None:
        self._numbered = False

    def takes(self, block: bytes) -> bool:
        """Tell whether a block is made of events with data, and of comments."""
        if not block.isascii():
            try:
                block.decode()
            except UnicodeDecodeError:
                return False
        if _USUAL.fullmatch(block) is not None:
            return True
        state = _BLANK
        commented = False
        for line in block.split(b"\n"):
            field = line.removesuffix(b"\r")
            if not field:
                # A client that keeps the last id makes an empty event of every blank line after a comment.
                if state == _OPEN or (state == _BLANK and commented and self._numbered):
                    return False
                state, commented = _BLANK, False
            elif b"\r" in field:
                return False
            elif field.startswith(b"data:"):
                state = _FILLED
            elif field.startswith(b"event:"):
                state = max(state, _OPEN)
            elif field.startswith(b"id:"):
                state = max(state, _OPEN)
                self._numbered = True
            elif field.startswith(b":"):
                commented = True
            else:
                return False
        return state == _BLANK
