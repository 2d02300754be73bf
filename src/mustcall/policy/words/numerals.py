"""Numbers, words and signs of a sentence, for reading arithmetic in it: `3,421`, `twenty-one`, `2.5 million`, `½`.

A sentence that holds anything else (a version, a time, an address) has no tokens: it is not arithmetic. What the
tokens mean together is decided by `policy.words.sums`.

Cost: linear in the sentence.
"""

import re
from decimal import Decimal
from typing import NamedTuple

__all__ = ["ORDINALS", "Token", "TokenKind", "is_number", "tokens_of"]

TokenKind = str
"""`number`, `word` or `sign`."""


class Token(NamedTuple):
    """A number in plain digits, a word in lower case, or a sign."""

    kind: TokenKind
    text: str


_UNITS = {
    word: value
    for value, word in enumerate(
        [
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
        ]
    )
}
_TENS = {
    word: 10 * value
    for value, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), start=2)  # noqa: SIM905  as above
}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_HUNDRED = "hundred"
#: Words for a part of something, and for a power: which part, or which power.
ORDINALS = {
    word: value
    for value, word in enumerate(
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split(),  # noqa: SIM905  as above
        start=1,
    )
} | {"half": 2, "quarter": 4, "hundredth": 100, "thousandth": 1000}

_SAME = str.maketrans(
    {
        "\u00d7": "*",
        "\u00b7": "*",
        "\u00f7": "/",
        "\u2212": "-",
        "\u2013": "-",
        "\u2019": "'",
        "\u00bd": " 1/2",
        "\u00bc": " 1/4",
        "\u00be": " 3/4",
    }
)
_TOKEN = re.compile(
    r"[\s$\u20ac\u00a3]*(?:"
    # Thousands are set apart by commas, and percentages may have a decimal comma.
    r"(?P<thousands>\d{1,3}(?:,\d{3})+(?:\.\d+)?)(?![\d.,]*\d)(?![a-wyz_])"
    r"|(?P<comma>\d+,\d{1,2}(?=\s*(?:%|percent\b|per cent\b)))"
    r"|(?P<nth>\d+)(?:st|nd|rd|th)\b"
    r"|(?P<number>\d+(?:\.\d+)?|\.\d+)(?!\.?\d)(?![a-wyz_])"
    r"|(?P<word>[a-z]+(?:['-][a-z]+)*)"
    r"|(?P<sign>\*\*|[-+*/%^!(),=\u221a&?])"
    r")"
)


def tokens_of(sentence: str) -> list[Token] | None:
    """Return the tokens of a sentence, None if something in it belongs to no arithmetic."""
    text = sentence.lower().translate(_SAME).strip()
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            return None
        position = found.end()
        kind = found.lastgroup or ""
        value = found[kind]
        match kind:
            case "thousands":
                tokens.append(Token("number", value.replace(",", "")))
            case "comma":
                tokens.append(Token("number", value.replace(",", ".")))
            case "nth":
                tokens += [Token("number", value), Token("word", "th")]
            case "word":
                tokens += (Token("word", piece) for piece in _pieces(value))
            case _:
                tokens.append(Token(kind, value))
    return _counted(tokens)


def is_number(token: Token | None) -> bool:
    """Tell whether a token is a number."""
    return token is not None and token.kind == "number"


def _pieces(word: str) -> list[str]:
    """Return `twenty-one` and `two-thirds` as two words; other hyphenated words stay one."""
    parts = word.split("-")
    return parts if len(parts) == 2 and all(map(_counts, parts)) else [word]


def _counts(word: str) -> bool:
    return word in _UNITS or word in _TENS or word == _HUNDRED or word in _SCALES or word.removesuffix("s") in ORDINALS


def _counted(tokens: list[Token]) -> list[Token]:
    """Return the tokens with number words as numbers."""
    out: list[Token] = []
    place = 0
    while place < len(tokens):
        end, value = _spoken(tokens, place)
        if value is None:
            out.append(tokens[place])
            place += 1
        else:
            out.append(Token("number", value))
            place = end
    return out


def _spoken(tokens: list[Token], start: int) -> tuple[int, str | None]:
    """Read the number that begins here, in words or followed by a scale (`2.5 million`); None if none does."""
    first = tokens[start]
    if first.kind == "number":
        scale = _SCALES.get(_word(tokens, start + 1))
        if scale is None:
            return start, None
        value = Decimal(first.text) * scale
        return start + 2, str(int(value)) if value == int(value) else f"{value:f}"
    # "a hundred" is a number, "a third" is not.
    place = start + 1 if first.text == "a" and _word(tokens, start + 1) in (_HUNDRED, *_SCALES) else start
    total = group = 0
    least = 10**15  # what follows a hundred or a thousand is smaller than it
    read = False
    while True:
        word = _word(tokens, place)
        if word == "and" and read and group % 100 == 0 and (group or total):
            follows = _word(tokens, place + 1)
            if follows not in _UNITS and follows not in _TENS:
                break
            place, word = place + 1, follows
        if word in _UNITS and (group % 100 == 0 or (group % 10 == 0 and group % 100 >= 20 and 0 < _UNITS[word] < 10)):
            group += _UNITS[word]
        elif word in _TENS and group % 100 == 0:
            group += _TENS[word]
        elif word == _HUNDRED and group < 10 and (group or not read):
            group = (group or 1) * 100
        elif word in _SCALES and _SCALES[word] < least and (read or place > start):
            least = _SCALES[word]
            total += (group or 1) * least
            group = 0
        else:
            break
        read = True
        place += 1
    return (place, str(total + group)) if read else (start, None)


def _word(tokens: list[Token], place: int) -> str:
    token = tokens[place] if place < len(tokens) else None
    return token.text if token is not None and token.kind == "word" else ""
