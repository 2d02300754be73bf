"""What Linux says about processes: who belongs together, who listens on a port, and how much memory they hold."""

import sys
from collections.abc import Iterator
from pathlib import Path

from mustcall.core.errors import ConfigError

__all__ = ["check_system", "family", "listening_pid", "resident_mb"]

_PROC = Path("/proc")
_LISTEN = "0A"


def check_system() -> None:
    """Raise where processes cannot be looked at as the benchmark does."""
    if sys.platform != "linux":
        raise ConfigError("`mustcall bench` reads CPU clocks and /proc, so it needs Linux; in a container will do")


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process; 0 if it has ended."""
    try:
        lines = (_PROC / str(pid) / "status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0.0)


def family(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found = [pid]
    for one in found:  # grows while it is walked
        found.extend(children.get(one, ()))
    return found


def _parents() -> Iterator[tuple[int, int]]:
    """Yield every process with its parent."""
    for folder in _PROC.iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # ended meanwhile
            # The name in parentheses may itself hold spaces and parentheses.
            yield int(folder.name), int(stat.rpartition(")")[2].split()[1])


def listening_pid(port: int) -> int | None:
    """Return the process that listens on a port, the eldest where several share it; None if it cannot be seen."""
    inodes = {f"socket:[{inode}]" for inode in _listening(port)}
    if not inodes:
        return None
    holders = [int(folder.name) for folder in _PROC.iterdir() if folder.name.isdecimal() and _holds(folder, inodes)]
    parents = dict(_parents())
    return next((pid for pid in holders if parents.get(pid) not in holders), None)


def _listening(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _holds(folder: Path, inodes: set[str]) -> bool:
    try:
        return any(_link(one) in inodes for one in (folder / "fd").iterdir())
    except OSError:
        return False  # another user's, or ended meanwhile


def _link(file: Path) -> str:
    try:
        return str(file.readlink())
    except OSError:
        return ""
