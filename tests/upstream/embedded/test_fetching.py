"""Fetching weights: those of a name, or the default ones with a smaller model to fall back to."""

from pathlib import Path

import pytest

from mustcall.core.errors import FetchFailed
from mustcall.upstream.artifacts.values import RegistrySource, UrlSource
from mustcall.upstream.embedded.catalogue import CATALOGUE, DEFAULT, FALLBACK, Weights, find_weights
from mustcall.upstream.embedded.fetching import pull, pull_default
from mustcall.upstream.embedded.store import Store
from support.artifacts import CONTENT, artifact, serving


class Puller:
    """Fetches what it is told to, or fails as it is told to."""

    def __init__(self, *failing: str) -> None:
        self.failing = failing
        self.asked: list[str] = []
        self.notes: list[str] = []

    def __call__(self, weights: Weights) -> None:
        """Note what is asked for; fail if told so."""
        self.asked.append(weights.name)
        if weights.name in self.failing:
            raise FetchFailed(f"cannot fetch {weights.name}: nobody has it")


def test_pull_fetches_into_the_store(tmp_path: Path) -> None:
    """Weights are artifacts: fetched, checked, and then held by the store."""
    with serving() as server:
        server.files["/tiny.gguf"] = CONTENT
        found = artifact(UrlSource(url=f"{server.url}/tiny.gguf"))
        tiny = Weights(
            name=found.name,
            file=found.file,
            size=found.size,
            sha256=found.sha256,
            sources=found.sources,
            licence="none",
            about="for tests",
        )
        assert pull(tiny, Store(tmp_path)).read_bytes() == CONTENT
    assert Store(tmp_path).holds(tiny)


def test_the_default_is_enough(tmp_path: Path) -> None:
    """Where it can be fetched, nothing else is asked for or said."""
    puller = Puller()
    assert pull_default(Store(tmp_path), puller, puller.notes.append).name == DEFAULT
    assert (puller.asked, puller.notes) == ([DEFAULT], [])


def test_the_smaller_model_stands_in(tmp_path: Path) -> None:
    """Where the default cannot be fetched, one line says why and what is used instead."""
    puller = Puller(DEFAULT)
    assert pull_default(Store(tmp_path), puller, puller.notes.append).name == FALLBACK
    assert puller.asked == [DEFAULT, FALLBACK]
    (note,) = puller.notes
    assert f"cannot fetch {DEFAULT}: nobody has it" in note
    assert f"{FALLBACK} (98 MB) is used instead" in note


def test_the_smaller_model_is_not_fetched_where_it_is_here(tmp_path: Path) -> None:
    """What stands in may be here already."""
    store = Store(tmp_path)
    with store.path(find_weights(FALLBACK)).open("wb") as file:
        file.truncate(find_weights(FALLBACK).size)
    puller = Puller(DEFAULT)
    assert pull_default(store, puller, puller.notes.append).name == FALLBACK
    assert puller.asked == [DEFAULT]


def test_neither_can_be_fetched(tmp_path: Path) -> None:
    """The error says both reasons."""
    puller = Puller(DEFAULT, FALLBACK)
    with pytest.raises(FetchFailed, match=f"neither.*{DEFAULT}: nobody has it; cannot fetch {FALLBACK}"):
        pull_default(Store(tmp_path), puller, puller.notes.append)


@pytest.mark.parametrize("weights", CATALOGUE, ids=[weights.name for weights in CATALOGUE])
def test_the_pieces_of_the_catalogue_add_up(weights: Weights) -> None:
    """The pieces have the size of the whole, and the hub is asked before the index."""
    registries = [source for source in weights.sources if isinstance(source, RegistrySource)]
    assert [sum(piece.size for piece in source.pieces) for source in registries] == [weights.size]
    assert weights.sources[-1] is registries[0]
    assert len(weights.sha256) == 64
