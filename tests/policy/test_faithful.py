"""An answer held against the results of the calls before it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.policy.reply.faithfulness import CallOutcome, departure

TIME = "Monday 2026-11-16 17:05:29 (local time, UTC+00:00)"
LISTING = "3 entries in /srv/desk:\nnotes.txt (52 bytes)\nnotes/\nREADME.md (1.2 kB)"
PASSAGE = "[holidays.md:3 - Holidays]\nEmployees have 27 days of holiday a year."
PERCENT = "17.5% of 3421 = 598.675"


@pytest.mark.parametrize(
    ("answer", "result", "question"),
    [
        ("The time is 5:05 PM.", TIME, "What time is it?"),
        ("It is 17:05 on Monday, November 16, 2026.", TIME, "What time is it?"),
        ("The day is Monday.", TIME, "What day is it?"),
        ("It is November 16th.", TIME, "What date is it?"),
        ("17 * 23 equals 391.", "17 * 23 = 391", "What is 17 * 23?"),
        ("It is 598.68.", PERCENT, "What is 17.5% of 3421?"),
        ("It is about 599.", PERCENT, "What is 17.5% of 3421?"),
        ("It is 1,024.", "2 ** 10 = 1024", "What is 2 to the power of 10?"),
        ("1. notes.txt\n2. notes\n3. README.md", LISTING, "List the files"),
        ("In `/srv/desk` are notes.txt, notes/ and README.md.", LISTING, "List the files"),
        ("There are three entries.", LISTING, "How many files are there?"),
        ("Employees get 27 days.", PASSAGE, "How many days of holiday?"),
        ("It says that employees have holidays.", PASSAGE, "What do the docs say?"),
    ],
)
def test_what_the_result_bears_out(answer: str, result: str, question: str) -> None:
    """The same fact in another form, rounded, or said in part, is the result's."""
    assert departure(answer, [CallOutcome("t", result)], question) is None


@pytest.mark.parametrize(
    ("answer", "result", "question", "why"),
    [
        ("It is 17:06.", TIME, "What time is it?", "the time 17:06"),
        ("It is 5:05 AM.", TIME, "What time is it?", "the time 5:05"),
        ("It is 6 pm.", TIME, "What time is it?", "the time 18:00"),
        ("The day is Tuesday.", TIME, "What day is it?", "Tuesday"),
        ("It is Monday, December 16.", TIME, "What day is it?", "December"),
        ("It is 17:05.", TIME, "What day is it?", "the day is missing"),
        ("It is Monday.", TIME, "What time is it?", "the time is missing"),
        ("17 * 23 equals 401.", "17 * 23 = 391", "What is 17 * 23?", "401"),
        ("It is 599.", PERCENT, "What is 17.5% of 3421?", "599"),
        ("The answer is shown above.", "17 * 23 = 391", "What is 17 * 23?", "the result is missing"),
        ("The file is a.txt.", LISTING, "List the files", "a.txt"),
        ("In /srv: notes.txt, notes, README.md", LISTING, "List the files", "the path /srv"),
        ("There is notes.txt.", LISTING, "List the files", "entries are missing"),
        ("There are seven files.", LISTING, "How many files are there?", "seven"),
        ("They have 25 days.", PASSAGE, "How many days of holiday?", "25"),
    ],
)
def test_what_it_does_not(answer: str, result: str, question: str, why: str) -> None:
    """A number, date, time or name that nobody gave, and a result that is left out, are departures."""
    found = departure(answer, [CallOutcome("t", result)], question)
    assert found is not None
    assert why in found


def test_what_was_said_before_bears_out_too() -> None:
    """Facts of the conversation are the user's to hear again."""
    outcome = [CallOutcome("t", "2 + 2 = 4")]
    assert departure("As with the 99 before: 4.", outcome, "What is 2 + 2?") is not None
    assert departure("As with the 99 before: 4.", outcome, "What is 2 + 2?", ["I have 99."]) is None


def test_failed_calls() -> None:
    """Where every call failed the answer says so, or it departs."""
    failed = [CallOutcome("t", "The tool `read_file` failed: there is no 'x.txt'.", ok=False)]
    assert departure("The file says hello.", failed, "Read x.txt") is not None
    assert departure("There is no such file.", failed, "Read x.txt") is None


def test_without_calls_there_is_nothing_to_depart_from() -> None:
    """A plain answer is nobody's business."""
    assert departure("It is 12345.", [], "What is it?") is None


@given(st.text(max_size=200), st.text(max_size=200), st.text(max_size=60))
def test_any_texts(answer: str, result: str, question: str) -> None:
    """No text raises, and the result itself is borne out."""
    outcomes = [CallOutcome("t", result)]
    assert departure(answer, outcomes, question) == departure(answer, outcomes, question)
    assert departure(f"{question}\n{result}", outcomes, question) in (None, "the time is missing", "the day is missing")


@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9))
def test_numbers(stated: int, given_number: int) -> None:
    """Of two whole numbers one stands for the other only if they are the same, sign aside."""
    found = departure(f"It is {stated}.", [CallOutcome("t", f"= {given_number}")], "What is it?")
    assert (found is None) == (abs(stated) == abs(given_number))


@pytest.mark.parametrize(
    "text", ["1." * 20_000, "a." * 20_000, "9" * 40_000, "1:" * 20_000, "./" * 20_000, "-" * 40_000]
)
def test_long_hostile_texts(text: str) -> None:
    """Long runs of what facts are made of end like any other."""
    assert departure(text, [CallOutcome("t", text)], text) is None
