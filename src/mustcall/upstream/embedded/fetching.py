"""Fetches weights into the store: those of a name, or the default ones with a smaller model to fall back to."""

from collections.abc import Callable
from pathlib import Path

from mustcall.core.errors import FetchFailed
from mustcall.upstream.artifacts.fetching import Note, Watcher, fetch
from mustcall.upstream.embedded.catalogue import DEFAULT, FALLBACK, Weights, find_weights
from mustcall.upstream.embedded.store import WeightStore, megabytes

__all__ = ["Note", "Watcher", "pull", "pull_default"]


def pull(weights: Weights, store: WeightStore, watch: Watcher | None = None, note: Note | None = None) -> Path:
    """Return where the weights are, fetching them if they are not there; raise `FetchFailed` or `ConfigError`."""
    return fetch(weights, store.directory, watch, note)


def pull_default(pull_one: Callable[[Weights], object], note: Note) -> Weights:
    """Return the default weights once `pull_one` has fetched them, else the fallback's, with a note that says why.

    Raise `FetchFailed` where neither can be had.
    """
    default, fallback = find_weights(DEFAULT), find_weights(FALLBACK)
    try:
        pull_one(default)
    except FetchFailed as failed:
        note(f"{failed.message}. {fallback.name} ({megabytes(fallback)}), a much weaker model, is used instead")
        try:
            pull_one(fallback)
        except FetchFailed as also:
            raise FetchFailed(f"{also.message}. {default.name} could not be fetched either") from None
        return fallback
    return default
