"""`mustcall chat` and `mustcall run` on the real embedded model: no key, no network, and the tool is called.

Structure is asserted, not wording: the model is small. The first test worker fetches its weights, the others wait.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mustcall.upstream.embedded.catalogue import DEFAULT, find_weights
from support.embedded import NAME, small_cache
from support.terminal import TERMINALS

MUSTCALL = [sys.executable, "-m", "mustcall"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of a person who has the smallest model only."""
    return small_cache(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def environment(weights: Path, tmp_path: Path) -> dict[str, str]:
    """A person's environment: a home with notes in it, and nothing configured."""
    (tmp_path / "home" / "notes").mkdir(parents=True)
    (tmp_path / "home" / "notes" / "plan.txt").write_text("Buy milk.")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MUSTCALL_")}
    own = {
        "HOME": str(tmp_path / "home"),
        "MUSTCALL_CACHE": str(weights),
        "MUSTCALL_STATE": str(tmp_path / "state"),
        "LC_ALL": "C.UTF-8",
    }
    return {**kept, **own}


def test_chat_lists_a_folder(environment: dict[str, str], tmp_path: Path) -> None:
    """Typed is "List files in …", seen are the tool called with that folder, its files, and an answer."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "readme.txt").write_text("All is well.")
    kind = TERMINALS[-1]  # tmux where it is, a pseudo-terminal otherwise
    with kind([*MUSTCALL, "chat", "--root", str(shared), "--max-tokens", "150"], environment, shared) as terminal:
        terminal.wait_for("mustcall models pull", f"{NAME} with 4 tools", "you>")
        terminal.type(f"List files in {shared}")
        terminal.wait_for(f'→ list_directory(path="{shared}")', "✓", "readme.txt (12 bytes)", "you>")
        terminal.type("/trace")
        terminal.wait_for("step 1: calls", "schema, called", "step 2: answer", "ended: ")
        terminal.type("/exit")
        assert terminal.wait_for_end() == 0


def test_run_expands_home(environment: dict[str, str], tmp_path: Path) -> None:
    """Rule 80: "What files are in $HOME/notes?" is answered from the folder itself."""
    done = subprocess.run(  # noqa: S603  our own command
        [*MUSTCALL, "run", "What files are in $HOME/notes?", "--json", "--max-tokens", "150"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    assert done.returncode in (0, 4), done.stderr  # a small model may ramble up to its limit
    told = json.loads(done.stdout)
    call = told["calls"][0]
    assert (call["name"], call["arguments"], call["status"]) == ("list_directory", {"path": "$HOME/notes"}, "ok")
    assert "plan.txt (9 bytes)" in call["result"]
    assert told["model"] == NAME
    (note,) = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert "qwen2.5-coder-0.5b, the default, is not here" in note
    assert [change["detail"] for change in call["adaptations"]] == ["$HOME"]
    assert told["answer"].strip()
    assert told["force_satisfied"] is True


def test_run_with_a_model_by_its_name(environment: dict[str, str], tmp_path: Path) -> None:
    """`--model` runs these weights and nothing is noted, whatever else is here: the default here is an empty file."""
    both = small_cache(tmp_path / "both")
    default = find_weights(DEFAULT)
    with (both / "models" / default.file).open("wb") as file:
        file.truncate(default.size)
    done = subprocess.run(  # noqa: S603  our own command
        [*MUSTCALL, "run", "What files are in $HOME/notes?", "--json", "--max-tokens", "50", "--model", NAME],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**environment, "MUSTCALL_CACHE": str(both)},
        cwd=tmp_path,
    )
    told = json.loads(done.stdout)
    assert (told["model"], told["calls"][0]["status"]) == (NAME, "ok")
    assert "note: " not in done.stderr
