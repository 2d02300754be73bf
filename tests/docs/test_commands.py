"""Every command of README, install.md and docs/start runs as printed, or stands in the table of those that cannot.

Commands run in a folder of their own with a scripted model behind `MUSTCALL_UPSTREAM`; a server is stopped once it says
that it listens.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from mustcall.ledger import open_ledger
from mustcall.testing import Answer, Recorded, Say, ScriptedUpstream, Turn, demo_turn
from support import warm

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/install.md", *(f"docs/start/{name}.md" for name in ("README", "gateway", "library", "cli")))

#: Commands that run elsewhere, by how they begin: why they cannot run here, and what runs them or their parts instead.
ELSEWHERE = {
    "python3 -m venv .venv": "makes an environment in the checkout; tools/setup does so for `make run`",
    ".venv/bin/": "needs packages of the index; `make dist` installs the same checkout as a wheel",
    "make run": "fetches a model of 491 MB; tests/cli/test_serve.py starts the same server on a smaller one",
    "make test": "is this",
    "make dist": "builds and installs with packages of the index; CI and every release run it",
    "mustcall eval bfcl": "fetches the benchmark from the public index; tests/cli/test_eval.py runs it on a part",
    "mustcall bench --quick": "measures for half a minute; tests/cli/test_bench.py runs it on shorter rounds",
    "mustcall probe": "measures a model server that runs; tests/cli/test_probe.py runs it on scripted ones",
    "uvx mustcall": "takes the published package from the index; `make dist` uses the same wheel from a file",
    "uvx --from": "takes the published package from the index; `make dist` uses the same wheel from a file",
    "pipx install": "takes the published package from the index; `make dist` installs the same wheel from a file",
    "uv tool install": "takes the published package from the index; `make dist` installs the same wheel from a file",
    "pip install": "takes mustcall or what it needs from the index; `make dist` installs the same wheel from a file",
    "python3 -m venv /opt": "writes outside the checkout; tools/unit_check.py has the same environment in a chroot",
    "/opt/mustcall/bin/pip": "takes packages from the index; the Dockerfile, which tools/image_check.py runs, does too",
    "install -": "writes into /etc; tools/unit_check.py puts the same unit into a system of its own",
    "systemctl": "needs systemd and root; tools/unit_check.py starts, reloads and stops the unit under a real one",
    "docker": "needs a daemon; tools/image_check.py carries the Dockerfile out, CI runs the compose file",
    "MUSTCALL_UPSTREAM=chat=http://host.docker.internal": "needs a daemon; CI starts the compose file with an upstream",
    "helm": "needs a cluster; tools/deploy_lint renders the chart and checks it against the schemas of Kubernetes",
}

#: What a command that runs must print, by how it begins; one that is not here only has to end well.
PRINTS = {
    "mustcall serve --upstream chat": "upstream chat: chat at http://127.0.0.1:9000/v1",
    "mustcall serve --upstream messages": "upstream messages: messages at https://api.anthropic.com/v1",
    "mustcall serve --upstream openai:gpt-5": "https://api.openai.com/v1",
    "mustcall serve --demo": "mustcall listens on http://127.0.0.1:",
    "mustcall config check": "ok",
    "mustcall parse": "get_weather",
    "mustcall dialects": "tool_call",
    "mustcall --version": "mustcall, version",
    "mustcall --help": "Commands:",
    "mustcall explain": "at most 4 extra upstream calls",
    "mustcall coordinate": "It is 42.",
    "mustcall ledger check": "ok",
}


ROLES = {
    "You propose": '{"answer":"42","reasons":["computed"]}',
    "You check": '{"stance":"agree"}',
    "You write": '{"answer":"It is 42.","confidence":"high"}',
}


def commands() -> list[str]:
    """Every line of the pages' shell blocks, without what it says about itself."""
    found: list[str] = []
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL):
            found += [re.sub(r"\s+# .*$", "", line) for line in block.splitlines() if line.strip()]
    return found


def reason(command: str) -> str | None:
    """Why a command is not run here."""
    return next((why for start, why in ELSEWHERE.items() if command.startswith(start)), None)


@pytest.fixture(scope="module")
def upstream() -> Generator[ScriptedUpstream]:
    """A model that answers everything, the roles of a coordinated answer included."""
    with ScriptedUpstream(answer) as model:
        yield model


def answer(recorded: Recorded) -> Answer:
    """What the model says."""
    text = str(recorded.body)
    for words, said in ROLES.items():
        if words in text:
            return Turn(Say(said))
    return demo_turn(recorded)


async def new_ledger(place: Path) -> None:
    """Make a ledger, as a gateway that ran before would have left it."""
    ledger = open_ledger(place)
    await ledger.open()
    await ledger.close()


@pytest.mark.parametrize("command", sorted({one for one in commands() if reason(one) is None}))
def test_a_command_runs_as_printed(command: str, upstream: ScriptedUpstream, tmp_path: Path) -> None:
    """The shell takes the line as it stands on the page, and what it says it does is what it prints."""
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
    asked = {"model": "m", "messages": [{"role": "user", "content": "Weather?"}], "tools": [tool]}
    (tmp_path / "request.json").write_text(json.dumps(asked), encoding="utf-8")
    call = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
    (tmp_path / "reply.txt").write_text(call, encoding="utf-8")
    asyncio.run(new_ledger(tmp_path / "ledger.db"))
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "MUSTCALL_UPSTREAM": f"chat={upstream.base_url}",
        "MUSTCALL_LEDGER": str(tmp_path / "ledger.db"),
        "OPENAI_API_KEY": "not-used",  # the page says which variable a provider's key is read from
    }
    given = subprocess.DEVNULL if "<" not in command else None
    with warm.shell(f"exec {command}", cwd=tmp_path, env=environment, stdin=given, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        printed = ""
        if command.startswith("mustcall serve"):
            for line in process.stdout:
                printed += line
                if "Ctrl-C" in line:
                    process.send_signal(signal.SIGINT)
        printed += process.communicate(timeout=warm.PATIENCE)[0]
    assert process.returncode == 0, printed
    assert "Traceback" not in printed
    shown = next((words for start, words in PRINTS.items() if command.startswith(start)), "")
    assert shown in printed


def test_the_table_is_about_commands_that_are_printed() -> None:
    """No row outlives its command, and every row says what runs instead."""
    printed = commands()
    assert len(printed) > 30
    for start, why in ELSEWHERE.items():
        assert any(command.startswith(start) for command in printed), start
        for file in re.findall(r"(?:tests|tools)/[\w/.]+", why):
            assert (ROOT / file).exists(), file
    for start in PRINTS:
        assert any(command.startswith(start) for command in printed), start


def test_names_in_commands_are_real() -> None:
    """Make targets, extras and files that commands name exist, also in those that cannot run here."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for command in commands():
        for target in re.findall(r"^make ([\w-]+)", command):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), command
        for extras in re.findall(r"mustcall\[([\w,]+)\]", command):
            for extra in extras.split(","):
                assert re.search(rf"^{extra} = \[", project, re.MULTILINE), command
        for file in re.findall(r"\bdeploy/[\w/.-]+", command):
            assert (ROOT / file).exists(), command
    assert shutil.which("bash"), "the commands are run by a shell"
