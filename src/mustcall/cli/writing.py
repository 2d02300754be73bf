"""Files that commands write: there is a whole one or none."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from mustcall.core.errors import ConfigError

__all__ = ["written"]


@contextmanager
def written(file: Path, *, private: bool = False) -> Generator[Path]:
    """Yield where to write a file; it is put in place when it is whole. Raise `ConfigError` where it cannot be.

    A `private` file holds what was said: nobody but its owner can read it, from its first byte on.
    """
    part = file.with_name(f".{file.name}.part")
    if file.exists() and not file.is_file():  # a device or a pipe takes what it is given
        part = file
    try:
        if private and part is not file:
            part.unlink(missing_ok=True)  # of a command that was killed
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        yield part
        if part is not file:
            part.replace(file)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror or error}") from None
    finally:
        if part is not file:
            with suppress(OSError):
                part.unlink(missing_ok=True)
