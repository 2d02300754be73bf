"""Words as they come, none broken at the edge of the terminal. Pure.

Near the edge a word is held until it is known where it ends; what does not fit on the line begins the next one. With
more room a word is written as it comes. One of more letters than that may be broken by the terminal.
"""

import re

from rich.cells import cell_len

__all__ = ["WordWrap", "fold"]

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PIECE = re.compile(r"\n|[^\S\n]+|\S+")


#: Columns that are enough for the rest of a word.
_ROOM = 24


def fold(line: str, width: int, hang: int = 0) -> str:
    """Return a text broken between words at `width` columns; lines that are broken off are indented by `hang`.

    Line ends stay. Blanks inside a line are kept, so columns stay columns. A word that is longer than a line stays
    whole. `width` 0 breaks nothing.
    """
    if "\n" in line:
        return "\n".join(fold(each, width, hang) for each in line.split("\n"))
    if not width or _columns(line) <= width:
        return line
    hang = min(hang, width // 2)
    lines: list[str] = []
    current, blanks = "", ""
    for found in _PIECE.finditer(line):
        piece = found[0]
        if piece.isspace():
            blanks = piece
            continue
        if current.strip() and _columns(current + blanks + piece) > width:
            lines.append(current)
            current, blanks = " " * hang, ""
        current, blanks = current + blanks + piece, ""
    return "\n".join([*lines, current])


def _columns(text: str) -> int:
    return cell_len(_COLOUR.sub("", text))


class WordWrap:
    """Breaks lines at `width` columns; 0 breaks none and holds nothing."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._column = 0
        self._blanks = ""
        self._word = ""

    def feed(self, text: str) -> str:
        """Return what can be written by now."""
        if not self._width:
            return text
        out: list[str] = []
        for found in _PIECE.finditer(text):
            piece = found[0]
            if not piece.isspace():
                self._word += piece
                if self._column + self._taken() + _ROOM <= self._width:
                    out.append(self._placed())
                continue
            out.append(self._placed())
            if piece == "\n":
                out.append(f"{self._blanks}\n")
                self._blanks, self._column = "", 0
            else:
                self._blanks += piece
        return "".join(out)

    def end(self) -> str:
        """Return what is still held; the next text begins a line."""
        out = self._placed() + self._blanks
        self._blanks, self._column = "", 0
        return out

    def _placed(self) -> str:
        """Return the word that is held with the blanks before it, on the next line if it does not fit on this one."""
        word, blanks, taken = self._word, self._blanks, self._taken()
        if not word:
            return ""
        self._word = self._blanks = ""
        if blanks and self._column and self._column + taken > self._width:
            self._column = cell_len(word)
            return f"\n{word}"
        self._column += taken
        return blanks + word

    def _taken(self) -> int:
        return cell_len(self._blanks.expandtabs(8)) + cell_len(self._word)
