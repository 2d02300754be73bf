"""The verdict table: what a reply is, for every protocol and demand."""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationKind
from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.parts import CallKind, Part, Reasoning, Refusal, Text, ToolCall, ToolResult, Unknown
from mustcall.core.reply import FinishReason, Reply, Usage
from mustcall.core.tools import ChoiceMode, ProviderTool, Tool, ToolChoice
from mustcall.core.verdict import Verdict
from mustcall.policy.facts.controls import Controls, OtherTool, ToolControls
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.reply.judge import Case, is_blank
from mustcall.policy.request.plan import Rung, RungKind
from support.judging import (
    BAD_TEXT_CALL,
    CUT_TEXT_CALL,
    GONE_TEXT_CALL,
    GOOD,
    OTHER,
    TEXT_CALL,
    case_of,
    kinds,
    verdict_on,
)
from support.values import ANY, NOTHING, TOOLS, WEATHER, asked, demand, named, replied, user

# --- healthy replies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        (replied(Text(text="It is sunny.")), Verdict.ANSWERED),
        (replied(Reasoning(text="hm"), Text(text="It is sunny.")), Verdict.ANSWERED),
        (replied(Text(text="It is su"), reported="length"), Verdict.ANSWERED),
        (replied(Text(text="Look: `<tool_call>`")), Verdict.ANSWERED),
        (replied(Unknown(wire=Wire.CHAT, type="new", value={})), Verdict.ANSWERED),
        (replied(GOOD, reported="tool_calls"), Verdict.CALLED),
        (replied(Text(text="I look."), GOOD, OTHER, reported="tool_use"), Verdict.CALLED),
        (replied(GOOD, reported="completed"), Verdict.CALLED),
        (replied(Refusal(text="No."), reported="stop"), Verdict.REFUSED),
        (replied(Text(text="No."), reported="content_filter"), Verdict.FILTERED),
    ],
)
@pytest.mark.parametrize("protocol", [Protocol.NATIVE, Protocol.HYBRID, Protocol.PROMPT])
def test_healthy_replies_are_delivered_as_they_are(reply: Reply, verdict: Verdict, protocol: Protocol) -> None:
    """Rules 35, 37, 112, 122: the very object comes out, with nothing to report."""
    judged = verdict_on(reply, case_of(protocol=protocol))
    assert judged.verdict is verdict
    assert judged.reply is reply
    assert judged.notes == ()


@pytest.mark.parametrize("reported", ["stop", "function_call", "end_turn", None])
def test_finish_that_denies_its_calls_is_corrected(reported: str | None) -> None:
    """Rule 36: `stop` with calls, or no word at all, is delivered as calls, and that is reported."""
    judged = verdict_on(replied(GOOD, reported=reported))
    assert (judged.verdict, judged.reply.finish, judged.reply.reported_finish) == (
        Verdict.CALLED,
        FinishReason.TOOL_CALLS,
        None,
    )
    assert kinds(judged) == [AdaptationKind.FINISH_CORRECTED]


def test_unknown_finish_is_degraded() -> None:
    """Rule 39: usable text with a finish nobody knows is accepted and flagged."""
    judged = verdict_on(replied(Text(text="Yes."), reported="eos_reached"))
    assert (judged.verdict, kinds(judged)) == (Verdict.ANSWERED, [AdaptationKind.REPORTED])


def test_announcements_are_only_reported() -> None:
    """Rule 133: without a force an announced call is an answer with a note; with one it is a missed force."""
    reply = replied(Text(text="I'll call get_weather now."))
    judged = verdict_on(reply)
    assert (judged.verdict, judged.reply is reply) == (Verdict.ANNOUNCED_ONLY, True)
    assert kinds(judged) == [AdaptationKind.REPORTED]
    assert verdict_on(reply, case_of(demand=demand(ANY))).verdict is Verdict.FORCE_MISSED


@pytest.mark.parametrize("parts", [(), (Text(text=" "),), (Reasoning(text="hm"),)])
def test_nothing_said_up_to_the_limit(parts: tuple[Part, ...]) -> None:
    """Rules 26, 40: a limit that left no room for an answer is a truncated reply; no call of it was cut."""
    judged = verdict_on(replied(*parts, reported="length"))
    assert (judged.verdict, judged.cut_call) == (Verdict.TRUNCATED, False)


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ((), Verdict.EMPTY),
        ((Text(text=" \n"),), Verdict.EMPTY),
        ((Reasoning(text="hm"),), Verdict.THINKING_ONLY),
        ((Reasoning(text="hm"), Text(text="")), Verdict.THINKING_ONLY),
    ],
)
@pytest.mark.parametrize("choice", [None, ANY])
def test_nothing_said(parts: tuple[Part, ...], verdict: Verdict, choice: ToolChoice | None) -> None:
    """Rule 38: no or blank text is empty, reasoning alone is thinking only, forced or not."""
    assert verdict_on(replied(*parts), case_of(demand=demand(choice))).verdict is verdict
    assert is_blank(parts)


# --- demands ---------------------------------------------------------------------------------------------------------


def test_a_missed_force_keeps_its_clean_text() -> None:
    """Rules 25, 32: an answer where a call was demanded is a missed force; its text may stay in context."""
    judged = verdict_on(replied(Text(text="It is sunny.")), case_of(demand=demand(named())))
    assert (judged.verdict, judged.keeps) == (Verdict.FORCE_MISSED, True)


def test_a_cut_answer_is_no_missed_force() -> None:
    """Rule 26: a truncated reply does not trigger the retry of a force, and no call was cut."""
    judged = verdict_on(replied(Text(text="It is"), reported="length"), case_of(demand=demand(named())))
    assert (judged.verdict, judged.cut_call) == (Verdict.TRUNCATED, False)


@pytest.mark.parametrize(
    ("policy", "parts", "verdict", "delivered"),
    [
        (OtherTool.RETRY, (OTHER,), Verdict.FORCE_MISSED, ["search"]),
        (OtherTool.RETRY, (OTHER, GOOD), Verdict.CALLED, ["get_weather"]),
        (OtherTool.ACCEPT, (OTHER,), Verdict.CALLED, ["search"]),
    ],
)
def test_other_tools_than_the_one_demanded(
    policy: OtherTool, parts: tuple[Part, ...], verdict: Verdict, delivered: list[str]
) -> None:
    """Rule 29: a named demand answered by other tools alone is unmet, or accepted where the setting says so."""
    case = case_of(demand=demand(named()), controls=Controls(other_tool=policy))
    judged = verdict_on(replied(*parts, reported="tool_calls"), case)
    assert judged.verdict is verdict
    assert [call.name for call in judged.reply.calls] == delivered


def test_other_tools_one_at_a_time_and_each_by_its_own_id() -> None:
    """Rules 29, 67: what is kept of other tools' calls is one where parallel calls are off, and no id stands twice."""
    judged = verdict_on(replied(OTHER, OTHER, reported="tool_calls"), case_of(demand=demand(named())))
    assert len({call.id for call in judged.reply.calls}) == 2
    case = case_of(demand=demand(named()), request=asked(parallel_tool_calls=False))
    assert len(verdict_on(replied(OTHER, OTHER, reported="tool_calls"), case).reply.calls) == 1


def test_calls_nobody_allowed_are_not_delivered() -> None:
    """Rule 125: `none` is enforced; the text stays, the call is dropped and reported."""
    judged = verdict_on(replied(Text(text="Sunny."), GOOD, reported="tool_calls"), case_of(demand=demand(NOTHING)))
    assert (judged.verdict, judged.reply.calls) == (Verdict.ANSWERED, ())
    assert judged.reply.finish is FinishReason.STOP
    assert AdaptationKind.CALL_DROPPED in kinds(judged)
    assert verdict_on(replied(GOOD, reported="tool_calls"), case_of(demand=demand(NOTHING))).verdict is Verdict.EMPTY


def test_text_calls_nobody_allowed_are_stripped() -> None:
    """Rule 125: under `none` markup is neither promoted nor shown."""
    judged = verdict_on(replied(Text(text=f"Sunny. {TEXT_CALL}")), case_of(demand=demand(NOTHING)))
    assert judged.verdict is Verdict.ANSWERED
    assert judged.reply.parts[0] == Text(text="Sunny. ")
    assert "tool_call" not in str(judged.reply.parts)


@pytest.mark.parametrize(
    ("text", "verdict", "kept"),
    [
        (f'{{"result": 5}}\n\nThat is it. {TEXT_CALL} and then the', Verdict.ANSWERED, "and then the"),
        (f'{{"result": 5}} {TEXT_CALL}', Verdict.ANSWERED, '{"result": 5}'),
        (f'{{"result": {TEXT_CALL}', Verdict.ANSWERED, '{"result":'),
        (f'{TEXT_CALL}\n{{"result": 5}} is the', Verdict.ANSWERED, "is the"),
        (f'{TEXT_CALL}\n{{"result": 5}}', Verdict.ANSWERED, '{"result": 5}'),
        (f"{TEXT_CALL}\n{{braces}} are the", Verdict.ANSWERED, "are the"),
        (f'{TEXT_CALL}\n{{"name": "get_wea', Verdict.EMPTY, ""),
        (f"{TEXT_CALL}\n{TEXT_CALL}", Verdict.EMPTY, ""),
    ],
)
def test_a_cut_answer_beside_a_text_call_stays_an_answer(text: str, verdict: Verdict, kept: str) -> None:
    """Rule 125: under `none` only a reply that is calls and nothing else is asked for again when it was cut."""
    judged = verdict_on(replied(Text(text=text), reported="length"), case_of(demand=demand(NOTHING)))
    assert (judged.verdict, judged.reply.finish) == (verdict, FinishReason.LENGTH)
    assert kept in str(judged.reply.parts)
    assert "tool_call>" not in str(judged.reply.parts)


def test_allowed_sets_are_enforced() -> None:
    """Rule 29: `auto` among some tools: another one was not on offer."""
    choice = ToolChoice(mode=ChoiceMode.AUTO, allowed=("search",))
    assert verdict_on(replied(GOOD, reported="tool_calls"), case_of(demand=demand(choice))).verdict is (
        Verdict.UNKNOWN_TOOL
    )


def test_one_call_at_a_time() -> None:
    """Rule 126: the first call is delivered, the rest dropped and reported."""
    case = case_of(request=asked(parallel_tool_calls=False))
    judged = verdict_on(replied(GOOD, OTHER, reported="tool_calls"), case)
    assert (judged.verdict, judged.reply.calls) == (Verdict.CALLED, (GOOD,))
    assert kinds(judged) == [AdaptationKind.CALL_DROPPED]


BASH = ProviderTool(type="bash_20250124", value={"type": "bash_20250124", "name": "bash"})
RUN = ToolCall(id="c9", name="bash", arguments_json='{"command":"ls"}')


def test_a_tool_of_the_provider_counts_as_any_other() -> None:
    """Rules 126, 143: of its calls one is delivered where one is wanted, and no two have one id."""
    one = case_of(request=asked(tools=(*TOOLS, BASH), parallel_tool_calls=False))
    for calls in ((RUN, RUN), (RUN, GOOD), (GOOD, RUN)):
        judged = verdict_on(replied(*calls, reported="tool_calls"), one)
        assert (judged.verdict, judged.reply.calls) == (Verdict.CALLED, calls[:1])
        assert kinds(judged) == [AdaptationKind.CALL_DROPPED]
    both = verdict_on(replied(RUN, RUN, reported="tool_calls"), case_of(request=asked(tools=(*TOOLS, BASH))))
    assert len({call.id for call in both.reply.calls}) == 2


def test_a_tool_of_the_provider_meets_no_other_demand() -> None:
    """Rule 29: the call of another tool than the one that was demanded is kept aside, whoever defined that tool."""
    case = case_of(demand=demand(named()), request=asked(tools=(*TOOLS, BASH)))
    judged = verdict_on(replied(RUN, reported="tool_calls"), case)
    other = verdict_on(replied(OTHER, reported="tool_calls"), case)
    assert judged.verdict is other.verdict is not Verdict.CALLED
    assert verdict_on(replied(GOOD, RUN, reported="tool_calls"), case).reply.calls == (GOOD,)


# --- calls that do not fit -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "verdict"),
    [
        (ToolCall(id="c", name="gone", arguments_json="{}"), Verdict.UNKNOWN_TOOL),
        (ToolCall(id="c", name="get_weather", arguments_json="{}"), Verdict.BAD_ARGUMENTS),
        (ToolCall(id="c", name="get_weather", arguments_json='{"city": [1]}'), Verdict.BAD_ARGUMENTS),
        (ToolCall(id="c", name="get_weather", arguments_json="Paris"), Verdict.BAD_ARGUMENTS),
        (ToolCall(id="c", name="get_weather", arguments_json=""), Verdict.BAD_ARGUMENTS),
        (ToolCall(id="c", name="get_weather", arguments_json='{"city": "Par'), Verdict.TRUNCATED),
        (ToolCall(id="c", name="get_weather", arguments_json='{"city": "Paris", "days": 3'), Verdict.TRUNCATED),
    ],
)
@pytest.mark.parametrize("reported", ["tool_calls", "stop"])
def test_calls_that_do_not_fit(call: ToolCall, verdict: Verdict, reported: str) -> None:
    """Rules 40, 90, 107, 123: one call that does not fit spoils the reply, whatever stands beside it."""
    judged = verdict_on(replied(GOOD, call, reported=reported))
    assert judged.verdict is verdict
    assert judged.cut_call is (verdict is Verdict.TRUNCATED)
    if verdict is Verdict.BAD_ARGUMENTS:
        assert judged.problem.startswith("get_weather: ")


def test_missing_brackets_are_a_salvage() -> None:
    """Rules 123, 141: they are no call, but may become one; where that is switched off the reply is truncated."""
    call = ToolCall(id="c", name="get_weather", arguments_json='{"city": "Paris"')
    reply = replied(GOOD, call, reported="tool_calls")
    judged = verdict_on(reply)
    assert (judged.verdict, judged.reply) == (Verdict.BAD_ARGUMENTS, reply)
    assert judged.salvage is not None
    assert [made.arguments_json for made in judged.salvage.calls] == [GOOD.arguments_json, '{"city":"Paris"}']
    assert [str(note.kind) + ":" + note.subject for note in judged.notes] == [
        "arguments_salvaged:get_weather:brackets_closed"
    ]
    off = verdict_on(reply, case_of(controls=Controls(salvage_arguments=False)))
    assert (off.verdict, off.salvage, off.cut_call) == (Verdict.TRUNCATED, None, True)
    assert verdict_on(replied(call, reported="length")).salvage is None


def test_one_call_beyond_repair_spoils_a_salvage() -> None:
    """Rule 141: calls are salvaged together or not at all."""
    cut = ToolCall(id="c", name="get_weather", arguments_json='{"city": "Paris"')
    beyond = ToolCall(id="d", name="get_weather", arguments_json="{}")
    judged = verdict_on(replied(cut, beyond, reported="tool_calls"))
    assert (judged.verdict, judged.salvage) == (Verdict.BAD_ARGUMENTS, None)


def test_a_call_in_a_cut_reply_is_cut() -> None:
    """Rules 40, 123: length, or every token used: even a call that parses is not trusted."""
    whole = replied(GOOD, reported="length")
    assert verdict_on(whole).verdict is Verdict.TRUNCATED
    spent = replied(GOOD, reported="tool_calls", usage=Usage(input_tokens=5, output_tokens=64))
    assert verdict_on(spent, case_of(sent_limit=64)).verdict is Verdict.TRUNCATED
    assert verdict_on(spent, case_of(sent_limit=65)).verdict is Verdict.CALLED
    assert verdict_on(spent, case_of()).verdict is Verdict.CALLED


@pytest.mark.parametrize(
    ("arguments", "verdict"), [('{"input": "abc', Verdict.TRUNCATED), ('{"inputs": 1}', Verdict.BAD_ARGUMENTS)]
)
def test_a_custom_call_that_cannot_be_read(arguments: str, verdict: Verdict) -> None:
    """Rule 123: the function that stood in for a custom tool was cut, or filled with something else."""
    request = asked(tools=(Tool(name="patch", kind=CallKind.CUSTOM),))
    call = ToolCall(id="c", name="patch", arguments_json=arguments)
    assert verdict_on(replied(call, reported="tool_calls"), case_of(request=request)).verdict is verdict


def test_what_can_be_mended_without_loss_is() -> None:
    """Rules 67, 106, 131: names and values are mended where nothing is lost, ids made unique, each reported."""
    history = (
        user("a"),
        Message(role=Role.ASSISTANT, parts=(GOOD,)),
        Message(role=Role.TOOL, parts=(ToolResult(call_id="c1", content=(Text(text="Rain."),)),)),
    )
    call = ToolCall(id="c1", name="Get-Weather", arguments_json='{"city":"Rome","days":"3"}')
    judged = verdict_on(replied(call, reported="tool_calls"), case_of(request=asked(*history)))
    assert judged.verdict is Verdict.CALLED
    (made,) = judged.reply.calls
    assert (made.name, made.id) == ("get_weather", "call_t_0")
    assert msgspec.json.decode(made.arguments_json) == {"city": "Rome", "days": 3}
    assert set(kinds(judged)) == {
        AdaptationKind.ARGUMENTS_COERCED,
        AdaptationKind.NAME_MAPPED,
        AdaptationKind.ID_MAPPED,
    }


def test_double_ids_become_unique() -> None:
    """Rule 67: also within one reply."""
    judged = verdict_on(replied(GOOD, OTHER.evolve(id="c1"), reported="tool_calls"))
    assert [call.id for call in judged.reply.calls] == ["c1", "call_t_0"]


def test_tools_the_provider_defined_pass() -> None:
    """Rule 35: a client-run tool known only by its type has no schema here."""
    bash = ProviderTool(type="bash_20250124", value={"type": "bash_20250124", "name": "bash"})
    call = ToolCall(id="c", name="bash", arguments_json='{"command":"ls"}')
    assert verdict_on(replied(call, reported="tool_use"), case_of(request=asked(tools=(bash,)))).verdict is (
        Verdict.CALLED
    )


def test_loops_are_advised_and_blocked() -> None:
    """Rule 108: three times in a row is reported; the tool's setting can block it."""
    history: list[Message] = [user("a")]
    for number in range(3):
        history += [
            Message(role=Role.ASSISTANT, parts=(GOOD.evolve(id=f"h{number}"),)),
            Message(role=Role.TOOL, parts=(ToolResult(call_id=f"h{number}", content=(Text(text="?"),)),)),
        ]
    request = asked(*history)
    reply = replied(GOOD, reported="tool_calls")
    advised = verdict_on(reply, case_of(request=request))
    assert (advised.verdict, kinds(advised)) == (Verdict.CALLED, [AdaptationKind.REPORTED])
    blocking = Controls(tools={"get_weather": ToolControls(loop_block=3)})
    blocked = verdict_on(reply, case_of(request=request, controls=blocking))
    assert (blocked.verdict, blocked.blocks) == (Verdict.LOOPING, True)


# --- any reply -------------------------------------------------------------------------------------------------------

arguments = st.sampled_from(
    ['{"city":"Paris"}', "{}", "", '{"city":', "[1]", "null", '"{}"', '{"city":"a","days":"2"}']
)
texts = st.sampled_from(
    [
        "",
        " ",
        "Sunny.",
        TEXT_CALL,
        f"a {TEXT_CALL} b",
        BAD_TEXT_CALL,
        CUT_TEXT_CALL,
        GONE_TEXT_CALL,
        "<think>hm</think>x",
        "</think>x",
        '{"name":"search","arguments":{}}',
    ]
)
parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, text=texts),
    st.builds(Reasoning, text=st.sampled_from(["", "hm"])),
    st.builds(
        ToolCall,
        id=st.sampled_from(["c1", "c1", ""]),
        name=st.sampled_from(["get_weather", "search", "Search", "gone", ""]),
        arguments_json=arguments,
        kind=st.sampled_from(CallKind),
    ),
    st.just(Refusal(text="No.")),
)
reported_words = st.sampled_from(["stop", "tool_calls", "length", "content_filter", "odd", None, "completed"])


def make_reply(made: list[Part], word: str | None) -> Reply:
    """Make a reply of drawn parts."""
    return replied(*made, reported=word)


replies = st.builds(make_reply, st.lists(parts, max_size=4), reported_words)
cases = st.builds(
    case_of,
    demand=st.sampled_from([demand(), demand(ANY), demand(named()), demand(NOTHING)]),
    protocol=st.sampled_from([Protocol.NATIVE, Protocol.HYBRID, Protocol.PROMPT]),
    rung=st.sampled_from([Rung(kind) for kind in RungKind]),
    controls=st.builds(Controls, broad=st.booleans(), other_tool=st.sampled_from(OtherTool)),
    request=st.sampled_from([asked(), asked(parallel_tool_calls=False), asked(tools=())]),
    sent_limit=st.sampled_from([None, 10]),
)


CALL_THEN_TEXT: list[Part] = [
    ToolCall(id="c1", name="get_weather", arguments_json='{"city":"Paris"}'),
    Text(text="Sunny."),
]


@given(replies, cases)
@example(make_reply(CALL_THEN_TEXT, "length"), case_of(demand=demand(ANY), protocol=Protocol.NATIVE))
@settings(max_examples=400, deadline=None)
def test_any_reply_in_any_case(reply: Reply, case: Case) -> None:
    """Contract, rule 34: never raises, the same twice; a call is offered, valid, allowed, unique and whole."""
    judged = verdict_on(reply, case)
    assert judged == verdict_on(reply, case)
    if judged.verdict is not Verdict.CALLED:
        if judged.verdict is Verdict.ANSWERED:
            assert judged.reply.calls == ()
        return
    calls = judged.reply.calls
    offered = {tool.name for tool in TOOLS} if case.request.tools else set[str]()
    assert {call.name for call in calls} <= offered
    assert len({call.id for call in calls}) == len(calls)
    assert judged.reply.finish is FinishReason.TOOL_CALLS
    assert not case.demand.forbids
    if reply.finish is FinishReason.LENGTH:  # what was cut is text behind a demanded call, which was settled (rule 137)
        assert case.demand.forced
        assert isinstance(reply.parts[-1], Text)
    if case.request.parallel_tool_calls is False:
        assert len(calls) == 1
    for call in calls:
        given_arguments: dict[str, Any] = msgspec.json.decode(call.arguments_json, type=dict[str, Any])
        if call.name == WEATHER.name:
            assert isinstance(given_arguments["city"], str)
    if case.demand.choice == named() and case.controls.other_tool is OtherTool.RETRY:
        assert {call.name for call in calls} == {"get_weather"}
