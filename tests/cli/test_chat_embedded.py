"""`mustcall chat` and `mustcall run` on the real embedded model: no key, no network, and the tool is called.

Structure is asserted, not wording: the model is small. The first test worker fetches its weights, the others wait. The
conversation is a process of its own and generates; what is run in this process is answered from the kept answers.
"""

import json
import os
import re
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from mustcall.cli import main
from mustcall.upstream.embedded.catalogue import DEFAULT, find_weights
from support.answered import kept_answers
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


@pytest.fixture
def _inside(environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """That environment for this process, and a model that answers from its kept answers."""
    differing = rf"{re.escape(str(tmp_path))}|(?<=id=.\")[0-9a-f]{{16}}"  # the folder, and the mark of a result
    with kept_answers(hidden=differing):
        for name in [name for name in os.environ if name.startswith("MUSTCALL_")]:
            monkeypatch.delenv(name)
        for name in ("HOME", "MUSTCALL_CACHE", "MUSTCALL_STATE"):
            monkeypatch.setenv(name, environment[name])
        monkeypatch.chdir(tmp_path)
        yield


def run(*arguments: str) -> int | str | None:
    """Run the command in this process; return what it exits with."""
    with pytest.raises(SystemExit) as ended:
        main(["run", "What files are in $HOME/notes?", "--json", *arguments])
    return ended.value.code


@pytest.mark.usefixtures("_inside")
def test_run_expands_home(capsys: pytest.CaptureFixture[str]) -> None:
    """Rule 80: "What files are in $HOME/notes?" is answered from the folder itself."""
    code = run("--max-tokens", "150")
    out, err = capsys.readouterr()
    assert code in (0, 4), err  # a small model may ramble up to its limit
    told = json.loads(out)
    call = told["calls"][0]
    assert (call["name"], call["arguments"], call["status"]) == ("list_directory", {"path": "$HOME/notes"}, "ok")
    assert "plan.txt (9 bytes)" in call["result"]
    assert told["model"] == NAME
    (note,) = [line for line in err.splitlines() if line.startswith("note: ")]
    assert "qwen2.5-coder-0.5b, the default, is not here" in note
    assert [change["detail"] for change in call["adaptations"]] == ["$HOME"]
    assert told["answer"].strip()
    assert told["force_satisfied"] is True


@pytest.mark.usefixtures("_inside")
def test_run_with_a_model_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--model` runs these weights and nothing is noted, whatever else is here: the default here is an empty file."""
    both = small_cache(tmp_path / "both")
    default = find_weights(DEFAULT)
    with (both / "models" / default.file).open("wb") as file:
        file.truncate(default.size)
    monkeypatch.setenv("MUSTCALL_CACHE", str(both))
    run("--max-tokens", "50", "--model", NAME)
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["model"], told["calls"][0]["status"]) == (NAME, "ok")
    assert "note: " not in err
