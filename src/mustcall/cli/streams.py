"""The standard streams of a command: one that is closed takes nothing, one that cannot be written ends the command.

Output is lost on a full disk or a device that fails. That is one line on standard error and exit code 2, whichever
command wrote it, also where the last lines are written only when the process ends.
"""

import errno
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TextIO

import click

__all__ = ["guarded_output", "open_streams"]

#: Why writing fails for want of room or of a working device. A reader that has gone is click's to deal with.
_LOST = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def open_streams() -> None:
    """Open what the caller closed (`>&-`): else the next file or socket is taken for a standard stream."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


@contextmanager
def guarded_output() -> Generator[None]:
    """Exit with 2 and one line where standard output cannot be written, up to its last byte."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in _LOST and error.errno != errno.EPIPE:
            raise
        _drop_rest(sys.stdout)
        if error.errno == errno.EPIPE:
            sys.exit(1)
        try:
            click.echo(f"mustcall: cannot write the output: {error.strerror}", err=True)
        except OSError:
            _drop_rest(sys.stderr)
        sys.exit(2)


def _drop_rest(stream: TextIO) -> None:
    """Let what is left in the buffers go nowhere: the interpreter would fail on it once more."""
    with suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
