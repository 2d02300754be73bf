"""The benchmark as a suite: which sets, which questions, which grades; a package that is not what it should be."""

import json
import zipfile
from pathlib import Path

import pytest

from mustcall.core.errors import ConfigError
from mustcall.evals.asking.rows import MadeCall
from mustcall.evals.bfcl.entries import SETS, WITHOUT_CALLS, read_entries
from mustcall.evals.bfcl.suite import BfclSuite
from mustcall.evals.questions import AskedCall
from mustcall.evals.suites import check_sets, choose_questions
from support.bfcl import perfect_calls, read_set, readied_package

TRIANGLE = "Calculate the area of a triangle, given the lengths of its three sides: 3, 4, and 5."
SIZES = {
    "simple_python": 400,
    "multiple": 200,
    "parallel": 200,
    "parallel_multiple": 200,
    "irrelevance": 240,
    "live_simple": 258,
    "live_multiple": 1053,
    "live_irrelevance": 884,
}


def suite() -> BfclSuite:
    """The suite on the published package."""
    return BfclSuite(readied_package())


def test_every_set_is_whole() -> None:
    """Each set has as many questions as were published, each with its right calls where a call is right."""
    assert {name: len(read_set(name)) for name in SETS} == SIZES
    for name in SETS:
        for entry in read_set(name):
            assert bool(entry.truths) is (name not in WITHOUT_CALLS)
            assert entry.messages[-1].text


def test_sets_by_choice() -> None:
    """A call can be demanded only where one is right, one function named only where one is right."""
    assert suite().sets(None) == suite().sets(AskedCall.AUTO) == SETS
    assert not WITHOUT_CALLS & set(suite().sets(AskedCall.REQUIRED))
    assert set(suite().sets(AskedCall.REQUIRED)) - set(suite().sets(AskedCall.NAMED)) == {"parallel_multiple"}
    with pytest.raises(ConfigError, match="cannot be asked with --choice required"):
        check_sets(suite(), ["irrelevance"], AskedCall.REQUIRED)
    with pytest.raises(ConfigError, match=r"no set called 'simple'; its sets are: simple_python, multiple"):
        check_sets(suite(), ["multiple", "simple"], None)


@pytest.mark.parametrize("choice", [None, AskedCall.NAMED])
def test_a_question(choice: AskedCall | None) -> None:
    """A question has the words, the tools and the demand; the right function is named by its offered name."""
    question = next(each for each in suite().questions("multiple", choice) if each.id == "multiple_1")
    assert question.words == TRIANGLE
    assert "math_triangle_area_heron" in [tool.name for tool in question.tools]
    assert question.demand is (choice or AskedCall.AUTO)
    assert question.named == ("math_triangle_area_heron" if choice is AskedCall.NAMED else None)


def test_grades() -> None:
    """A perfect answer is right and valid; a wrong value is valid; another tool is neither; no call is nothing."""
    (name, arguments), *_ = perfect_calls(next(each for each in read_set("multiple") if each.id == "multiple_1"))
    right = suite().grade("multiple_1", [MadeCall(name, json.dumps(arguments))])
    assert (right.called, right.valid, right.right, right.problem) == (True, True, True, "")
    wrong = suite().grade("multiple_1", [MadeCall(name, json.dumps({**arguments, next(iter(arguments)): 99}))])
    assert (wrong.called, wrong.valid, wrong.right) == (True, True, False)
    assert "another value" in wrong.problem
    unfit = suite().grade("multiple_1", [MadeCall("other", "{}")])
    assert (unfit.called, unfit.valid, unfit.right) == (True, False, False)
    assert not suite().grade("multiple_1", []).called
    assert suite().grade("irrelevance_1", []).right
    assert suite().words("multiple_1") == TRIANGLE


@pytest.mark.parametrize("name", ["multiple_999999", "nonsense", "live_multiple_"])
def test_an_unknown_question(name: str) -> None:
    """A reply to a question that is not there cannot be graded."""
    with pytest.raises(ConfigError, match="no question"):
        suite().grade(name, [])


def test_questions_of_the_sets_take_turns() -> None:
    """With a limit each set gives as many, in turn; the seed decides which, and the same one gives the same."""
    chosen = choose_questions(suite(), ["simple_python", "irrelevance"], None, limit=3, seed=7)
    assert [question.set for question in chosen] == ["simple_python", "irrelevance"] * 3
    again = choose_questions(suite(), ["simple_python", "irrelevance"], None, limit=3, seed=7)
    assert [question.id for question in chosen] == [question.id for question in again]
    other = choose_questions(suite(), ["simple_python", "irrelevance"], None, limit=3, seed=8)
    assert [question.id for question in chosen] != [question.id for question in other]
    alone = choose_questions(suite(), ["irrelevance"], None, limit=3, seed=7)
    assert [question.id for question in alone] == [question.id for question in chosen if question.set == "irrelevance"]
    assert len(choose_questions(suite(), ["multiple"], None, limit=None, seed=0)) == SIZES["multiple"]


@pytest.mark.parametrize("content", [None, b"not a package", b""], ids=["absent", "garbage", "empty"])
def test_a_package_that_is_none(content: bytes | None, tmp_path: Path) -> None:
    """A file that is no package, or lacks a set, is one clear error."""
    file = tmp_path / "package.whl"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"cannot read the set 'multiple' of package\.whl"):
        read_entries(file, "multiple")
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("bfcl_eval/data/BFCL_v4_multiple.json", '{"id": "multiple_0"')
    with pytest.raises(ConfigError, match=r"cannot read the set 'multiple' of package\.whl"):
        read_entries(file, "multiple")
