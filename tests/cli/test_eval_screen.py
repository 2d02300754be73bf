"""What `mustcall eval` shows in a terminal: progress on standard error, tables that fit eighty columns."""

import re

import pytest

from mustcall.cli.measuring.eval_screen import print_summary, progress_bar
from mustcall.evals.asking.rows import Arm
from mustcall.evals.builtin import BuiltinSuite
from mustcall.evals.report.comparing import compare_runs
from mustcall.evals.report.summary_wording import circumstances, headline
from support.evalrows import LIST, OSLO, failed, row, small_summary


def shown(text: str) -> str:
    """A terminal's text without its colours."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_tables_fit_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every figure stands in eighty columns, none cut off."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    summary = small_summary(sets=("required", "named"))
    print_summary(summary, compare_runs(summary, summary))
    lines = shown(capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    text = " ".join(" ".join(lines).split())
    assert headline(summary) in text
    assert circumstances(summary) in text
    assert "all 2 0 % (0–66) 50 % 50 % (9–91) 1 0 1" in text  # noqa: RUF001  as printed
    assert "mustcall 50 % 50 % 1 5.0 s 9.0 s 0 0 3.00 4.00" in text
    assert "mustcall, errors: force_unmet 1" in text
    assert "required mustcall 1 1 1 0 0 1" in text


def test_a_partial_run_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """What was stopped is marked, what came to its end is not."""
    print_summary(small_summary(planned=7))
    assert "Partial: stopped after 2 of 7 questions." in capsys.readouterr().out
    print_summary(small_summary())
    assert "Partial" not in capsys.readouterr().out


def test_progress_in_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar counts the replies, those that were there included, and who was right."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar(3, BuiltinSuite()) as advance:
        advance(row(OSLO, Arm.BARE), True)
        advance(row(OSLO, Arm.MUSTCALL, right=True), False)
        advance(failed(LIST, Arm.MUSTCALL), False)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "3/3" in shown(printed.err)
    assert "right: bare 0, mustcall 1" in shown(printed.err)


def test_progress_elsewhere(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a log a line is written for every tenth reply."""
    monkeypatch.setenv("FORCE_COLOR", "")
    with progress_bar(40, BuiltinSuite()) as advance:
        for number in range(25):
            advance(row(OSLO, Arm.MUSTCALL, right=True), number < 12)
    printed = capsys.readouterr()
    assert (printed.out, printed.err.splitlines()) == ("", ["20 of 40 replies; right: bare 0, mustcall 20"])
