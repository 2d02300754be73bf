"""`mustcall bench` as a command: what it refuses, and reports on runs that are there already."""

from pathlib import Path

import msgspec
import pytest

from mustcall.bench.report.results import write_run
from mustcall.cli import main
from mustcall.cli.measuring.bench import command
from support.benching import knows_no_flag, measured, run_of, whole_run


def bench(*arguments: str) -> int | str | None:
    """Run the command in this process; return its exit code."""
    with pytest.raises(SystemExit) as caught:
        main(["bench", *arguments])
    return caught.value.code


def test_a_report_on_an_earlier_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--results` measures nothing: the report, the page, the picture and the comparison come from files."""
    floor = measured("floor chat", "floor", 1.0)
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    write_run(run_of(floor, measured("chat -> chat", "same-wire", 1.0)), old)
    write_run(run_of(floor, measured("chat -> chat", "same-wire", 1.5)), new)
    page, picture, data = tmp_path / "run.html", tmp_path / "run.png", tmp_path / "again.json"
    code = bench(
        *("--results", str(new), "--compare", str(old), "--html", str(page), "--png", str(picture), "--json", str(data))
    )
    assert code == 0
    shown = capsys.readouterr().out
    assert "| chat -> chat | call | 32 | 1.000 | 1.500 | 1.50 | 1.50 | dearer |" in shown
    assert "chat -&gt; chat" in page.read_text(encoding="utf-8")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert msgspec.json.decode(data.read_bytes()) == msgspec.json.decode(new.read_bytes())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--json", "no/such/folder/run.json"], "there is no directory"),
        (["--compare", "gone.json"], "gone.json"),
        (["--results", "gone.json"], "gone.json"),
        (["--peer", "litellm"], "NAME=VALUE"),
        (["--peer", "litellm=ftp://x"], "plain http"),
        (["--peer-pid", "litellm=1"], "no --peer"),
        (["--quick", "--ledger", "on"], "--ledger"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be done is said before anything is measured, in one line."""
    monkeypatch.setattr("mustcall.bench.running.serve_knows", knows_no_flag)
    assert bench(*arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_every_option_is_explained() -> None:
    """`--help` says something of every option."""
    assert all(getattr(option, "help", None) for option in command.params)


def test_a_peers_problem_is_in_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A peer that could not do something is named with its reason."""
    file = tmp_path / "run.json"
    write_run(whole_run(), file)
    assert bench("--results", str(file)) == 0
    assert "forge <b>: status 500: <script>" in capsys.readouterr().out
