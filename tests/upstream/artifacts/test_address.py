"""A file from an address: resumed, given up quickly where it cannot be had."""

import threading
from pathlib import Path

import pytest

from mustcall.core.errors import ConfigError, FetchFailed
from mustcall.upstream.artifacts import address
from mustcall.upstream.artifacts.fetching import fetch
from mustcall.upstream.artifacts.places import ArtifactPlace
from mustcall.upstream.artifacts.values import Artifact, UrlSource
from support.artifacts import CONTENT, FileServer, artifact

PATH = "/model.gguf"


@pytest.fixture
def tiny(server: FileServer) -> Artifact:
    """An artifact at an address."""
    server.files[PATH] = CONTENT
    return artifact(UrlSource(url=server.url + PATH))


def test_a_transfer_that_breaks_off_goes_on_where_it_was(server: FileServer, tiny: Artifact, tmp_path: Path) -> None:
    """Each further try asks for the rest only; the watcher sees it grow."""
    server.breaks = [100_000, 300_000]
    seen: list[tuple[int, int]] = []
    place = fetch(tiny, tmp_path, lambda done, total: seen.append((done, total)))
    assert place.read_bytes() == CONTENT
    assert server.asked == [(PATH, None), (PATH, "bytes=100000-"), (PATH, "bytes=400000-")]
    assert seen == sorted(seen)
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_another_run_goes_on_where_the_last_one_was(server: FileServer, tiny: Artifact, tmp_path: Path) -> None:
    """What a failed command left is kept, is not the file, and is where the next one begins."""
    server.breaks = [1000, 1000, 1000, 1000]
    with pytest.raises(FetchFailed, match="goes on"):
        fetch(tiny, tmp_path)
    place = ArtifactPlace(tiny, tmp_path)
    assert not place.held()
    assert not place.path.exists()
    server.asked.clear()
    fetch(tiny, tmp_path)
    assert server.asked == [(PATH, "bytes=4000-")]
    assert place.path.read_bytes() == CONTENT
    assert not place.part.exists()


def test_a_server_without_ranges_starts_again(server: FileServer, tiny: Artifact, tmp_path: Path) -> None:
    """An answer that is the whole file replaces what was there."""
    server.honours_ranges = False
    server.breaks = [5000]
    assert fetch(tiny, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("left", [b"x" * (len(CONTENT) + 1), b"x" * 10, CONTENT])
def test_whatever_was_left_behind_the_file_is_right(
    server: FileServer, tiny: Artifact, tmp_path: Path, left: bytes
) -> None:
    """A part file that is too large, wrong or complete does not spoil the result."""
    ArtifactPlace(tiny, tmp_path).part.write_bytes(left)
    assert fetch(tiny, tmp_path).read_bytes() == CONTENT
    assert len(server.asked) <= 2


def test_an_end_before_what_is_here(server: FileServer, tiny: Artifact, tmp_path: Path) -> None:
    """HTTP 416 means that what is here is no beginning of the file: it is fetched anew."""
    server.files[PATH] = CONTENT[:10]
    ArtifactPlace(tiny, tmp_path).part.write_bytes(CONTENT[:20])
    with pytest.raises(FetchFailed, match=f"10 bytes, not {len(CONTENT)}"):
        fetch(tiny, tmp_path)
    assert server.asked == [(PATH, "bytes=20-"), (PATH, None)]


@pytest.mark.parametrize("status", [404, 403, 429, 503])
def test_a_refusal_is_said_at_once(server: FileServer, tiny: Artifact, tmp_path: Path, status: int) -> None:
    """A refusal is not tried again; another source may have the file."""
    server.status = status
    with pytest.raises(FetchFailed, match=str(status)):
        fetch(tiny, tmp_path)
    assert len(server.asked) == 1


def test_a_page_instead_of_the_file_is_refused_unread(server: FileServer, tiny: Artifact, tmp_path: Path) -> None:
    """An answer of another length is not written, and keeps what was there."""
    ArtifactPlace(tiny, tmp_path).part.write_bytes(CONTENT[:1000])
    server.honours_ranges = False
    server.files[PATH] = b"<html>sign in</html>"
    with pytest.raises(FetchFailed, match="20 bytes"):
        fetch(tiny, tmp_path)
    assert ArtifactPlace(tiny, tmp_path).part.read_bytes() == CONTENT[:1000]


def test_silence_is_given_up(
    server: FileServer, tiny: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that does not answer costs seconds, not minutes; what it says later is not read."""
    monkeypatch.setattr(address, "_ANSWER", 0.05)
    server.holding(PATH)
    before = set(threading.enumerate())
    with pytest.raises(FetchFailed, match=r"did not answer within 0\.05 s"):
        fetch(tiny, tmp_path)
    server.release.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    assert not ArtifactPlace(tiny, tmp_path).part.exists()


def test_nobody_there(tmp_path: Path) -> None:
    """A refused connection names the host."""
    with pytest.raises(FetchFailed, match=r"127\.0\.0\.1:1 cannot be reached"):
        fetch(artifact(UrlSource(url="http://127.0.0.1:1/x")), tmp_path)


def test_only_http(tmp_path: Path) -> None:
    """A local file is no address."""
    with pytest.raises(ConfigError, match="file:///etc/passwd"):
        fetch(artifact(UrlSource(url="file:///etc/passwd")), tmp_path)
