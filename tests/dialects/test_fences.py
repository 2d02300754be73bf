"""Taking fences away from a text as it streams (rule 63)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.dialects.scanning.fences import Unfenced


def bare(pieces: list[str]) -> tuple[str, bool]:
    """Return a text without its fences, and whether it holds code."""
    unfenced = Unfenced()
    out = "".join(unfenced.feed(piece) for piece in pieces) + unfenced.close()
    return out, unfenced.holds_code


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("```json\n{}\n```", "{}\n"),
        ("```\n{}\n```\n", "{}\n"),
        ("~~~json\n{}\n~~~", "{}\n"),
        ("````json\n```\n{}\n````", "```\n{}\n"),
        ("```json {}```", "{}"),
        ("```json\n{}```", "{}"),
        ("```json\n{}\n```\n```json\n[]\n```", "{}\n[]\n"),
        ("{}\n", "{}\n"),
        ("a ``` b", "a ``` b"),
        ("```json", "```json"),
        ('```json\n{"a": "x```"}\n```', '{"a": "x```"}\n'),
    ],
)
def test_fences_are_taken_away(text: str, left: str) -> None:
    """Rule 63: the lines of a fence go, its content stays, however the text is cut."""
    assert bare([text]) == (left, False)
    assert bare(list(text)) == (left, False)


@pytest.mark.parametrize("word", ["python", "bash", "js", "diff"])
def test_code_is_told(word: str) -> None:
    """Rule 63: a fence that says it is code holds no calls."""
    assert bare([f"```{word}\n{{}}\n```"])[1]


@given(st.text(alphabet="`~{}[]>\n json", max_size=80), st.data())
def test_cuts_change_nothing(text: str, data: st.DataObject) -> None:
    """Whatever stands in a text, pieces of it give what the whole gives."""
    place = data.draw(st.integers(0, len(text)))
    whole = bare([text])
    assert bare(list(text)) == whole
    assert bare([text[:place], text[place:]]) == whole
