"""The user's cache of weights: what is in it, which weights are used where none are named, what an address means.

A file is in the store only whole and checked: it is made under another name and renamed. Nothing is fetched here.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.upstream.artifacts.places import ArtifactPlace, cache_directory
from mustcall.upstream.embedded.catalogue import CATALOGUE, DEFAULT, FALLBACK, Weights, find_weights

__all__ = [
    "SCHEME",
    "Located",
    "WeightStore",
    "address_for",
    "is_embedded",
    "is_weights",
    "locate",
    "megabytes",
    "named_address",
    "stand_in_note",
    "weights_without_name",
]

SCHEME = "embedded"


class Located(msgspec.Struct, frozen=True):
    """A model file that is there, and the name it goes by."""

    name: str
    path: Path
    #: The hash it must have, where it goes by a name of the catalogue.
    sha256: str = ""


class WeightStore:
    """The weights in one directory."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory if directory is not None else cache_directory("models")

    def path(self, weights: Weights) -> Path:
        """Return where these weights are, or would be."""
        return self._place(weights).path

    def part(self, weights: Weights) -> Path:
        """Return where a download of these weights grows."""
        return self._place(weights).part

    def holds(self, weights: Weights) -> bool:
        """Tell whether these weights are here."""
        return self._place(weights).held()

    def held(self) -> tuple[Weights, ...]:
        """Return the weights that are here."""
        return tuple(weights for weights in CATALOGUE if self.holds(weights))

    def remove(self, weights: Weights) -> int:
        """Remove these weights and what is left of a download of them; return the bytes freed."""
        return self._place(weights).remove()

    @contextmanager
    def lock(self, weights: Weights) -> Generator[None]:
        """Hold the store for these weights, across processes; whoever comes second waits."""
        with self._place(weights).lock():
            yield

    def _place(self, weights: Weights) -> ArtifactPlace:
        return ArtifactPlace(weights, self.directory)


def megabytes(weights: Weights) -> str:
    """Return the size of weights for messages."""
    return f"{weights.size / 1e6:.0f} MB"


def is_weights(name: str) -> bool:
    """Tell whether this is a name of the catalogue."""
    return any(weights.name == name for weights in CATALOGUE)


def weights_without_name(store: WeightStore | None = None) -> Weights:
    """Return the weights used where none are named: the default ones, or the fallback's where only those are here."""
    kept = store or WeightStore()
    default, fallback = find_weights(DEFAULT), find_weights(FALLBACK)
    return fallback if kept.holds(fallback) and not kept.holds(default) else default


def stand_in_note(used: Weights) -> str | None:
    """Return the line for whoever named no weights and gets the fallback's; None where it is the default ones."""
    default = find_weights(DEFAULT)
    if used.name == default.name:
        return None
    return (
        f"{used.name} is used because {default.name}, the default, is not here; it is much better and is fetched once "
        f"({megabytes(default)}) with: mustcall models pull"
    )


def locate(source: str, store: WeightStore | None = None) -> Located:
    """Return the model file an `embedded:` address means: a name of the catalogue, or the path of a GGUF file.

    No name means `weights_without_name`. Raise `ConfigError` with the command that helps where the file is not there.
    """
    if _is_path(source):
        path = Path(source).expanduser()
        if not path.is_file():
            raise ConfigError(f"there is no model file at {path}")
        if not _is_gguf(path):
            raise ConfigError(f"the file {path} is no model: it does not begin as a GGUF file does")
        return Located(path.stem, path)
    kept = store or WeightStore()
    weights = find_weights(source) if source else weights_without_name(kept)
    if not kept.holds(weights):
        raise ConfigError(
            f"the weights of {weights.name} are not here yet ({megabytes(weights)}); fetch them once with: "
            f"{_command(weights)}"
        )
    return Located(weights.name, kept.path(weights), weights.sha256)


def is_embedded(base_url: str) -> bool:
    """Tell whether an address is that of a model in this process."""
    return base_url.startswith(f"{SCHEME}:")


def named_address(base_url: str) -> str:
    """Return the address with the model's name, by which its profile is known, where it is `embedded:` without one."""
    return f"{SCHEME}:{weights_without_name().name}" if base_url == f"{SCHEME}:" else base_url


def address_for(base_url: str, model: str) -> str:
    """Return the address that serves a model: a name of the catalogue replaces the one `embedded:NAME` names.

    Other addresses are returned as they are. Raise `ConfigError` where these weights are not here.
    """
    named = base_url.removeprefix(f"{SCHEME}:")
    if named == base_url or not is_weights(named) or not is_weights(model):
        return base_url
    return f"{SCHEME}:{locate(model).name}"


def _command(weights: Weights) -> str:
    if weights.name != DEFAULT:
        return f"mustcall models pull {weights.name}"
    small = find_weights(FALLBACK)
    return f"mustcall models pull (or, {megabytes(small)} and much weaker: mustcall models pull {small.name})"


def _is_gguf(path: Path) -> bool:
    """Tell whether a file begins as a GGUF file does; one that cannot be read is left to the engine's own words."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return True


def _is_path(source: str) -> bool:
    return "/" in source or "\\" in source or source.endswith(".gguf")
