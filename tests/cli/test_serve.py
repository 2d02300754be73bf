"""The command line as a person uses it: real processes, real ports, the printed curl line."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mustcall.testing import ScriptedUpstream
from support import warm
from support.embedded import readied, small_cache
from support.http import call, post
from support.ports import listeners
from support.terminal import CTRL_C, PseudoTerminal
from support.warm import PATIENCE, Process

MUSTCALL = [sys.executable, "-m", "mustcall"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, from nothing."""
    return subprocess.run(  # noqa: S603  our own command
        [*MUSTCALL, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@contextmanager
def serving(*arguments: str, starting: Callable[..., Process] = warm.start) -> Generator[tuple[str, str, Process]]:
    """Start a gateway; give its URL, what it printed and its process, and stop it with Ctrl-C."""
    process = starting("serve", *arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    printed = ""
    try:
        for line in process.stdout:
            printed += line
            if "Ctrl-C" in line:
                break
        found = re.search(r"http://127\.0\.0\.1:\d+", printed)
        assert found, printed
        yield found[0], printed, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=PATIENCE)
        assert "Traceback" not in rest


def test_demo_prints_a_curl_line_that_works() -> None:
    """`mustcall serve --demo` prints a curl line whose answer is a tool call."""
    curl = shutil.which("curl")
    assert curl is not None, "the test runs the printed line"
    with serving("--demo", "--port", "0", starting=warm.cold_start) as (_, printed, _process):
        line = next(line for line in printed.splitlines() if line.strip().startswith("curl"))
        assert line.split()[:2] == ["curl", "-sS"]  # silent about progress, not about errors
        answer = subprocess.run(["bash", "-c", line], capture_output=True, timeout=PATIENCE, check=True)  # noqa: S603, S607
    call_made = json.loads(answer.stdout)["choices"][0]["message"]["tool_calls"][0]["function"]
    assert call_made["name"] == "get_weather"
    assert isinstance(json.loads(call_made["arguments"])["city"], str)


def test_the_embedded_model_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mustcall serve` serves the embedded model and prints a curl line and a Python snippet that both show a call."""
    monkeypatch.setenv("MUSTCALL_CACHE", str(small_cache(tmp_path)))
    with serving("--port", "0") as (url, printed, _process):
        assert "local: chat at embedded:smollm2-135m" in printed
        assert call("GET", f"{url}/v1/models").json["data"][0]["id"] == "smollm2-135m"
        line = next(line for line in printed.splitlines() if line.strip().startswith("curl"))
        snippet = printed[printed.index("python3 - <<'PY'") : printed.index("\nPY\n") + 4]
        by_curl, by_python = (
            subprocess.run(["bash", "-c", script], capture_output=True, timeout=PATIENCE, check=True).stdout.decode()  # noqa: S603, S607
            for script in (line, snippet)
        )
    made = json.loads(by_curl)["choices"][0]["message"]["tool_calls"][0]["function"]
    assert made["name"] == "get_weather"
    assert isinstance(json.loads(made["arguments"])["city"], str)
    assert "get_weather" in by_python


def test_the_lines_to_try_name_a_model_that_is_served(tmp_path: Path) -> None:
    """Where routes leave the embedded model out, the printed line asks for what they do serve."""
    readied()
    file = tmp_path / "mustcall.toml"
    file.write_text(
        '[[upstream]]\nname = "tiny"\nwire = "chat"\nbase_url = "embedded:smollm2-135m"\n'
        '[[upstream]]\nname = "other"\nwire = "chat"\nbase_url = "http://127.0.0.1:9/v1"\n'
        '[[route]]\nmodel = "small"\nupstream = "tiny"\n',
        encoding="utf-8",
    )
    with serving("--config", str(file), "--port", "0") as (_, printed, _process):
        assert '"model":"small"' in printed
        assert "local" not in printed


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (["small"], ("Try it:", '"model":"small"')),
        (["a", "b"], ("Try it (replace MODEL by the model's name):", '"model":"MODEL"')),
    ],
)
def test_at_a_terminal_the_one_model_of_a_server_is_named(
    tmp_path: Path, models: list[str], said: tuple[str, str]
) -> None:
    """The server is asked for its list before the line is printed; several names leave the word to replace."""
    environment = {**os.environ, "HOME": str(tmp_path), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    with ScriptedUpstream(models=models) as upstream:
        command = [*MUSTCALL, "serve", "--upstream", f"chat={upstream.base_url}", "--port", "0", "--ledger", "off"]
        with PseudoTerminal(command, environment, tmp_path) as terminal:
            terminal.wait_for("Ctrl-C stops it.")
            shown = "".join(terminal.screen().split())
            terminal.press(CTRL_C)
            terminal.wait_for_end()
        assert [(one.method, one.path) for one in upstream.requests] == [("GET", "/v1/models")]
    assert all("".join(words.split()) in shown for words in said)


def test_without_a_terminal_no_upstream_is_asked_before_anybody_asks() -> None:
    """A service starts without a request of its own; the word to replace is named."""
    with (
        ScriptedUpstream(models=["small"]) as upstream,
        serving("--upstream", f"chat={upstream.base_url}", "--port", "0", "--ledger", "off") as (_, printed, _process),
    ):
        assert "Try it (replace MODEL by the model's name):" in printed
        assert not upstream.requests


@pytest.mark.parametrize(
    ("key", "responses", "said"),
    [
        ("", "true", "stored responses are kept unencrypted, prompts and answers included"),
        ("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "true", "stored responses are kept encrypted"),
        ("", "false", ""),
    ],
)
def test_how_responses_are_stored_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, responses: str, said: str
) -> None:
    """Rule 136: at the start the operator reads whether prompts and answers are stored, and whether in clear."""
    monkeypatch.setenv("MUSTCALL_LEDGER_KEY", key)
    monkeypatch.setenv("MUSTCALL_LEDGER_RESPONSES", responses)
    flags = ("--upstream", "chat=http://127.0.0.1:9/v1", "--ledger", str(tmp_path / "l.db"), "--port", "0")
    with serving(*flags) as (_, printed, _process):
        assert said in printed
        assert ("stored responses" in printed) == bool(said)
        assert key not in printed or not key


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_file_that_is_no_ledger_is_not_called_one(tmp_path: Path, workers: str) -> None:
    """The gateway serves without it; what it prints claims neither a ledger nor stored responses."""
    file = tmp_path / "README.md"
    file.write_text("not a database, but long enough to look like one" * 40, encoding="utf-8")
    flags = ("--upstream", "chat=http://127.0.0.1:9/v1", "--ledger", str(file), "--port", "0", "--workers", workers)
    with serving(*flags, starting=warm.start if workers == "1" else warm.cold_start) as (_, printed, _process):
        assert f"no ledger yet: {file} could not be opened" in " ".join(printed.split())
        assert "ledger at" not in printed
        assert "stored responses are kept" not in printed


def test_demo_keeps_nothing() -> None:
    """A ledger for the demo is refused rather than left out in silence."""
    told = warm.run("serve", "--demo", "--ledger", "demo.db")
    assert (told.returncode, "--demo keeps nothing" in told.stderr) == (2, True)


def test_the_environment_holds_for_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients need the keys it names, and a wrong setting is refused. Upstreams and ledger are the demo's own."""
    monkeypatch.setenv("MUSTCALL_UPSTREAM", "chat=http://127.0.0.1:9/v1")
    monkeypatch.setenv("MUSTCALL_LEDGER", "/nowhere/demo.db")
    monkeypatch.setenv("MUSTCALL_PROBE_EVERY", "1d")  # which needs a ledger
    monkeypatch.setenv("MUSTCALL_CONFIG", "/nowhere/mustcall.toml")
    monkeypatch.setenv("MUSTCALL_CLIENT_KEYS", "sekret")
    with serving("--demo", "--port", "0") as (url, printed, _process):
        assert "sekret" not in printed
        body = {"model": "demo", "input": "hi"}
        assert post(f"{url}/v1/responses", body).status == 401
        assert post(f"{url}/v1/responses", body, {"authorization": "Bearer sekret"}).json["output"]
    monkeypatch.setenv("MUSTCALL_SERVER_KEEPALIVE", "nan")
    told = warm.run("serve", "--demo", "--port", "0")
    assert (told.returncode, told.stderr) == (2, "mustcall: server: keepalive must be 0 or more, got nan\n")


def test_demo_speaks_all_three_wires() -> None:
    """The demo answers Responses and Messages clients too."""
    with serving("--demo", "--port", "0") as (url, _, _process):
        messages = [{"role": "user", "content": "hi"}]
        assert post(f"{url}/v1/responses", {"model": "demo", "input": "hi"}).json["output"]
        answer = post(f"{url}/v1/messages", {"model": "demo", "max_tokens": 50, "messages": messages})
        assert answer.json["content"][0]["type"] == "text"


def test_ctrl_c_leaves_nothing_behind() -> None:
    """Ctrl-C ends the process with 0 and frees the port."""
    with serving("--demo", "--port", "0") as (url, _, process):
        listening = listeners(url)
        assert call("GET", f"{url}/healthz").status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    assert listening or sys.platform != "linux"
    assert not listening & listeners(url)


def test_port_in_use() -> None:
    """A chosen port that is taken is an error with the fix; the default one gives way to a free one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = warm.run("serve", "--upstream", "chat=http://127.0.0.1:9/v1", "--port", str(port))
        assert refused.returncode == 2
        assert f"127.0.0.1:{port}" in refused.stderr
        assert "--port" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serve"], ["not here yet", "--upstream", "mustcall models pull"]),
        (["serve", "--gguf", "gone.gguf"], ["gone.gguf"]),
        (["models", "path"], ["mustcall models pull"]),
        (["serve", "--upstream", "nonsense"], ["wire=URL"]),
        (["serve", "--config", "gone.toml"], ["gone.toml"]),
        (["config", "check", "gone.toml"], ["gone.toml"]),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], words: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What cannot be done is said in one line, with exit code 2 and no traceback."""
    folder = tmp_path_factory.mktemp("empty")
    done = warm.run(*arguments, cwd=folder, env={**os.environ, "MUSTCALL_CACHE": str(folder)})
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def test_config_check(tmp_path_factory: pytest.TempPathFactory) -> None:
    """`config check` says what the gateway would do, and shows no key."""
    file = tmp_path_factory.mktemp("config") / "m.toml"
    file.write_text(
        '[[upstream]]\nname="a"\nwire="messages"\nbase_url="http://127.0.0.1:1"\napi_key_env="A_KEY"\n'
        '[[route]]\nmodel="claude-*"\nupstream="a"\n',
        encoding="utf-8",
    )
    done = warm.run("config", "check", str(file), env={**os.environ, "A_KEY": "sk-secret"})
    assert done.returncode == 0
    assert "a: messages at http://127.0.0.1:1 (own key)" in done.stdout
    assert "claude-* -> a" in done.stdout
    assert done.stdout.endswith("ok\n")
    assert "secret" not in done.stdout


def test_config_check_shows_what_is_not_as_usual(tmp_path: Path) -> None:
    """Each section's settings that differ from the defaults are listed, those of the environment among them."""
    file = tmp_path / "m.toml"
    file.write_text(
        '[[upstream]]\nname="a"\nwire="chat"\nbase_url="http://127.0.0.1:9/v1"\nread_timeout=2\n'
        "[server]\nshutdown_grace=3\n[ledger]\ncontents='full'\n[limits]\nbody_elements=7\n"
        "[contract.limits]\nreminders=1\n[wording]\ntext_call='Call it.'\n"
        "[[grounding]]\nname='sums'\ntool='calculate'\ntriggers='add up'\nsigns=['sum']\n"
        "[[profile]]\nmodels=['tiny*']\nprotocol='prompt'\n",
        encoding="utf-8",
    )
    given = {"MUSTCALL_LEDGER": str(tmp_path / "l.db"), "MUSTCALL_SERVER_CORS_ORIGINS": "http://a.example"}
    done = warm.run("config", "check", str(file), "--json", env={**os.environ, **given})
    told = [(entry["about"], entry["says"]) for entry in json.loads(done.stdout)["settings"]]
    for line in (
        ("upstream", "a: read_timeout = 2.0"),
        ("ledger", 'contents = "full"'),
        ("server", "shutdown_grace = 3.0"),
        ("server", 'cors_origins = ["http://a.example"]'),
        ("limits", "body_elements = 7"),
        ("contract", "limits.reminders = 1"),
        ("wording", 'text_call = "Call it."'),
        ("grounding", "sums: calculate for add up, sum"),
        ("profile", 'tiny*: protocol = "prompt"'),
    ):
        assert line in told


def test_config_check_shows_no_key_for_the_embedded_model(tmp_path: Path) -> None:
    """A model inside the process is sent no key, whatever callers send; other upstreams are sent the caller's."""
    readied()
    file = tmp_path / "m.toml"
    file.write_text(
        '[[upstream]]\nname="tiny"\nwire="chat"\nbase_url="embedded:smollm2-135m"\n'
        '[[upstream]]\nname="b"\nwire="chat"\nbase_url="http://127.0.0.1:9/v1"\n',
        encoding="utf-8",
    )
    done = warm.run("config", "check", str(file))
    assert "tiny: chat at embedded:smollm2-135m (no key)" in done.stdout
    assert "b: chat at http://127.0.0.1:9/v1 (caller's key)" in done.stdout


def test_help_lists_the_commands() -> None:
    """`--help` answers with every command and its line; `--version` with the version."""
    shown = run("--help").stdout
    for command in ("serve", "models", "config"):
        assert re.search(rf"^  {command}\s+\w", shown, re.MULTILINE)
    assert run("--version").stdout.startswith("mustcall, version ")
    assert "[NAME:]WIRE=URL" in run("serve", "--help").stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_notes_that_cannot_be_written_do_not_end_the_gateway() -> None:
    """A full disk behind standard error costs the note on an open address, and nothing else."""
    with Path("/dev/full").open("wb") as full:
        arguments = ("serve", "--demo", "--host", "0.0.0.0", "--port", "0")  # noqa: S104
        process = warm.start(*arguments, stdout=subprocess.PIPE, stderr=full)
    assert process.stdout is not None
    printed = ""
    try:
        for line in process.stdout:
            printed += line
            if "Ctrl-C" in line:
                break
        found = re.search(r"http://0\.0\.0\.0:(\d+)", printed)
        assert found, printed
        assert "Ctrl-C" in printed
        assert call("GET", f"http://127.0.0.1:{found[1]}/healthz").status == 200
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
