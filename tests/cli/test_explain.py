"""`mustcall explain`: the plan of a request, for people and for programs, with nothing sent."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mustcall.cli import main
from mustcall.cli.inspecting.explain import command
from mustcall.core.errors import InvalidRequest

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Weather in Paris?"}]}
CLAUDE: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 4000,
    "thinking": {"type": "enabled", "budget_tokens": 2000},
    "messages": [{"role": "user", "content": "Weather in Paris?"}],
    "tools": [{"name": "get_weather", "input_schema": CITY}, {"name": "search", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "tool", "name": "get_weather"},
}
HERO = """\
[[upstream]]
name = "claude"
wire = "messages"
base_url = "https://api.anthropic.com/v1"
api_key_env = "A_KEY_THAT_IS_NOT_SET"

[[route]]
model = "house"
upstream = "claude"
send_as = "claude-sonnet-4-5"

[[grounding]]
name = "hero"
triggers = "hero os|hero_*"
tool = "search_hero_docs"
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration but the test's own."""
    monkeypatch.chdir(tmp_path)
    for name in ("MUSTCALL_CONFIG", "MUSTCALL_UPSTREAM"):
        monkeypatch.delenv(name, raising=False)


def run(body: object, *arguments: str) -> Result:
    """Run the command on a request at standard input."""
    return CliRunner().invoke(command, list(arguments), input=json.dumps(body))


def plan(body: object, *arguments: str) -> dict[str, Any]:
    """Return the plan as JSON."""
    result = run(body, "--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_ladder() -> None:
    """Rules 20, 23, 25: the soft rung, then the hard one with the first answer in context, each as what it changes."""
    output = run(CLAUDE).stdout
    assert output.startswith(
        """\
model     claude-sonnet-4-5 (profile claude-4.5); messages in, messages out
protocol  native
demand    named get_weather (the request's own choice); reasoning counts as on

attempt 1: soft (`auto` and a directive at the tail)
  force_softened tool_choice: auto and a directive
  directive_added messages: 1 at the tail
  sent: as in the request, but
    ~ messages:
        (1 as before)
      + {"role":"user","content":"Use the tool `get_weather` for this: call it now."}
    ~ tool_choice: {"type":"auto"}

attempt 2, if the call is still missing: hard (the forced choice, with reasoning off for this one request)
  reasoning_off reasoning: for this attempt only
  directive_added messages: 1 at the tail
  sent: as in attempt 1, but
    ~ messages:
        (2 as before)
      + {"role":"assistant","content":"(what the model said in attempt 1)"}
      + {"role":"user","content":"The tool `get_weather` has not been called yet. Call it now, before anything else."}
    ~ tool_choice: {"type":"tool","name":"get_weather"}
    ~ thinking: {"type":"disabled"}

then a force_unmet error (on_unmet = error)
every reply is judged (docs/remedies.md); at most 4 extra upstream calls are made in all

known of this model:
  protocol = "native"  (docs)
"""
    )


def test_untouched() -> None:
    """Rule 105: a clean request without a force goes out as it is."""
    output = run(CHAT).stdout
    assert "attempt 1: plain (nothing is forced)\n  the request as it is, byte for byte\n" in output
    assert "attempt 2" not in output
    assert output.endswith("nothing is known of this model: it is asked on the safe side\n")


def test_mended_history_is_shown() -> None:
    """Rules 101, 102, 103: what is mended is named, with the reason, and the messages are shown before and after."""
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'}}
    leaked = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
    history = [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": leaked, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c9", "content": "x"},
        {"role": "user", "content": "Paris?"},
    ]
    output = run({"model": "m", "messages": history, "tools": [CHAT_TOOL]}).stdout
    assert (
        """
mended before anything is sent:
  markup_stripped history: leftover calls taken out of 1 assistant turns
  history_mended tool_call: 1 without a result: answered with an error
  history_mended tool_result: 1 without a call: removed
  history_mended user: 1 empty turns filled in
"""
        in output
    )
    assert '      - {"role":"tool","tool_call_id":"c9","content":"x"}\n' in output
    assert '      + {"role":"user","content":"(empty)"}\n' in output
    assert "        (1 as before)\n" in output


def test_across_wires() -> None:
    """Rule 115: on another wire the first attempt is shown whole, later ones as what they change."""
    output = run({**CHAT, "tools": [CHAT_TOOL], "tool_choice": "required"}, "--to", "messages").stdout
    assert "chat in, messages out" in output
    assert '  sent:\n    {\n      "model": "m",\n' in output
    assert '"input_schema": {' in output
    assert "  sent: as in attempt 1, but\n" in output


def test_json() -> None:
    """The plan for programs has every body in full, and everything people are shown."""
    shown = plan(CLAUDE)
    assert [rung["rung"] for rung in shown["rungs"]] == ["soft", "hard"]
    assert shown["rungs"][0]["body"]["tools"] == CLAUDE["tools"]
    assert shown["rungs"][1]["body"]["thinking"] == {"type": "disabled"}
    assert shown["facts"]["forced"]["value"] == "without_reasoning"
    assert shown["demand"] == "named get_weather"
    assert shown["mended"] == []


def test_model() -> None:
    """Rule 28: another model is another ladder."""
    shown = plan(CLAUDE, "--model", "claude-opus-5-5")
    assert [rung["rung"] for rung in shown["rungs"]] == ["soft", "soft", "soft", "soft", "schema"]
    assert shown["rungs"][0]["body"]["model"] == "claude-opus-5-5"


def test_headers_and_extension() -> None:
    """Rule 9: what a caller may ask for beside its request is explained, too, and never shown as sent."""
    body = {**CHAT, "tools": [CHAT_TOOL]}
    by_header = plan(body, "-H", "X-Mustcall-Force-Tools: get_weather")
    by_body = plan({**body, "mustcall": {"force_tools": "get_weather"}})
    assert by_header == by_body
    assert by_header["source"] == "force_tools"
    assert "mustcall" not in by_body["rungs"][0]["body"]


def test_limits_and_unmet() -> None:
    """Rules 27, 96: what the ceiling leaves out is said, and what comes when the ladder is spent."""
    output = run({**CLAUDE, "mustcall": {"limits": {"extra_calls": 0}, "on_unmet": "answer"}}).stdout
    assert "attempt 2" not in output
    assert "not reached with extra_calls = 0: hard\nthen the reply as it is (on_unmet = answer)\n" in output


def test_off() -> None:
    """Rule 70: under `off` nothing is mended, demanded or refused."""
    body = {**CHAT, "tool_choice": {"type": "function", "function": {"name": "nope"}}}
    output = run(body, "-H", "x-mustcall-protocol: off").stdout
    assert "demand    none is kept: everything passes through\n" in output
    assert "the request as it is, byte for byte\n" in output


def test_configuration(tmp_path: Path) -> None:
    """Rules 12, 14: mustcall.toml's routes, rules and upstreams count, and no key is needed to explain."""
    (tmp_path / "mustcall.toml").write_text(HERO)
    tool = {"type": "function", "function": {"name": "search_hero_docs", "parameters": {"type": "object"}}}

    def ask(text: str) -> dict[str, Any]:
        return plan({"model": "house", "messages": [{"role": "user", "content": text}], "tools": [tool]})

    asked = ask("What is Hero OS?")
    assert (asked["upstream"], asked["upstream_wire"], asked["model"]) == ("claude", "messages", "claude-sonnet-4-5")
    assert (asked["demand"], asked["source"]) == ("named search_hero_docs", "grounding")
    assert asked["notes"] == [{"kind": "force_added", "subject": "search_hero_docs", "detail": "grounding rule hero"}]
    assert ask("Who is your hero?")["demand"] == "none"


def test_configuration_without_upstreams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of rules alone is enough, named by flag or by environment; upstreams may come from there as well."""
    file = tmp_path / "rules.toml"
    file.write_text("[contract]\nforce_tools = true\n")
    body = {**CHAT, "tools": [CHAT_TOOL]}
    assert plan(body, "--config", str(file))["demand"] == "required"
    assert plan(body)["demand"] == "none"
    monkeypatch.setenv("MUSTCALL_CONFIG", str(file))
    assert plan(body)["demand"] == "required"
    monkeypatch.setenv("MUSTCALL_UPSTREAM", "messages=http://upstream.invalid/v1")
    assert plan(body)["upstream_wire"] == "messages"
    monkeypatch.delenv("MUSTCALL_CONFIG")
    assert plan(body)["upstream_wire"] == "messages"


def test_long_text_is_cut_for_people_only() -> None:
    """A picture in a request does not flood the terminal, and is whole in the JSON."""
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 5000}]}
    output = run(body, "--to", "messages").stdout
    assert "… (5,000 characters)" in output
    assert len(output) < 2000
    assert plan(body, "--to", "messages")["rungs"][0]["body"]["messages"][0]["content"] == "x" * 5000


@pytest.mark.parametrize("depth", [100, 600, 950])
def test_deep_bodies(depth: int) -> None:
    """A request that is nested deeply is shown cut, or refused in one line."""
    schema = '{"type":"object","x":' + "[" * depth + "]" * depth + "}"
    tool = '{"type":"function","function":{"name":"f","parameters":' + schema + "}}"
    body = (
        '{"model":"gpt-4o","messages":[{"role":"user","content":"x"}],"tool_choice":"required","tools":[' + tool + "]}"
    )
    for arguments in ([], ["--to", "messages"], ["--json"]):
        result = CliRunner().invoke(command, arguments, input=body)
        assert isinstance(result.exception, InvalidRequest | None)


def test_file_and_wire(tmp_path: Path) -> None:
    """A request is read from a file as well; its wire can be said where its fields do not tell."""
    file = tmp_path / "request.json"
    file.write_text(json.dumps({**CHAT, "max_tokens": 5}))
    result = CliRunner().invoke(command, [str(file), "--wire", "messages"])
    assert "messages in, messages out" in result.stdout


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("{oops", [], "the body is not valid JSON"),
        ("", [], "the body is empty; a JSON object is expected"),
        (" \n", [], "the body is empty; a JSON object is expected"),
        ("[]", [], "the body cannot be read"),
        ("{}", ["nope.json"], "cannot read nope.json: No such file or directory"),
        ("{}", ["--config", "nope.toml"], "cannot read nope.toml: No such file or directory"),
        ("{}", ["--header", "nonsense"], "the header 'nonsense' must be NAME: VALUE"),
        (json.dumps(CHAT), ["-H", "x-mustcall-hold: perhaps"], "true or false is expected"),
        (json.dumps({**CHAT, "mustcall": {"nope": 1}}), [], "`mustcall` has no setting 'nope'"),
        (
            json.dumps({**CHAT, "tool_choice": "required"}),
            [],
            "tool_choice demands any tool, but no tools are on offer",
        ),
    ],
)
def test_errors(
    text: str,
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Rule 8: what would be refused is refused in one line, with exit code 2."""
    if arguments != ["nope.json"]:
        (tmp_path / "request.json").write_text(text)
        arguments = ["request.json", *arguments]
    with pytest.raises(SystemExit) as stopped:
        main(["explain", *arguments])
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("mustcall: ")
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_unknown_wire() -> None:
    """A wire that does not exist is named with those that do."""
    result = run(CHAT, "--wire", "gemini")
    assert result.exit_code == 2
    assert "'chat', 'responses', 'messages'" in result.output


def test_settings_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 120: retries, back-off, hops, the cap of results, limits and single tools are shown as they are in force."""
    (tmp_path / "mustcall.toml").write_text(f"{HERO}\n[contract.tools.rm]\nlocked_off = true\n")
    monkeypatch.setenv("MUSTCALL_UPSTREAM_RETRIES", "7")
    monkeypatch.setenv("MUSTCALL_CONTRACT_HOPS", "3")
    monkeypatch.setenv("MUSTCALL_CONTRACT_RESULT_CAP", "900")
    monkeypatch.setenv("MUSTCALL_LIMITS_EMPTY", "0")
    told = plan({**CLAUDE, "model": "house"})["settings"]
    waits = {"retries": 7, "backoff_base": 0.5, "backoff_cap": 8.0, "longest_wait": 30.0}
    assert (told["upstream"], told["contract"]) == (waits, {"hops": 3, "result_cap": 900})
    assert (told["contract.limits"]["empty"], told["contract.limits"]["extra_calls"]) == (0, 4)
    assert told["contract.tools.rm"]["locked_off"] is True
    shown = run({**CLAUDE, "model": "house"}).stdout
    assert shown.partition("set, other than by default:\n")[2].partition("\n\n")[0].splitlines() == [
        "  upstream.retries = 7",
        "  contract.hops = 3",
        "  contract.result_cap = 900",
        "  contract.limits.empty = 0",
        "  contract.tools.rm.locked_off = true",
    ]


def test_json_is_not_broken_at_the_edge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is printed as JSON can be copied from a terminal of any width; the sentences around it are folded."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "40")
    file = tmp_path / "request.json"
    body = {**CHAT, "messages": [{"role": "user", "content": "word " * 30}], "tools": [CHAT_TOOL]}
    file.write_text(json.dumps(body))
    told = CliRunner().invoke(command, [str(file), "--to", "messages"], catch_exceptions=False).output
    before, _, sent = told.partition("  sent:\n")
    decoder = json.JSONDecoder()
    printed, _ = decoder.raw_decode(sent.lstrip())
    assert printed["messages"] == [{"role": "user", "content": "word " * 30}]
    assert max(map(len, before.splitlines())) <= 40


#: What a terminal acts upon, or `str.splitlines` breaks at.
ACTS = "a\u2028b\u2029c\x85d\x7fe\u202ef\x9bg"


@pytest.mark.parametrize("arguments", [(), ("--to", "messages"), ("--json",)])
def test_json_does_nothing_to_a_terminal(arguments: tuple[str, ...]) -> None:
    """Line separators, DEL and overrides of the direction are escaped, in whole bodies and in changes of one."""
    tool = {"type": "function", "function": {"name": "get_weather", "description": ACTS, "parameters": CITY}}
    body = CHAT | {"tools": [tool], "tool_choice": "required"}
    shown = run(body, *arguments).output
    assert (set(ACTS) - set("abcdefg")) & set(shown) == set()
    assert "".join(sign if sign in "abcdefg" else f"\\u{ord(sign):04x}" for sign in ACTS) in shown
    if "--json" in arguments:
        assert json.loads(shown)["rungs"][0]["body"]["tools"] == [tool]


def test_no_line_of_json_is_broken_inside_a_string() -> None:
    """A body that is printed can be copied: only JSON's own lines are lines."""
    body = CHAT | {"messages": [{"role": "user", "content": ACTS}], "tools": [CHAT_TOOL]}
    sent = run(body, "--to", "messages").output.partition("  sent:\n")[2]
    printed, _ = json.JSONDecoder().raw_decode(sent.lstrip())
    assert printed["messages"] == body["messages"]
