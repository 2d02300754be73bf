"""What the first turn of a process would have to make before it could begin, made before anybody waits for it.

The table of profiles is read from files, and the marks of all dialects become one pattern: a fifth of a second, once,
on the loop of whoever comes first. Both are kept by those who make them; this only asks for them.
"""

from mustcall.core.origin import Wire
from mustcall.dialects.scanner import is_plain
from mustcall.profiles import resolve

__all__ = ["warm"]


def warm() -> None:
    """Have the tables made that every turn needs."""
    resolve("", "http://127.0.0.1", Wire.CHAT)
    is_plain("Hello.", tools=())
