"""Sees a call in a wrapper nobody listed, by what the request offered: tool names and their parameters (rule 121).

It watches text that is already released and changes nothing. A report needs the tool's name with markup right before
it, and close behind it either one of the tool's parameters in markup or the end of the tag. It promotes nothing.
"""

import re

from mustcall.dialects.events import Malformed, Reason, ScanEvent
from mustcall.dialects.names import Offered

__all__ = ["Lookout"]

WINDOW = 400
_BEFORE = r"[<\[{(|=:\"'>「『`@#$/\\]"


class Lookout:
    """Watches released text for offered names in unknown markup. Off when no tools were given.

    Keeps at most one name's length of text between pieces, and one window behind a name it found.
    """

    __slots__ = ("_carry", "_closing", "_in_reasoning", "_longest", "_names", "_offered", "_window")

    def __init__(self, offered: Offered, *, in_reasoning: bool) -> None:
        self._offered = offered
        self._in_reasoning = in_reasoning

    def watch(self, text: str, events: list[ScanEvent]) -> None:
        """Look at a piece of released text."""

    def close(self, events: list[ScanEvent]) -> None:
        """Decide what is pending: the text that was watched ends here."""
