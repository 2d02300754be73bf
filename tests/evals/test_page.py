"""The page: well formed, on its own, and with the numbers of the run and no others."""

import re

import pytest

from mustcall.evals.asking.rows import Arm
from mustcall.evals.report.figures import Measure, add_up
from mustcall.evals.report.page import DEFINITIONS, write_page
from mustcall.evals.report.results import EvalResults
from mustcall.evals.report.wording import cost_rows, headline, interval, of, percent
from support.evaluating import OSLO, answered, called, pair, run_of, small_run
from support.htmlpage import Page


@pytest.mark.parametrize("run", [small_run(), small_run(planned=9), run_of()], ids=["whole", "partial", "empty"])
def test_the_page_is_well_formed(run: EvalResults) -> None:
    """Every tag is closed in its place, for any run."""
    assert headline(add_up(run)) in Page(write_page(run)).text


def test_the_page_needs_nothing_else() -> None:
    """No script, no link, no fetch of any kind: it can be opened from anywhere."""
    text = write_page(small_run())
    page = Page(text)
    assert not {name for _, name, _ in page.attributes} & {"src", "href", "srcset", "data", "action", "onclick"}
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\(", text)
    assert "prefers-color-scheme: dark" in text
    assert ("meta", "name", "viewport") in page.attributes


def test_every_bar_has_the_length_of_its_share() -> None:
    """The drawn lengths, whiskers and labels are the run's own figures, in order."""
    run = small_run()
    figures = add_up(run)
    page = Page(write_page(run))
    shares = [(measure, arm, figures.shares[arm][measure]) for measure in Measure for arm in Arm]
    widths = [value for tag, name, value in page.attributes if (tag, name) == ("rect", "width") and value != "100%"]
    assert widths == [f"{share.rate * 100:.2f}%" for _, _, share in shares]
    labels = [value for _, name, value in page.attributes if name == "aria-label"]
    assert labels == [
        f"{measure}, {arm}: {of(share)}, {percent(share.rate)}, 95 % interval {interval(share)}"
        for measure, arm, share in shares
    ]
    starts = [value for tag, name, value in page.attributes if (tag, name) == ("line", "x1")]
    assert starts[::3] == [f"{share.low * 100:.2f}%" for _, _, share in shares]


def test_every_cost_is_in_the_table() -> None:
    """Calls, times, tokens, errors and leaked calls stand there as they were added up."""
    run = small_run()
    text = Page(write_page(run)).text
    rows = cost_rows(add_up(run))
    assert rows[0] == ("upstream calls", "4", "11", "+7")
    for row in rows:
        assert " ".join(row).strip() in text


def test_each_prompt_is_a_cell_in_each_arm() -> None:
    """The grid has a cell for each prompt and arm, graded by its score."""
    page = Page(write_page(small_run()))
    grades = [value for tag, name, value in page.attributes if (tag, name) == ("li", "class")]
    assert grades == ["s0", "s0", "s3", "s0", "s3", "s2", "s0", "s3"]


def test_what_models_write_is_only_text() -> None:
    """Markup in replies, names and errors is shown, not obeyed."""
    spoilt = run_of(pair(OSLO, answered("<script>alert(1)</script>"), called(OSLO)), model='<img src="x">')
    for run in (spoilt, small_run()):
        text = write_page(run)
        assert not re.search(r"<script|<img|<b>Rain|<call>", text)
    assert "<script>alert(1)</script>" in Page(write_page(spoilt)).text


def test_a_partial_run_says_so() -> None:
    """What was stopped is marked, what came to its end is not."""
    assert "Partial: stopped after 4 of 9 prompts." in Page(write_page(small_run(planned=9))).text
    assert "Partial" not in write_page(small_run())


def test_the_measures_are_defined() -> None:
    """The page says what it counts."""
    text = Page(write_page(small_run())).text
    assert all(words in text for words in DEFINITIONS.values())
