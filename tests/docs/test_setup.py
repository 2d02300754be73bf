"""docs/setup.md says what init, doctor and completion do: options, checks, lines, and configuration that loads."""

import json
import re
from pathlib import Path

from click.testing import CliRunner

from mustcall.cli import COMMANDS, cli
from mustcall.cli.setup import completion, doctor, init
from mustcall.gateway.config.checkup import CheckState
from mustcall.gateway.config.settings import load_settings
from mustcall.upstream.address import read_address
from mustcall.upstream.providers import PROVIDERS

PAGE = (Path(__file__).parents[2] / "docs" / "setup.md").read_text(encoding="utf-8")


def test_every_option_is_there() -> None:
    """Every option of init and doctor stands on the page."""
    for command in (init.command, doctor.command):
        for option in command.params:
            assert f"`{max(option.opts, key=len)}" in PAGE, option.opts


def test_every_provider_is_there() -> None:
    """Every provider has a row with its address and its variable."""
    for name, provider in PROVIDERS.items():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}:MODEL` |"))
        assert f"`{provider.base_url}`" in row
        assert provider.key_env is None or f"`{provider.key_env}`" in row


def test_examples_of_configuration_load(tmp_path: Path) -> None:
    """What stands on the page as mustcall.toml is one."""
    for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL):
        file = tmp_path / "mustcall.toml"
        file.write_text(block, encoding="utf-8")
        assert load_settings(file, environment={"OPENAI_API_KEY": "k"}).endpoints


def test_commands_and_upstreams_exist() -> None:
    """Every command on the page is one, and every upstream can be read."""
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL):
        for name in re.findall(r"^mustcall (\w+)", block, re.MULTILINE):
            assert name in COMMANDS
        for address in re.findall(r"--(?:upstream|proposer|critic) (\S+)", block):
            assert read_address(address)


def test_lines_of_completion() -> None:
    """The line for each shell is the one that `completion --help` prints."""
    shown = CliRunner().invoke(cli, ["completion", "--help"]).output
    lines: dict[str, str] = vars(completion)["_LINES"]
    for line in lines.values():
        command, _, place = line.partition("  # ")
        assert re.search(rf"^{re.escape(command)} +# {re.escape(place)}$", PAGE, re.MULTILINE)
        assert command in shown


def test_every_check_is_explained() -> None:
    """Every check and every state of `doctor --json` stands on the page."""
    told = CliRunner().invoke(cli, ["doctor", "--json", "--upstream", "up:chat=http://127.0.0.1:9/v1", "--port", "0"])
    for check in json.loads(told.stdout)["checks"]:
        assert f"`{check['name'].replace('upstream up', 'upstream NAME')}`" in PAGE
    for state in CheckState:
        assert f"`{state}`" in PAGE
