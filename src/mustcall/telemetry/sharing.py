"""The directory in which the processes of one gateway keep their counts together (POSIX).

The client of Prometheus maps a file of each process there. What an ended process counted is added to one file for all
that ended, so that counts never fall and files do not pile up. A page is not read while that happens.
"""

import contextlib
import math
import os
import shutil
import struct
import sys
import tempfile
from collections.abc import Generator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec

from mustcall.telemetry.logs import log_of

__all__ = ["VARIABLE", "SharedDirectory", "make_directory", "shared_directory"]

#: What the client of Prometheus looks at when it is imported.
VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

_log = log_of("mustcall.metrics")
#: Bytes set aside for the files of a process: a mapped file that finds the disk full would kill its process.
_ROOM = {"counter": 1 << 20, "histogram": 1 << 20, "gauge_livemax": 1 << 18, "gauge_livemin": 1 << 16}
_ROOM["gauge_livesum"] = 1 << 16
#: A mapped file: bytes before its first entry, bytes of the shortest entry, and of the value and time that end each.
_HEADER, _LEAST_ENTRY, _VALUES = 8, 24, 16
#: The key of an entry: the names of its metric and of its sample, its labels, and the help.
_Name = Annotated[str, msgspec.Meta(pattern="^[a-zA-Z_:][a-zA-Z0-9_:]*\\Z")]
_KEY = msgspec.json.Decoder(tuple[_Name, _Name, dict[_Name, str], str])
#: A key, its value, and when it was set.
_Entry = tuple[str, float, float]
#: How the name of a file ends that nobody reads yet.
_UNNAMED = ".new"


class SharedDirectory:
    """One directory, as one process sees it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self, pid: int) -> bool:
        """Set room aside for the files of a process; return False if there is none.

        They get their names when all have their bytes: an empty one could not be read, and a process may be killed
        before.
        """
        made: list[Path] = []
        try:
            for kind, size in _ROOM.items():
                made.append(self.path / f"{kind}_{pid}{_UNNAMED}")
                _set_aside(made[-1], size)
            for file in made:
                file.replace(file.with_suffix(".db"))
        except OSError as error:
            for file in made:
                file.unlink(missing_ok=True)
            _log.warning("metrics are not shared between workers: no space in %s (%s)", self.path, error.strerror)
            return False
        return True

    @contextlib.contextmanager
    def read(self) -> Generator[None]:
        """Keep the files as they are while they are read."""
        with self._lock(exclusive=False):
            yield

    def claim(self, name: str, most: int) -> set[str]:
        """Ask for a name of a model, for all processes; return those that all have by now."""
        try:
            with self._lock(exclusive=True), (self.path / "models").open("a+", encoding="utf-8") as file:
                file.seek(0)
                names = set(filter(None, file.read().split("\0")))
                if name not in names and len(names) < most:
                    file.write(f"{name}\0")
                    names.add(name)
                return names
        except (OSError, UnicodeError):
            return set()

    def bury(self, pid: int) -> None:
        """Add what an ended process counted to what all ended ones did, and forget its gauges."""
        try:
            with self._lock(exclusive=True):
                for left in (f"gauge_live*_{pid}.db", f"*_{pid}{_UNNAMED}"):
                    for file in self.path.glob(left):
                        file.unlink()
                for kind in ("counter", "histogram"):
                    self._merge(kind, pid)
        except Exception as error:  # noqa: BLE001  nothing about counts ends a gateway; the files stay as they are
            _log.warning("metrics of worker %s were not merged: %s", pid, error)

    def _merge(self, kind: str, pid: int) -> None:
        """Add a file of an ended process to that of all ended ones."""
        from prometheus_client.mmap_dict import MmapedDict  # noqa: PLC0415  when a worker ended, not before

        mine, together = self.path / f"{kind}_{pid}.db", self.path / f"{kind}_ended.db"
        counted = _read_counts(mine, f"worker {pid}")
        if counted is None:
            return
        if _read_counts(together, "ended workers") is None:
            grown = together.with_suffix(_UNNAMED)
            _set_aside(grown, mine.stat().st_size)
            grown.replace(together)
        else:
            _set_aside(together, _used(together) + mine.stat().st_size)
        mapped: Any = MmapedDict  # without types
        with contextlib.closing(mapped(str(together))) as ended:
            for key, value, at in counted:
                ended.write_value(key, ended.read_value(key)[0] + value, at)
        mine.unlink()

    def remove(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self.path, ignore_errors=True)

    @contextlib.contextmanager
    def _lock(self, *, exclusive: bool) -> Generator[None]:
        import fcntl  # noqa: PLC0415  not on Windows, where nothing is shared

        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            yield
        finally:
            os.close(descriptor)


def _set_aside(file: Path, size: int) -> None:
    """Let a file have so many bytes of the disk; raise `OSError` where they are not to be had."""
    with file.open("ab") as opened:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(opened.fileno(), 0, size)
        else:  # macOS
            opened.write(bytes(max(0, size - opened.tell())))


def _read_counts(file: Path, whose: str) -> list[_Entry] | None:
    """Return what a file counts; None where there is none.

    One that cannot be read would break every page: it is removed, with a line in the log.
    """
    try:
        return _entries(file)
    except FileNotFoundError:
        return None
    except (RuntimeError, ValueError, struct.error) as error:
        _log.warning("the counts of %s are lost: %s cannot be read (%s)", whose, file.name, error)
        file.unlink()
        return None


def _entries(file: Path) -> list[_Entry]:
    """Return the entries of a mapped file; raise for one that is damaged, whatever its lengths and keys say."""
    from prometheus_client.mmap_dict import MmapedDict  # noqa: PLC0415

    mapped: Any = MmapedDict  # without types
    size, used = file.stat().st_size, _used(file)
    if used == 0 and size >= _HEADER:
        return []  # nothing was counted yet
    if not _HEADER <= used <= size:
        raise ValueError(f"{used} of {size} bytes are in use")
    most = used // _LEAST_ENTRY
    entries = list(islice(mapped.read_all_values_from_file(str(file)), most + 1))
    if len(entries) > most or (entries[-1][3] + _VALUES if entries else _HEADER) != used:
        raise ValueError("its entries have impossible lengths")
    for key, value, *_ in entries:
        labels = _KEY.decode(key)[2]
        float(labels.get("le", "0"))
        if not 0 <= value < math.inf:
            raise ValueError(f"{value} is no count")
    return [(key, value, at) for key, value, at, _ in entries]


def _used(file: Path) -> int:
    """Return how many bytes of a mapped file are in use, as it says itself."""
    with file.open("rb") as opened:
        return int.from_bytes(opened.read(4), sys.byteorder, signed=True)


def make_directory() -> SharedDirectory | None:
    """Make a directory that only this user can read; None, and a line in the log, if that cannot be."""
    try:
        return SharedDirectory(Path(tempfile.mkdtemp(prefix="mustcall-metrics-")))
    except OSError as error:
        _log.warning("metrics are not shared between workers: no directory for them (%s)", error.strerror)
        return None


def shared_directory() -> SharedDirectory | None:
    """Return the directory that this process shares, None if it counts alone."""
    named = os.environ.get(VARIABLE)
    return SharedDirectory(Path(named)) if named and Path(named).is_dir() else None
