"""The library as users' type checkers see it: the examples and the type-only files, each checker in strict mode."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import mustcall

ROOT = Path(__file__).parents[1]
CHECKED = ("examples", "tests/typed", "tests/test_public_types.py")


def test_the_package_is_typed() -> None:
    """The marker without which a checker ignores a package's types is part of it."""
    assert (Path(mustcall.__file__).parent / "py.typed").is_file()


def test_mypy(tmp_path: Path) -> None:
    """`mypy --strict` finds a promise that is not kept and nothing else: no error, no ignore that silences nothing."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from typing import assert_type\nfrom mustcall import Agent\nassert_type(Agent('m').run_sync('').output, int)\n"
    )
    # One run for both: each reads the package and its dependencies anew, which is nearly all the work.
    script = Path(sys.executable).parent / "mypy"
    told = subprocess.run(  # noqa: S603  our own tool
        [
            script,
            "--strict",
            "--follow-imports=silent",
            "--cache-dir",
            str(ROOT / ".venv" / "mypy"),
            *CHECKED,
            str(wrong),
        ],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 1, f"{told.stdout}\n{told.stderr}"
    found = [line for line in told.stdout.splitlines() if ": error: " in line]
    assert [line for line in found if "wrong.py" not in line] == [], told.stdout
    assert len(found) == 1, told.stdout
    assert "assert-type" in found[0]


def test_pyright_checks_the_same() -> None:
    """`make test` runs pyright in strict mode once, on everything: these files are part of it."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        settings = tomllib.load(file)["tool"]["pyright"]
    assert settings["typeCheckingMode"] == "strict"
    assert {Path(name).parts[0] for name in CHECKED} <= set(settings["include"])
    assert not settings.keys() & {"exclude", "ignore"}
    assert "basedpyright" in (ROOT / "Makefile").read_text(encoding="utf-8")
