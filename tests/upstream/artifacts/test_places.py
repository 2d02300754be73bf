"""The place of a file: in the user's cache, whole or not at all, held by one process."""

import sys
from pathlib import Path

import pytest

from mustcall.core.errors import ConfigError
from mustcall.upstream.artifacts.places import ArtifactPlace, cache_directory
from support.artifacts import CONTENT, artifact


def test_the_cache_is_where_the_user_says() -> None:
    """`MUSTCALL_CACHE` names the directory; otherwise it is the platform's, below a name of our own."""
    assert cache_directory("models", {"MUSTCALL_CACHE": "/somewhere"}) == Path("/somewhere/models")
    if sys.platform == "linux":
        assert cache_directory("models", {"XDG_CACHE_HOME": "/xdg"}) == Path("/xdg/mustcall/models")
        assert cache_directory("evals", {}) == Path.home() / ".cache" / "mustcall" / "evals"


def test_only_a_whole_file_is_held(tmp_path: Path) -> None:
    """A file of another size is not the artifact."""
    place = ArtifactPlace(artifact(), tmp_path)
    assert not place.held()
    place.path.write_bytes(CONTENT[:-1])
    assert not place.held()
    place.path.write_bytes(CONTENT)
    assert place.held()


def test_removing_takes_the_rest_of_a_download_along(tmp_path: Path) -> None:
    """`remove` frees the file, its part and what killed processes left, and says how much the first two were."""
    place = ArtifactPlace(artifact(), tmp_path)
    place.path.write_bytes(b"12")
    place.part.write_bytes(b"345")
    (tmp_path / f"{place.room_prefix}x" / "got").mkdir(parents=True)
    assert place.remove() == 5
    assert place.remove() == 0
    assert [path.name for path in tmp_path.iterdir()] == [".tiny.gguf.lock"]


def test_another_version_starts_afresh(tmp_path: Path) -> None:
    """The part file of another hash is another file."""
    assert ArtifactPlace(artifact(), tmp_path).part != ArtifactPlace(artifact(content=b"x"), tmp_path).part


def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """A cache that is no directory is an error with the fix."""
    (tmp_path / "taken").write_bytes(b"")
    with (
        pytest.raises(ConfigError, match="MUSTCALL_CACHE"),
        ArtifactPlace(artifact(), tmp_path / "taken" / "models").lock(),
    ):
        pass
