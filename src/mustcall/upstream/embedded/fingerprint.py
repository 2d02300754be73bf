"""The SHA-256 of a model file: a measurement says by it which weights it ran, and no others are loaded under a name.

Every byte is read once; the result is kept in the user's cache under what the system tells of the file (device, inode,
size, times of change), so that a gigabyte is not read again for each run. A cache that cannot be used costs time only.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.upstream.artifacts.places import cache_directory
from mustcall.upstream.embedded.store import SCHEME, locate

__all__ = ["address_hash", "weights_hash"]

#: So many files are remembered; the one asked for longest ago is forgotten first.
_MOST_FILES = 100


def address_hash(base_url: str) -> str:
    """Return the SHA-256 of the model file an `embedded:` address means; empty for any other address."""
    source = base_url.removeprefix(f"{SCHEME}:")
    return weights_hash(locate(source).path) if source != base_url else ""


def weights_hash(file: Path, directory: Path | None = None) -> str:
    """Return the SHA-256 of a file in hex; raise `ConfigError` if it cannot be read or changes while it is.

    What is known is kept in `directory`, the user's cache by default.
    """
    known = (directory if directory is not None else cache_directory("models")) / ".hashes.json"
    try:
        identity = _identity(file)
        hashes = _read(known)
        found = hashes.pop(identity, None)
        if found is None:
            with file.open("rb") as data:
                found = hashlib.file_digest(data, "sha256").hexdigest()
            if _identity(file) != identity:
                raise ConfigError(f"the model file {file} changed while it was read; run the command again")
    except OSError as error:
        raise ConfigError(f"cannot read the model file {file}: {error.strerror}") from None
    _write(known, {**hashes, identity: found})
    return found


def _identity(file: Path) -> str:
    told = file.stat()
    return f"{told.st_dev}-{told.st_ino}-{told.st_size}-{told.st_mtime_ns}-{told.st_ctime_ns}"


def _read(known: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode(known.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _write(known: Path, hashes: dict[str, str]) -> None:
    part = known.with_name(f"{known.name}.{os.getpid()}.part")
    with suppress(OSError):
        known.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(msgspec.json.encode(dict(list(hashes.items())[-_MOST_FILES:])))
        part.replace(known)
