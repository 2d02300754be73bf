"""The page of the first minute: every question is on it, and every answer is one to show."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "first-minute.md").read_text(encoding="utf-8")


def load() -> ModuleType:
    """Import the script that writes the page."""
    spec = importlib.util.spec_from_file_location("first_minute", ROOT / "tools" / "first_minute.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = load()


def test_every_question_is_on_the_page() -> None:
    """Rule 150: the ten questions are there for both commands, and the page says how many answers are right."""
    for question in SCRIPT.QUESTIONS:
        assert PAGE.count(f"$ mustcall run {question.text!r} ") == 1
        assert PAGE.count(f"you> {question.text}\n") == 1
    said = re.search(r"(\d+) of 20 answers are right or say that the model does not know", PAGE)
    assert said is not None
    assert PAGE.count("Not so: ") == 20 - int(said[1])


def test_nothing_of_ours_is_on_the_page() -> None:
    """Rule 146: no answer holds what the layer puts around data."""
    assert "untrusted-data" not in PAGE


@pytest.mark.parametrize(
    ("number", "answer", "good"),
    [
        (1, "handbook/ and notes.txt", True),
        (1, "There is notes.txt.", False),
        (3, "It is 99:99.", False),
        (5, "17 * 23 is 391.", True),
        (5, "17 * 23 is 401.", False),
        (6, "It is 598.68.", True),
        (9, "Paris.", True),
        (9, "I do not know.", True),
        (9, "", False),
        (10, "Hello! How can I help?", True),
        (10, '{"name": "hello", "arguments": {"message": "Hello, world!"}}', False),
    ],
)
def test_what_is_a_good_answer(number: int, answer: str, *, good: bool) -> None:
    """Rule 150: right is what holds the fact, or says that it is not known."""
    assert SCRIPT.QUESTIONS[number - 1].accepts(answer) is good
