"""`mustcall probe`, as a person uses it: announcement, matrix, files, exit codes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mustcall.cli import cli
from mustcall.cli.measuring.options import pick_endpoint
from mustcall.core.errors import MustcallError
from mustcall.core.origin import Wire
from mustcall.gateway.config.settings import load_settings
from mustcall.probe import read_result
from mustcall.probe.catalogue import CELLS
from mustcall.profiles import read_profile
from mustcall.testing import Answer, Call, Fail, Hang, Recorded, RunningGateway, Say, ScriptedUpstream, Turn
from mustcall.upstream.embedded.catalogue import DEFAULT, FALLBACK, find_weights
from mustcall.upstream.embedded.store import WeightStore
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.providers import PROVIDERS
from support import warm
from support.compared import leave, leave_all
from support.htmlpage import Page
from support.http import post
from support.laddering import climbed
from support.loopback import PROXY_VARIABLES
from support.ports import closed_port
from support.terminal import CTRL_C, PseudoTerminal
from support.warm import PATIENCE

Probe = Callable[..., Result]
KEYS = [provider.key_env for provider in PROVIDERS.values() if provider.key_env]
FORCED = ("--cell", "required", "--cell", "named")


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Probe:
    """The command in a folder of its own, without keys, settings or proxies, and without a terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MUSTCALL_CACHE", str(tmp_path / "cache"))
    proxies = [*PROXY_VARIABLES, *(name.upper() for name in PROXY_VARIABLES)]
    for name in ("MUSTCALL_CONFIG", "MUSTCALL_UPSTREAM", "MUSTCALL_LEDGER", "DATABASE_URL", *proxies, *KEYS):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str, columns: int = 160) -> Result:
        return CliRunner().invoke(cli, ["probe", *arguments], prog_name="mustcall", env={"COLUMNS": str(columns)})

    return call


def obedient(recorded: Recorded) -> Answer:
    """Call what is demanded, else speak."""
    choice = recorded.body.get("tool_choice")
    if recorded.body.get("tool_choice") not in (None, "auto", "none", "required"):
        return Turn(Call(recorded.body["tool_choice"]["function"]["name"], {"city": "Oslo"}))
    return Turn(Call("add_note", {"text": "hello"})) if choice == "required" else Turn(Say("Hello there."))


def deaf(_recorded: Recorded) -> Answer:
    """Speak, whatever is demanded."""
    return Turn(Say("Hello there."))


def posts(upstream: ScriptedUpstream) -> list[Recorded]:
    """Return what was asked of the model."""
    return [one for one in upstream.requests if one.method == "POST"]


def announced(output: str) -> int:
    """Return the number of requests that was announced."""
    found = re.search(r"at most ([\d,]+) requests", output)
    assert found is not None, output
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize(("script", "code"), [(obedient, 0), (deaf, 1)])
def test_exit_codes_of_a_measurement(probe: Probe, script: Callable[[Recorded], Answer], code: int) -> None:
    """0 where the required guarantees hold, 1 where one is broken; the plan is told first and kept."""
    with ScriptedUpstream(script) as upstream:
        done = probe(f"chat={upstream.base_url}", "--quick", *FORCED)
    assert done.exit_code == code, done.output
    assert announced(done.output) == 3 + 2 + 2 + 6
    assert len(posts(upstream)) == 3 + 2 + 2 + (0 if code == 0 else 1)  # and one of the streamed cell, whole
    assert ("✔ held" if code == 0 else "✘ ignored") in done.output
    assert done.output.index("planned:") < done.output.index("verdict")


def test_help_names_every_guarantee() -> None:
    """What `--cell` takes is on the screen that its error points to."""
    words = re.split(r"[\s,]+", CliRunner().invoke(cli, ["probe", "--help"]).output.rstrip().rstrip("."))
    assert {cell.guarantee for cell in CELLS} <= set(words)


def test_without_a_terminal_a_line_is_printed_when_a_cell_is_done(probe: Probe) -> None:
    """Each cell once, in the order in which they end, before the matrix; on standard error."""
    leave_all("what a probe asks is its own; what is printed is looked at")
    with ScriptedUpstream(deaf) as upstream:
        done = probe(f"chat={upstream.base_url}", "--quick", "--cell", "required", "--cell", "usage")
    assert [line for line in done.stderr.splitlines() if line.startswith("[")] == [
        "[1/2] required+stream ✘ ignored 0/2",
        "[2/2] required ✘ ignored 0/3",
    ]


@pytest.mark.parametrize("columns", [60, 80])
def test_the_matrix_fits_the_terminal(probe: Probe, columns: int) -> None:
    """What was seen goes below its cell where there is no room beside it; no word of it is lost."""
    told = "the parameter tool_choice is not supported by this deployment"
    with ScriptedUpstream(default=Fail(400, told)) as upstream:
        done = probe(f"chat={upstream.base_url}", "--cell", "required", columns=columns)
    lines = done.stdout.partition("PLAN")[0].splitlines()
    assert max(map(len, lines)) <= columns
    assert " ".join(done.stdout.split()).count(told) == 4


def test_the_quick_set_is_about_24_requests_and_never_more_than_announced(probe: Probe) -> None:
    """The whole quick set, on each wire."""
    leave_all("what a probe asks is its own; how often is counted here")
    for wire in Wire:
        with ScriptedUpstream(deaf) as upstream:
            done = probe(f"{wire}={upstream.base_url}", "--quick")
        assert done.exit_code == 1, done.output
        assert 20 <= len(posts(upstream)) <= announced(done.output) <= 31


def test_a_client_chooses_wire_and_cells(probe: Probe) -> None:
    """`--for claude-code` asks on Messages, whatever wire the address names, and for nothing it does not need."""
    leave_all("what a probe asks is its own; how often is counted here")
    with ScriptedUpstream(deaf) as upstream:
        done = probe(f"chat={upstream.base_url}", "--quick", "--for", "claude-code")
    assert {one.path for one in posts(upstream)} == {"/v1/messages", "/v1/messages/count_tokens"}
    assert "count_tokens" in done.output
    assert "schema.ref" not in done.output


def test_files_are_written(probe: Probe, tmp_path: Path) -> None:
    """Rule 75: what the command reports is what the model did, as JSON, as a page, as a badge and as a profile."""
    with ScriptedUpstream(deaf) as upstream:
        files = ("--json", "a.json", "--html", "a.html", "--badge", "a.svg", "--profile", "p.json")
        done = probe(f"chat={upstream.base_url}", "--quick", *files)
    result = read_result(tmp_path / "a.json")
    assert result.spent.requests == len(posts(upstream))
    assert result.announced_requests == announced(done.output)
    assert {cell.id: str(cell.verdict) for cell in result.cells}["required"] == "ignored"
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not {name for _, name, _ in page.attributes} & {"src", "href", "srcset", "data", "action", "onclick"}
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\(", text)
    assert "prefers-color-scheme: dark" in text
    assert all(f"<code>{cell.id}</code>" in text for cell in result.cells)
    badge = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert badge.startswith("<svg")
    assert "hold</text>" in badge
    profile = read_profile(tmp_path / "p.json")
    assert {fact.field: fact.value for fact in profile.facts}["forced"] == "ignored"


def test_after_write_the_first_request_starts_on_the_right_rung(probe: Probe, tmp_path: Path) -> None:
    """Before: two upstream calls, the first of them ignored. After --write: one, without the forced choice."""

    def model(recorded: Recorded) -> Answer:
        if "response_format" in recorded.body:
            return Turn(Say('{"name": "weather", "arguments": {"city": "Oslo"}}'))
        return Turn(Say("Hello there."))

    asked: dict[str, Any] = {
        "model": "scripted",
        "messages": [{"role": "user", "content": "Oslo?"}],
        "tool_choice": "required",
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "weather",
                    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
                },
            }
        ],
    }
    from mustcall.gateway.config.settings import load_settings  # noqa: PLC0415  only here

    with ScriptedUpstream(model) as upstream:
        file = tmp_path / "mustcall.toml"
        file.write_text(
            f'[[upstream]]\nname = "up"\nwire = "chat"\nbase_url = "{upstream.base_url}"\n', encoding="utf-8"
        )

        def calls() -> int:
            before = len(posts(upstream))
            with RunningGateway(settings=load_settings(file, ledger="off")) as gateway:
                reply = post(f"{gateway.base_url}/chat/completions", asked).json
            assert reply["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "weather"
            return len(posts(upstream)) - before

        forced, schema, *_ = climbed("chat", asked)
        assert calls() == 2
        assert [one.body for one in posts(upstream)] == [forced, schema]
        done = probe(f"up:chat={upstream.base_url}", "--model", "scripted", "--write", "--cell", "required")
        assert done.exit_code == 1, done.output
        assert "PLAN for scripted" in done.output
        (measured,) = tomllib.loads(file.read_text(encoding="utf-8"))["measured"]
        assert measured["facts"]["forced"]["value"] == "ignored"
        assert calls() == 1
        assert posts(upstream)[-1].body == schema
        leave(upstream, "between the two turns are the probe's own requests, which its catalogue writes")


def test_write_goes_to_a_ledger_that_is_named(probe: Probe) -> None:
    """With --ledger the profile is there for all replicas."""
    with ScriptedUpstream(deaf) as upstream:
        done = probe(f"chat={upstream.base_url}", "--quick", "--write", "--ledger", "l.db", *FORCED)
    assert "wrote the profile to the ledger" in done.output, done.output
    shown = CliRunner().invoke(cli, ["profiles", "list", "--ledger", "l.db"], env={"COLUMNS": "200"})
    assert "forced" in shown.output, shown.output


def test_drift_is_told(probe: Probe) -> None:
    """What held and does not any more, with its p; a probe that is compared with itself shows none."""
    with ScriptedUpstream(obedient) as upstream:
        probe(f"chat={upstream.base_url}", "--json", "old.json", *FORCED)
        same = probe(f"chat={upstream.base_url}", "--compare", "old.json", *FORCED)
    assert same.exit_code == 0, same.output
    assert "0 of 8 cells drifted" in same.output
    with ScriptedUpstream(deaf) as upstream:
        done = probe(f"chat={upstream.base_url}", "--compare", "old.json", "--html", "a.html", *FORCED)
    assert done.exit_code == 1
    assert "8 of 8 cells drifted" in done.output
    assert "required: held → ignored (12 lost, 0 gained of 12 tries" in done.output
    assert "8 of 8 cells drifted" in Path("a.html").read_text(encoding="utf-8")


def test_usage_is_2() -> None:
    """A wrong word is told before anything is sent."""
    run = CliRunner()
    assert run.invoke(cli, ["probe", "--for", "emacs"]).exit_code == 2
    with pytest.raises(MustcallError, match="must be"):
        run.invoke(cli, ["probe", "nonsense="], catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--cell", "requird"), "did you mean 'required'"),
        (("--cell", "forced"), "did you mean 'required'? `mustcall probe --help` names the guarantees"),
        (("--cell", "zzz"), "no cell 'zzz'; `mustcall probe --help` names the guarantees"),
        (("--write",), "--write needs a configuration file"),
        (("--compare", "none.json"), "cannot read none.json"),
        (("--json", "nowhere/a.json"), "there is no directory"),
    ],
)
def test_what_cannot_be_done_is_told_before_anything_is_sent(
    probe: Probe, arguments: tuple[str, ...], told: str
) -> None:
    """Our own errors are exit code 2 in `main`, and no request was made."""
    with ScriptedUpstream(deaf) as upstream:
        done = probe(f"chat={upstream.base_url}", *arguments)
    assert isinstance(done.exception, MustcallError)
    assert told in done.exception.message
    assert not posts(upstream)


def test_an_upstream_that_is_down_is_3(probe: Probe) -> None:
    """Nobody listens: told at once."""
    done = probe(f"chat=http://127.0.0.1:{closed_port()}/v1", "--model", "m")
    assert done.exit_code == 3
    assert "not measurable: cannot connect" in done.output


def test_an_upstream_that_does_not_answer_at_all_is_3(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes connections and says nothing: given up after the seconds it has, which are below 10."""
    from mustcall.cli.measuring import probe as command  # noqa: PLC0415  only here

    assert command.REACH_SECONDS < 10
    monkeypatch.setattr(command, "REACH_SECONDS", 0.05)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        done = probe(f"chat=http://127.0.0.1:{silent.getsockname()[1]}/v1", "--model", "m")
    assert done.exit_code == 3, done.output
    assert "did not list its models within" in done.output


def test_nothing_but_rate_limits_is_3(probe: Probe) -> None:
    """A limit of longer than is ever waited for leaves nothing measured."""
    with ScriptedUpstream(lambda _: Fail(429, "come back tomorrow", headers={"retry-after": "86400"})) as upstream:
        done = probe(f"chat={upstream.base_url}", "--quick", *FORCED)
    assert done.exit_code == 3, done.output
    assert len(posts(upstream)) <= announced(done.output)


def test_a_key_that_is_refused_is_3_after_one_request(probe: Probe) -> None:
    """A 401 says nothing of any guarantee: no cell is called refused, and no fact is settled."""
    with ScriptedUpstream(lambda _: Fail(401, "Incorrect API key provided")) as upstream:
        done = probe(f"chat={upstream.base_url}", "--quick", "--json", "a.json")
    assert done.exit_code == 3, done.output
    assert len(posts(upstream)) == 1
    assert "refuses the key: HTTP 401" in done.output
    assert "PLAN" not in done.output


def test_without_an_upstream_the_usual_ports_are_looked_at(probe: Probe) -> None:
    """The first server that runs is measured, and named; where there is none, nothing can be."""
    with ScriptedUpstream(obedient) as upstream:
        done = probe("--ports", str(upstream.port), "--quick", *FORCED)
        assert done.exit_code == 0, done.output
        assert f"using a model server at {upstream.base_url}" in done.output
    gone = probe("--ports", str(upstream.port), "--quick")
    assert gone.exit_code == 3
    assert "no model server runs" in gone.output


def test_without_an_upstream_that_of_the_configuration_is_measured(
    probe: Probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mustcall.toml that names an upstream comes before the ports; one that names none does not."""
    monkeypatch.chdir(tmp_path)
    with ScriptedUpstream(obedient) as named, ScriptedUpstream(obedient) as running:
        file = tmp_path / "mustcall.toml"
        file.write_text(f'[[upstream]]\nname = "mine"\nwire = "chat"\nbase_url = "{named.base_url}"\n')
        done = probe("--ports", str(running.port), "--quick", *FORCED)
        assert done.exit_code == 0, done.output
        assert "using mine of mustcall.toml" in done.output
        assert (bool(posts(named)), posts(running)) == (True, [])
        file.write_text("[server]\nport = 0\n")
        done = probe("--ports", str(running.port), "--quick", *FORCED)
        assert f"using a model server at {running.base_url}" in done.output
        assert posts(running)


SEVERAL = """[[upstream]]
name = "one"
wire = "chat"
base_url = "{}"

[[upstream]]
name = "two"
wire = "chat"
base_url = "{}"
model = "m2"
"""


def test_several_upstreams_need_a_choice(probe: Probe, tmp_path: Path) -> None:
    """Without a terminal the message has the words to type for each; what they name is measured."""
    with ScriptedUpstream(obedient) as one, ScriptedUpstream(obedient) as two:
        (tmp_path / "mustcall.toml").write_text(SEVERAL.format(one.base_url, two.base_url))
        done = probe("--quick", *FORCED)
        assert isinstance(done.exception, MustcallError)
        assert "--model one/MODEL, --model two/m2" in done.exception.message
        assert not posts(one) + posts(two)
        done = probe("--quick", "--model", "two/m2", *FORCED)
        assert done.exit_code == 0, done.output
        assert {asked.body["model"] for asked in posts(two)} == {"m2"}
        assert not posts(one)


def test_a_chosen_embedded_upstream_is_measured_with_its_models_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 75: the model's own weights are measured, whether the upstream is chosen or its model named."""
    monkeypatch.setenv("MUSTCALL_CACHE", str(tmp_path))
    store = WeightStore()
    store.directory.mkdir(parents=True, exist_ok=True)
    for weights in map(find_weights, (DEFAULT, FALLBACK)):
        with store.path(weights).open("wb") as file:
            file.truncate(weights.size)
    local = f"embedded:{DEFAULT}"
    (tmp_path / "mustcall.toml").write_text(SEVERAL.format("http://127.0.0.1:9/v1", local).replace("m2", FALLBACK))
    settings = load_settings(tmp_path / "mustcall.toml")
    named = pick_endpoint(settings, f"two/{FALLBACK}", None)
    assert named == pick_endpoint(settings, None, None, chosen="two")
    assert (named[0].base_url, named[1]) == (f"embedded:{FALLBACK}", FALLBACK)


def test_several_upstreams_are_offered_at_a_terminal(tmp_path: Path) -> None:
    """The one that is chosen is measured, under the model that the file names."""
    with ScriptedUpstream(obedient) as one, ScriptedUpstream(obedient) as two:
        (tmp_path / "mustcall.toml").write_text(SEVERAL.format(one.base_url, two.base_url))
        command = [sys.executable, "-m", "mustcall", "probe", "--quick", *FORCED]
        environment = {**os.environ, "HOME": str(tmp_path), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        environment.pop("MUSTCALL_CONFIG", None)
        with PseudoTerminal(command, environment, tmp_path) as terminal:
            terminal.wait_for("1  one", "2  two", "Which one?")
            terminal.type("2")
            assert terminal.wait_for_end() == 0
        assert {asked.body["model"] for asked in posts(two)} == {"m2"}
        assert not posts(one)


@pytest.mark.parametrize("columns", [60, 80])
def test_every_line_fits_the_terminal(probe: Probe, columns: int) -> None:
    """The announcement and the PLAN, too, break between words."""
    with ScriptedUpstream(deaf) as upstream:
        done = probe(f"chat={upstream.base_url}", "--quick", "--model", "m", columns=columns)
    assert "planned:" in done.output
    assert "PLAN" in done.output
    assert [line for line in done.output.splitlines() if len(line) > columns] == []


def nowhere(_endpoint: Endpoint) -> bool:
    """No endpoint runs on this machine."""
    return False


def test_an_unknown_price_elsewhere_needs_a_yes(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal nobody can be asked: the cap cannot be kept, so nothing is sent."""
    from mustcall.cli.measuring import probe as command  # noqa: PLC0415  only here

    monkeypatch.setattr(command, "is_here", nowhere)
    with ScriptedUpstream(obedient) as upstream:
        done = probe(f"chat={upstream.base_url}", "--quick", *FORCED)
        assert isinstance(done.exception, MustcallError)
        assert "--max-usd cannot be kept" in done.exception.message
        assert "in [[price]]" in done.exception.message
        assert not posts(upstream)
        assert probe(f"chat={upstream.base_url}", "--quick", "--yes", *FORCED).exit_code == 0


PRICED = """[[upstream]]
name = "lab"
wire = "chat"
base_url = "{}"
model = "m"

[[price]]
model = "m"
input = 1000.0
output = 2000.0
"""


@pytest.mark.parametrize(
    ("most", "code", "told"),
    [
        ("0", None, "--max-usd 0 allows no request: all of it may cost $"),
        ("0.0001", 3, "--max-usd 0.0001 is less than the first request may cost"),
    ],
)
def test_a_cap_that_allows_nothing_is_told(
    probe: Probe, tmp_path: Path, most: str, code: int | None, told: str
) -> None:
    """Nothing is sent, and the message names the option: a cost that the cap forbids is not announced as none."""
    with ScriptedUpstream(obedient) as upstream:
        (tmp_path / "mustcall.toml").write_text(PRICED.format(upstream.base_url))
        done = probe("--config", "mustcall.toml", "--quick", "--yes", "--max-usd", most)
    said = done.output if code is not None else getattr(done.exception, "message", "")
    assert told in said
    assert " that all of it may cost" in done.output
    assert code is None or done.exit_code == code
    assert not posts(upstream)


def test_a_server_on_this_machine_costs_nothing(probe: Probe) -> None:
    """The plan says so, instead of a price that is not known."""
    with ScriptedUpstream(obedient) as upstream:
        done = probe(f"chat={upstream.base_url}", "--quick", *FORCED)
    assert "output tokens, no cost" in done.output


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_keep_what_was_measured(tmp_path: Path, stop: signal.Signals) -> None:
    """The matrix and the file have what came before; the exit code says that it was stopped."""
    script: list[Answer] = [*[Turn(Say("x"))] * 5, Hang(Turn(Say("x")))]
    with ScriptedUpstream(script) as upstream:
        arguments = ("probe", f"chat={upstream.base_url}", "--json", "a.json")
        home = {**os.environ, "HOME": str(tmp_path)}
        process = warm.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env=home)
        upstream.wait_for_requests(1 + 6)
        process.send_signal(stop)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    told = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert told["partial"] == "stopped before all cells were measured"
    assert sum(len(cell["outcomes"]) for cell in told["cells"] if cell["planned"]) == 5
    assert "stopped before all cells" in " ".join(out.split())  # the line may be broken


def test_a_terminal_shows_the_matrix_as_it_grows(tmp_path: Path) -> None:
    """A mark for each cell, the count of requests; Ctrl-C ends it."""
    with ScriptedUpstream([Turn(Say("x"))] * 4, default=Hang(Turn(Say("x")))) as upstream:
        command = [sys.executable, "-m", "mustcall", "probe", f"chat={upstream.base_url}"]
        environment = {**os.environ, "HOME": str(tmp_path), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        with PseudoTerminal(command, environment, tmp_path) as terminal:
            terminal.wait_for("planned:", "requests")
            upstream.wait_for_requests(1 + 5)
            terminal.press(CTRL_C)
            assert terminal.wait_for_end() == 130
            assert "Traceback" not in terminal.screen()
