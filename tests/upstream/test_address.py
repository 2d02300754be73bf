"""How an upstream is named in one word: wires and URLs, providers' shorthands, and what was probably meant."""

import re
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.upstream.address import Address, is_address, read_address
from mustcall.upstream.providers import EMBEDDED, PROVIDERS, find_key, local_providers, provider_at

WORDS = st.text(st.characters(codec="ascii", categories=("Ll", "Nd")), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("chat=http://h/v1", Address(wire=Wire.CHAT, base_url="http://h/v1")),
        ("x:messages=https://h", Address(name="x", wire=Wire.MESSAGES, base_url="https://h")),
        ("vllm:chat=http://gpu/v1", Address(name="vllm", wire=Wire.CHAT, base_url="http://gpu/v1")),
        ("chat=http://h/v1#qwen3:8b", Address(wire=Wire.CHAT, base_url="http://h/v1", model="qwen3:8b")),
        ("chat=http://h/v1?a=b", Address(wire=Wire.CHAT, base_url="http://h/v1?a=b")),
        ("chat=embedded:", Address(wire=Wire.CHAT, base_url="embedded:")),
    ],
)
def test_a_wire_and_a_url(text: str, expected: Address) -> None:
    """A wire decides, also behind a name that is a provider's."""
    assert read_address(text) == expected
    assert is_address(text)


@pytest.mark.parametrize(
    ("text", "base_url", "wire", "model"),
    [
        ("openai:gpt-5", "https://api.openai.com/v1", Wire.RESPONSES, "gpt-5"),
        ("anthropic:claude-haiku-5-5", "https://api.anthropic.com/v1", Wire.MESSAGES, "claude-haiku-5-5"),
        ("openrouter:meta/llama:free", "https://openrouter.ai/api/v1", Wire.CHAT, "meta/llama:free"),
        ("ollama:qwen3:8b", "http://127.0.0.1:11434/v1", Wire.CHAT, "qwen3:8b"),
        ("vllm:Qwen/Qwen3-8B", "http://127.0.0.1:8000/v1", Wire.CHAT, "Qwen/Qwen3-8B"),
        ("ollama:", "http://127.0.0.1:11434/v1", Wire.CHAT, ""),
        ("ollama", "http://127.0.0.1:11434/v1", Wire.CHAT, ""),
        ("embedded:smollm2-135m", "embedded:smollm2-135m", Wire.CHAT, ""),
        ("embedded", "embedded:", Wire.CHAT, ""),
    ],
)
def test_shorthands(text: str, base_url: str, wire: Wire, model: str) -> None:
    """A provider's name and a model are an address, whatever signs the model's name has."""
    found = read_address(text)
    assert (found.base_url, found.wire, found.model, found.name) == (base_url, wire, model, "")
    assert found.provider is PROVIDERS[text.partition(":")[0]]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("opnai:gpt-5", "openai:gpt-5"),
        ("OpenAI:gpt-5", "openai:gpt-5"),
        ("antropic", "anthropic"),
        ("llama.cpp:m", "llamacpp:m"),
        ("lm-studio:m", "lmstudio:m"),
        ("http://127.0.0.1:9000/v1", "chat=http://127.0.0.1:9000/v1"),
        ("fast:chatt=http://h/v1", "fast:chat=http://h/v1"),
        ("message=http://h/v1", "messages=http://h/v1"),
    ],
)
def test_did_you_mean(text: str, meant: str) -> None:
    """What is nearly an address is refused with the one that was meant."""
    with pytest.raises(ConfigError, match=r"wire=URL") as caught:
        read_address(text)
    assert caught.value.message.endswith(f"did you mean {meant!r}?")


def test_nothing_near() -> None:
    """What is like nothing is refused with everything there is, in one line."""
    with pytest.raises(ConfigError) as caught:
        read_address("zzzzzzzz")
    for word in ("'zzzzzzzz'", *Wire, *PROVIDERS):
        assert word in caught.value.message
    assert "\n" not in caught.value.message


def test_complaints_show_no_password() -> None:
    """A URL with a user in it is shown without."""
    with pytest.raises(ConfigError) as caught:
        read_address("https://ada:sekret@h/v1")
    assert "sekret" not in caught.value.message


def test_a_models_name_is_no_address() -> None:
    """Only a wire or a known provider makes an address of a word that may as well be a model's name."""
    assert not any(map(is_address, ("qwen3:8b", "gpt-5", "openai", "meta/llama:free", "")))
    assert all(map(is_address, ("openai:gpt-5", "ollama:", "a:chat=http://h", "responses=http://h")))


@given(st.text(max_size=80))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    """Nothing but `ConfigError` comes out, and what is taken for an address can be read."""
    if is_address(text) or text in PROVIDERS:
        assert read_address(text).wire in list(Wire)
    else:
        with pytest.raises(ConfigError, match="provider:model"):
            read_address(text)


@given(st.sampled_from([one for one in PROVIDERS.values() if one is not EMBEDDED]), st.text(max_size=40))
def test_every_provider_with_any_model(provider: object, model: str) -> None:
    """The model is everything behind the first colon, unless it ends in a wire and a URL."""
    assert provider in PROVIDERS.values()
    name = next(name for name, one in PROVIDERS.items() if one is provider)
    found = read_address(f"{name}:{model}")
    if found.provider is not None:
        assert (found.provider, found.model) == (provider, model)
    else:
        assert re.match(rf"(?:[^=]*:)?(?:{'|'.join(Wire)})=", model)


@given(WORDS, st.sampled_from(list(Wire)), WORDS, st.text(max_size=20))
def test_parts_come_back(name: str, wire: Wire, host: str, model: str) -> None:
    """Name, wire, URL and model are what was written."""
    found = read_address(f"{name}:{wire}=http://{host}/v1#{model}")
    assert found == Address(name=name, wire=wire, base_url=f"http://{host}/v1", model=model)


# --- the table ----------------------------------------------------------------------------------------------------


def test_the_table_is_sound() -> None:
    """Names need no quoting, hosted ones are on TLS and need a key, local ones have a port of their own."""
    for name, provider in PROVIDERS.items():
        assert re.fullmatch(r"[a-z]+", name)
        assert name not in list(Wire)
        assert provider.needs_key == provider.base_url.startswith("https://")
        assert provider.key_env is None or re.fullmatch(r"[A-Z_]+", provider.key_env)
        assert provider.key_env is not None or not provider.needs_key
        assert not provider.base_url.endswith("/")
    ports = [provider.port for provider in local_providers()]
    assert sorted(filter(None, ports)) == [1234, 4000, 8000, 8080, 11434, 30000]


def test_keys() -> None:
    """A key comes from the provider's variable; one that is needed and unset is one sentence with its name."""
    openai, vllm = PROVIDERS["openai"], PROVIDERS["vllm"]
    assert find_key(openai, "upstream 'o'", {"OPENAI_API_KEY": " sk-1 \n"}) == "sk-1"
    assert find_key(vllm, "upstream 'v'", {}) is None
    assert find_key(vllm, "upstream 'v'", {"VLLM_API_KEY": "k"}) == "k"
    with pytest.raises(
        ConfigError, match=r"^upstream 'o': the environment variable OPENAI_API_KEY is not set; [^.;]*$"
    ):
        find_key(openai, "upstream 'o'", {"OPENAI_API_KEY": "  "})


def test_a_provider_by_its_host() -> None:
    """Only the provider's own host over TLS is the provider."""
    for provider in PROVIDERS.values():
        if provider.needs_key:
            assert provider_at(provider.base_url) is provider
            assert provider_at(f"http://{urlsplit(provider.base_url).hostname}/v1") is None
    assert provider_at("https://api.openai.com.evil.example/v1") is None
    assert provider_at("http://[") is None
    assert provider_at("embedded:") is None
