"""How tools are used with a model, and how that is known (rules 70, 71, 73 to 76), from both ends of real gateways.

Each test counts the upstream calls and compares their whole bodies with ones written by hand. The command that
measures what a model really does (rule 75) comes with the probe; here is the table it will write into. How tools are
rendered as text (rule 72) is in test_tools_as_text.py.
"""

import json
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.config.settings import load_settings
from mustcall.profiles import read_overrides
from mustcall.testing import Call, RunningGateway, Say, ScriptedUpstream, Turn
from rules.driving import (
    GRID,
    NATIVE,
    PATHS,
    PROMPT,
    UNKNOWN,
    WAYS,
    WORDS,
    Stage,
    arriving,
    as_grammar,
    as_schema,
    kept,
    prompted,
    request,
    stranger,
)
from rules.forms import HERMES
from support.forcing import FAILED, WEATHER, WIRES
from support.http import post

Json = dict[str, Any]

TEXT_CALL = Turn(Say(HERMES))
GOOD = Turn(Call("get_weather", {"city": "Paris"}))
NO = Turn(Say("No."))
CALLED = (("get_weather", {"city": "Paris"}),)
_CONSTRAINED = Turn(Say('{"name": "get_weather", "arguments": {"city": "Paris"}}'))

OVERRIDES = [
    {"models": ["mine-native*"], "protocol": "native"},
    {"models": ["mine-prompt*"], "protocol": "prompt"},
    {"models": ["mine-hybrid*"], "protocol": "hybrid"},
    {"models": ["mine-off*"], "protocol": "off"},
    {"models": ["gpt-4o-deaf"], "forced": "ignored", "schema_output": False},
    {"models": ["guided*"], "forced": "ignored", "schema_output": False, "grammar_field": "guided_json"},
    {
        "models": ["small*"],
        "schema_output": False,
        "grammar_field": "guided_json",
        "constrain_first": True,
        "bounded_schemas": True,
    },
]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One upstream behind three gateways."""
    with Stage(OperatorSettings(overrides=read_overrides(OVERRIDES)), compares=True) as opened:
        yield opened


# --- rule 70 ---------------------------------------------------------------------------------------------------------

DEFAULTS = {
    "claude-sonnet-4-5": "native",
    "claude-opus-5-5": "native",
    "gpt-4o": "native",
    "gpt-5.1": "native",
    "gemini-2.5-flash": "native",
    "claude-2.1": "prompt",
    "gemma-3-27b-it": "prompt",
    "llama-2-70b-chat": "prompt",
    "qwen3-32b": "hybrid",
    "deepseek-v3": "hybrid",
    "some-model": "hybrid",
}


@pytest.mark.parametrize("model", DEFAULTS)
def test_default_protocols(stage: Stage, model: str) -> None:
    """Rule 70: native for first-party models, prompt for those without a tool API, hybrid for all others."""
    outcome = stage.play(Turn(Say("Sunny."))).ask("chat", request("chat", model=model))
    assert outcome.headers["x-mustcall-protocol"] == DEFAULTS[model]
    (body,) = stage.bodies
    if DEFAULTS[model] == "prompt":
        assert "tools" not in body
    else:
        assert body == request("chat", model=model)
    assert outcome.text == "Sunny."


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_protocol_by_pattern(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 70: the protocol is settable for a pattern of models, and each treats the same reply in its own way."""
    outcomes: dict[str, Any] = {}
    for protocol in ("native", "prompt", "hybrid", "off"):
        body = request(wire, stream=stream, model=f"mine-{protocol}-1")
        outcome = stage.play(TEXT_CALL, GOOD).ask(wire, body)
        assert outcome.headers["x-mustcall-protocol"] == protocol
        expected = prompted(wire, stream=stream, model="mine-prompt-1") if protocol == "prompt" else body
        assert stage.bodies == [expected] * (2 if protocol == "native" else 1), protocol
        outcomes[protocol] = (outcome.text, outcome.calls, outcome.finish)
    assert outcomes == {
        "native": ("", CALLED, "calls"),  # discarded, asked again
        "prompt": ("", CALLED, "calls"),  # parsed
        "hybrid": ("", CALLED, "calls"),  # promoted
        "off": (HERMES, (), "stop"),  # passed on
    }


@pytest.mark.parametrize("protocol", ["native", "prompt", "hybrid", "off"])
def test_protocol_of_one_request(stage: Stage, protocol: str) -> None:
    """Rule 70: a caller can set the protocol of one request by header, over what the model's own is."""
    outcome = stage.play(TEXT_CALL, GOOD).ask("chat", request("chat"), headers={"x-mustcall-protocol": protocol})
    assert outcome.headers["x-mustcall-protocol"] == protocol
    expected = prompted("chat") if protocol == "prompt" else request("chat")
    assert stage.bodies == [expected] * (2 if protocol == "native" else 1)
    assert outcome.calls == (() if protocol == "off" else CALLED)


@pytest.mark.parametrize("choice", [None, "required"])
@pytest.mark.parametrize("wire", WIRES)
def test_off_passes_through(stage: Stage, wire: str, choice: str | None) -> None:
    """Rule 70: `off` changes nothing in either direction, a force included."""
    body = request(wire, model="mine-off-1", choice=choice)
    outcome = stage.play(TEXT_CALL).ask(wire, body)
    assert stage.bodies == [body]
    assert stage.sent[0].raw == json.dumps(body).encode()
    assert (outcome.text, outcome.calls, outcome.finish) == (HERMES, (), "stop")


# --- rule 71 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_prompt_sends_no_tools(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 71: under `prompt` no `tools` and no `tool_choice` are sent; the tools stand in the system prompt, once."""
    body = request(wire, stream=stream, model="mine-prompt-1", choice="auto")
    outcome = stage.play(Turn(Say("Sunny."))).ask(wire, body)
    assert stage.bodies == [prompted(wire, stream=stream, model="mine-prompt-1")]
    assert stage.sent[0].raw.count(b"TOOL_NAME") == 1
    assert outcome.text == "Sunny."


def test_prompt_keeps_the_callers_system(stage: Stage) -> None:
    """Rule 71: a system prompt of the caller's stays, behind the tools, wherever its wire keeps it."""
    model = "mine-prompt-1"
    stage.play(NO).ask("responses", request("responses", model=model, instructions="Be brief."))
    assert stage.bodies == [prompted("responses", model=model, system=f"{PROMPT}\n\nBe brief.")]
    stage.play(NO).ask("messages", request("messages", model=model, system="Be brief."))
    (sent,) = stage.bodies
    assert sent.pop("system") == [{"type": "text", "text": PROMPT}, {"type": "text", "text": "Be brief."}]
    expected = prompted("messages", model=model)
    del expected["system"]
    assert sent == expected
    body = request("chat", model=model)
    own = {"role": "system", "content": "Be brief."}
    stage.play(NO).ask("chat", {**body, "messages": [own, *body["messages"]]})
    (sent,) = stage.bodies
    first, *rest = sent["messages"]
    assert rest == body["messages"]
    content = first["content"]
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    assert (first["role"], text) == ("system", f"{PROMPT}\n\nBe brief.")


@pytest.mark.parametrize("choice", [None, "auto", "required"])
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_native_mentions_no_grammar(stage: Stage, wire: str, stream: bool, choice: str | None) -> None:
    """Rule 71: under `native` the caller's bytes go out as they are, and no rung mentions a text grammar."""
    body = request(wire, stream=stream, choice=choice)
    stage.play(*[NO] * 5).ask(wire, body)
    assert stage.sent[0].raw == json.dumps(body).encode()
    key = "input" if wire == "responses" else "messages"
    firmer = arriving(wire, wire, WORDS.call_any[1])[key][-1]
    again = {**body, key: [*body[key], kept(wire, "No."), firmer]}
    rungs = [body, again, as_schema(wire, wire, "required", closed=True, stream=stream)]
    assert stage.bodies == (rungs if choice == "required" else [body])
    for sent in stage.sent:
        for mark in (b"<tool_call", b"TOOL_NAME", b"You can call tools", b"<invoke", b"```"):
            assert mark not in sent.raw


# --- rule 73 ---------------------------------------------------------------------------------------------------------


def _directives(choice: str) -> tuple[str, ...]:
    return WORDS.call_any if choice == "required" else tuple(text.format(tool=choice) for text in WORDS.call_named)


@pytest.mark.parametrize("choice", ["required", "get_weather"])
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_force_under_prompt(stage: Stage, wire: str, stream: bool, choice: str) -> None:
    """Rule 73: a forced choice becomes a directive, and a reply that does not call is asked again more firmly.

    Nothing enforces it, so both are streamed, whoever asks (rule 137).
    """
    model = stranger("mine-prompt")
    outcome = stage.play(NO, TEXT_CALL).ask(wire, request(wire, stream=stream, model=model, choice=choice))
    first, second, *_ = _directives(choice)
    assert stage.bodies == [
        prompted(wire, first, stream=True, model=model),
        prompted(wire, second, stream=True, model=model),
    ]
    assert (outcome.error, outcome.text, outcome.calls) == ({}, "", CALLED)
    assert (outcome.verdicts, outcome.headers["x-mustcall-force"]) == ("force_missed,called", "met")


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_unmet_force_under_prompt(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 73: the response check decides: a force that stays unmet, or met by another tool, is a typed error.

    What else the server may have is tried before that (rule 140).
    """
    model = stranger("mine-prompt")
    body = request(wire, stream=stream, model=model, choice="get_time")
    outcome = stage.play(NO, TEXT_CALL, _CONSTRAINED, NO, GOOD).ask(wire, body)
    first, second, *_ = _directives("get_time")
    assert stage.bodies == [
        prompted(wire, first, stream=True, model=model),
        prompted(wire, second, stream=True, model=model),
        as_schema(wire, wire, "get_time", stream=stream, model=model),
        as_grammar(wire, wire, "get_time", stream=stream, model=model),
    ]
    assert (outcome.status, outcome.calls) == (FAILED[wire], ())
    assert outcome.message.startswith("ForceUnmet: ")
    assert (outcome.verdicts, outcome.headers["x-mustcall-force"]) == (",".join(["force_missed"] * 4), "unmet")


# --- rule 74 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["required", "get_weather"])
@pytest.mark.parametrize(("caller", "upstream", "stream"), GRID)
def test_unknown_model_gets_what_the_caller_sent(
    stage: Stage, caller: str, upstream: str, stream: bool, choice: str
) -> None:
    """Rule 74: an unknown model is sent the caller's own request, its forced choice included; only the stream is ours.

    A caller who streams on the same wire is forwarded byte for byte.
    """
    model = stranger()
    body = request(caller, stream=stream, model=model, choice=choice)
    outcome = stage.play(GOOD).ask(caller, body, upstream)
    assert stage.bodies == [arriving(caller, upstream, stream=True, model=model, choice=choice)]
    if stream and caller == upstream:
        assert stage.sent[0].raw == json.dumps(body).encode()
    assert (outcome.error, outcome.calls, outcome.verdicts) == ({}, CALLED, "called")
    assert ("field_mapped:stream" in outcome.adaptations) is not stream


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("wire", "thinking"),
    [("chat", False), ("chat", True), ("responses", False), ("responses", True), ("messages", False)],
)
def test_unknown_model_is_asked_in_every_way(stage: Stage, wire: str, thinking: bool, stream: bool) -> None:
    """Rule 74: an ignored force is asked for by schema, by grammar, by a directive and in text, reasoning or not."""
    model = stranger()
    asked: Json = {"model": model, "thinking": thinking}
    outcome = stage.play(NO, NO, NO, NO, TEXT_CALL).ask(
        wire, request(wire, stream=stream, choice="get_weather", **asked)
    )
    first, second, *_ = _directives("get_weather")
    soft = arriving(wire, wire, first, stream=True, choice="auto", **asked)
    key = "input" if wire == "responses" else "messages"
    firmer = arriving(wire, wire, second)[key][-1]
    assert stage.bodies == [
        arriving(wire, wire, stream=True, choice="get_weather", **asked),
        as_schema(wire, wire, "get_weather", stream=stream, **asked),
        as_grammar(wire, wire, "get_weather", stream=stream, **asked),
        {**soft, key: [*soft[key], kept(wire, "No."), firmer]},
        prompted(wire, first, stream=True, **asked),
    ]
    assert (outcome.error, outcome.calls) == ({}, CALLED)
    assert outcome.verdicts == ",".join(["force_missed"] * 4 + ["called"])


@pytest.mark.parametrize("stream", [False, True])
def test_unknown_model_that_refuses_a_force(stage: Stage, stream: bool) -> None:
    """Rule 74: a refusal leads to the soft plan and is remembered: the next turn does not force."""
    model = stranger()
    body = request("messages", stream=stream, model=model, choice="get_weather", thinking=True)
    soft = arriving(
        "messages", "messages", _directives("get_weather")[0], stream=True, model=model, choice="auto", thinking=True
    )
    for expected, refused in (([{**body, "stream": True}, soft], ["never_forces_thinking", None]), ([soft], [None])):
        outcome = stage.play(GOOD).ask("messages", body)
        assert stage.received == expected
        assert [one.refused_by for one in stage.sent] == refused
        assert (outcome.error, outcome.calls) == ({}, CALLED)


@pytest.mark.parametrize("wire", WIRES)
def test_unknown_model_gets_no_prefill(stage: Stage, wire: str) -> None:
    """Rule 100: an unknown model is not assumed to take a request that ends on an assistant turn: a user's follows."""
    body = request(wire, model=UNKNOWN)
    key = "input" if wire == "responses" else "messages"
    started = {"role": "assistant", "content": "It is"}
    outcome = stage.play(Turn(Say("sunny."))).ask(wire, {**body, key: [*body[key], started]})
    expected = arriving(wire, wire, WORDS.continue_turn, model=UNKNOWN)
    expected[key].insert(1, started)
    assert stage.bodies == [expected]
    assert outcome.text == "sunny."


# --- rule 75 ---------------------------------------------------------------------------------------------------------


def test_table_is_data() -> None:
    """Rule 75: what is known of models is TOML, and every fact says how it was observed."""
    files = [
        file for file in resources.files("mustcall.profiles").joinpath("data").iterdir() if file.name[-5:] == ".toml"
    ]
    facts = 0
    for file in files:
        for entry in tomllib.loads(file.read_text(encoding="utf-8"))["profile"]:
            for name, fact in entry.items():
                if name not in ("name", "models", "endpoints", "wires"):
                    assert set(fact) <= {"value", "observed", "when", "note"}, (file.name, name)
                    assert fact["observed"] in ("docs", "code", "issue", "measured", "assumed"), (file.name, name)
                    facts += 1
    assert facts > 100


@pytest.mark.parametrize("wire", WIRES)
def test_override_changes_what_is_sent(stage: Stage, wire: str) -> None:
    """Rule 75: an operator's fact stands over the table: a model said to ignore forces is asked another way."""
    stage.play(GOOD).ask(wire, request(wire, choice="required"))
    assert stage.bodies == [request(wire, choice="required")]
    stage.play(GOOD).ask(wire, request(wire, choice="required", model="gpt-4o-deaf"))
    assert stage.bodies == [arriving(wire, wire, WORDS.call_any[0], choice="auto", model="gpt-4o-deaf")]


def test_override_in_the_configuration(tmp_path: Path) -> None:
    """Rule 75: overrides are `[[profile]]` tables of mustcall.toml."""
    with ScriptedUpstream([TEXT_CALL], strict=True) as upstream:
        file = tmp_path / "mustcall.toml"
        file.write_text(
            f'[[upstream]]\nname = "up"\nwire = "chat"\nbase_url = "{upstream.base_url}"\n\n'
            '[[profile]]\nmodels = ["gpt-4o*"]\nprotocol = "prompt"\n'
        )
        with RunningGateway(settings=load_settings(file, environment={"MUSTCALL_LEDGER": "off"})) as gateway:
            key = {"authorization": "Bearer sk-test"}
            answer = post(gateway.url + PATHS["chat"], request("chat", model=NATIVE), key)
        assert [one.body for one in upstream.requests] == [prompted("chat")]
    assert answer.headers["x-mustcall-protocol"] == "prompt"
    assert answer.json["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "get_weather"


# --- rule 76 ---------------------------------------------------------------------------------------------------------


def guided(caller: str, choice: str, **fields: Any) -> Json:
    """Return the request of the grammar rung where it is known which field the server has."""
    return as_grammar(caller, "chat", choice, names=("guided_json",), **fields)


@pytest.mark.parametrize("choice", ["required", "get_weather"])
@pytest.mark.parametrize(("caller", "stream"), WAYS)
def test_constrained_decoding(stage: Stage, caller: str, stream: bool, choice: str) -> None:
    """Rule 76: where the engine takes a schema, the forced call is constrained by it and comes out as a real call."""
    model = stranger("guided")
    outcome = stage.play(_CONSTRAINED).ask(caller, request(caller, stream=stream, model=model, choice=choice), "chat")
    assert stage.bodies == [guided(caller, choice, stream=stream, model=model)]
    assert (outcome.error, outcome.text, outcome.calls, outcome.finish) == ({}, "", CALLED, "calls")
    assert "call_promoted:get_weather" in outcome.adaptations


@pytest.mark.parametrize(("caller", "stream"), WAYS)
def test_constrained_first(stage: Stage, caller: str, stream: bool) -> None:
    """Rule 76: a small model is constrained at once, and what has no bound in its schema is given one."""
    model = stranger("small")
    body = request(caller, stream=stream, model=model, choice="get_weather")
    outcome = stage.play(_CONSTRAINED).ask(caller, body, "chat")
    expected = guided(caller, "get_weather", stream=stream, model=model)
    arguments = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 200}},
        "required": ["city"],
        "additionalProperties": False,
    }
    properties = {**expected["guided_json"]["properties"], "arguments": arguments}
    expected["guided_json"] = {**expected["guided_json"], "properties": properties}
    assert stage.bodies == [expected]
    assert (outcome.error, outcome.text, outcome.calls, outcome.finish) == ({}, "", CALLED, "calls")


FAILS_OPEN = {
    "prose": "It is sunny.",
    "another tool": '{"name": "no_such_tool", "arguments": {"city": "Paris"}}',
    "cut off": '{"name": "get_weather", "arguments": {"city": "Par',
    "bare arguments": '{"city": "Paris"}',
}


@pytest.mark.parametrize("form", FAILS_OPEN)
@pytest.mark.parametrize("stream", [False, True])
def test_engine_that_fails_open(stage: Stage, stream: bool, form: str) -> None:
    """Rule 76: an engine that ignores the schema is found out: what it says is checked, never delivered as a call.

    Of what it said only plain text stays in context (rule 25).
    """
    model = stranger("guided")
    body = request("chat", stream=stream, model=model, choice="get_weather")
    outcome = stage.play(Turn(Say(FAILS_OPEN[form])), NO, TEXT_CALL).ask("chat", body)
    first, second, *_ = _directives("get_weather")
    soft = arriving("chat", "chat", first, stream=True, model=model, choice="auto")
    if form == "prose":
        soft["messages"] += [kept("chat", FAILS_OPEN[form]), {"role": "user", "content": second}]
    assert stage.bodies == [
        guided("chat", "get_weather", stream=stream, model=model),
        soft,
        prompted("chat", first, stream=True, model=model),
    ]
    assert (outcome.error, outcome.text, outcome.calls) == ({}, "", CALLED)


def test_unforced_turns_are_not_constrained(stage: Stage) -> None:
    """Rule 76: without a force nothing is constrained: the model may answer."""
    body = request("chat", model="guided-1", tools=(WEATHER,))
    outcome = stage.play(Turn(Say("Sunny."))).ask("chat", body)
    assert stage.bodies == [body]
    assert outcome.text == "Sunny."
