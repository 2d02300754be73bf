"""Lines that are broken between words, however the text is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from mustcall.cli.wrapping import WordWrap, fold

_TEXTS = st.text(st.sampled_from("ab \n漢"), max_size=80)


def wrapped(pieces: list[str], width: int) -> str:
    """All that is written of a text that comes in pieces."""
    wrap = WordWrap(width)
    return "".join([*(wrap.feed(piece) for piece in pieces), wrap.end()])


@given(_TEXTS, st.integers(1, 20), st.data())
def test_cuts_change_nothing(text: str, width: int, data: st.DataObject) -> None:
    """A text in pieces is written as the whole is."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert wrapped(pieces, width) == wrapped([text], width)


@given(_TEXTS, st.integers(1, 20))
def test_words_stay_whole_and_lines_fit(text: str, width: int) -> None:
    """The words are the same in the same order; a line is no longer than the width unless it is one word."""
    out = wrapped([text], width)
    assert out.split() == text.split()
    for line in out.split("\n"):
        assert cell_len(line.rstrip()) <= width or len(line.split()) == 1


def test_a_word_is_shown_as_it_comes_where_there_is_room() -> None:
    """What comes slowly is not held back far from the edge; near it, the word waits for its end."""
    wrap = WordWrap(40)
    assert [wrap.feed(piece) for piece in ("Once", " up", "on a", " time ")] == ["Once", " up", "on a", " time"]
    near = [wrap.feed(piece) for piece in ("there", " was an en", "chanted ", "forest ")]
    assert near == ["", " there was an", " enchanted", "\nforest"]


@pytest.mark.parametrize("pieces", [["one two"], ["o", "ne t", "wo"]])
def test_where_there_is_no_terminal_nothing_is_held(pieces: list[str]) -> None:
    """Without a width the text goes through as it comes."""
    wrap = WordWrap(0)
    assert [wrap.feed(piece) for piece in pieces] == pieces
    assert wrap.end() == ""


@given(_TEXTS, st.integers(1, 20), st.integers(0, 6))
def test_a_folded_text_keeps_its_lines(text: str, width: int, hang: int) -> None:
    """Every line end is still there, and each line is folded as if it stood alone."""
    folded = [fold(line, width, hang) for line in text.split("\n")]
    assert fold(text, width, hang) == "\n".join(folded)
    assert fold(text, width, hang).split() == text.split()
    assert fold(text, 0, hang) == text
