"""What an arithmetic expression comes to: read by a parser of its own and computed exactly where that is possible.

Nothing is ever evaluated as code: names are looked up in two tables (`numbers`) and everything else is a number or an
operator. `0.1 + 0.2` is `0.3`; `15% of 80` is `12`; `**` and `^` raise. An expression has at most 1,000 characters and
nests at most 50 deep. Whatever cannot be read or computed is a `ToolError`, and nothing else.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Final, NamedTuple, NoReturn

from mustcall.core.errors import ToolError
from mustcall.policy.words.sums import sums_in
from mustcall.toolkit.builtin.numbers import CONSTANTS, FUNCTIONS, Number, apply_operator, read_number

__all__ = ["LONGEST", "compute", "readable"]

LONGEST: Final = 1000
_DEEPEST: Final = 50

_TOKEN = re.compile(
    r"\s*(?:"
    r"(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"
    r"|(?P<sign>\*\*|//|[-+*/%^!(),\u00d7\u00f7\u2212\u00b7\u221a])"
    r")"
)
_SAME_SIGN: Mapping[str, str] = MappingProxyType(
    {"\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u2212": "-", "^": "**"}
)


class _Token(NamedTuple):
    kind: str
    text: str


def compute(expression: str) -> Number:
    """Return the value of an expression, or raise `ToolError` saying what is wrong with it."""
    if len(expression) > LONGEST:
        raise ToolError(f"the expression has {len(expression)} characters; at most {LONGEST} are read")
    return _Parser(_read(expression)).whole()


def readable(text: str) -> str:
    """Return what can be computed of a text: itself, or the one sum it asks for in words (`square root of 144`)."""
    try:
        compute(text)
    except ToolError:
        said = sums_in(text)
        return said[0] if len(said) == 1 else text
    return text


def _read(expression: str) -> list[_Token]:
    tokens: list[_Token] = []
    text, position = expression.rstrip(), 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            sign = text[position:].lstrip()[0]
            raise ToolError(f"{sign!r} is not part of arithmetic; write numbers, + - * / // % ** ( ) and functions")
        kind = found.lastgroup or ""
        tokens.append(_Token(kind, _SAME_SIGN.get(found[kind], found[kind])))
        position = found.end()
    if not tokens:
        raise ToolError("the expression is empty; write something like (2 + 3) * 4")
    return tokens


class _Parser:
    """Recursive descent: sum, product, sign, power, postfix, primary; linear in the number of tokens."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> Number:
        """Return the value of all tokens."""
        value = self._sum()
        if self._at < len(self._tokens):
            self._unexpected()
        return value

    def _peek(self, ahead: int = 0) -> _Token | None:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def _take(self, *signs: str) -> str | None:
        token = self._peek()
        if token is None or token.kind != "sign" or token.text not in signs:
            return None
        self._at += 1
        return token.text

    def _unexpected(self) -> NoReturn:
        token = self._peek()
        if token is None:
            raise ToolError("the expression ends too early; a number or a closing bracket is missing")
        if token.text == ",":
            raise ToolError("a comma only separates a function's arguments; write 1000 for 1,000 and 1.5 for 1,5")
        raise ToolError(f"{token.text!r} is not expected there; an operator or a bracket is missing before it")

    def _sum(self) -> Number:
        value = self._product()
        while operator := self._take("+", "-"):
            value = apply_operator(operator, value, self._product())
        return value

    def _product(self) -> Number:
        value = self._signed()
        while True:
            operator = self._take("*", "/", "//", "%") or self._take_of()
            if operator is None:
                return value
            value = apply_operator(operator, value, self._signed())

    def _take_of(self) -> str | None:
        """Read `of` as in `15% of 80`: a product."""
        if self._peek() != _Token("name", "of"):
            return None
        self._at += 1
        return "*"

    def _signed(self) -> Number:
        negative = False
        while sign := self._take("+", "-"):
            negative ^= sign == "-"
        value = self._raised()
        return -value if negative else value

    def _raised(self) -> Number:
        base = self._marked()
        if self._take("**") is None:
            return base
        self._enter()
        exponent = self._signed()
        self._depth -= 1
        return apply_operator("**", base, exponent)

    def _marked(self) -> Number:
        value = self._primary()
        while True:
            if self._take("!"):
                value = FUNCTIONS["factorial"].apply([value])
            elif self._is_percent():
                self._at += 1
                value = apply_operator("/", value, Fraction(100))
            else:
                return value

    def _is_percent(self) -> bool:
        """Tell percent from remainder: what has no operand behind it is percent."""
        if self._peek() != _Token("sign", "%"):
            return False
        behind = self._peek(1)
        if behind is None or behind == _Token("name", "of"):
            return True
        return behind.kind == "sign" and behind.text not in ("(", "\u221a")

    def _primary(self) -> Number:
        token = self._peek()
        if token is None:
            self._unexpected()
        self._at += 1
        match token:
            case _Token("number", text):
                return read_number(text)
            case _Token("name", name):
                return self._named(name)
            case _Token("sign", "("):
                self._enter()
                value = self._sum()
                self._close()
                return value
            case _Token("sign", "\u221a"):
                self._enter()
                value = FUNCTIONS["sqrt"].apply([self._primary()])
                self._depth -= 1
                return value
            case _:
                self._at -= 1
                return self._unexpected()

    def _named(self, name: str) -> Number:
        word = name.lower()
        if word in CONSTANTS:
            return CONSTANTS[word]
        function = FUNCTIONS.get(word)
        if function is None:
            known = ", ".join((*FUNCTIONS, *CONSTANTS))
            raise ToolError(f"{name!r} is not known to the calculator; it knows {known}")
        if self._take("(") is None:
            raise ToolError(f"{name} needs its arguments in brackets, as in {name}(2)")
        self._enter()
        arguments: list[Number] = []
        if not self._take(")"):
            arguments.append(self._sum())
            while self._take(","):
                arguments.append(self._sum())
            self._close()
        else:
            self._depth -= 1
        if not function.least <= len(arguments) <= function.most:
            wanted = function.least if function.least == function.most else f"{function.least} to {function.most}"
            raise ToolError(f"{name} takes {wanted} arguments, got {len(arguments)}")
        return function.apply(arguments)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ToolError(f"the expression nests deeper than {_DEEPEST} levels")

    def _close(self) -> None:
        if self._take(")") is None:
            self._unexpected()
        self._depth -= 1
