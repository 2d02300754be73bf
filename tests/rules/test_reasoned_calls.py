"""Calls in reasoning, through real gateways: all a reply comes to, or thoughts before an answer (rules 65, 148)."""

from collections.abc import Iterator
from typing import Any, Literal

import pytest

from mustcall.testing import Answer, Say, Think, Turn
from rules.driving import NATIVE, WAYS, WORDS, Stage, arriving, prompted, request, stranger
from rules.forms import HERMES, check_no_trace
from support.forcing import WIRES

CALLED = (("get_weather", {"city": "Paris"}),)
CHUNKS = (1, 7, 4096)
THOUGHT = Think(f"I should look. {HERMES}", shown="full")
SUMMARY = Think(f"I should look. {HERMES}", shown="summary")
#: Upstreams, and where they put reasoning.
Source = tuple[str, Literal["full", "summary"]]
SOURCES: tuple[Source, ...] = (("chat", "full"), ("responses", "full"), ("responses", "summary"))
thoughts = pytest.mark.parametrize("thought", [THOUGHT, SUMMARY], ids=["full", "summary"])
ways = pytest.mark.parametrize(("wire", "stream"), WAYS)
upstreams = pytest.mark.parametrize("upstream", WIRES)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One upstream behind three gateways."""
    with Stage(compares=True) as opened:
        yield opened


@ways
@upstreams
@thoughts
def test_a_reply_that_is_a_call_in_reasoning(
    stage: Stage, wire: str, stream: bool, upstream: str, thought: Think
) -> None:
    """Rule 148: where text may carry calls it is the call, in one upstream request, and no markup is shown."""
    for size in CHUNKS:
        model = stranger()
        outcome = stage.play(Turn(thought), chunking=size).ask(
            wire, request(wire, model=model, stream=stream), upstream
        )
        assert stage.bodies == [arriving(wire, upstream, model=model, stream=stream)]
        assert (outcome.error, outcome.text, outcome.calls, outcome.finish) == ({}, "", CALLED, "calls")
        check_no_trace(outcome.raw)


@ways
def test_a_section_in_the_text(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 148: the same for reasoning that the text itself marks, closed or not."""
    for text in (f"<think>Well.\n{HERMES}\n</think>\n", f"<think>Well.\n{HERMES}", f"Well.\n{HERMES}\n</think>\n\n"):
        model = stranger()
        outcome = stage.play(Turn(Say(text)), chunking=7).ask(wire, request(wire, model=model, stream=stream), "chat")
        assert stage.bodies == [arriving(wire, "chat", model=model, stream=stream)]
        assert (outcome.error, outcome.calls, outcome.finish) == ({}, CALLED, "calls")
        check_no_trace(outcome.raw)


@ways
def test_under_the_prompt_protocol(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 148: text is the primary channel there."""
    fields: dict[str, Any] = {"stream": stream, "mustcall": {"protocol": "prompt"}}
    outcome = stage.play(Turn(THOUGHT)).ask(wire, request(wire, **fields))
    assert stage.bodies == [prompted(wire, stream=stream)]
    assert (outcome.error, outcome.text, outcome.calls) == ({}, "", CALLED)
    check_no_trace(outcome.raw)


@ways
def test_a_demanded_call(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 148: under the native protocol a force that nothing else meets is met by it."""
    fields: dict[str, Any] = {"stream": stream, "choice": "required"}
    outcome = stage.play(Turn(THOUGHT)).ask(wire, request(wire, **fields), "chat")
    assert stage.bodies == [arriving(wire, "chat", **fields)]
    assert (outcome.error, outcome.text, outcome.calls) == ({}, "", CALLED)
    check_no_trace(outcome.raw)


@ways
@pytest.mark.parametrize("model", [NATIVE, ""])
def test_a_draft_is_no_call(stage: Stage, wire: str, stream: bool, model: str) -> None:
    """Rule 148: JSON without markup in reasoning is a draft: nothing is called, and the model is reminded."""
    draft = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
    for text in (draft, f"I shall call it.\n{draft}"):
        named = model or stranger()
        asked = request(wire, model=named, stream=stream)
        outcome = stage.play(Turn(Think(text)), Turn(Say("Sunny."))).ask(wire, asked, "chat")
        first = arriving(wire, "chat", model=named, stream=stream)
        again = arriving(wire, "chat", WORDS.thinking_only, model=named, stream=stream)
        assert stage.bodies == [first, again]
        assert (outcome.error, outcome.text, outcome.calls) == ({}, "Sunny.", ())


@ways
@upstreams
@thoughts
def test_nothing_but_thinking(stage: Stage, wire: str, stream: bool, upstream: str, thought: Think) -> None:
    """Rule 148: otherwise the reply is nothing but thinking, the model is reminded, and no markup is shown."""
    for size in CHUNKS:
        turns: tuple[Answer, ...] = (Turn(thought), Turn(Say("Sunny.")))
        outcome = stage.play(*turns, chunking=size).ask(wire, request(wire, stream=stream), upstream)
        first = arriving(wire, upstream, stream=stream)
        assert stage.bodies == [first, arriving(wire, upstream, WORDS.thinking_only, stream=stream)]
        assert (outcome.error, outcome.text, outcome.calls) == ({}, "Sunny.", ())
        if not stream:
            assert outcome.verdicts == "thinking_only,answered"
        check_no_trace(outcome.raw)


@ways
@pytest.mark.parametrize("model", [NATIVE, ""])
@pytest.mark.parametrize("source", SOURCES, ids="-".join)
def test_thoughts_before_an_answer(stage: Stage, wire: str, stream: bool, model: str, source: Source) -> None:
    """Rule 65: reasoning that ends in an answer makes no call, and goes out as it is."""
    upstream, shown = source
    thought = f"Maybe {HERMES} no."
    for size in CHUNKS:
        named = model or stranger()
        turn = Turn(Think(thought, shown=shown), Say("It is sunny."))
        outcome = stage.play(turn, chunking=size).ask(wire, request(wire, model=named, stream=stream), upstream)
        assert stage.bodies == [arriving(wire, upstream, model=named, stream=stream)]
        assert (outcome.error, outcome.text, outcome.calls) == ({}, "It is sunny.", ())
        assert outcome.thinking == thought


@ways
def test_a_section_before_an_answer(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 65: a call in a section of the text is reasoning, not a call, where text may carry calls, too."""
    turn = Turn(Say(f"<think>Maybe {HERMES} no.</think>\n\nIt is sunny."))
    for size in CHUNKS:
        model = stranger()
        outcome = stage.play(turn, chunking=size).ask(wire, request(wire, model=model, stream=stream), "chat")
        assert stage.bodies == [arriving(wire, "chat", model=model, stream=stream)]
        assert (outcome.error, outcome.text.strip(), outcome.calls) == ({}, "It is sunny.", ())
    body = request(wire, model="strange-model", stream=stream, mustcall={"protocol": "prompt"})
    outcome = stage.play(turn).ask(wire, body)
    assert stage.bodies == [prompted(wire, model="strange-model", stream=stream)]
    assert (outcome.error, outcome.text.strip(), outcome.calls) == ({}, "It is sunny.", ())


@ways
def test_an_answer_behind_a_late_end(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 65: where the prompt opened the section, a call before its end is none either."""
    for size in CHUNKS:
        model = stranger()
        turn = Turn(Say(f"Maybe {HERMES} no.\n</think>\n\nIt is sunny."))
        outcome = stage.play(turn, chunking=size).ask(wire, request(wire, model=model, stream=stream), "chat")
        assert stage.bodies == [arriving(wire, "chat", model=model, stream=stream)]
        assert (outcome.error, outcome.calls, outcome.finish) == ({}, (), "stop")
        # Of a stream, text that went out before the section ended stays (rule 135).
        assert outcome.text in (("It is sunny.", "Maybe It is sunny.") if stream else ("It is sunny.",))
        check_no_trace(outcome.raw)


@ways
@pytest.mark.parametrize(
    "text", [f"<think>Maybe {HERMES} no.</think>\n\nSunny.", f"Maybe {HERMES} no.\n</think>\n\nSunny."]
)
def test_no_salvage_out_of_reasoning(stage: Stage, wire: str, stream: bool, text: str) -> None:
    """Rule 65: under the native protocol such a call is not salvaged, either, when a demanded one never comes."""
    outcome = stage.play(*(Turn(Say(text)) for _ in range(6))).ask(
        wire, {**request(wire, stream=stream, choice="required"), "mustcall": {"limits": {"extra_calls": 1}}}, "chat"
    )
    # A text with markup in it is not clean: nothing of it stays in the context of the next attempt (rule 25).
    first, again = (
        arriving(wire, "chat", *said, stream=stream, choice="required") for said in ([], [WORDS.call_any[1]])
    )
    assert stage.bodies == [first, again]
    assert outcome.calls == ()
    assert outcome.error
