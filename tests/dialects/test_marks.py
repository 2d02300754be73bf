"""Markers are found whole or as the beginning that the text's end cuts off."""

import pytest

from mustcall.dialects.scanning.marks import NAMESPACE, Marks


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ab <tool_call>x", (3, "<tool_call>")),
        ("ab <tool_cal", (3, "")),
        ("ab <tool_calm ", (14, "")),
        ("a <", (2, "")),
        ("<x:invoke name=1", (0, "<x:invoke name=")),
        ("<x-1.b:inv", (0, "")),
        ("<div> <b", (6, "")),
        ("<" + "n" * 40 + ":invoke name=", (54, "")),
        ("", (0, "")),
    ],
)
def test_find(text: str, found: tuple[int, str]) -> None:
    """The first marker is found with its place; a cut one is empty; none is the end."""
    marks = Marks(["<tool_call>", f"<{NAMESPACE}:invoke name="])
    assert marks.find(text, 0, closed=False) == found


def test_closed_text_cuts_nothing() -> None:
    """At the end of the input a beginning is no marker any more."""
    marks = Marks(["<tool_call>", "[", "[TOOL]"])
    assert marks.find("a <tool_c", 0, closed=True) == (9, "")
    assert marks.find("a [TOO", 0, closed=True) == (2, "[")
    assert marks.find("a [TOO", 0, closed=False) == (2, "")
    assert marks.find("a [", 0, closed=False) == (2, "")


def test_the_longer_marker_wins() -> None:
    """Where one marker begins another, the longer one is found, and the shorter one can be asked for."""
    marks = Marks(["`", "```json", "```tool"], lined=["```json", "```tool"])
    assert marks.find("```json", 0, closed=False) == (0, "```json")
    assert marks.find("x ```json", 0, closed=False) == (2, "`")
    assert marks.shorter("```json") == "`"
    assert marks.shorter("`") == ""


@pytest.mark.parametrize("before", ["\n", "\n  ", "\n\t", "", " ", "text\n "])
def test_line_starts_are_never_missed(before: str) -> None:
    """A marker that counts at line starts is found there, also where the text itself begins behind blanks."""
    marks = Marks(["{"], lined=["{"])
    assert marks.find(before + "{", 0, closed=False) == (len(before), "{")


@pytest.mark.parametrize("text", ["a {", "a{", "(x: {"])
def test_mid_line_is_passed_over(text: str) -> None:
    """In mid-sentence the search does not stop for a marker of line starts."""
    marks = Marks(["{"], lined=["{"])
    assert marks.find(text, 0, closed=False) == (len(text), "")
    assert marks.at(text, len(text) - 1, closed=False) == "{"
