"""Takes code fences away from a text as it streams, so that what stands in them can be read (rule 63).

    feed(text) -> text      close() -> text

A fence is a line of three or more ticks or tildes, with a word behind them where it opens. Ticks right behind a closing
bracket at a line's end close one, too, and what follows the word on the same line is its first content. Only fences
whose word says data (`json`, `tool_call`, nothing) may hold calls: `holds_code` tells that another one was met.
At most one line's beginning is held back. Linear in the text.
"""

import re

__all__ = ["Unfenced"]

#: What models write behind the ticks of a fence that is a call; seen from Qwen2.5-Coder, Llama 3 and Mistral.
_DATA_WORDS = frozenset(
    {
        *("", "json", "json5", "jsonc", "jsonl", "xml", "text", "txt", "plaintext"),
        *("tool", "tools", "tool_call", "tool_calls", "tool_code", "function", "function_call", "function_calls"),
    }
)
_OPENS = re.compile(r"[ \t]{0,16}(`{3,64}|~{3,64})[ \t]*([\w+\-]{0,32})[ \t\r]*(?=\n|[{\[<])")
_CLOSES = re.compile(r"[ \t]{0,16}(`{3,64}|~{3,64})[ \t\r]{0,64}(?:\n|\Z)")
#: What may still become a line that opens or closes a fence.
_BEGINS = re.compile(r"[ \t]{0,16}(?:(?:`{0,64}|~{0,64})(?:[ \t]*[\w+\-]{0,32}[ \t\r]{0,64})?)?\Z")
_TICKS_AT_END = re.compile(r"(?<=[}\]>])[ \t]{0,16}(`{3,64})[ \t\r]{0,64}(?:\n|\Z)")
_TICKS_BEGIN = re.compile(r"(?<=[}\]>])[ \t]{0,16}(?:`{1,64}[ \t\r]{0,64})?\Z")


class Unfenced:
    """A text without its fences."""

    __slots__ = ("_at", "_buffer", "_fence", "_line_begins", "holds_code")

    def __init__(self) -> None:
        self._buffer: str = ""
        self._at: int = 0
        self._line_begins = True
        self._fence: str = ""
        #: Whether a fence was met that holds something else than data.
        self.holds_code = False

    def feed(self, text: str) -> str:
        """Take the next piece; return what is certain now."""
        self._buffer += text
        return self._read(closed=False)

    def close(self) -> str:
        """End the text; return what was held back."""
        return self._read(closed=True)

    def _read(self, *, closed: bool) -> str:
        """Read as far as it goes; what is left is cut off once, however many lines there were."""
        out: list[str] = []
        size = len(self._buffer)
        while self._at < size and not self.holds_code:
            if self._line_begins and not self._begin_line(closed=closed):
                break
            if self._at == size or self.holds_code:
                break
            if self._line_begins:
                continue
            out.append(self._rest_of_line(closed=closed))
            if not self._line_begins:
                break
        self._buffer = self._buffer[self._at :]
        self._at = 0
        return "".join(out)

    def _begin_line(self, *, closed: bool) -> bool:
        """Read a fence's line where one begins; False if more text must tell."""
        buffer, at = self._buffer, self._at
        if self._fence:
            closes = _CLOSES.match(buffer, at)
            whole = closes is not None and (closed or closes.group().endswith("\n"))
            if closes is not None and whole and closes[1][0] == self._fence[0] and len(closes[1]) >= len(self._fence):
                self._at, self._fence = closes.end(), ""
                return self._at < len(buffer)
        else:
            opens = _OPENS.match(buffer, at)
            if opens is not None:
                self.holds_code = opens[2].lower() not in _DATA_WORDS
                self._fence = opens[1]
                self._line_begins = buffer.startswith("\n", opens.end())
                self._at = opens.end() + self._line_begins
                return self._at < len(buffer)
        if not closed and _BEGINS.match(buffer, at) is not None:
            return False
        self._line_begins = False
        return True

    def _rest_of_line(self, *, closed: bool) -> str:
        """Return the rest of a line, or what of it is certain; ticks that close the fence at its end are left out."""
        buffer, at = self._buffer, self._at
        end = buffer.find("\n", at)
        if end >= 0 or closed:
            line, self._at = (buffer[at:end], end + 1) if end >= 0 else (buffer[at:], len(buffer))
            found = _TICKS_AT_END.search(line) if self._fence[:1] == "`" else None
            if found is not None and len(found[1]) >= len(self._fence):
                line, self._fence = line[: found.start()], ""
            self._line_begins = True
            return line + "\n" if end >= 0 else line
        line = buffer[at:]
        held = _TICKS_BEGIN.search(line) if self._fence[:1] == "`" else None
        certain = held.start() - 1 if held is not None else len(line)  # the bracket before them tells what they are
        self._at = at + certain
        return line[:certain]
