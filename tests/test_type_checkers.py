"""The library as users' type checkers see it: the examples and the type-only files, each checker in strict mode."""

import os
import subprocess
import sys
from pathlib import Path

import mustcall

ROOT = Path(__file__).parents[1]
CHECKED = ("examples", "tests/typed", "tests/test_public_types.py")


def test_the_package_is_typed() -> None:
    """The marker without which a checker ignores a package's types is part of it."""
    assert (Path(mustcall.__file__).parent / "py.typed").is_file()


def test_mypy() -> None:
    """`mypy --strict` finds nothing; an ignore that silences nothing would be found, too."""
    _check("mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(ROOT / ".venv" / "mypy"), *CHECKED)


def test_pyright() -> None:
    """Pyright in strict mode finds nothing."""
    _check("basedpyright", *CHECKED)


def test_a_wrong_type_is_found(tmp_path: Path) -> None:
    """The checkers look: a promise that is not kept is an error to each of them."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from typing import assert_type\nfrom mustcall import Agent\nassert_type(Agent('m').run_sync('').output, int)\n"
    )
    told = _run("mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(ROOT / ".venv" / "mypy"), str(wrong))
    assert told.returncode == 1
    assert "assert-type" in told.stdout


def _check(*command: str) -> None:
    told = _run(*command)
    assert told.returncode == 0, f"{told.stdout}\n{told.stderr}"


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    name, *rest = command
    script = Path(sys.executable).parent / name
    environment = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run([script, *rest], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603  our own tools
