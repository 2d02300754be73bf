"""The hash of a model file: of its bytes, read once, told anew for another file."""

import hashlib
import os
from pathlib import Path

import pytest

from mustcall.core.errors import ConfigError
from mustcall.upstream.embedded import fingerprint
from mustcall.upstream.embedded.catalogue import FALLBACK, find_weights
from mustcall.upstream.embedded.fingerprint import address_hash, weights_hash
from mustcall.upstream.embedded.store import WeightStore


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file."""
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF one")
    return file


def test_it_is_read_once(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 149: the hash is that of the bytes; a file that did not change is not read again, under any name."""
    cache = tmp_path / "cache"
    found = weights_hash(model, cache)
    assert found == hashlib.sha256(b"GGUF one").hexdigest()
    link = tmp_path / "link.gguf"
    link.symlink_to(model)

    def read(*_: object) -> object:
        raise AssertionError("read again")

    monkeypatch.setattr(hashlib, "file_digest", read)
    assert weights_hash(model, cache) == weights_hash(link, cache) == found


def test_another_file_has_another_hash(model: Path, tmp_path: Path) -> None:
    """Rule 149: other bytes of the same size at the same place are told apart."""
    first = weights_hash(model, tmp_path)
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF two")
    told = model.stat()
    os.utime(other, ns=(told.st_atime_ns, told.st_mtime_ns))
    other.replace(model)
    assert weights_hash(model, tmp_path) == hashlib.sha256(b"GGUF two").hexdigest() != first


def test_an_address_means_a_file(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 149: a file named by its path, weights in the store, and the default ones have a hash; a server has none."""
    monkeypatch.setenv("MUSTCALL_CACHE", str(tmp_path / "cache"))
    assert address_hash(f"embedded:{model}") == hashlib.sha256(b"GGUF one").hexdigest()
    assert address_hash("http://127.0.0.1:9000/v1") == ""
    weights = find_weights(FALLBACK)
    file = WeightStore().path(weights)
    with file.open("wb") as placed:
        placed.truncate(weights.size)
    assert address_hash("embedded:") == address_hash(f"embedded:{FALLBACK}") == weights_hash(file) != weights.sha256


@pytest.mark.parametrize("kept", [b"", b"{", b"[1]", b'{"a": 1}', b"\xff"])
def test_a_broken_cache_costs_time_only(kept: bytes, model: Path, tmp_path: Path) -> None:
    """What was kept is no condition: it is made anew."""
    (tmp_path / ".hashes.json").write_bytes(kept)
    assert weights_hash(model, tmp_path) == weights_hash(model, tmp_path) == hashlib.sha256(b"GGUF one").hexdigest()


def test_a_cache_that_cannot_be_written(model: Path) -> None:
    """Nothing is kept, and the hash is right."""
    assert weights_hash(model, model / "below") == hashlib.sha256(b"GGUF one").hexdigest()


def test_few_are_kept(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that was asked for longest ago is forgotten first."""
    monkeypatch.setattr(fingerprint, "_MOST_FILES", 2)
    for number in range(4):
        model.write_bytes(b"GGUF" + b"x" * number)
        weights_hash(model, tmp_path)
    assert (tmp_path / ".hashes.json").read_bytes().count(b":") == 2


def test_a_file_that_cannot_be_read(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence for a file that is gone, and for one that changes while it is read."""
    with pytest.raises(ConfigError, match="cannot read the model file"):
        weights_hash(tmp_path / "gone.gguf", tmp_path)

    def change(*_: object) -> object:
        model.write_bytes(b"GGUF longer")
        return hashlib.sha256()

    monkeypatch.setattr(hashlib, "file_digest", change)
    with pytest.raises(ConfigError, match="changed while it was read"):
        weights_hash(model, tmp_path)
