"""Rules 1 to 11: the caller's choice, its form on each wire, and which choice wins."""

import json
from typing import Any

import pytest

from mustcall.core.origin import Wire
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, Tool, ToolChoice
from mustcall.engine.turns import OperatorSettings
from mustcall.policy.facts.controls import Controls, ToolControls
from mustcall.policy.facts.wording import Wording
from mustcall.policy.request.demand import STEP_CAP_NOTICE, DemandSource, settle_demand
from mustcall.policy.words.grounding import GroundingRule
from mustcall.profiles import read_overrides
from mustcall.testing import Call, Fail, Say, Think, Turn
from mustcall.wire.registry import codec_for
from support.forcing import (
    FAILED,
    TIME,
    WAYS,
    WEATHER,
    WIRES,
    Assistant,
    Called,
    Result,
    Rig,
    User,
    choice_on,
    expect_body,
    turns_on,
    typed_item,
    write_body,
)

#: Obeys every choice and never reasons, so that a choice goes out as it is.
MODEL = "gpt-4o"
ASK = "Weather in Paris?"
PARIS = {"city": "Paris"}
CALL = Turn(Call("get_weather", PARIS))
OTHER = Turn(Call("get_time", {"zone": "CET"}))
TEXT = Turn(Say("It is sunny."))
HISTORY = (User(ASK), Called("call_1", "get_weather", PARIS), Result("call_1", "sunny"))
CROSSINGS = [(caller, upstream) for caller in WIRES for upstream in WIRES]
STREAM_FIELDS = ("stream", "stream_options")
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
DIRECTIVE = Wording().call_named[0].format(tool="get_weather")
FIRMER = Wording().call_named[1].format(tool="get_weather")


def _operator(**controls: Any) -> OperatorSettings:
    return OperatorSettings(controls=Controls(**controls))


# --- rules 1 to 5: the choice and its wire form ----------------------------------------------------------------------


def test_the_choice_has_four_values() -> None:
    """Rule 1: there is one choice type, with exactly the values none, auto, required and specific(name)."""
    assert [mode.value for mode in ChoiceMode] == ["none", "auto", "required", "named"]


@pytest.mark.parametrize("choice", ["none", "auto", "required", "get_weather"])
def test_every_wire_means_the_same_choice(choice: str) -> None:
    """Rule 1: whatever wire a choice comes on, it becomes the same value."""
    read = [
        codec_for(Wire(wire)).decode_request(json.dumps(write_body(wire, ASK, model=MODEL, choice=choice)).encode())
        for wire in WIRES
    ]
    wanted = (ChoiceMode(choice), None) if choice in list(ChoiceMode) else (ChoiceMode.NAMED, choice)
    assert [one.tool_choice and (one.tool_choice.mode, one.tool_choice.name) for one in read] == [wanted] * 3


@pytest.mark.parametrize(("caller", "upstream"), CROSSINGS)
@pytest.mark.parametrize("choice", ["none", "auto", "required", "get_weather"])
def test_a_choice_in_the_words_of_each_wire(caller: str, upstream: str, choice: str) -> None:
    """Rule 2: the choice is written as Chat Completions, Responses and Messages write it.

    No Gemini wire is served, so the rule's third form has no place where it could be sent.
    """
    calls = choice not in ("none", "auto")
    with Rig(CALL if calls else TEXT, upstream=upstream) as rig:
        got = rig.ask(caller, write_body(caller, ASK, model=MODEL, choice=choice))
        assert rig.bodies == [expect_body(caller, upstream, ASK, model=MODEL, choice=choice)]
    assert rig.requests[0].body["tool_choice"] == choice_on(upstream, choice)
    assert (got.calls, got.text) == (((("get_weather", PARIS),), "") if calls else ((), "It is sunny."))
    assert got.outcome[:3] == (("calls", "1", "met") if calls else ("answer", "1", "none"))


@pytest.mark.parametrize(("caller", "upstream"), CROSSINGS)
def test_no_choice_is_no_key(caller: str, upstream: str) -> None:
    """Rule 3: where nobody chose, the body has no `tool_choice`."""
    with Rig(CALL, upstream=upstream) as rig:
        got = rig.ask(caller, write_body(caller, ASK, model=MODEL))
        assert rig.bodies == [expect_body(caller, upstream, ASK, model=MODEL)]
    assert "tool_choice" not in rig.requests[0].body
    assert (got.calls, got.outcome) == ((("get_weather", PARIS),), ("calls", "1", "none", "called"))


@pytest.mark.parametrize(("caller", "upstream"), CROSSINGS)
@pytest.mark.parametrize("choice", ["none", "auto", "required", "get_weather"])
def test_no_tools_no_choice(caller: str, upstream: str, choice: str) -> None:
    """Rule 4: without tools the body has no `tool_choice`, whatever was chosen; what was dropped is reported."""
    with Rig(TEXT, upstream=upstream, operator=_operator(strict_force=False)) as rig:
        got = rig.ask(caller, write_body(caller, ASK, model=MODEL, tools=(), choice=choice))
        assert rig.bodies == [expect_body(caller, upstream, ASK, model=MODEL, tools=())]
    assert got.text == "It is sunny."
    subject = {"required": "any_tool"}.get(choice, choice)
    dropped = "field_dropped:tool_choice" if choice in ("none", "auto") else f"force_dropped:{subject}"
    assert dropped in got.adaptations


@pytest.mark.parametrize("tools", [None, []])
@pytest.mark.parametrize(
    ("wire", "own"),
    [
        ("chat", {"tool_choice": {"type": "web_search"}}),
        ("chat", {"function_call": {"name": "f"}}),
        ("responses", {"tool_choice": {"type": "web_search"}}),
    ],
)
def test_no_tools_no_choice_in_a_providers_own_form(wire: str, own: dict[str, Any], tools: list[Any] | None) -> None:
    """Rule 4: a choice that only its provider has a word for goes without tools as well, and is reported."""
    plain = write_body(wire, ASK, model=MODEL, tools=()) | ({} if tools is None else {"tools": tools})
    with Rig(TEXT, upstream=wire, strict=False) as rig:
        got = rig.ask(wire, plain | own)
        assert rig.bodies == [plain]
    assert got.text == "It is sunny."
    assert "field_dropped:tool_choice" in got.adaptations


def test_tools_behind_a_stored_prompt_keep_their_choice() -> None:
    """Rule 4: a stored prompt may offer tools that the request does not show, so its choice is the caller's affair."""
    asked = write_body("responses", ASK, model=MODEL, tools=()) | {
        "prompt": {"id": "pmpt_1"},
        "tool_choice": {"type": "web_search"},
    }
    with Rig(TEXT, upstream="responses", strict=False) as rig:
        rig.ask("responses", asked)
        assert rig.bodies == [asked]


@pytest.mark.parametrize("wire", WIRES)
def test_an_empty_list_of_tools_is_no_tools(wire: str) -> None:
    """Rule 4: an empty list of tools counts as none; the list itself is the caller's own affair."""
    with Rig(TEXT, upstream=wire, strict=False) as rig:
        got = rig.ask(wire, write_body(wire, ASK, model=MODEL, tools=(), choice="auto") | {"tools": []})
        assert rig.bodies == [write_body(wire, ASK, model=MODEL, tools=()) | {"tools": []}]
    assert got.text == "It is sunny."


@pytest.mark.parametrize("limited", [True, False], ids=["limited", "unlimited"])
@pytest.mark.parametrize(("caller", "upstream"), CROSSINGS)
def test_streaming_changes_only_the_stream_fields(caller: str, upstream: str, limited: bool) -> None:
    """Rule 5: streamed or not, every attempt of the same turn sends the same body but for the stream fields."""
    sent: list[list[dict[str, Any]]] = []
    for stream in (False, True):
        asked = write_body(caller, ASK, model="claude-sonnet-4-6", choice="get_weather", thinking=True, stream=stream)
        if not limited and caller != "messages":  # which requires a limit
            asked = {key: value for key, value in asked.items() if key not in LIMITS}
        with Rig(Turn(Think("hm"), Say("It is sunny.")), CALL, upstream=upstream) as rig:
            rig.comparing.leave("they are compared with each other")
            got = rig.ask(caller, asked)
            sent.append(rig.bodies)
        assert got.calls == (("get_weather", PARIS),)
    whole, streamed = sent
    assert len(whole) == len(streamed) == 2
    assert all(body["stream"] is True for body in streamed)
    assert not any(field in body for body in whole for field in STREAM_FIELDS)
    assert whole == [{key: body[key] for key in body if key not in STREAM_FIELDS} for body in streamed]


# --- rules 6 and 7: servers that know fewer choices ------------------------------------------------------------------


@pytest.mark.parametrize("caller", ["chat", "responses"])
def test_the_only_tool_is_forced_by_any(caller: str) -> None:
    """Rule 6: on Messages the only tool on offer is forced by `any`; a call of another tool is still not accepted."""
    with Rig(OTHER, CALL) as rig:
        got = rig.ask(caller, write_body(caller, ASK, model="claude-sonnet-4-6", tools=[WEATHER], choice="get_weather"))
        expected = expect_body(
            caller, "messages", ASK, model="claude-sonnet-4-6", tools=[WEATHER], tool_choice={"type": "any"}
        )
        assert rig.bodies == [expected, expected]
    assert (got.calls, got.outcome) == ((("get_weather", PARIS),), ("calls", "2", "met", "unknown_tool,called"))
    assert "field_mapped:tool_choice" in got.adaptations


def test_the_only_tool_forced_by_a_setting_is_any() -> None:
    """Rule 6: also a force of ours is `any` for the only tool on Messages."""
    with Rig(CALL) as rig:
        asked = write_body("messages", ASK, model="claude-sonnet-4-6", tools=[WEATHER])
        got = rig.ask("messages", asked, {"x-mustcall-force-tools": "get_weather"})
        assert rig.bodies == [asked | {"tool_choice": {"type": "any"}}]
    assert (got.calls, got.outcome[2]) == ((("get_weather", PARIS),), "met")


def test_the_only_tool_named_on_the_same_wire_is_any() -> None:
    """Rule 6: from Messages to Messages as well, and the change is reported."""
    asked = write_body("messages", ASK, model="claude-sonnet-4-6", tools=[WEATHER], choice="get_weather")
    with Rig(CALL) as rig:
        got = rig.ask("messages", asked)
        assert rig.bodies == [asked | {"tool_choice": {"type": "any"}}]
    assert (got.calls, got.adaptations) == ((("get_weather", PARIS),), ["field_mapped:tool_choice"])


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_server_without_named_choice(wire: str, stream: bool) -> None:
    """Rule 7: where no tool can be named, the tools are reduced to it and `required` is sent; the reply is checked."""
    facts = {"models": ["local-*"], "named": False, "forced": "always", "reasoning": "never"}
    with Rig(TEXT, CALL, upstream=wire, operator=OperatorSettings(overrides=read_overrides([facts]))) as rig:
        got = rig.ask(wire, write_body(wire, ASK, model="local-1", choice="get_weather", stream=stream))
        first = write_body(wire, ASK, model="local-1", tools=[WEATHER], choice="required", stream=stream)
        assert rig.bodies == [first, _followed(wire, first, "It is sunny.", FIRMER)]
    assert (got.calls, got.outcome) == ((("get_weather", PARIS),), ("calls", "2", "met", "force_missed,called"))
    assert "tool_dropped:tools" in got.adaptations


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_server_without_any_choice(wire: str, stream: bool) -> None:
    """Rule 7: where nothing can be forced, the choice becomes a directive; the reply is checked, and streamed (137)."""
    facts = {"models": ["local-*"], "forced": "never", "reasoning": "never"}
    with Rig(TEXT, CALL, upstream=wire, operator=OperatorSettings(overrides=read_overrides([facts]))) as rig:
        got = rig.ask(wire, write_body(wire, ASK, model="local-1", choice="get_weather", stream=stream))
        first = _followed(wire, write_body(wire, ASK, model="local-1", choice="auto", stream=True), None, DIRECTIVE)
        assert rig.bodies == [first, _followed(wire, first, "It is sunny.", FIRMER)]
    assert (got.calls, got.outcome) == ((("get_weather", PARIS),), ("calls", "2", "met", "force_missed,called"))
    assert "force_softened:tool_choice" in got.adaptations


REFUSED = {
    "in its own words": "tool_choice is not supported",
    "as a field": "Unknown parameter: 'tool_choice'",
    "as pydantic does": "body.tool_choice: Extra inputs are not permitted",
}


@pytest.mark.parametrize("words", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_server_that_refuses_the_field(wire: str, stream: bool, words: str) -> None:
    """Rules 7, 139: no `tool_choice` at all, a directive, the call is delivered; the next turn begins like that."""
    refusal = Fail(400, words)
    soft = words == REFUSED["in its own words"]  # that may be about forcing alone, so `auto` is tried
    asked = write_body(wire, ASK, model="local-1", choice="get_weather", stream=stream)
    bare = _followed(wire, write_body(wire, ASK, model="local-1", stream=True), None, DIRECTIVE)
    with Rig(*[refusal] * (2 if soft else 1), CALL, CALL, upstream=wire) as rig:
        got = rig.ask(wire, asked)
        forced = write_body(wire, ASK, model="local-1", choice="get_weather", stream=True)
        auto = write_body(wire, ASK, model="local-1", choice="auto", stream=True)
        tried = [_followed(wire, auto, None, DIRECTIVE)] if soft else []
        assert rig.bodies == [forced, *tried, bare]
        assert "learnt:takes_choice" in got.adaptations
        again = rig.ask(wire, asked)
        assert rig.bodies[-1] == bare
        assert len(rig.bodies) == (4 if soft else 3)
    assert (got.calls, again.calls) == ((("get_weather", PARIS),), (("get_weather", PARIS),))


@pytest.mark.parametrize("choice", ["auto", "none"])
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_server_that_refuses_an_unforced_choice(wire: str, stream: bool, choice: str) -> None:
    """Rule 7: `auto` and `none` go out without the field where it is refused; `none` is enforced all the same (125)."""
    with Rig(Fail(400, "tool_choice is not supported"), TEXT, TEXT, upstream=wire) as rig:
        asked = write_body(wire, ASK, model="local-1", choice=choice, stream=stream)
        got = rig.ask(wire, asked)
        rig.ask(wire, asked)
        plain = write_body(wire, ASK, model="local-1", stream=stream)
        assert rig.bodies == [asked, plain, plain]
    assert got.text == "It is sunny."
    assert "field_dropped:tool_choice" in got.adaptations


def _followed(wire: str, body: dict[str, Any], answer: str | None, words: str) -> dict[str, Any]:
    """Return a body with an answer of the model's and a user turn of ours behind its messages."""
    return body | {_turns(wire): [*body[_turns(wire)], *_behind(wire, answer, words)]}


def _turns(wire: str) -> str:
    return "input" if wire == "responses" else "messages"


def _behind(wire: str, answer: str | None, words: str) -> list[dict[str, Any]]:
    steps = [*([Assistant(answer)] if answer else []), User(words)]
    turns = turns_on(wire, steps)
    return [typed_item(turn) for turn in turns] if wire == "responses" else turns


# --- rules 8 to 11: what is forced, by whom, and when not ------------------------------------------------------------


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_forced_tool_that_is_not_on_offer_is_an_error(wire: str, stream: bool) -> None:
    """Rule 8: strict mode answers a missing forced tool with an error that names it, and asks nobody."""
    with Rig(CALL, upstream=wire) as rig:
        got = rig.ask(wire, write_body(wire, ASK, model=MODEL, choice="get_rain", stream=stream))
        assert rig.bodies == []
    assert got.status == 400
    assert got.error["message"].startswith("tool_choice demands get_rain, but it is not on offer")
    assert wire == "messages" or got.error["code"] == "forced_tool_missing"


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_lenient_mode_drops_the_force_and_says_so(wire: str, stream: bool) -> None:
    """Rule 8: lenient mode sends unforced and reports `force_dropped`."""
    with Rig(TEXT, upstream=wire) as rig:
        asked = write_body(wire, ASK, model=MODEL, choice="get_rain", stream=stream)
        got = rig.ask(wire, asked, {"x-mustcall-strict-force": "false"})
        assert rig.bodies == [write_body(wire, ASK, model=MODEL, choice="auto", stream=stream)]
    assert got.text == "It is sunny."
    assert "force_dropped:get_rain" in got.adaptations
    assert stream or got.outcome == ("answer", "1", "dropped", "answered")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("strict", [True, False])
def test_a_tool_locked_off_is_never_forced(wire: str, strict: bool) -> None:
    """Rule 8: a tool locked off is forced in no mode: not by the caller, not by `force_tools`, not by a rule."""
    locked = {"get_weather": ToolControls(locked_off=True)}
    rules = (GroundingRule(name="weather", triggers="weather", tool="get_weather"),)
    operator = OperatorSettings(controls=Controls(strict_force=strict, tools=locked), rules=rules)
    unforced = write_body(wire, ASK, model=MODEL)
    with Rig(TEXT, TEXT, TEXT, upstream=wire, operator=operator) as rig:
        chosen = rig.ask(wire, unforced | {"tool_choice": choice_on(wire, "get_weather")})
        forced = rig.ask(wire, unforced, {"x-mustcall-force-tools": "get_weather"})
        grounded = rig.ask(wire, unforced)
        if strict:
            assert [chosen.status, forced.status] == [400, 400]
            assert "locked off" in chosen.error["message"]
            assert rig.bodies == [unforced]
        else:
            assert rig.bodies == [unforced | {"tool_choice": choice_on(wire, "auto")}, unforced, unforced]
            assert "force_dropped:get_weather" in chosen.adaptations
            assert "force_dropped:get_weather" in forced.adaptations
    assert (grounded.text, grounded.outcome[2]) == ("It is sunny.", "dropped")
    assert "force_dropped:get_weather" in grounded.adaptations


@pytest.mark.parametrize(("wire", "stream"), WAYS)
@pytest.mark.parametrize("spare", [True, False], ids=["then another", "again and again"])
def test_a_tool_locked_off_meets_no_force(wire: str, stream: bool, spare: bool) -> None:
    """Rule 8: where any tool must be called, a call of one that is locked off is not delivered and does not count."""
    operator = OperatorSettings(controls=Controls(tools={"get_weather": ToolControls(locked_off=True)}))
    script = [CALL, Turn(Call("get_time", {"zone": "CET"}))] if spare else [CALL] * 5
    asked = write_body(wire, ASK, model="unheard-of", stream=stream, choice="required")
    with Rig(*script, upstream=wire, operator=operator, strict=False) as rig:
        rig.comparing.leave("the bodies of the ladder are compared in test_force_ladder")
        got = rig.ask(wire, asked)
        sent = rig.bodies
    streamed = write_body(wire, ASK, model="unheard-of", stream=True, choice="required")
    assert sent[0] == streamed | ({} if stream else {"stream": True})
    assert len(sent) == (2 if spare else 5)
    if spare:
        assert (got.calls, got.outcome[2]) == ((("get_time", {"zone": "CET"}),), "met")
        assert "get_weather" not in json.dumps(sent[1])
    else:
        assert (got.status, got.calls, got.outcome[2]) == (FAILED[wire], (), "unmet")


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_tool_locked_off_may_be_chosen_freely(wire: str, stream: bool) -> None:
    """Rule 8: locked off is about forces: under `auto` its call is delivered as it came."""
    operator = OperatorSettings(controls=Controls(tools={"get_weather": ToolControls(locked_off=True)}))
    asked = write_body(wire, ASK, model=MODEL, stream=stream, choice="auto")
    with Rig(CALL, upstream=wire, operator=operator) as rig:
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked]
    assert [name for name, _ in got.calls] == ["get_weather"]


@pytest.mark.parametrize(("wire", "stream"), WAYS)
@pytest.mark.parametrize("force", ["get_weather", "any"])
@pytest.mark.parametrize("way", ["header", "body"])
def test_a_caller_forces_a_tool_for_one_request(wire: str, stream: bool, force: str, way: str) -> None:
    """Rule 9: `force_tools` by header or body extension forces any tool or one; the next request is free again."""
    plain = write_body(wire, ASK, model=MODEL, stream=stream)
    headers = {"x-mustcall-force-tools": force} if way == "header" else {}
    extension = {"mustcall": {"force_tools": True if force == "any" else force}} if way == "body" else {}
    with Rig(CALL, TEXT, upstream=wire) as rig:
        got = rig.ask(wire, plain | extension, headers)
        later = rig.ask(wire, plain)
        choice = choice_on(wire, "required" if force == "any" else force)
        assert rig.bodies == [plain | {"tool_choice": choice}, plain]
    assert (got.calls, got.outcome) == ((("get_weather", PARIS),), ("calls", "1", "met", "called"))
    assert f"force_added:{'any_tool' if force == 'any' else force}" in got.adaptations
    assert (later.text, later.adaptations) == ("It is sunny.", [])


@pytest.mark.parametrize("wire", WIRES)
def test_the_step_cap_comes_before_the_caller(wire: str) -> None:
    """Rule 10: at the step cap `none` goes out with a notice, whatever the caller, a setting or a rule demands."""
    rules = (GroundingRule(name="weather", triggers="weather", tool="get_weather"),)
    operator = OperatorSettings(controls=Controls(step_cap=1), rules=rules)
    with Rig(TEXT, upstream=wire, operator=operator) as rig:
        asked = write_body(wire, *HISTORY, model=MODEL, choice="get_weather")
        got = rig.ask(wire, asked, {"x-mustcall-force-tools": "get_time"})
        capped = _followed(wire, asked | {"tool_choice": choice_on(wire, "none")}, None, STEP_CAP_NOTICE)
        assert rig.bodies == [capped]
    assert (got.text, got.outcome[2]) == ("It is sunny.", "dropped")
    assert "force_dropped:tool_choice" in got.adaptations


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("choice", ["none", "required", "get_weather"])
def test_the_caller_comes_before_a_rule(wire: str, choice: str) -> None:
    """Rule 10: an explicit choice of the caller's stands against a grounding rule that matches."""
    rules = (GroundingRule(name="weather", triggers="weather", tool="get_time"),)
    with Rig(TEXT if choice == "none" else CALL, upstream=wire, operator=OperatorSettings(rules=rules)) as rig:
        asked = write_body(wire, ASK, model=MODEL, choice=choice)
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked]
    assert got.calls == (() if choice == "none" else (("get_weather", PARIS),))
    assert got.adaptations == []


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("choice", [None, "auto"])
def test_a_rule_comes_before_the_default(wire: str, choice: str | None) -> None:
    """Rule 10: a rule stands against no choice, and against `auto`, which is the default spelt out."""
    rules = (GroundingRule(name="weather", triggers="weather", tool="get_time"),)
    with Rig(OTHER, upstream=wire, operator=OperatorSettings(rules=rules)) as rig:
        got = rig.ask(wire, write_body(wire, ASK, model=MODEL, choice=choice))
        assert rig.bodies == [write_body(wire, ASK, model=MODEL, choice="get_time")]
    assert (got.calls, got.adaptations) == ((("get_time", {"zone": "CET"}),), ["force_added:get_time"])


@pytest.mark.parametrize("wire", WIRES)
def test_a_setting_for_this_request_comes_before_the_body(wire: str) -> None:
    """Rule 10: of the caller's two ways to choose, `force_tools` wins over `tool_choice`."""
    with Rig(CALL, upstream=wire) as rig:
        asked = write_body(wire, ASK, model=MODEL, choice="get_time")
        got = rig.ask(wire, asked, {"x-mustcall-force-tools": "get_weather"})
        assert rig.bodies == [write_body(wire, ASK, model=MODEL, choice="get_weather")]
    assert (got.calls, got.outcome[2]) == ((("get_weather", PARIS),), "met")


def test_the_answer_phase_stands_between_caller_and_rule() -> None:
    """Rule 10: the answer phase (the library's last step) yields to the caller and outranks a rule."""
    tools = (Tool(name="answer"), Tool(name="get_time"))
    rules = (GroundingRule(name="weather", triggers="weather", tool="get_time"),)
    body = write_body("chat", ASK, model=MODEL, tools=())
    plain = codec_for(Wire.CHAT).decode_request(json.dumps(body).encode()).evolve(tools=tools)
    answer = ToolChoice(mode=ChoiceMode.REQUIRED)

    def settled(request: Request) -> tuple[DemandSource, ToolChoice | None]:
        demand = settle_demand(request, Controls(), rules, answer_phase=answer)
        return demand.source, demand.choice

    own = ToolChoice(mode=ChoiceMode.NAMED, name="answer")
    assert settled(plain) == (DemandSource.ANSWER_PHASE, answer)
    assert settled(plain.evolve(tool_choice=own)) == (DemandSource.CALLER, own)
    assert settle_demand(plain, Controls(), rules).source is DemandSource.GROUNDING


@pytest.mark.parametrize(("caller", "upstream"), CROSSINGS)
@pytest.mark.parametrize("choice", ["required", "get_weather"])
def test_no_force_after_a_tool_result(caller: str, upstream: str, choice: str) -> None:
    """Rule 11: once a tool result follows the latest user message, `auto` goes out, and the dropped force is told."""
    with Rig(TEXT, upstream=upstream) as rig:
        got = rig.ask(caller, write_body(caller, *HISTORY, model=MODEL, choice=choice))
        assert rig.bodies == [expect_body(caller, upstream, *HISTORY, model=MODEL, choice="auto")]
    assert (got.text, got.outcome) == ("It is sunny.", ("answer", "1", "dropped", "answered"))
    assert f"force_dropped:{'any_tool' if choice == 'required' else choice}" in got.adaptations


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_new_user_message_is_forced_again(wire: str, stream: bool) -> None:
    """Rule 11: only results behind the latest user message count; the next user message is forced again."""
    steps = (*HISTORY, Assistant("Sunny."), User("And tomorrow?"))
    with Rig(Turn(Call("get_weather", PARIS, id="call_2")), upstream=wire) as rig:
        asked = write_body(wire, *steps, model=MODEL, choice="get_weather", stream=stream)
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked]
    assert (got.calls, got.outcome) == ((("get_weather", PARIS),), ("calls", "1", "met", "called"))


def test_force_tools_too_ends_with_a_tool_result() -> None:
    """Rule 11: a force asked for by header does not outlive the result of the forced call."""
    with Rig(TEXT, upstream="chat") as rig:
        asked = write_body("chat", *HISTORY, model=MODEL, tools=[WEATHER, TIME])
        got = rig.ask("chat", asked, {"x-mustcall-force-tools": "get_weather"})
        assert rig.bodies == [asked]
    assert (got.text, got.outcome[2]) == ("It is sunny.", "dropped")
