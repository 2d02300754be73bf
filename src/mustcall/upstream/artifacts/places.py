"""Where a fetched file is kept: the user's cache, the file's place in it, and the lock that one process holds.

A file is in its place only whole and checked: it grows under another name and is renamed. Nothing is fetched here.
"""

import os
import shutil
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mustcall.core.errors import ConfigError
from mustcall.upstream.artifacts.values import Artifact

__all__ = ["ArtifactPlace", "cache_directory"]


def cache_directory(kind: str, environment: Mapping[str, str] | None = None) -> Path:
    """Return the directory for one kind of file: below `$MUSTCALL_CACHE`, else the platform's cache for this user."""
    env = os.environ if environment is None else environment
    own = env.get("MUSTCALL_CACHE")
    if own:
        return Path(own).expanduser() / kind
    home = Path.home()
    if sys.platform == "win32":
        base = Path(env.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "mustcall" / kind


class ArtifactPlace:
    """The place of one artifact in a directory."""

    def __init__(self, artifact: Artifact, directory: Path) -> None:
        self._artifact = artifact
        self._directory = directory
        #: Where the file is, or would be.
        self.path = directory / artifact.file
        #: Where a download grows; the name has the hash, so another version starts afresh.
        self.part = directory / f".{artifact.file}.{artifact.sha256[:12]}.part"
        #: How the directories begin that wheels are downloaded into.
        self.room_prefix = f".{artifact.file}.fetch-"

    def held(self) -> bool:
        """Tell whether the file is here. Only what was checked is ever put in place; the size is looked at."""
        try:
            return self.path.stat().st_size == self._artifact.size
        except OSError:
            return False

    def remove(self) -> int:
        """Remove the file and what is left of a download of it; return the bytes freed."""
        freed = 0
        with self.lock():
            self.clear_rooms()
            for path in (self.path, self.part):
                if path.is_file():
                    freed += path.stat().st_size
                    path.unlink()
        return freed

    def clear_rooms(self) -> None:
        """Remove the directories that killed processes left; only for whoever holds the lock."""
        for left in self._directory.glob(f"{self.room_prefix}*"):
            shutil.rmtree(left, ignore_errors=True)

    @contextmanager
    def lock(self, waiting: Callable[[], None] | None = None) -> Generator[None]:
        """Hold the place, across processes; whoever comes second calls `waiting` and waits.

        The lock is the system's own, so one that a dead process held is free again.
        """
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            handle = (self._directory / f".{self._artifact.file}.lock").open("a+b")
        except OSError as error:
            raise ConfigError(
                f"cannot write to {self._directory}: {error.strerror}; set MUSTCALL_CACHE to a directory that can be "
                "written to"
            ) from None
        with handle:
            if not _try_lock(handle.fileno()):
                if waiting is not None:
                    waiting()
                _lock(handle.fileno())
            yield


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _lock(descriptor: int) -> None:
        while True:
            try:
                msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
            except OSError:  # it gives up after ten seconds
                continue
            return

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
