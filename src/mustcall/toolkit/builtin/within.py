"""Opening what lies inside a folder without leaving it: step by step from the open folder, through no link.

A path that was judged by its name may lead elsewhere a moment later. Here every step is taken from the folder that is
open already, and a link that is found on the way was put there meanwhile: it is not followed.
"""

import contextlib
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

__all__ = ["opened_within", "scanned_within"]

#: Whether the system opens from an open folder; where it does not, a place is opened by its name.
_STEPS: Final = os.open in os.supports_dir_fd and os.scandir in os.supports_fd

_NO_LINKS: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
#: A pipe is not waited for.
_FILE: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | _NO_LINKS


@contextlib.contextmanager
def opened_within(root: Path, place: Path) -> Generator[int]:
    """Open a resolved file below a resolved root; raise `OSError` for what is not there or is a link by now."""
    opened = _walked(root, place, _FILE) if _STEPS else os.open(place, _FILE)
    try:
        yield opened
    finally:
        os.close(opened)


@contextlib.contextmanager
def scanned_within(root: Path, place: Path) -> "Generator[Iterator[os.DirEntry[str]]]":
    """Scan a resolved folder below a resolved root, in the same way."""
    if not _STEPS:
        with os.scandir(place) as entries:
            yield entries
        return
    opened = _walked(root, place, _FOLDER | _NO_LINKS)
    try:
        with os.scandir(opened) as entries:
            yield entries
    finally:
        os.close(opened)


def _walked(root: Path, place: Path, last: int) -> int:
    """Open one step after the other from the open folder before it, the last one with these flags."""
    steps = place.relative_to(root).parts
    opened = os.open(root, _FOLDER)
    for number, step in enumerate(steps, 1):
        try:
            inner = os.open(step, last if number == len(steps) else _FOLDER | _NO_LINKS, dir_fd=opened)
        finally:
            os.close(opened)
        opened = inner
    return opened
