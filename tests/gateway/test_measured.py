"""Measured profiles at work: the first request starts on the right rung, from a file, from the ledger, in an agent."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mustcall import Agent, Upstream
from mustcall.cli import cli
from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.engine.plan_comparison import compare_plans
from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.config.measured_file import write_measured
from mustcall.gateway.config.settings import load_settings
from mustcall.gateway.state.measured_profiles import row_of
from mustcall.ledger import open_ledger
from mustcall.profiles import MeasuredFact, MeasuredProfile, read_overrides
from mustcall.testing import Call, Recorded, RunningGateway, Say, ScriptedUpstream, Turn
from mustcall.upstream.endpoint import Endpoint
from support.compared import keep_own_count
from support.http import call, post

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
BODY: dict[str, Any] = {
    "model": "small",
    "messages": [{"role": "user", "content": "What is the weather in Oslo?"}],
    "tools": [TOOL],
    "tool_choice": "required",
}

CITY: dict[str, Any] = TOOL["function"]["parameters"]
#: What goes out on the native rung, which is streamed so that it can be settled early, and on the schema rung.
NATIVE = BODY | {"stream": True, "stream_options": {"include_usage": True}}
SCHEMA: dict[str, Any] = {
    "model": "small",
    "messages": [
        *BODY["messages"],
        {
            "role": "user",
            "content": "Answer with one JSON object that calls one of these tools, with its name and arguments:\n"
            '- get_weather\n  arguments: {"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}',
        },
    ],
    "response_format": {
        "type": "json_schema",
        "json_schema": {
            "name": "tool_call",
            "schema": {
                "type": "object",
                "properties": {"name": {"type": "string", "enum": ["get_weather"]}, "arguments": CITY},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            },
            "strict": True,
        },
    },
}


def ignores_force(request: Recorded) -> Turn:
    """A server that answers a forced choice in words, and keeps to a schema."""
    body: dict[str, Any] = request.body or {}
    if "response_format" in body:
        return Turn(Say('{"name": "get_weather", "arguments": {"city": "Oslo"}}'))
    return Turn(Say("It is sunny, I suppose."))


def measured(base_url: str, model: str = "small", **facts: Any) -> MeasuredProfile:
    """What a probe would write of that server."""
    said = facts or {"forced": "ignored", "schema_output": True}
    made = [MeasuredFact(field=field, value=value, day="2026-11-17", held=0, of=24) for field, value in said.items()]
    return MeasuredProfile.of(base_url, Wire.CHAT, model, made, upstream="lab")


def config(folder: Path, base_url: str, more: str = "") -> Path:
    """A configuration with this upstream."""
    file = folder / "mustcall.toml"
    file.write_text(f'# ours\n[[upstream]]\nname = "lab"\nwire = "chat"\nbase_url = "{base_url}"\n{more}')
    return file


def call_of(answer: Any) -> str:
    """The call in a chat reply."""
    assert answer.status == 200, answer.body
    return json.loads(answer.body)["choices"][0]["message"]["tool_calls"][0]["function"]["name"]


@pytest.mark.parametrize("how", ["table", "file", "ledger"])
def test_the_first_request_starts_on_the_right_rung(tmp_path: Path, how: str) -> None:
    """Rule 139: without a profile the forced call costs two upstream calls, with it one, on the schema rung."""
    with ScriptedUpstream(ignores_force) as upstream:
        file = config(tmp_path, upstream.base_url)
        env = {"MUSTCALL_LEDGER": str(tmp_path / "before.db")}
        with RunningGateway(settings=load_settings(file, environment=env)) as gateway:
            assert call_of(post(f"{gateway.base_url}/chat/completions", BODY)) == "get_weather"
        assert [one.body for one in upstream.requests] == [NATIVE, SCHEMA]
        upstream.requests.clear()

        profile = measured(upstream.base_url)
        env = {"MUSTCALL_LEDGER": str(tmp_path / "after.db")}
        if how == "table":
            assert write_measured(profile, file)
        elif how == "file":
            (tmp_path / "small.json").write_bytes(profile.encode())
            config(tmp_path, upstream.base_url, '[probe]\nprofiles = ["small.json"]\n')
        else:
            asyncio.run(_keep(env["MUSTCALL_LEDGER"], profile))
        with RunningGateway(settings=load_settings(file, environment=env)) as gateway:
            assert call_of(post(f"{gateway.base_url}/chat/completions", BODY)) == "get_weather"
        assert [one.body for one in upstream.requests] == [SCHEMA]


async def _keep(place: str, profile: MeasuredProfile) -> None:
    async with open_ledger(place) as ledger:
        await ledger.put_measured(row_of(profile))


def test_the_operators_word_stands_over_the_ledger(tmp_path: Path) -> None:
    """A `[[profile]]` table decides, whatever was measured: the forced choice goes out as it came."""
    with ScriptedUpstream([Turn(Call("get_weather", {"city": "Oslo"}))]) as upstream:
        env = {"MUSTCALL_LEDGER": str(tmp_path / "l.db")}
        asyncio.run(_keep(env["MUSTCALL_LEDGER"], measured(upstream.base_url)))
        file = config(tmp_path, upstream.base_url, '[[profile]]\nmodels = ["small"]\nforced = "always"\n')
        with RunningGateway(settings=load_settings(file, environment=env)) as gateway:
            assert call_of(post(f"{gateway.base_url}/chat/completions", BODY)) == "get_weather"
        (request,) = upstream.requests
        assert request.body == BODY


@pytest.mark.parametrize(("place", "calls"), [(None, 2), ("file", 1), ("value", 1), ("http://elsewhere.invalid/v1", 2)])
async def test_an_agent_takes_a_profile(tmp_path: Path, place: str | None, calls: int) -> None:
    """`Upstream(profile=…)` takes a file or its value; one of another endpoint changes nothing."""

    def get_weather(city: str) -> str:
        """Return the weather."""
        return f"rain in {city}"

    with ScriptedUpstream(lambda one: Turn(Say("Done.")) if one.number == calls else ignores_force(one)) as upstream:
        keep_own_count(upstream)
        url = upstream.base_url if place in ("file", "value") else str(place)
        profile: Path | MeasuredProfile | None = measured(url) if place is not None else None
        if place == "file":
            profile = tmp_path / "small.json"
            profile.write_bytes(measured(url).encode())
        model = Upstream(f"chat={upstream.base_url}#small", profile=profile)
        result = await Agent(model, tools=[get_weather]).run("What is the weather in Oslo?", force=True)
        assert result.text == "Done."
        forced = ["tools" in (one.body or {}) for one in upstream.requests[:-1]]
        assert forced == [True, False][2 - calls :]


def test_the_plan_says_what_changes() -> None:
    """The ladders before and after come from the planner, and the operator's word is told where it stands."""
    endpoint = Endpoint(name="lab", wire=Wire.CHAT, base_url="http://127.0.0.1:9000/v1")
    profile = measured(endpoint.base_url, forced="ignored", parallel=False, schema_output=True)
    plan = compare_plans(profile, endpoint)
    by_name = {one.asked: one for one in plan.plans}
    assert by_name["required"].before == ("native", "schema", "grammar", "soft", "text")
    assert by_name["required"].after == ("schema", "grammar", "soft", "text")
    assert by_name["one call at a time"].fields == ("parallel_tool_calls",)
    assert not by_name["auto"].changed
    assert plan.lines() == [
        "PLAN for small at 127.0.0.1:9000/v1 (chat)",
        "  forced = ignored (measured 2026-11-17 0/24), was not known",
        "  parallel = false (measured 2026-11-17 0/24), was not known",
        "  schema_output = true (measured 2026-11-17 0/24), was not known",
        "  required; required, reasoning; named; named, reasoning:",
        "    now schema > grammar > soft > text",
        "    was native > schema > grammar > soft > text",
        "  one call at a time: as before, sent with another parallel_tool_calls",
        "  as before: auto; none; answer by schema",
    ]
    said = OperatorSettings(overrides=read_overrides([{"forced": "always", "parallel": True}]))
    lines = compare_plans(measured(endpoint.base_url, forced="ignored", parallel=False), endpoint, said).lines()
    assert lines == [
        "PLAN for small at 127.0.0.1:9000/v1 (chat)",
        "  forced stays always (mustcall.toml: profile 1): the operator says so; measured ignored",
        "  parallel stays true (mustcall.toml: profile 1): the operator says so; measured false",
        "  nothing is done differently",
    ]
    # What was assumed of any server is known from nowhere.
    lines = compare_plans(measured(endpoint.base_url, named=True), endpoint).lines()
    assert lines[1] == "  named = true (measured 2026-11-17 0/24), as assumed before"


def test_explain_check_and_list_show_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each says what was measured, when, how often, and where it is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MUSTCALL_CONFIG", raising=False)
    place = str(tmp_path / "l.db")
    monkeypatch.setenv("MUSTCALL_LEDGER", place)
    url = "http://127.0.0.1:9000/v1"
    file = config(tmp_path, url)
    write_measured(measured(url), file)
    asyncio.run(_keep(place, measured(url, "big", named=False)))
    (tmp_path / "huge.json").write_bytes(measured(url, "huge", parallel=False).encode())
    run = CliRunner()

    explained = run.invoke(cli, ["explain"], input=json.dumps(BODY)).output
    assert 'forced = "ignored"  (probed: measured 2026-11-17 0/24, mustcall.toml)' in explained
    explained = run.invoke(cli, ["explain", "--ledger", place], input=json.dumps(BODY | {"model": "big"})).output
    assert "named = false  (probed: measured 2026-11-17 0/24, ledger)" in explained
    explained = run.invoke(
        cli, ["explain", "--profile", "huge.json"], input=json.dumps(BODY | {"model": "huge"})
    ).output
    assert "parallel = false  (probed: measured 2026-11-17 0/24, huge.json)" in explained

    checked = run.invoke(cli, ["config", "check"]).output
    assert (
        'measured     small at 127.0.0.1:9000/v1 (chat): forced = "ignored" (measured 2026-11-17 0/24, mustcall.toml)'
        in checked
    )

    listed = run.invoke(cli, ["profiles", "list", "--ledger", place]).output.splitlines()
    assert listed[0].split() == ["lab", "big", "named", "is", "False", "measured", "2026-11-17", "0/24,", "ledger"]
    assert listed[1].split()[:5] == ["lab", "small", "forced", "is", "ignored"]
    assert listed[1].endswith("mustcall.toml")
    assert (
        run.invoke(cli, ["profiles", "forget", "--measured", "--model", "big", "--ledger", place]).output
        == "forgot 1 entry\n"
    )
    assert run.invoke(cli, ["profiles", "forget", "--measured", "--key", "x", "--ledger", place]).exit_code == 2
    assert "big" not in run.invoke(cli, ["profiles", "list", "--ledger", place]).output


def test_writing_keeps_the_file(tmp_path: Path) -> None:
    """Permissions and links stay, the same profile again changes nothing, and there is no file half written."""
    file = config(tmp_path, "http://127.0.0.1:9000/v1")
    file.chmod(0o640)
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    before = file.read_text()
    assert write_measured(measured("http://127.0.0.1:9000/v1"), link) is True
    assert file.read_text().startswith(before)
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert write_measured(measured("http://127.0.0.1:9000/v1"), link) is False
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.toml", "mustcall.toml"]
    with pytest.raises(ConfigError, match="mustcall init"):
        write_measured(measured("http://127.0.0.1:9000/v1"), tmp_path / "none.toml")
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        write_measured(measured("http://127.0.0.1:9000/v1"), file)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[probe]\nevery = "soon"\n', "probe: every is a time like"),
        ('[probe]\nevery = "10s"\n', "60s or more"),
        ("[probe]\nmax_requests = 0\n", "max_requests"),
        ('[probe]\nupstreams = ["nobody"]\n', "'nobody', which is no upstream"),
        ('[probe]\nprofiles = ["none.json"]\n', "none.json"),
        ('[[measured]]\nendpoint = "h"\nwire = "chat"\nmodel = ""\n', "model is empty"),
    ],
)
def test_wrong_settings_name_the_value(tmp_path: Path, text: str, words: str) -> None:
    """What cannot be used is one line that says which value and why."""
    with pytest.raises(ConfigError) as caught:
        load_settings(config(tmp_path, "http://127.0.0.1:9000/v1", text), environment={"MUSTCALL_LEDGER": "off"})
    assert words in caught.value.message


@pytest.mark.parametrize("anthropic", [False, True])
def test_models_are_listed_with_what_they_can_do(tmp_path: Path, anthropic: bool) -> None:
    """Real names in each wire's own shape; the extension field says what was measured, configured or assumed."""
    with ScriptedUpstream(ignores_force, models=["small", "other"]) as upstream:
        file = config(tmp_path, upstream.base_url, '[[profile]]\nmodels = ["small"]\nparallel = false\n')
        write_measured(measured(upstream.base_url), file)
        settings = load_settings(file, environment={"MUSTCALL_LEDGER": "off"})
        with RunningGateway(settings=settings) as gateway:
            headers = {"anthropic-version": "2023-06-01"} if anthropic else {}
            listed = call("GET", f"{gateway.base_url}/models", headers=headers).json
        small, other = listed["data"]
        assert (small["id"], other["id"]) == ("small", "other")
        assert (small.get("type"), small.get("object")) == (("model", None) if anthropic else (None, "model"))
        told = small["mustcall"]
        assert (told["upstream"], told["model"], told["wire"]) == ("lab", "small", "chat")
        can = told["capabilities"]
        assert can["forced_tool_choice"] == {"value": "ignored", "known": "measured", "by": "2026-11-17 0/24"}
        assert can["parallel_tool_calls"] == {"value": False, "known": "configured", "by": "config"}
        assert can["reasoning"] == {"value": "unknown", "known": "assumed", "by": "default"}
        assert other["mustcall"]["capabilities"]["forced_tool_choice"]["known"] == "assumed"


def test_a_renamed_model_is_listed_with_the_name_it_goes_under(tmp_path: Path) -> None:
    """A route's own name is listed; what is known is that of the model behind it."""
    with ScriptedUpstream(ignores_force) as upstream:
        file = config(tmp_path, upstream.base_url, '[[route]]\nmodel = "fast"\nupstream = "lab"\nsend_as = "small"\n')
        write_measured(measured(upstream.base_url), file)
        with RunningGateway(settings=load_settings(file, environment={"MUSTCALL_LEDGER": "off"})) as gateway:
            (entry,) = call("GET", f"{gateway.base_url}/models").json["data"]
        assert (entry["id"], entry["mustcall"]["model"]) == ("fast", "small")
        assert entry["mustcall"]["capabilities"]["structured_output"]["known"] == "measured"
