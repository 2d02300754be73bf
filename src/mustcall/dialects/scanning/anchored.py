"""Sees a call in a wrapper nobody listed, by what the request offered: tool names and their parameters (rule 121).

It watches text that is already released and changes nothing. A report needs an offered name with markup right before
it, or a tag at the end of the line before it, and close behind it either one of the tool's parameters in markup or the
end of an empty call. It promotes nothing.
"""

import re
from typing import cast

from mustcall.core.memo import compile_unkept, kept
from mustcall.dialects.events import Malformed, Reason, ScanEvent
from mustcall.dialects.names import Offered

__all__ = ["UNKNOWN", "NameWatch", "mentions_called"]

UNKNOWN = "unknown"
WINDOW = 400
#: So many names are looked for one by one before any markup is: a text without them has nothing to report.
_FEW = 16
_BEFORE = r"[<\[{(|=:\"'>「『@#$/\\.]"
# A tag on a line of its own, and the name on the next: `<my_code>`, `get_weather(…)`.
_LINE_BEFORE = r"(?<=[>\]])[ \t]{0,8}\r?\n[ \t]{0,8}"
_MARK = rf"{_BEFORE[:-1]}\]]"  # either begins so
_MARKUP = re.compile(_MARK)
# A command word between the markup and the name: `@@call NAME`, `<|tool NAME`.
_COMMAND = r"(?:(?<=[<\[{|@#$/\\])(?:call|tool|function|invoke|use|run|exec|action|request)[\w\-]{0,12}[ \t:=]{1,3})?"
#: The most that stands between the markup and the name: a command word, or a line end with blanks around it.
_LONGEST_BETWEEN = 32
# Behind the parentheses no Markdown link may end: `[f()](…)`, `[f()][…]` and `[f()]: …` are prose.
_EMPTY_CALL = r"[\"'」』]?[ \t]*(?:\([ \t]*\)(?!\][(\[:])|\{[ \t]*\}|/>|[:,][^\n]{0,40}\{[ \t]*\})"
# A tool's definition, not a call of it: behind the name, in the same object, comes a JSON schema.
_DEFINITION = re.compile(
    r"\A\\*[\"'][^{}]*?\\*[\"'](?:parameters|input_?[sS]chema)\\*[\"']\s*:\s*\{[^{}\[\]]*?"
    r"\\*[\"'](?:type\\*[\"']\s*:\s*\\*[\"']object\\*[\"']|properties\\*[\"']\s*:\s*\{)"
)


class NameWatch:
    """Watches released text for offered names in unknown markup. Off when no tools were given.

    Cost: one search per piece over the piece and a name's length before it, and one over the window behind each name
    found. Reports wait for `close`, and a name that may be only a part of another for what follows it, so that neither
    depends on how the text was cut.
    """

    __slots__ = (
        "_behind",
        "_found",
        "_in_reasoning",
        "_names",
        "_nested",
        "_offered",
        "_overlap",
        "_reports",
        "_size",
        "_tail",
    )

    def __init__(self, offered: Offered, *, in_reasoning: bool) -> None:
        self._offered = offered
        self._in_reasoning = in_reasoning
        self._names, self._nested, self._overlap = _watched(offered.names)
        self._tail = ""
        self._found: re.Match[str] | None = None
        self._behind: list[str] = []
        self._size = 0
        self._reports: list[tuple[str, str]] = []

    def watch(self, text: str, *, last: bool = False) -> None:
        """Look at a piece of released text. With the last one nothing waits for more."""
        if self._names is None:
            return
        if self._found is None and not self._tail and _MARKUP.search(text) is None:
            return
        position = 0
        while True:
            if self._found is None:
                if self._tail:
                    text = self._tail + text[position:]
                    position = 0
                position = self._search(text, position, last=last)
                if self._found is None:
                    return
            piece = text[position : position + WINDOW - self._size]
            self._behind.append(piece)
            self._size += len(piece)
            position += len(piece)
            if self._size < WINDOW:
                return
            again = self._judge()
            if len(again) <= position:
                position -= len(again)
            else:
                self._tail = again

    def close(self, events: list[ScanEvent]) -> None:
        """Report what was seen; the text that was watched ends here."""
        if self._names is None:
            return
        if self._found is None and self._tail:
            self.watch("\n", last=True)
        if self._found is not None:
            self._judge()
        self._tail = ""
        for raw, name in self._reports:
            events.append(Malformed(Reason.UNKNOWN_MARKUP, raw, UNKNOWN, None, name, self._in_reasoning))
        self._reports.clear()

    def _search(self, text: str, position: int, *, last: bool) -> int:
        """Look for a name; return where it ends."""
        assert self._names is not None
        found = self._names.search(text, position)
        if found is not None and self._nested and not last and len(text) - found.start() < self._overlap:
            found = None
        self._found = found
        self._size = 0
        if found is None:
            # Only markup can stand before a name, so only from there on the text can begin one.
            markup = _MARKUP.search(text, max(position, len(text) - self._overlap))
            self._tail = text[markup.start() :] if markup is not None else ""
            return len(text)
        self._tail = ""
        return found.end()

    def _judge(self) -> str:
        """Decide by what stands behind a name whether it is called; return what of it may begin another name."""
        found = self._found
        assert found is not None
        self._found = None
        behind = "".join(self._behind)
        self._behind.clear()
        name = found[1]
        schema = self._offered.parameters(name) or {}
        properties: object = schema.get("properties")
        # A schema comes from outside: only its shape is certain here.
        keys = tuple(cast("dict[str, object]", properties)) if isinstance(properties, dict) else ()
        signs = self._offered.evidence.get(name)
        if signs is None:
            signs = self._offered.evidence[name] = _evidence(name, keys)
        evidence = signs.search(behind)
        if evidence is not None and not ({"type", "properties"}.isdisjoint(keys) and _DEFINITION.match(behind)):
            self._reports.append((found.group() + behind[: evidence.end()], name))
        used = evidence.end() if evidence is not None else 0
        return behind[max(used, len(behind) - self._overlap) :]


def mentions_called(text: str, offered: Offered) -> bool:
    """Tell whether an offered name stands behind markup anywhere in a text: without one there is nothing to report."""
    names = offered.names
    if not names or (len(names) <= _FEW and not any(map(text.__contains__, names))):
        return False
    return _names(names).search(f"{text}\n") is not None


@kept(most=64)
def _names(names: tuple[str, ...]) -> re.Pattern[str]:
    words = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    # One set of characters begins it, and not one of two: then the search skips ahead to them.
    return compile_unkept(rf"{_MARK}(?:(?<!\]){_COMMAND}|{_LINE_BEFORE})({words})(?=[^\w\-])")


@kept(most=64)
def _watched(names: tuple[str, ...]) -> tuple[re.Pattern[str] | None, bool, int]:
    """Return how names are found, whether one may stand in another (`now` in `now.get`), and the longest's length."""
    nested = any(re.search(r"[^\w\-]", name) for name in names)
    return (
        _names(names) if names else None,
        nested,
        max(map(len, names), default=0) + _LONGEST_BETWEEN,
    )


def _evidence(name: str, keys: tuple[str, ...]) -> re.Pattern[str]:
    """Return what shows a name to be called: a parameter in markup, an empty call, or the name's own closing tag."""
    signs = [rf"\A{_EMPTY_CALL}", rf"</{re.escape(name)}>"]
    if keys:
        words = "|".join(re.escape(key) for key in keys)
        signs.append(rf">[ \t]*(?:{words})[ \t]*</")
        signs.append(rf"[\"'<\[{{(,|=「『][ \t]*\\*[\"']?(?:{words})\\*[\"'」』]?[ \t]*[:=>]|\s(?:{words})=")
    return compile_unkept("|".join(signs))
