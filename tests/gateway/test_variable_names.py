"""Names of variables: every setting has one under its section, and a misspelt one is refused."""

from pathlib import Path
from typing import Any

import pytest

from mustcall.cli.inspecting.tables import where_kept
from mustcall.core.errors import ConfigError
from mustcall.gateway.config.settings import load_ledger, load_settings
from mustcall.ledger import default_place

UPSTREAM = '[[upstream]]\nname = "a"\nwire = "chat"\nbase_url = "http://127.0.0.1:9000/v1/"\n'
OFF = {"MUSTCALL_LEDGER": "off"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration file with one upstream."""
    made = tmp_path / "mustcall.toml"
    made.write_text(UPSTREAM, encoding="utf-8")
    return made


def test_settings_with_a_short_name_have_the_long_one_too(file: Path) -> None:
    """Host, port and place of the ledger go by the name of their section as every setting does."""
    env = {"MUSTCALL_SERVER_HOST": "127.0.0.3", "MUSTCALL_SERVER_PORT": "4321", "MUSTCALL_LEDGER_PLACE": "/l.db"}
    settings = load_settings(file, environment=env)
    assert (settings.server.host, settings.server.port) == ("127.0.0.3", 4321)
    assert settings.ledger is not None
    assert settings.ledger.place == load_ledger(file, environment=env).place == default_place(env) == "/l.db"
    assert load_settings(file, environment=env, port=5, host="127.0.0.4", ledger="off").server.port == 5


def test_commands_find_the_ledger_by_either_name(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that reads the ledger goes where the gateway goes, and reads no broken file on the way."""
    monkeypatch.chdir(file.parent)
    file.write_text("broken [")
    monkeypatch.delenv("MUSTCALL_LEDGER", raising=False)
    monkeypatch.setenv("MUSTCALL_LEDGER_PLACE", "/long.db")
    assert where_kept(None, None) == "/long.db"
    assert where_kept("/flag.db", None) == "/flag.db"


@pytest.mark.parametrize(
    ("short", "long", "values"),
    [
        ("MUSTCALL_HOST", "MUSTCALL_SERVER_HOST", ("127.0.0.1", "127.0.0.2")),
        ("MUSTCALL_PORT", "MUSTCALL_SERVER_PORT", ("1", "2")),
        ("MUSTCALL_LEDGER", "MUSTCALL_LEDGER_PLACE", ("/sekret-a.db", "/sekret-b.db")),
    ],
)
def test_two_names_for_one_setting(file: Path, short: str, long: str, values: tuple[str, str]) -> None:
    """Both may be set to the same, or one of them to nothing; a contradiction is refused and not shown."""
    with pytest.raises(ConfigError, match=f"{short} and {long} .* differ; unset one of them") as caught:
        load_settings(file, environment={**OFF, short: values[0], long: values[1]})
    assert "sekret" not in caught.value.message
    load_settings(file, environment={**OFF, short: values[0], long: values[0]})
    load_settings(file, environment={**OFF, short: values[0], long: ""})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("MUSTCALL_SERVER_PROT", "MUSTCALL_SERVER_PORT"),
        ("MUSTCALL_SERVER_CLIENT_KEYS", "MUSTCALL_CLIENT_KEYS"),
        ("MUSTCALL_SERVER_MAX_BODY_BYTE", "MUSTCALL_SERVER_MAX_BODY_BYTES"),
        ("MUSTCALL_LEDGER_PLAICE", "MUSTCALL_LEDGER_PLACE"),
        ("MUSTCALL_LEDGER_KEYS", "MUSTCALL_LEDGER_KEY"),
        ("MUSTCALL_LIMITS_EXTRACALLS", "MUSTCALL_LIMITS_EXTRA_CALLS"),
        ("MUSTCALL_LIMITS_KEY_CONCURENCY", "MUSTCALL_LIMITS_KEY_CONCURRENCY"),
        ("MUSTCALL_CONTRACT_LIMITS_EXTRA_CALLS", "MUSTCALL_LIMITS_EXTRA_CALLS"),
        ("MUSTCALL_CONTRACT_ONUNMET", "MUSTCALL_CONTRACT_ON_UNMET"),
        ("MUSTCALL_WORDING_TEXTCALL", "MUSTCALL_WORDING_TEXT_CALL"),
        ("MUSTCALL_PROBE_EVRY", "MUSTCALL_PROBE_EVERY"),
        ("MUSTCALL_BUDGET_COST", "MUSTCALL_BUDGET_COST_USD"),
        ("MUSTCALL_BREAKER_FAILURE", "MUSTCALL_BREAKER_FAILURES"),
        ("MUSTCALL_UPSTREAM_RETRY", "MUSTCALL_UPSTREAM_RETRIES"),
    ],
)
def test_a_misspelt_variable_is_refused(file: Path, name: str, meant: str) -> None:
    """A name under a section's prefix that is no setting is named, with the one that was probably meant."""
    with pytest.raises(ConfigError, match=f"^{name} is no variable of mustcall; did you mean '{meant}'"):
        load_settings(file, environment={**OFF, name: "1"})


@pytest.mark.parametrize("name", ["MUSTCALL_SERVER_QQQ", "MUSTCALL_UPSTREAM_BASE_URL", "MUSTCALL_CONTRACT_SESSION"])
def test_an_unknown_variable_is_refused(file: Path, name: str) -> None:
    """One that is like none, or has no variable, is refused too."""
    with pytest.raises(ConfigError, match=f"^{name} is no variable of mustcall"):
        load_settings(file, environment={**OFF, name: "1"})


def test_the_ledger_alone_refuses_its_own(file: Path) -> None:
    """What reads the ledger's settings alone refuses a misspelt one of them, and knows nothing of the others."""
    load_ledger(file, environment={"MUSTCALL_SERVER_PROT": "1"})
    with pytest.raises(ConfigError, match="did you mean 'MUSTCALL_LEDGER_PLACE'"):
        load_ledger(file, environment={"MUSTCALL_LEDGER_PLAICE": "1"})


@pytest.mark.parametrize(
    "environment",
    [
        {"MUSTCALL_TEST_MODEL": "real", "MUSTCALL_CHROMIUM": "x", "MUSTCALL_STATE": "x", "MUSTCALL_KEYS": "x"},
        {"MUSTCALL_LEDGER_KEY": "x", "MUSTCALL_CACHE": "x", "MUSTCALL_WATCH_STACKS": "1"},
        # What Kubernetes and Docker set for services called mustcall-server and mustcall-ledger.
        {"MUSTCALL_SERVER_SERVICE_HOST": "10.0.0.1", "MUSTCALL_SERVER_SERVICE_PORT_HTTP": "1"},
        {"MUSTCALL_LEDGER_PORT_5432_TCP_ADDR": "10.0.0.1", "MUSTCALL_LEDGER_PORT": "tcp://10.0.0.1:5432"},
        {"MUSTCALL_SERVER_PORT": "tcp://10.0.0.1:8484"},
        # A key that some other configuration names.
        {"MUSTCALL_UPSTREAM_OPENAI_KEY": "x", "MUSTCALL_SERVER_SECRET": "x"},
    ],
)
def test_variables_of_other_parts(file: Path, environment: dict[str, Any]) -> None:
    """What is not a section's, what an orchestrator sets, and keys under names of one's own are left alone."""
    assert load_settings(file, environment={**OFF, **environment}).server.port == 8484


def test_a_variable_that_the_file_names(file: Path) -> None:
    """A name that api_key_env, client_keys_env or --key-env gives a variable is no misspelling."""
    file.write_text(
        f'[server]\nclient_keys_env = "MUSTCALL_SERVER_CLIENTS"\n{UPSTREAM}api_key_env = "MUSTCALL_UPSTREAM_OPEN"\n'
    )
    env = {**OFF, "MUSTCALL_SERVER_CLIENTS": "k", "MUSTCALL_UPSTREAM_OPEN": "x"}
    settings = load_settings(file, environment=env)
    assert (settings.client_keys, settings.endpoints[0].api_key) == (("k",), "x")
    env = {**OFF, "MUSTCALL_UPSTREAM_OPEN": "x"}
    assert load_settings(upstream_flags=["openai:m"], key_env="MUSTCALL_UPSTREAM_OPEN", environment=env).endpoints
