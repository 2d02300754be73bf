"""What comes of a run of `mustcall eval`: the files that were asked for, the tables, and the exit code."""

import sys
from pathlib import Path

import click
import msgspec

from mustcall.cli.measuring.options import check_files
from mustcall.cli.writing import written
from mustcall.evals.floors import LeastShare, missed_floors
from mustcall.evals.report.comparing import compare_runs, read_summary
from mustcall.evals.report.summary import EvalSummary
from mustcall.evals.report.summary_page import write_summary_page
from mustcall.evals.report.summary_picture import draw_summary_picture
from mustcall.evals.suites import Suite

__all__ = ["EvalReports", "check_reports", "report"]

_MISSED = 1


class EvalReports(msgspec.Struct, frozen=True, kw_only=True):
    """Which reports are wanted, and what the run must reach."""

    page: Path | None
    picture: Path | None
    data: Path | None
    old: Path | None
    floors: tuple[LeastShare, ...]


def check_reports(reports: EvalReports) -> None:
    """Raise now what would be raised after minutes of measuring."""
    check_files(reports.page, reports.data, picture=reports.picture)
    if reports.old is not None:
        read_summary(reports.old)


def report(summary: EvalSummary, suite: Suite, reports: EvalReports) -> int:
    """Write the files, print the figures, and return the exit code."""
    from mustcall.cli.measuring.eval_screen import print_summary  # noqa: PLC0415  `--help` needs no rich

    changes = compare_runs(read_summary(reports.old), summary) if reports.old is not None else None
    if reports.data is not None:
        with written(reports.data) as part:
            part.write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=1) + b"\n")
    if reports.page is not None:
        with written(reports.page) as part:
            part.write_text(write_summary_page(summary, suite, changes), encoding="utf-8")
    if reports.picture is not None:
        with written(reports.picture) as part:
            draw_summary_picture(summary, part)
    if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
        reconfigure(errors="replace")  # a terminal that lacks a character gets a question mark, not an error
    print_summary(summary, changes)
    for path in (reports.page, reports.picture, reports.data):
        if path is not None:
            click.echo(f"wrote {path}")
    missed = missed_floors(summary, reports.floors)
    for line in missed:
        click.echo(f"below --at-least: {line}", err=True)
    return _MISSED if missed else 0
