"""The known word somebody meant."""

from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.text.nearest import did_you_mean, nearest

KNOWN = ("serve", "chat", "run", "runs", "doctor")


def test_slips() -> None:
    """Letters left out, swapped or in another case still mean the word."""
    assert [nearest(word, KNOWN) for word in ("srve", "caht", "DOCTOR", "runs")] == ["serve", "chat", "doctor", "runs"]
    assert nearest("zzz", KNOWN) is None
    assert nearest("x" * 100_000, ["x" * 100_001]) is None


def test_the_end_of_a_sentence() -> None:
    """It is a question, or nothing at all."""
    assert did_you_mean("srve", KNOWN) == "; did you mean 'serve'?"
    assert did_you_mean("zzz", KNOWN) == ""


@given(st.text(), st.lists(st.text(max_size=20)))
def test_what_is_meant_is_known(word: str, known: list[str]) -> None:
    """The answer is one of the known words or none, whatever is asked."""
    assert nearest(word, known) in {None, *known}


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1))
def test_a_known_word_is_itself(known: list[str]) -> None:
    """A word that is known means itself, up to its case."""
    found = nearest(known[0], known)
    assert found is not None
    assert found.lower() == known[0].lower()
