"""Which known word somebody meant who wrote another: "did you mean". Pure text; it knows nothing of what words mean."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["did_you_mean", "nearest"]

#: Longer words are nobody's slip of the finger, and comparing them takes quadratic time.
_LONGEST = 64


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most like `word`, whatever its case; None where none is like it."""
    if len(word) > _LONGEST:
        return None
    spelt: dict[str, str] = {}
    for one in known:
        spelt.setdefault(one.lower(), one)
    found = get_close_matches(word.lower(), spelt, n=1)
    return spelt[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the nearest known word, nothing where none is near: the end of a sentence."""
    found = nearest(word, known)
    return f"; did you mean {found!r}?" if found is not None else ""
