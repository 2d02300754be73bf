"""Possessive repetitions of groups: as the documentation of `re` defines them, on every version of Python."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mustcall
from mustcall.core.text.possessive import any_number, at_least_one, maybe

BODIES = ["ab?c", r"a(?!c)|b", "[ab]++c|a", r"a(?:b|bc)*+c", "(?:a|ab)c|b(?=c)"]
texts = st.text(alphabet="abc", max_size=12)
#: A repetition of a group that gives nothing back, as it must not be written: versions before 3.11.5 read too much.
WRONG = re.compile(r"\)(?:[*+?]|\{[0-9,]*\})\+")


@pytest.mark.parametrize("behind", ["", "a", "c", r"\Z"])
@pytest.mark.parametrize("body", BODIES)
@given(text=texts)
def test_each_is_what_an_atomic_group_is(body: str, behind: str, text: str) -> None:
    """`x*+` is `(?>x*)`, `x++` is `(?>x+)`, `x{1,3}+` is `(?>x{1,3})`, and `x?+` is `(?>x?)`."""
    for written, meant in (
        (any_number(body), f"(?>(?:{body})*)"),
        (at_least_one(body), f"(?>(?:{body})+)"),
        (at_least_one(body, most=3), f"(?>(?:{body}){{1,3}})"),
        (maybe(body), f"(?>(?:{body})?)"),
    ):
        found, right = re.match(written + behind, text), re.match(meant + behind, text)
        assert (found and found.span()) == (right and right.span())


def test_what_old_versions_read_wrongly() -> None:
    """The reported cases (gh-100061, gh-106052), and ours: a block comment, a cut escape, a cut number."""
    assert re.fullmatch(any_number("ab?c"), "a") is None
    for expression, text, read in (
        (at_least_one("(?!C)."), "ABC", "AB"),
        (any_number("ab?c") + "abd", "abcacabd", "abcacabd"),
        (r"/\*" + any_number(r"[^*]++|\*(?!/)") + r"\*/", "/* a */", "/* a */"),
        (any_number(r"[^\\]++|\\(?:n|u[0-9]{4})"), r"a\nb\u12", r"a\nb"),
        ("[0-9]++" + maybe(r"\.[0-9]++"), "1.x", "1"),
    ):
        found = re.match(expression, text)
        assert found is not None
        assert found[0] == read


@pytest.mark.parametrize("write", [any_number, at_least_one, maybe])
def test_nothing_is_captured(write: Callable[[str], str]) -> None:
    """A captured group in a repetition that is tried and left can raise `SystemError`: such a body is not taken."""
    with pytest.raises(AssertionError, match="captures"):
        write("a(b)?")


def _constants(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            yield node.lineno, node.value if isinstance(node.value, str) else node.value.decode("latin-1")


def test_no_expression_repeats_a_group_otherwise() -> None:
    """Every possessive repetition of a group in the product is written by these functions."""
    package = Path(mustcall.__file__).parent
    own = package / "core" / "text" / "possessive.py"
    found = [
        f"{path.relative_to(package)}:{line}"
        for path in sorted(package.rglob("*.py"))
        if path != own
        for line, text in _constants(path)
        if WRONG.search(text)
    ]
    assert found == []
