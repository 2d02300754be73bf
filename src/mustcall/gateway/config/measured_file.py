"""Writes a measured profile into a configuration file: the whole file changes at once, or not at all."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from mustcall.core.errors import ConfigError
from mustcall.profiles import MeasuredProfile
from mustcall.profiles.toml_file import with_measured

__all__ = ["write_measured"]


def write_measured(profile: MeasuredProfile, file: Path) -> bool:
    """Put a profile into a mustcall.toml; tell whether that changed it. Raise `ConfigError` naming the fix.

    Everything else in the file stays byte for byte, its permissions too, and a link stays a link.
    """
    real = file.resolve()
    try:
        text = real.read_bytes().decode()
    except FileNotFoundError:
        raise ConfigError(f"there is no {file} to write to; `mustcall init` makes one") from None
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8 text") from None
    made = with_measured(text, profile, str(file))
    if made == text:
        return False
    try:
        _put(real, made.encode())
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}; it stays as it was") from None
    return True


def _put(file: Path, data: bytes) -> None:
    """Write a file beside this one and put it in its place."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as part:
            part.write(data)
            part.flush()
            os.fsync(part.fileno())
        Path(name).chmod(file.stat().st_mode & 0o7777)
        Path(name).replace(file)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
