"""Which of the tools on offer a message is about, by its words.

For models too small to choose (a profile fact): a 135M model does not tell whether a call is needed, whatever the form
of the question (docs/decisions/embedded-model.md). A tool is meant by words of its name, its description and its
parameters, and by things whose look says what they are (a path, an address, a sum). It knows no model, and no language
but the one the tools are described in.

Cost: linear in the message and in the tools' texts.
"""

import re
from collections.abc import Iterable, Sequence

from mustcall.core.tools import Tool
from mustcall.policy.schema.subschemas import as_object
from mustcall.policy.words.sums import sums_in

__all__ = ["relevant_tools", "words_of"]

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+")
_LONGEST = 4_000

#: Words that say nothing about what is wanted.
_EMPTY = frozenset(
    """
    a about all also am an and any are as at be been by can could current did do does for from get given give go
    had has have he help her him his how i if in into is it its just like me more most my name no not now of on
    one or our out please return returns right she so some string tell than that the their them then there these
    they this to tool use used using want was we were what when where which who why will with would you your
    """.split()  # noqa: SIM905  a hundred quoted words are harder to read
)
#: Verbs of many tools: they count for less than what a tool is about.
_COMMON = frozenset(
    """
    add ask call check compute create delete fetch find list look make open put read remove run save search send
    set show start stop update write
    """.split()  # noqa: SIM905  a hundred quoted words are harder to read
)
#: What a thing looks like, and the words it stands for.
_SIGNS: tuple[tuple[re.Pattern[str], frozenset[str]], ...] = (
    (re.compile(r"(?<![\w.])(?:~|\$\w+|\.{1,2})?/[\w.$/-]*"), frozenset({"path", "directory", "folder"})),
    (re.compile(r"(?<![@\w.-])(?<!//)[\w-]+\.[a-z]{1,4}\b(?!@)"), frozenset({"path", "file", "read"})),
    (re.compile(r"\d\s*[-+*/x×^%]\s*\(?\s*\d|\d\s+(?:plus|minus|times|divided by)\s+\d"), frozenset({"arithmetic"})),  # noqa: RUF001
    (re.compile(r"\b[\w.+-]+@[\w-]+\.\w+"), frozenset({"email", "mail"})),
    (re.compile(r"\bhttps?://"), frozenset({"url", "web", "page"})),
)
#: Words that mean the same to a reader of tools.
_SAME = {
    "calculate": "arithmetic",
    "calculator": "arithmetic",
    "math": "arithmetic",
    "sum": "arithmetic",
    "expression": "arithmetic",
    "dir": "directory",
    "folder": "directory",
    "mail": "email",
    "clock": "time",
    "content": "read",
    "contents": "read",
}
_IN_NAME, _ELSEWHERE = 2, 1
_LEAST = 3


def relevant_tools(text: str, tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Return the tools a message is most about, in the order of the offer; none if it is about none of them."""
    said = words_of(text[:_LONGEST]) | _signs_in(text[:_LONGEST])
    scores = [_score(said, tool) for tool in tools]
    best = max(scores, default=0)
    if best < _LEAST:
        return ()
    return tuple(tool for tool, score in zip(tools, scores, strict=True) if score == best)


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text that say something, each in its plainest form."""
    return frozenset(_plain(word) for word in (found.lower() for found in _WORD.findall(text)) if word not in _EMPTY)


def _plain(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            stem = word[: -len(ending)]
            word = f"{stem}e" if ending == "es" and not stem.endswith(("s", "x", "ch", "sh")) else stem
            break
    return _SAME.get(word, word)


def _signs_in(text: str) -> frozenset[str]:
    found: set[str] = set()
    for sign, words in _SIGNS:
        if sign.search(text):
            found |= {_SAME.get(word, word) for word in words}
    if sums_in(text):
        found.add("arithmetic")
    return frozenset(found)


def _score(said: frozenset[str], tool: Tool) -> int:
    score = _weigh(said & words_of(tool.name), _IN_NAME)
    properties = as_object((tool.parameters or {}).get("properties")) or {}
    texts = [tool.description or "", *properties]
    for declared in properties.values():
        described = (as_object(declared) or {}).get("description")
        texts.append(described if isinstance(described, str) else "")
    return score + _weigh(said & words_of(" ".join(texts)[:_LONGEST]), _ELSEWHERE)


def _weigh(words: Iterable[str], weight: int) -> int:
    return sum(1 if word in _COMMON else weight for word in words)
