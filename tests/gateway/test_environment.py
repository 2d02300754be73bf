"""Variables of the environment: empty ones, ones of other names, and ones that contradict another or the file."""

from pathlib import Path

import pytest

from mustcall.core.errors import ConfigError
from mustcall.gateway.config.settings import load_settings

UPSTREAM = '[[upstream]]\nname = "a"\nwire = "chat"\nbase_url = "http://127.0.0.1:9000/v1/"\n'


def write(folder: Path, text: str = "") -> Path:
    """A configuration file with one upstream."""
    file = folder / "mustcall.toml"
    file.write_text(text + UPSTREAM, encoding="utf-8")
    return file


def test_an_empty_address_is_no_address(tmp_path: Path) -> None:
    """An empty variable counts as unset: the gateway does not listen on every interface because of it."""
    file = write(tmp_path, '[server]\nhost = "127.0.0.2"\nport = 1234\n')
    server = load_settings(file, environment={"MUSTCALL_HOST": "", "MUSTCALL_PORT": ""}).server
    assert (server.host, server.port) == ("127.0.0.2", 1234)
    assert load_settings(write(tmp_path), environment={"MUSTCALL_HOST": " "}).server.host == "127.0.0.1"


@pytest.mark.parametrize("host", ["", "  "])
def test_an_empty_host_is_refused(tmp_path: Path, host: str) -> None:
    """An empty host in the file or as a flag is a mistake, with the value for every interface named."""
    with pytest.raises(ConfigError, match=r"server: host is empty; write 127\.0\.0\.1, or 0\.0\.0\.0 for every"):
        load_settings(write(tmp_path, f'[server]\nhost = "{host}"\n'), environment={})
    with pytest.raises(ConfigError, match="server: host is empty"):
        load_settings(write(tmp_path), host=host, environment={})


@pytest.mark.parametrize("keys", ["", " ", ",", " , "])
@pytest.mark.parametrize("section", ["", '[server]\nclient_keys_env = "KEYS"\n'])
def test_client_keys_without_a_key_are_refused(tmp_path: Path, keys: str, section: str) -> None:
    """A variable of client keys that holds none does not open the gateway to everybody."""
    with pytest.raises(ConfigError, match=r"variable MUSTCALL_CLIENT_KEYS holds no key; .* unset it"):
        load_settings(write(tmp_path, section), environment={"MUSTCALL_CLIENT_KEYS": keys, "KEYS": "k"})


def test_client_keys_of_the_environment_override_those_of_the_file(tmp_path: Path) -> None:
    """MUSTCALL_CLIENT_KEYS wins over client_keys_env of the file, whose variable is not needed then."""
    file = write(tmp_path, '[server]\nclient_keys_env = "KEYS"\n')
    for env in ({"KEYS": "of-the-file"}, {}):
        settings = load_settings(file, environment={"MUSTCALL_CLIENT_KEYS": "mine, other", **env})
        assert settings.client_keys == ("mine", "other")
    assert load_settings(file, environment={"KEYS": "of-the-file"}).client_keys == ("of-the-file",)
