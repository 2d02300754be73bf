"""What is measured of a gateway under attack, so that a busy machine does not change the verdict.

Memory: the most since it was last forgotten. Waiting: of the wall time of a client's request, the time in which the
client, the gateway's loop or the client's upstream was ready to run and had no processor is taken off (the kernel
counts it for each thread: `schedstat`). That time belongs to whoever else uses the machine, the attacker included, who
elsewhere has a machine of his own. What is left is never less than the processor time of the gateway's loop meanwhile.
"""

import http.client
import json
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

from attacks.sending import Place

__all__ = ["Waiting", "behave", "forget_memory", "memory_of"]


class Waiting(NamedTuple):
    """What a client that behaves noticed: its slowest request as judged and by the wall, how many were served."""

    slowest: float
    wall: float
    served: int
    refused: int


def memory_of(pid: int) -> int:
    """Return the most memory a process has had since it was last forgotten."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def forget_memory(pid: int) -> None:
    """Let the most memory be counted anew, where the system allows it."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def _scheduled(pid: int | str) -> tuple[float, float]:
    """Return the seconds the first thread of a process has run, and that its threads have waited for a processor.

    All threads: the first one may wait for what another one holds.
    """
    first, waiting = 0.0, 0.0
    with suppress(OSError, ValueError):
        for task in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name)):
            ran, waited, _ = (task / "schedstat").read_text(encoding="ascii").split()
            first = first or int(ran) / 1e9
            waiting += int(waited) / 1e9
    return first, waiting


def behave(place: Place, model: str, pids: tuple[int, int], line: Connection, stop: Event) -> None:
    """Be a client that asks for a short turn again and again; tell what it noticed. `pids`: gateway, its upstream."""
    gateway, *beside = pids
    slowest, wall, served, refused = 0.0, 0.0, 0, 0
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]}).encode()
    while not stop.is_set():
        ran, waited = _scheduled(gateway)
        others = [_scheduled(pid)[1] for pid in ("self", *beside)]
        began = time.monotonic()
        # Another address, as other people have.
        connection = http.client.HTTPConnection(*place, timeout=120, source_address=("127.0.0.2", 0))
        try:
            connection.request("POST", "/v1/chat/completions", body, {"authorization": "Bearer honest"})
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            status = 0
        finally:
            connection.close()
        took = time.monotonic() - began
        ran_then, waited_then = _scheduled(gateway)
        idle = waited_then - waited
        idle += sum(_scheduled(pid)[1] - before for pid, before in zip(("self", *beside), others, strict=True))
        if served:  # the first warms up what is made once
            slowest, wall = max(slowest, ran_then - ran, took - idle), max(wall, took)
        elif status == 200:
            line.send("ready")
        served, refused = served + (status == 200), refused + (status != 200)
        stop.wait(0.02)
    line.send(Waiting(slowest, wall, served, refused))
