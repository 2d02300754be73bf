"""`mustcall doctor`: each thing with a tick or its fix, exit code 1 for what stops serving, and no secret anywhere."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from mustcall.cli import cli
from mustcall.testing import RunningGateway, ScriptedUpstream
from mustcall.upstream.embedded.catalogue import FALLBACK, find_weights
from mustcall.upstream.embedded.store import WeightStore
from mustcall.upstream.providers import PROVIDERS
from support.loopback import PROXY_VARIABLES
from support.ports import closed_port, quiet_port

#: Longer than any machine needs.
LONG = ("--timeout", "60")


class Told(NamedTuple):
    """What the doctor said."""

    code: int
    checks: dict[str, dict[str, str]]
    text: str


Doctor = Callable[..., Told]


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """The command in a folder of its own, without keys, settings, proxies or model files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MUSTCALL_CACHE", str(tmp_path / "cache"))
    proxies = [*PROXY_VARIABLES, *(name.upper() for name in PROXY_VARIABLES)]
    keys = [provider.key_env for provider in PROVIDERS.values() if provider.key_env]
    for name in ("MUSTCALL_CONFIG", "MUSTCALL_UPSTREAM", "MUSTCALL_PORT", *proxies, *keys):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str) -> Told:
        told = CliRunner().invoke(cli, ["doctor", "--json", *arguments, *LONG], prog_name="mustcall")
        read: dict[str, Any] = json.loads(told.stdout)
        assert read["ok"] == (told.exit_code == 0)
        return Told(told.exit_code, {check["name"]: check for check in read["checks"]}, told.output)

    return call


def test_all_is_well(doctor: Doctor) -> None:
    """An upstream that answers, a free port, a place for the ledger: exit code 0 and a tick for each."""
    with ScriptedUpstream(models=["a", "b"]) as upstream:
        flag = f"up:chat={upstream.base_url}#b"
        told = doctor("--upstream", flag, "--port", str(quiet_port()), "--ledger", "here.db")
        assert told.code == 0
        states = {name: check["state"] for name, check in told.checks.items()}
        assert states.pop("model files") == "note"
        assert states == dict.fromkeys(["python", "engine", "configuration", "port", "database", "upstream up"], "ok")
        assert "2 models, b is there" in told.checks["upstream up"]["found"]
        shown = CliRunner().invoke(cli, ["doctor", "--upstream", flag, "--port", "0", *LONG])
    assert shown.exit_code == 0
    assert "✓ python" in shown.output
    assert shown.output.endswith("mustcall can serve\n")


def test_nothing_is_made(doctor: Doctor, tmp_path: Path) -> None:
    """A ledger that is not there is not made by looking."""
    with ScriptedUpstream() as upstream:
        told = doctor("--upstream", f"chat={upstream.base_url}", "--port", "0", "--ledger", "new/ledger.db")
    assert "made when it is first needed" in told.checks["database"]["found"]
    assert list(tmp_path.iterdir()) == []


def test_an_upstream_that_is_down(doctor: Doctor) -> None:
    """It stops serving, and the fix is to start it."""
    told = doctor("--upstream", f"up:chat=http://127.0.0.1:{closed_port()}/v1", "--port", "0")
    check = told.checks["upstream up"]
    assert (told.code, check["state"]) == (1, "failed")
    assert "start the server" in check["fix"]
    shown = CliRunner().invoke(cli, ["doctor", "--upstream", f"up:chat=http://127.0.0.1:{closed_port()}/v1", *LONG])
    assert shown.exit_code == 1
    assert "✗ upstream up" in shown.output
    assert "fix: start the server" in shown.output


def test_a_proxy_in_the_way(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where even this machine is behind a proxy, that is the fix."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port()}")
    told = doctor("--upstream", f"up:chat=http://127.0.0.1:{closed_port()}/v1", "--port", "0")
    assert "NO_PROXY=127.0.0.1" in told.checks["upstream up"]["fix"]


def test_a_model_that_is_not_listed(doctor: Doctor) -> None:
    """A model of an upstream that it does not list is a warning with those it lists."""
    with ScriptedUpstream(models=["a", "b"]) as upstream:
        told = doctor("--upstream", f"up:chat={upstream.base_url}#c", "--port", "0")
    assert (told.code, told.checks["upstream up"]["state"]) == (0, "warning")
    assert told.checks["upstream up"]["fix"] == "it lists a, b"


def test_a_configuration_that_cannot_be_read(doctor: Doctor, tmp_path: Path) -> None:
    """The sentence of `serve` is the finding; everything else is looked at all the same."""
    (tmp_path / "mustcall.toml").write_text("[servr]\n", encoding="utf-8")
    told = doctor()
    assert told.code == 1
    assert "did you mean 'server'?" in told.checks["configuration"]["found"]
    assert {"python", "engine", "model files", "port", "database"} <= set(told.checks)


def test_a_key_that_is_not_set(doctor: Doctor) -> None:
    """The variable is in the finding and in the fix."""
    told = doctor("--upstream", "openai:gpt-5")
    assert told.code == 1
    assert told.checks["configuration"]["fix"] == "export OPENAI_API_KEY=… where mustcall runs"


def test_nothing_configured(doctor: Doctor) -> None:
    """Without any upstream the embedded model is missing its file, and `mustcall init` helps."""
    told = doctor()
    assert told.code == 1
    assert "mustcall models pull" in told.checks["configuration"]["found"]
    assert told.checks["configuration"]["fix"] == "mustcall init"


def test_no_engine(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that nobody needs may be missing."""
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with ScriptedUpstream() as upstream:
        told = doctor("--upstream", f"chat={upstream.base_url}", "--port", "0")
    assert (told.code, told.checks["engine"]["state"]) == (0, "note")
    assert "pip install" in told.checks["engine"]["fix"]
    assert doctor("--upstream", "embedded:").code == 1


def test_a_model_file_that_is_no_model(doctor: Doctor) -> None:
    """A file of the right size with other contents is found, with the commands that replace it."""
    store = WeightStore()
    store.directory.mkdir(parents=True)
    with store.path(find_weights(FALLBACK)).open("wb") as file:
        file.truncate(find_weights(FALLBACK).size)
    told = doctor("--upstream", "chat=http://127.0.0.1:9/v1", "--port", "0")
    assert told.checks["model files"]["state"] == "warning"
    assert f"mustcall models pull {FALLBACK}" in told.checks["model files"]["fix"]


def test_ports(doctor: Doctor) -> None:
    """A chosen port that somebody holds stops serving; a gateway of ours there is what one wants."""
    with ScriptedUpstream() as upstream:
        flag = ("--upstream", f"chat={upstream.base_url}")
        told = doctor(*flag, "--port", str(upstream.port))
        assert (told.code, told.checks["port"]["state"]) == (1, "failed")
        assert "--port" in told.checks["port"]["fix"]
        with RunningGateway(f"chat={upstream.base_url}") as gateway:
            told = doctor(*flag, "--port", gateway.url.rpartition(":")[2])
            assert (told.code, told.checks["port"]["state"]) == (0, "ok")
            assert "a mustcall gateway listens" in told.checks["port"]["found"]


def test_a_ledger_that_is_none(doctor: Doctor, tmp_path: Path) -> None:
    """The gateway serves without a ledger, so one that cannot be opened is a warning."""
    (tmp_path / "notes.txt").write_text("not a database, but long enough to look like one" * 40, encoding="utf-8")
    with ScriptedUpstream() as upstream:
        flags = ("--upstream", f"chat={upstream.base_url}", "--port", "0", "--ledger")
        told = doctor(*flags, str(tmp_path / "notes.txt"))
        assert (told.code, told.checks["database"]["state"]) == (0, "warning")
        assert doctor(*flags, "off").checks["database"]["state"] == "note"
        there = doctor(*flags, "mysql://h/x")
        assert there.checks["configuration"]["state"] == "failed"


def test_no_secret_is_shown(doctor: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keys and passwords are nowhere in what is printed, whatever fails."""
    monkeypatch.setenv("A_KEY", "sekret-a")
    monkeypatch.setenv("MUSTCALL_CLIENT_KEYS", "sekret-c")
    with ScriptedUpstream() as upstream:
        (tmp_path / "mustcall.toml").write_text(
            f'[[upstream]]\nname="a"\nwire="chat"\nbase_url="{upstream.base_url}"\napi_key_env="A_KEY"\n'
            f'[[upstream]]\nname="b"\nwire="messages"\nbase_url="http://127.0.0.1:{closed_port()}"\napi_key_env="A_KEY"\n',
            encoding="utf-8",
        )
        told = doctor("--ledger", f"postgresql://ada:sekret-p@127.0.0.1:{closed_port()}/x", "--port", "0")
        assert upstream.requests[-1].headers["authorization"] == "Bearer sekret-a"
    assert told.code == 1
    assert "sekret" not in told.text
