"""`mustcall init`: a file that serves, written whole or not at all, with and without somebody to ask."""

import os
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mustcall.cli import cli
from mustcall.core.errors import ConfigError
from mustcall.gateway.config.settings import load_settings
from mustcall.testing import RunningGateway, Say, ScriptedUpstream, Turn
from mustcall.upstream.providers import PROVIDERS
from support import warm
from support.http import post
from support.loopback import PROXY_VARIABLES
from support.ports import closed_port
from support.terminal import CTRL_C, PseudoTerminal

Init = Callable[..., Result]
KEYS = [provider.key_env for provider in PROVIDERS.values() if provider.key_env]


@pytest.fixture
def init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Init:
    """The command in a folder of its own, without keys, settings or proxies, and without a terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MUSTCALL_CACHE", str(tmp_path / "cache"))
    proxies = [*PROXY_VARIABLES, *(name.upper() for name in PROXY_VARIABLES)]
    for name in ("MUSTCALL_CONFIG", "MUSTCALL_UPSTREAM", *proxies, *KEYS):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["init", *arguments], prog_name="mustcall")

    return call


def test_a_file_that_serves(init: Init, tmp_path: Path) -> None:
    """What init writes for a server it found is served, with the server's model for every name."""
    with ScriptedUpstream([Turn(Say("Hi."))], models=["small"]) as upstream:
        done = init("--yes", "--ports", f"{closed_port()},{upstream.port}")
        assert done.exit_code == 0, done.output
        settings = load_settings(tmp_path / "mustcall.toml", ledger="off")
        with RunningGateway(settings=settings) as gateway:
            body = {"model": "claude-opus-4", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}
            assert post(f"{gateway.base_url}/messages", body).json["content"][0]["text"] == "Hi."
        assert upstream.requests[-1].body["model"] == "small"
    checked = CliRunner().invoke(cli, ["config", "check"])
    assert (checked.exit_code, checked.output.splitlines()[-1]) == (0, "ok")
    assert "any other model -> server as small" in checked.output


def test_the_lines_for_clients(init: Init) -> None:
    """The lines for Claude Code, Codex, opencode and the SDKs are printed, with the address and the model."""
    shown = init("--upstream", "ollama:qwen3:8b", "--port", "9191").stdout
    for line in (
        "ANTHROPIC_BASE_URL=http://127.0.0.1:9191 ANTHROPIC_AUTH_TOKEN=any ANTHROPIC_MODEL=qwen3:8b claude",
        'base_url = "http://127.0.0.1:9191/v1"',
        'wire_api = "responses"',
        '"baseURL": "http://127.0.0.1:9191/v1"',
        "OPENAI_BASE_URL=http://127.0.0.1:9191/v1",
        "mustcall serve",
        "mustcall doctor",
    ):
        assert line in shown
    for client in ("Claude Code", "Codex", "opencode", "OpenAI SDKs", "Anthropic SDKs", "Python"):
        assert f"\n{client}" in shown


@pytest.mark.parametrize(
    ("models", "shown"),
    [(["org/small:8b"], "org/small:8b"), (["a", "b"], "MODEL"), ([], "MODEL"), (["$(touch x)"], "MODEL")],
)
def test_lines_for_clients_name_the_one_model_of_a_server(init: Init, models: list[str], shown: str) -> None:
    """The server is asked for its list, once; where that does not tell, or is no name, the word to replace is named."""
    with ScriptedUpstream(models=models) as upstream:
        done = init("--upstream", f"chat={upstream.base_url}")
        assert [(one.method, one.path) for one in upstream.requests] == [("GET", "/v1/models")]
    assert f"ANTHROPIC_MODEL={shown} claude" in done.stdout
    assert ("replace MODEL by the model's name:" in done.stdout) is (shown == "MODEL")
    assert "#model =" in Path("mustcall.toml").read_text(encoding="utf-8")


def test_no_key_is_sent_for_the_lines_of_clients(init: Init, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upstream with a key is not asked, and one that is down leaves the word."""
    monkeypatch.setenv("THE_KEY", "sekret")
    with ScriptedUpstream(models=["small"]) as upstream:
        done = init("--upstream", f"chat={upstream.base_url}", "--key-env", "THE_KEY")
        assert not upstream.requests
    down = init("--upstream", f"chat={upstream.base_url}", "--force")
    for told in (done, down):
        assert told.exit_code == 0
        assert "replace MODEL by the model's name:" in told.stdout


def test_several_models_are_left_to_callers(init: Init, tmp_path: Path) -> None:
    """A server with several models keeps them all; --model chooses one."""
    with ScriptedUpstream(models=["a", "b"]) as upstream:
        assert init("--yes", "--ports", str(upstream.port)).exit_code == 0
        assert load_settings(tmp_path / "mustcall.toml", ledger="off").endpoints[0].model == ""
        assert init("--yes", "--ports", str(upstream.port), "--model", "b", "--force").exit_code == 0
        assert load_settings(tmp_path / "mustcall.toml", ledger="off").endpoints[0].model == "b"


def test_a_key_in_the_environment(init: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no server runs, a provider whose key is set is taken, and the key is neither written nor shown."""
    monkeypatch.setenv("MISTRAL_API_KEY", "sekret")
    done = init("--yes", "--ports", str(closed_port()))
    text = (tmp_path / "mustcall.toml").read_text(encoding="utf-8")
    assert "Mistral (MISTRAL_API_KEY is set)" in done.output
    assert tomllib.loads(text)["upstream"][0]["api_key_env"] == "MISTRAL_API_KEY"
    assert "sekret" not in text + done.output


def test_nothing_anywhere(init: Init, tmp_path: Path) -> None:
    """With no server and no key it is the model inside the process, and what it still needs is said."""
    done = init("--ports", str(closed_port()))
    assert done.exit_code == 0
    assert tomllib.loads((tmp_path / "mustcall.toml").read_text())["upstream"][0]["base_url"] == "embedded:"
    assert "mustcall models pull" in done.stderr


def test_a_key_that_is_not_set_yet(init: Init, tmp_path: Path) -> None:
    """The file is written, the variable is named, and serving says the same sentence."""
    done = init("--upstream", "openai:gpt-5")
    assert (done.exit_code, "OPENAI_API_KEY is not set" in done.stderr) == (0, True)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        load_settings(tmp_path / "mustcall.toml", environment={})
    assert load_settings(tmp_path / "mustcall.toml", environment={"OPENAI_API_KEY": "k"}).endpoints[0].model == "gpt-5"


def test_an_existing_file_is_left_alone(init: Init, tmp_path: Path) -> None:
    """A file that is there is replaced only with --force, and another can be written instead."""
    file = tmp_path / "mustcall.toml"
    file.write_text("mine", encoding="utf-8")
    for flags in ((), ("--yes",)):
        done = init("--upstream", "ollama:", *flags)
        assert isinstance(done.exception, ConfigError)
        assert "--force" in done.exception.message
        assert file.read_text(encoding="utf-8") == "mine"
    other = init("--upstream", "ollama:", "--out", "other.toml")
    assert "mustcall serve --config other.toml" in other.stdout
    assert file.read_text(encoding="utf-8") == "mine"
    assert init("--upstream", "ollama:", "--force").exit_code == 0
    assert tomllib.loads(file.read_text(encoding="utf-8"))["upstream"][0]["name"] == "ollama"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--upstream", "opnai:gpt-5"), "did you mean 'openai:gpt-5'"),
        (("--upstream", "chat=ftp://h"), "http"),
        (("--upstream", "ollama:", "--out", "gone/m.toml"), "there is no directory"),
    ],
)
def test_what_cannot_be_written(init: Init, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    """A mistake is one sentence, and no file is left."""
    done = init(*arguments)
    assert isinstance(done.exception, ConfigError)
    assert words in done.exception.message
    assert list(tmp_path.iterdir()) == []


def test_usage(init: Init, tmp_path: Path) -> None:
    """Ports that are none and a model for several upstreams are refused."""
    assert init("--ports", "80,x").exit_code == 2
    assert init("--upstream", "ollama:", "--upstream", "vllm:", "--model", "m").exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run(init: Init, tmp_path: Path) -> None:
    """--dry-run prints the file that would be written, also where one is."""
    (tmp_path / "mustcall.toml").write_text("mine", encoding="utf-8")
    shown = init("--upstream", "ollama:qwen3", "--dry-run").stdout
    assert tomllib.loads(shown)["upstream"][0]["model"] == "qwen3"
    assert (tmp_path / "mustcall.toml").read_text(encoding="utf-8") == "mine"


def test_stopped_while_writing(init: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of writing leaves the old file, and no half of a new one."""
    file = tmp_path / "mustcall.toml"
    file.write_text("mine", encoding="utf-8")

    def half(path: Path, text: str, **_: str) -> int:
        with path.open("w", encoding="utf-8") as opened:
            opened.write(text[:40])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", half)
    assert init("--upstream", "ollama:", "--force").exit_code != 0
    assert [path.name for path in tmp_path.iterdir()] == ["mustcall.toml"]
    assert file.read_bytes() == b"mine"


# --- with somebody to ask -----------------------------------------------------------------------------------------


def terminal(folder: Path, *arguments: str) -> PseudoTerminal:
    """The command in a real terminal."""
    shell = {name: value for name, value in os.environ.items() if name not in KEYS}
    return PseudoTerminal([sys.executable, "-m", "mustcall", "init", *arguments], shell, folder)


def test_a_conversation(init: Init, tmp_path: Path) -> None:
    """In a terminal one is asked which upstream and which model, and told what is wrong with an answer."""
    assert init  # the environment without keys and proxies
    with (
        ScriptedUpstream(models=["a", "b"]) as upstream,
        terminal(tmp_path, "--ports", str(upstream.port)) as screen,
    ):
        screen.wait_for("1  a model server", "(a, b)", "2  a model inside the process", "Which upstream?")
        screen.type("opnai:gpt-5")
        screen.wait_for("did you mean 'openai:gpt-5'?", "Which upstream?")
        screen.type("1")
        screen.wait_for("Model for every request", "[-]")
        screen.type("b")
        screen.wait_for("wrote mustcall.toml", "Claude Code")
        assert screen.wait_for_end() == 0
    assert load_settings(tmp_path / "mustcall.toml", ledger="off").endpoints[0].model == "b"
    with terminal(tmp_path, "--upstream", "ollama:") as screen:
        screen.wait_for("Replace it? [y/N]")
        screen.type("")
        assert screen.wait_for_end() == 2


def test_ctrl_c_at_a_question(init: Init, tmp_path: Path) -> None:
    """Who leaves at a question leaves nothing behind."""
    assert init
    with terminal(tmp_path, "--ports", str(closed_port())) as screen:
        screen.wait_for("Which upstream?")
        screen.press(CTRL_C)
        assert screen.wait_for_end() == 130
        assert "mustcall: stopped" in screen.screen()
        assert not {"Traceback", "Aborted"}.intersection(re.findall(r"\w+", screen.screen()))
    assert [path.name for path in tmp_path.iterdir()] == []


def test_one_line_for_mistakes(tmp_path: Path) -> None:
    """As a person runs it: one line on standard error, exit code 2."""
    done = warm.run("init", "--upstream", "opnai:gpt-5", said="", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert re.match(r"mustcall: the upstream 'opnai:gpt-5' .* did you mean 'openai:gpt-5'\?$", done.stderr.strip())
