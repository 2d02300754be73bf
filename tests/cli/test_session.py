"""The options that `chat`, `run` and `coordinate` share: which model in the process a name means."""

from pathlib import Path

import pytest

from mustcall.cli.session import Flags, connector, settings_of
from mustcall.core.errors import ConfigError
from mustcall.upstream.embedded.catalogue import DEFAULT, FALLBACK, find_weights
from mustcall.upstream.embedded.store import Store
from mustcall.upstream.schemes import SchemeTransport


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A cache with the default model and the smallest one, as far as their sizes say, and nothing configured."""
    monkeypatch.setenv("MUSTCALL_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("MUSTCALL_CONFIG", "MUSTCALL_UPSTREAM"):
        monkeypatch.delenv(name, raising=False)
    store = Store()
    store.directory.mkdir()
    for name in (DEFAULT, FALLBACK):
        with store.path(find_weights(name)).open("wb") as file:
            file.truncate(find_weights(name).size)
    return store


def addresses(flags: Flags) -> list[str]:
    """Return the addresses of a session's upstreams."""
    return [endpoint.base_url for endpoint in settings_of(flags).endpoints]


def test_a_model_in_the_process_by_its_name() -> None:
    """`--model` with a name of the catalogue selects these weights, also where the default ones are here."""
    assert addresses(Flags()) == [f"embedded:{DEFAULT}"]
    assert addresses(Flags(model=FALLBACK)) == [f"embedded:{FALLBACK}"]
    assert addresses(Flags(model="anything")) == [f"embedded:{DEFAULT}"]


def test_an_upstream_that_is_named_keeps_its_models() -> None:
    """Where an upstream is named, a model of the same name is that upstream's."""
    flags = Flags(model=FALLBACK, upstreams=("chat=http://127.0.0.1:9/v1",))
    assert addresses(flags) == ["http://127.0.0.1:9/v1"]


def test_a_named_model_that_is_not_here(cache: Store) -> None:
    """The command that fetches it is said; no other model stands in."""
    cache.path(find_weights(FALLBACK)).unlink()
    with pytest.raises(ConfigError, match=f"mustcall models pull {FALLBACK}"):
        settings_of(Flags(model=FALLBACK))


async def test_another_model_in_the_middle_of_a_conversation(cache: Store) -> None:
    """`/model NAME` changes to the weights of that name, if they are here."""
    transport = SchemeTransport()
    try:
        connect = connector(settings_of(Flags()), transport)
        assert connect("local").endpoint.base_url == f"embedded:{DEFAULT}"
        assert connect(FALLBACK).endpoint.base_url == f"embedded:{FALLBACK}"
        cache.path(find_weights(FALLBACK)).unlink()
        with pytest.raises(ConfigError, match="not here yet"):
            connect(FALLBACK)
    finally:
        await transport.close()
