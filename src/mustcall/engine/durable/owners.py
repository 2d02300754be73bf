"""Who holds a run, in a word that another process can make something of: whether its holder is certainly dead.

Certain is only the death of a process on this machine that this one can see. Of every other owner nothing is known, and
its lease is waited for. The database decides who holds a run; this only saves waiting.
"""

import os
import secrets
from pathlib import Path

__all__ = ["is_gone", "is_worker", "new_owner"]

_PARTS = 4
_WORKER = "worker-"
#: The states of a process that runs no more: a zombie nobody has asked about, and one that is going.
_DEAD = frozenset("ZX")


def new_owner(*, worker: bool = False) -> str:
    """Return a name for one claim of this process: machine, process, when it began, and something that is new.

    A worker's says so: what a worker held any other one may go on with, and nobody else's runs are a worker's.
    """
    pid = os.getpid()
    return f"{_machine()}/{pid}/{_began(pid) or '-'}/{_WORKER if worker else ''}{secrets.token_hex(6)}"


def is_worker(owner: str) -> bool:
    """Tell whether a worker made this name."""
    return owner.rpartition("/")[2].startswith(_WORKER)


def is_gone(owner: str) -> bool:
    """Tell whether the process that made this name is certainly dead."""
    parts = owner.split("/")
    if len(parts) != _PARTS:
        return False
    machine, pid, began, _ = parts
    if not machine or machine != _machine() or not pid.isdigit() or began == "-":
        return False
    return _began(int(pid)) != began


def _machine() -> str:
    """Return what two processes that see each other have in common: this boot, this space of process numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        return ""
    return f"{boot[:13]}-{space}"


def _began(pid: int) -> str | None:
    """Return when a process began, by the kernel's ticks; None for one that runs no more."""
    try:
        said = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = said.rpartition(")")[2].split()  # the name before may hold anything
    return None if fields[0] in _DEAD else fields[19]
