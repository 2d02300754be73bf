"""The file that an artifact grows in. It is never used as it is: `fetching` checks it and gives it its name.

Every source writes the same bytes, so what one source wrote is where the next one continues.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO

__all__ = ["FULL", "Part", "SourceFailed", "Watcher"]

#: Told how many bytes are there and how many there will be.
Watcher = Callable[[int, int], None]

#: The system's words for a disk without room.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

_CHUNK = 256 * 1024


class SourceFailed(Exception):
    """One source did not give the file; the next one may. Its text is part of a sentence."""


class Part:
    """A file on its way to `total` bytes."""

    def __init__(self, path: Path, total: int, watch: Watcher) -> None:
        self.path = path
        self.total = total
        self._watch = watch

    @property
    def have(self) -> int:
        """The bytes that are there."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def tell(self, done: int) -> None:
        """Tell the watcher how far it is."""
        self._watch(min(done, self.total), self.total)

    def need(self, spare: int = 0) -> None:
        """Raise `OSError` (`ENOSPC`) unless the disk has room for the rest of the file and `spare` bytes beside it."""
        usage = shutil.disk_usage(self.path.parent)
        # A file system that does not say how large it is has no room by its own words; writing will show.
        if usage.total and usage.free < self.total - self.have + spare:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def cut(self, size: int) -> None:
        """Drop what is behind the first `size` bytes."""
        if self.have > size:
            os.truncate(self.path, size)

    def append(self, source: IO[bytes]) -> None:
        """Write everything of a file behind what is there."""
        with self.path.open("ab") as out:
            shutil.copyfileobj(source, out, _CHUNK)

    def discard(self) -> None:
        """Throw everything away."""
        self.path.unlink(missing_ok=True)

    def digest(self) -> str:
        """Return the SHA-256 of what is there, after it has reached the disk."""
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
            return hashlib.file_digest(file, "sha256").hexdigest()
