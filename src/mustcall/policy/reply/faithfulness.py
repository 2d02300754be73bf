"""Whether an answer says what the tools said: its numbers, dates, times and file names against their results.

For small models, which have the right result before them and write another one. It reads and compares, no model is
asked, and it errs towards the result: an answer it cannot bear out is replaced by the result itself, which is always
right. A fact is borne out by a result or by the user's own words, in any of the forms people write it in (`5:05 PM` is
`17:05`, `November` is month 11, `1,000` is `1000`, `0.33` rounds `0.333`).

Cost: linear in the answer and in the results.
"""

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from fractions import Fraction

import msgspec

from mustcall.policy.words.relevance import words_of

__all__ = ["AnswerCheck", "CallOutcome", "departure"]


class AnswerCheck(StrEnum):
    """Whose answers are held against the results of the calls before them."""

    OFF = "off"
    SMALL = "small"  # those of models that are known to be small
    ALWAYS = "always"


class CallOutcome(msgspec.Struct, frozen=True):
    """What a call gave: the text of its result, or why there is none."""

    tool: str
    text: str
    ok: bool = True


_MONTHS = {
    word: number
    for number, words in enumerate(
        (
            "january jan", "february feb", "march", "april apr", "may", "june jun", "july jul", "august aug",
            "september sep sept", "october oct", "november nov", "december dec",
        ),
        start=1,
    )
    for word in words.split()
}  # fmt: skip
_WEEKDAYS = frozenset("monday tuesday wednesday thursday friday saturday sunday".split())  # noqa: SIM905  words read better so
#: Number words that are statements of a count. `one` is mostly none.
_COUNTS = {
    word: Fraction(number)
    for number, word in enumerate("two three four five six seven eight nine ten eleven twelve".split(), start=2)  # noqa: SIM905  as above
}

_TIME = re.compile(r"\b(\d{1,2}):(\d{2})(?::\d{2})?(?:\s*([ap])\.?m\b)?", re.IGNORECASE)
_HOUR = re.compile(r"(?<![\d:])(\d{1,2})\s*([ap])\.?m\b", re.IGNORECASE)
_DATE = re.compile(r"\b\d{4}-\d{2}-(\d{2})\b")
_NUMBER = re.compile(r"(?<![\w.])[-\u2212]?\d[\d,]*(?:\.\d+)?|(?<=[/:-])\d+(?:\.\d+)?")
_WORD = re.compile(r"[A-Za-z]+")
_TOKEN = re.compile(r"[\w./-]+")
_FILE = re.compile(r"(?<![\w./@-])[\w./~-]*\w\.[a-z][a-z0-9]{0,4}\b(?![\w/@])")
_PATH = re.compile(r"(?<![\w./<~-])[~.]{0,2}/[\w./-]*[\w-]")
_ITEM = re.compile(r"^\s*\d{1,3}[.)]\s", re.MULTILINE)
_ABOUT = re.compile(r"\b(?:about|approximately|approx|around|roughly|nearly|almost)\b|[\u2248~]", re.IGNORECASE)
_DENIES = re.compile(
    r"\b(?:not|no|cannot|unable|fail\w*|error|refused|outside|missing|nothing|invalid|sorry)\b|n['\u2019]t\b",
    re.IGNORECASE,
)
#: Abbreviations and names that look like files.
_NO_FILES = frozenset({"e.g", "i.e", "a.m", "p.m", "node.js", "vs.code"})
#: The most lines of a result that an answer is expected to repeat, if it was asked for all of them.
_MOST_LINES = 40
#: Digits behind the point to which numbers are compared.
_MOST_DIGITS = 20
_LISTS = re.compile(r"\b(?:list|files?|all|folders?|director(?:y|ies))\b")


class _Facts(msgspec.Struct, frozen=True):
    """What a text states that can be compared."""

    numbers: frozenset[Fraction]
    times: frozenset[tuple[int, int]]
    days: frozenset[str]
    words: frozenset[str]


def departure(answer: str, outcomes: Sequence[CallOutcome], question: str, known: Sequence[str] = ()) -> str | None:
    """Return in a few words how an answer departs from what the calls before it gave, None if it does not.

    `question` is what the user said last, `known` are the texts of the conversation before it. Without calls there is
    nothing to depart from.
    """
    if not outcomes:
        return None
    sources = (*known, question, *(outcome.text for outcome in outcomes))
    invented = _invented(answer, _facts("\n".join(sources)), sources)
    if invented is not None:
        return f"{invented} is in no result"
    good = [outcome for outcome in outcomes if outcome.ok]
    if not good:
        return None if _DENIES.search(answer) else "nothing of what failed is said"
    return _omission(answer, good[-1].text, question)


def _invented(answer: str, given: _Facts, sources: Sequence[str]) -> str | None:
    """Return the first thing an answer states that nobody gave."""
    text = _ITEM.sub("", answer)
    for found in _FILE.finditer(text):
        name = found[0].rpartition("/")[2]
        if name.lower() not in _NO_FILES and not any(name in source for source in sources):
            return f"the name {name}"
    paths = {found[0].rstrip("./") for source in sources for found in _PATH.finditer(source)}
    for found in _PATH.finditer(text):
        if found[0].rstrip("./") not in paths:
            return f"the path {found[0]}"
    for time in _times(text):
        if time not in given.times:
            return f"the time {time[0]}:{time[1]:02d}"
    rest = _FILE.sub(" ", _HOUR.sub(" ", _TIME.sub(" ", text)))
    rounding = _Rounding(given.numbers, rough=_ABOUT.search(rest) is not None)
    for found in _NUMBER.finditer(rest):
        if not rounding.bears_out(found[0]):
            return f"the number {found[0]}"
    words = {word.lower() for word in _WORD.findall(rest)}
    for day in sorted(words & _WEEKDAYS - given.days):
        return day.capitalize()
    for month in sorted(words & _MONTHS.keys() - given.words - {"may", "march"}):
        if Fraction(_MONTHS[month]) not in given.numbers:
            return month.capitalize()
    for count in sorted(words & _COUNTS.keys() - given.words):
        if _COUNTS[count] not in given.numbers:
            return f"the number {count}"
    return None


def _omission(answer: str, result: str, question: str) -> str | None:
    """Return what of a result an answer should hold and does not."""
    asked = question.lower()
    new, own, stated = _facts(result), _facts(question), _facts(answer)
    if re.search(r"\btime\b", asked) and new.times and not new.times & stated.times:
        return "the time is missing"
    if re.search(r"\b(?:day|date)\b", asked) and new.days and not new.days & stated.days:
        date = _DATE.search(result)
        if date is None or Fraction(date[1]) not in stated.numbers:
            return "the day is missing"
    if "how many" not in asked and _LISTS.search(asked) and _misses_lines(answer.lower(), result):
        return "some of the entries are missing"
    numbers, words = new.numbers - own.numbers, new.words - own.words
    if not (numbers or words) or numbers & stated.numbers or words & stated.words or new.times & stated.times:
        return None
    rounding = _Rounding(numbers, rough=True)
    return None if any(rounding.bears_out(found[0]) for found in _NUMBER.finditer(answer)) else "the result is missing"


def _misses_lines(said: str, result: str) -> bool:
    """Tell whether an answer leaves out lines of a result that is a list; they go by their first word."""
    names = [line.split()[0].rstrip("/").lower() for line in result.splitlines()[1:] if line.strip()]
    if len(names) > _MOST_LINES or not _is_listing(result):
        return False
    tokens = {token.rstrip("./") for token in _TOKEN.findall(said)}
    return any(name not in tokens and (name not in said or _TOKEN.fullmatch(name)) for name in names)


def _is_listing(result: str) -> bool:
    """Tell whether a result is a heading and short lines under it."""
    head, *lines = result.splitlines()
    return bool(lines) and head.rstrip().endswith(("entries", "entry", ":")) and all(len(line) < 120 for line in lines)


def _facts(text: str) -> _Facts:
    lines = [line for line in text.splitlines() if line.strip()]
    numbers = {number for found in _NUMBER.finditer(text) if (number := _value(found[0])) is not None}
    words = {word.lower() for word in _WORD.findall(text)}
    # How many lines there are is in a text, too.
    counted = {Fraction(len(lines)), Fraction(max(len(lines) - 1, 0))} if len(lines) > 1 else set[Fraction]()
    return _Facts(
        numbers=frozenset(numbers | counted),
        times=frozenset(_times(text)),
        days=frozenset(words & _WEEKDAYS),
        words=words_of(text) | (words & (_MONTHS.keys() | _COUNTS.keys())),
    )


def _times(text: str) -> Iterable[tuple[int, int]]:
    """Return the times of a text, by the 24-hour clock."""
    for found in _TIME.finditer(text):
        yield _hour(int(found[1]), found[3]), int(found[2])
    for found in _HOUR.finditer(text):
        yield _hour(int(found[1]), found[2]), 0


def _hour(hour: int, half: str | None) -> int:
    if half is None:
        return hour
    return hour % 12 + (12 if half.lower() == "p" else 0)


def _value(text: str) -> Fraction | None:
    plain = text.replace(",", "").replace("\u2212", "-").rstrip(".")
    try:
        return Fraction(plain)
    except (ValueError, ZeroDivisionError):
        return None


class _Rounding:
    """Numbers, and the same rounded to as many digits as somebody wrote; to whole ones only if `rough`."""

    def __init__(self, numbers: frozenset[Fraction], *, rough: bool) -> None:
        self._rounded = {0: frozenset(map(Fraction, map(round, numbers)))} if rough else {0: frozenset[Fraction]()}
        self._numbers = numbers

    def bears_out(self, text: str) -> bool:
        """Tell whether a number is one of these, or one of them rounded to its digits."""
        value = _value(text)
        if value is None or value in self._numbers or abs(value) in self._numbers:
            return True
        digits = min(len(text.partition(".")[2]), _MOST_DIGITS)
        if digits not in self._rounded:
            self._rounded[digits] = frozenset(round(number, digits) for number in self._numbers)
        return value in self._rounded[digits]
