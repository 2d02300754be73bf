"""Verdicts on calls that a model wrote as text or as a JSON answer, and on structured answers."""

from typing import Any

import msgspec
import pytest

from mustcall.core.adaptation import AdaptationKind
from mustcall.core.parts import Reasoning, Text, ToolCall
from mustcall.core.reply import FinishReason, Reply, Usage
from mustcall.core.request import OutputFormat, OutputKind
from mustcall.core.tools import ToolChoice
from mustcall.core.verdict import Verdict
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.request.plan import Rung, RungKind
from support.judging import (
    BAD_TEXT_CALL,
    CUT_TEXT_CALL,
    GONE_TEXT_CALL,
    OTHER,
    TEXT_CALL,
    case_of,
    kinds,
    verdict_on,
)
from support.values import ANY, NOTHING, asked, demand, named, replied

# --- calls written as text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "reported", "broad", "verdict"),
    [
        (Protocol.HYBRID, "stop", True, Verdict.CALLED),
        (Protocol.HYBRID, "tool_calls", True, Verdict.CALLED),
        (Protocol.PROMPT, "stop", True, Verdict.CALLED),
        (Protocol.NATIVE, "tool_calls", False, Verdict.TEXT_CALL),
        (Protocol.NATIVE, "stop", True, Verdict.TEXT_CALL),
        (Protocol.NATIVE, "stop", False, Verdict.ANSWERED),
    ],
)
def test_complete_text_calls(protocol: Protocol, reported: str, broad: bool, verdict: Verdict) -> None:
    """Rules 42, 44, 66: promoted under hybrid and prompt, a text call under native; strict mode goes by the finish."""
    reply = replied(Text(text=f"Let me see.\n{TEXT_CALL}"), reported=reported)
    judged = verdict_on(reply, case_of(protocol=protocol, controls=Controls(broad=broad)))
    assert judged.verdict is verdict
    if verdict is Verdict.CALLED:
        assert judged.reply.finish is FinishReason.TOOL_CALLS
        (call,) = judged.reply.calls
        assert (call.name, msgspec.json.decode(call.arguments_json)) == ("get_weather", {"city": "Paris"})
        assert "tool_call>" not in str(judged.reply.parts)
        assert AdaptationKind.CALL_PROMOTED in kinds(judged)
    if verdict is Verdict.TEXT_CALL:
        assert not judged.keeps
        assert judged.salvage is not None
        assert [call.name for call in judged.salvage.calls] == ["get_weather"]
    if verdict is Verdict.ANSWERED:
        assert judged.reply is reply


@pytest.mark.parametrize(
    ("text", "native", "prompt"),
    [
        (BAD_TEXT_CALL, Verdict.TEXT_CALL, Verdict.TEXT_CALL),
        (CUT_TEXT_CALL, Verdict.TEXT_CALL, Verdict.TEXT_CALL),
        (GONE_TEXT_CALL, Verdict.ANSWERED, Verdict.UNKNOWN_TOOL),
        ('<invoke name="gone">Hi.', Verdict.ANSWERED, Verdict.UNKNOWN_TOOL),
        (f"Write it like this:\n```\n{TEXT_CALL}\n```", Verdict.ANSWERED, Verdict.ANSWERED),
        (f"```\n{TEXT_CALL}\n```\nThat is the format.", Verdict.ANSWERED, Verdict.ANSWERED),
        (f"`{TEXT_CALL}`", Verdict.ANSWERED, Verdict.ANSWERED),
    ],
)
@pytest.mark.parametrize("protocol", [Protocol.NATIVE, Protocol.HYBRID])
def test_text_calls_that_are_none(text: str, native: Verdict, prompt: Verdict, protocol: Protocol) -> None:
    """Rules 44, 63, 69, 122: broken markup of an offered tool is a text call; of any other, or in code, it is text."""
    reply = replied(Text(text=text))
    assert verdict_on(reply, case_of(protocol=protocol)).verdict is native
    assert verdict_on(reply, case_of(protocol=Protocol.PROMPT)).verdict is prompt


def test_text_calls_with_bad_arguments_are_no_salvage() -> None:
    """Rule 51: only what is complete, offered and valid can be salvaged."""
    text = '<tool_call>{"name": "get_weather", "arguments": {"town": "Paris"}}</tool_call>'
    judged = verdict_on(replied(Text(text=text)), case_of(protocol=Protocol.NATIVE))
    assert (judged.verdict, judged.salvage) == (Verdict.TEXT_CALL, None)
    assert verdict_on(replied(Text(text=text)), case_of(protocol=Protocol.PROMPT)).verdict is Verdict.BAD_ARGUMENTS


@pytest.mark.parametrize(
    ("text", "verdict", "keeps"),
    [
        ("", Verdict.PHANTOM_CALL, True),
        ("It is sunny.", Verdict.PHANTOM_CALL, True),
        (CUT_TEXT_CALL, Verdict.TEXT_CALL, False),
        (GONE_TEXT_CALL, Verdict.TEXT_CALL, False),
    ],
)
def test_finish_says_calls_and_there_are_none(text: str, verdict: Verdict, keeps: bool) -> None:
    """Rule 42: with markup it is a text call, without it a phantom."""
    judged = verdict_on(replied(Text(text=text), reported="tool_calls"), case_of(protocol=Protocol.NATIVE))
    assert (judged.verdict, judged.keeps) == (verdict, keeps)


def test_a_call_cut_by_the_limit_in_text() -> None:
    """Rules 40, 123: markup that ends in the middle at the token limit is a cut call."""
    judged = verdict_on(replied(Text(text=CUT_TEXT_CALL), reported="length"))
    assert (judged.verdict, judged.cut_call) == (Verdict.TRUNCATED, True)


def test_a_real_call_beside_markup() -> None:
    """Rule 52: the call is kept, the markup is stripped from the text and that is reported."""
    judged = verdict_on(replied(Text(text=f"Now: {TEXT_CALL}"), OTHER, reported="tool_calls"))
    kept = [part for part in judged.reply.parts if part != Text(text="")]
    assert (judged.verdict, kept) == (Verdict.CALLED, [Text(text="Now: "), OTHER])
    assert kinds(judged) == [AdaptationKind.MARKUP_STRIPPED]


@pytest.mark.parametrize("markup", [BAD_TEXT_CALL, CUT_TEXT_CALL])
def test_a_real_call_beside_markup_that_cannot_be_read(markup: str) -> None:
    """Rule 52: half a call in text is stripped like a whole one; what only quotes it stays."""
    judged = verdict_on(replied(Text(text=f"Not `{markup}`: {markup}"), OTHER, reported="tool_calls"))
    assert (judged.verdict, judged.reply.parts) == (Verdict.CALLED, (Text(text=f"Not `{markup}`: "), OTHER))
    assert kinds(judged) == [AdaptationKind.MARKUP_STRIPPED]


def test_a_real_call_beside_what_is_no_call() -> None:
    """Rules 44, 112: markup of a tool nobody offered changes nothing, and nothing is reported."""
    reply = replied(Text(text=f"Now: {GONE_TEXT_CALL}"), OTHER, reported="tool_calls")
    judged = verdict_on(reply)
    assert judged.verdict is Verdict.CALLED
    assert judged.reply is reply
    assert judged.notes == ()


@pytest.mark.parametrize("markup", [BAD_TEXT_CALL, CUT_TEXT_CALL])
@pytest.mark.parametrize("protocol", [Protocol.HYBRID, Protocol.PROMPT, Protocol.NATIVE])
def test_text_calls_stand_or_fall_together(protocol: Protocol, markup: str) -> None:
    """Rules 66, 69: one call that can be read is neither promoted nor salvaged beside one that cannot."""
    reply = replied(Text(text=f"{TEXT_CALL}\n{markup}"))
    judged = verdict_on(reply, case_of(protocol=protocol))
    assert (judged.verdict, judged.salvage) == (Verdict.TEXT_CALL, None)


@pytest.mark.parametrize("markup", [TEXT_CALL, BAD_TEXT_CALL, CUT_TEXT_CALL])
def test_markup_where_nothing_may_be_called(markup: str) -> None:
    """Rules 89, 125: under `none` markup is stripped, readable or not; what can be read is noted as a call."""
    judged = verdict_on(replied(Text(text=f"Now: {markup}")), case_of(demand=demand(NOTHING)))
    shown = "".join(part.text for part in judged.reply.parts if isinstance(part, Text))
    assert (judged.verdict, shown) == (Verdict.ANSWERED, "Now: ")
    dropped = [AdaptationKind.CALL_DROPPED] if markup == TEXT_CALL else []
    assert kinds(judged) == [*dropped, AdaptationKind.MARKUP_STRIPPED]


def test_a_dropped_call_does_not_hide_a_cut() -> None:
    """Rules 40, 125: a call that may not be made is dropped; that the answer was cut is still said."""
    cut = ToolCall(id="c", name="get_weather", arguments_json='{"ci')
    judged = verdict_on(replied(Text(text="It is"), cut, reported="length"), case_of(demand=demand(NOTHING)))
    assert (judged.verdict, judged.reply.parts) == (Verdict.ANSWERED, (Text(text="It is"),))
    assert judged.reply.finish is FinishReason.LENGTH


@pytest.mark.parametrize("choice", [None, ANY])
def test_a_pause_of_nothing_is_empty(choice: ToolChoice | None) -> None:
    """Rules 32, 38: a pause with nothing in it is neither an answer nor a met force."""
    reply = Reply(id="r", model="m", parts=(), finish=FinishReason.PAUSE, reported_finish="pause_turn")
    assert verdict_on(reply, case_of(demand=demand(choice))).verdict is Verdict.EMPTY


def test_leaked_reasoning_is_taken_out() -> None:
    """Rule 65: it becomes reasoning; a reply of nothing else is thinking only."""
    judged = verdict_on(replied(Text(text="<think>hm</think>Sunny.")))
    assert (judged.verdict, judged.reply.parts) == (
        Verdict.ANSWERED,
        (Reasoning(text="hm"), Text(text="Sunny.")),
    )
    assert kinds(judged) == [AdaptationKind.MARKUP_STRIPPED]
    assert verdict_on(replied(Text(text="<think>hm</think>"))).verdict is Verdict.THINKING_ONLY
    late = verdict_on(replied(Text(text="hm\n</think>\n\nSunny.")))
    assert late.reply.parts == (Reasoning(text="hm\n"), Text(text="Sunny."))


# --- constrained rungs and structured answers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reported", "verdict"),
    [
        ('{"name":"get_weather","arguments":{"city":"Paris"}}', "stop", Verdict.CALLED),
        ('{"name":"get_weather","arguments":{}}', "stop", Verdict.BAD_ARGUMENTS),
        ('{"name":"search","arguments":{"q":"x"}}', "stop", Verdict.FORCE_MISSED),
        ("It is sunny.", "stop", Verdict.FORCE_MISSED),
        ('{"name":"get_weather","argum', "length", Verdict.TRUNCATED),
    ],
)
@pytest.mark.parametrize("kind", [RungKind.SCHEMA, RungKind.GRAMMAR])
def test_calls_as_json_answers(text: str, reported: str, verdict: Verdict, kind: RungKind) -> None:
    """Rules 28, 76: constrained output is verified all the same, and re-emitted as a call."""
    case = case_of(demand=demand(named()), rung=Rung(kind))
    judged = verdict_on(replied(Reasoning(text="hm"), Text(text=text), reported=reported), case)
    assert judged.verdict is verdict
    if verdict is Verdict.CALLED:
        call = ToolCall(id="call_t_0", name="get_weather", arguments_json='{"city":"Paris"}')
        assert judged.reply.parts == (Reasoning(text="hm"), call)
        assert judged.reply.finish is FinishReason.TOOL_CALLS


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("text", "reported", "verdict"),
    [
        ('{"a": 1}', "stop", Verdict.ANSWERED),
        ('{"a": "x"}', "stop", Verdict.BAD_ANSWER),
        ("Sure: 1", "stop", Verdict.BAD_ANSWER),
        ('{"a": ', "length", Verdict.TRUNCATED),
    ],
)
def test_structured_answers(text: str, reported: str, verdict: Verdict) -> None:
    """Contract: a structured answer is valid under the requested schema, or it is none."""
    output = OutputFormat(kind=OutputKind.SCHEMA, schema=SCHEMA)
    case = case_of(request=asked(tools=(), output=output))
    judged = verdict_on(replied(Text(text=text), reported=reported), case)
    assert judged.verdict is verdict
    assert bool(judged.problem) is (verdict is Verdict.BAD_ANSWER)


def test_a_starved_prompt() -> None:
    """Rule 132: usage far below the lower bound is reported, or refused where the operator says so."""
    reply = replied(Text(text="Yes."), usage=Usage(input_tokens=50, output_tokens=5))
    judged = verdict_on(reply, case_of(prompt_bound=20_000))
    assert (judged.verdict, kinds(judged)) == (Verdict.ANSWERED, [AdaptationKind.REPORTED])
    strict = case_of(prompt_bound=20_000, controls=Controls(refuse_starved=True))
    assert verdict_on(reply, strict).verdict is Verdict.STARVED
