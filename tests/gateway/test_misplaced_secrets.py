"""Keys written where a name or an address belongs: refused with what belongs there, and never shown."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from mustcall.cli import cli
from mustcall.cli.asking.session import with_key
from mustcall.cli.measuring.options import read_key
from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.gateway.config.first_config import plan_upstreams
from mustcall.gateway.config.settings import load_settings
from mustcall.upstream.address import read_address
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.variables import read_variable, shown_url

HEAD = '[[upstream]]\nname = "a"\nwire = "chat"\n'
#: Keys as providers write them; the last ones could be names of variables.
KEYS = (
    "sk-LITERAL-1234",
    "Bearer abc",
    "sk.ant",
    "9abc",
    "a b",
    "gsk_Zm9vYmFyYmF6cXV4MTIz",
    "hf_abcdefghijklmnopqrst12345",
)


@pytest.mark.parametrize("key", KEYS)
def test_a_key_in_place_of_a_name(tmp_path: Path, key: str) -> None:
    """Every setting and flag that names a variable says so, and does not repeat what it was given."""
    file = tmp_path / "mustcall.toml"
    file.write_text(f'{HEAD}base_url = "http://h/v1"\napi_key_env = "{key}"\n')
    keys_file = tmp_path / "keys.toml"
    keys_file.write_text(f'[server]\nclient_keys_env = "{key}"\n{HEAD}base_url = "http://h/v1"\n')
    endpoint = Endpoint(name="a", wire=Wire.CHAT, base_url="http://h/v1")
    for setting, attempt in (
        ("api_key_env", lambda: load_settings(file, environment={})),
        ("client_keys_env", lambda: load_settings(keys_file, environment={})),
        ("--key-env", lambda: load_settings(upstream_flags=["openai:m"], key_env=key, environment={})),
        ("--key-env", lambda: read_key(key)),
        ("--key-env", lambda: with_key(endpoint, key)),
    ):
        with pytest.raises(ConfigError, match=f"{setting} must be the NAME of an environment variable") as caught:
            attempt()
        assert key not in caught.value.message


@pytest.mark.parametrize("key", KEYS[:5])
def test_init_writes_no_key(tmp_path: Path, key: str) -> None:
    """`init --key-env` refuses what is no name, and writes no file."""
    with pytest.raises(ConfigError, match="--key-env must be the NAME"):
        plan_upstreams(["chat=http://h/v1"], {}, key_env=key)
    file = tmp_path / "m.toml"
    said = CliRunner().invoke(cli, ["init", "--upstream", "openai:m", "--key-env", key, "--out", str(file)])
    assert said.exit_code != 0
    assert key not in said.output + str(said.exception)
    assert not file.exists()


def test_a_plausible_name_is_shown_and_used() -> None:
    """A name of a variable is read even if it is long and has digits, and named where it is not set."""
    assert read_variable("my_service_api_key_number_2", "api_key_env", {"my_service_api_key_number_2": " k "}) == "k"
    with pytest.raises(ConfigError, match=r"^where: the environment variable A_KEY_2 \(api_key_env\) is not set$"):
        read_variable("A_KEY_2", "api_key_env", {"A_KEY_2": " "}, "where")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h:9000/v1?key=sekret", "http://h:9000/v1"),
        ("https://anna:sekret@h/v1#sekret", "https://h/v1"),
        ("http://anna:1/sekret@h/v1", "http://…"),
        ("http://anna:sek/ret@h/v1", "http://…"),
        ("http://h/v1?key=a@sekret", "http://h/v1"),
        ("http://[sekret/v1", "…"),
        ("ftp://h/v1", "ftp://h/v1"),
        ("h:9000/v1", "h:9000/v1"),
    ],
)
def test_what_is_shown_of_a_url(url: str, shown: str) -> None:
    """Scheme, host, port and path; less where a password may be one of them."""
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        *("http://h/v1?key=sekret", "http://h/v1?sekret=", "http://anna:sekret@h/v1", "http://h/v1#sekret"),
        *("http://anna:sekret/x@h/v1", "http://[sekret/v1", "http://h:sekret/v1"),
        *("ftp://h/v1?key=sekret", "http://h/v1/chat/completions?key=sekret"),
    ],
)
def test_a_key_in_an_address(tmp_path: Path, url: str) -> None:
    """An address with a query, a user or a wrong port is refused without them."""
    file = tmp_path / "mustcall.toml"
    file.write_text(f'{HEAD}base_url = "{url}"\n')
    with pytest.raises(ConfigError, match="base_url") as caught:
        load_settings(file, environment={})
    assert "sekret" not in caught.value.message


@pytest.mark.parametrize("url", ["http://h/v1?key=sekret", "chta=http://anna:sekret@h/v1", "http://anna:sek/ret@h/v1"])
def test_a_key_in_an_address_without_a_wire(url: str) -> None:
    """What was probably meant is said without query and user."""
    with pytest.raises(ConfigError, match="did you mean 'chat=http://h/v1'") as caught:
        read_address(url)
    assert "sek" not in caught.value.message


def test_the_doctor_shows_no_key(tmp_path: Path) -> None:
    """The doctor tells what belongs there; its fix names no variable that is none."""
    file = tmp_path / "mustcall.toml"
    file.write_text(f'{HEAD}base_url = "http://127.0.0.1:1/v1"\napi_key_env = "sk-LITERAL"\n')
    said = CliRunner().invoke(cli, ["doctor", "--config", str(file), "--ledger", "off"])
    assert "sk-LITERAL" not in said.output
    assert "api_key_env must be the NAME of an environment variable" in " ".join(said.output.split())
    assert "export" not in said.output
