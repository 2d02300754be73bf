"""Configuration: file, environment and flags, and errors that name the place and the fix."""

import json
import sys
from enum import Enum
from pathlib import Path

import msgspec
import pytest

from mustcall import Upstream
from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.engine.explaining import explain
from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.config.first_config import compose, plan_upstreams
from mustcall.gateway.config.settings import ServerSettings, load_settings, settings_from_flags
from mustcall.gateway.request_controls import take_controls
from mustcall.policy.facts.controls import Controls, Limits, OnUnmet, ToolControls
from mustcall.policy.facts.wording import Wording
from mustcall.policy.failures.backoff import Backoff
from mustcall.upstream.embedded.catalogue import DEFAULT, FALLBACK, find_weights
from mustcall.upstream.embedded.store import WeightStore
from mustcall.upstream.seam import Timeouts

UPSTREAM = '[[upstream]]\nname = "a"\nwire = "chat"\nbase_url = "http://127.0.0.1:9000/v1/"\n'


def write(folder: Path, text: str) -> Path:
    """A configuration file."""
    file = folder / "mustcall.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_whole_file(tmp_path: Path) -> None:
    """Every table is read; keys come from the environment; the base URL loses its last slash."""
    file = write(
        tmp_path,
        '[server]\nport = 1234\nmax_body_bytes = 5\nclient_keys_env = "KEYS"\n'
        + UPSTREAM
        + 'api_key_env = "A_KEY"\nretries = 5\nidle_timeout = 3.5\nheaders = { "X-Team" = "t" }\n'
        '[[route]]\nmodel = "fast"\nupstream = "a"\nsend_as = "gpt-4.1-mini"\n',
    )
    settings = load_settings(file, environment={"KEYS": "k1, k2", "A_KEY": "sk-a"})
    endpoint = settings.endpoints[0]
    assert (settings.server.port, settings.server.max_body_bytes, settings.client_keys) == (1234, 5, ("k1", "k2"))
    assert (endpoint.base_url, endpoint.api_key, endpoint.wire) == ("http://127.0.0.1:9000/v1", "sk-a", Wire.CHAT)
    assert (endpoint.backoff.retries, endpoint.timeouts.idle, endpoint.headers) == (5, 3.5, {"X-Team": "t"})
    assert settings.routes[0].send_as == "gpt-4.1-mini"


def test_environment_over_file_and_flags_over_both(tmp_path: Path) -> None:
    """The nearer the caller, the stronger."""
    file = write(tmp_path, "[server]\nport = 1\nhost = '127.0.0.2'\n" + UPSTREAM)
    env = {"MUSTCALL_PORT": "2", "MUSTCALL_UPSTREAM": "responses=http://127.0.0.1:1/v1"}
    assert load_settings(file, environment={}).server.port == 1
    settings = load_settings(file, environment=env)
    assert (settings.server.port, settings.server.host) == (2, "127.0.0.2")
    assert [endpoint.wire for endpoint in settings.endpoints] == [Wire.RESPONSES]
    settings = load_settings(file, environment=env, port=3, upstream_flags=["messages=http://127.0.0.1:1/v1"])
    assert settings.server.port == 3
    assert [endpoint.wire for endpoint in settings.endpoints] == [Wire.MESSAGES]


def test_every_section_has_variables(tmp_path: Path) -> None:
    """Rule 120: limits, sentences and switches are set by the environment, over the file, in their own types."""
    file = write(tmp_path, "[contract]\nhold = true\n[contract.limits]\nempty = 1\n" + UPSTREAM)
    env = {
        "MUSTCALL_SERVER_MAX_BODY_BYTES": "77",
        "MUSTCALL_SERVER_CORS_ORIGINS": "https://a.example, https://b.example",
        "MUSTCALL_CONTRACT_ON_UNMET": "answer",
        "MUSTCALL_CONTRACT_FORCE_TOOLS": "true",
        "MUSTCALL_LIMITS_EXTRA_CALLS": "7",
        "MUSTCALL_WORDING_CONTINUE_TURN": "Go on, please.",
    }
    settings = load_settings(file, environment=env)
    controls = settings.operator.controls
    assert (settings.server.max_body_bytes, settings.server.cors_origins) == (
        77,
        ("https://a.example", "https://b.example"),
    )
    assert (controls.on_unmet, controls.force_tools, controls.hold) == (OnUnmet.ANSWER, True, True)
    assert (controls.limits.extra_calls, controls.limits.empty) == (7, 1)
    assert settings.operator.wording.continue_turn == "Go on, please."


@pytest.mark.parametrize(
    ("written", "read"),
    [
        *(("True", True), ("1", True), ("yes", True), ("ON", True), ("FALSE", False), ("0", False), ("off", False)),
        *(("search", "search"), ("Truth", "Truth"), ("01", "01")),
    ],
)
def test_a_switch_that_may_be_a_name(tmp_path: Path, written: str, read: bool | str) -> None:
    """Rule 120: a force is a tool's name only if it is no word for true or false; those words are a header's, too."""
    env = {"MUSTCALL_CONTRACT_FORCE_TOOLS": written}
    if isinstance(read, bool):
        env |= {"MUSTCALL_CONTRACT_HOLD": f" {written}"}
    controls = load_settings(write(tmp_path, UPSTREAM), environment=env).operator.controls
    assert controls.force_tools == read
    assert controls.hold is (read is True)
    assert take_controls(b"{}", {"x-mustcall-force-tools": written}, Controls())[0].force_tools == read


#: The settings of retries, and what they are without any.
WAITS = {"retries": 2, "backoff_base": 0.5, "backoff_cap": 8.0, "longest_wait": 30.0}


def _another(value: object) -> tuple[str, object]:
    """A legal value that differs from a default, as the environment writes it and as it is read."""
    match value:
        case bool():
            return str(not value).lower(), not value
        case Enum():
            other = next(one for one in type(value) if one is not value)
            return str(other), other
        case int():
            return str(value + 1), value + 1
        case float():
            return str(value + 1), value + 1
        case tuple():
            return "One, please.", ("One", "please.")
        case _:
            return f"{value} And that.", f"{value} And that."


_SECTIONS = [
    *[("MUSTCALL_LIMITS_", Limits, name) for name in Limits.__struct_fields__],
    *[("MUSTCALL_WORDING_", Wording, name) for name in Wording.__struct_fields__],
    # `protocol`, `session` and `tools` have no default to differ from; `limits` is a section of its own.
    *[
        ("MUSTCALL_CONTRACT_", Controls, name)
        for name in Controls.__struct_fields__
        if name not in ("limits", "protocol", "session", "tools")
    ],
]


@pytest.mark.parametrize(("prefix", "kind", "name"), _SECTIONS)
def test_every_setting_has_a_variable(
    tmp_path: Path, prefix: str, kind: type[Limits | Wording | Controls], name: str
) -> None:
    """Rule 120: each limit, sentence and switch of a turn is set by the environment, and by the file, to the same."""
    written, expected = _another(getattr(kind(), name))
    table = {Limits: "contract.limits", Wording: "wording", Controls: "contract"}[kind]
    value = json.dumps(expected)
    file = write(tmp_path, f"[{table}]\n{name} = {value}\n" + UPSTREAM)
    by_file = load_settings(file, environment={}).operator
    env = {f"{prefix}{name.upper()}": written}
    by_environment = load_settings(write(tmp_path, UPSTREAM), environment=env).operator
    for operator in (by_file, by_environment):
        held = {Limits: operator.controls.limits, Wording: operator.wording, Controls: operator.controls}[kind]
        assert getattr(held, name) == expected
        assert getattr(held, name) != getattr(kind(), name)


def test_retries_and_waits_of_an_upstream(tmp_path: Path) -> None:
    """Rules 111, 120: how often and how patiently an upstream is called again is set by file and environment."""
    file = write(tmp_path, UPSTREAM + "retries = 5\nbackoff_base = 0.1\nbackoff_cap = 1\nlongest_wait = 9\n")
    assert tuple(WAITS.values()) == msgspec.structs.astuple(Backoff())
    assert load_settings(upstream_flags=["chat=http://h/v1"], environment={}).endpoints[0].backoff == Backoff()
    (endpoint,) = load_settings(file, environment={}).endpoints
    assert endpoint.backoff == Backoff(retries=5, base=0.1, cap=1, longest_wait=9)
    env = {f"MUSTCALL_UPSTREAM_{name.upper()}": "3" for name in WAITS}
    (endpoint,) = load_settings(file, environment=env).endpoints
    assert endpoint.backoff == Backoff(retries=3, base=3, cap=3, longest_wait=3)
    flagged = load_settings(upstream_flags=["chat=http://h/v1", "chat=http://i/v1"], environment=env)
    assert [one.backoff.retries for one in flagged.endpoints] == [3, 3]


def test_timeouts_of_all_upstreams(tmp_path: Path) -> None:
    """Rule 120: timeouts and token limits have variables; what an upstream is has none."""
    env = {
        "MUSTCALL_UPSTREAM_CONNECT_TIMEOUT": "1",
        "MUSTCALL_UPSTREAM_READ_TIMEOUT": "2",
        "MUSTCALL_UPSTREAM_IDLE_TIMEOUT": "3",
        "MUSTCALL_UPSTREAM_DEFAULT_MAX_TOKENS": "4",
        "MUSTCALL_UPSTREAM_MAX_OUTPUT_TOKENS": "5",
    }
    (endpoint,) = load_settings(write(tmp_path, UPSTREAM), environment=env).endpoints
    assert endpoint.timeouts == Timeouts(connect=1, read=2, idle=3)
    assert (endpoint.default_max_tokens, endpoint.max_output_tokens) == (4, 5)
    for name in ("MUSTCALL_UPSTREAM_NAME", "MUSTCALL_UPSTREAM_BASE_URL"):
        with pytest.raises(ConfigError, match=f"{name} is no variable"):
            load_settings(write(tmp_path, UPSTREAM), environment={name: "b"})


def test_single_tools_and_agents_limits(tmp_path: Path) -> None:
    """Rule 120: settings of single tools, hops and the cap of results are set by file and environment."""
    file = write(
        tmp_path,
        "[contract]\nhops = 5\nresult_cap = 600\n[contract.tools.rm]\nlocked_off = true\nresult_cap = 70\n" + UPSTREAM,
    )
    controls = load_settings(file, environment={}).operator.controls
    assert (controls.hops, controls.result_cap) == (5, 600)
    assert controls.tools == {"rm": ToolControls(locked_off=True, result_cap=70)}
    env = {
        "MUSTCALL_CONTRACT_HOPS": "1",
        "MUSTCALL_CONTRACT_RESULT_CAP": "80",
        "MUSTCALL_CONTRACT_TOOLS": '{"poll": {"loop_advice": 0}, "ls": {"loop_block": 4, "loop_block_same": true}}',
    }
    controls = load_settings(file, environment=env).operator.controls
    assert (controls.hops, controls.result_cap) == (1, 80)
    assert controls.tools == {
        "poll": ToolControls(loop_advice=0),
        "ls": ToolControls(loop_block=4, loop_block_same=True),
    }


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("MUSTCALL_CONTRACT_TOOLS", "rm", "MUSTCALL_CONTRACT_TOOLS must be a JSON object"),
        ("MUSTCALL_CONTRACT_TOOLS", '{"rm": {"locked": true}}', "MUSTCALL_CONTRACT_TOOLS: .*`locked`"),
        ("MUSTCALL_CONTRACT_HOPS", "-1", "MUSTCALL_CONTRACT_HOPS:"),
        ("MUSTCALL_CONTRACT_RESULT_CAP", "0", "MUSTCALL_CONTRACT_RESULT_CAP:"),
        ("MUSTCALL_UPSTREAM_RETRIES", "often", "MUSTCALL_UPSTREAM_RETRIES:"),
        ("MUSTCALL_UPSTREAM_BACKOFF_CAP", "-1", "upstream 'a': backoff_cap must be 0 or more"),
        ("MUSTCALL_UPSTREAM_LONGEST_WAIT", "inf", "upstream 'a': longest_wait must be 0 or more"),
        ("MUSTCALL_LIMITS_EXTRA_CALLS", "many", "MUSTCALL_LIMITS_EXTRA_CALLS:"),
        ("MUSTCALL_CONTRACT_ON_UNMET", "shrug", "MUSTCALL_CONTRACT_ON_UNMET: .*; it can be answer, error"),
        ("MUSTCALL_SERVER_LOG_LEVEL", "warn", "MUSTCALL_SERVER_LOG_LEVEL: .*; did you mean 'warning'"),
        ("MUSTCALL_CONTRACT_ON_UNMET", "true", "MUSTCALL_CONTRACT_ON_UNMET: .*'true'; it can be answer, error"),
        ("MUSTCALL_SERVER_KEEPALIVE", "false", "MUSTCALL_SERVER_KEEPALIVE: .*; write a number, without a unit"),
        ("MUSTCALL_UPSTREAM_MAX_OUTPUT_TOKENS", "many", "MUSTCALL_UPSTREAM_MAX_OUTPUT_TOKENS: .*; write a whole num"),
        ("MUSTCALL_CONTRACT_HOLD", "maybe", "MUSTCALL_CONTRACT_HOLD: .*; write true or false"),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, variable: str, value: str, said: str) -> None:
    """A value of the wrong type is refused by the name of its variable."""
    with pytest.raises(ConfigError, match=said):
        load_settings(write(tmp_path, UPSTREAM), environment={variable: value, "MUSTCALL_LIMITS_EMPTY": "1"})


def test_file_named_by_the_environment(tmp_path: Path) -> None:
    """`MUSTCALL_CONFIG` points at the file."""
    file = write(tmp_path, UPSTREAM)
    assert load_settings(environment={"MUSTCALL_CONFIG": str(file)}).endpoints[0].name == "a"


def test_flags_name_upstreams() -> None:
    """`name:wire=URL`, and the wire as a name, numbered, where none is given."""
    settings = settings_from_flags("chat=http://h/v1", "chat=http://i/v1", "x:messages=https://j")
    assert [(endpoint.name, endpoint.base_url) for endpoint in settings.endpoints] == [
        ("chat", "http://h/v1"),
        ("chat2", "http://i/v1"),
        ("x", "https://j"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[server\n", ["not valid TOML", "mustcall.toml"]),
        ("[server]\nprot = 1\n" + UPSTREAM, ["prot", "$.server"]),
        ("[server]\nport = 'x'\n" + UPSTREAM, ["$.server.port"]),
        ("[server]\nport = 70000\n" + UPSTREAM, ["70000"]),
        ("[server]\nmax_body_bytes = 0\n" + UPSTREAM, ["max_body_bytes"]),
        (UPSTREAM + UPSTREAM, ["two upstreams", "'a'"]),
        ('[[upstream]]\nname="a"\nwire="soap"\nbase_url="http://h"\n', ["soap", "upstream"]),
        ('[[upstream]]\nname="a"\nwire="chat"\nbase_url="ftp://h"\n', ["'a'", "base_url"]),
        ('[[upstream]]\nname="a"\nwire="chat"\nbase_url="localhost:9000"\n', ["'a'", "base_url"]),
        (UPSTREAM + 'api_key_env = "NOPE"\n', ["'a'", "NOPE", "not set"]),
        (UPSTREAM + "read_timeout = 0\n", ["read_timeout", "above 0 seconds, got 0"]),
        (UPSTREAM + "read_timeout = nan\n", ["read_timeout", "above 0 seconds, got nan"]),
        (UPSTREAM + "backoff_cap = nan\n", ["backoff_cap", "0 or more, got nan"]),
        ("[server]\nrequest_timeout = nan\n" + UPSTREAM, ["server: request_timeout must be above 0, got nan"]),
        ("[server]\nrequest_timeout = -1\n" + UPSTREAM, ["server: request_timeout must be above 0, got -1"]),
        ("[server]\nshutdown_grace = -1\n" + UPSTREAM, ["server: shutdown_grace must be 0 or more, got -1"]),
        ("[server]\nkeepalive = nan\n" + UPSTREAM, ["server: keepalive must be 0 or more, got nan"]),
        ("[server]\nfirst_sign = -3\n" + UPSTREAM, ["server: first_sign must be 0 or more, got -3"]),
        (
            "[contract.limits]\nextra_calls = -1\n" + UPSTREAM,
            ["contract.limits: extra_calls must be 0 or more, got -1"],
        ),
        ("[contract.limits]\nleast_seconds = nan\n" + UPSTREAM, ["contract.limits: least_seconds must be 0 or more"]),
        ("[server]\nlog_level = 'verbose'\n" + UPSTREAM, ["log_level", "it can be debug, error, info, warning"]),
        ("[server]\nlog_level = 'warnin'\n" + UPSTREAM, ["log_level", "did you mean 'warning'?"]),
        ("[server]\nmetrics = 'on'\n" + UPSTREAM, ["metrics", "did you mean 'open'? It can be key, off, open"]),
        ("[server]\nmetrics = false\n" + UPSTREAM, ["metrics", "; it can be key, off, open"]),
        ("[server]\nport = 1.5\n" + UPSTREAM, ["$.server.port", "write a whole number"]),
        ("[server]\nkeepalive = '3s'\n" + UPSTREAM, ["keepalive", "; write a number, without a unit"]),
        ("[server]\nui = 'maybe'\n" + UPSTREAM, ["$.server.ui", "write true or false"]),
        ("[limits]\nhead_seconds = nan\n" + UPSTREAM, ["limits: head_seconds must be above 0, got nan"]),
        ("[limits]\nreply_bytes = 0\n" + UPSTREAM, ["limits: reply_bytes must be above 0, got 0"]),
        ("[limits]\nconnections = -1\n" + UPSTREAM, ["limits: connections must be 0 or more, got -1"]),
        ('[[upstream]]\nname="a"\nwire="chat"\nbase_url="http://u:secret@h/v1"\n', ["http://h/v1", "api_key_env"]),
        ('[[upstream]]\nname="a"\nwire="chat"\nbase_url="http://h/v1?x=1"\n', ["query"]),
        ('[[upstream]]\nname="a"\nwire="chat"\nbase_url="http://h/v1/messages"\n', ["/messages"]),
        (UPSTREAM + 'headers = { "x y" = "z" }\n', ["'x y'"]),
        (UPSTREAM + 'headers = { "x" = "a\\nb" }\n', ["'x'"]),
        (UPSTREAM + 'api_key = "sk"\n', ["api_key_env"]),
        ('[upstream]\nname="a"\n', ["[[…]]"]),
        (UPSTREAM + "retries = -1\n", ["retries"]),
        (UPSTREAM + '[[route]]\nmodel="m"\nupstream="b"\n', ["'b'", "there are: a"]),
        ("[server]\nclient_keys_env = 'NOPE'\n" + UPSTREAM, ["NOPE", "no key"]),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, words: list[str]) -> None:
    """A configuration that cannot be used is refused with the place and the fix."""
    with pytest.raises(ConfigError) as caught:
        load_settings(write(tmp_path, text), environment={})
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("flag", ["http://h/v1", "soap=http://h", "chat:http://h", "x:y:z=http://h", "=http://h"])
def test_bad_flags(flag: str) -> None:
    """A flag that is not `[name:]wire=URL` is refused with its form."""
    with pytest.raises(ConfigError, match="wire=URL"):
        settings_from_flags(flag)


def test_missing_file_and_bad_port(tmp_path: Path) -> None:
    """A file that was named must exist; a port must be a number."""
    with pytest.raises(ConfigError, match=r"gone\.toml"):
        load_settings(tmp_path / "gone.toml", environment={})
    with pytest.raises(ConfigError, match="MUSTCALL_PORT"):
        load_settings(environment={"MUSTCALL_PORT": "high", "MUSTCALL_UPSTREAM": "chat=http://h/v1"})


def test_keys_are_not_shown(tmp_path: Path) -> None:
    """Rule 136: settings and endpoints never show a key when printed or logged."""
    file = write(tmp_path, UPSTREAM + 'api_key_env = "A_KEY"\n')
    settings = load_settings(file, environment={"A_KEY": "sk-very-secret", "MUSTCALL_CLIENT_KEYS": "also-secret"})
    assert "secret" not in repr(settings)
    assert "secret" not in str(settings.endpoints)
    assert "secret" not in f"{settings.endpoints[0]!r}"


def held(cache: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make a cache the user's, with files of the right size for these weights."""
    monkeypatch.setenv("MUSTCALL_CACHE", str(cache))
    store = WeightStore()
    store.directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        with store.path(find_weights(name)).open("wb") as file:
            file.truncate(find_weights(name).size)


@pytest.mark.parametrize(
    ("here", "asked", "used", "noted"),
    [
        ([DEFAULT], "", DEFAULT, False),
        ([DEFAULT, FALLBACK], "", DEFAULT, False),
        ([FALLBACK], "", FALLBACK, True),
        ([DEFAULT, FALLBACK], FALLBACK, FALLBACK, False),
        (["qwen2.5-coder-1.5b"], "qwen2.5-coder-1.5b", "qwen2.5-coder-1.5b", False),
    ],
)
def test_the_embedded_model_is_the_upstream_where_none_is_named(
    *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: list[str], asked: str, used: str, noted: bool
) -> None:
    """Without a file, flags or environment a model in this process is served; where it stands in, a note says so."""
    held(tmp_path, monkeypatch, *here)
    settings = load_settings(environment={}, embedded=asked)
    (endpoint,) = settings.endpoints
    assert (endpoint.name, endpoint.wire, endpoint.base_url) == ("local", Wire.CHAT, f"embedded:{used}")
    assert ["mustcall models pull" in line and DEFAULT in line for line in settings.notes] == [True] * noted


def test_an_address_without_a_name_gets_that_of_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`embedded:` in a file means the model used without a name; its profile is found by that name."""
    held(tmp_path, monkeypatch, FALLBACK)
    settings = load_settings(upstream_flags=["chat=embedded:"], environment={})
    assert settings.endpoints[0].base_url == f"embedded:{FALLBACK}"


def test_a_named_model_that_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is a demand: no other model stands in, and the command that fetches it is said."""
    held(tmp_path, monkeypatch, DEFAULT)
    with pytest.raises(ConfigError, match=f"mustcall models pull {FALLBACK}"):
        load_settings(environment={}, embedded=FALLBACK)


def test_without_weights_the_fix_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upstream that is not named and a model that is not here: one message with both ways out."""
    monkeypatch.setenv("MUSTCALL_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="mustcall models pull") as raised:
        load_settings(environment={})
    assert "--upstream" in raised.value.message


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("messages=embedded:smollm2-135m", "speaks the wire chat"),
        ("chat=embedded:no-such-model", "no-such-model"),
        ("chat=embedded:/no/such/file.gguf", "/no/such/file.gguf"),
    ],
)
def test_embedded_addresses_that_cannot_be_served(flag: str, words: str) -> None:
    """Another wire, an unknown name or a missing file is an error with the upstream's name."""
    with pytest.raises(ConfigError, match=words) as raised:
        load_settings(upstream_flags=[flag], environment={})
    assert "upstream" in raised.value.message


def test_without_the_engine_the_fix_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the extra is not installed the message has the command that installs it."""
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ConfigError, match=r"mustcall\[local\]"):
        load_settings(upstream_flags=["chat=embedded:smollm2-135m"], environment={})


# --- shorthands ---------------------------------------------------------------------------------------------------


def test_shorthands_as_flags() -> None:
    """`provider:model` is an upstream with the provider's address, wire and key, and a model of its own."""
    flags = ["openai:gpt-5", "openai:gpt-5-mini", "ollama:qwen3:8b", "anthropic"]
    env = {"OPENAI_API_KEY": "sk-o", "ANTHROPIC_API_KEY": "sk-a"}
    settings = load_settings(upstream_flags=flags, environment=env)
    assert [(one.name, one.wire, one.model, one.api_key) for one in settings.endpoints] == [
        ("openai", Wire.RESPONSES, "gpt-5", "sk-o"),
        ("openai2", Wire.RESPONSES, "gpt-5-mini", "sk-o"),
        ("ollama", Wire.CHAT, "qwen3:8b", None),
        ("anthropic", Wire.MESSAGES, "", "sk-a"),
    ]
    assert [door.model for door in settings.doors] == ["gpt-5", "gpt-5-mini", "qwen3:8b", ""]
    by_environment = load_settings(environment={**env, "MUSTCALL_UPSTREAM": "openai:gpt-5 ollama:"})
    assert [one.name for one in by_environment.endpoints] == ["openai", "ollama"]
    assert "sk-o" not in repr(settings)


def test_a_shorthand_without_its_key() -> None:
    """One sentence names the variable; another variable can be named instead."""
    with pytest.raises(ConfigError, match=r"^upstream 'openai': the environment variable OPENAI_API_KEY is not set; "):
        load_settings(upstream_flags=["openai:gpt-5"], environment={})
    with pytest.raises(ConfigError, match=r"MY_KEY \(--key-env\) is not set"):
        load_settings(upstream_flags=["openai:gpt-5"], environment={"OPENAI_API_KEY": "k"}, key_env="MY_KEY")
    settings = load_settings(upstream_flags=["openai:gpt-5"], environment={"MY_KEY": "k"}, key_env="MY_KEY")
    assert settings.endpoints[0].api_key == "k"


def test_shorthands_in_a_file(tmp_path: Path) -> None:
    """`use` says what a provider's upstream has; what is written beside it stands over it."""
    file = write(
        tmp_path,
        '[[upstream]]\nuse = "openai:gpt-5"\n'
        '[[upstream]]\nuse = "openai"\nname = "old"\nwire = "chat"\nmodel = "gpt-4o"\napi_key_env = "MINE"\n'
        '[[upstream]]\nuse = "vllm:qwen3"\nbase_url = "http://gpu:8000/v1"\n',
    )
    env = {"OPENAI_API_KEY": "sk-o", "MINE": "sk-m", "VLLM_API_KEY": "k"}
    settings = load_settings(file, environment=env)
    assert [(one.name, one.wire, one.base_url, one.model, one.api_key) for one in settings.endpoints] == [
        ("openai", Wire.RESPONSES, "https://api.openai.com/v1", "gpt-5", "sk-o"),
        ("old", Wire.CHAT, "https://api.openai.com/v1", "gpt-4o", "sk-m"),
        ("vllm", Wire.CHAT, "http://gpu:8000/v1", "qwen3", None),  # the usual key is for the usual address
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[upstream]]\nuse = "opnai:gpt-5"\n', ["upstream 1", "use", "did you mean 'openai:gpt-5'?"]),
        ('[[upstream]]\nname = "a"\nbase_url = "http://h"\n', ["'a'", "no wire", "use ="]),
        ('[[upstream]]\nname = "a"\nwire = "chat"\n', ["'a'", "no base_url"]),
        ('[[upstream]]\nwire = "chat"\nbase_url = "http://h"\n', ["upstream 1", "no name"]),
        ("[servr]\nport = 1\n" + UPSTREAM, ["`servr`", "did you mean 'server'?"]),
        ("[server]\nprot = 1\n" + UPSTREAM, ["`prot`", "did you mean 'port'?"]),
        (UPSTREAM + 'base_ulr = "x"\n', ["`base_ulr`", "did you mean 'base_url'?"]),
        ("[contract.limits]\nextra_cals = 1\n" + UPSTREAM, ["`extra_cals`", "did you mean 'extra_calls'?"]),
        ("[contract.tools.rm]\nlocked_of = true\n" + UPSTREAM, ["`locked_of`", "did you mean 'locked_off'?"]),
        ('[contract]\non_unmet = "anser"\n' + UPSTREAM, ["'anser'", "did you mean 'answer'?"]),
        ("[server]\nzzz = 1\n" + UPSTREAM, ["`zzz`", "docs/gateway.md"]),
    ],
)
def test_near_misses_in_a_file(tmp_path: Path, text: str, words: list[str]) -> None:
    """A table, setting or value that does not exist is refused with the nearest that does."""
    with pytest.raises(ConfigError) as caught:
        load_settings(write(tmp_path, text), environment={})
    for word in words:
        assert word in str(caught.value)


def test_the_kind_of_server_is_kept(tmp_path: Path) -> None:
    """A short name says what serves, also where the address is another: what is known of it applies."""
    file = tmp_path / "mustcall.toml"
    file.write_text('[[upstream]]\nuse = "llamacpp:"\nbase_url = "http://127.0.0.1:9999/v1"\n', encoding="utf-8")
    (written,) = load_settings(file, environment={}).endpoints
    (flagged,) = load_settings(upstream_flags=["llamacpp:m"], environment={}).endpoints
    (address,) = load_settings(upstream_flags=["chat=http://127.0.0.1:9999/v1"], environment={}).endpoints
    (called,) = load_settings(upstream_flags=["llamacpp:chat=http://127.0.0.1:9999/v1"], environment={}).endpoints
    file.write_text(compose(plan_upstreams(["llamacpp:"], {}), ServerSettings()), encoding="utf-8")
    (begun,) = load_settings(file, environment={}).endpoints
    own = [Upstream(where, model="m").endpoint for where in ("llamacpp:m", "llamacpp:chat=http://127.0.0.1:9999/v1")]
    assert {one.server for one in (written, flagged, called, begun, *own)} == {"llamacpp"}
    assert address.server == Upstream("chat=http://127.0.0.1:9999/v1", model="m").endpoint.server == ""
    offered = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in "ab"]
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": offered,
        "tool_choice": {"type": "function", "function": {"name": "b"}},
    }
    first = explain(json.dumps(body).encode(), Wire.CHAT, written, "m", OperatorSettings()).rungs[0]
    assert (first.body["tools"], first.body["tool_choice"]) == (offered[1:], "required")


@pytest.mark.parametrize("name", ["content-length", "Transfer-Encoding", "connection"])
def test_a_header_of_the_transport_is_refused_where_it_is_configured(tmp_path: Path, name: str) -> None:
    """Rule 120: a header that would make every request fail is named when the settings are read."""
    file = tmp_path / "m.toml"
    file.write_text(
        f'[[upstream]]\nname="a"\nwire="chat"\nbase_url="http://127.0.0.1:9/v1"\nheaders={{"{name}"="3"}}\n',
        encoding="utf-8",
    )
    with pytest.raises(ConfigError, match="is the transport's own; take it out of headers"):
        load_settings(file, environment={})


@pytest.mark.parametrize(
    ("origin", "fits"),
    [
        ("https://app.example", True),
        ("http://127.0.0.1:3000", True),
        ("vscode-webview://abc", True),
        ("*", True),
        ("null", True),
        ("app.example", False),
        ("https://app.example/", False),
        ("https://app.example/page", False),
    ],
)
def test_an_origin_that_no_browser_sends_is_refused(tmp_path: Path, origin: str, fits: bool) -> None:
    """Rule 120: an origin that can never match is named when the settings are read."""
    file = tmp_path / "m.toml"
    file.write_text(
        f'[server]\ncors_origins=["{origin}"]\n[[upstream]]\nname="a"\nwire="chat"\nbase_url="http://127.0.0.1:9/v1"\n',
        encoding="utf-8",
    )
    if fits:
        assert load_settings(file, environment={}).server.cors_origins == (origin,)
        return
    with pytest.raises(ConfigError, match="which no browser sends; write scheme and host"):
        load_settings(file, environment={})
