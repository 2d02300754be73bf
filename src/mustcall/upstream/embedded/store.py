"""The user's cache of weights: where it is, what is in it, and what an `embedded:` address means.

A file is in the store only whole and checked: it is made under another name and renamed. Nothing is fetched here.
"""

import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.upstream.embedded.catalogue import CATALOGUE, DEFAULT, Weights, find_weights

__all__ = ["SCHEME", "Located", "Store", "cache_directory", "locate"]

SCHEME = "embedded"


class Located(msgspec.Struct, frozen=True):
    """A model file that is there, and the name it goes by."""

    name: str
    path: Path


def cache_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Return the directory weights are kept in: `$MUSTCALL_CACHE`, else the platform's cache for this user."""
    env = os.environ if environment is None else environment
    own = env.get("MUSTCALL_CACHE")
    if own:
        return Path(own).expanduser() / "models"
    home = Path.home()
    if sys.platform == "win32":
        base = Path(env.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "mustcall" / "models"


class Store:
    """The weights in one directory."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory if directory is not None else cache_directory()

    def path(self, weights: Weights) -> Path:
        """Return where these weights are, or would be."""
        return self.directory / weights.file

    def part(self, weights: Weights) -> Path:
        """Return where a download of these weights grows; its name has the hash, so another version starts afresh."""
        return self.directory / f".{weights.file}.{weights.sha256[:12]}.part"

    def holds(self, weights: Weights) -> bool:
        """Tell whether these weights are here. Only what was checked is ever put in place; the size is looked at."""
        try:
            return self.path(weights).stat().st_size == weights.size
        except OSError:
            return False

    def held(self) -> tuple[Weights, ...]:
        """Return the weights that are here."""
        return tuple(weights for weights in CATALOGUE if self.holds(weights))

    def remove(self, weights: Weights) -> int:
        """Remove these weights and what is left of a download of them; return the bytes freed."""
        freed = 0
        with self.lock(weights):
            for path in (self.path(weights), self.part(weights)):
                if path.is_file():
                    freed += path.stat().st_size
                    path.unlink()
        return freed

    @contextmanager
    def lock(self, weights: Weights) -> Generator[None]:
        """Hold the store for these weights, across processes; whoever comes second waits.

        The lock is the system's own, so one that a dead process held is free again.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            handle = (self.directory / f".{weights.file}.lock").open("a+b")
        except OSError as error:
            raise ConfigError(
                f"cannot keep weights in {self.directory}: {error.strerror}; set MUSTCALL_CACHE to a directory that "
                "can be written to"
            ) from None
        with handle:
            _lock(handle.fileno())
            yield


def _lock(descriptor: int) -> None:
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415  this platform's own

        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
    else:
        import fcntl  # noqa: PLC0415  the other platforms' own

        fcntl.flock(descriptor, fcntl.LOCK_EX)


def locate(source: str, store: Store | None = None) -> Located:
    """Return the model file an `embedded:` address means: a name of the catalogue, or the path of a GGUF file.

    Raise `ConfigError` with the command that helps where the file is not there.
    """
    if _is_path(source):
        path = Path(source).expanduser()
        if not path.is_file():
            raise ConfigError(f"there is no model file at {path}")
        if not _is_gguf(path):
            raise ConfigError(f"the file {path} is no model: it does not begin as a GGUF file does")
        return Located(path.stem, path)
    weights = find_weights(source or DEFAULT)
    kept = store or Store()
    if not kept.holds(weights):
        command = "mustcall models pull" if weights.name == DEFAULT else f"mustcall models pull {weights.name}"
        raise ConfigError(
            f"the weights of {weights.name} are not here yet ({weights.size / 1e6:.0f} MB); fetch them once with: "
            f"{command}"
        )
    return Located(weights.name, kept.path(weights))


def _is_gguf(path: Path) -> bool:
    """Tell whether a file begins as a GGUF file does; one that cannot be read is left to the engine's own words."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return True


def _is_path(source: str) -> bool:
    return "/" in source or "\\" in source or source.endswith(".gguf")
