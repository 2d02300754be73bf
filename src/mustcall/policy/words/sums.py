"""The sums a message asks for, in figures or in words, as expressions that a calculator can read.

"What is 17.5% of 3,421?" is `17.5% of 3421`, "the square root of 144" is `sqrt(144)`, "add 17 and 25" is `17 + 25`. A
sentence counts only if all of it is the sum and the words people put around one: "half an hour later", a date, a
version, "24/7" and "page 3 of 10" ask for nothing. The expression is written down here and computed elsewhere; it is in
the calculator's own grammar (`toolkit.builtin.arithmetic`).

Cost: linear in the message; longer sentences than people write sums in are not read.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from mustcall.policy.words.numerals import ORDINALS, Token, is_number, tokens_of

__all__ = ["sums_in"]

_LONGEST_MESSAGE = 4_000
_LONGEST_SENTENCE = 300
_DEEPEST = 20

_SENTENCE = re.compile(r"[\n;:]+|(?<=[?!.])\s+")
#: Verbs that ask for a computation whatever follows.
_COMMANDS = "calculate|compute|evaluate|solve|work out|figure out"
#: What people put before a sum, as often as they like.
_OPENING = re.compile(
    rf"(?:(?:{_COMMANDS}|hi|hello|hey|ok|okay|so|well|now|then|and|please|pls|kindly|just|quickly|also|question|quick"
    r"|can you|could you|would you|will you|do you know|help me|let me know|tell me|show me|give me|find me"
    r"|i want to know|i need to know|i would like to know|i'd like to know|i want you to|i need you to|i need|i want"
    r"|use (?:the|your|a) calculator (?:to|for|and)|with the calculator|using the calculator"
    r"|what's|whats|what is|what are|what does|what do|what would|what will|what"
    r"|how much is|how much are|how much does|how much do|how much would|how much|how many is|how many are"
    r"|you get (?:if|when) (?:you|i)|i get (?:if|when) (?:you|i)|we get (?:if|when) we|happens (?:if|when) (?:you|i)"
    r"|(?:the |an? )?(?:exact |approximate )?(?:value|result|answer|outcome) (?:of|to|for)|(?:determine|find|get|do))"
    r"(?![a-z'])[\s,]*)+"
)
_COMMANDED = re.compile(rf"\b(?:{_COMMANDS}|calculator)\b")
#: What people put behind it.
_CLOSING = frozenset(
    "please pls thanks equal equals make makes give gives be is are exactly altogether now then = ? ,".split()  # noqa: SIM905  words read better so
)
#: How rounding is asked for, besides a number of digits.
_ROUNDING = frozenset(
    "rounded round off up to the nearest whole number integer decimal decimals place places digits".split()  # noqa: SIM905  as above
)
_CLOSING_PAIRS = frozenset({("for", "me"), ("thank", "you"), ("equal", "to"), ("come", "to"), ("in", "total")})
#: What is written like a sum and is none: dates, numbers of telephones, and what figures of speech are made of.
_NO_SUM = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2})|\d{3}-\d{4}|\d{3}-\d{3}-\d{4}|0\d+[-/]\d+"
)
_SAYINGS = frozenset({"24/7", "9/11", "50/50", "7/11", "20/20"})
#: A range, a fraction or a size, unless somebody asks what it comes to.
_COMPACT = re.compile(r"\d+[-/x]\d+")

_SUMS: Mapping[str, str] = MappingProxyType({"sum": " + ", "total": " + ", "product": " * "})
_OF_MANY: Mapping[str, str] = MappingProxyType(
    {
        "average": "mean",
        "mean": "mean",
        "maximum": "max",
        "max": "max",
        "largest": "max",
        "biggest": "max",
        "minimum": "min",
        "min": "min",
        "smallest": "min",
    }
)
_OF_TWO: Mapping[str, str] = MappingProxyType({"difference": " - ", "quotient": " / ", "ratio": " / "})
_TIMES: Mapping[str, str] = MappingProxyType({"twice": "2", "double": "2", "thrice": "3", "triple": "3"})
_NAMED_POWERS: Mapping[str, str] = MappingProxyType({"squared": "2", "cubed": "3"})
_PERCENT = ("percent", "percentage")
_PARTS: Mapping[str, int] = MappingProxyType(
    {word: part for word, part in ORDINALS.items() if word not in ("first", "second")}
)


def sums_in(message: str) -> tuple[str, ...]:
    """Return the sums a message asks for, in order, each once."""
    if len(message) > _LONGEST_MESSAGE or not any(map(str.isalnum, message)):
        return ()
    found = (_sum_of(part.strip()) for part in _SENTENCE.split(message) if len(part) <= _LONGEST_SENTENCE)
    return tuple(dict.fromkeys(expression for expression in found if expression is not None))


@lru_cache(maxsize=256)
def _sum_of(sentence: str) -> str | None:
    """Return the sum that a sentence is, None if it is something else."""
    lowered = sentence.lower().replace("\u2019", "'")
    opening = _OPENING.match(lowered)
    body = lowered[opening.end() :] if opening is not None else lowered
    bare = body.strip(" \t,?.=")
    if _NO_SUM.fullmatch(bare):
        return None
    if not _COMMANDED.search(lowered) and (bare in _SAYINGS or (opening is None and _COMPACT.fullmatch(bare))):
        return None
    # An exclamation mark at the end is a factorial only where nothing else makes it a sum.
    for text in dict.fromkeys((body.rstrip(" \t?.!"), body.rstrip(" \t?."))):
        tokens = tokens_of(text)
        expression = None if not tokens else _Phrase(tokens).sum()
        if expression is not None:
            return expression
    return None


class _Unread(Exception):
    """The sentence is no arithmetic. Stays inside."""


class _Value(NamedTuple):
    """A piece of an expression. `level`: 0 a sum, 1 a product, 2 a power, 3 whole by itself."""

    text: str
    level: int = 3
    #: Whether something is computed in it.
    computes: bool = False
    #: Whether `of` may follow: a percentage or a fraction.
    share: bool = False


class _Phrase:
    """Reads one sentence from left to right; recursive descent, each token looked at a few times at most."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._verbs: Mapping[str, Callable[[], _Value]] = {
            "add": self._add,
            "sum": self._add,
            "subtract": self._subtract,
            "take": self._subtract,
            "multiply": self._multiply,
            "divide": self._divide,
            "increase": lambda: self._changed(" + "),
            "decrease": lambda: self._changed(" - "),
            "reduce": lambda: self._changed(" - "),
            "raise": self._raise,
            "square": lambda: self._named_power("2"),
            "cube": lambda: self._named_power("3"),
        }

    def sum(self) -> str | None:
        """Return the expression, None if there is more or less than one in the sentence."""
        self._drop_closing()
        try:
            rounded = self._take_rounding()
            value = self._whole()
        except _Unread:
            return None
        if self._at < len(self._tokens) or not value.computes:
            return None
        if rounded is None:
            return value.text
        return f"round({value.text})" if rounded == "0" else f"round({value.text}, {rounded})"

    # --- tokens ------------------------------------------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> Token | None:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def _word(self, ahead: int = 0) -> str:
        token = self._peek(ahead)
        return token.text if token is not None and token.kind == "word" else ""

    def _take(self, *texts: str) -> str | None:
        """Take one of these words or signs if it is next."""
        token = self._peek()
        if token is None or token.kind == "number" or token.text not in texts:
            return None
        self._at += 1
        return token.text

    def _take_all(self, *words: str) -> bool:
        """Take these words if they are next, all of them."""
        if any(self._word(ahead) != word for ahead, word in enumerate(words)):
            return False
        self._at += len(words)
        return True

    def _expect(self, *texts: str) -> None:
        if self._take(*texts) is None:
            raise _Unread

    def _drop_closing(self) -> None:
        tokens = self._tokens
        while tokens:
            pair = tuple(token.text for token in tokens[-2:])
            if pair in _CLOSING_PAIRS:
                del tokens[-2:]
            elif tokens[-1].kind != "number" and tokens[-1].text in _CLOSING:
                tokens.pop()
            else:
                return

    def _take_rounding(self) -> str | None:
        """Take `rounded to 2 decimal places` off the end; return the digits."""
        texts = [token.text for token in self._tokens]
        start = next((place for place in range(len(texts) - 1, 0, -1) if texts[place] in ("rounded", "round")), None)
        if start is None:
            start = next((place for place in range(len(texts) - 3, 0, -1) if texts[place] == "to"), None)
            if start is None or texts[start + 2] not in ("decimal", "decimals"):
                return None
        digits = "0"
        for text in texts[start:]:
            if text.isdigit():
                digits = text
            elif text not in _ROUNDING:
                return None
        del self._tokens[start:]
        return digits

    # --- whole sentences ---------------------------------------------------------------------------------------------

    def _whole(self) -> _Value:
        self._take("the")
        if self._word() in _PERCENT and not is_number(self._peek(1)):
            return self._percentage()
        verb = self._verbs.get(self._word())
        if verb is not None and self._word(1) not in ("of", "root"):
            self._at += 1
            return verb()
        value = self._sum()
        if self._take_all("is", "what"):
            self._expect(*_PERCENT)
            self._expect("of")
            return _percent_of(value, self._sum())
        if self._take_all("as", "a"):
            self._expect(*_PERCENT)
            self._expect("of")
            return _percent_of(value, self._sum())
        return value

    def _percentage(self) -> _Value:
        """Read `percent of 80 is 12` and `percentage is 12 of 80`."""
        self._at += 1
        if self._take("of"):
            whole = self._sum()
            self._expect("is", "are")
            return _percent_of(self._sum(), whole)
        self._expect("is", "are")
        part = self._sum()
        self._expect("of")
        return _percent_of(part, self._sum())

    def _add(self) -> _Value:
        self._take("up")
        self._take("together")
        items = self._list("and", "to", ",", "&", "with")
        self._take("together", "up")
        return _joined(items, " + ", 0)

    def _subtract(self) -> _Value:
        what = self._sum()
        self._take("away")
        self._expect("from")
        return _joined([self._sum(), what], " - ", 0)

    def _multiply(self) -> _Value:
        return _joined(self._list("by", "and", "with", "times", ",", "&"), " * ", 1)

    def _divide(self) -> _Value:
        what = self._sum()
        self._expect("by")
        return _joined([what, self._sum()], " / ", 1)

    def _changed(self, sign: str) -> _Value:
        what = self._sum()
        self._expect("by")
        share = self._factor()
        if not share.share:
            return _joined([what, share], sign, 0)
        return _Value(f"{_bracketed(what, 1)} * (1{sign}{share.text})", 1, computes=True)

    def _raise(self) -> _Value:
        base = self._factor()
        power = self._power_words()
        if power is None:
            raise _Unread
        return _powered(base, power)

    def _named_power(self, power: str) -> _Value:
        return _powered(self._factor(), _Value(power))

    def _list(self, *separators: str) -> list[_Value]:
        """Read numbers with words, commas or nothing but blanks between them; at least two, or one sum."""
        items = [self._sum()]
        while self._peek() is not None:
            separated = False
            while self._take(*separators):
                separated = True
            if not (separated or is_number(self._peek())):
                break
            items.append(self._sum())
        if len(items) == 1 and not items[0].computes:
            raise _Unread
        if len(items) > 1 and any(item.level < 2 for item in items):  # "the sum of 3 and 4 times 2" is 11 or 14
            raise _Unread
        return items

    # --- expressions -------------------------------------------------------------------------------------------------

    def _sum(self) -> _Value:
        value = self._product()
        while sign := self._take("+", "-", "plus", "minus"):
            right = self._product()
            if right.share and not right.computes:  # "80 plus 15%" is 92 to one and 80.15 to another
                raise _Unread
            value = _joined([value, right], " + " if sign in ("+", "plus") else " - ", 0)
        return value

    def _product(self) -> _Value:
        value = self._factor()
        while True:
            sign = self._product_sign(value)
            if sign is None:
                return value
            right = self._factor()
            if sign == "off":
                value = _Value(f"{_bracketed(right, 1)} * (1 - {value.text})", 1, computes=True)
            elif sign == "of" and value.text.endswith("%"):
                value = _Value(f"{value.text} of {_bracketed(right, 2)}", 1, computes=True)
            elif sign == "of" and value.text.startswith("1 / "):
                value = _Value(f"{_bracketed(right, 1)}{value.text[1:]}", 1, computes=True)
            else:
                fraction = sign == "/" and not value.computes and not right.computes and value.level == right.level == 3
                joined = _joined([value, right], " * " if sign == "of" else f" {sign} ", 1)
                value = joined._replace(share=fraction)

    def _product_sign(self, value: _Value) -> str | None:
        """Take what makes a product, and return its sign."""
        if value.share and (word := self._take("of", "off")):
            return word if value.text.endswith("%") or word == "of" else None
        if self._take_all("multiplied", "by") or self._take("*", "times", "x"):
            return "*"
        if self._take_all("divided", "by") or self._take("/", "over"):
            return "/"
        if self._take("mod", "modulo") or (self._is_remainder() and self._take("%")):
            return "%"
        return None

    def _is_remainder(self) -> bool:
        token, behind = self._peek(), self._peek(1)
        return token == Token("sign", "%") and (is_number(behind) or behind == Token("sign", "("))

    def _factor(self) -> _Value:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _Unread
        try:
            if self._take("-", "minus", "negative"):
                value = self._factor()
                return _Value(f"-{_bracketed(value, 2)}", 2, value.computes)
            return self._marked(self._primary())
        finally:
            self._depth -= 1

    def _marked(self, value: _Value) -> _Value:
        """Read what follows a number: a percent sign, a factorial, a power."""
        while True:
            if self._take("!", "factorial"):
                value = _Value(f"{_bracketed(value, 3)}!", 2, computes=True)
            elif word := self._take(*_NAMED_POWERS):
                value = _powered(value, _Value(_NAMED_POWERS[word]))
            elif not self._is_remainder() and (self._take("%", *_PERCENT) or self._take_all("per", "cent")):
                value = _Value(f"{_bracketed(value, 3)}%", 3, value.computes, share=True)
            elif self._take("^", "**"):
                value = _powered(value, self._factor())
            elif (power := self._power_words()) is not None:
                value = _powered(value, power)
            else:
                return value

    def _power_words(self) -> _Value | None:
        """Read `to the power of 3`, `raised to 3` or `to the 3rd power`."""
        raised = self._take("raised") is not None
        if self._take_all("to", "the"):
            if self._take("power"):
                self._take("of")
                return self._factor()
            token = self._peek()
            power = token.text if is_number(token) and token is not None else str(ORDINALS.get(self._word(), ""))
            if not power:
                raise _Unread
            self._at += 1
            self._take("th")
            self._take("power")
            return _Value(power)
        if self._take_all("to", "power"):
            self._take("of")
            return self._factor()
        if raised:
            self._expect("to")
            return self._factor()
        return None

    def _primary(self) -> _Value:
        self._take("the")
        token = self._peek()
        if token is None:
            raise _Unread
        if token.kind == "number":
            return self._numbered(token.text)
        if self._take("("):
            value = self._sum()
            self._expect(")")
            return _Value(f"({value.text})", 3, value.computes)
        if self._take_all("square", "root") or self._take("sqrt", "root", "\u221a"):
            return self._applied("sqrt")
        if self._take_all("cube", "root") or self._take_all("cubic", "root"):
            return self._applied("cbrt")
        for words, make in (
            (("square", "of"), lambda: _powered(self._factor(), _Value("2"))),
            (("cube", "of"), lambda: _powered(self._factor(), _Value("3"))),
            (("factorial", "of"), lambda: _Value(f"{_bracketed(self._factor(), 3)}!", 2, computes=True)),
        ):
            if self._take_all(*words):
                return make()
        return self._worded(self._word())

    def _numbered(self, text: str) -> _Value:
        """Read a number, or two thirds of something."""
        self._at += 1
        part = _PARTS.get(self._word().removesuffix("s").replace("halve", "half"))
        if part is not None and self._word(1) == "of":
            self._at += 1
            return _Value(f"{text} / {part}", 1, computes=False, share=True)
        return _Value(text)

    def _worded(self, word: str) -> _Value:
        """Read what begins with a word: a part of something, a multiple, or something made of several numbers."""
        self._take("a", "one")
        part = _PARTS.get(self._word())
        if part is not None and self._word(1) == "of":
            self._at += 1
            return _Value(f"1 / {part}", 1, computes=False, share=True)
        if self._word() != word:
            raise _Unread
        self._at += 1
        if word in _TIMES:
            return _joined([_Value(_TIMES[word]), self._factor()], " * ", 1)
        if word == "remainder":
            return self._remainder()
        if self._take("of", "between", "from") is None:
            raise _Unread
        if word in _SUMS:
            return self._nested(_joined(self._list("and", ",", "&"), _SUMS[word], 0 if _SUMS[word] == " + " else 1))
        if word in _OF_MANY:
            items = self._list("and", ",", "&")
            return _Value(f"{_OF_MANY[word]}({', '.join(item.text for item in items)})", 3, computes=True)
        if word in _OF_TWO:
            first = self._product()
            self._expect("and", "to", ",")
            return self._nested(_joined([first, self._product()], _OF_TWO[word], 0))
        raise _Unread

    def _nested(self, value: _Value) -> _Value:
        """Return what stands for one number: bracketed if more of the sentence follows or came before."""
        alone = self._peek() is None and self._depth == 1
        return value if alone else _Value(f"({value.text})", 3, computes=True)

    def _remainder(self) -> _Value:
        """Read `of 17 divided by 5` and `when 17 is divided by 5`."""
        self._expect("of", "when", "if", "from")
        self._take("you")
        self._take("divide", "dividing")
        what = self._factor()
        self._take("is")
        self._take("divided", "and")
        self._take("by")
        return _joined([what, self._factor()], " % ", 1)

    def _applied(self, function: str) -> _Value:
        self._take("of")
        self._take("the")
        value = self._factor()
        inner = value.text[1:-1] if value.text.startswith("(") and value.text.endswith(")") else value.text
        inner = inner if inner.count("(") == inner.count(")") and "(" not in inner else value.text
        return _Value(f"{function}({inner})", 3, computes=True)


def _bracketed(value: _Value, level: int) -> str:
    """Return a piece as an operand that binds at least this strongly."""
    return value.text if value.level >= level else f"({value.text})"


def _joined(values: list[_Value], sign: str, level: int) -> _Value:
    """Return values joined by an operator; what stands behind the first binds more strongly than it."""
    if len(values) == 1:
        return values[0]
    first, *others = values
    texts = [_bracketed(first, level), *(_bracketed(value, level + 1) for value in others)]
    return _Value(sign.join(texts), level, computes=True)


def _powered(base: _Value, power: _Value) -> _Value:
    return _Value(f"{_bracketed(base, 3)} ** {_bracketed(power, 2)}", 2, computes=True)


def _percent_of(part: _Value, whole: _Value) -> _Value:
    return _Value(f"{_bracketed(part, 1)} / {_bracketed(whole, 2)} * 100", 1, computes=True)
