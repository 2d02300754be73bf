"""The sums a message asks for, in figures or in words, as expressions that a calculator can read.

"What is 17.5% of 3,421?" is `17.5% of 3421`, "the square root of 144" is `sqrt(144)`, "add 17 and 25" is `17 + 25`. A
sentence counts only if all of it is the sum and the words people put around one: "half an hour later", a date, a
version, "24/7" and "page 3 of 10" ask for nothing. The expression is written down here and computed elsewhere; it is in
the calculator's own grammar (`toolkit.builtin.arithmetic`).

Cost: linear in the message; longer sentences than people write sums in are not read.
"""

import re
from collections.abc import Callable, Mapping

from mustcall.policy.words.numerals import ORDINALS, Token, is_number, tokens_of
from mustcall.policy.words.sum_values import SumValue, bracketed, joined, percent_of, powered
from mustcall.policy.words.sum_words import (
    CLOSING,
    CLOSING_PAIRS,
    COMMANDED,
    COMPACT,
    NAMED_POWERS,
    NO_SUM,
    OF_MANY,
    OF_TWO,
    OPENING,
    PARTS,
    PERCENT,
    ROUNDING,
    SAYINGS,
    SUMS,
    TIMES,
)

__all__ = ["sums_in"]

_LONGEST_MESSAGE = 4_000
_LONGEST_SENTENCE = 300
_DEEPEST = 20

_SENTENCE = re.compile(r"[\n;:]+|(?<=[?!.])\s+")


def sums_in(message: str) -> tuple[str, ...]:
    """Return the sums a message asks for, in order, each once."""
    if len(message) > _LONGEST_MESSAGE or not any(map(str.isalnum, message)):
        return ()
    found = (_sum_of(part.strip()) for part in _SENTENCE.split(message) if len(part) <= _LONGEST_SENTENCE)
    return tuple(dict.fromkeys(expression for expression in found if expression is not None))


def _sum_of(sentence: str) -> str | None:
    """Return the sum that a sentence is, None if it is something else."""
    lowered = sentence.lower().replace("\u2019", "'")
    opening = OPENING.match(lowered)
    body = lowered[opening.end() :] if opening is not None else lowered
    bare = body.strip(" \t,?.=")
    if NO_SUM.fullmatch(bare):
        return None
    if not COMMANDED.search(lowered) and (bare in SAYINGS or (opening is None and COMPACT.fullmatch(bare))):
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


class _Phrase:
    """Reads one sentence from left to right; recursive descent, each token looked at a few times at most."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._verbs: Mapping[str, Callable[[], SumValue]] = {
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
            if pair in CLOSING_PAIRS:
                del tokens[-2:]
            elif tokens[-1].kind != "number" and tokens[-1].text in CLOSING:
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
            elif text not in ROUNDING:
                return None
        del self._tokens[start:]
        return digits

    # --- whole sentences ---------------------------------------------------------------------------------------------

    def _whole(self) -> SumValue:
        self._take("the")
        if self._word() in PERCENT and not is_number(self._peek(1)):
            return self._percentage()
        verb = self._verbs.get(self._word())
        if verb is not None and self._word(1) not in ("of", "root"):
            self._at += 1
            return verb()
        value = self._sum()
        if self._take_all("is", "what"):
            self._expect(*PERCENT)
            self._expect("of")
            return percent_of(value, self._sum())
        if self._take_all("as", "a"):
            self._expect(*PERCENT)
            self._expect("of")
            return percent_of(value, self._sum())
        return value

    def _percentage(self) -> SumValue:
        """Read `percent of 80 is 12` and `percentage is 12 of 80`."""
        self._at += 1
        if self._take("of"):
            whole = self._sum()
            self._expect("is", "are")
            return percent_of(self._sum(), whole)
        self._expect("is", "are")
        part = self._sum()
        self._expect("of")
        return percent_of(part, self._sum())

    def _add(self) -> SumValue:
        self._take("up")
        self._take("together")
        items = self._list("and", "to", ",", "&", "with")
        self._take("together", "up")
        return joined(items, " + ", 0)

    def _subtract(self) -> SumValue:
        what = self._sum()
        self._take("away")
        self._expect("from")
        return joined([self._sum(), what], " - ", 0)

    def _multiply(self) -> SumValue:
        return joined(self._list("by", "and", "with", "times", ",", "&"), " * ", 1)

    def _divide(self) -> SumValue:
        what = self._sum()
        self._expect("by")
        return joined([what, self._sum()], " / ", 1)

    def _changed(self, sign: str) -> SumValue:
        what = self._sum()
        self._expect("by")
        share = self._factor()
        if not share.share:
            return joined([what, share], sign, 0)
        return SumValue(f"{bracketed(what, 1)} * (1{sign}{share.text})", 1, computes=True)

    def _raise(self) -> SumValue:
        base = self._factor()
        power = self._power_words()
        if power is None:
            raise _Unread
        return powered(base, power)

    def _named_power(self, power: str) -> SumValue:
        return powered(self._factor(), SumValue(power))

    def _list(self, *separators: str) -> list[SumValue]:
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

    def _sum(self) -> SumValue:
        value = self._product()
        while sign := self._take("+", "-", "plus", "minus"):
            right = self._product()
            if right.share and not right.computes:  # "80 plus 15%" is 92 to one and 80.15 to another
                raise _Unread
            value = joined([value, right], " + " if sign in ("+", "plus") else " - ", 0)
        return value

    def _product(self) -> SumValue:
        value = self._factor()
        while True:
            sign = self._product_sign(value)
            if sign is None:
                return value
            right = self._factor()
            if sign == "off":
                value = SumValue(f"{bracketed(right, 1)} * (1 - {value.text})", 1, computes=True)
            elif sign == "of" and value.text.endswith("%"):
                value = SumValue(f"{value.text} of {bracketed(right, 2)}", 1, computes=True)
            elif sign == "of" and value.text.startswith("1 / "):
                value = SumValue(f"{bracketed(right, 1)}{value.text[1:]}", 1, computes=True)
            else:
                fraction = sign == "/" and not value.computes and not right.computes and value.level == right.level == 3
                made = joined([value, right], " * " if sign == "of" else f" {sign} ", 1)
                value = made._replace(share=fraction)

    def _product_sign(self, value: SumValue) -> str | None:
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

    def _factor(self) -> SumValue:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _Unread
        try:
            if self._take("-", "minus", "negative"):
                value = self._factor()
                return SumValue(f"-{bracketed(value, 2)}", 2, value.computes)
            return self._marked(self._primary())
        finally:
            self._depth -= 1

    def _marked(self, value: SumValue) -> SumValue:
        """Read what follows a number: a percent sign, a factorial, a power."""
        while True:
            if self._take("!", "factorial"):
                value = SumValue(f"{bracketed(value, 3)}!", 2, computes=True)
            elif word := self._take(*NAMED_POWERS):
                value = powered(value, SumValue(NAMED_POWERS[word]))
            elif not self._is_remainder() and (self._take("%", *PERCENT) or self._take_all("per", "cent")):
                value = SumValue(f"{bracketed(value, 3)}%", 3, value.computes, share=True)
            elif self._take("^", "**"):
                value = powered(value, self._factor())
            elif (power := self._power_words()) is not None:
                value = powered(value, power)
            else:
                return value

    def _power_words(self) -> SumValue | None:
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
            return SumValue(power)
        if self._take_all("to", "power"):
            self._take("of")
            return self._factor()
        if raised:
            self._expect("to")
            return self._factor()
        return None

    def _primary(self) -> SumValue:
        self._take("the")
        token = self._peek()
        if token is None:
            raise _Unread
        if token.kind == "number":
            return self._numbered(token.text)
        if self._take("("):
            value = self._sum()
            self._expect(")")
            return SumValue(f"({value.text})", 3, value.computes)
        if self._take_all("square", "root") or self._take("sqrt", "root", "\u221a"):
            return self._applied("sqrt")
        if self._take_all("cube", "root") or self._take_all("cubic", "root"):
            return self._applied("cbrt")
        for words, make in (
            (("square", "of"), lambda: powered(self._factor(), SumValue("2"))),
            (("cube", "of"), lambda: powered(self._factor(), SumValue("3"))),
            (("factorial", "of"), lambda: SumValue(f"{bracketed(self._factor(), 3)}!", 2, computes=True)),
        ):
            if self._take_all(*words):
                return make()
        return self._worded(self._word())

    def _numbered(self, text: str) -> SumValue:
        """Read a number, or two thirds of something."""
        self._at += 1
        part = PARTS.get(self._word().removesuffix("s").replace("halve", "half"))
        if part is not None and self._word(1) == "of":
            self._at += 1
            return SumValue(f"{text} / {part}", 1, computes=False, share=True)
        return SumValue(text)

    def _worded(self, word: str) -> SumValue:
        """Read what begins with a word: a part of something, a multiple, or something made of several numbers."""
        self._take("a", "one")
        part = PARTS.get(self._word())
        if part is not None and self._word(1) == "of":
            self._at += 1
            return SumValue(f"1 / {part}", 1, computes=False, share=True)
        if self._word() != word:
            raise _Unread
        self._at += 1
        if word in TIMES:
            return joined([SumValue(TIMES[word]), self._factor()], " * ", 1)
        if word == "remainder":
            return self._remainder()
        if self._take("of", "between", "from") is None:
            raise _Unread
        if word in SUMS:
            return self._nested(joined(self._list("and", ",", "&"), SUMS[word], 0 if SUMS[word] == " + " else 1))
        if word in OF_MANY:
            items = self._list("and", ",", "&")
            return SumValue(f"{OF_MANY[word]}({', '.join(item.text for item in items)})", 3, computes=True)
        if word in OF_TWO:
            first = self._product()
            self._expect("and", "to", ",")
            return self._nested(joined([first, self._product()], OF_TWO[word], 0))
        raise _Unread

    def _nested(self, value: SumValue) -> SumValue:
        """Return what stands for one number: bracketed if more of the sentence follows or came before."""
        alone = self._peek() is None and self._depth == 1
        return value if alone else SumValue(f"({value.text})", 3, computes=True)

    def _remainder(self) -> SumValue:
        """Read `of 17 divided by 5` and `when 17 is divided by 5`."""
        self._expect("of", "when", "if", "from")
        self._take("you")
        self._take("divide", "dividing")
        what = self._factor()
        self._take("is")
        self._take("divided", "and")
        self._take("by")
        return joined([what, self._factor()], " % ", 1)

    def _applied(self, function: str) -> SumValue:
        self._take("of")
        self._take("the")
        value = self._factor()
        inner = value.text[1:-1] if value.text.startswith("(") and value.text.endswith(")") else value.text
        inner = inner if inner.count("(") == inner.count(")") and "(" not in inner else value.text
        return SumValue(f"{function}({inner})", 3, computes=True)
