"""The cache of weights: where it is, what counts as here, and what an address means."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from mustcall.core.errors import ConfigError
from mustcall.upstream.embedded.catalogue import CATALOGUE, DEFAULT, FALLBACK, find_weights
from mustcall.upstream.embedded.store import WeightStore, address_for, locate

WEIGHTS = find_weights(DEFAULT)


def place(store: WeightStore, *names: str) -> None:
    """Put files of the right size where these weights would be."""
    store.directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        with store.path(find_weights(name)).open("wb") as file:
            file.truncate(find_weights(name).size)


def test_only_a_whole_file_is_here(tmp_path: Path) -> None:
    """A file of another size is not the model."""
    store = WeightStore(tmp_path)
    assert not store.holds(WEIGHTS)
    assert store.held() == ()
    with store.path(WEIGHTS).open("wb") as file:
        file.truncate(WEIGHTS.size - 1)
    assert not store.holds(WEIGHTS)
    with store.path(WEIGHTS).open("wb") as file:
        file.truncate(WEIGHTS.size)
    assert store.held() == (WEIGHTS,)
    assert locate(DEFAULT, store).path == store.path(WEIGHTS)
    assert locate("", store).name == DEFAULT


def test_without_a_name_the_smaller_model_stands_in(tmp_path: Path) -> None:
    """Where only the smaller model is here, it is the one used without a name; a name is a demand."""
    store = WeightStore(tmp_path)
    place(store, FALLBACK)
    assert locate("", store).name == FALLBACK
    with pytest.raises(ConfigError, match=f"weights of {DEFAULT} are not here"):
        locate(DEFAULT, store)
    place(store, DEFAULT)
    assert locate("", store).name == DEFAULT
    assert locate(FALLBACK, store).name == FALLBACK


@pytest.mark.parametrize(
    ("base_url", "model", "address"),
    [
        (f"embedded:{DEFAULT}", FALLBACK, f"embedded:{FALLBACK}"),
        (f"embedded:{DEFAULT}", "local", f"embedded:{DEFAULT}"),
        ("embedded:/path/to.gguf", FALLBACK, "embedded:/path/to.gguf"),
        ("http://127.0.0.1:9/v1", FALLBACK, "http://127.0.0.1:9/v1"),
    ],
)
def test_a_model_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base_url: str, model: str, address: str
) -> None:
    """A name of the catalogue selects these weights, where the address is one of the catalogue too."""
    monkeypatch.setenv("MUSTCALL_CACHE", str(tmp_path))
    place(WeightStore(), FALLBACK)
    assert address_for(base_url, model) == address


def test_removing_takes_the_rest_of_a_download_along(tmp_path: Path) -> None:
    """`remove` frees the file and its part, and says how much that was."""
    store = WeightStore(tmp_path)
    store.path(WEIGHTS).write_bytes(b"12")
    store.part(WEIGHTS).write_bytes(b"345")
    assert store.remove(WEIGHTS) == 5
    assert store.remove(WEIGHTS) == 0
    assert not store.part(WEIGHTS).exists()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (DEFAULT, ["491 MB", "mustcall models pull (", "98 MB", f"mustcall models pull {FALLBACK}"]),
        ("", ["491 MB", "mustcall models pull ("]),
        (FALLBACK, ["98 MB", f"mustcall models pull {FALLBACK}"]),
        ("qwen2.5-coder-1.5b", ["1117 MB", "mustcall models pull qwen2.5-coder-1.5b"]),
        ("no-such-model", ["no-such-model", *(weights.name for weights in CATALOGUE)]),
        ("/no/such/file.gguf", ["/no/such/file.gguf"]),
    ],
)
def test_what_is_not_here_is_said_with_the_fix(tmp_path: Path, source: str, words: list[str]) -> None:
    """An address without a file behind it names the value and the command that helps."""
    with pytest.raises(ConfigError) as raised:
        locate(source, WeightStore(tmp_path))
    for word in words:
        assert word in raised.value.message


def test_a_path_is_a_model_by_its_name(tmp_path: Path) -> None:
    """Any file goes by its path, and is called after it."""
    file = tmp_path / "my model.gguf"
    file.write_bytes(b"GGUF")
    assert locate(str(file)).name == "my model"


@pytest.mark.parametrize("content", [b"", b"hi\n", b"gguf", b"PK\x03\x04"])
def test_a_file_that_is_no_model_is_said(tmp_path: Path, content: bytes) -> None:
    """What does not begin as a model file does is refused before anything is served."""
    file = tmp_path / "bad.gguf"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"bad\.gguf is no model"):
        locate(str(file))


def test_a_dead_process_holds_no_lock(tmp_path: Path) -> None:
    """A lock held by another process keeps us out; it is free again when that process is killed."""
    script = textwrap.dedent("""
        import sys, pathlib
        from mustcall.upstream.embedded.catalogue import CATALOGUE
        from mustcall.upstream.embedded.store import WeightStore
        with WeightStore(pathlib.Path(sys.argv[1])).lock(CATALOGUE[0]):
            print("held", flush=True)
            sys.stdin.read()
    """)
    holder = subprocess.Popen(  # noqa: S603  our own script
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ
    )
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == b"held\n"
        import fcntl  # noqa: PLC0415  not on every platform

        with (tmp_path / f".{WEIGHTS.file}.lock").open("rb") as handle, pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        holder.kill()
    with WeightStore(tmp_path).lock(WEIGHTS):
        pass
