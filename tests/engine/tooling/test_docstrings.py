"""Docstrings in the styles people write, and in none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.engine.tooling.docstrings import Described, read_docstring

GOOGLE = """Look up the weather.

    More words.

    Args:
        city (str): a city,
            or a town
        days: how many

    Returns:
        The weather.
    """
NUMPY = """Look up the weather.

    More words.

    Parameters
    ----------
    city : str
        a city,
        or a town
    days
        how many

    Returns
    -------
    str
        The weather.
    """
SPHINX = """Look up the weather.

    More words.

    :param str city: a city,
        or a town
    :param days: how many
    :returns: The weather.
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_styles(docstring: str) -> None:
    """Each style gives the same description and parameters."""
    read = read_docstring(docstring)
    assert read == Described("Look up the weather.\n\nMore words.", {"city": "a city, or a town", "days": "how many"})


@pytest.mark.parametrize("docstring", [None, "", "  \n "])
def test_nothing(docstring: str | None) -> None:
    """No words, no description."""
    assert read_docstring(docstring) == Described()


def test_plain_words_stay() -> None:
    """A colon does not make a section."""
    assert read_docstring("Note: this is: text\nArgs are fine").description == "Note: this is: text\nArgs are fine"


@given(st.text(alphabet=st.sampled_from("aA :-\n\t*()Args:Parameters:param"), max_size=200))
def test_nothing_fails(docstring: str) -> None:
    """Whatever is written can be read."""
    read = read_docstring(docstring)
    assert all(read.parameters.values())
