"""Rules 1, 4, 8 to 11, 13, 17, 18 and 109: the one demand of a turn."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.adaptation import Adaptation, AdaptationKind
from mustcall.core.errors import ForcedToolMissing
from mustcall.core.message import Message, Role
from mustcall.core.origin import JsonObject, Origin, Wire
from mustcall.core.parts import CallKind, Part, Text, ToolCall, ToolResult
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, ProviderTool, Tool, ToolChoice
from mustcall.policy.facts.controls import Controls, ToolControls
from mustcall.policy.request.demand import STEP_CAP_NOTICE, Demand, DemandSource, settle_demand
from mustcall.policy.words.grounding import GroundingRule
from mustcall.wire.registry import CODECS

WEATHER, DOCS = Tool(name="get_weather"), Tool(name="search_hero_docs")
SPACED = Tool(name="read", namespace="files")
BASH = ProviderTool(type="bash_20250124", value={"type": "bash_20250124", "name": "bash"})
SEARCH = ProviderTool(type="web_search", value={"type": "web_search"})
HERO = GroundingRule(name="hero", triggers="hero os", tool="search_hero_docs", directive="Look Hero OS up.")

NONE, AUTO, REQUIRED = (ToolChoice(mode=mode) for mode in (ChoiceMode.NONE, ChoiceMode.AUTO, ChoiceMode.REQUIRED))
STRICT, LENIENT = Controls(), Controls(strict_force=False)
LOCKED = {"get_weather": ToolControls(locked_off=True)}

CALL = Message(role=Role.ASSISTANT, parts=(ToolCall(id="c1", name="get_weather", arguments_json="{}"),))
RESULT = ToolResult(call_id="c1")
ANSWERED = (CALL, Message(role=Role.TOOL, parts=(RESULT,)))


def named(name: str, namespace: str | None = None) -> ToolChoice:
    """A choice of one tool."""
    return ToolChoice(mode=ChoiceMode.NAMED, name=name, namespace=namespace)


def user(*parts: Part | str) -> Message:
    """A user message."""
    return Message(role=Role.USER, parts=tuple(Text(text=part) if isinstance(part, str) else part for part in parts))


def ask(
    choice: ToolChoice | None = None,
    *messages: Message,
    tools: tuple[Tool | ProviderTool, ...] = (WEATHER, DOCS),
    text: str = "hello",
    fields: dict[str, object] | None = None,
) -> Request:
    """A request with one user message, and what came after it."""
    origin = Origin(Wire.RESPONSES, fields) if fields is not None else None
    return Request(model="m", messages=(user(text), *messages), tools=tools, tool_choice=choice, origin=origin)


def kinds(demand: Demand) -> list[AdaptationKind]:
    """The kinds of a demand's notes."""
    return [note.kind for note in demand.notes]


@pytest.mark.parametrize("choice", [NONE, REQUIRED, named("get_weather"), AUTO])
def test_the_callers_choice_is_the_demand(choice: ToolChoice) -> None:
    """Rule 10: an explicit choice is the demand, as the same object and with nothing to report."""
    demand = settle_demand(ask(choice), STRICT)
    assert demand.choice is choice
    assert (demand.source, demand.notes, demand.directive) == (DemandSource.CALLER, (), None)


def test_nobody_chose() -> None:
    """Rule 3: with no choice set there is none."""
    assert settle_demand(ask(), STRICT) == Demand()


@pytest.mark.parametrize(
    ("choice", "forced", "forbids", "names"),
    [
        (None, False, False, None),
        (AUTO, False, False, None),
        (NONE, False, True, frozenset[str]()),
        (REQUIRED, True, False, None),
        (named("get_weather"), True, False, frozenset({"get_weather"})),
        (ToolChoice(mode=ChoiceMode.REQUIRED, allowed=("a", "b")), True, False, frozenset({"a", "b"})),
        (ToolChoice(mode=ChoiceMode.AUTO, allowed=("a",)), False, False, frozenset({"a"})),
    ],
)
def test_the_four_choices(choice: ToolChoice | None, forced: bool, forbids: bool, names: frozenset[str] | None) -> None:
    """Rule 1: none, auto, required and specific, and which tools satisfy each."""
    demand = Demand(choice=choice)
    assert (demand.forced, demand.forbids, demand.names) == (forced, forbids, names)


@pytest.mark.parametrize(
    ("choice", "call", "permitted"),
    [
        (None, ("x", None), True),
        (NONE, ("x", None), False),
        (REQUIRED, ("x", None), True),
        (named("read"), ("read", None), True),
        (named("read"), ("read", "files"), True),
        (named("read"), ("write", None), False),
        (named("read", "files"), ("read", "files"), True),
        (named("read", "files"), ("read", None), True),
        (named("read", "files"), ("read", "mail"), False),
        (ToolChoice(mode=ChoiceMode.AUTO, allowed=("files__read",)), ("read", "files"), True),
        (ToolChoice(mode=ChoiceMode.AUTO, allowed=("files__read",)), ("read", "mail"), False),
    ],
)
def test_calls_a_demand_permits(choice: ToolChoice | None, call: tuple[str, str | None], permitted: bool) -> None:
    """Rule 29: another tool than the named one does not meet the demand; namespaces count where they are known."""
    made = ToolCall(id="c", name=call[0], namespace=call[1], arguments_json="{}")
    assert Demand(choice=choice).permits(made) is permitted


PRECEDENCE = (
    (DemandSource.STEP_CAP, Controls(step_cap=1, force_tools=True), REQUIRED, ANSWERED, ChoiceMode.NONE),
    (DemandSource.FORCE_TOOLS, Controls(force_tools="get_weather"), NONE, (), ChoiceMode.NAMED),
    (DemandSource.CALLER, STRICT, NONE, (), ChoiceMode.NONE),
    (DemandSource.CALLER, STRICT, REQUIRED, (), ChoiceMode.REQUIRED),
    (DemandSource.ANSWER_PHASE, STRICT, AUTO, (), ChoiceMode.REQUIRED),
    (DemandSource.ANSWER_PHASE, STRICT, None, (), ChoiceMode.REQUIRED),
)


@pytest.mark.parametrize(("source", "controls", "choice", "after", "mode"), PRECEDENCE)
def test_precedence(
    source: DemandSource, controls: Controls, choice: ToolChoice | None, after: tuple[Message, ...], mode: ChoiceMode
) -> None:
    """Rule 10: step cap, then the caller, then the answer phase, all before a grounding rule that matches."""
    demand = settle_demand(ask(choice, *after, text="hero os"), controls, [HERO], answer_phase=REQUIRED)
    assert demand.choice is not None
    assert (demand.source, demand.choice.mode) == (source, mode)


@pytest.mark.parametrize("choice", [None, AUTO])
def test_grounding_before_the_default(choice: ToolChoice | None) -> None:
    """Rules 10, 12, 17: a rule gives specific(target) with its directive; `auto` is the default spelt out."""
    demand = settle_demand(ask(choice, text="What is Hero OS?"), STRICT, [HERO])
    assert demand.choice == named("search_hero_docs")
    assert (demand.source, demand.directive) == (DemandSource.GROUNDING, "Look Hero OS up.")
    assert demand.notes == (Adaptation(AdaptationKind.FORCE_ADDED, "search_hero_docs", "grounding rule hero"),)


@pytest.mark.parametrize("choice", [None, AUTO, NONE, REQUIRED])
def test_no_match_changes_nothing(choice: ToolChoice | None) -> None:
    """Rule 18: a message that matches no rule gives the same demand as without rules."""
    request = ask(choice, text="Who is your hero?")
    assert settle_demand(request, STRICT, [HERO]) == settle_demand(request, STRICT)


def test_grounding_holds_for_the_first_step_only() -> None:
    """Rule 13: after a tool result the choice is the caller's own again."""
    assert settle_demand(ask(AUTO, *ANSWERED, text="hero os"), STRICT, [HERO]).choice is AUTO


@pytest.mark.parametrize("controls", [STRICT, LENIENT])
def test_a_grounding_target_that_is_not_offered_is_reported(controls: Controls) -> None:
    """Rule 13: the rule does not fire, is no error for the caller, and is never silent."""
    demand = settle_demand(ask(None, tools=(WEATHER,), text="hero os"), controls, [HERO])
    assert (demand.choice, demand.directive, demand.source) == (None, None, DemandSource.DEFAULT)
    assert demand.notes == (
        Adaptation(AdaptationKind.FORCE_DROPPED, "search_hero_docs", "grounding rule hero: it is not on offer"),
    )


def test_a_grounding_target_outside_the_allowed_set_or_locked_off() -> None:
    """Rules 8, 13: neither the caller's allowed set nor a lock is overruled; both are reported."""
    allowed = ToolChoice(mode=ChoiceMode.AUTO, allowed=("get_weather",))
    demand = settle_demand(ask(allowed, text="hero os"), STRICT, [HERO])
    assert demand.choice is allowed
    assert "does not allow it" in demand.notes[0].detail
    locked = Controls(tools={"search_hero_docs": ToolControls(locked_off=True)})
    demand = settle_demand(ask(text="hero os"), locked, [HERO])
    assert demand.choice is None
    assert "locked off" in demand.notes[0].detail


def test_the_next_rule_that_can_be_met_is_taken() -> None:
    """Rule 13: a rule that cannot be met is reported and makes room for the next."""
    gone = GroundingRule(name="gone", triggers="hero os", tool="gone")
    demand = settle_demand(ask(text="hero os"), STRICT, [gone, HERO])
    assert demand.names == {"search_hero_docs"}
    assert kinds(demand) == [AdaptationKind.FORCE_DROPPED, AdaptationKind.FORCE_ADDED]


@pytest.mark.parametrize(("wanted", "choice"), [(True, REQUIRED), ("get_weather", named("get_weather"))])
def test_force_tools(wanted: bool | str, choice: ToolChoice) -> None:
    """Rule 9: any tool or one tool can be forced for one request, before the request's own choice, and reported."""
    demand = settle_demand(ask(NONE), Controls(force_tools=wanted))
    assert (demand.choice, demand.source) == (choice, DemandSource.FORCE_TOOLS)
    assert kinds(demand) == [AdaptationKind.FORCE_ADDED]


def test_force_tools_speaks_the_words_of_the_offer() -> None:
    """Rule 9: a tool in a namespace is found by its bare and by its flat name, with its kind."""
    tool = Tool(name="read", namespace="files", kind=CallKind.CUSTOM)
    expected = ToolChoice(mode=ChoiceMode.NAMED, name="read", namespace="files", kind=CallKind.CUSTOM)
    for name in ("read", "files__read"):
        assert settle_demand(ask(tools=(tool,)), Controls(force_tools=name)).choice == expected


MISSING = (
    (named("gone"), STRICT, (WEATHER, DOCS), r"gone.*not on offer.*get_weather, search_hero_docs"),
    (named("read", "mail"), STRICT, (SPACED,), r"mail__read.*not on offer.*files__read"),
    (named("get_weather"), STRICT, (), r"get_weather.*no tools are on offer.*nothing"),
    (named("get_weather"), Controls(tools=LOCKED), (WEATHER,), r"get_weather.*locked off"),
    (named("web_search"), STRICT, (SEARCH,), r"web_search.*provider's own form"),
    (REQUIRED, STRICT, (), r"any tool.*no tools are on offer"),
    (REQUIRED, Controls(tools=LOCKED), (WEATHER,), r"any tool.*locked off"),
    (ToolChoice(mode=ChoiceMode.REQUIRED, allowed=("x",)), STRICT, (WEATHER,), r"none of the tools it allows"),
)


@pytest.mark.parametrize(("choice", "controls", "tools", "said"), MISSING)
def test_a_missing_tool_is_an_error_if_strict(
    choice: ToolChoice, controls: Controls, tools: tuple[Tool | ProviderTool, ...], said: str
) -> None:
    """Rule 8: strict mode names the forced tool, why it cannot be forced, and what is on offer."""
    with pytest.raises(ForcedToolMissing, match=said) as caught:
        settle_demand(ask(choice, tools=tools), controls)
    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize(("choice", "controls", "tools", "said"), MISSING)
def test_a_missing_tool_is_dropped_if_lenient(
    choice: ToolChoice, controls: Controls, tools: tuple[Tool | ProviderTool, ...], said: str
) -> None:
    """Rule 8: lenient mode sends unforced and reports `force_dropped`, never without a trace."""
    del said
    lenient = Controls(strict_force=False, tools=controls.tools)
    demand = settle_demand(ask(choice, tools=tools), lenient)
    assert not demand.forced
    assert kinds(demand) == [AdaptationKind.FORCE_DROPPED]
    assert (demand.choice is None) == (not tools)
    assert demand.choice is None or demand.choice.mode is ChoiceMode.AUTO


def test_force_tools_that_cannot_be_met() -> None:
    """Rule 8: `force_tools` is an error if strict; if lenient it gives way to the request's own choice."""
    with pytest.raises(ForcedToolMissing, match="force_tools demands gone") as caught:
        settle_demand(ask(), Controls(force_tools="gone"))
    assert caught.value.param == "force_tools"
    demand = settle_demand(ask(REQUIRED), Controls(force_tools="gone", strict_force=False))
    assert (demand.choice, demand.source) == (REQUIRED, DemandSource.CALLER)
    assert kinds(demand) == [AdaptationKind.FORCE_DROPPED]


def test_a_dropped_force_makes_no_room_for_a_rule() -> None:
    """Rule 8: "sends unforced" means that, also when a grounding rule matches."""
    controls = Controls(force_tools="gone", strict_force=False)
    demand = settle_demand(ask(AUTO, text="hero os"), controls, [HERO])
    assert (demand.choice, kinds(demand)) == (AUTO, [AdaptationKind.FORCE_DROPPED])


def test_nothing_of_a_dropped_name_is_left() -> None:
    """Rule 8: what remains of a named choice is plain `auto`."""
    gone = ToolChoice(mode=ChoiceMode.NAMED, name="gone", namespace="files", kind=CallKind.CUSTOM)
    assert settle_demand(ask(gone), LENIENT).choice == AUTO


def test_one_unlocked_tool_is_enough_for_required() -> None:
    """Rule 8: a lock on one tool does not keep another from being called."""
    assert settle_demand(ask(REQUIRED), Controls(tools=LOCKED)).choice is REQUIRED


def test_tools_the_provider_defines_can_be_named() -> None:
    """Rule 8: `bash` of the provider's own definition is on offer; so is what a stored prompt brings along."""
    assert settle_demand(ask(named("bash"), tools=(BASH,)), STRICT).forced
    assert settle_demand(ask(named("x"), tools=(), fields={"prompt": {"id": "p"}}), STRICT).forced
    assert settle_demand(ask(AUTO, tools=(), fields={"prompt": {"id": "p"}}), STRICT).choice is AUTO


def test_a_demand_for_hosted_tools_is_the_providers_own() -> None:
    """Rule 35: where the provider runs every tool on offer, the choice goes out and no call is waited for."""
    demand = settle_demand(ask(REQUIRED, tools=(SEARCH,)), STRICT)
    assert (demand.choice, demand.hosted, demand.forced) == (REQUIRED, True, False)
    assert settle_demand(ask(REQUIRED, tools=(SEARCH, WEATHER)), STRICT).forced


def test_a_force_can_be_told_to_last() -> None:
    """Rule 11 has a switch for agents whose every step is a call."""
    asked = Request(model="m", messages=tuple(ANSWERED), tools=(WEATHER,), tool_choice=REQUIRED)
    assert not settle_demand(asked, STRICT).forced
    assert settle_demand(asked, Controls(force_after_results=True)).forced


@pytest.mark.parametrize("choice", [AUTO, NONE])
def test_a_plain_choice_without_tools_is_no_demand(choice: ToolChoice) -> None:
    """Rule 4: with an empty tool list there is no choice to send, and that is reported."""
    demand = settle_demand(ask(choice, tools=()), STRICT)
    assert demand.choice is None
    assert kinds(demand) == [AdaptationKind.FIELD_DROPPED]


def test_a_choice_in_the_providers_own_form_is_left_alone() -> None:
    """Rule 10: a choice this version has no word for is still the caller's, and outranks a rule."""
    hosted = ask(None, text="hero os", fields={"tool_choice": {"type": "web_search"}})
    assert settle_demand(hosted, STRICT, [HERO]) == Demand(source=DemandSource.CALLER)


@pytest.mark.parametrize(
    ("choice", "controls"),
    [(REQUIRED, STRICT), (named("get_weather"), STRICT), (named("gone"), STRICT), (AUTO, Controls(force_tools=True))],
)
def test_no_force_after_a_tool_result(choice: ToolChoice, controls: Controls) -> None:
    """Rule 11: once a tool result is there the intent is auto, and the dropped force is reported."""
    demand = settle_demand(ask(choice, *ANSWERED), controls)
    assert demand.choice == AUTO
    assert [(note.kind, note.detail) for note in demand.notes] == [
        (AdaptationKind.FORCE_DROPPED, "a tool result is already there")
    ]


def test_a_dropped_force_keeps_the_allowed_set() -> None:
    """Rule 11: only the force goes; which tools may be called stays."""
    allowed = ToolChoice(mode=ChoiceMode.REQUIRED, allowed=("get_weather",))
    assert settle_demand(ask(allowed, *ANSWERED), STRICT).names == {"get_weather"}


def test_results_in_a_user_turn_count() -> None:
    """Rule 11: a user turn of results is not a new message; text behind the results is."""
    assert not settle_demand(ask(REQUIRED, CALL, user(RESULT)), STRICT).forced
    assert settle_demand(ask(REQUIRED, CALL, user(RESULT, "and now?")), STRICT).forced
    assert settle_demand(ask(REQUIRED, *ANSWERED, user("and now?")), STRICT).forced


WEATHER_JSON: JsonObject = {"type": "object", "properties": {}}
CHAT_TURNS: list[JsonObject] = [
    {"role": "user", "content": "go"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
]
MESSAGES_TURNS: list[JsonObject] = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "get_weather", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}]},
]
RESPONSES_ITEMS: list[JsonObject] = [
    {"role": "user", "content": "go"},
    {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
]
BODIES: dict[Wire, JsonObject] = {
    Wire.CHAT: {
        "messages": CHAT_TURNS,
        "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER_JSON}}],
        "tool_choice": "required",
    },
    Wire.MESSAGES: {
        "max_tokens": 9,
        "messages": MESSAGES_TURNS,
        "tools": [{"name": "get_weather", "input_schema": WEATHER_JSON}],
        "tool_choice": {"type": "any"},
    },
    Wire.RESPONSES: {
        "input": RESPONSES_ITEMS,
        "tools": [{"type": "function", "name": "get_weather", "parameters": WEATHER_JSON}],
        "tool_choice": "required",
    },
}


@pytest.mark.parametrize("wire", list(Wire))
def test_results_are_seen_on_every_wire(wire: Wire) -> None:
    """Rule 11: the same conversation gives the same demand on each wire, before and after the tool result."""
    key = "input" if wire is Wire.RESPONSES else "messages"
    body = {"model": "m", **BODIES[wire]}
    for length, forced, rounds in ((1, True, 0), (3, False, 1)):
        sent = msgspec.json.encode({**body, key: body[key][:length]})
        request = CODECS[wire].decode_request(sent)
        assert settle_demand(request, STRICT).forced is forced
        assert settle_demand(request, Controls(step_cap=1)).forbids is (rounds == 1)


def test_results_alone_count() -> None:
    """Rule 11: with server-kept state the request may hold nothing but results."""
    request = Request(model="m", messages=ANSWERED[1:], tools=(WEATHER,), tool_choice=REQUIRED)
    assert not settle_demand(request, STRICT).forced


@pytest.mark.parametrize("choice", [NONE, AUTO, None])
def test_what_is_not_forced_stays_after_a_result(choice: ToolChoice | None) -> None:
    """Rule 11: only forces are dropped."""
    assert settle_demand(ask(choice, *ANSWERED), STRICT).choice is choice


def test_the_answer_phase_is_forced_after_results() -> None:
    """Rule 91: the answer tool is demanded although the tool phase left its results."""
    demand = settle_demand(ask(AUTO, *ANSWERED), STRICT, answer_phase=named("get_weather"))
    assert (demand.choice, demand.source) == (named("get_weather"), DemandSource.ANSWER_PHASE)


@pytest.mark.parametrize(("rounds", "capped"), [(0, False), (1, False), (2, True), (3, True)])
def test_the_step_cap(rounds: int, capped: bool) -> None:
    """Rule 109: at the cap the request carries `none` and a notice, before it the caller's choice."""
    demand = settle_demand(ask(AUTO, *(ANSWERED * rounds)), Controls(step_cap=2))
    assert demand.forbids is capped
    assert demand.directive == (STEP_CAP_NOTICE if capped else None)
    assert kinds(demand) == ([AdaptationKind.REPORTED] if capped else [])


def test_the_step_cap_counts_from_the_latest_user_message() -> None:
    """Rule 109: a new user message starts at nothing; 0 is no cap; without tools there is nothing to cap."""
    assert not settle_demand(ask(AUTO, *ANSWERED, *ANSWERED, user("next")), Controls(step_cap=2)).forbids
    assert not settle_demand(ask(AUTO, *(ANSWERED * 50)), STRICT).forbids
    assert settle_demand(ask(None, *ANSWERED, tools=()), Controls(step_cap=1)) == Demand()


def test_a_force_lost_to_the_step_cap_is_reported() -> None:
    """Rules 8, 109: the cap takes the force, not silently; the notice can be worded."""
    demand = settle_demand(ask(REQUIRED, *ANSWERED), Controls(step_cap=1), notice="Stop.")
    assert (kinds(demand), demand.directive) == ([AdaptationKind.FORCE_DROPPED], "Stop.")


CHOICES = st.none() | st.builds(
    ToolChoice,
    mode=st.sampled_from(ChoiceMode),
    name=st.sampled_from([None, "get_weather", "read", "gone"]),
    namespace=st.sampled_from([None, "files"]),
    allowed=st.none() | st.lists(st.sampled_from(["get_weather", "gone"]), max_size=2).map(tuple),
)
MESSAGES = st.lists(
    st.sampled_from([*ANSWERED, user("hero os"), user("x"), user(RESULT), user(RESULT, "y")]), max_size=6
)
TOOLS = st.lists(st.sampled_from([WEATHER, DOCS, SPACED, BASH, SEARCH]), max_size=4).map(tuple)
CONTROLS = st.builds(
    Controls,
    force_tools=st.sampled_from([False, True, "get_weather", "gone"]),
    strict_force=st.booleans(),
    step_cap=st.integers(0, 2),
    tools=st.sampled_from([{}, LOCKED]),
)


@settings(deadline=None)
@given(CHOICES, MESSAGES, TOOLS, CONTROLS)
def test_any_request_has_one_demand_or_one_error(
    choice: ToolChoice | None, messages: list[Message], tools: tuple[Tool | ProviderTool, ...], controls: Controls
) -> None:
    """Rule 8: for any mix a force is kept, or dropped with a report, or refused if strict; never lost in silence."""
    request = Request(model="m", messages=tuple(messages), tools=tools, tool_choice=choice)
    try:
        demand = settle_demand(request, controls, [HERO])
    except ForcedToolMissing:
        assert controls.strict_force
        return
    asked = bool(controls.force_tools) or Demand(choice=choice).forced
    assert demand.forced or demand.hosted or not asked or AdaptationKind.FORCE_DROPPED in kinds(demand)
    assert not demand.forced or tools
    assert demand == settle_demand(request, controls, [HERO])
    if demand.choice is not None and demand.choice.mode is ChoiceMode.NAMED:
        assert not (demand.choice.name == "get_weather" and controls.tools)
        assert demand.choice.name != "gone"
