"""Files that commands write: there is a whole one or none."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from mustcall.core.errors import ConfigError

__all__ = ["written"]


@contextmanager
def written(file: Path) -> Generator[Path]:
    """Yield where to write a file; it is put in place when it is whole. Raise `ConfigError` where it cannot be."""
    part = file.with_name(f".{file.name}.part")
    if file.exists() and not file.is_file():  # a device or a pipe takes what it is given
        part = file
    try:
        yield part
        if part is not file:
            part.replace(file)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror or error}") from None
    finally:
        if part is not file:
            with suppress(OSError):
                part.unlink(missing_ok=True)
