"""Fetches an artifact: its sources in order, its hash checked, one process at a time.

A download grows in a part file and is renamed only when its hash is right, so that half a file is never used. What has
arrived is kept for the next try, of any source. Watchers are told of bytes and notes; nothing is printed here.
"""

from collections.abc import Callable
from pathlib import Path
from typing import assert_never

from mustcall.core.errors import FetchFailed
from mustcall.upstream.artifacts.address import take_url
from mustcall.upstream.artifacts.part import FULL, Part, SourceFailed, Watcher
from mustcall.upstream.artifacts.places import ArtifactPlace
from mustcall.upstream.artifacts.registry import take_pieces
from mustcall.upstream.artifacts.values import Artifact, RegistrySource, Source, UrlSource

__all__ = ["Note", "Watcher", "fetch"]

#: Told one line for the person who waits: a source that failed and the next one, or another process at work.
Note = Callable[[str], None]


def fetch(artifact: Artifact, directory: Path, watch: Watcher | None = None, note: Note | None = None) -> Path:
    """Return the path of the whole, checked file in `directory`, fetching it first if it is not there.

    Raise `FetchFailed` where no source gives it or the disk has no room, `ConfigError` where the directory cannot be
    used. One process fetches at a time; the others wait and find the file.
    """
    tell, say = watch or _tell_nobody, note or _say_nothing
    place = ArtifactPlace(artifact, directory)
    with place.lock(waiting=lambda: say(f"another process is fetching {artifact.name}; waiting for it")):
        if not place.held():
            place.clear_rooms()
            part = Part(place.part, artifact.size, tell)
            try:
                _fill(artifact, part, place.room_prefix, say)
                part.path.replace(place.path)
            except OSError as error:
                raise _failure(error, artifact, part) from None
            place.clear_rooms()  # the downloader of a killed process may have written on meanwhile
        tell(artifact.size, artifact.size)
        return place.path


def _fill(artifact: Artifact, part: Part, room_prefix: str, say: Note) -> None:
    """Make the part file the whole one, from the first source that gives it."""
    problems: list[str] = []
    for source in artifact.sources:
        if problems:
            say(f"{problems[-1]}; fetching {artifact.name} from {source.where} instead")
        try:
            _fill_from(source, artifact, part, room_prefix)
        except SourceFailed as failed:
            problems.append(str(failed))
        else:
            return
    kept = ". What has arrived is kept; the same command goes on from there" if part.have else ""
    raise FetchFailed(f"cannot fetch {artifact.name}: {'; '.join(problems)}{kept}")


def _fill_from(source: Source, artifact: Artifact, part: Part, room_prefix: str) -> None:
    """Make the part file the whole one, from this source; one that is wrong is thrown away."""
    begun_before = part.have > 0
    found = _take(source, part, room_prefix)
    if found != artifact.sha256 and begun_before:  # what was there before may be what is wrong
        part.discard()
        found = _take(source, part, room_prefix)
    if found != artifact.sha256:
        part.discard()
        raise SourceFailed(
            f"what {source.where} gave is not the file that was expected and was thrown away (its SHA-256 is {found}, "
            f"not {artifact.sha256})"
        )


def _take(source: Source, part: Part, room_prefix: str) -> str:
    """Let a source fill the part file; return its hash."""
    match source:
        case UrlSource():
            take_url(source, part)
        case RegistrySource():
            take_pieces(source, part, room_prefix)
        case _:
            assert_never(source)
    return part.digest()


def _failure(error: OSError, artifact: Artifact, part: Part) -> FetchFailed:
    """Return what is said of a disk that did not take the file. A full one is given back what was written."""
    where = part.path.parent
    if error.errno not in FULL:
        return FetchFailed(f"cannot write {artifact.name} to {where}: {error.strerror or error}")
    part.discard()
    return FetchFailed(
        f"there is not enough disk space in {where} for {artifact.name} ({artifact.size / 1e6:.0f} MB): free some, or "
        "set MUSTCALL_CACHE to a directory on another disk"
    )


def _tell_nobody(_done: int, _total: int) -> None:
    """Watch nothing."""


def _say_nothing(_line: str) -> None:
    """Note nothing."""
