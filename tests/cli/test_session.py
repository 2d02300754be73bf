"""The options that `chat`, `run` and `coordinate` share: which model in the process a name means."""

from pathlib import Path

import pytest

from mustcall.cli.asking.session import Flags, connector, opened, settings_of
from mustcall.core.errors import ConfigError
from mustcall.testing import ScriptedUpstream
from mustcall.upstream.embedded.catalogue import DEFAULT, FALLBACK, find_weights
from mustcall.upstream.embedded.store import WeightStore
from mustcall.upstream.schemes import SchemeTransport


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WeightStore:
    """A cache with the default model and the smallest one, as far as their sizes say, and nothing configured."""
    monkeypatch.setenv("MUSTCALL_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("MUSTCALL_CONFIG", "MUSTCALL_UPSTREAM"):
        monkeypatch.delenv(name, raising=False)
    store = WeightStore()
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


def test_a_named_model_that_is_not_here(cache: WeightStore) -> None:
    """The command that fetches it is said; no other model stands in."""
    cache.path(find_weights(FALLBACK)).unlink()
    with pytest.raises(ConfigError, match=f"mustcall models pull {FALLBACK}"):
        settings_of(Flags(model=FALLBACK))


async def test_another_model_in_the_middle_of_a_conversation(cache: WeightStore) -> None:
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


# --- shorthands ---------------------------------------------------------------------------------------------------


def test_a_shorthand_and_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider's own variable has the key, or the one that is named; a missing one is named in one sentence."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-o")
    monkeypatch.setenv("MINE", "sk-m")
    flags = Flags(upstreams=("openai:gpt-5",))
    assert settings_of(flags).endpoints[0].api_key == "sk-o"
    assert settings_of(Flags(upstreams=("openai:gpt-5",), key_env="MINE")).endpoints[0].api_key == "sk-m"
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not set"):
        settings_of(flags)
    by_host = Flags(upstreams=("chat=https://api.mistral.ai/v1",))
    monkeypatch.setenv("MISTRAL_API_KEY", "sk-x")
    assert settings_of(by_host).endpoints[0].api_key == "sk-x"
    assert settings_of(Flags(upstreams=("chat=http://api.mistral.ai/v1",))).endpoints[0].api_key is None


def test_the_model_of_an_upstream_is_asked() -> None:
    """An address with a model needs no list and no --model; --model stands over it; it can stand in its place."""
    with ScriptedUpstream(models=["a", "b"]) as upstream:
        address = f"up:chat={upstream.base_url}#b"
        for flags, expected in (
            (Flags(upstreams=(address,)), "b"),
            (Flags(model=address), "b"),
            (Flags(upstreams=(address,), model="c"), "c"),
            (Flags(upstreams=(f"chat={upstream.base_url}",)), "a"),
        ):
            with opened(flags) as session:
                assert session.conversation.model == expected
                assert session.conversation.upstream.model == expected
        assert [one.path for one in upstream.requests] == ["/v1/models"]


async def test_models_of_several_upstreams() -> None:
    """`/model NAME` finds the upstream whose model it is, and asks the first for any other, by that name."""
    transport = SchemeTransport()
    try:
        connect = connector(settings_of(Flags(upstreams=("ollama:qwen3", "vllm:big"))), transport)
        found = [connect(name) for name in ("qwen3", "big", "other")]
        assert [(one.endpoint.name, one.model) for one in found] == [
            ("ollama", "qwen3"),
            ("vllm", "big"),
            ("ollama", "other"),
        ]
    finally:
        await transport.close()
