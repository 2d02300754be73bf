"""A run as words: the same in a file, a terminal and on a page."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from mustcall.bench.report.compare import compare
from mustcall.bench.report.page import charted, headline, write_page
from mustcall.bench.report.picture import draw_picture
from mustcall.bench.report.tables import plain, sheets
from mustcall.cli.measuring.bench_screen import print_run
from support.benching import measured, run_of, whole_run


def test_the_plain_report() -> None:
    """Circumstances, a table per workload, goals, servers."""
    shown = plain(whole_run())
    assert shown.startswith("2026-11-15 12:00 UTC, mustcall 0.1.0, 2 cores")
    assert "medians of 2 rounds" in shown
    assert "### call - not streamed: 1 kB reply, one tool call" in shown
    assert re.search(r"^\| chat -> chat \| 32 \| [\d,]+ \| \d+% \| 0\.450 \| 1\.50 \|", shown, re.MULTILINE)
    assert "\nMISSED `mustcall --help`" in shown
    assert "\nmet    litellm, call" in shown
    assert shown.endswith("start / memory at the end: gateway chat 0.90 s / 60 MB, litellm 333 MB")


def test_every_row_has_every_column() -> None:
    """Rows without figures too, and no cell breaks a table."""
    run = run_of(measured("a", "peer", problem="one | two\nthree"), measured("b", "peer", 1.0))
    (sheet,) = sheets(run)
    assert {len(row) for row in sheet.rows} == {len(sheet.columns)}
    line = next(line for line in plain(run).splitlines() if line.startswith("| a"))
    assert line.count("|") == len(sheet.columns) + 1
    assert "one / two three" in line


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_terminal_report_fits(width: int) -> None:
    """No line is wider than the terminal, no name is cut, and what must be read is there."""
    output = io.StringIO()
    run = whole_run()
    print_run(run, compare(run, run), Console(file=output, width=width, highlight=False))
    shown = output.getvalue()
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= width
    for words in ("messages -> chat", "0.450", "CPU ms", "MISSED", "met"):
        assert words in shown
    assert ("up / gen CPU" in shown) is (width >= 110)


def test_the_page_needs_nothing_else() -> None:
    """No script and no fetch; what others named is escaped; every contender with figures has a bar."""
    run = whole_run()
    page = write_page(run)
    assert "<script" not in page
    assert "://" not in page
    assert "forge &lt;b&gt;" in page
    assert "&lt;script&gt;" in page
    assert page.count('<div class="cost">') == sum(len(rows) for _, rows in charted(run)) == 7
    assert f"<h1>{headline(run)}</h1>" in page


def test_bars_are_in_proportion() -> None:
    """The longest bar fills its track, the others are shares of it."""
    page = write_page(run_of(measured("floor chat", "floor", 1.0), measured("chat -> chat", "same-wire", 4.0)))
    assert re.findall(r'<rect fill="[^"]+" width="([\d.]+)%"', page) == ["25.00", "100.00"]


def test_headlines() -> None:
    """The dearest peer from its least to its most, else our own cost, else nothing claimed."""
    assert headline(whole_run()) == "mustcall: 100 times less CPU than litellm"
    several = run_of(
        *(measured("chat -> chat", "same-wire", 1.0, workload=name) for name in ("call", "stream")),
        measured("litellm", "peer", 38.2, workload="call"),
        measured("litellm", "peer", 216.0, workload="stream"),
        measured("forge", "peer", 7.25, workload="call"),
    )
    assert headline(several) == "mustcall: 38 to 216 times less CPU than litellm"
    assert (
        headline(run_of(measured("chat -> chat", "same-wire", 0.4))) == "mustcall: 0.40 ms of CPU for a checked request"
    )
    assert headline(run_of()) == "What mustcall costs"


def test_the_picture(tmp_path: Path) -> None:
    """A PNG is drawn, of a run with peers and of an empty one."""
    for name, run in (("full", whole_run()), ("empty", run_of())):
        file = tmp_path / f"{name}.png"
        draw_picture(run, file)
        assert file.read_bytes().startswith(b"\x89PNG")
