"""Rules 12 to 19: which tool the user's latest words call for."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.errors import ConfigError
from mustcall.core.memo import Caches, owned
from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.parts import File, Image, Part, ProviderItem, Text, ToolCall, ToolResult, Unknown
from mustcall.core.request import Request
from mustcall.core.tools import ProviderTool, Tool
from mustcall.policy.words import grounding
from mustcall.policy.words.grounding import (
    GroundingMatch,
    GroundingRule,
    check_rules,
    find_rule,
    latest_input,
    matching_rules,
    offered_tool,
)
from mustcall.policy.words.signs import MessageSign

HERO = GroundingRule(name="hero", triggers="hero os|hero_*", tool="search_hero_docs")
DOCS = Tool(name="search_hero_docs")
OTHER = Tool(name="get_weather")
CALL = ToolCall(id="c1", name="search_hero_docs", arguments_json="{}")
RESULT = ToolResult(call_id="c1", content=(Text(text="found"),))


def user(*parts: Part | str) -> Message:
    """A user message."""
    return Message(role=Role.USER, parts=tuple(Text(text=part) if isinstance(part, str) else part for part in parts))


def assistant(*parts: Part) -> Message:
    """An assistant message."""
    return Message(role=Role.ASSISTANT, parts=parts)


def results(*parts: ToolResult) -> Message:
    """A message of tool results."""
    return Message(role=Role.TOOL, parts=parts)


def ask(*messages: Message, tools: tuple[Tool | ProviderTool, ...] = (DOCS, OTHER)) -> Request:
    """A request."""
    return Request(model="m", messages=messages, tools=tools)


def fires(triggers: str | tuple[str, ...], text: str) -> bool:
    """Whether a rule of these triggers fires for a text."""
    rule = GroundingRule(name="r", triggers=triggers, tool=DOCS.name)
    return find_rule([rule], ask(user(text))) is not None


def test_only_what_a_text_may_hold_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling a phrase takes milliseconds: it waits for a text that holds the phrase's longest literal, once."""
    made: list[str] = []
    write = grounding._word

    def counted(word: str) -> str:
        made.append(word)
        return write(word)

    monkeypatch.setattr(grounding, "_word", counted)
    triggers = ("quixotic zebu*", "quagga")
    with owned(Caches()):
        assert not fires(triggers, "What is the weather in Oslo?")
        assert made == []
        assert [fires(triggers, "A quagga!"), fires(triggers, "Two quaggas, a quagga")] == [True, True]
    assert made == ["quagga"]


def test_a_match_names_the_rule() -> None:
    """Rule 12: a match gives the rule with its one target."""
    assert find_rule([HERO], ask(user("What is Hero OS?"))) == GroundingMatch(HERO, offered=True)


@pytest.mark.parametrize(
    ("triggers", "text"),
    [
        ("hero os|hero_*", "What is Hero OS?"),
        ("hero os|hero_*", "what is HERO   os"),
        ("hero os|hero_*", "what is hero\nos, please"),
        ("hero os|hero_*", "Hero-OS"),
        ("hero os|hero_*", "(hero os)"),
        ("hero os|hero_*", "Hero OS's kernel"),
        ("hero os|hero_*", "open hero_docs now"),
        ("hero os|hero_*", "HERO_X"),
        ("hero os|hero_*", "what does hero_ mean"),
        (("nothing", "hero os"), "hero os"),
        ("*_os", "is hero_os new"),
        ("h*o os", "hero os"),
        ("h*r*o", "hero"),
        ("*er*", "hero"),
        ("a*b", "axbxb"),
        ("a*b*c", "abxbxcxc"),
        ("c++", "Is C++ old?"),
        (".net", "asp.net"),
        ("*.md", "see readme.md"),
        ("straße", "STRASSE"),
        ("hero os", "Ｈｅｒｏ ＯＳ"),  # noqa: RUF001  full-width letters are the point
        ("hero os", "Hero OSとは何ですか"),
        ("英雄", "谁是英雄呢"),
        ("a|", "a"),
    ],
)
def test_triggers_that_fire(triggers: str | tuple[str, ...], text: str) -> None:
    """Rule 15: case, blanks and scripts do not matter; stars and alternatives work."""
    assert fires(triggers, text)


@pytest.mark.parametrize(
    ("triggers", "text"),
    [
        ("hero os|hero_*", "Who is your hero?"),
        ("hero os|hero_*", "heroes osmosis"),
        ("hero os|hero_*", "hero osmosis"),
        ("hero os|hero_*", "superhero os"),
        ("hero os|hero_*", "superhero_docs"),
        ("hero os|hero_*", "os hero"),
        ("hero os|hero_*", "hero, os"),
        ("hero os|hero_*", "hero. OS"),
        ("hero_*", "hero docs"),
        ("hero-*", "hero docs"),
        ("h*o os", "hero xos"),
        ("a*b", "axbx"),
        ("h.ro", "hero"),
        ("h?ro", "hero"),
        ("[a-z]+", "hero"),
        ("hero os", ""),
        ("*", "anything"),
        ("|", "anything"),
        ("", "anything"),
        ((), "anything"),
    ],
)
def test_triggers_that_do_not_fire(triggers: str | tuple[str, ...], text: str) -> None:
    """Rule 15: an unrelated use of a word does not fire, and a trigger is no regular expression."""
    assert not fires(triggers, text)


def test_only_the_latest_user_message_is_scanned() -> None:
    """Rule 14: a match in an earlier turn alone does not fire."""
    history = (user("What is Hero OS?"), assistant(Text(text="A system.")))
    assert find_rule([HERO], ask(*history, user("Thanks!"))) is None
    assert find_rule([HERO], ask(*history, user("Thanks!"), user("and hero_docs?"))) is not None


def test_other_roles_are_not_scanned() -> None:
    """Rule 14: what the system, the model or a tool says does not fire."""
    said = Text(text="hero os")
    others = [Message(role=role, parts=(said,)) for role in (Role.SYSTEM, Role.DEVELOPER, Role.ASSISTANT)]
    assert find_rule([HERO], ask(*others, user("hi"), *others)) is None


def test_no_fire_after_a_tool_result() -> None:
    """Rule 13: the rule holds for the first step only, and holds again for the next user message."""
    first = (user("What is Hero OS?"), assistant(CALL))
    assert find_rule([HERO], ask(*first)) is not None
    assert find_rule([HERO], ask(*first, results(RESULT))) is None
    assert find_rule([HERO], ask(*first, results(RESULT), user("And hero_net?"))) is not None


def test_no_fire_after_a_result_inside_a_user_turn() -> None:
    """Rule 13: a user turn of nothing but results is no new user message."""
    messages = (user("What is Hero OS?"), assistant(CALL), Message(role=Role.USER, parts=(RESULT,)))
    assert find_rule([HERO], ask(*messages)) is None


def test_a_target_that_is_not_offered_is_found_and_said_so() -> None:
    """Rule 13: a missing target is reported, never silent."""
    request = ask(user("hero os"), tools=(OTHER,))
    assert find_rule([HERO], request) == GroundingMatch(HERO, offered=False)


def test_the_first_offered_match_wins() -> None:
    """Rule 13: a rule whose target is missing does not hide one that can be met."""
    gone = GroundingRule(name="gone", triggers="hero os", tool="gone")
    request = ask(user("hero os"))
    assert matching_rules([gone, HERO], request) == (
        GroundingMatch(gone, offered=False),
        GroundingMatch(HERO, offered=True),
    )
    assert find_rule([gone, HERO], request) == GroundingMatch(HERO, offered=True)


def test_targets_in_a_namespace_and_of_the_provider() -> None:
    """Rule 13: a target may be named bare or with its namespace, and may be a tool the provider defines by name."""
    spaced = Tool(name="search", namespace="hero")
    bash = ProviderTool(type="bash_20250124", value={"type": "bash_20250124", "name": "bash"})
    request = ask(user("hero os"), tools=(spaced, bash))
    assert offered_tool(request, "search") is spaced
    assert offered_tool(request, "hero__search") is spaced
    assert offered_tool(request, "search", "hero") is spaced
    assert offered_tool(request, "search", "villain") is None
    rule = msgspec.structs.replace(HERO, tool="bash")
    assert find_rule([rule], request) == GroundingMatch(rule, offered=True)


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (assistant(Text(text="hero os")),),
        (user(),),
        (user(Image(url="http://127.0.0.1/hero os")),),
        (user(File(text="hero os")),),
        (user(Unknown(wire=Wire.CHAT, type="x", value={"text": "hero os"})),),
        (user("hero os"), user("")),
        (user("hero os"), user(Image(url="x"))),
    ],
)
def test_no_words_no_match(messages: tuple[Message, ...]) -> None:
    """Rule 16: empty lists, missing user messages and content that is not text do not raise and do not fire."""
    assert find_rule([HERO], ask(*messages)) is None


def test_all_text_parts_are_scanned() -> None:
    """Rule 16: multi-part content is scanned over its text parts, each for itself."""
    assert find_rule([HERO], ask(user("see", Image(url="x"), "hero os"))) is not None
    assert find_rule([HERO], ask(user("hero", "os"))) is None


def test_no_rules_cost_nothing() -> None:
    """Rule 18: without rules nothing is found or kept."""
    assert matching_rules([], ask(user("hero os"))) == ()


def test_text_behind_results_is_the_users() -> None:
    """Rule 11: text behind the results of a mixed turn is a new user message, as other wires would carry it."""
    latest = latest_input(ask(user("one"), assistant(CALL), user(RESULT, "two")))
    assert latest.texts == ("two",)
    assert not latest.answered


@pytest.mark.parametrize(
    "parts",
    [
        (RESULT,),
        (RESULT, ""),
        (RESULT, Image(url="x")),
        ("before", RESULT),
        (RESULT, "<system-reminder>hero os</system-reminder>"),
    ],
)
def test_results_without_words_behind_them_are_not_the_users(parts: tuple[Part | str, ...]) -> None:
    """Rule 11: results, and what a client puts beside them, leave the earlier message the latest."""
    latest = latest_input(ask(user("one"), assistant(CALL), user(*parts)))
    assert latest.texts == ("one",)
    assert latest.answered


def test_text_the_client_added_is_not_the_users() -> None:
    """Rule 14: reminders and surroundings that a client adds do not fire."""
    added = "<system-reminder>\nhero os\n</system-reminder>"
    assert find_rule([HERO], ask(user(added, "hello"))) is None
    assert find_rule([HERO], ask(user(f"{added}tell me{added} about hero os"))) is not None
    assert find_rule([HERO], ask(user("hero os"), user(added))) is not None
    assert latest_input(ask(user(added))).texts == ()
    assert latest_input(ask(user("<system-reminder>never closed"))).texts == ("<system-reminder>never closed",)


def test_rounds_are_runs_of_results() -> None:
    """Rule 109: parallel results are one round, whether in one message or in several."""
    second = ToolResult(call_id="c2")
    start = (user("go"), assistant(CALL))
    assert latest_input(ask(*start)).rounds == 0
    assert latest_input(ask(*start, results(RESULT), results(second))).rounds == 1
    assert latest_input(ask(*start, results(RESULT), assistant(CALL), results(second))).rounds == 2
    assert latest_input(ask(*start, results(RESULT), assistant(CALL), results(second), user("on"))).rounds == 0
    assert latest_input(ask(results(RESULT))).rounds == 1


def test_rounds_of_the_providers_own_form() -> None:
    """Rule 109: what a client sends back for a provider's own call is a result; what the provider ran is none."""
    call = ProviderItem(Wire.RESPONSES, "shell_call", {}, ("shell",))
    done = ProviderItem(Wire.RESPONSES, "shell_call_output", {}, result_of="c1")
    ran = ProviderItem(Wire.RESPONSES, "shell_call_output", {})
    start = (user("go"), assistant(call))
    assert latest_input(ask(*start, assistant(ran))).rounds == 0
    assert not latest_input(ask(*start, assistant(ran))).answered
    assert latest_input(ask(*start, assistant(done))).answered
    assert latest_input(ask(*start, assistant(done.evolve(result_of="")))).answered
    assert latest_input(ask(*start, assistant(done), assistant(done), results(RESULT))).rounds == 1
    assert latest_input(ask(*start, assistant(done), assistant(call), assistant(done))).rounds == 2


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ([GroundingRule(name=" ", triggers="a", tool="t")], "number 1: name"),
        ([GroundingRule(name="x", triggers="a", tool="")], "'x': tool"),
        ([GroundingRule(name="x", triggers=(), tool="t")], "'x': triggers"),
        ([GroundingRule(name="x", triggers=" | ", tool="t")], "'x': triggers"),
        ([GroundingRule(name="x", triggers="a|*", tool="t")], "'x': the trigger '*'"),
        ([GroundingRule(name="x", triggers=("_*",), tool="t")], "'x': the trigger '_*'"),
        ([GroundingRule(name="x", triggers="a", tool="t", directive=" ")], "'x': directive"),
        ([HERO, HERO], "'hero': two rules"),
    ],
)
def test_rules_that_cannot_work_are_refused(rules: list[GroundingRule], problem: str) -> None:
    """Rule 12: a rule that could never fire, or always would, is a configuration error that names it."""
    with pytest.raises(ConfigError, match=re.escape(problem)):
        check_rules(rules)


def test_good_rules_pass() -> None:
    """Rule 17: triggers as one string or as a list, with or without a directive."""
    table = {"name": "x", "triggers": ["c++", "hero os"], "tool": "t", "directive": "Look it up."}
    rule = msgspec.convert(table, GroundingRule)
    check_rules([HERO, rule])
    assert rule.triggers == ("c++", "hero os")
    with pytest.raises(msgspec.ValidationError, match="unknown field `pattern`"):
        msgspec.convert({**table, "pattern": "x"}, GroundingRule)


def test_a_rule_may_be_written_with_lists() -> None:
    """Rule 12: lists and sets of triggers and signs, and one sign alone, are what a tuple of them is."""
    loose: Any = {"triggers": ["a b", "c"], "signs": "sum"}
    written = GroundingRule(name="x", tool="t", **loose)
    assert written == GroundingRule(name="x", tool="t", triggers=("a b", "c"), signs=(MessageSign.SUM,))
    assert hash(written) == hash(GroundingRule(name="x", tool="t", triggers=("a b", "c"), signs=(MessageSign.SUM,)))
    assert written.signs[0] is MessageSign.SUM
    assert [match.rule for match in matching_rules([written], ask(user("do a b now")))] == [written]
    assert msgspec.convert({"name": "x", "tool": "t", "triggers": ["a b", "c"]}, GroundingRule).triggers == ("a b", "c")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"signs": ["smu"]}, "grounding rule 'x': there is no sign 'smu'; there are: sum, file; did you mean 'sum'?"),
        ({"signs": 5}, "grounding rule 'x': signs must be a list, got 5"),
        ({"triggers": 5}, "grounding rule 'x': triggers must be a phrase or a list of them, got 5"),
        ({"triggers": ["a", 5]}, "grounding rule 'x': triggers must be a phrase or a list of them, got ['a', 5]"),
        ({"tool": print}, "grounding rule 'x': tool must be the name of a tool, got <built-in"),
        ({"directive": 5}, "grounding rule 'x': directive must be str, got 5"),
        ({"name": 5}, "grounding rule: name must be str, got 5"),
    ],
)
def test_a_rule_of_wrong_types_is_refused_where_it_is_made(wrong: Any, said: str) -> None:
    """Rule 12: what would fail in the middle of a run is a configuration error that names the rule."""
    fields: dict[str, Any] = {"name": "x", "triggers": "a", "tool": "t", **wrong}
    with pytest.raises(ConfigError) as raised:
        GroundingRule(**fields)
    assert raised.value.message.startswith(said)


def test_what_is_no_rule_is_refused() -> None:
    """Rule 12: anything else among the rules is a configuration error."""
    rules: Any = [HERO, "hero"]
    with pytest.raises(ConfigError, match="rules must be GroundingRule, got 'hero'"):
        check_rules(rules)


@pytest.mark.parametrize("trigger", ["*a*b*c*d", "a* b* c*", "*ab", "x* *y", "hero os"])
@pytest.mark.parametrize("unit", ["a", "ab", "a ", "a-", "ab c ", "hero ", "英a", " ", "<system-reminder>"])
def test_long_hostile_text_is_matched_in_linear_time(trigger: str, unit: str) -> None:
    """Rule 15: 300,000 characters of near misses come to an answer; tried from every character they would not."""
    rule = GroundingRule(name="r", triggers=(trigger, "the end"), tool=DOCS.name)
    nearly = unit * (300_000 // len(unit))
    assert matching_rules([rule], ask(user(f"{nearly}! the end"))) == (GroundingMatch(rule, offered=True),)


@settings(deadline=None)
@given(st.lists(st.text(max_size=12), max_size=4), st.text(max_size=60))
def test_matching_never_raises(triggers: list[str], text: str) -> None:
    """Rule 16: no trigger and no text makes matching fail, and the answer is always the same."""
    assert fires(tuple(triggers), text) == fires(tuple(triggers), text)


@settings(deadline=None)
@given(st.lists(st.from_regex(r"[a-z0-9]{1,6}", fullmatch=True), min_size=1, max_size=4), st.text(max_size=20))
def test_a_phrase_is_found_in_any_case_on_word_borders(words: list[str], other: str) -> None:
    """Rule 15: a phrase set off by blanks is found whatever stands around it, and never inside a longer word."""
    phrase = " ".join(words)
    assert fires(phrase, f"{other} {phrase.upper()} {other}")
    assert not fires(phrase, f"q{phrase}") or f" {phrase}" in f"q{phrase}"
    assert not fires(phrase, f"{phrase}q") or f"{phrase} " in f"{phrase}q"


@settings(deadline=None)
@given(st.from_regex(r"[a-z*]{1,8}", fullmatch=True), st.from_regex(r"[a-z]{0,10}", fullmatch=True))
def test_stars_mean_what_they_say(trigger: str, word: str) -> None:
    """Rule 15: within one word a star is any run of letters, by the plain definition."""
    plain = re.fullmatch(re.sub(r"\*+", "[a-z]*", trigger), word) is not None
    assert fires(trigger, word) == (plain and word != "" and trigger.strip("*") != "")
