"""Fetching weights: those of a name, or the default ones with a smaller model to fall back to."""

from pathlib import Path

import pytest

from mustcall.core.errors import FetchFailed
from mustcall.upstream.artifacts.values import RegistrySource, UrlSource
from mustcall.upstream.embedded.catalogue import CATALOGUE, DEFAULT, FALLBACK, Weights
from mustcall.upstream.embedded.fetching import pull, pull_default
from mustcall.upstream.embedded.store import WeightStore
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
        assert pull(tiny, WeightStore(tmp_path)).read_bytes() == CONTENT
    assert WeightStore(tmp_path).holds(tiny)


def test_the_default_is_enough() -> None:
    """Where it can be fetched, nothing else is asked for or said."""
    puller = Puller()
    assert pull_default(puller, puller.notes.append).name == DEFAULT
    assert (puller.asked, puller.notes) == ([DEFAULT], [])


def test_the_smaller_model_stands_in() -> None:
    """Where the default cannot be fetched, one line says why and what is used instead."""
    puller = Puller(DEFAULT)
    assert pull_default(puller, puller.notes.append).name == FALLBACK
    assert puller.asked == [DEFAULT, FALLBACK]
    (note,) = puller.notes
    assert f"cannot fetch {DEFAULT}: nobody has it" in note
    assert f"{FALLBACK} (98 MB), a much weaker model, is used instead" in note


def test_neither_can_be_fetched() -> None:
    """The error says why the smaller one failed; the note before it said why the default one did."""
    puller = Puller(DEFAULT, FALLBACK)
    with pytest.raises(
        FetchFailed, match=f"cannot fetch {FALLBACK}: nobody has it. {DEFAULT} could not be fetched either"
    ):
        pull_default(puller, puller.notes.append)


@pytest.mark.parametrize("weights", CATALOGUE, ids=[weights.name for weights in CATALOGUE])
def test_the_pieces_of_the_catalogue_add_up(weights: Weights) -> None:
    """The pieces have the size of the whole, and the hub is asked before the index."""
    registries = [source for source in weights.sources if isinstance(source, RegistrySource)]
    assert [sum(piece.size for piece in source.pieces) for source in registries] == [weights.size]
    assert weights.sources[-1] is registries[0]
    assert len(weights.sha256) == 64
