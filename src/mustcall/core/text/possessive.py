r"""Possessive repetitions of groups: what was read is never given back, and nothing is kept to give it back.

CPython before 3.11.5 (Debian 12 has 3.11.2) fails here: after a repetition that did not fit it goes on where that one
stopped reading, not where it began (gh-100061, gh-106052). `(?:ab?c)*+` reads the first character of `abd` there.
An empty last alternative keeps the place, and ends the repetition. `(?>(?:...)*)` would be right as well, but keeps a
frame for each repetition: 117 MB for a million of them. Repetitions of one character (`[a-z]++`) are right everywhere.

A body captures nothing: a captured group in a repetition that is tried and left raises `SystemError`, in 3.11.7 too.
"""

import re

__all__ = ["any_number", "at_least_one", "maybe"]


def any_number(body: str) -> str:
    """Return the expression `(?:body)*+`."""
    return f"(?:{_checked(body)}|)*+"


def at_least_one(body: str, most: int | None = None) -> str:
    """Return the expression `(?:body)++`, or `(?:body){1,most}+`."""
    return f"(?>{_checked(body)})(?:{body}|)" + ("*+" if most is None else f"{{0,{most - 1}}}+")


def maybe(body: str) -> str:
    """Return the expression `(?:body)?+`."""
    return f"(?>{_checked(body)}|)"


def _checked(body: str) -> str:
    assert not re.compile(body).groups, f"{body} captures a group"
    return body
