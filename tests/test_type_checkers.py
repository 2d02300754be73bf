"""The library as users' type checkers see it: mypy and pyright in strict mode read the examples and type-only files.

Our own code is checked by pyrefly, which takes a tenth of the time (docs/decisions/type-checkers.md).
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mustcall

ROOT = Path(__file__).parents[1]
_LET_OFF = "pyrefly: ignore-" + "errors"
CHECKED = ("examples", "tests/typed", "tests/test_public_types.py")


def test_the_package_is_typed() -> None:
    """The marker without which a checker ignores a package's types is part of it."""
    assert (Path(mustcall.__file__).parent / "py.typed").is_file()


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A program that a checker refuses: an answer without a type is taken for a number."""
    path = tmp_path / "wrong.py"
    path.write_text(
        "from typing import assert_type\nfrom mustcall import Agent\nassert_type(Agent('m').run_sync('').output, int)\n"
    )
    return path


def run_checker(name: str, *arguments: str | Path) -> str:
    """Run a checker, which must find something; return what it prints."""
    told = subprocess.run(  # noqa: S603  our own tool
        [Path(sys.executable).parent / name, *arguments],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 1, f"{told.stdout}\n{told.stderr}"
    return told.stdout


def test_mypy(wrong: Path) -> None:
    """`mypy --strict` finds a promise that is not kept and nothing else: no error, no ignore that silences nothing."""
    # One run for both: each reads the package and its dependencies anew, which is nearly all the work.
    cache = ROOT / ".venv" / "mypy"
    told = run_checker("mypy", "--strict", "--follow-imports=silent", "--cache-dir", cache, *CHECKED, wrong)
    found = [line for line in told.splitlines() if ": error: " in line]
    assert [line for line in found if "wrong.py" not in line] == [], told
    assert len(found) == 1, told
    assert "assert-type" in found[0]


def test_pyright(wrong: Path) -> None:
    """Pyright in strict mode, which editors have built in, finds the same."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        settings = tomllib.load(file)["tool"]["pyright"]
    assert settings["typeCheckingMode"] == "strict"
    assert settings["include"] == list(CHECKED)  # what an editor checks that opens this repository
    told = json.loads(run_checker("basedpyright", "--outputjson", *CHECKED, wrong))
    assert told["summary"]["filesAnalyzed"] > len(CHECKED)
    assert [(Path(one["file"]).name, one["rule"]) for one in told["generalDiagnostics"]] == [
        ("wrong.py", "reportAssertTypeFailure")
    ]


def test_pyrefly(wrong: Path) -> None:
    """Pyrefly, with our settings, finds the same; `make test` runs it on all of the code, and no file is let off."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        settings = tomllib.load(file)["tool"]["pyrefly"]
    assert settings.pop("errors") == dict.fromkeys(
        ("missing-override-decorator", "implicit-any-empty-container", "implicit-any-lambda"), False
    )
    assert settings == {
        "preset": "strict",
        "project-includes": ["src", "tests", "benchmarks", "examples"],
        "search-path": ["src", "tests", "tools"],
        "python-interpreter-path": ".venv/bin/python",
        "python-version": "3.11",
        "enabled-ignores": ["pyrefly"],
    }
    for folder in settings["project-includes"]:
        let_off = [path for path in (ROOT / folder).rglob("*.py") if _LET_OFF in path.read_text(encoding="utf-8")]
        assert let_off == []
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^TYPES = \$\(BIN\)/pyrefly check(?! [^-])", makefile, re.MULTILINE)
    for target, made in (("test", "checks"), ("checks", "types")):
        assert re.search(rf"^{target}:.*\n\t@[^\n]*\$\(MAKE\) [^\n]*\b{made}\b", makefile, re.MULTILINE)
    assert re.search(r"^types:.*\n\t\$\(TYPES\)\n", makefile, re.MULTILINE)
    config = ROOT / "pyproject.toml"
    told = run_checker("pyrefly", "check", "--config", config, "--output-format", "json", *CHECKED[2:], wrong)
    assert [(Path(one["path"]).name, one["name"]) for one in json.loads(told)["errors"]] == [
        ("wrong.py", "assert-type")
    ]
