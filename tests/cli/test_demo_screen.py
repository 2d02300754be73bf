"""What the terminal shows, whatever it can show."""

import io
import re
import sys

import pytest

from mustcall.cli.measuring.demo_screen import print_report, progress_bar
from mustcall.evals.asking.rows import Arm
from support.evaluating import OSLO, answered, called, run_of, small_run


def printed(monkeypatch: pytest.MonkeyPatch, encoding: str, planned: int | None = None) -> str:
    """Return what a terminal of this encoding gets."""
    raw = io.BytesIO()
    terminal = io.TextIOWrapper(raw, encoding=encoding, errors="replace", write_through=True)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        print_report(small_run(planned) if planned != 0 else run_of())
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize(("encoding", "full", "rest"), [("utf-8", "█", "·"), ("ascii", "#", ".")])
def test_bars_are_as_long_as_their_shares(encoding: str, full: str, rest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar of thirty places is filled by its share, with the characters the terminal has."""
    lines = [line for line in printed(monkeypatch, encoding).splitlines() if full in line or rest * 5 in line]
    assert [line.count(full) for line in lines] == [7, 22, 7, 22, 7, 15]


def test_a_partial_report_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was stopped is marked; a run of nothing can be printed."""
    assert "Partial: stopped after 4 of 6 prompts." in printed(monkeypatch, "utf-8", planned=6)
    assert "Partial" not in printed(monkeypatch, "utf-8")
    assert "0 of 0" in printed(monkeypatch, "utf-8", planned=0)


def test_progress_in_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal a bar counts both arms, on standard error and apart from the report."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar(1) as note:
        note(Arm.BARE, answered())
        note(Arm.MUSTCALL, called(OSLO))
    shown = capsys.readouterr()
    assert shown.out == ""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.err)
    assert "2/2" in text
    assert "bare 0, mustcall 1" in text


def test_progress_elsewhere(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a log a line is written for every fifth prompt."""
    monkeypatch.setenv("FORCE_COLOR", "")
    with progress_bar(12) as note:
        for _ in range(12):
            note(Arm.BARE, answered())
            note(Arm.MUSTCALL, called(OSLO))
    shown = capsys.readouterr()
    assert (shown.out, shown.err.splitlines()) == ("", ["asked 5 of 12 prompts", "asked 10 of 12 prompts"])
