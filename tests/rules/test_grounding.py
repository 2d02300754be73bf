"""Rules 12 to 19: grounding rules, from the user's words to the forced call, driven through a real gateway."""

from pathlib import Path
from typing import Any

import pytest

from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.config.settings import load_settings
from mustcall.policy.facts.wording import Wording
from mustcall.policy.words.grounding import GroundingRule
from mustcall.profiles import read_overrides
from mustcall.testing import Call, RunningGateway, Say, ScriptedUpstream, Think, Turn
from support.forcing import (
    WAYS,
    WEATHER,
    WIRES,
    Assistant,
    Called,
    Result,
    Rig,
    Step,
    Tool,
    User,
    choice_on,
    expect_body,
    turns_on,
    typed_item,
    write_body,
)
from support.http import post

MODEL = "gpt-4o"
SEARCH = Tool("search_hero_docs", "query", "Search the docs of Hero OS.")
TOOLS = (SEARCH, WEATHER)
QUESTION = "What is Hero OS?"
QUERY = {"query": "Hero OS"}
FOUND = Turn(Call("search_hero_docs", QUERY))
TEXT = Turn(Say("An operating system."))
HERO = GroundingRule(name="hero", triggers="hero os|hero_*", tool="search_hero_docs")
HOUSE = OperatorSettings(rules=(HERO,))
STEPS = (User(QUESTION), Called("call_1", "search_hero_docs", QUERY), Result("call_1", "Hero OS is for heroes."))


def _asked(wire: str, *steps: Step | str, **settings: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": MODEL, "tools": TOOLS} | settings
    return write_body(wire, *steps, **asked)


# --- the story: forced on the first step only ------------------------------------------------------------------------


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_rule_forces_the_first_step_only(wire: str, stream: bool) -> None:
    """Rule 12: "What is Hero OS?" forces `search_hero_docs` by name, on the first step only; then `auto` holds."""
    first, second = _asked(wire, QUESTION, stream=stream), _asked(wire, *STEPS, stream=stream)
    with Rig(FOUND, TEXT, upstream=wire, operator=HOUSE) as rig:
        searched = rig.ask(wire, first)
        answered = rig.ask(wire, second)
        assert rig.bodies == [first | {"tool_choice": choice_on(wire, "search_hero_docs")}, second]
    assert (searched.calls, searched.finish) == ((("search_hero_docs", QUERY),), "tool_calls")
    assert (searched.outcome, searched.adaptations) == (
        ("calls", "1", "met", "called"),
        ["force_added:search_hero_docs"],
    )
    assert (answered.text, answered.calls, answered.adaptations) == ("An operating system.", (), [])


@pytest.mark.parametrize(("caller", "upstream"), [(one, other) for one in WIRES for other in WIRES if one != other])
def test_a_rule_forces_across_wires(caller: str, upstream: str) -> None:
    """Rule 12: the force is written in the words of the upstream's wire, as specific(target) and not as required."""
    with Rig(FOUND, upstream=upstream, operator=HOUSE) as rig:
        got = rig.ask(caller, _asked(caller, QUESTION))
        forced = expect_body(caller, upstream, QUESTION, model=MODEL, tools=TOOLS, choice="search_hero_docs")
        assert rig.bodies == [forced]
    assert (got.calls, got.outcome[2]) == ((("search_hero_docs", QUERY),), "met")


def test_a_rule_is_met_only_by_its_tool() -> None:
    """Rule 12: specific(target) is judged: the call of another tool is not what the rule asks for."""
    with Rig(Turn(Call("get_weather", {"city": "Paris"})), FOUND, upstream="chat", operator=HOUSE) as rig:
        got = rig.ask("chat", _asked("chat", QUESTION))
        forced = _asked("chat", QUESTION, choice="search_hero_docs")
        firmer = Wording().call_named[1].format(tool="search_hero_docs")
        assert rig.bodies == [forced, forced | {"messages": turns_on("chat", [User(QUESTION), User(firmer)])}]
    assert (got.calls, got.outcome) == ((("search_hero_docs", QUERY),), ("calls", "2", "met", "force_missed,called"))


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_rule_on_a_model_that_thinks(wire: str, stream: bool) -> None:
    """Rule 12: where a force and thinking exclude each other, a rule's force climbs the same ladder as a caller's."""
    settings = {"model": "claude-sonnet-4-6", "tools": TOOLS, "stream": stream}
    thought = Turn(Think("hm", signature="sig-1"), Say("It is an OS."))
    words = [sentence.format(tool="search_hero_docs") for sentence in Wording().call_named[:2]]
    with Rig(thought, FOUND, operator=HOUSE) as rig:
        got = rig.ask(wire, _asked(wire, QUESTION, thinking=True, **settings))
        first = expect_body(wire, "messages", QUESTION, words[0], choice="auto", thinking=True, **settings)
        kept = [
            {"type": "thinking", "thinking": "hm", "signature": "sig-1"},
            {"type": "text", "text": "It is an OS."},
        ]
        second = first | {
            "messages": [
                *first["messages"],
                {"role": "assistant", "content": kept},
                {"role": "user", "content": words[1]},
            ],
            "tool_choice": {"type": "tool", "name": "search_hero_docs"},
            "thinking": {"type": "disabled"},
        }
        assert rig.bodies == [first, second]
    assert (got.calls, got.outcome) == ((("search_hero_docs", QUERY),), ("calls", "2", "met", "force_missed,called"))


# --- rules 13 to 15: when it fires -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_target_that_is_not_on_offer_is_reported(wire: str, stream: bool) -> None:
    """Rule 13: without the target on offer nothing is forced, and that is reported, never silent."""
    with Rig(TEXT, upstream=wire, operator=HOUSE) as rig:
        asked = _asked(wire, QUESTION, tools=[WEATHER], stream=stream)
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked]
    assert (got.text, got.adaptations) == ("An operating system.", ["force_dropped:search_hero_docs"])
    assert stream or got.outcome == ("answer", "1", "dropped", "answered")


def test_without_any_tools_the_rule_is_reported() -> None:
    """Rule 13: also a request without tools says that a rule matched and could not be kept."""
    with Rig(TEXT, upstream="chat", operator=HOUSE) as rig:
        asked = _asked("chat", QUESTION, tools=())
        got = rig.ask("chat", asked)
        assert rig.bodies == [asked]
    assert (got.text, got.outcome[2], got.adaptations) == (
        "An operating system.",
        "dropped",
        ["force_dropped:search_hero_docs"],
    )


@pytest.mark.parametrize("wire", WIRES)
def test_a_result_of_any_tool_ends_the_rule(wire: str) -> None:
    """Rule 13: a tool result for the current user message, of whichever tool, is the end of the force."""
    steps = (User(QUESTION), Called("call_1", "get_weather", {"city": "Paris"}), Result("call_1", "sunny"))
    with Rig(TEXT, upstream=wire, operator=HOUSE) as rig:
        asked = _asked(wire, *steps)
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked]
    assert (got.text, got.outcome[2], got.adaptations) == ("An operating system.", "none", [])


@pytest.mark.parametrize("wire", WIRES)
def test_a_new_question_is_grounded_again(wire: str) -> None:
    """Rule 13: the result belongs to the question before; a new one that matches is forced again."""
    steps = (*STEPS, Assistant("An operating system."), User("And hero_shell?"))
    with Rig(Turn(Call("search_hero_docs", QUERY, id="call_2")), upstream=wire, operator=HOUSE) as rig:
        got = rig.ask(wire, _asked(wire, *steps))
        assert rig.bodies == [_asked(wire, *steps, choice="search_hero_docs")]
    assert (got.calls, got.outcome[2]) == ((("search_hero_docs", QUERY),), "met")


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_only_the_latest_user_message_counts(wire: str, stream: bool) -> None:
    """Rule 14: a match in an earlier turn alone does not fire, nor one in what the model said."""
    steps = (User(QUESTION), Assistant("Hero OS is an operating system."), User("Thanks. How is the weather?"))
    with Rig(Turn(Call("get_weather", {"city": "Paris"})), upstream=wire, operator=HOUSE) as rig:
        asked = _asked(wire, *steps, stream=stream)
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked]
    assert (got.calls, got.adaptations) == ((("get_weather", {"city": "Paris"}),), [])


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "words",
    [QUESTION, "what is HERO OS", "Explain hero-os to me", "Run hero_docs, please", "hero_", "Is Hero\nOS good?"],
)
def test_words_that_fire(wire: str, words: str) -> None:
    """Rule 15: case does not matter, `hero_*` and phrases of several words match."""
    with Rig(FOUND, upstream=wire, operator=HOUSE) as rig:
        got = rig.ask(wire, _asked(wire, words))
        assert rig.bodies == [_asked(wire, words, choice="search_hero_docs")]
    assert got.outcome == ("calls", "1", "met", "called")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "words", ["Who is your hero?", "Heroes of the OS wars", "superhero os", "hero osmosis", "My hero. OS X is nice."]
)
def test_words_that_do_not_fire(wire: str, words: str) -> None:
    """Rule 15: an unrelated use of a word ("Who is your hero?") leaves the request untouched."""
    with Rig(TEXT, upstream=wire, operator=HOUSE) as rig:
        asked = _asked(wire, words)
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked]
    assert (got.text, got.outcome, got.adaptations) == (
        "An operating system.",
        ("answer", "1", "none", "answered"),
        [],
    )


# --- rule 16: odd messages -------------------------------------------------------------------------------------------

_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def _content(wire: str, *texts: str) -> dict[str, Any]:
    """Return a user message of an image and texts."""
    image: dict[str, Any] = {
        "chat": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PIXEL}"}},
        "responses": {"type": "input_image", "image_url": f"data:image/png;base64,{_PIXEL}", "detail": "auto"},
        "messages": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PIXEL}},
    }[wire]
    kind = "input_text" if wire == "responses" else "text"
    return {"role": "user", "content": [image, *({"type": kind, "text": text} for text in texts)]}


def _turns(wire: str) -> str:
    return "input" if wire == "responses" else "messages"


@pytest.mark.parametrize("wire", WIRES)
def test_every_text_part_is_scanned(wire: str) -> None:
    """Rule 16: of a message of several parts all the texts are scanned, the second as well as the first."""
    asked = _asked(wire) | {_turns(wire): [_content(wire, "Look at this.", "Is it Hero OS?")]}
    with Rig(FOUND, upstream=wire, operator=HOUSE) as rig:
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked | {"tool_choice": choice_on(wire, "search_hero_docs")}]
    assert got.outcome == ("calls", "1", "met", "called")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("odd", ["nothing", "image", "no user"])
def test_messages_without_words_do_not_raise(wire: str, odd: str) -> None:
    """Rule 16: no messages at all, none of the user's, or nothing but an image: nothing fires and nothing breaks."""
    turns: list[dict[str, Any]] = {
        "nothing": [],
        "image": [_content(wire)],
        "no user": [{"role": "system" if wire != "responses" else "developer", "content": "Hero OS is secret."}],
    }[odd]
    asked = _asked(wire) | {_turns(wire): turns}
    with Rig(TEXT, upstream=wire, operator=HOUSE, strict=False) as rig:
        got = rig.ask(wire, asked)
        assert rig.bodies == [asked]
    assert (got.text, got.outcome[2], got.adaptations) == ("An operating system.", "none", [])


# --- rules 17 to 19 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_directive_goes_with_the_force(wire: str, stream: bool) -> None:
    """Rule 17: one trigger set drives directive and force: both where it matches, neither where it does not."""
    words = "Look it up in the docs first."
    rule = GroundingRule(name="hero", triggers="hero os|hero_*", tool="search_hero_docs", directive=words)
    unrelated = _asked(wire, "Who is your hero?", stream=stream)
    with Rig(FOUND, TEXT, upstream=wire, operator=OperatorSettings(rules=(rule,))) as rig:
        got = rig.ask(wire, _asked(wire, QUESTION, stream=stream))
        other = rig.ask(wire, unrelated)
        forced = _asked(wire, QUESTION, choice="search_hero_docs", stream=stream)
        (said,) = turns_on(wire, [User(words)])
        forced[_turns(wire)].append(typed_item(said) if wire == "responses" else said)
        assert rig.bodies == [forced, unrelated]
    assert (got.calls, got.outcome[2]) == ((("search_hero_docs", QUERY),), "met")
    assert got.adaptations == ["force_added:search_hero_docs", "directive_added:messages"]
    assert (other.text, other.adaptations) == ("An operating system.", [])


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_without_a_match_the_bytes_are_the_same(wire: str, stream: bool) -> None:
    """Rule 18: a message that matches no rule goes out byte for byte as it does without rules."""
    sent: list[bytes] = []
    for operator in (OperatorSettings(), HOUSE):
        with Rig(TEXT, upstream=wire, operator=operator) as rig:
            assert rig.ask(wire, _asked(wire, "Who is your hero?", stream=stream)).text == "An operating system."
            assert len(rig.bodies) == 1
            sent.append(rig.requests[0].raw)
    assert sent[0] == sent[1]


def test_the_bytes_are_the_callers_own() -> None:
    """Rule 18: with rules and no match, even the caller's blanks and order of keys arrive upstream."""
    body = b'{ "messages" : [{"content":"Who is your hero?", "role":"user"}],\n"x_own": 1.0, "model":"gpt-4o"}'
    with (
        ScriptedUpstream([TEXT], strict=True) as upstream,
        RunningGateway(f"chat={upstream.base_url}", operator=HOUSE) as gateway,
    ):
        assert post(f"{gateway.base_url}/chat/completions", body).status == 200
        assert [one.raw for one in upstream.requests] == [body]


@pytest.mark.parametrize("wire", WIRES)
def test_the_target_survives_the_reduction_of_tools(wire: str) -> None:
    """Rule 19: where the engine itself reduces the tools (no named choice, rule 7), the rule's target is what stays."""
    facts = {"models": ["local-*"], "named": False, "forced": "always", "reasoning": "never"}
    operator = OperatorSettings(rules=(HERO,), overrides=read_overrides([facts]))
    with Rig(FOUND, upstream=wire, operator=operator) as rig:
        got = rig.ask(wire, _asked(wire, QUESTION, model="local-1"))
        assert rig.bodies == [_asked(wire, QUESTION, model="local-1", tools=[SEARCH], choice="required")]
    assert (got.calls, got.outcome[2]) == ((("search_hero_docs", QUERY),), "met")


def test_rules_come_from_the_configuration(tmp_path: Path) -> None:
    """Rule 12: a rule is data in mustcall.toml: triggers and a tool."""
    with ScriptedUpstream([FOUND], strict=True) as upstream:
        file = tmp_path / "mustcall.toml"
        file.write_text(
            f'[[upstream]]\nname = "main"\nwire = "chat"\nbase_url = "{upstream.base_url}"\n'
            '[[grounding]]\nname = "hero"\ntriggers = "hero os|hero_*"\ntool = "search_hero_docs"\n',
            encoding="utf-8",
        )
        with RunningGateway(settings=load_settings(file, environment={"MUSTCALL_LEDGER": "off"})) as gateway:
            answer = post(f"{gateway.base_url}/chat/completions", _asked("chat", QUESTION))
        assert answer.status == 200
        assert [one.body for one in upstream.requests] == [_asked("chat", QUESTION, choice="search_hero_docs")]
