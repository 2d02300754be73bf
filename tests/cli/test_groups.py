"""Unknown commands and options are answered with the nearest; shells complete commands, options and providers."""

import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner, Result

from mustcall.cli import COMMANDS, cli
from mustcall.cli.setup.naming import UPSTREAM
from mustcall.upstream.providers import PROVIDERS
from support import warm


def invoke(*arguments: str) -> Result:
    """Run a command line in this process."""
    return CliRunner().invoke(cli, list(arguments), prog_name="mustcall")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["srve"], "No such command 'srve'. Did you mean 'serve'?"),
        (["chta"], "Did you mean 'chat'?"),
        (["models", "pul"], "No such command 'pul'. Did you mean 'pull'?"),
        (["config", "chek"], "Did you mean 'check'?"),
        (["ledger", "prun"], "Did you mean 'prune'?"),
        (["runs", "lst"], "Did you mean 'list'?"),
        (["profiles", "forgot"], "Did you mean 'forget'?"),
        (["zzzzzz"], "No such command 'zzzzzz'."),
        (["serve", "--upstraem", "x"], "'--upstream'"),
        (["models", "pull", "--hlep"], "'--help'"),
    ],
)
def test_did_you_mean(arguments: list[str], said: str) -> None:
    """A word nobody knows ends with exit code 2 and the word that was probably meant."""
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert said in done.output
    assert done.output.count("Did you mean") <= 1


def test_every_command_is_there() -> None:
    """Every name of the table has a module with a command of that name."""
    for name in COMMANDS:
        found = cli.get_command(click.Context(cli), name)
        assert found is not None
        assert found.name == name


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell: str) -> None:
    """The script of each shell asks mustcall in the way click answers."""
    done = invoke("completion", shell)
    assert done.exit_code == 0
    assert f"_MUSTCALL_COMPLETE={shell}_complete" in done.output


def complete(*words: str) -> list[str]:
    """Ask as the script of bash does."""
    asked = {"_MUSTCALL_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = warm.run(env={**os.environ, **asked})
    assert done.returncode == 0, done.stderr
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_a_shell_completes() -> None:
    """Commands, options and providers are completed."""
    assert complete("mustcall", "mo") == ["models"]
    assert "--upstream" in complete("mustcall", "serve", "--u")
    assert complete("mustcall", "serve", "--upstream", "ol") == ["ollama:"]


def test_completing_commands_imports_none() -> None:
    """A shell asks at every key: the list of commands comes from the table."""
    loaded = "import sys; from mustcall.cli import cli; import click\n"
    loaded += "found = [item.value for item in cli.shell_complete(click.Context(cli), '')]\n"
    loaded += "print(found[:2], 'mustcall.cli.setup.serve' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, timeout=180, check=True)  # noqa: S603  our own
    assert done.stdout.strip() == f"{list(COMMANDS)[:2]} False"


def test_every_provider_is_completed() -> None:
    """The completions of an upstream are the table's."""
    serve = cli.get_command(click.Context(cli), "serve")
    assert serve is not None
    found = UPSTREAM.shell_complete(click.Context(serve), serve.params[0], "")
    assert [item.value for item in found] == [f"{name}:" for name in PROVIDERS]


@pytest.mark.parametrize(
    ("arguments", "works"),
    [
        (["bench", "--quick"], "mustcall.cli.measuring.bench.run_bench"),
        (["doctor"], "mustcall.cli.setup.doctor.examine"),
        (["init"], "mustcall.cli.setup.init.find_offers"),
        (["config", "check"], "mustcall.cli.setup.config.load_settings"),
    ],
)
@pytest.mark.parametrize("stop", [KeyboardInterrupt, click.Abort])
def test_a_command_that_is_stopped_says_so(
    arguments: list[str], works: str, stop: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, also at a question, is exit code 130 and one line: other codes are about what a command found."""

    def stopped(*_: object, **__: object) -> None:
        raise stop

    monkeypatch.setattr(works, stopped)
    done = invoke(*arguments)
    assert (done.exit_code, done.stdout, done.stderr.strip()) == (130, "", "mustcall: stopped")
