"""Whether a text announces a tool call that it does not make: "Let me call get_weather for you." (rule 133).

English phrases as data: an opener ("I'll", "let me") and a verb ("call", "use"), and in the same sentence a tool on
offer by its name or the word tool or function; an opener and a tool's name right behind it; or a sentence that begins
with "Calling". What was done ("I used the tool"), what is denied ("I will not call"), offers ("if you like, I'll use
the tool") and questions are no announcements. It only reports: whether the missing call matters is the judge's.

Cost: only the end of the text is looked at, and its sentences only if one of the phrases occurs there.
"""

import re
from collections.abc import Iterable

from mustcall.core.text.possessive import any_number
from mustcall.core.tools import ProviderTool, Tool

__all__ = ["announces_call"]

#: An announcement ends a reply; what stands further from its end than this was followed by something else.
_TAIL = 800

_OPENERS = (
    "i'll",
    "i will",
    "i'm going to",
    "i am going to",
    "i'm now going to",
    "i need to",
    "i have to",
    "i should",
    "i can now",
    "let me",
    "let's",
    "let us",
    "we'll",
    "we will",
    "we need to",
    "i'm",
    "i am",
)
_BETWEEN = ("now", "first", "next", "then", "also", "just", "quickly", "try to", "start by", "begin by", "go ahead and")
_VERBS = ("call", "calling", "use", "using", "invoke", "invoking", "run", "running", "execute", "executing")
_STARTS = ("calling", "invoking", "executing")
_NO_ANNOUNCEMENTS = ("if you", "would you", "should you", "whenever you")
_SIGNS = _OPENERS + _STARTS
#: Each of the signs holds one of these. Most texts hold none of them, and looking for every sign takes longer.
_TRACES = ("i'", "i ", "let", "we'", "we ", "calling", "invoking", "executing")

#: A full stop inside a name (`files.read`) does not end a sentence.
_SENTENCE = re.compile(r"[^.!?\n]*+" + any_number(r"\.(?=\w)[^.!?\n]*+") + r"[.!?\n]?")
_OPENING = re.compile(
    rf"\b(?:{'|'.join(map(re.escape, _OPENERS))}),?\s+(?:(?:{'|'.join(map(re.escape, _BETWEEN))}),?\s+){{0,3}}"
    rf"|^\W*(?:now,?\s+)?(?=(?:{'|'.join(_STARTS)})\s)"
)
_VERB = re.compile(rf"(?:{'|'.join(_VERBS)})\b")
_TOOL_WORD = re.compile(r"\b(?:tool|function)s?\b")
_WORD = re.compile(r"[\w.\-]+")


def announces_call(text: str, tools: Iterable[Tool | ProviderTool]) -> bool:
    """Tell whether the end of a text announces a call of a tool on offer."""
    tail = text[-_TAIL:].replace("\u2019", "'").casefold()
    if not any(map(tail.__contains__, _TRACES)) or not any(map(tail.__contains__, _SIGNS)):
        return False
    names = {tool.name.casefold() for tool in tools if isinstance(tool, Tool)}
    return bool(names) and any(_announces(sentence, names) for sentence in _SENTENCE.findall(tail))


def _announces(sentence: str, names: set[str]) -> bool:
    if sentence.endswith("?") or any(phrase in sentence for phrase in _NO_ANNOUNCEMENTS):
        return False
    for opening in _OPENING.finditer(sentence):
        rest = sentence[opening.end() :]
        words = [word.strip(".-") for word in _WORD.findall(rest)]
        if words and words[0] in names:
            return True
        if _VERB.match(rest) and (_TOOL_WORD.search(rest) or not names.isdisjoint(words)):
            return True
    return False
