"""The C allocator, told that this process will want its memory again.

glibc hands the end of its heap back to the system as soon as 128 kB of it are free. A gateway frees that much with
every request and takes it again with the next, and each time the system has to clear the pages: a tenth of the CPU of
a request of 30 kB.
"""

import ctypes
import os
import sys

__all__ = ["keep_heap"]

#: glibc's names for these settings, their numbers, and what they are set to. All three: setting one ends the guessing
#: by which glibc finds the others.
_SETTINGS = {
    "MALLOC_TRIM_THRESHOLD_": (-1, 32 * 1024 * 1024),
    "MALLOC_TOP_PAD_": (-2, 1024 * 1024),
    "MALLOC_MMAP_THRESHOLD_": (-3, 4 * 1024 * 1024),
}


def keep_heap() -> bool:
    """Keep up to 32 MB of free memory; return False where there is no such allocator, or the operator has set it."""
    tuned = "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform != "linux" or tuned or not os.environ.keys().isdisjoint(_SETTINGS):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # musl has none
        return False
    taken = [mallopt(number, value) for number, value in _SETTINGS.values()]
    return all(taken)
