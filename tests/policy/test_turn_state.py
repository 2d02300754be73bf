"""The turn_state of a turn: counters, tail and rungs; whatever comes back, it ends within the ceiling."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import ErrorInfo
from mustcall.core.message import Message, Role
from mustcall.core.parts import Part, Reasoning, Text
from mustcall.core.request import OutputFormat, OutputKind, ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import ChoiceMode, ToolChoice
from mustcall.core.verdict import Verdict
from mustcall.policy.facts.controls import Controls, Limits, OnUnmet
from mustcall.policy.facts.profile import Forcing, Profile, Protocol, ReasoningHabit
from mustcall.policy.facts.wording import Wording
from mustcall.policy.history.names import NameMap
from mustcall.policy.reply.judge import Judgement
from mustcall.policy.request.attempt_request import user_turn
from mustcall.policy.request.plan import RungKind, make_plan
from mustcall.policy.turn.remedy import Remedy
from mustcall.policy.turn.state import TurnState
from support.values import ANY, TOOLS, asked, demand, named, replied, user

WORDS = Wording()
AGAIN = (Remedy.RESAMPLE, Remedy.REMIND, Remedy.CLIMB)
CLAUDE = Profile(protocol=Protocol.NATIVE, forced=Forcing.WITHOUT_REASONING, reasoning_off=True)
THINKING = ReasoningConfig(mode=ReasoningMode.ENABLED, budget_tokens=1024)


def turn_state_of(
    request: Request | None = None,
    choice: ToolChoice | None = None,
    *,
    profile: Profile | None = None,
    controls: Controls | None = None,
) -> TurnState:
    """The turn_state of a small turn."""
    request = request or asked(tool_choice=choice)
    profile, controls = profile or Profile(), controls or Controls()
    plan = make_plan(request, demand(choice), profile, controls)
    return TurnState(
        request,
        request,
        plan,
        profile=profile,
        controls=controls,
        wording=WORDS,
        issuer="up",
        names=NameMap.of(request, profile),
        log=AdaptationLog(),
    )


def judged(verdict: Verdict, *parts: Part, **fields: Any) -> Judgement:
    """A judgement of a reply with these parts."""
    return Judgement(verdict=verdict, reply=replied(*parts), **fields)


def settle(turn_state: TurnState, judgement: Judgement) -> Remedy:
    """Settle a verdict of which nothing was released, and count the call that follows."""
    remedy = turn_state.settle(judgement, released=False, spoke=False).remedy
    if remedy in AGAIN:
        turn_state.count_call()
    return remedy


def tail(turn_state: TurnState, request: Request) -> list[Message]:
    """What the next request has behind the caller's own messages."""
    sent = turn_state.shaped().request.messages
    assert sent[: len(request.messages)] == request.messages
    return list(sent[len(request.messages) :])


def test_a_plain_turn_sends_the_callers_request() -> None:
    """Rules 30, 105: the very object, and the same one as long as nothing changes."""
    request = asked()
    turn_state = turn_state_of(request)
    assert turn_state.shaped().request is request
    assert turn_state.shaped() is turn_state.shaped()


def test_claude_with_thinking_and_a_named_tool() -> None:
    """Rules 20, 23, 24, 25: soft, then hard with the clean answer kept in context; the caller's is untouched."""
    request = asked(tool_choice=named(), reasoning=THINKING)
    turn_state = turn_state_of(request, named(), profile=CLAUDE)
    directive = user_turn("Use the tool `get_weather` for this: call it now.")
    assert turn_state.rung.kind is RungKind.SOFT
    assert tail(turn_state, request) == [directive]
    thought, answer = Reasoning(text="hm"), Text(text="It is sunny.")
    assert settle(turn_state, judged(Verdict.FORCE_MISSED, thought, answer, keeps=True)) is Remedy.CLIMB
    assert turn_state.rung.kind is RungKind.HARD
    sent = turn_state.shaped().request
    assert (sent.tool_choice, sent.reasoning) == (named(), ReasoningConfig(mode=ReasoningMode.DISABLED))
    assert tail(turn_state, request) == [
        directive,
        Message(role=Role.ASSISTANT, parts=(thought, answer)),
        user_turn("The tool `get_weather` has not been called yet. Call it now, before anything else."),
    ]
    assert request == asked(tool_choice=named(), reasoning=THINKING)
    assert settle(turn_state, judged(Verdict.FORCE_MISSED, answer, keeps=True)) is Remedy.FAIL
    assert turn_state.extra == 1


def test_a_discarded_reply_is_not_kept() -> None:
    """Rules 45, 54: markup climbs, too, and nothing of it is in the next request."""
    request = asked(tool_choice=named(), reasoning=THINKING)
    turn_state = turn_state_of(request, named(), profile=CLAUDE)
    assert settle(turn_state, judged(Verdict.TEXT_CALL, Text(text="<tool_call>"))) is Remedy.CLIMB
    assert "<tool_call>" not in str(turn_state.shaped().request.messages)
    assert [turn.role for turn in tail(turn_state, request)] == [Role.USER, Role.USER]


def test_reminders_grow_firmer_then_schema() -> None:
    """Rule 28: up to three reminders with `auto`, each firmer, then the call as a schema answer."""
    profile = Profile(forced=Forcing.NEVER, reasoning=ReasoningHabit.ALWAYS, schema_output=True)
    request = asked(tool_choice=named())
    turn_state = turn_state_of(request, named(), profile=profile)
    for firmness in range(1, 4):
        assert settle(turn_state, judged(Verdict.FORCE_MISSED, Text(text=f"a{firmness}"), keeps=True)) is Remedy.CLIMB
        said = tail(turn_state, request)
        assert said[-1] == user_turn(WORDS.call_named[firmness].format(tool="get_weather"))
        assert len(said) == 1 + 2 * firmness
        assert turn_state.shaped().request.tool_choice == ToolChoice(mode=ChoiceMode.AUTO)
    assert settle(turn_state, judged(Verdict.FORCE_MISSED, Text(text="a4"), keeps=True)) is Remedy.CLIMB
    assert turn_state.rung.kind is RungKind.SCHEMA
    assert turn_state.shaped().request.tools == ()
    assert len(tail(turn_state, request)) == 1  # another form of asking starts afresh


def test_text_calls_resample_the_same_bytes_first() -> None:
    """Rules 46, 47: the same object again, then a reminder at the tail, then the error; two retries at most."""
    request = asked()
    turn_state = turn_state_of(request, profile=Profile(protocol=Protocol.NATIVE))
    first = turn_state.shaped()
    bad = judged(Verdict.TEXT_CALL, Text(text="<tool_call>x"))
    assert settle(turn_state, bad) is Remedy.RESAMPLE
    assert turn_state.shaped() is first
    assert settle(turn_state, bad) is Remedy.REMIND
    assert tail(turn_state, request) == [user_turn(WORDS.text_call)]
    assert settle(turn_state, bad) is Remedy.FAIL
    assert turn_state.extra == 2


def test_greedy_sampling_is_not_sampled_again() -> None:
    """Rule 46: at temperature 0 the same bytes give the same reply, so the reminder comes at once."""
    turn_state = turn_state_of(asked(temperature=0.0), profile=Profile(protocol=Protocol.NATIVE))
    assert settle(turn_state, judged(Verdict.TEXT_CALL)) is Remedy.REMIND
    warm = turn_state_of(asked(temperature=0.7), profile=Profile(protocol=Protocol.NATIVE))
    assert settle(warm, judged(Verdict.TEXT_CALL)) is Remedy.RESAMPLE


@pytest.mark.parametrize(
    ("verdict", "fields", "sentence"),
    [
        (Verdict.BAD_ARGUMENTS, {"problem": "f: a is missing"}, WORDS.bad_arguments.format(problem="f: a is missing")),
        (Verdict.BAD_ANSWER, {"problem": "a is missing"}, WORDS.bad_answer.format(problem="a is missing")),
        (Verdict.TRUNCATED, {"cut_call": True}, WORDS.truncated),
        (Verdict.EMPTY, {}, WORDS.empty),
        (Verdict.THINKING_ONLY, {}, WORDS.thinking_only),
    ],
)
def test_each_reminder_says_what_is_wrong(verdict: Verdict, fields: dict[str, Any], sentence: str) -> None:
    """Rules 38, 90, 110, 123: one neutral line at the tail; it replaces the one before it."""
    request = asked()
    turn_state = turn_state_of(request)
    assert settle(turn_state, judged(verdict, **fields)) is Remedy.REMIND
    assert tail(turn_state, request) == [user_turn(sentence)]
    if verdict not in (Verdict.TRUNCATED, Verdict.BAD_ARGUMENTS):  # one retry (rules 141, 26)
        assert settle(turn_state, judged(verdict, **fields)) is Remedy.REMIND
        assert tail(turn_state, request) == [user_turn(sentence)]


@pytest.mark.parametrize(("schema_output", "again"), [(False, 1), (True, 2)])
def test_an_answer_asked_for_in_words_is_asked_for_once_more(schema_output: bool, again: int) -> None:
    """Rules 84, 91: an answer in words gets one correction; a schema that the upstream takes, the 2 of rule 91."""
    output = OutputFormat(kind=OutputKind.SCHEMA, schema={"type": "object"})
    turn_state = turn_state_of(asked(tools=(), output=output), profile=Profile(schema_output=schema_output))
    bad = judged(Verdict.BAD_ANSWER, Text(text="no"), problem="a is missing")
    assert turn_state.shaped().request.output == (output if schema_output else None)
    assert [settle(turn_state, bad) for _ in range(again + 1)] == [Remedy.REMIND] * again + [Remedy.FAIL]


def test_format_corrections_where_text_is_the_channel() -> None:
    """Rule 69: under prompt the hint is about the form, and does not quote the bad text."""
    turn_state = turn_state_of(profile=Profile(protocol=Protocol.PROMPT))
    assert turn_state.reads_text
    assert settle(turn_state, judged(Verdict.TEXT_CALL, Text(text="BAD"))) is Remedy.REMIND
    assert turn_state.shaped().request.messages[-1] == user_turn(WORDS.format_correction)
    assert "BAD" not in str(turn_state.shaped().request)


def test_what_is_looked_for() -> None:
    """Rules 55, 64, 70: loose forms only where text is the channel; constrained output is looked through as well."""
    prompt = turn_state_of(profile=Profile(protocol=Protocol.PROMPT)).lookout()
    hybrid = turn_state_of().lookout()
    assert prompt is not None
    assert hybrid is not None
    assert (prompt.loose, hybrid.loose) == (True, False)
    assert (prompt.tools, hybrid.tools) == (TOOLS, TOOLS)
    native = turn_state_of(asked(tools=()), profile=Profile(protocol=Protocol.NATIVE))
    assert native.lookout() is None
    constrained = Profile(forced=Forcing.ALWAYS, schema_output=True, constrain_first=True)
    looked = turn_state_of(choice=named(), profile=constrained).lookout()
    assert looked is not None
    assert not looked.loose


def test_the_case_is_the_callers_request() -> None:
    """Rules 21, 34: a reply is judged by the caller's intent; only the token limit is the one that was sent."""
    request = asked(tool_choice=named(), max_tokens=77, reasoning=THINKING)
    case = turn_state_of(request, named(), profile=CLAUDE).case("t", 5, 77)
    assert case.request is request
    assert case.demand.choice == named()
    assert (case.sent_limit, case.prompt_bound, case.token) == (77, 5, "t")


def refusal(message: str, status: int = 400) -> ErrorInfo:
    """An upstream's refusal."""
    return ErrorInfo(message=message, status=status, code="invalid_request_error")


FORCE_AND_THINKING = "Thinking may not be enabled when tool_choice forces tool use."


def test_a_refused_force_goes_soft_and_is_learnt() -> None:
    """Rule 33: a 400 on force with reasoning switches to the soft plan once, and teaches the fact."""
    request = asked(tool_choice=named(), reasoning=THINKING)
    turn_state = turn_state_of(request, named(), profile=Profile(forced=Forcing.ALWAYS))
    assert turn_state.rung.kind is RungKind.NATIVE
    again, lesson = turn_state.refused(refusal(FORCE_AND_THINKING))
    assert again
    assert lesson is not None
    assert lesson.field == "forced"
    assert turn_state.rung.kind is RungKind.SOFT
    assert turn_state.shaped().request.tool_choice == ToolChoice(mode=ChoiceMode.AUTO)
    assert turn_state.refused(refusal(FORCE_AND_THINKING)) == (False, None)


def test_a_refusal_that_contradicts_what_is_known_of_reasoning() -> None:
    """Rule 33: a model that is said never to reason refuses the pair: what is learnt must not force it again."""
    believed = Profile(forced=Forcing.ALWAYS, reasoning=ReasoningHabit.NEVER)
    turn_state = turn_state_of(choice=named(), profile=believed)
    again, lesson = turn_state.refused(refusal(FORCE_AND_THINKING))
    assert again
    assert lesson is not None
    assert (lesson.field, lesson.value) == ("forced", Forcing.NEVER)
    learnt = msgspec.structs.replace(believed, forced=Forcing.NEVER)
    assert turn_state_of(choice=named(), profile=learnt).rung.kind is RungKind.SOFT


def test_a_refused_prefill_is_resent_once() -> None:
    """Rule 100: the trailing assistant run is removed, once."""
    request = asked(user("a"), Message(role=Role.ASSISTANT, parts=(Text(text="b"),)))
    turn_state = turn_state_of(request, profile=Profile(prefill=True))
    refused = refusal(
        "This model does not support assistant message prefill. The conversation must end with a user message."
    )
    assert turn_state.refused(refused)[0]
    assert turn_state.shaped().request.messages == (user("a"),)
    assert not turn_state.refused(refused)[0]


def test_refused_parallel_setting_is_enforced_here() -> None:
    """Rule 126: the field is left out and the demand kept by the judge."""
    request = asked(parallel_tool_calls=False)
    turn_state = turn_state_of(request)
    again, _ = turn_state.refused(
        refusal("Unsupported parameter: 'parallel_tool_calls' is not supported with this model.")
    )
    assert again
    assert turn_state.shaped().request.parallel_tool_calls is None
    assert turn_state.case("t", 0).request.parallel_tool_calls is False


@pytest.mark.parametrize(
    ("words", "learns"),
    [("response_format is not supported", True), ("Invalid schema for response_format 'answer'", False)],
)
def test_a_refusal_of_what_one_request_holds_teaches_nothing(words: str, learns: bool) -> None:
    """Rule 111: the request goes out otherwise both times; only what holds for every request is learnt."""
    output = OutputFormat(kind=OutputKind.SCHEMA, schema={"type": "object"})
    turn_state = turn_state_of(asked(tools=(), output=output), profile=Profile(schema_output=True))
    again, lesson = turn_state.refused(refusal(words))
    assert again
    assert turn_state.shaped().request.output is None
    assert (lesson is not None) is learns


def test_other_refusals_stand() -> None:
    """Rule 111: what has no remedy is the outcome; nothing that was refused is sent again as it was."""
    turn_state = turn_state_of()
    assert turn_state.refused(refusal("temperature must be at most 2")) == (False, None)
    spent = turn_state_of(controls=Controls(limits=Limits(extra_calls=0)), choice=named())
    assert spent.refused(refusal(FORCE_AND_THINKING)) == (False, None)


profiles = st.builds(
    Profile,
    protocol=st.sampled_from([Protocol.NATIVE, Protocol.HYBRID, Protocol.PROMPT]),
    forced=st.sampled_from(Forcing),
    reasoning=st.sampled_from(ReasoningHabit),
    reasoning_off=st.sampled_from([None, True]),
    schema_output=st.booleans(),
    grammar_field=st.sampled_from([None, "g"]),
)
limits = st.builds(
    Limits,
    extra_calls=st.integers(0, 6),
    text_call=st.integers(0, 9),
    empty=st.integers(0, 9),
    bad_arguments=st.integers(0, 9),
    truncated=st.integers(0, 9),
    reminders=st.integers(0, 9),
)
judgements = st.builds(
    judged,
    st.sampled_from(sorted(set(Verdict) - {Verdict.REJECTED, Verdict.UNAVAILABLE})),
    st.sampled_from([Text(text="It is sunny."), Text(text=""), Reasoning(text="hm")]),
    keeps=st.booleans(),
    cut_call=st.booleans(),
    blocks=st.booleans(),
)
refusals = st.sampled_from(
    [FORCE_AND_THINKING, "prefill", "tool_choice is not supported", "response_format is unavailable", "odd", "tools"]
).map(refusal)
happenings = st.lists(st.one_of(judgements, refusals), max_size=40)


@given(profiles, limits, st.sampled_from([None, ANY, named()]), happenings, st.sampled_from(OnUnmet))
@settings(max_examples=300, deadline=None)
def test_any_course_ends_within_the_ceiling(
    profile: Profile,
    bounds: Limits,
    choice: ToolChoice | None,
    happening: list[Judgement | ErrorInfo],
    on_unmet: OnUnmet,
) -> None:
    """Rules 25, 46, 96, 105: any verdicts and refusals cost at most the ceiling; every request ends on a user turn."""
    request = asked(tool_choice=choice)
    turn_state = turn_state_of(request, choice, profile=profile, controls=Controls(limits=bounds, on_unmet=on_unmet))
    calls = 1
    for event in happening:
        sent = turn_state.shaped()
        assert sent.request.messages[-1].role is Role.USER
        assert request.messages[0] in sent.request.messages
        if isinstance(event, ErrorInfo):
            again = turn_state.refused(event)[0]
            if again:
                assert (turn_state.shaped().request, turn_state.shaped().extra) != (sent.request, sent.extra)
        else:
            again = turn_state.settle(event, released=False, spoke=False).remedy in AGAIN
        if not again:
            break
        assert turn_state.may_call
        turn_state.count_call()
        calls += 1
    assert calls <= 1 + bounds.extra_calls
