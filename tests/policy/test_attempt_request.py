"""The request of one attempt: untouched where nothing changes, grown only at its tail, one grammar where it is text."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import Image, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from mustcall.core.request import OutputFormat, OutputKind, ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import ChoiceMode, Tool, ToolChoice
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Forcing, Profile, Protocol
from mustcall.policy.facts.wording import Wording
from mustcall.policy.request.attempt_request import Shaped, demand_sentence, kept_answer, shape, user_turn
from mustcall.policy.request.demand import Demand
from mustcall.policy.request.json_call import bound_schema
from mustcall.policy.request.plan import Plan, Rung, RungKind, candidates, make_plan
from support.values import ANY, NOTHING, SEARCH, TOOLS, WEATHER, asked, demand, named, user

WORDS = Wording()
CALLED = (
    user("Weather in Paris?"),
    Message(role=Role.ASSISTANT, parts=(ToolCall(id="c1", name="get_weather", arguments_json='{"city":"Paris"}'),)),
    Message(role=Role.TOOL, parts=(ToolResult(call_id="c1", content=(Text(text="Rain."),)),)),
)


def shaped(
    request: Request,
    wanted: Demand,
    rung: Rung,
    tail: Sequence[Message] = (),
    *,
    profile: Profile | None = None,
    log: AdaptationLog | None = None,
) -> Shaped:
    """Shape a request on one rung."""
    known = profile or Profile()
    plan = make_plan(request, wanted, known, Controls())
    log = log if log is not None else AdaptationLog()
    return shape(request, plan, rung, tail, profile=known, wording=WORDS, log=log)


def texts(request: Request) -> str:
    """All text of a request, system prompt included."""
    turns = [*([request.system] if request.system is not None else []), *request.messages]
    return "\n".join(part.text for turn in turns for part in turn.parts if isinstance(part, Text))


@pytest.mark.parametrize("choice", [None, ToolChoice(mode=ChoiceMode.AUTO), NOTHING])
def test_a_plain_request_is_the_same_object(choice: ToolChoice | None) -> None:
    """Rules 30, 105: nothing forced, nothing added: the very request, so its bytes are forwarded."""
    request = asked(tool_choice=choice)
    assert shaped(request, demand(choice), Rung(RungKind.PLAIN)).request is request


@pytest.mark.parametrize("choice", [ANY, named()])
def test_a_force_that_works_is_the_same_object(choice: ToolChoice) -> None:
    """Rule 30: a forced choice the upstream obeys is sent as it came."""
    request = asked(tool_choice=choice)
    got = shaped(request, demand(choice), Rung(RungKind.NATIVE), profile=Profile(forced=Forcing.ALWAYS))
    assert got.request is request
    assert got.extra == {}


@pytest.mark.parametrize("bounded", [True, False])
def test_an_answer_gets_limits_only_where_the_profile_wants_them(bounded: bool) -> None:
    """Rule 105: elsewhere the caller's own schema is sent, and the request is the very same."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    request = asked(output=OutputFormat(kind=OutputKind.SCHEMA, schema=schema))
    got = shaped(request, demand(None), Rung(RungKind.PLAIN), profile=Profile(bounded_schemas=bounded)).request
    assert (got is request) is not bounded
    assert got.output is not None
    assert got.output.schema == (bound_schema(schema) if bounded else schema)
    assert (got.output.schema == schema) is not bounded


def test_soft_is_auto_and_a_directive() -> None:
    """Rules 20, 21: `auto`, and one sentence at the tail that names the tool; reasoning stays as it was."""
    thinking = ReasoningConfig(mode=ReasoningMode.ENABLED, budget_tokens=1024)
    request = asked(tool_choice=named(), reasoning=thinking)
    log = AdaptationLog()
    got = shaped(request, demand(named()), Rung(RungKind.SOFT), log=log).request
    assert got.tool_choice == ToolChoice(mode=ChoiceMode.AUTO)
    assert got.messages == (*request.messages, user_turn("Use the tool `get_weather` for this: call it now."))
    assert (got.reasoning, got.tools) == (thinking, request.tools)
    assert {entry.kind for entry in log.entries} == {AdaptationKind.FORCE_SOFTENED, AdaptationKind.DIRECTIVE_ADDED}


def test_soft_keeps_the_allowed_set() -> None:
    """Rule 21: `required` among some tools becomes `auto` among the same."""
    choice = ToolChoice(mode=ChoiceMode.REQUIRED, allowed=("search",))
    got = shaped(asked(tool_choice=choice), demand(choice), Rung(RungKind.SOFT)).request
    assert got.tool_choice == ToolChoice(mode=ChoiceMode.AUTO, allowed=("search",))


def test_hard_turns_reasoning_off_for_this_request() -> None:
    """Rules 23, 24, 31: the original choice, reasoning off and what needs it gone; the caller's is untouched."""
    thinking = ReasoningConfig(mode=ReasoningMode.ENABLED, budget_tokens=1024, effort="high")
    origin = Origin(Wire.MESSAGES, {"thinking": {"type": "new"}, "metadata": {"a": 1}}, {"raw": 1})
    request = asked(tool_choice=named(), reasoning=thinking, origin=origin)
    profile = Profile(forced=Forcing.WITHOUT_REASONING, reasoning_off=True)
    got = shaped(request, demand(named()), Rung(RungKind.HARD), profile=profile).request
    assert got.tool_choice == named()
    assert got.reasoning == ReasoningConfig(mode=ReasoningMode.DISABLED)
    assert got.origin is not None
    assert got.origin.fields == {"metadata": {"a": 1}}
    assert got.origin.raw is None
    assert request.reasoning is thinking
    # What the first attempt sent stays the prefix of the second.
    assert got.messages == (*request.messages, user_turn(demand_sentence(demand(named()), WORDS, 0)))


def test_hard_in_a_providers_own_words() -> None:
    """Rule 31: where a body field turns reasoning off, that field is sent and the wire's own setting is not."""
    profile = Profile(
        forced=Forcing.WITHOUT_REASONING, reasoning_off=True, reasoning_off_fields={"enable_thinking": False}
    )
    request = asked(reasoning=ReasoningConfig(effort="high"))
    got = shaped(request, demand(named()), Rung(RungKind.HARD), profile=profile)
    assert got.extra == {"enable_thinking": False}
    assert got.request.reasoning is None


def test_a_server_without_named_choice() -> None:
    """Rule 7: the tools are reduced to the one and `required` is sent, with a note; bound prefixes keep their tools."""
    log = AdaptationLog()
    profile = Profile(named=False, forced=Forcing.ALWAYS)
    got = shaped(asked(tool_choice=named()), demand(named()), Rung(RungKind.NATIVE), profile=profile, log=log).request
    assert (got.tool_choice, got.tools) == (ANY, (WEATHER,))
    assert AdaptationKind.TOOL_DROPPED in {entry.kind for entry in log.entries}
    bound = Profile(named=False, forced=Forcing.ALWAYS, prefix_bound=True)
    kept = shaped(asked(tool_choice=named()), demand(named()), Rung(RungKind.NATIVE), profile=bound).request
    assert (kept.tool_choice, kept.tools) == (ANY, TOOLS)


@pytest.mark.parametrize("kind", [RungKind.SCHEMA, RungKind.GRAMMAR])
def test_constrained_rungs_ask_for_the_call_as_json(kind: RungKind) -> None:
    """Rules 28, 76: no tools, one schema that only the demanded call fits, one sentence that says so."""
    profile = Profile(schema_output=True, grammar_field="guided_json")
    got = shaped(asked(tool_choice=named()), demand(named()), Rung(kind), profile=profile)
    assert (got.request.tools, got.request.tool_choice, got.request.parallel_tool_calls) == ((), None, None)
    if kind is RungKind.SCHEMA:
        assert got.extra == {}
        assert got.request.output is not None
        assert got.request.output.kind is OutputKind.SCHEMA
        schema = got.request.output.schema
    else:
        assert got.request.output is None
        schema = got.extra["guided_json"]
    assert "get_weather" in str(schema)
    assert "search" not in str(schema)
    assert "- get_weather: Tells the weather." in texts(got.request)


def test_constrained_rungs_keep_tools_that_history_needs() -> None:
    """Rules 104, 134: where calls stand in the history, the tools stay and none may be called."""
    request = asked(*CALLED, user("And now?"), tool_choice=named())
    got = shaped(request, demand(named()), Rung(RungKind.SCHEMA), profile=Profile(schema_output=True)).request
    assert (got.tools, got.tool_choice) == (TOOLS, NOTHING)


@pytest.mark.parametrize("dialect", ["hermes", "anthropic"])
def test_text_rung_has_no_tools_field_and_one_grammar(dialect: str) -> None:
    """Rules 71, 72: no tools, no choice; tools, past calls and results are in the text, all in one grammar."""
    request = asked(*CALLED, user("And now?"), tool_choice=named(), parallel_tool_calls=False)
    profile = Profile(protocol=Protocol.PROMPT, prompt_dialect=dialect)
    got = shaped(request, demand(named()), Rung(RungKind.TEXT), profile=profile).request
    assert (got.tools, got.tool_choice, got.parallel_tool_calls) == ((), None, None)
    assert not any(isinstance(part, ToolCall | ToolResult) for turn in got.messages for part in turn.parts)
    assert all(turn.role is not Role.TOOL for turn in got.messages)
    written = texts(got)
    assert all(tool.name in written for tool in TOOLS)
    assert "Rain." in written
    assert ("<invoke" in written) is (dialect == "anthropic")
    assert ("<tool_call>" in written) is (dialect == "hermes")
    assert got.messages[-1] == user_turn("Use the tool `get_weather` for this: call it now.")


def test_native_rungs_mention_no_grammar() -> None:
    """Rule 71: under native protocol no text grammar is mentioned."""
    profile = Profile(protocol=Protocol.NATIVE)
    for kind in (RungKind.NATIVE, RungKind.SOFT, RungKind.HARD):
        got = shaped(asked(), demand(named()), Rung(kind), profile=profile).request
        assert "<" not in texts(got)


def test_rendered_tools_come_first_in_the_system_prompt() -> None:
    """Rule 72: the caller's own system prompt follows the tools, wherever it stands."""
    profile = Profile(protocol=Protocol.PROMPT)
    system = Message(role=Role.SYSTEM, parts=(Text(text="Be brief."),))
    outside = shaped(asked(system=system), demand(), Rung(RungKind.PLAIN), profile=profile).request
    assert outside.system is not None
    assert outside.system.parts[1:] == system.parts
    inside = shaped(asked(system, user("hi")), demand(), Rung(RungKind.PLAIN), profile=profile).request
    assert inside.system is None
    assert inside.messages[0].parts[1:] == system.parts
    assert inside.messages[1] == user("hi")


def test_prompt_without_tools_is_the_same_object() -> None:
    """Rules 71, 105: nothing to render, nothing changed."""
    request = asked(tools=())
    assert shaped(request, demand(), Rung(RungKind.PLAIN), profile=Profile(protocol=Protocol.PROMPT)).request is request


def test_unreadable_past_calls_are_shown_as_they_are() -> None:
    """Rule 72: arguments that are no object are rendered as one input, never as empty ones."""
    history = (
        user("a"),
        Message(role=Role.ASSISTANT, parts=(ToolCall(id="c1", name="search", arguments_json='{"q": "cut'),)),
        Message(role=Role.TOOL, parts=(ToolResult(call_id="c1", content=(Text(text="?"),)),)),
    )
    got = shaped(asked(*history), demand(), Rung(RungKind.PLAIN), profile=Profile(protocol=Protocol.PROMPT)).request
    assert "cut" in texts(got)


def test_a_directive_of_its_own_goes_with_the_demand() -> None:
    """Rule 17: a grounding rule's sentence stands at the tail, before the demand's own."""
    wanted = demand(named(), directive="Look it up.")
    got = shaped(asked(), wanted, Rung(RungKind.SOFT)).request
    assert [part.text for turn in got.messages[1:] for part in turn.parts if isinstance(part, Text)] == [
        "Look it up.",
        "Use the tool `get_weather` for this: call it now.",
    ]


def test_sentences_by_firmness() -> None:
    """Rules 20, 28: each step has its sentence, beyond the last the last one stays; built from the caller's choice."""
    for choice, sentences in ((named(), WORDS.call_named), (ANY, WORDS.call_any)):
        spoken = [demand_sentence(demand(choice), WORDS, firmness) for firmness in range(len(sentences) + 2)]
        assert len(set(spoken)) == len(sentences)
        assert spoken[-1] == spoken[len(sentences) - 1]
        assert all(("get_weather" in sentence) is (choice.mode is ChoiceMode.NAMED) for sentence in spoken)


def test_kept_answers() -> None:
    """Rule 25: clean text and its reasoning stay, in order; calls and blank replies do not."""
    thought, text = Reasoning(text="hm"), Text(text="It is sunny.")
    call = ToolCall(id="c", name="search", arguments_json="{}")
    assert kept_answer((thought, text, call), TOOLS) == Message(role=Role.ASSISTANT, parts=(thought, text))
    assert kept_answer((thought, Text(text=" \n")), TOOLS) is None
    assert kept_answer((Refusal(text="no"),), TOOLS) is None


@pytest.mark.parametrize(
    "written", ['{"x":[{"name": "search"', "```\n>>>search\n{}\n```", "[search(", "Action: search"]
)
def test_garbled_calls_are_not_kept(written: str) -> None:
    """Rule 25: what has a sign of a call in it, readable or not, quoted or not, is no clean text."""
    assert kept_answer((Text(text=written),), TOOLS) is None


def test_candidates() -> None:
    """Rule 28: the tools whose call would satisfy the demand."""
    assert candidates(asked(), demand(named())) == [WEATHER]
    assert candidates(asked(), demand(ANY)) == list(TOOLS)
    assert candidates(asked(), demand(ToolChoice(mode=ChoiceMode.REQUIRED, allowed=("search",)))) == [SEARCH]


arguments = st.sampled_from(["{}", '{"city":"Paris"}', '{"cut', "[]", '"x"', ""])
parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, text=st.text(max_size=8)),
    st.builds(Reasoning, text=st.text(max_size=4)),
    st.builds(
        ToolCall, id=st.sampled_from(["c1", "c2"]), name=st.sampled_from(["search", "gone"]), arguments_json=arguments
    ),
    st.builds(ToolResult, call_id=st.sampled_from(["c1", "c3"]), content=st.just((Text(text="r"),))),
    st.just(Image(url="http://x/i.png")),
)
messages = st.lists(
    st.builds(Message, role=st.sampled_from(Role), parts=st.lists(parts, max_size=3).map(tuple)), max_size=5
).map(tuple)
choices = st.sampled_from([None, ToolChoice(mode=ChoiceMode.AUTO), NOTHING, ANY, named(), named("search")])
profiles = st.builds(
    Profile,
    protocol=st.sampled_from([Protocol.NATIVE, Protocol.HYBRID, Protocol.PROMPT]),
    forced=st.sampled_from(Forcing),
    named=st.booleans(),
    reasoning_off=st.sampled_from([None, True]),
    prefix_bound=st.booleans(),
    schema_output=st.booleans(),
    grammar_field=st.sampled_from([None, "g"]),
)
tails = st.lists(st.sampled_from([user("one"), user("two")]), max_size=2)


@given(messages, choices, profiles, tails, st.sampled_from([(), TOOLS]))
@settings(deadline=None)
def test_every_rung_of_any_plan(
    history: tuple[Message, ...],
    choice: ToolChoice | None,
    profile: Profile,
    tail: list[Message],
    tools: tuple[Tool, ...],
) -> None:
    """Rules 71, 105, 134: each rung shapes any history; but for text rungs only the tail grows; it ends on the tail."""
    if choice is not None and choice.mode in (ChoiceMode.REQUIRED, ChoiceMode.NAMED):
        tools = TOOLS
    if not tools:
        choice = None  # no demand is made of nothing (rule 4)
    request = Request(model="m", messages=history, tools=tools, tool_choice=choice)
    plan: Plan = make_plan(request, demand(choice), profile, Controls())
    for rung in plan.rungs:
        log = AdaptationLog()
        got = shape(request, plan, rung, tail, profile=profile, wording=WORDS, log=log).request
        again = shape(request, plan, rung, tail, profile=profile, wording=WORDS, log=AdaptationLog()).request
        assert got == again
        rendered = rung.kind is RungKind.TEXT or (plan.protocol is Protocol.PROMPT and not rung.constrains)
        if rendered:
            assert got.tools == ()
            assert got.tool_choice is None
        else:
            kept = got.messages[: len(history)]
            assert all(one is other for one, other in zip(kept, history, strict=True))
            assert got.system is request.system
        if tail:
            assert list(got.messages[-len(tail) :]) == tail
        if rung.kind is RungKind.PLAIN and not tail and not rendered:
            assert got is request
