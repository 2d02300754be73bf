"""Where the benchmark's data comes from: the package its authors publish, fetched once and checked by its hash.

Only opened and read; never installed, imported or shipped. Its licence is Apache-2.0.
"""

from pathlib import Path

from mustcall.upstream.artifacts.fetching import Note, Watcher, fetch
from mustcall.upstream.artifacts.places import cache_directory
from mustcall.upstream.artifacts.values import Artifact, Piece, RegistrySource

__all__ = ["PACKAGE", "fetch_package"]

_SIZE = 1_925_664

PACKAGE = Artifact(
    name="the data of bfcl-eval 2026.3.23",
    file="bfcl_eval-2026.3.23-py3-none-any.whl",
    size=_SIZE,
    sha256="3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a",
    sources=(RegistrySource(pieces=(Piece(requirement="bfcl-eval==2026.3.23", size=_SIZE),)),),
)


def fetch_package(watch: Watcher | None = None, note: Note | None = None) -> Path:
    """Return the package in the user's cache, fetching it first if it is not there; raise `FetchFailed`."""
    return fetch(PACKAGE, cache_directory("evals"), watch, note)
