"""The files of a ledger are their owner's alone: made so, set so, or refused.

A ledger holds what was said. Its path is never followed through a link at its end - a dangling one makes a file where
somebody else wants it - and what was left readable for others is closed to them, its log and index included. SQLite
opens files by name, so that what is there behind it is compared with what was looked at before.

Nothing that SQLite has open is opened here: closing it would give up SQLite's own locks on it.
"""

import contextlib
import os
import stat
from collections.abc import Generator
from pathlib import Path

from mustcall.core.errors import LedgerUnavailable

__all__ = ["secured"]

#: What SQLite keeps beside a file.
_BESIDE = ("-wal", "-shm", "-journal")
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@contextlib.contextmanager
def secured(path: Path) -> Generator[None]:
    """Make the file if it is not there and see that it is the owner's alone, before and after it is opened by name.

    Raise `LedgerUnavailable` for what cannot be made so: a link, what is no file, or somebody else's.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        # Made here and not by SQLite, so that it and its log are the owner's only from the first byte on.
        os.close(os.open(path, _NEW, 0o600))
    before = _owned(path)
    for end in _BESIDE:
        with contextlib.suppress(FileNotFoundError):
            _owned(Path(f"{path}{end}"))
    yield
    if _owned(path) != before:
        raise LedgerUnavailable(f"the file {path} was replaced while it was opened as a ledger")


def _owned(path: Path) -> tuple[int, int]:
    """See that nobody but its owner may read or write a file; return which file it is.

    Its owner's own rights stay as they are.
    """
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise LedgerUnavailable(
            f"{path} is a symbolic link, and a ledger is not opened through one: name the file itself"
        )
    if not stat.S_ISREG(status.st_mode):
        raise LedgerUnavailable(f"{path} is not an ordinary file, so it cannot be a ledger")
    me = os.geteuid() if hasattr(os, "geteuid") else status.st_uid
    if me not in (0, status.st_uid):
        raise LedgerUnavailable(f"{path} belongs to another user; a ledger is opened by its owner alone")
    if status.st_mode & _OTHERS and os.name == "posix":
        try:
            path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
        except OSError as error:
            raise LedgerUnavailable(
                f"others may read {path}, and its mode cannot be changed ({error.strerror}): chmod 600 it, or name "
                "another file"
            ) from None
    return status.st_dev, status.st_ino
