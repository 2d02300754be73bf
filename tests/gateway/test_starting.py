"""The first configuration: what is planned from addresses, that its text loads, and the lines for each client."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.gateway.config.client_setup import client_lines
from mustcall.gateway.config.first_config import FirstUpstream, compose, plan_upstreams, quoted
from mustcall.gateway.config.settings import ServerSettings, load_settings
from mustcall.upstream.providers import EMBEDDED, PROVIDERS

WRITABLE = st.text(st.characters(codec="utf-8"))


def loaded(text: str, folder: Path, **environment: str) -> list[tuple[str, Wire, str, str, str | None]]:
    """What a gateway reads from a text."""
    file = folder / "mustcall.toml"
    file.write_text(text, encoding="utf-8")
    settings = load_settings(file, environment=environment)
    return [(one.name, one.wire, one.base_url, one.model, one.api_key) for one in settings.endpoints]


@pytest.mark.parametrize("name", [name for name in PROVIDERS if name != EMBEDDED.name])
def test_every_provider_loads_as_it_is_written(name: str, tmp_path: Path) -> None:
    """What is written for a shorthand is what the shorthand itself means to the gateway."""
    keys = {provider.key_env: "k" for provider in PROVIDERS.values() if provider.key_env}
    text = compose(plan_upstreams([f"{name}:some/model:1"], keys), ServerSettings())
    meant = load_settings(upstream_flags=[f"{name}:some/model:1"], environment=keys).endpoints[0]
    assert loaded(text, tmp_path, **keys) == [(name, meant.wire, meant.base_url, "some/model:1", meant.api_key)]


def test_several(tmp_path: Path) -> None:
    """Several upstreams each get a table and a name; a URL of a provider gets the provider's variable."""
    addresses = ["openai:gpt-5", "openai:o9", "fast:chat=http://gpu:8000/v1#q", "chat=https://api.mistral.ai/v1"]
    planned = plan_upstreams(addresses, {})
    assert [(one.name, one.model, one.key_env) for one in planned] == [
        ("openai", "gpt-5", "OPENAI_API_KEY"),
        ("openai2", "o9", "OPENAI_API_KEY"),
        ("fast", "q", None),
        ("chat", "", "MISTRAL_API_KEY"),
    ]
    text = compose(planned, ServerSettings(host="0.0.0.0", port=9))  # noqa: S104  written, not bound
    assert len(loaded(text, tmp_path, OPENAI_API_KEY="k", MISTRAL_API_KEY="k")) == 4
    assert tomllib.loads(text)["server"] == {"host": "0.0.0.0", "port": 9}  # noqa: S104  as above


def test_a_variable_of_ones_own() -> None:
    """The variable that is named is written down, whether it is set or not; optional ones only if they are set."""
    assert plan_upstreams(["openai:m"], {}, key_env="MINE")[0].key_env == "MINE"
    assert plan_upstreams(["vllm:m"], {})[0].key_env is None
    assert plan_upstreams(["vllm:m"], {"VLLM_API_KEY": "k"})[0].key_env == "VLLM_API_KEY"


@pytest.mark.parametrize(
    ("addresses", "words"),
    [
        (["opnai:m"], "did you mean 'openai:m'"),
        (["chat=ftp://h"], "base_url must be an http"),
        (["chat=http://h/v1/chat/completions"], "must end before"),
        (["a:chat=http://h", "a:chat=http://i"], "two upstreams are called 'a'"),
    ],
)
def test_what_could_not_be_served_is_not_written(addresses: list[str], words: str) -> None:
    """An address that the gateway would refuse is refused before."""
    with pytest.raises(ConfigError, match=words):
        plan_upstreams(addresses, {})


@pytest.mark.parametrize("addresses", [["ollama:"], ["openai:gpt-5"], ["ollama:a", "vllm:b"]])
def test_settings_that_are_switched_off_work(addresses: list[str], tmp_path: Path) -> None:
    """Every line behind a `#` without a blank is a setting that loads once the sign is gone."""
    text = compose(plan_upstreams(addresses, {}), ServerSettings())
    on = re.sub(r"^#(?=\S)", "", text, flags=re.MULTILINE)
    keys = {"MUSTCALL_KEYS": "k", "SOME_KEY": "k", "OPENAI_API_KEY": "k"}
    read = tomllib.loads(on)
    assert {"server", "upstream", "route", "grounding", "budget", "ledger"} == set(read)
    if addresses == ["openai:gpt-5"]:  # the example's name is free
        assert len(loaded(on, tmp_path, **keys)) == 2
    assert text.count("\n#") > 10
    assert max(map(len, text.splitlines())) <= 120


def test_no_key_is_written() -> None:
    """The file has the names of variables and no key."""
    text = compose(plan_upstreams(["openai:m"], {"OPENAI_API_KEY": "sk-sekret"}), ServerSettings())
    assert "sekret" not in text


@given(WRITABLE)
def test_text_comes_back(text: str) -> None:
    """Any text is a string of TOML."""
    assert tomllib.loads(f"x = {quoted(text)}") == {"x": text}


@given(WRITABLE, WRITABLE)
def test_any_model_is_written_safely(name: str, model: str) -> None:
    """Quotes, line breaks and brackets in a name cannot change the file."""
    upstream = FirstUpstream(name=name, wire=Wire.CHAT, base_url="http://h/v1", model=model)
    (table,) = tomllib.loads(compose([upstream], ServerSettings()))["upstream"]
    assert (table["name"], table.get("model", "")) == (name, model)


def test_what_no_file_can_hold() -> None:
    """Bytes of the command line that are no text are refused."""
    with pytest.raises(ConfigError, match="is not text"):
        quoted("a\udcff")


# --- clients ------------------------------------------------------------------------------------------------------


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), min_size=1))
def test_lines_of_clients(model: str) -> None:
    """Files for clients are what they are called, commands are one line, and all name the gateway and the model."""
    lines = {client.name: client for client in client_lines("http://127.0.0.1:8484", model)}
    codex = tomllib.loads(lines["Codex"].text)
    assert (codex["model"], codex["model_provider"]) == (model, "mustcall")
    assert codex["model_providers"]["mustcall"]["base_url"] == "http://127.0.0.1:8484/v1"
    assert codex["model_providers"]["mustcall"]["wire_api"] == "responses"
    opencode = json.loads(lines["opencode"].text)
    assert opencode["model"] == f"mustcall/{model}"
    assert opencode["provider"]["mustcall"]["options"]["baseURL"] == "http://127.0.0.1:8484/v1"
    assert list(opencode["provider"]["mustcall"]["models"]) == [model]
    claude = shlex.split(lines["Claude Code"].text)
    assert claude[0] == "ANTHROPIC_BASE_URL=http://127.0.0.1:8484"
    assert claude[-2:] == [f"ANTHROPIC_MODEL={model}", "claude"]
    compile(lines["Python"].text, "client", "exec")
