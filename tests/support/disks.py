"""A real file system that is small enough to be filled."""

import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

__all__ = ["Disk", "small_disk"]


class Disk:
    """A mounted file system of a few megabytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        """Leave no byte free."""
        with self._filler.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))
        assert shutil.disk_usage(self.path).free == 0

    def free(self) -> None:
        """Take away what fills it."""
        self._filler.unlink()


@contextmanager
def small_disk(path: Path, megabytes: int) -> Generator[Disk]:
    """Mount a disk of so many megabytes in memory; skip the test where nothing may be mounted."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  fixed words
    except OSError as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    if done.returncode:
        pytest.skip(f"nothing may be mounted here: {done.stderr.strip()}")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)  # noqa: S603, S607  fixed words
