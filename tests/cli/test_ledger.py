"""`mustcall ledger`."""

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from mustcall.cli import cli, main
from mustcall.ledger import ContentsKept, RunEnd, RunStatus, StoredResponse, open_ledger


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A ledger with a finished run and a response."""

    async def fill() -> None:
        async with open_ledger(tmp_path / "l.db") as ledger:
            await ledger.start_run("r", b"write to ann@example.com", owner="o", lease=30)
            await ledger.end_run("r", 1, RunEnd(status=RunStatus.DONE))
            await ledger.put_response(
                StoredResponse(
                    id="resp_1",
                    conversation="c",
                    parent=None,
                    depth=0,
                    wire="responses",
                    model="m",
                    tenant="",
                    input=b"[]",
                    body=b"{}",
                )
            )

    asyncio.run(fill())
    return str(tmp_path / "l.db")


def run(*arguments: str) -> str:
    """Run a command that must succeed; return what it said."""
    result = CliRunner().invoke(cli, ["ledger", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_check(place: str) -> None:
    """A check says what is there."""
    said = run("check", "--ledger", place)
    assert f"ledger   {place} (sqlite)" in said
    assert said.splitlines()[-1] == "ok"
    assert any(line.split() == ["response", "1"] for line in said.splitlines())


def test_export_and_import(place: str, tmp_path: Path) -> None:
    """Out and in again; what goes out is redacted unless asked otherwise."""
    shown, whole = tmp_path / "shown.jsonl", tmp_path / "whole.jsonl"
    run("export", "--ledger", place, str(shown))
    run("export", "--ledger", place, "--contents", str(ContentsKept.FULL), str(whole))
    assert [file.stat().st_mode & 0o777 for file in (shown, whole)] == [0o600, 0o600]
    assert "ann@example.com" not in shown.read_text()
    assert "ann@example.com" in whole.read_text()
    other = str(tmp_path / "other.db")
    assert "3 rows read" in run("import", "--ledger", other, str(whole))
    assert any(line.split() == ["run", "1"] for line in run("check", "--ledger", other).splitlines())


def test_import_of_something_else(place: str, tmp_path: Path) -> None:
    """A file that is no export is refused by its line."""
    (tmp_path / "x").write_text("hello\n")
    result = CliRunner().invoke(cli, ["ledger", "import", "--ledger", place, str(tmp_path / "x")])
    assert result.exit_code == 2
    assert "line 1 is no line of an exported ledger" in result.output


def test_prune(place: str) -> None:
    """What is old goes; what is to stay must be said."""
    assert run("prune", "--ledger", place, "--keep", "1d") == "removed 0 turns, 0 responses, 0 runs\n"
    assert run("prune", "--ledger", place, "--keep", "0", "--max-size", "0") == (
        "removed 0 turns, 0 responses, 0 runs\n"  # no limit, as in a gateway's settings
    )
    assert run("prune", "--ledger", place, "--all") == "removed 0 turns, 1 responses, 1 runs\n"
    result = CliRunner().invoke(cli, ["ledger", "prune", "--ledger", place])
    assert "say what is to stay" in result.output


@pytest.mark.parametrize("damage", ["header", "page"])
def test_a_damaged_file_is_exit_code_1(tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`ledger check` says that a file is damaged and exits with 1, also where it does not even open."""
    place = tmp_path / "l.db"

    async def fill() -> None:
        async with open_ledger(place) as ledger:
            for number in range(200):
                await ledger.start_run(f"r{number}", b"x" * 500, owner="o", lease=60)

    asyncio.run(fill())
    held = bytearray(place.read_bytes())
    if damage == "header":
        held[:100] = b"x" * 100
    else:
        held[4096 * 8 : 4096 * 20] = b"\xff" * (4096 * 12)
    place.write_bytes(held)
    with pytest.raises(SystemExit) as ended:
        main(["ledger", "check", "--ledger", str(place)])
    assert ended.value.code == 1
    assert "damaged" in capsys.readouterr().err
