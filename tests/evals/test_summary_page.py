"""The report of `mustcall eval` on a page and in a picture: the run's own numbers, and only text of what models say."""

import re
import struct
from pathlib import Path

import pytest

from mustcall.evals.asking.rows import Form
from mustcall.evals.builtin import BuiltinSuite
from mustcall.evals.report.comparing import compare_runs
from mustcall.evals.report.summary import Column, EvalSummary, summarise
from mustcall.evals.report.summary_page import write_summary_page
from mustcall.evals.report.summary_picture import draw_summary_picture
from mustcall.evals.report.summary_wording import circumstances, cost_rows, headline, right_rows
from mustcall.evals.report.wording import interval, of, percent
from support.evalrows import OSLO, facts, small_summary
from support.htmlpage import Page

EMPTY = summarise(facts(), [], BuiltinSuite())


@pytest.mark.parametrize("summary", [small_summary(), small_summary(planned=9), EMPTY], ids=["whole", "part", "none"])
def test_the_page_is_well_formed(summary: EvalSummary) -> None:
    """Every tag is closed in its place, for any run, and nothing is fetched."""
    text = write_summary_page(summary, BuiltinSuite())
    page = Page(text)
    assert headline(summary) in page.text
    assert ("Partial: stopped after" in page.text) is summary.partial
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\(", text)


def test_every_bar_and_row_is_there() -> None:
    """Bars are as long as their shares, and each row of the tables stands there as it was added up."""
    summary = small_summary()
    page = Page(write_summary_page(summary, BuiltinSuite(), compare_runs(summary, summary)))
    shares = [(figures, column, figures.columns[column].right) for figures in summary.sets for column in Column]
    widths = [value for tag, name, value in page.attributes if (tag, name) == ("rect", "width") and value != "100%"]
    assert widths == [f"{share.rate * 100:.2f}%" for _, _, share in shares]
    labels = [value for _, name, value in page.attributes if name == "aria-label"]
    assert labels == [
        f"{figures.name}, {column}: {of(share)}, {percent(share.rate)}, 95 % interval {interval(share)}"
        for figures, column, share in shares
    ]
    for row in (*right_rows(summary), *cost_rows(summary)):
        assert " ".join(" ".join(row).split()) in page.text
    assert "since the earlier run" in page.text
    assert "force_unmet 1" in page.text


def test_what_models_write_is_only_text() -> None:
    """Markup in replies, names and errors is shown, not obeyed; each reply is there with what was said."""
    text = write_summary_page(small_summary(model='<img src="x">'), BuiltinSuite())
    assert not re.search(r"<script|<img|<b>No|<call>", text)
    shown = Page(text).text
    assert "<b>No</b> & never" in shown
    assert OSLO.says in shown
    assert "force_missed, called" in shown


def test_circumstances_are_told() -> None:
    """One line says who was asked, how, and what is unusual about it."""
    told = circumstances(small_summary(via="http://gateway/v1", stream=True, form=Form.WORDS, limit=5))
    for words in (
        "tiny at http://127.0.0.1:9000/v1",
        "streamed",
        "gateway at http://gateway/v1",
        "in words",
        "5 a set",
    ):
        assert words in told
    assert "weights" not in told
    weighed = small_summary(weights="1d9614638d18024d0fbb36575a15f130")
    assert "weights 1d9614638d18…" in circumstances(weighed)
    assert weighed.facts.weights in Page(write_summary_page(weighed, BuiltinSuite())).text
    assert "in words" in Page(write_summary_page(small_summary(form=Form.WORDS), BuiltinSuite())).text


@pytest.mark.parametrize("summary", [small_summary(), small_summary(planned=9), EMPTY], ids=["whole", "part", "none"])
def test_a_picture_is_drawn(summary: EvalSummary, tmp_path: Path) -> None:
    """A PNG wide enough to read comes out, for any run."""
    file = tmp_path / "chart.png"
    draw_summary_picture(summary, file)
    data = file.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", data[16:24]) == (1440, 832)
